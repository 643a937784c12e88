"""Tracing a call of a jitted function afresh, to compare what it returns.

It is run before the call itself, which may donate its arguments. A function with effects is not
run a second time: one that prints, or assigns what it did not make.
"""

import dis
import functools
import itertools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.core import Tracer

from leafwise._captures.arguments import code_within
from leafwise._captures.fingerprint import fingerprint_function
from leafwise._captures.places import MUTABLE, CapturedPlace, cell_place, global_place
from leafwise._compare.diff import diff
from leafwise._jax.events import ignore_events
from leafwise._jit.callee import Callee
from leafwise._jit.inner_traces import capturing_function
from leafwise._jit.jit import JAX_JIT
from leafwise._objects.attributes import is_installed
from leafwise._objects.bytecode import MUTATORS, reads_of
from leafwise._objects.classes import is_a
from leafwise._objects.reads import Root, Usage
from leafwise._objects.text import Verbatim, shorten

_PRINTS: Final = frozenset({"print", "input", "open", "exec", "breakpoint", "warn", "logging"})
_ASSIGNS: Final = frozenset({"STORE_GLOBAL", "STORE_ATTR", "DELETE_GLOBAL", "DELETE_ATTR"})
_SENDS: Final = frozenset({"write", "writelines", "send"})
_MOST_BYTES: Final = 1 << 28
_NUMBERS: Final = itertools.count(1)


@functools.cache
def trace_context() -> Any:
    """Return a context that is a part of the key of every trace, also of those inside another.

    JAX keeps the trace of a loop's body as long as the body lives, so that a new trace around it is
    not enough. What JAX has traced before this is first made, it traces again.
    """
    make: Any = jax.make_user_context  # which has no types
    return make()


class Replay:
    """What a call returns that is traced afresh.

    Args:
        callee: The function.
        args: The positional arguments of the call.
        kwargs: The others.
    """

    def __init__(self, callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._result: Any = None
        try:
            with ignore_events():
                self._refused = _effect_of(callee, args, kwargs)
                if not self._refused:
                    self._run(callee, args, kwargs)
        except Exception as error:  # noqa: BLE001  # the user's own code
            self._refused = type(error).__name__

    def _run(self, callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        def fresh(*args: Any, **kwargs: Any) -> Any:
            return callee.fun(*args, **kwargs)

        statics = callee.statics
        jitted: Any = JAX_JIT(fresh, static_argnums=statics.numbers, static_argnames=statics.names)
        context = trace_context()(next(_NUMBERS))
        with context:
            traced = jitted.trace(*args, **kwargs)
        if traced.jaxpr.effects or any(_callbacks(traced.jaxpr.jaxpr)):
            self._refused = "it calls back"
            return
        size = sum(each.size * each.dtype.itemsize for each in jax.tree.leaves(traced.out_info))
        if size > _MOST_BYTES:
            self._refused = f"it returns {size / 1e9:.1f} GB"
            return
        # An output may be an argument, of which the call takes the buffer.
        with context:
            result = jitted(*args, **kwargs)
        self._result = jax.tree.map(_copied, result)

    def compared(self, result: Any) -> str:
        """Return what this says of the result of the call."""
        if self._refused:
            return f"; not replayed: {self._refused}"
        try:
            with ignore_events():
                different = diff(result, self._result, values=True)
        except Exception as error:  # noqa: BLE001  # the user's own classes
            return f"; not compared: {type(error).__name__}"
        if not different:
            return "; the answer is right"
        return f"; wrong answer: {shorten(Verbatim(different[0]), 120)}"


def _copied(leaf: Any) -> Any:
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf


def _effect_of(callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why a call is not to be made a second time; empty if it can be."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
        return "it is a part of another trace"
    if getattr(jax.config, "jax_debug_key_reuse", False):
        return "jax_debug_key_reuse is on"
    fun = capturing_function(callee.fun, args)
    call = callee.record(args, kwargs)
    given = code_within((*call.classes.values(), *call.all_statics.values()))
    for each in fingerprint_function(fun, given).callables:
        if isinstance(each, types.FunctionType) and not is_installed(each):
            for effect in (*_effects(each.__code__), *_changes(each)):
                return f"{each.__qualname__} {effect}"
    return ""


def _effects(code: types.CodeType) -> Iterator[str]:
    """Yield what a piece of code does besides returning something, as far as that can be seen."""
    free = set(code.co_freevars)
    is_constructor = code.co_name in ("__init__", "__post_init__", "__setattr__", "setup")
    for each in dis.get_instructions(code):
        name = str(each.argval)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in _PRINTS:
            yield f"uses {name}"
        elif (each.opname in _ASSIGNS and not is_constructor) or (
            each.opname in ("STORE_DEREF", "DELETE_DEREF") and name in free
        ):
            yield f"assigns {name}"
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _effects(each)


def _changes(function: types.FunctionType) -> Iterator[str]:
    """Yield what a function changes in place of what is outside it: ``log.append(x)``."""
    for read in reads_of(function.__code__):
        if read.root is Root.GLOBAL:
            place = global_place(function, read.name)
        elif read.root is Root.FREE and read.name != "__class__":
            place = cell_place(function, read.name)
        else:
            continue
        *way, last = (*read.steps, "")[: len(read.steps) or 1]
        changed = functools.reduce(CapturedPlace.then, way, place)
        is_call = read.usage in (Usage.MUTATED, Usage.CALLED)
        if read.usage is Usage.WRITTEN or (
            is_call and (last in _SENDS or (last in MUTATORS and is_a(changed.read(), MUTABLE)))
        ):
            yield f"changes {changed.name}"


def _callbacks(jaxpr: Any) -> Iterator[str]:
    """Yield the primitives of a jaxpr that call back into Python."""
    for equation in jaxpr.eqns:
        if "callback" in equation.primitive.name:
            yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                yield from _callbacks(getattr(value, "jaxpr", value))


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns")
