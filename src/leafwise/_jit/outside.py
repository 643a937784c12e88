"""What JAX compiles outside jitted functions, and whether a later run of a line repeats it.

One rule covers operations, loops, and functions that packages make and call: a program is a repeat
if an earlier run of the line compiled one with the same inputs and results at the same place, for
functions of the same definition; and it is resized if the arrays of more than a few runs differ
only in size.
"""

import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from itertools import starmap
from typing import Any, Final, NamedTuple

import jax

from leafwise._captures.reads import captured_by, describe_changes
from leafwise._compare.changes import definition_of
from leafwise._compare.fixes import Cause, function_of, named, recreated_function
from leafwise._compare.signature import Signature, StaticArguments, differences, record
from leafwise._findings.reasons import Act, Advice, Explanation, Fix, Outcome, Reason, ReasonKind
from leafwise._jax.context import trace_config
from leafwise._jax.stack import RunningCall, Work, is_jit_off, outer_call
from leafwise._jit.callee import jitted_name
from leafwise._jit.clears import CLEARS, reason_of_clear
from leafwise._jit.jitted_call import given_in, jit_once_fix
from leafwise._objects.source.call_site import (
    is_users_file,
    position_of,
    run_of,
    site_of,
    user_frame,
)
from leafwise._objects.source.code import parameters
from leafwise._objects.source.loops import loops_around
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import shorten
from leafwise._statics.account import WeakId


class EagerCall(NamedTuple):
    """A call of JAX outside any jitted function."""

    lines: int  # a hash of the lines between the user and JAX
    name: str
    functions: Mapping[str, Callable[..., Any]]
    operands: Mapping[str, Any]
    is_direct: bool
    is_masked: bool
    unsized: str  # the parameter for the size of the result that was not given


