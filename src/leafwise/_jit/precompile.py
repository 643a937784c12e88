"""Compiling ahead of the first call, for many signatures at once."""

import ast
import dataclasses
import functools
import itertools
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from types import MethodType
from typing import Any, Final, TypeAlias, cast

import jax
import numpy as np

from leafwise._classes.instance import pformat
from leafwise._compare.signature import Signature, value_of
from leafwise._jax.events import count_events
from leafwise._jit import storm
from leafwise._jit.callee import name_of
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import BoundMethod
from leafwise._objects.text import Verbatim, got, shorten
from leafwise._trees.leaves import Leaf, LeafKind
from leafwise.errors import PrecompileError, message_of

CallLike: TypeAlias = Signature | tuple[Sequence[Any], Mapping[str, Any]]
"""A recorded call, or the arguments of one: ``(args, kwargs)``."""


class PrecompileOutcome(StrEnum):
    """What became of a program that was to be compiled ahead."""

    COMPILED = "compiled"
    """XLA compiled it."""
    CACHED = "cached"
    """The persistent compilation cache had it."""
    KNOWN = "known"
    """This process had it."""
    FAILED = "failed"
    """It raised."""


@dataclasses.dataclass(frozen=True)
class PrecompiledProgram:
    """One program that was compiled ahead.

    Attributes:
        function: The name of the function.
        call: The arguments, as text.
        outcome: What became of it.
        seconds: How long it took to trace and lower it, and to compile it or to load it from the
            cache.
        compiled: The `jax.stages.Compiled` object, which can be called; None if it failed.
        error: What was raised; None if it did not fail.
    """

    function: str
    call: str
    outcome: PrecompileOutcome
    seconds: tuple[float, float] = (0.0, 0.0)
    compiled: Any = dataclasses.field(default=None, repr=False, compare=False)
    error: Exception | None = None

    def __str__(self) -> str:
        """Return one line."""
        lower, compiling = self.seconds
        what = f"lowered in {lower:.2f} s, {self.outcome} in {compiling:.2f} s"
        what = what if self.error is None else f"failed: {_indented(self.error).strip()}"
        return f"{self.function}{self.call}: {what}"


class Precompiled(tuple[PrecompiledProgram, ...]):  # noqa: SLOT001  # it has an attribute
    """What `leafwise.precompile` did: one record for each program, in the order they were given.

    Attributes:
        seconds: How long all of it took.
    """

    seconds: float = 0.0

    def __repr__(self) -> str:
        """Return a line for each program."""
        return "\n".join(map(str, self)) or "(none)"


def precompile(
    programs: Iterable[tuple[Callable[..., Any], CallLike]],
    /,
    *,
    threads: int | None = None,
    progress: bool | None = None,
) -> Precompiled:
    """Compile jitted functions ahead of their first calls, in parallel. Nothing is run.

    Traces and lowers each function on this thread, under the configuration, mesh and default
    device of this block, and compiles in other threads meanwhile. The first call of such a
    function with such arguments finds the program: it neither traces, lowers nor compiles. With the
    persistent compilation cache on, the next process finds it there instead of compiling.

    A `jax.ShapeDtypeStruct` stands for an array, also inside an instance, as
    `jax.eval_shape` of its constructor returns it; one with a sharding for an array that is
    committed to it, one without for an array that is not. Traces that are made here do not count
    for `leafwise.storm_guard`.

    Args:
        programs: The programs, as pairs of a function and a call. A function is what
            `leafwise.jit`, `jax.jit`, `jax.pmap` or `equinox.filter_jit` returned: the one that
            is called later. A call is ``(args, kwargs)``, or what `leafwise.signature` or
            ``function.signature`` recorded.
        threads: How many compile at a time; as many as there are processors if None.
        progress: Whether to write a line for each program that is done to standard error; if
            None, to a terminal alone.

    Returns:
        What became of each program.

    Raises:
        TypeError: A function is not jitted, or a call not one of the above; nothing was compiled.
        PrecompileError: Some programs could not be lowered or compiled; the others are.
        KeyboardInterrupt: Ctrl-C was pressed. What XLA is compiling at that moment it finishes
            before the process ends.

    Examples:
        >>> step = jit(lambda x: 2 * x)
        >>> precompile([(step, ((jax.ShapeDtypeStruct((3,), "float32"),), {}))])[0].outcome
        <PrecompileOutcome.COMPILED: 'compiled'>
    """
    pairs = [_checked(place, entry) for place, entry in enumerate(programs)]
    began = time.monotonic()
    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="precompile")
    try:
        shown = sys.stderr.isatty() if progress is None else progress
        note = _progress(len(pairs), shown=shown)
        found = [_start(pool, fun, call, note) for fun, call in pairs]
        results = [each.result() if isinstance(each, Future) else each for each in found]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    done = Precompiled(results)
    done.seconds = time.monotonic() - began
    failed = [(each, each.error) for each in done if each.error is not None]
    if failed:
        lines = [f"\n  {each.function}{each.call}\n{_indented(error)}" for each, error in failed]
        message = f"{len(failed)} of {len(done)} programs could not be compiled{''.join(lines)}"
        raised = PrecompileError(message, [error for _, error in failed])
        raised.programs = done
        raise raised
    return done


Note: TypeAlias = Callable[[PrecompiledProgram], None]


