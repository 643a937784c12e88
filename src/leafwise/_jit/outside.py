"""What JAX compiles outside jitted functions: whether a later run of a line compiles it again.

One rule for operations, loops, and what packages make and call: it is compiled again if an earlier
run of the line compiled a program with the same inputs and results at the same place, or if the
same run compiled the very same; and it is compiled for another size where an earlier run did so for
arrays that differ along one axis.
"""

import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import starmap
from typing import Any, Final, NamedTuple

from leafwise._captures.fingerprint import captured_by, describe_changes
from leafwise._compare.explain import Explanation
from leafwise._compare.fixes import Advice, Cause, definition_of, fresh_function
from leafwise._compare.jitted_call import fix_of
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature, StaticArguments, record
from leafwise._compare.tree_differences import differences
from leafwise._jax.context import trace_config
from leafwise._jax.eager_calls import EagerCall, eager_call
from leafwise._jax.stack import Work
from leafwise._objects.call_site import user_frame
from leafwise._objects.line_runs import run_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim, shorten


class SeenFunction:
    """What is kept of a function of the user: not the function."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.text = shorten(fun, 60)
        self.definition = definition_of(fun)
        self.captured = captured_by(fun)
        owner = getattr(fun, "__self__", fun)  # each access to a method makes another one
        self.identity = id(owner), id(getattr(fun, "__func__", fun))
        try:
            self._find: Callable[[], Any] = weakref.ref(owner)
        except TypeError:
            self._find = lambda: True

    def is_same(self, other: "SeenFunction") -> bool:
        """Return whether both are one function, which JAX takes up."""
        return self.identity == other.identity and self._find() is not None


class _Program(NamedTuple):
    """What JAX compiled at one place of a line.

    Attributes:
        run: In which run of the line.
        constants: What it depends on besides arrays and functions, as text.
        avals: The abstract values of the inputs, None, and those of the results.
        signature: What a loop was given, where the user's own line calls it.
        functions: The user's functions that it was given.
    """

    run: int | None
    constants: str
    avals: tuple[Any, ...]
    signature: Signature | None
    functions: Mapping[str, SeenFunction]


class _Place:
    """The programs of one place of a line: by inputs and results, and the latest one."""

    def __init__(self) -> None:
        self.programs: dict[Any, _Program] = {}
        self.latest: _Program | None = None
        self.count = 0


class OutsideLog:
    """What JAX compiled outside jitted functions, by line and place."""

    def __init__(self) -> None:
        self._places: dict[Any, _Place] = {}

    def explain(
        self, name: str, work: Work, frame: types.FrameType | None
    ) -> tuple[Explanation, int | None]:
        """Explain a lowering, or a trace for which nothing is lowered.

        Args:
            name: The name of what JAX compiles.
            work: What JAX is doing.
            frame: The frame from which to look for who called.

        Returns:
            The reasons, against the nearest earlier program of the same place, and in which run of
            the line that was; None where runs are not counted.
        """
        user = user_frame(frame)
        call = eager_call(frame, user, work.call)
        run, is_in_tree = _run_of_line(user)
        place = self._places.setdefault((name, call.place), _Place())
        functions = call.functions if call.is_direct else {}
        made = {each: SeenFunction(fun) for each, fun in functions.items()}
        constants = repr(call.parameters)
        program = _Program(run, constants, _avals(work), _operands_of(call), made)
        # A loop by what it is given, not by what its bodies capture.
        key: tuple[Any, ...] = (program.signature or program.avals, work.role, work.sizes)
        key = *key, work.devices[: 1 if program.signature else None], trace_config()
        outcome = Outcome.RETRACE if work.inputs is None else Outcome.RECOMPILE
        earlier, latest = place.programs.get(key), place.latest
        reasons: list[Reason] = []
        # Within one run a package may well compile one operation with several constants.
        if earlier is not None and (earlier.run != run or earlier.constants == constants):
            fix = fix_of(user) if work.inputs is not None else _KEEP if call.is_direct else ""
            reasons = list(_fresh(earlier, program, functions, fix))
            again = Advice("", fix)
            reasons = reasons or [Reason("", ReasonKind.CACHE, outcome, MISSING, MISSING, again)]
        elif latest is not None and (latest.run != run if run is not None else not is_in_tree):
            reasons = list(_sizes(latest, program, call, outcome))
        place.programs[key] = place.latest = program
        place.count += 1
        nearest = place.count - 2 if reasons else None
        return Explanation(outcome, tuple(reasons), nearest=nearest), run


def _run_of_line(user: types.FrameType | None) -> tuple[int | None, bool]:
    """Return the run of the line that is around a frame, and whether JAX itself calls the frame.

    A function under `jax.tree.map` runs for each leaf, in one run of the line with the call.
    """
    outer, is_called = user, False
    while outer is not None:
        above, between = user_frame(outer.f_back), outer.f_back
        while between is not None and between is not above and _is_of_jax(between):
            between = between.f_back
        if above is None or between is not above or above is outer.f_back:
            break
        outer, is_called = above, True
    return None if outer is None else run_of(outer), is_called


def _is_of_jax(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("jax.")


_KEEP: Final = "keep the result of the first call"


def _avals(work: Work) -> tuple[Any, ...]:
    """Return the abstract values of inputs, None, and those of the results."""
    if work.inputs is not None:
        return (*work.inputs, None, *work.outputs)
    given: Any = None if work.call is None else (work.call.args, dict(work.call.kwargs))
    leaves = record((given,), {}, StaticArguments(), abstract=True).leaf_records
    return (*(each.aval for each in leaves), None)


def _operands_of(call: EagerCall) -> Signature | None:
    if not (call.is_direct and call.operands):
        return None
    labels = {f"args[{at}]": name for at, name in enumerate(call.operands)}
    return record(tuple(call.operands.values()), {}, StaticArguments(), labels=labels)


def _fresh(
    earlier: _Program, program: _Program, functions: Mapping[str, Callable[..., Any]], fix: str
) -> Iterator[Reason]:
    """Yield the functions of the user's own that are made at each call."""
    changes: dict[str, str] = {}
    for name, its in program.functions.items():
        mine = earlier.functions.get(name)
        if mine is not None and not mine.is_same(its) and mine.definition == its.definition:
            changes[name] = describe_changes(mine.captured, its.captured)
    for name, change in changes.items():
        words = Verbatim(earlier.functions[name].text), Verbatim(program.functions[name].text)
        advice = fresh_function(functions[name], change)
        if any(changes.values()):  # defined once, one would go on with the first value
            advice = advice._replace(fix=fix)
        yield Reason(name, ReasonKind.STATIC, Outcome.RETRACE, *words, advice)


