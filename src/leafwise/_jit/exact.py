"""The program that JAX has for a call, against that of a fresh trace: right for any code of Python.

It is slow, as the function runs once more; it is what `lw.debug.check_captures` asks for.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._captures.fingerprint import describe_value
from leafwise._jax.context import new_number, with_number
from leafwise._jax.events import ignore_events
from leafwise._jit.callee import Callee
from leafwise._objects.call_site import is_users_file
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import shorten


class ProgramChange(NamedTuple):
    """The first place in which two programs differ."""

    before: str
    after: str
    line: str


def program_change(
    jitted: Any,
    callee: Callee,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    digests: Sequence[bytes] = (),
) -> ProgramChange | None:
    """Compare the program that answers a call with the one that JAX would make of it now."""

    def fresh(*args: Any, **kwargs: Any) -> Any:
        if callee.marked is None:
            return callee.fun(*args, **kwargs)
        given, by_name = callee.marked.values(args, kwargs)
        return callee.fun(*given, **by_name)

    statics, make = callee.statics, getattr(jax.jit, "__wrapped__", jax.jit)
    again: Any = make(fresh, static_argnums=statics.numbers, static_argnames=statics.names)
    with ignore_events():
        known = jitted.trace(*args, **kwargs).jaxpr
        with with_number(new_number()):
            now = again.trace(*args, **kwargs).jaxpr
    if known.out_avals != now.out_avals:  # the text of a program does not show weak types
        return ProgramChange(str(known.out_avals), str(now.out_avals), "")
    if _text(known) != _text(now):
        return _changed_equation(known.jaxpr, now.jaxpr)
    for before, after in zip(_constants(known), _constants(now), strict=True):
        if before is not after and _digest(before) != _digest(after):
            return ProgramChange(describe_value(before), describe_value(after), "")
    # JAX has the user's own array of NumPy, which shows what is in it now.
    for each, digest in zip(_numpy_constants(now), digests, strict=False):
        if _digest(each) != digest:
            return ProgramChange("another content", describe_value(each), "")
    return None


def numpy_digests(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[bytes]:
    """Return digests of the NumPy arrays among the constants of the program of a call."""
    with ignore_events():
        return list(map(_digest, _numpy_constants(jitted.trace(*args, **kwargs).jaxpr)))


def _numpy_constants(jaxpr: Any) -> Iterator[Any]:
    return (each for each in _constants(jaxpr) if not isinstance(each, jax.Array))


def _constants(jaxpr: Any) -> Iterator[Any]:
    """Yield the constants of a jaxpr, and of those inside it."""
    yield from getattr(jaxpr, "consts", ())
    for equation in jaxpr.eqns:
        for inner in _inner(equation):
            yield from _constants(inner)


def _digest(array: Any) -> bytes:
    kind = f"{type(array)} {array.dtype} {array.shape}"
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return hashlib.sha256(kind.encode() + np.asarray(array).tobytes()).digest()


def is_part_of_trace(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call is made inside a trace, whose program is the one that counts."""
    return any(isinstance(each, Tracer) for each in jax.tree.leaves((args, kwargs)))


_ADDRESS: Final = re.compile(r"0x[0-9a-f]+|id=\d+")


def _text(jaxpr: Any) -> str:
    return _ADDRESS.sub("", str(jaxpr))


def _inner(equation: Any) -> list[Any]:
    """Return the jaxprs of a loop, of a branch, of a function that is called."""
    values = jax.tree.leaves(equation.params, is_leaf=lambda each: hasattr(each, "eqns"))
    return [each for each in values if hasattr(each, "eqns")]


def _changed_equation(one: Any, other: Any) -> ProgramChange:
    """Return the first equation that differs, the innermost one."""
    for mine, its in itertools.zip_longest(one.eqns, other.eqns):
        if _text(mine) == _text(its):
            continue
        for before, after in zip(_inner(mine), _inner(its), strict=False) if mine and its else ():
            if _text(before) != _text(after):
                return _changed_equation(before, after)
        return ProgramChange(_shorten(mine), _shorten(its), _line_of(its or mine))
    return ProgramChange(_shorten(one), _shorten(other), "")


def _shorten(jaxpr: Any) -> str:
    return shorten(Verbatim(_text(jaxpr).strip()), 120) if jaxpr else "nothing"


def _line_of(equation: Any) -> str:
    """Return the line of the user's code that an equation is from; or nothing."""
    trace = equation.source_info.traceback
    for frame in trace.frames if trace is not None else ():
        if is_users_file(frame.file_name):
            return f"{frame.file_name}:{frame.line_num}"
    return ""
