"""Why JAX compiles again what is called outside any jitted function."""

import contextlib
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from jax.core import Tracer
from jax.tree_util import tree_leaves

from leafwise._captures.fingerprint import captured_by, describe_changes
from leafwise._compare.explain import Explanation
from leafwise._compare.fixes import ANOTHER_FUNCTION, Cause, definition_of, fresh_function
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature, StaticArguments, labels_of, record
from leafwise._compare.tree_differences import differences
from leafwise._jax.compat import RunningCall
from leafwise._jax.eager_calls import EagerCall, eager_call
from leafwise._jax.events import EventKind
from leafwise._objects.call_site import user_frame
from leafwise._objects.text import Verbatim, shorten

_MASK: Final = (
    "A boolean mask: each number of True elements has a program of its own; "
    "`jnp.where(mask, x, 0)` keeps the shape."
)
_UNSIZED: Final = (
    "Each number of elements that it returns has a program of its own: pass "
    "`{name}(..., {size}=n)`."
)
_SHAPES: Final = ("shape", "dimensions", "new_sizes", "limit_indices", "slice_sizes")
_PARAMETER: Final = "Each value has a program of its own: keep one, or jit the function around it."


class _Function:
    """What is kept of a function of the user: not the function."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.text = shorten(fun, 60)
        self.definition = definition_of(fun)
        self.identity = id(fun)
        self.captured = captured_by(fun)
        try:
            self._find: Callable[[], Any] = weakref.ref(fun)
        except TypeError:
            self._find = lambda: True

    def is_same(self, other: "_Function") -> bool:
        """Return whether both are one function, which JAX takes up."""
        return self.identity == other.identity and self._find() is not None


class _Unit(NamedTuple):
    """What JAX compiled at one place."""

    times: int
    functions: Mapping[str, _Function]
    parameters: Mapping[str, Any]
    signature: Signature | None
    shapes: tuple[Any, ...]


class EagerLog:
    """What JAX compiled outside jitted functions: the latest at each place."""

    def __init__(self) -> None:
        self._latest: dict[Any, _Unit] = {}
        self._here = threading.local()

    def explain(
        self,
        kind: EventKind,
        name: str,
        call: RunningCall | None,
        frame: types.FrameType | None,
    ) -> Explanation | None:
        """Explain an event of JAX against the one before at the same place.

        Args:
            kind: What JAX did.
            name: The name of what it compiles.
            call: Its call; None if it cannot be seen.
            frame: The frame from which to look for who called.

        Returns:
            None for what belongs to an event that was explained.
        """
        current = getattr(self._here, "current", None)
        if kind is EventKind.COMPILE:
            self.end()
            return None
        if kind is EventKind.LOWERING and current == name:
            return None
        self._here.current = name
        found = eager_call(frame, user_frame(frame), None if call is None else call.fun)
        functions = {each: _Function(fun) for each, fun in found.functions.items()}
        before = self._latest.get((name, *found.place))
        times = 0 if before is None else before.times + 1
        unit = _Unit(times, functions, found.parameters, _signature_of(call, found), found.shapes)
        self._latest[name, *found.place] = unit
        outcome = Outcome.RETRACE if kind is EventKind.TRACE else Outcome.RECOMPILE
        if before is None:
            return Explanation(outcome)
        reasons = list(_reasons(before, unit, found.functions))
        if before.shapes == unit.shapes:
            reasons = _worded(found, reasons)
        return Explanation(outcome, tuple(reasons), nearest=times - 1)

    def end(self) -> None:
        """Note that what was explained is compiled."""
        self._here.current = None


def _signature_of(call: RunningCall | None, found: EagerCall) -> Signature | None:
    with contextlib.suppress(Exception):  # the arguments' own code
        if call is not None and not _has_tracers(call):
            labels = labels_of(call.fun, call.args, call.kwargs)
            return record(call.args, call.kwargs, StaticArguments(*call.statics), labels=labels)
        if found.operands is not None:
            return record(found.operands, {}, StaticArguments())
    return None


def _has_tracers(call: RunningCall) -> bool:
    """Return whether it is a call under `jax.grad`, whose tracers hold what the program gets."""
    leaves = tree_leaves((call.args, dict(call.kwargs)))
    return any(isinstance(each, Tracer) for each in leaves)


def _reasons(
    before: _Unit, after: _Unit, functions: Mapping[str, Callable[..., Any]]
) -> Iterator[Reason]:
    retrace = Outcome.RETRACE
    for name, its in after.functions.items():
        mine = before.functions.get(name)
        if mine is not None and not mine.is_same(its):
            fun = functions[name]
            again = mine.definition is not None and mine.definition == its.definition
            fix = ANOTHER_FUNCTION
            if again and isinstance(fun, types.MethodType):  # made at each access
                fix = f"fresh bound method each call: keep one, `{fun.__name__} = ...` before it"
            elif again:
                fix = fresh_function(fun, describe_changes(mine.captured, its.captured))
            words = Verbatim(mine.text), Verbatim(its.text)
            yield Reason(name, ReasonKind.STATIC, retrace, *words, f"{fix}.")
    for name, value in after.parameters.items():
        if name in before.parameters and before.parameters[name] != value:
            kind = ReasonKind.STATIC
            yield _of_shape(Reason(name, kind, retrace, before.parameters[name], value, _PARAMETER))
    if before.signature is not None and after.signature is not None:
        found = differences(before.signature, after.signature).reasons
        least = Outcome.RECOMPILE.severity
        yield from (_of_shape(each) for each in found if each.outcome.severity >= least)


def _of_shape(reason: Reason) -> Reason:
    """Return a reason as one of shapes, where a static argument is one: ``jnp.ones(shape)``."""
    if reason.path.partition("[")[0] not in _SHAPES:
        return reason
    return reason._replace(kind=ReasonKind.SHAPE, cause=Cause.SHAPE)


def _worded(call: EagerCall, reasons: list[Reason]) -> list[Reason]:
    """Return the one reason behind others: a mask, or a result of any size."""
    fix = _MASK if call.is_masked else ""
    if call.unsized:
        fix = _UNSIZED.format(name=call.name, size=call.unsized)
    shapes = [each for each in reasons if each.kind is ReasonKind.SHAPE]
    if not fix or not shapes:
        return reasons
    path = "mask" if call.is_masked else call.name
    return [shapes[0]._replace(path=path, cause=fix)]
