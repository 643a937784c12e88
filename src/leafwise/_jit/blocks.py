"""The blocks of `leafwise.debug.check_captures`, and what they compare.

They compare the program that JAX has for a call with that of a fresh trace: slow, as the function
runs once more, and exact for any Python code.
"""

import itertools
import math
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import jax

from leafwise._captures.treatment import Way, lines_of
from leafwise._jax.context import traced_afresh
from leafwise._jax.events import ignore_events
from leafwise._jit.callee import Callee
from leafwise._objects.describe import describe_value
from leafwise._objects.locks import new_lock
from leafwise._objects.parts import data_of
from leafwise._objects.source.call_site import Site, is_users_file, short_file
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import got, sha256_of, shorten


class StaleAction(StrEnum):
    """What to do when a call would be answered for the old value of a capture."""

    WARN = "warn"
    RAISE = "raise"
    RETRACE = "retrace"
    IGNORE = "ignore"


StaleOption: TypeAlias = Literal["warn", "raise", "retrace", "ignore"]


def checked_action(value: object, owner: str) -> StaleAction:
    if isinstance(value, str) and value in set(StaleAction):
        return StaleAction(value)
    actions = ", ".join(repr(str(each)) for each in StaleAction)
    raise ValueError(f"{owner} takes on_stale= as one of {actions}, got {got(value)}")


class StaleCapture(NamedTuple):
    """A capture that changed since the trace whose program would answer a call.

    Attributes:
        function: The name of the jitted function.
        name: The capture, as the code spells it: ``lr``, ``self.w``. Empty where only the program
            shows that something has changed.
        reader: The function whose code reads it: the jitted one, or one that it calls.
        holder: Where it is bound: ``"global"``, ``"closure"``, ``"default"``, ``"attribute"``,
            ``"argument of partial"``; or ``"program"``.
        line: The line that reads it: ``train.py:12``. For a program, the line of the operation.
        before: The value at the trace, as text; for a program, the operation.
        after: The current value, as text; for a program, the operation of a fresh trace.
        call: The line of user code that made the call, or None.
        way: How the value can be passed instead.
    """

    function: str
    name: str
    reader: str
    holder: str
    line: str
    before: str
    after: str
    call: Site | None = None
    way: Way = Way.ARGUMENT

    def __str__(self) -> str:
        """Return the message: what changed, where it is read, and the fixes."""
        inside = "" if self.reader.endswith(self.function) else f" in {self.reader}"
        file, _, number = self.line.rpartition(":")
        where = f" ({short_file(file)}:{number}{inside})" if file else inside
        if not self.name:
            return (
                f"{self.function} reads something that has changed since it was traced{where}: "
                f"`{self.before}` is `{self.after}` in a fresh trace\n"
                f"  fix: pass what it reads there as an argument"
            )
        fixes = lines_of(self.way, self.function, self.name)
        return (
            f"{self.function} captures `{self.name}`{where}, which was {self.before} when it was "
            f"traced and is {self.after} now\n"
            f"  fix: {fixes[0]}\n"
            f"  or {fixes[1]}\n"
            f'  or let it be traced again silently: `on_stale="retrace"`'
        )


class CaptureChecks:
    """What a block of `leafwise.debug.check_captures` has found so far."""

    def __init__(self, action: StaleAction, *, is_exact: bool = True) -> None:
        self.action = action
        # Whether each program is compared with a fresh trace. If not, the block does not warn, and
        # each function follows its own `on_stale=`.
        self.is_exact = is_exact
        self.most = math.inf  # of the calls that each program answers
        self.stale: list[StaleCapture] = []  # including those that were warnings or errors
        self.not_compared: dict[str, str] = {}  # the functions that could not be traced, and why

    def note(self, owner: int, stale: list[StaleCapture]) -> None:  # noqa: ARG002  # for overrides
        """Add the stale captures of a call; `owner` identifies the function."""
        self.stale += stale


_LOCK: Final = new_lock()
_FOLLOWERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_blocks: tuple[CaptureChecks, ...] = ()


def current_block() -> CaptureChecks | None:
    return next(reversed(_blocks), None)


