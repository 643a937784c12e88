"""Programs as JAX hands them to XLA, just before the compile.

There is no public hook: JAX calls `compile_or_get_cached` as an attribute of its module, which is
replaced while there are listeners, if a probe has seen a program pass through it.
"""

import contextlib
import functools
import hashlib
import os
import re
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jaxlib
from jaxlib.mlir import ir, passmanager  # `jax.extend.mlir` has them; its import changes JAX's keys

from leafwise._jax.compat import JIT, Internal, inside
from leafwise._jax.events import LOCK
from leafwise._jax.operations import read_operations

_LARGE: Final = 32  # constants with more elements are shown as a digest

_ELIDED: Final = "__elided__"
_REGION: Final = re.compile(r"\s*(?:[}^#]|cond \{|reducer\(|$)")
"""Matches the beginnings of lines that are not operations."""


class Compile(NamedTuple):
    """A program that is about to be compiled, or to be read from the persistent cache."""

    module: Any
    devices: Any
    settings: Any
    backend: Any

    @property
    def name(self) -> str:
        """The name of the module: ``jit_step``."""
        return str(self.module.operation.attributes["sym_name"].value)

    def lines(self) -> list[tuple[str, str]]:
        """Return the lines of the module as MLIR text, without its name, and their locations."""
        # Printing one operation takes as long as printing all, so all are printed at once. Lines
        # that open or close a region have no location. A constant has that of its first use, since
        # JAX gives it the location of the call, or an unknown one.
        with self.module.context:
            stripped = self.module.operation.clone()
            passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(stripped)
            del stripped.attributes["sym_name"]
            text = stripped.get_asm(large_elements_limit=_LARGE, large_resource_limit=_LARGE)
            lines = str(text).splitlines()
            found = dict.fromkeys(range(len(lines)), "")
            operations = (at for at, line in enumerate(lines) if not _REGION.match(line))

            def locate(operation: Any) -> Any:
                at = next(operations, len(lines) - 1)
                is_constant = operation.name == "stablehlo.constant"
                uses = list(operation.results[0].uses) if is_constant else []
                found[at] = str(uses[-1].owner.location if uses else operation.location)
                if _ELIDED in lines[at] and operation.name in lines[at]:
                    lines[at] = lines[at].replace(_ELIDED, f"sha256:{_digest(operation)}")
                # The operation in a short reduction has no line of its own.
                is_short = " applies " in lines[at]
                return ir.WalkResult.SKIP if is_short else ir.WalkResult.ADVANCE

            self.module.operation.walk(locate, ir.WalkOrder.PRE_ORDER)
            if any(_ELIDED in line for line in lines):  # in an operation with its own text format
                lines = str(stripped.get_asm()).splitlines()
        return list(zip(lines, found.values(), strict=True))

    def options(self) -> dict[str, str]:
        """Return what the compile depends on besides the module, as text."""
        devices = list(self.devices.flat)
        names = "XLA_FLAGS", "LIBTPU_INIT_ARGS"
        flags = [flag for name in names for flag in os.environ.get(name, "").split()]
        found = {
            "jax": f"{jax.__version__}, jaxlib {vars(jaxlib).get('__version__')}",
            "XLA_FLAGS": " ".join(sorted(each for each in flags if "dump" not in each)),
            "platform": f"{self.backend.platform} {self.backend.platform_version}",
            "compiler_options": str(sorted(map(str, self.settings.env_option_overrides))),
        }
        # Those of one process have different numbers in each process.
        if len({each.process_index for each in devices}) > 1:
            found["devices"] = str([each.id for each in devices])
        return found

    def cache_key(self) -> str | None:
        """Return the key in the persistent cache, by JAX's own rules; None if unknown."""
        arguments = self.settings, self.backend, self.module, self.devices
        key: str | None = None
        with contextlib.suppress(AttributeError, TypeError):
            key = inside("compiler")._get_cache_key(*arguments)  # noqa: SLF001
        return key


