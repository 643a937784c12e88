"""What JAX is doing while it reports an event, read off the stack of this thread.

JAX gives its listeners the name of a function and a time. Its frames hold the rest: the call with
its arguments, what is lowered, under which transformations, and whether that is a part of a trace.
In versions of JAX that were not tested nothing is read.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from leafwise._jax.compat import StaticOptions, is_known, static_options_of


class RunningCall(NamedTuple):
    """A call of a jitted function that is in the middle of a cache miss."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    frame: types.FrameType | None  # that called
    runs: bool  # which `lower`, `trace` and `eval_shape` do not
    info: Any = None  # JAX's record of the options

    @property
    def statics(self) -> StaticOptions:
        """Which arguments are static, by position and by name; empty where it is not a call."""
        return static_options_of(self.info)

    @property
    def is_for_shapes(self) -> bool:
        """Whether it is `jax.eval_shape` or `jax.make_jaxpr` that called."""
        frame = self.frame
        while not self.runs and frame is not None:
            if not str(frame.f_globals.get("__name__")).startswith("jax._src."):
                return False
            if frame.f_code.co_name in ("eval_shape", "make_jaxpr_f"):
                return True
            frame = frame.f_back
        return False


class Work(NamedTuple):
    """What JAX is doing."""

    call: RunningCall | None = None  # None for a backward pass, which runs after it
    role: tuple[str, ...] = ()  # "vmap", "forward", "backward", the innermost first
    sizes: tuple[int, ...] = ()  # of the batches under "vmap", the innermost first
    inputs: tuple[Any, ...] | None = None  # the avals that are lowered, not of a trace
    outputs: tuple[Any, ...] = ()  # those of the results
    devices: tuple[Any, ...] = ()  # and how arguments are sharded
    source: str = ""  # of the function, as JAX says it: ``f at train.py:12``
    is_inside: bool = False  # a part of a trace that builds a jaxpr


_MISSES: Final = {"cache_miss": True, "jit_trace": False, "jit_lower": False}
"""The functions of JAX that hold the arguments of a call, and whether they run it."""

_RULES: Final = {
    "_pjit_batcher": "vmap",
    "_pjit_jvp": "forward",
    "_pjit_linearize": "forward",
    "_pjit_partial_eval": "forward",
    "_pjit_remat": "forward",
    "_pjit_transpose_fancy": "backward",
}
"""The functions that transform a jitted one, where JAX does not trace it again."""

_TRACERS: Final = {"trace_to_jaxpr", "trace_to_jaxpr_nocache", "trace_to_jaxpr_dynamic"}


def frames_of_jax(frame: types.FrameType | None) -> Iterator[tuple[str, str, types.FrameType]]:
    """Yield JAX's own frames from one outwards: the module below ``jax._src``, the function.

    The module goes first: under an audit hook, such as that of filelock, which JAX imports where
    it is installed, Python takes 0.4 us to reach the code of a frame.
    """
    while frame is not None and is_known():
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("jax._src."):
            yield module[9:], frame.f_code.co_name, frame
        frame = frame.f_back


def running_calls(start: types.FrameType | None = None) -> Iterator[RunningCall]:
    """Yield the calls of jitted functions on this thread's stack, the innermost first."""
    for module, name, frame in frames_of_jax(inspect.currentframe() if start is None else start):
        if (call := _call_in(module, name, frame)) is not None:
            yield call


def _call_in(module: str, name: str, frame: types.FrameType) -> RunningCall | None:
    if module != "pjit" or (runs := _MISSES.get(name)) is None:
        return None
    found = frame.f_locals
    fun = found.get("fun")  # compared with None: its `bool` may be code of the user's
    if fun is None:
        fun = getattr(found.get("jit_func"), "_fun", None)
    if fun is None or "args" not in found or "kwargs" not in found:
        return None
    call = found["args"], found["kwargs"], frame.f_back, runs
    return RunningCall(fun, *call, found.get("jit_info"))


def is_inside_trace(others: int = 0) -> bool:
    """Return whether this thread builds a jaxpr, more than so many of them."""
    return sum(map(_traces, frames_of_jax(inspect.currentframe()))) > others


def _traces(where: tuple[str, str, types.FrameType]) -> bool:
    return where[0] == "interpreters.partial_eval" and where[1] in _TRACERS


def current_work(start: types.FrameType | None) -> Work:
    """Return what JAX is doing, from a frame below JAX's own outwards."""
    call: RunningCall | None = None
    role: list[str] = []
    sizes: list[int] = []
    facts: dict[str, Any] = {}
    is_inside = False
    for where in frames_of_jax(start):
        module, name, frame = where
        if _traces(where):
            is_inside = True
        elif call is None and module == "pjit" and name in _RULES:
            role.append(_RULES[name])
            if name == "_pjit_batcher":
                sizes.append(getattr(frame.f_locals.get("axis_data"), "size", 0))
        elif (found := _call_in(module, name, frame)) is not None:
            call = found if call is None else call
        elif call is None and not facts:
            facts = _program_in(module, name, frame)
    if "backward" in role:
        call = None
    return Work(call, tuple(role), tuple(sizes), **facts, is_inside=is_inside)


def _program_in(module: str, name: str, frame: types.FrameType) -> dict[str, Any]:
    """Return what a frame of JAX knows of the program that is traced, lowered or compiled."""
    found = frame.f_locals if (module, name) in _OF_PROGRAMS else {}
    if "jaxpr" not in found:
        return {}
    jaxpr = getattr(found["jaxpr"], "jaxpr", found["jaxpr"])
    facts = {
        "source": str(jaxpr.debug_info.func_src_info or ""),
        "outputs": tuple(each.aval for each in jaxpr.outvars),
    }
    if "global_in_avals" in found:
        facts["inputs"] = tuple(found["global_in_avals"])
        facts["devices"] = found["device_assignment"], *map(str, found["in_shardings"])
    return facts


_OF_PROGRAMS: Final = {
    ("pjit", "_trace_for_jit"),
    ("interpreters.pxla", "lower_sharding_computation"),
    ("pjit", "_pjit_call_impl_python"),
}


def functions_inside() -> set[tuple[str, int]] | None:
    """Return whose traces are in this thread's, by file and line; None where JAX is unknown."""
    try:
        if not is_known():
            return None
        from jax._src import core  # noqa: PLC0415  # after the check of the version

        frame: Any = core.trace_ctx.trace.frame
        equations = [
            each() if isinstance(each, types.FunctionType) else each for each in frame.tracing_eqns
        ]
    except (ImportError, AttributeError):
        return None
    found: set[tuple[str, int]] = set()
    for each in equations:
        found.update(_functions_of(each))
    return found


def _functions_of(equation: Any) -> Iterator[tuple[str, int]]:
    for value in () if equation is None else equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            jaxpr: Any = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                file, _, line = (
                    str(jaxpr.debug_info.func_src_info).partition(" at ")[2].rpartition(":")
                )
                if line.isdigit():
                    yield file, int(line)
                for inner in jaxpr.eqns:
                    yield from _functions_of(inner)