def _progress(total: int, *, shown: bool) -> Note:
    """Return what shows that a program is done."""
    lock, numbers = new_lock(), itertools.count(1)

    def note(program: PrecompiledProgram) -> None:
        with lock:
            line = shorten(Verbatim(f"[{next(numbers)}/{total}] {program}"), 160)
            print(line, file=sys.stderr, flush=True)  # noqa: T201  # where it was asked for

    return note if shown else lambda _: None


def _checked(place: int, entry: Any) -> Any:
    match entry:
        case (fun, Signature() | (tuple() | list(), dict())):
            pass
        case _:
            raise TypeError(
                f"precompile takes pairs of a jitted function and a call, got {got(entry)} at "
                f"{place}\n  fix: (step, ((params, x), {{}})), or (step, step.signature(params, x))"
            )
    if not callable(fun) or not callable(getattr(fun, "lower", None)):
        name = name_of(fun) if callable(fun) else ""
        name = name if name.isidentifier() else "step"
        raise TypeError(
            f"precompile takes functions of lw.jit, jax.jit or equinox.filter_jit, got {got(fun)} "
            f"at {place}\n  fix: {name} = jax.jit({name}), and call that one later as well"
        )

    return entry


_Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def _lowered_with(fun: Any, call: CallLike) -> tuple[Any, _Arguments]:
    """Return what is lowered, which is not a bound method, and its arguments."""
    is_whole = False
    if isinstance(call, Signature):
        args, kwargs = _abstract(call)
        # What `method.signature` records, with the names of parameters, has the instance.
        is_whole = isinstance(fun, BoundMethod) and bool(call.labels)
    else:
        args, kwargs = cast("_Arguments", call)
    if not isinstance(fun, BoundMethod | MethodType):
        return fun, (tuple(args), kwargs)
    return fun.__func__, ((*(() if is_whole else (fun.__self__,)), *args), kwargs)


def _abstract(signature: Signature) -> _Arguments:
    """Return a call that one program serves with the recorded one, or raise ValueError."""
    pairs = zip(signature.leaf_paths, signature.leaf_records, strict=True)
    leaves = [_argument(signature.show(path), leaf) for path, leaf in pairs]
    root = signature.root
    found = dict(zip(root.steps, jax.tree.unflatten(signature.treedef, leaves), strict=True))
    found.update(zip(root.names, map(value_of, root.values), strict=True))
    named = {ast.literal_eval(step[7:-1]): step for step in found if step.startswith("kwargs")}
    args = tuple(found[f"args[{place}]"] for place in range(len(found) - len(named)))
    return args, {name: found[step] for name, step in named.items()}


def _argument(path: str, leaf: Leaf) -> Any:
    if leaf.kind is LeafKind.STATIC:
        return leaf.value
    if leaf.kind in _WITHOUT_ABSTRACT or leaf.aval is None:
        raise ValueError(
            f"{path}: without its value it cannot be given: {leaf}\n"
            f"  fix: give the call as (args, kwargs)"
        )
    weak, sharding = leaf.weak_type, leaf.lowered_sharding
    struct: Any = jax.ShapeDtypeStruct  # which JAX does not annotate
    return struct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)


_WITHOUT_ABSTRACT: Final = {LeafKind.REF, LeafKind.OTHER, LeafKind.INVALID}


def _start(
    pool: ThreadPoolExecutor, fun: Any, call: CallLike, note: Note
) -> "Future[PrecompiledProgram] | PrecompiledProgram":
    """Trace and lower on this thread, which has the configuration, and compile on another."""
    name, text, start = name_of(fun), "(...)", time.monotonic()
    try:
        fun, (args, kwargs) = _lowered_with(fun, call)
        text = _format_call(args, kwargs)
        if type(fun).__module__ == "equinox._jit":
            args, kwargs = jax.tree.map(_as_numpy, (tuple(args), dict(kwargs)))
        with storm.uncounted():
            lowered = fun.lower(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # the user's own code; others go on
        found = PrecompiledProgram(name, text, PrecompileOutcome.FAILED, error=error)
        note(found)
        return found
    seconds = time.monotonic() - start
    program = functools.partial(PrecompiledProgram, name, text)
    return pool.submit(_compile, program, lowered, seconds, note)


def _compile(
    program: Callable[..., PrecompiledProgram], lowered: Any, seconds: float, note: Note
) -> PrecompiledProgram:
    start = time.monotonic()
    try:
        with count_events() as counts:
            compiled = lowered.compile()
    except Exception as error:  # noqa: BLE001  # of XLA; others go on
        found = program(PrecompileOutcome.FAILED, error=error)
    else:
        outcome = PrecompileOutcome.COMPILED if counts.compiles else PrecompileOutcome.KNOWN
        outcome = PrecompileOutcome.CACHED if counts.cached else outcome
        found = program(outcome, (seconds, time.monotonic() - start), compiled)
    note(found)
    return found


def _as_numpy(leaf: Any) -> Any:
    """Return an array of no size in memory: for equinox, a ShapeDtypeStruct is a static."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    is_plain = leaf.sharding is None and not leaf.weak_type
    if not is_plain or jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise ValueError(
            f"equinox.filter_jit takes arrays, and NumPy has none like {leaf}\n"
            f"  fix: give an array, such as jax.device_put(jnp.zeros(...), sharding)"
        )
    return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)


def _format_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    given = [pformat(each) for each in args]
    given += [f"{name}={pformat(each)}" for name, each in kwargs.items()]
    return shorten(Verbatim(f"({', '.join(given)})"), 200)


def _indented(error: BaseException) -> str:
    return textwrap.indent(f"{type(error).__name__}: {message_of(error)}", "    ")