def module_of(lowered: Any) -> Any:
    """Return the module of a lowered function; None where JAX does not show it."""
    return getattr(getattr(lowered, "_lowering", None), "_hlo", None)


Listener = Callable[[Compile], None]

_listeners: tuple[Listener, ...] = ()


def listen_to_compiles(listener: Listener) -> bool:
    """Call `listener` with each program before its compile; return whether JAX shows them."""
    # On the thread that compiles it: an exception that it raises ends the user's call.
    return Internal.COMPILES.is_known(_probe) and _listen(listener)


def _listen(listener: Listener) -> bool:
    global _listeners  # noqa: PLW0603  # replaced, never changed: other threads iterate over it
    with LOCK:
        if listener not in _listeners:
            if not _hook():
                return False
            _listeners = (*_listeners, listener)
        return True


def shows_lines() -> bool:
    """Return whether JAX shows which source lines the operations of a program are from."""
    return Internal.LOCATIONS.is_known(_probe)


def _probe() -> dict[Internal, bool]:
    """Return whether a listener gets the program of a call, and its lines; nothing is compiled."""
    thread, answers, lines = threading.get_ident(), list[bool](), list[list[int]]()

    def made(x: Any) -> Any:
        return x + 1

    inner = JIT(made)

    def traced_before(x: Any) -> Any:
        return inner(x)

    def leafwise_probe(x: Any) -> Any:
        return inner(x)

    def read(compiled: Compile) -> None:
        if threading.get_ident() == thread:
            is_right = any("stablehlo.add" in line for line, _ in compiled.lines())
            answers.append(is_right and bool(compiled.options()["platform"]))
            with contextlib.suppress(AttributeError, TypeError):
                statements = read_operations(compiled.module).counts
                lines.extend([frame.line for frame in one.frames[:2]] for one in statements)
            raise InterruptedError  # before the compile

    try:
        with contextlib.suppress(InterruptedError):
            JIT(traced_before).lower(1.0)
            if _listen(read):
                JIT(leafwise_probe)(1.0)
    finally:
        stop_listening_to_compiles(read)
    # JAX 0.8 gives an inner function the lines of the call that first traced it.
    own = [made.__code__.co_firstlineno + 1, leafwise_probe.__code__.co_firstlineno + 1]
    return {Internal.COMPILES: answers == [True], Internal.LOCATIONS: own in lines}


def stop_listening_to_compiles(listener: Listener) -> None:
    """Stop calling `listener`; the hook is removed along with the last one."""
    global _listeners  # noqa: PLW0603  # replaced
    with LOCK:
        _listeners = tuple(other for other in _listeners if other != listener)
        if not _listeners:
            with contextlib.suppress(AttributeError):
                compiler = inside("compiler")
                # Left alone if other code has replaced it since.
                compiler.compile_or_get_cached = getattr(compiler.compile_or_get_cached, _MARK)


def _hook() -> bool:
    with contextlib.suppress(AttributeError):
        compiler = inside("compiler")
        original: Any = compiler.compile_or_get_cached
        if hasattr(original, _MARK):
            return True

        @functools.wraps(original)
        def compile_or_get_cached(
            backend: Any, computation: Any, devices: Any, settings: Any, *rest: Any, **more: Any
        ) -> Any:
            for listener in _listeners:
                listener(Compile(computation, devices, settings, backend))
            return original(backend, computation, devices, settings, *rest, **more)

        setattr(compile_or_get_cached, _MARK, original)
        compiler.compile_or_get_cached = compile_or_get_cached
        return True
    return False


_MARK: Final = "_leafwise_original"


def _digest(operation: Any) -> str:
    digest = hashlib.sha256()
    try:
        for value in operation.attributes.values():
            digest.update(memoryview(value).cast("B"))
    # Not of numbers, or not in Python's formats; in JAX 0.8 there are no `values`.
    except (AttributeError, ValueError, TypeError, BufferError):
        digest.update(str(operation.get_asm()).encode())
    return digest.hexdigest()