def follow_blocks(follower: Any) -> None:
    """Call `follower.reset()` when a block begins or ends, while the follower lives."""
    with _LOCK:
        _FOLLOWERS.add(follower)


def switch_block(block: CaptureChecks, *, is_on: bool) -> None:
    """Begin or end a block, for all threads."""
    global _blocks  # noqa: PLW0603  # one switch for the process; replaced, never changed
    with _LOCK:
        others = tuple(each for each in _blocks if each is not block)
        _blocks = (*others, block) if is_on else others
        followers = list(_FOLLOWERS)
    for each in followers:
        each.reset()


ProgramChange: TypeAlias = tuple[str, str, str]
"""The line of the first place where two programs differ, and its text in both."""


def program_change(
    jitted: Any,
    callee: Callee,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    digests: Sequence[str] = (),
) -> ProgramChange | None:
    """Compare the program that answers a call with the one that JAX would make of it now."""

    def fresh(*args: Any, **kwargs: Any) -> Any:
        return callee.with_values(args, kwargs)()

    statics, make = callee.statics, getattr(jax.jit, "__wrapped__", jax.jit)
    again: Any = make(fresh, static_argnums=statics.numbers, static_argnames=statics.names)
    with ignore_events():
        known = jitted.trace(*args, **kwargs).jaxpr
        with traced_afresh():
            now = again.trace(*args, **kwargs).jaxpr
    if known.out_avals != now.out_avals:  # the text of a program does not show weak types
        return "", str(known.out_avals), str(now.out_avals)
    if _text(known) != _text(now):
        return _changed_equation(known.jaxpr, now.jaxpr)
    for before, after in zip(_constants(known), _constants(now), strict=True):
        if before is not after and _digest(before) != _digest(after):
            return "", describe_value(before), describe_value(after)
    # JAX has the user's own NumPy array, which shows its current content.
    for array, digest in zip(_numpy_constants(now), digests, strict=False):
        if _digest(array) != digest:
            return "", "another content", describe_value(array)
    return None


def numpy_digests(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return digests of the NumPy arrays among the constants of the program of a call."""
    with ignore_events():
        return list(map(_digest, _numpy_constants(jitted.trace(*args, **kwargs).jaxpr)))


def _numpy_constants(jaxpr: Any) -> Iterator[Any]:
    return (constant for constant in _constants(jaxpr) if not isinstance(constant, jax.Array))


def _constants(jaxpr: Any) -> Iterator[Any]:
    yield from getattr(jaxpr, "consts", ())
    for equation in jaxpr.eqns:
        for inner in _inner(equation):
            yield from _constants(inner)


def _digest(array: Any) -> str:
    kind = f"{type(array)} {array.dtype} {array.shape}"
    return sha256_of(kind.encode() + data_of(array).tobytes())


def _text(jaxpr: Any) -> str:
    return re.sub(r"0x[0-9a-f]+|id=\d+", "", str(jaxpr))


def _inner(equation: Any) -> list[Any]:
    """Return the jaxprs inside an equation: of a loop, a branch or a called function."""
    values = jax.tree.leaves(equation.params, is_leaf=lambda value: hasattr(value, "eqns"))
    return [value for value in values if hasattr(value, "eqns")]


def _changed_equation(one: Any, other: Any) -> ProgramChange:
    """Return the first difference between two jaxprs, at the innermost equation."""
    for mine, its in itertools.zip_longest(one.eqns, other.eqns):
        if _text(mine) == _text(its):
            continue
        for before, after in zip(_inner(mine), _inner(its), strict=False) if mine and its else ():
            if _text(before) != _text(after):
                return _changed_equation(before, after)
        return _line_of(its or mine), _shorten(mine), _shorten(its)
    return "", _shorten(one), _shorten(other)


def _shorten(jaxpr: Any) -> str:
    return shorten(Verbatim(_text(jaxpr).strip()), 120) if jaxpr else "nothing"


def _line_of(equation: Any) -> str:
    """Return the line of user code that an equation comes from, or an empty string."""
    trace = equation.source_info.traceback
    for frame in trace.frames if trace is not None else ():
        if is_users_file(frame.file_name):
            return f"{frame.file_name}:{frame.line_num}"
    return ""
