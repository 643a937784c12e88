"""What JAX is doing while it reports an event, read from the stack of this thread.

JAX gives its listeners a function's name and a duration. Its frames hold the rest: the call with
its arguments, what is lowered, under which transformations, and whether that is part of a trace.
Nothing is read if the frames of a probe do not hold what it was called with.
"""

import contextlib
import inspect
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from leafwise._jax.compat import ANSWERS, JIT, Internal, StaticOptions, inside, static_options_of
from leafwise._jax.events import read_events


class RunningCall(NamedTuple):
    """A call of a jitted function that is in the middle of a cache miss."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    frame: types.FrameType | None  # the caller's
    runs: bool  # False for `lower`, `trace` and `eval_shape`
    info: Any = None  # JAX's record of the options
    mapping: "Mapping[str, Any] | None" = None  # the options of `jax.pmap`, if that jits it

    @property
    def statics(self) -> StaticOptions:
        """Which arguments are static, by position and by name; empty if unknown."""
        if self.mapping is not None:
            return tuple(self.mapping["static_broadcasted_tuple"]), ()
        return static_options_of(self.info)

    @property
    def is_for_shapes(self) -> bool:
        """Whether the caller is `jax.eval_shape`, `jax.make_jaxpr` or `jax.lax` itself."""
        frame = self.frame
        while not self.runs and frame is not None:
            module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_name
            if not module.startswith("jax._src."):
                return False
            if module.startswith("jax._src.lax.") or name in ("eval_shape", "make_jaxpr_f"):
                return True
            frame = frame.f_back
        return False


class Work(NamedTuple):
    """What JAX is doing."""

    call: RunningCall | None = None  # None for a backward pass, which runs after the call
    role: tuple[str, ...] = ()  # "vmap", "forward", "backward", the innermost first
    sizes: tuple[int, ...] = ()  # the batch sizes of each "vmap", the innermost first
    inputs: tuple[Any, ...] | None = None  # the avals that are lowered; None for a trace
    outputs: tuple[Any, ...] = ()  # the avals of the results
    jaxpr: Any = None  # what was traced
    devices: tuple[Any, ...] = ()  # the devices, and the shardings of arguments
    source: str = ""  # the function as JAX names it: ``f at train.py:12``
    module: Any = None  # what it lowered to, or compiles: one object for both
    is_inside: bool = False  # whether it is part of a trace that builds a jaxpr
    is_known: bool = True  # False where JAX does not show it: the rest is then meaningless

    @property
    def is_ahead(self) -> bool:
        """Whether this is `lower` or `trace`, or a stage they returned, rather than a call."""
        return not self.role if self.call is None else not self.call.runs

    @property
    def lowered(self) -> tuple[Any, Any, Any]:
        """The facts about its lowering that are recorded with a program."""
        return self.sizes, self.inputs, self.devices


_MISSES: Final = {"cache_miss": True, "jit_trace": False, "jit_lower": False}
"""JAX's functions that hold the arguments of a call, and whether they run it."""

_RULES: Final = {
    "_pjit_batcher": "vmap",
    "_pjit_jvp": "forward",
    "_pjit_linearize": "forward",
    "_pjit_partial_eval": "forward",
    "_pjit_remat": "forward",
    "_pjit_transpose": "backward",  # before JAX 0.9
    "_pjit_transpose_fancy": "backward",
}
"""JAX's functions that transform a jitted function without tracing it again."""

_TRACERS: Final = {"trace_to_jaxpr", "trace_to_jaxpr_nocache", "trace_to_jaxpr_dynamic"}


def frames_of_jax(frame: types.FrameType | None) -> Iterator[tuple[str, str, types.FrameType]]:
    """Yield JAX's frames from one outwards: module below ``jax._src``, function name, frame."""
    # The module is read first: under an audit hook, such as that of filelock, which JAX imports if
    # it is installed, Python takes 0.4 us to get the code of a frame.
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("jax._src."):
            yield name[9:], frame.f_code.co_name, frame
        elif name == "leafwise._jax.compat" and frame.f_code.co_name == "_ask":
            return  # what is around a probe does not belong to it
        frame = frame.f_back


def running_calls() -> Iterable[RunningCall]:
    """Return the calls of jitted functions on this thread's stack, the innermost first."""
    return _running_calls() if Internal.CALLS.is_known(_probe) else ()


def _running_calls() -> Iterator[RunningCall]:
    calls = itertools.starmap(_call_in, frames_of_jax(inspect.currentframe()))
    return (call for call in calls if call is not None)