class SeenFunction:
    """The record of a user's function, which does not keep it alive."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.text = shorten(fun, 60)
        self.captured = captured_by(fun)
        owner = getattr(fun, "__self__", fun)  # each access to a method makes a new one
        self.finders = WeakId(owner).find, WeakId(getattr(fun, "__func__", fun)).find

    def is_same(self, later: "SeenFunction") -> bool:
        """Return whether both are the same function object, so that JAX reuses its program."""
        pairs = zip(self.finders, later.finders, strict=True)
        return all(find() is find_later() is not None for find, find_later in pairs)


class _OutsideProgram(NamedTuple):
    """What JAX compiled at one place of a line."""

    run: int | None
    inputs: tuple[Any, ...]
    results: tuple[Any, ...]
    signature: Signature | None
    functions: Mapping[str, SeenFunction]
    variables: Mapping[str, Any]  # in the user's call
    clears: int


class _Place:
    """The programs of one place of a line, for functions of one definition."""

    def __init__(self) -> None:
        self.programs: dict[Any, _OutsideProgram] = {}  # by inputs and results
        self.latest: _OutsideProgram | None = None  # the first one of the latest run
        # In a row: how sizes changed, and whether a result was the next input.
        self.changes: list[tuple[Any, bool]] = []

    def identify(
        self, program: _OutsideProgram, work: Work, *, keeps_first: bool
    ) -> _OutsideProgram | None:
        """Add a program; return an earlier one that was the same, or None."""
        # A loop is identified by its operands, not by what its bodies capture.
        signature, devices = program.signature, work.devices
        inputs = (program.inputs, program.results) if signature is None else signature
        devices = devices[: None if signature is None else 1]
        key = inputs, work.role, work.sizes, devices, trace_config()
        earlier = self.programs.get(key)
        self.programs[key] = earlier if earlier and keeps_first else program
        return earlier

    def count_sizes(self, program: _OutsideProgram, *, is_any: bool) -> int:
        """Return how many sizes in a row came before a program, if it is the first of its run.

        Only sizes that grow count, or `is_any`: others are of a fixed set, such as a model's.
        """
        latest = self.latest
        if latest is not None and latest.run == program.run is not None:
            return 0
        self.latest = program
        if latest is None or not _is_resized(latest, program, is_any=is_any):
            self.changes = []
            return 0
        fed = {*latest.results}.intersection(program.inputs).difference(latest.inputs)
        self.changes.append((_steps(latest, program), bool(fed)))
        steps = {step for step, _ in self.changes[-_FEW_SIZES:]}
        fed_back = sum(is_fed for _, is_fed in self.changes)
        grows = len(steps) == 1 or fed_back >= _MOST * len(self.changes)
        return len(self.changes) if is_any or grows else 0


class OutsideLog:
    """What JAX compiled outside jitted functions, by line and place."""

    def __init__(self) -> None:
        self._places: dict[Any, _Place] = {}

    def explain(
        self, name: str, work: Work, frame: types.FrameType | None
    ) -> tuple[Explanation, int | None]:
        """Explain a lowering, or a trace without one; also return the run of the line it was in."""
        outer = outer_call(frame)
        user, is_mapped = user_frame(outer), outer is not frame
        call = eager_call(frame, user, work.call)
        run = None if user is None else run_of(user)
        definitions = tuple(map(definition_of, call.functions.values()))
        programs = self._places.setdefault((name, site_of(user), call.lines, definitions), _Place())
        program = _program_of(call, work, run, given_in(user))
        earlier, latest = programs.identify(program, work, keeps_first=is_mapped), programs.latest
        outcome = Outcome.RETRACE if work.inputs is None else Outcome.RECOMPILE
        # Within one run, a package may compile one operation with several constants. If the run
        # is unknown, each call that takes a function counts as another run.
        if earlier is not None and (call.functions if run is None else earlier.run != run):
            # `for batch in batches: jax.lax.scan(lambda carry, x: ..., start, batch)`
            reasons = _again(earlier, program, call, outcome, user)
            if is_mapped:  # `for batch in batches: jax.shard_map(f, ...)(batch)`
                (name, *_) = [*map(jitted_name, call.functions.values()), "function"]
                change = "under `jax.shard_map` outside `jit`, each call compiles each operation"
                advice = Advice(change, jit_once_fix(user))
                reasons = [Reason(name, ReasonKind.FUNCTION, outcome, MISSING, MISSING, advice)]
            return Explanation(outcome, tuple(reasons), nearest=0), run
        is_any = bool(call.is_masked or call.unsized)
        sizes = 0
        callers = (caller for caller, _ in traceback.walk_stack(user))
        # JAX calls the user's code for each leaf in `jax.tree.map`, for example.
        if (run is not None or is_any) and not any(map(_is_in_jax, callers)):
            sizes = programs.count_sizes(program, is_any=is_any)
        if latest is None or sizes < _FEW_SIZES or _is_in_fixed_loop(user):
            return Explanation(outcome), run
        # `for batch in batches: batch[batch > 0].sum()`
        reasons = list(_sizes(latest, program, call, outcome))
        return Explanation(outcome, tuple(reasons), nearest=sizes - 1 if reasons else None), run


def _is_in_fixed_loop(user: types.FrameType | None) -> bool:
    """Return whether the innermost loop runs over a dict or a tree: ``for w in params.values()``.

    Its arrays are what they are: `jit` of the loop helps, one size does not.
    """
    while (user := user_frame(user)) is not None and is_users_file(user.f_code.co_filename):
        line, column, *_ = position_of(user) or [user.f_lineno, 0]
        loops = loops_around(user.f_code.co_filename, line, column, calls=False)
        if loops:
            return loops[0].is_fixed
        user = user.f_back
    return False


def _program_of(
    call: EagerCall, work: Work, run: int | None, variables: Mapping[str, Any]
) -> _OutsideProgram:
    functions = {name: SeenFunction(fun) for name, fun in call.functions.items() if call.is_direct}
    signature = None
    if call.is_direct and call.operands:
        labels = {f"args[{at}]": name for at, name in enumerate(call.operands)}
        values = tuple(call.operands.values())
        signature = record(values, {}, StaticArguments(), labels=labels)
    return _OutsideProgram(run, *_avals(work), signature, functions, variables, len(CLEARS))


def _again(
    earlier: _OutsideProgram,
    program: _OutsideProgram,
    call: EagerCall,
    outcome: Outcome,
    user: types.FrameType | None,
) -> list[Reason]:
    """Return why a program that equals an earlier one is compiled again."""
    if is_jit_off():
        facts = ReasonKind.CONFIG, outcome, False, True, Cause.JIT_IS_OFF
        return [Reason("config.jax_disable_jit", *facts)]
    fix = Fix("keep the result of the first call") if call.is_direct else Fix()
    if outcome is Outcome.RECOMPILE or call.name not in {"eval_shape", "make_jaxpr"}:
        fix = jit_once_fix(user)
    cleared = reason_of_clear(earlier.clears, outcome)
    again = Reason("", ReasonKind.CACHE, outcome, MISSING, MISSING, Advice("", fix))
    return list(_fresh(earlier, program, call, fix)) or [cleared or again]


_FEW_SIZES: Final = 3
"""Fewer sizes than this are not a repeat: a training set and a test set."""

_MOST: Final = 0.9  # of the runs of a line, whose result is the next one's input

_BY_FUNCTION: Final = {"scan", "while_loop", "fori_loop", "cond", "switch"}
"""The calls whose traces JAX reuses, even outside `jit`, for a function that it has traced."""


def _avals(work: Work) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if work.inputs is not None:
        return work.inputs, work.outputs
    arguments: Any = None if work.call is None else (work.call.args, dict(work.call.kwargs))
    leaves = record((arguments,), {}, StaticArguments(), abstract=True).leaf_records
    return tuple(leaf.aval for leaf in leaves), ()


def _fresh(
    earlier: _OutsideProgram, program: _OutsideProgram, call: EagerCall, fix: Fix
) -> Iterator[Reason]:
    """Yield the reasons for user functions that are recreated at each call."""
    before, after = earlier.functions, program.functions
    fresh = [name for name, function in after.items() if not before[name].is_same(function)]
    changes = [describe_changes(before[name].captured, after[name].captured) for name in fresh]
    for name, change in zip(fresh, changes, strict=True):
        words = Verbatim(before[name].text), Verbatim(after[name].text)
        advice = recreated_function(call.functions[name], change)
        # Defined once, it would keep the first value; or JAX makes a new wrapper each time.
        if any(changes) or call.name not in _BY_FUNCTION:
            is_words = bool(fix) and not fix.act and bool(change)
            advice = advice._replace(fix=function_of(named(change)) if is_words else fix)
        yield Reason(name, ReasonKind.STATIC, Outcome.RETRACE, *words, advice)
    is_explained = not after or any(changes) or call.name in _BY_FUNCTION
    for name, value in () if is_explained else program.variables.items():
        old = earlier.variables.get(name, value)
        if old != value:
            advice = Advice("", function_of(f"`{name}`") if fix and not fix.act else fix)
            yield Reason(name, ReasonKind.STATIC, Outcome.RETRACE, old, value, advice)


def _sizes(
    before: _OutsideProgram, after: _OutsideProgram, call: EagerCall, outcome: Outcome
) -> Iterator[Reason]:
    shapes = next((a.shape, b.shape) for a, b in _pairs(before, after) if a != b)
    name, cause = "size", Cause.RESIZED.value
    if call.is_masked:  # `x[x > 0]`
        name, cause = "mask", Advice("", Fix(_MASKED, Act.PAD))
    elif call.unsized:  # `jnp.nonzero(x)`
        words = f"`{call.unsized}=n` in `{call.name}`, and mask what it adds"
        name, cause = call.name, Advice("", Fix(words, Act.PAD))
    elif before.signature is not None and after.signature is not None:  # `lax.map(f, x[:n])`
        for reason in differences(before.signature, after.signature).reasons:
            if reason.kind is ReasonKind.SHAPE:
                yield reason._replace(cause=cause)
        return
    yield Reason(name, ReasonKind.SHAPE, outcome, *shapes, cause)


_MASKED: Final = "`jnp.where(mask, x, 0)` keeps the shape, if zeros change nothing, as in a sum"


def _pairs(before: _OutsideProgram, after: _OutsideProgram) -> list[tuple[Any, Any]]:
    """Return the arrays of two programs in pairs; only results if the inputs differ in number."""
    is_longer = len(before.inputs) != len(after.inputs)
    inputs = [] if is_longer else zip(before.inputs, after.inputs, strict=True)
    return [*inputs, *zip(before.results, after.results, strict=False)]


def _is_resized(before: _OutsideProgram, after: _OutsideProgram, *, is_any: bool) -> bool:
    """Return whether only the sizes of arrays differ, those of each by one number."""
    changed = [pair for pair in _pairs(before, after) if pair[0] != pair[1]]
    # Arrays created with a given shape do not count: they are parameters of some model.
    is_given = is_any or before.inputs != after.inputs
    return is_given and bool(changed) and all(starmap(_has_one_change, changed))


def _steps(before: _OutsideProgram, after: _OutsideProgram) -> tuple[Any, ...]:
    """Return the differences in the shapes of two programs."""
    shapes = (tuple(getattr(aval, "shape", ()) for aval in pair) for pair in _pairs(before, after))
    return tuple(tuple(n - m for m, n in zip(*pair, strict=False)) for pair in shapes)


def _has_one_change(before: Any, after: Any) -> bool:
    shapes = [getattr(aval, "shape", ()) for aval in (before, after)]
    changes = {n - m for m, n in zip(*shapes, strict=False)} - {0}
    return len(shapes[0]) == len(shapes[1]) and len(changes) == 1 and before.dtype == after.dtype


_JAX: Final = ("jax", "jaxlib")
_TREES: Final = ("jax._src.tree_util", "jax._src.tree")
_WRAPPERS: Final = {"reraise_with_filtered_traceback", "op", "meth", "method", "<lambda>"}


def eager_call(
    frame: types.FrameType | None, user: types.FrameType | None, running: RunningCall | None
) -> EagerCall:
    """Return the call that the user's frame made, found from a frame in JAX outwards."""
    frames: list[types.FrameType] = []
    while frame is not None and frame is not user:
        if _package(frame.f_globals.get("__name__")) != "leafwise":
            frames.append(frame)
        frame = frame.f_back
    # Read `f_code` once per frame: it is slow under an audit hook.
    codes = [(frame, frame.f_code) for frame in frames]
    inside = [frame for frame, code in codes if _is_named(frame, code)]
    called = inside[-1] if inside else None
    variables = {} if called is None else called.f_locals
    name = "" if called is None else called.f_code.co_name
    is_direct = all(map(_is_in_jax, frames))
    unsized = _unsized(variables) if is_direct else ""
    is_masked = is_direct and not unsized and any(is_mask(frame.f_locals) for frame in inside[-3:])
    lines = hash(tuple((code.co_filename, frame.f_lineno) for frame, code in codes))
    values = dict(_functions(called, running)), dict(_operands(variables, name))
    return EagerCall(lines, name, *values, is_direct, is_masked, unsized)


