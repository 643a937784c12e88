"""The user's frames around a compile, and the calls that share programs outside `jit`.

Counted are, by the lines of the user's frames: the calls of each function of JAX that called a
program slow to compile, and the reads of an array's value. What is counted keeps no array alive.
"""

import dataclasses
import functools
import inspect
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import jax

from leafwise._findings.json import to_json
from leafwise._findings.records import CallsRecord, EventRecord, LevelRecord, SiteRecord
from leafwise._jax.compat import inside
from leafwise._jit.jitted_call import takes_values
from leafwise._jit.outside import is_mask
from leafwise._objects.source.call_site import (
    Site,
    inner_frame,
    is_users_file,
    position_of,
    runs_of_lines,
    start_of,
    user_frame,
    watch_calls,
)
from leafwise._objects.source.loops import Loop, loops_around

_ARRAY: Final[Any] = getattr(inside("array"), "ArrayImpl", jax.Array)
_READERS: Final = (
    *("__bool__", "__complex__", "__float__", "__format__", "__index__", "__int__", "__repr__"),
    *("__str__", "item", "tolist"),
)
"""The methods of arrays that read values; NumPy reads memory, which nothing shows."""

_MOST_CALLS: Final = 10_000
"""A start-up has fewer calls; later ones are not looked at, to be fast."""


class CallCounts:
    """How often functions of JAX were called, and values read, by the lines around that."""

    def __init__(self) -> None:
        self._numbers = Counter[tuple[str, tuple[LevelRecord, ...]]]()
        self._totals = Counter[str]()

    def follow(self, record: EventRecord) -> None:
        """Count from now on what called a program that was compiled outside `jit`."""
        for name in _READERS:
            if (code := getattr(getattr(_ARRAY, name, None), "__code__", None)) is not None:
                watch_calls(code, functools.partial(self._count, ""))
        if (masked := _masked()) is not None:
            self._count("", masked)
        frame = _maker() if record.heavy else None
        if frame is not None:
            record.maker = frame.f_code.co_qualname.partition(".<")[0]
            count = functools.partial(self._count, record.maker)
            if watch_calls(frame.f_code, count):
                count(frame)

    def write(self, write: Callable[..., None]) -> None:
        """Write the counts, if there are any."""
        rows = [CallsRecord(maker, [*at], n) for (maker, at), n in self._numbers.items()]
        if rows:
            write(calls=to_json(rows))
        if runs := runs_of_lines():
            write(runs=runs)

    def _count(self, maker: str, frame: types.FrameType) -> None:
        self._totals[maker] += 1
        if self._totals[maker] <= _MOST_CALLS:
            self._numbers[maker, tuple(levels_of(frame))] += 1


def _masked() -> types.FrameType | None:
    """Return the frame of JAX that reads a mask, as in `x[x > 0]`, for what is compiled now."""
    frame = inspect.currentframe()
    user = user_frame(frame)
    while frame is not None and frame is not user:
        if "getitem" in frame.f_code.co_name and is_mask(frame.f_locals):
            return frame
        frame = frame.f_back
    return None


def _maker() -> types.FrameType | None:
    """Return the frame whose calls are the calls of a program that is compiled now, or None.

    It is the innermost one of JAX that is not about compiling, or another one outside loops.
    """
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("jax._src."):
            if module.split(".")[2] not in _MACHINERY:
                return frame
        elif inner_frame(frame) is frame:
            return frame if _loop_around(frame) is None else None
        frame = frame.f_back
    return None


_MACHINERY: Final = frozenset(
    {"api", "api_util", "compiler", "core", "dispatch", "interpreters", "linear_util"}
    | {"monitoring", "pjit", "profiler", "stages", "traceback_util", "util"}
)


def levels_of(frame: types.FrameType | None) -> list[LevelRecord]:
    """Return the user's frames around a frame, from the outermost to a package that uses JAX."""
    frames: list[types.FrameType] = []
    while (frame := inner_frame(frame)) is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    levels: list[LevelRecord] = []
    user = None
    for at, outer in enumerate(frames):
        if outer.f_code.co_name == "<genexpr>":  # as a comprehension, it is part of a line
            continue
        if is_users_file(outer.f_code.co_filename):
            user = outer
            levels.append(_level(user))
        elif user is not None and not {"jax", "jnp"}.isdisjoint(outer.f_globals):
            builder = _builder(outer)
            # The code of a builder itself sets attributes, but reads no values.
            inside = [inner for inner in frames[at:] if not builder or _builder(inner) != builder]
            reads = any(takes_values(inner.f_code, built=bool(builder)) for inner in inside)
            reads |= levels[-1].reads or builder == "nnx"
            levels[-1] = dataclasses.replace(levels[-1], reads=reads, builder=builder)
            break
    return levels


_GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE
_BUILDERS: Final = frozenset({"equinox", "flax", "haiku", "nnx"})
"""Packages whose modules a `jit` can build, but for flax's `nnx`, which counts in its `Rngs`."""


def _builder(frame: types.FrameType) -> str:
    package, _, rest = str(frame.f_globals.get("__name__")).partition(".")
    package = "nnx" if rest.startswith("nnx") else package
    return package if package in _BUILDERS else ""


def _level(frame: types.FrameType) -> LevelRecord:
    code, loop = frame.f_code, _loop_around(frame)
    lines = (frame.f_lineno, loop.line if loop else frame.f_lineno)
    sites = (Site(code.co_filename, number, code.co_qualname) for number in lines)
    site, outer = (SiteRecord(*each, each.text) for each in sites)
    # A line outside functions and loops may stand beside others that read values.
    reads = takes_values(code) and (code.co_name != "<module>" or loop is not None)
    reads |= bool(code.co_flags & _GENERATORS)  # a `jit` cannot stop at each `yield`
    return LevelRecord(site, outer if loop else None, start_of(frame), reads)


def _loop_around(frame: types.FrameType) -> Loop | None:
    line, column, *_ = position_of(frame) or [frame.f_lineno, 0]
    return next(iter(loops_around(frame.f_code.co_filename, line, column, calls=False)), None)