def _call_in(place: str, name: str, frame: types.FrameType) -> RunningCall | None:
    if place != "pjit" or (runs := _MISSES.get(name)) is None:
        return None
    variables = frame.f_locals
    fun = variables.get("fun")  # compared with None: its `bool` may run user code
    if fun is None:
        fun = getattr(variables.get("jit_func"), "_fun", None)
    if fun is None or "args" not in variables or "kwargs" not in variables:
        return None
    call = variables["args"], variables["kwargs"], frame.f_back, runs
    return _pmapped(frame.f_back, runs=runs) or RunningCall(fun, *call, variables.get("jit_info"))


def _pmapped(frame: types.FrameType | None, *, runs: bool) -> RunningCall | None:
    """Return the call of a function under `jax.pmap`, which jits one of its own; or None."""
    while frame is not None and frame.f_code.co_name == "reraise_with_filtered_traceback":
        frame = frame.f_back
    variables = {} if frame is None else frame.f_locals
    maker: Any = variables.get("infer_params")
    if frame is None or not str(getattr(maker, "__module__", "")).startswith("jax._src."):
        return None
    options = inspect.getclosurevars(maker).nonlocals
    fun = getattr(options.get("wrapped_fun"), "f", options.get("f"))
    if fun is None or not options.keys() >= _OF_PMAP:
        return None
    call = variables["args"], variables["kwargs"], frame.f_back, runs
    return RunningCall(fun, *call, mapping=options)


_OF_PMAP: Final = {"axis_name", "in_axes", "devices", "backend", "static_broadcasted_tuple"}


def is_inside_trace(others: int = 0) -> bool:
    """Return whether this thread is inside more than `others` jaxpr traces; False if unknown."""
    return Internal.NESTING.is_known(_probe) and _depth() > others


def _depth() -> int:
    return sum(map(_traces, frames_of_jax(inspect.currentframe())))


def _traces(where: tuple[str, str, types.FrameType]) -> bool:
    return where[0] == "interpreters.partial_eval" and where[1] in _TRACERS


def current_work(start: types.FrameType | None, *, lowers: bool) -> Work:
    """Return what JAX is doing (it `lowers`, or traces), from a frame below its own outwards."""
    is_shown = shows_work() if lowers else shows_traces()
    work = _work(start) if is_shown else Work(is_known=False)
    if work.inputs is None or work.role or work.is_inside:
        return work
    if work.call is None:  # a backward pass has a role
        is_known = Internal.ROLES.is_known(_probe_roles)
    else:  # so does a lowering for a tracer
        arguments = jax.tree.leaves((work.call.args, {**work.call.kwargs}))
        is_known = not any(isinstance(leaf, Tracer) for leaf in arguments)
        ANSWERS.update({} if is_known else {Internal.ROLES: False})
    return work if is_known else Work(is_known=False)


def shows_traces() -> bool:
    """Return whether JAX shows which call it traces for, and where."""
    rows = (Internal.CALLS, Internal.NESTING, Internal.RESULTS)
    return all(row.is_known(_probe) for row in rows) and ANSWERS.get(Internal.ROLES, True)


def shows_work() -> bool:
    """Return whether JAX also shows what it lowers; asking this may start a backend."""
    return shows_traces() and Internal.PROGRAMS.is_known(_probe_programs)


def _work(start: types.FrameType | None) -> Work:
    call: RunningCall | None = None
    role: list[str] = []
    sizes: list[int] = []
    facts: dict[str, Any] = {}
    is_inside = False
    for where in frames_of_jax(start):
        place, name, frame = where
        if _traces(where):
            is_inside = True
        elif call is None and place == "pjit" and name in _RULES:
            size = getattr(frame.f_locals.get("axis_data"), "size", None)
            role += [_RULES[name]] if name != "_pjit_batcher" or size is not None else []
            sizes += [size] if size is not None else []
        elif (running_call := _call_in(*where)) is not None:
            role += ["pmap"] if call is None and running_call.mapping is not None else []
            call = running_call if call is None else call
        elif call is None and "source" not in facts:
            facts |= _program_in(*where)
    if "backward" in role:
        call = None
    return Work(call, tuple(role), tuple(sizes), **facts, is_inside=is_inside)