def _operands(variables: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the operands among the variables of a JAX function, flat ones unflattened."""
    for operand in _OPERANDS.get(name, ()):
        flat: Any = variables.get(f"{operand}_flat", variables.get(operand))
        if type(flat).__module__.startswith("jax._src.") and hasattr(flat, "tree"):
            yield operand, jax.tree.unflatten(flat.tree, flat.vals)
        elif operand in variables:
            yield operand, variables[operand]


_OPERANDS: Final = {
    "scan": ("init", "xs"),
    "while_loop": ("init_val",),
    "fori_loop": ("init_val",),
    "map": ("xs",),
    "associative_scan": ("elems",),
    "cond": ("operands",),
    "switch": ("operands",),
}


def _is_named(frame: types.FrameType, code: types.CodeType) -> bool:
    """Return whether a frame is that of a JAX function that the user may have called."""
    is_wrapper = code.co_name in _WRAPPERS or frame.f_globals.get("__name__") in _TREES
    return _is_in_jax(frame) and not is_wrapper


def _package(module: object) -> str:
    return str(module).partition(".")[0]


def _is_in_jax(frame: types.FrameType) -> bool:
    return _package(frame.f_globals.get("__name__")) in _JAX


def is_of_jax(fun: Any) -> bool:
    return _package(getattr(fun, "__module__", None)) in _JAX


def _functions(
    frame: types.FrameType | None, running: RunningCall | None
) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the user's functions among the arguments of a frame of JAX."""
    if running is not None and running.is_for_shapes:
        yield "fun", running.fun
    if frame is None or frame.f_globals.get("__name__") == "jax._src.api":
        return  # `grad` and the like run a function eagerly, outside any program
    code, variables = frame.f_code, frame.f_locals
    for name in (*parameters(code), *code.co_freevars):
        value = variables.get(name)
        items: Any = value if isinstance(value, tuple | list) else (value,)
        for at, item in enumerate(items):
            if callable(item) and not isinstance(item, type) and _is_users(item):
                yield f"{name}[{at}]" if items is value else name, item


def _is_users(value: Any) -> bool:
    while hasattr(value, "func"):
        value = value.func
    return hasattr(value, "__name__") and not is_of_jax(value)


def _unsized(variables: Mapping[str, Any]) -> str:
    """Return the parameter missing for a fixed result size; empty for most functions."""
    repeats = variables.get("repeats")
    if variables.get("total_repeat_length", 0) is None and hasattr(repeats, "dtype"):
        return "total_repeat_length"
    # With `x` and `y`, `where` selects from two arrays, so its size is known.
    is_unsized = variables.get("size", 0) is None and variables.get("y") is None
    return "size" if is_unsized else ""


def is_mask(variables: Mapping[str, Any]) -> bool:
    """Return whether a frame of JAX has an index of booleans."""
    index = variables.get("item", variables.get("idx"))
    indices = index if isinstance(index, tuple) else (index,)
    return any(str(getattr(index, "dtype", "")) == "bool" for index in indices)
