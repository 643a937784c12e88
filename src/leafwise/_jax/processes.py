"""Exchanging texts between all processes of a program, without a device.

JAX's coordination service has a store of keys and values, and barriers with a time limit. No
public name leads to it.
"""

import contextlib
import dataclasses
import threading
from typing import Any, Final
from urllib.parse import quote

import jax

from leafwise._jax.compat import inside
from leafwise._objects.locks import new_lock

_LONGEST: Final = 1e6
"""Seconds: of what is longer, a number of milliseconds may not fit."""


class MissingError(Exception):
    """Not all processes came in time."""

    def __init__(self, missing: tuple[int, ...] | None, detail: str) -> None:
        super().__init__(missing, detail)
        # `()`: this process itself was late. `None`: unknown which processes are missing.
        self.missing = missing
        self.detail = detail


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of this program."""

    index: int
    count: int
    client: Any


def processes() -> Processes | None:
    """Return the processes; None before `jax.distributed.initialize`. No backend is started."""
    if not jax.distributed.is_initialized():
        return _left
    state = _state()
    return Processes(int(state.process_id), int(state.num_processes), state.client)


def _state() -> Any:
    return inside("distributed").global_state


def exchange(
    here: Processes, name: str, text: str, timeout: float, start: int = 0
) -> dict[int, str]:
    """Return the texts of all processes by index, once all have called this with one name.

    The n-th call with a name meets the n-th of the others, from `start` on.
    """
    if here is _left:
        raise MissingError(None, "its JAX client is shut down: it must start again")
    key, previous = _next_keys(here.client, name, start)
    try:
        here.client.key_value_set(f"{key}/{here.index}", text, allow_overwrite=True)
        here.client.wait_at_barrier(key, _milliseconds(timeout))
        texts = _read(here.client, key)
    except Exception as error:  # XlaRuntimeError, which is a RuntimeError in some versions
        came: dict[int, str] | None = None
        with contextlib.suppress(Exception):
            came = _read(here.client, key)
        missing = None if came is None else tuple(sorted({*range(here.count)} - {*came}))
        raise MissingError(missing, str(error)) from error
    if previous is not None:  # all have read the texts before: they are here
        with contextlib.suppress(Exception):
            here.client.key_value_delete(f"{previous}/{here.index}")
    return texts


def announce(here: Processes, name: str, text: str, timeout: float, start: int = 0) -> None:
    """Take part in an exchange without waiting for the others, who may not come to it."""
    if here is _left:
        return
    key, _ = _next_keys(here.client, name, start)

    def wait() -> None:
        with contextlib.suppress(Exception):
            here.client.wait_at_barrier(key, _milliseconds(timeout))

    with contextlib.suppress(Exception):  # the coordination service has ended
        here.client.key_value_set(f"{key}/{here.index}", text, allow_overwrite=True)
        threading.Thread(target=wait, daemon=True, name="leafwise announces").start()


def count_of_exchanges(here: Processes, name: str) -> int:
    """Return how often texts of a name were exchanged, since JAX was initialised."""
    with _LOCK:
        return _NUMBERS.get(name, -1) + 1 if here.client is _counted_for else 0


def _milliseconds(seconds: float) -> int:
    return max(1, round(min(seconds, _LONGEST) * 1000))


_left: Processes | None = None


def leave() -> None:
    """Shut the JAX client of this process down, so that JAX ends those that wait for it.

    They end once it has waited for them in JAX's shutdown, for `shutdown_timeout_seconds`; or, if
    this process ends before, when its heartbeat is missed. This does not wait for them itself,
    and neither does the end of the process, as JAX forgets the client.
    """
    global _left  # noqa: PLW0603  # what `processes` returns from here on
    with _LOCK:
        here = processes()
        if here is None or here is _left:
            return
        _left = dataclasses.replace(here, client=None)
    _state().client = None

    def shut() -> None:
        with contextlib.suppress(Exception):  # the others do not come
            here.client.shutdown()

    threading.Thread(target=shut, daemon=True, name="leafwise leaves").start()


def _read(client: Any, key: str) -> dict[int, str]:
    pairs: list[tuple[str, str]] = client.key_value_dir_get(f"{key}/")
    return {int(key.rpartition("/")[2]): text for key, text in pairs}


_LOCK: Final = new_lock()
_NUMBERS: Final[dict[str, int]] = {}
"""Of the last exchange with a name."""

_counted_for: Any = None


def _next_keys(client: Any, name: str, start: int) -> tuple[str, str | None]:
    """Return the key of the next exchange with a name, and that of the last one."""
    global _counted_for  # noqa: PLW0603  # of the client that there is now
    with _LOCK:
        if client is not _counted_for:
            _NUMBERS.clear()
            _counted_for = client
        last = _NUMBERS.get(name, -1)
        _NUMBERS[name] = number = max(last + 1, start)
    folder = f"leafwise/{quote(name, safe='')}"
    return f"{folder}/{number}", None if last < 0 else f"{folder}/{last}"