def _program_in(place: str, name: str, frame: types.FrameType) -> dict[str, Any]:
    """Return what a JAX frame shows about the program being traced, lowered or compiled."""
    if place == "interpreters.pxla" and name in _OF_MODULES:
        lowered = frame.f_locals.get(_OF_MODULES[name])
        return {"module": getattr(lowered, "module", lowered)}
    variables = frame.f_locals if (place, name) in _OF_PROGRAMS else {}
    if "jaxpr" not in variables:
        return {}
    jaxpr = getattr(variables["jaxpr"], "jaxpr", variables["jaxpr"])
    facts = {
        "source": str(jaxpr.debug_info.func_src_info or ""),
        "outputs": tuple(output.aval for output in jaxpr.outvars),
        "jaxpr": jaxpr,
    }
    if "global_in_avals" in variables:
        facts["inputs"] = tuple(variables["global_in_avals"])
        facts["devices"] = variables["device_assignment"], *map(str, variables["in_shardings"])
    return facts


_OF_PROGRAMS: Final = {
    ("pjit", "_create_pjit_jaxpr"),  # before JAX 0.9
    ("pjit", "_trace_for_jit"),
    ("interpreters.pxla", "lower_sharding_computation"),
    ("pjit", "_pjit_call_impl_python"),
}

_OF_MODULES: Final = {
    "_cached_lowering_to_hlo": "lowering_result",
    "_cached_compilation": "computation",
}
"""JAX's functions that make a module and compile it, with the variables that hold it."""


def fails(start: types.FrameType | None) -> bool:
    """Return whether JAX reports work that an error ended: it reports that, too."""
    for place, name, frame in frames_of_jax(start):
        if (place, name) == ("dispatch", "__exit__"):
            return frame.f_locals.get("exc_type") is not None
    return False


def outer_call(start: types.FrameType | None) -> types.FrameType | None:
    """Return the frame that called a function under `jax.shard_map` outside `jit`, or `start`."""
    # JAX runs the function operation by operation there, each as a program of its own.
    for place, name, frame in frames_of_jax(start):
        start = frame if (place, name) == ("shard_map", "_shard_map_impl") else start
    return start


def is_jit_off() -> bool:
    """Return whether jit is disabled here, which JAX hides from an operation that it compiles."""
    for place, name, frame in frames_of_jax(inspect.currentframe()):
        before = frame.f_locals.get("prev") if place == "dispatch" else None
        if name == "apply_primitive" and isinstance(before, bool):
            return before
    option = getattr(inside("config"), "disable_jit", None)
    return bool(getattr(option, "get_global", bool)())


# JAX describes each function by a text with its file and line, which it makes once: the object is
# the same in each trace of the function, for any shapes, and in what transformations make of that.
# Another function of the same line has another one, though equal.


def functions_inside() -> dict[int, str] | None:
    """Return JAX's texts for the functions inside this thread's trace, by id; None if unknown."""
    # They were traced in it, or before: then JAX reuses that.
    return _functions_inside() if Internal.REUSED.is_known(_probe) else None


def functions_around() -> dict[int, str]:
    """Return JAX's texts for the functions that this thread is tracing; empty if unknown."""
    return _functions_around() if Internal.REUSED.is_known(_probe) else {}


def source_in(text: str) -> tuple[str, int] | None:
    """Return the file and line in JAX's text for a function."""
    file, _, line = text.partition(" at ")[2].rpartition(":")
    return (file, int(line)) if line.isdigit() else None


def _functions_around() -> dict[int, str]:
    trace: Any = inside("core").trace_ctx.trace
    texts: dict[int, str] = {}
    while trace is not None:
        if hasattr(trace, "frame"):
            text: str = trace.frame.debug_info.func_src_info
            texts[id(text)] = text
        trace = getattr(trace, "parent_trace", None)
    return texts


def _functions_inside() -> dict[int, str]:
    texts: dict[int, str] = {}
    core = inside("core")
    todo: list[Any] = list(core.trace_ctx.trace.frame.tracing_eqns)
    seen = set[int]()
    while todo:
        equation = todo.pop()
        if isinstance(equation, types.FunctionType):  # a reference
            equation = equation()
        for jaxpr in core.jaxprs_in_params({} if equation is None else equation.params):
            if id(jaxpr) not in seen:  # one that is called twice is one
                seen.add(id(jaxpr))
                text: str = jaxpr.debug_info.func_src_info
                texts[id(text)] = text
                todo += jaxpr.eqns
    return texts


def compute_alike(one: Any, other: Any) -> bool:
    """Return whether two jaxprs run the same operations, but for conversions of dtypes."""
    # Then converting an argument of one to what the other takes changes no result.
    pairs = itertools.zip_longest(*map(_operations, (one, other)))
    return all(mine == its for mine, its in pairs)


