"""JAX's persistent compilation cache: whether it had the program for a compile, or why not.

Hits and misses come from `jax.monitoring`, the reasons from `jax.config`, and the parts of a key
from JAX's log. All three are public, so no fallback is needed.
"""

import logging
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax

from leafwise._objects.locks import new_lock

_ASKED: Final = "/jax/compilation_cache/compile_requests_use_cache"
_HIT: Final = "/jax/compilation_cache/cache_hits"
_WRITTEN: Final = "/jax/compilation_cache/cache_misses"

_NOT_ASKED: Final = "not asked: JAX decides this at its first compile, and by the backend"
_WORDS: Final = {
    "computation": "the program",
    "jax_lib version": "the version of jaxlib",
    "backend version": "the version of the backend",
    "XLA flags": "the XLA flags",
    "compile_options": "the compile options",
    "accelerator_config": "the devices",
    "compression": "the compression of entries",
    "custom_hook": "JAX's custom hook",
}
"""The parts of a key, as JAX calls them in its log, and in plain words."""


class CacheAnswer(NamedTuple):
    """The answer of the persistent cache to a compile."""

    hit: bool = False
    miss: str = ""
    unwritten: str | None = None  # why a program that it lacked is not in it now; "" if it is
    parts: Mapping[str, str] = {}

    def reason(self, before: Mapping[str, str]) -> str:
        """Return why it was missed, or ""; `before` has the parts of the program's last key."""
        if self.unwritten is None:
            return self.miss
        differing = differing_parts(before, self.parts) if before else []
        changed = f": {' and '.join(differing)} changed since it was last compiled"
        written = f"; not written, {self.unwritten}" if self.unwritten else "; written now"
        return self.miss + changed * bool(differing) + written


class _Compile(threading.local):
    """The cache events, and the parts of the key, of this thread's current compile."""

    def __init__(self) -> None:
        self.events: set[str] = set()
        self.parts: dict[str, str] = {}


_thread: Final = _Compile()
_last_parts: Final = weakref.WeakKeyDictionary[Any, dict[Any, Mapping[str, str]]]()
"""The parts of the last key of each function, by its inputs, while there are listeners."""


def is_on() -> bool:
    """Return whether JAX is configured to keep compiled programs on disk."""
    config: Any = jax.config
    return bool(config.jax_compilation_cache_dir and config.jax_enable_compilation_cache)


def record_cache_event(event: str, **_: str | int) -> None:
    """Record a cache event from `jax.monitoring`. JAX emits it before the compile it belongs to."""
    if event in (_ASKED, _HIT, _WRITTEN):
        _thread.events.add(event)


def compile_ended(seconds: float) -> CacheAnswer:
    """Return the answer of the cache to the compile that this thread has just finished."""
    events, parts = _thread.events, _thread.parts
    _thread.events, _thread.parts = set(), {}
    if _HIT in events or not is_on():
        return CacheAnswer(hit=_HIT in events, parts=parts)
    if _ASKED not in events:
        return CacheAnswer(miss=_NOT_ASKED)
    unwritten = "" if _WRITTEN in events else _unwritten(seconds)
    return CacheAnswer(miss="not found", unwritten=unwritten, parts=parts)


def parts_before(fun: Any, inputs: Any, parts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parts of the last key of a function and its inputs, and keep the new ones."""
    known = _last_parts.setdefault(fun, {})
    before, known[inputs] = known.get(inputs, {}), parts
    return before


def _unwritten(seconds: float) -> str:
    """Return why JAX did not write the program that it compiled."""
    config: Any = jax.config
    shortest = config.jax_persistent_cache_min_compile_time_secs
    smallest = config.jax_persistent_cache_min_entry_size_bytes
    if jax.process_index():
        return "as only process 0 writes"
    if seconds < shortest:
        return f"as it compiled faster than jax_persistent_cache_min_compile_time_secs={shortest:g}"
    if smallest > 0:
        return f"as it is smaller than jax_persistent_cache_min_entry_size_bytes={smallest}"
    return "as it has host callbacks, or could not be written"


def differing_parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    names = [name for name in after if before.get(name) != after[name]]
    return [_WORDS.get(name, name) for name in names]


class _PartsOfKeys(logging.Filter):
    """Reads the hashes of the parts of a key from JAX's log, which is otherwise unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners = 0
        self.level: int | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        match record.msg, record.args:  # of any shape: what raises here ends the user's compile
            # Such as: get_cache_key hash of serialized XLA flags: e3b0...
            case str(text), (str(name), str(digest)) if "hash of serialized" in text:
                _thread.parts[name] = digest
            case _:
                pass
        inherited: Any = _LOGGER.parent
        return record.levelno >= (self.level or inherited.getEffectiveLevel())


_LOGGER: Final = logging.getLogger("jax._src.cache_key")
_PARTS: Final = _PartsOfKeys()
_LOCK: Final = new_lock()


def listen_for_parts(*, on: bool) -> None:
    """Add or remove a listener; while there are any, answers include the parts of keys."""
    # JAX then hashes each program twice, if the cache is on.
    with _LOCK:
        _PARTS.listeners += 1 if on else -1
        if not _PARTS.listeners:
            _last_parts.clear()
    compile_began()


def compile_began() -> None:
    """Turn JAX's log of key parts on if there are listeners and the cache is on, else off."""
    with _LOCK:
        wanted = bool(_PARTS.listeners) and is_on()
        if wanted and _PARTS.level is None:
            _PARTS.level = _LOGGER.level
            _LOGGER.addFilter(_PARTS)
            _LOGGER.setLevel(logging.DEBUG)
        elif not wanted and _PARTS.level is not None:
            _LOGGER.setLevel(_PARTS.level)
            _LOGGER.removeFilter(_PARTS)
            _PARTS.level = None