def _sizes(
    before: _Program, after: _Program, call: EagerCall, outcome: Outcome
) -> Iterator[Reason]:
    """Yield what is of another size, if two programs differ along one axis of each array."""
    pairs = list(zip(before.avals, after.avals, strict=False))
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    is_masked = call.is_direct and call.is_masked
    unsized = call.unsized if call.is_direct else ""
    # Arrays that are made, of a shape that is given, are the parameters of something.
    is_of_input = any(pair in differing for pair in pairs[: after.avals.index(None)])
    alike = len(before.avals) == len(after.avals) and all(starmap(_is_resized, differing))
    if not (differing and alike and (is_of_input or is_masked or unsized)):
        return
    one, other = (each.shape for each in differing[0])
    name, cause = "size", Cause.GROWING.value
    if is_masked:
        name, cause = "mask", Advice("", "`jnp.where(mask, x, 0)` keeps the shape")
    elif unsized:
        name, cause = call.name, Advice("", f"`{call.name}(..., {unsized}=n)`")
    elif before.signature is not None and after.signature is not None:
        for each in differences(before.signature, after.signature).reasons:
            if each.kind is ReasonKind.SHAPE:
                yield each._replace(cause=Cause.GROWING)
        return
    yield Reason(name, ReasonKind.SHAPE, outcome, one, other, cause)


def _is_resized(one: Any, other: Any) -> bool:
    """Return whether two abstract values differ along one axis alone."""
    shapes: list[Any] = [getattr(each, "shape", None) for each in (one, other)]
    if None in shapes or len(shapes[0]) != len(shapes[1]) or one.dtype != other.dtype:
        return False
    return [a == b for a, b in zip(*shapes, strict=True)].count(False) == 1