def _operations(jaxpr: Any) -> Iterator[Any]:
    numbers: dict[Any, int] = {}
    count = itertools.count(1)

    def number(variable: Any) -> Any:
        if hasattr(variable, "val"):  # a literal
            return str(np.asarray(variable.val).tolist())
        return numbers.get(variable) or numbers.setdefault(variable, next(count))

    yield [number(variable) for variable in jaxpr.invars]
    for equation in jaxpr.eqns:
        operands = [number(variable) for variable in equation.invars]
        if equation.primitive.name == "convert_element_type" and not _truncates(equation):
            numbers[equation.outvars[0]] = operands[0]
            continue
        avals = [(each.aval.shape, str(each.aval.dtype)) for each in equation.outvars]
        yield equation.primitive.name, operands, avals
        for inner in inside("core").jaxprs_in_params(equation.params):
            yield from _operations(inner)
    yield [number(variable) for variable in jaxpr.outvars]


def _truncates(conversion: Any) -> bool:
    """Return whether it makes integers of floats: ``x.astype(int)``, which an int lacks."""
    before, after = conversion.invars[0].aval.dtype, conversion.outvars[0].aval.dtype
    is_float = jax.numpy.issubdtype(before, np.floating)
    return is_float and not jax.numpy.issubdtype(after, np.inexact)


def _probe() -> dict[Internal, bool]:
    """Trace a function that calls another one, and return whether the frames show just that."""
    calls, depths = list[RunningCall](), [_depth()]
    values, reused, around, works = list[Any](), list[Any](), list[Any](), list[Work]()

    def leafwise_inner(x: Any, n: Any) -> Any:
        depths.append(_depth())
        calls.extend(_running_calls())
        with contextlib.suppress(Exception):  # of another JAX
            around.append(_functions_around())
        return x, n

    def leafwise_probe(x: Any) -> Any:
        depths.append(_depth())
        values.append(x)
        inner(x, n=3)
        with contextlib.suppress(Exception):  # of another JAX
            reused.extend(_functions_inside().values())
        return x, x

    inner: Any = JIT(leafwise_inner, static_argnums=1, static_argnames="n")
    with read_events(lambda _: works.append(_work(inspect.currentframe()))):
        JIT(leafwise_probe).trace(1.0)
    facts = [(c.fun, {**c.kwargs}, c.statics, c.runs) for c in calls]
    outer: Any = leafwise_probe, {}, ((), ()), False
    code = leafwise_inner.__code__
    return {
        Internal.CALLS: facts == [(leafwise_inner, {"n": 3}, ((1,), ("n",)), True), outer]
        and calls[0].args[0] is values[0]
        and calls[1].args == (1.0,),
        Internal.NESTING: depths == [0, 1, 2],
        Internal.REUSED: [*map(source_in, reused)] == [(code.co_filename, code.co_firstlineno)]
        and {*map(id, reused)} <= around[0].keys(),
        Internal.RESULTS: [aval.shape for work in works[-1:] for aval in work.outputs] == [(), ()],
    }


def _probe_programs() -> dict[Internal, bool]:
    """Lower a function, and return whether the frames show just that."""
    works: list[Work] = []

    def leafwise_probe(x: Any) -> Any:
        return x, x

    with read_events(lambda _: works.append(_work(inspect.currentframe()))):
        JIT(leafwise_probe).lower(1.0)
    *_, traced, lowered = works
    code = leafwise_probe.__code__
    call, avals = lowered.call, lowered.inputs or ()
    return {
        Internal.PROGRAMS: call is not None
        and (call.args, call.runs) == ((1.0,), False)
        and lowered.source == f"leafwise_probe at {code.co_filename}:{code.co_firstlineno}"
        and lowered.outputs == traced.outputs == (*avals, *avals) != ()
        and len(lowered.devices) > 1,
    }


def _probe_roles() -> dict[Internal, bool]:
    """Differentiate a jitted function, and return whether the frames show both passes."""
    roles: list[tuple[str, ...]] = []

    def forward(x: Any) -> Any:
        roles.append(_work(inspect.currentframe()).role)
        return x, None

    def backward(_: Any, tangent: Any) -> Any:
        roles.append(_work(inspect.currentframe()).role)
        return (tangent,)

    @jax.custom_vjp
    def leafwise_probe(x: Any) -> Any:
        return x

    leafwise_probe.defvjp(forward, backward)
    jax.make_jaxpr(jax.grad(JIT(leafwise_probe)))(1.0)
    return {Internal.ROLES: roles == [("forward",), ("backward",)]}
