"""What the user called of JAX, where JAX compiles outside any jitted function."""

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import jax

from leafwise._jax.stack import RunningCall

_JAX: Final = ("jax", "jaxlib")
_TREES: Final = ("jax._src.tree_util", "jax._src.tree")
_WRAPPERS: Final = {"reraise_with_filtered_traceback", "op", "meth", "method", "<lambda>"}


class EagerCall(NamedTuple):
    """A call of JAX outside any jitted function."""

    place: int
    name: str
    functions: Mapping[str, Callable[..., Any]]
    operands: Mapping[str, Any]
    is_direct: bool
    parameters: Mapping[str, Any]
    is_masked: bool
    unsized: str


def eager_call(
    frame: types.FrameType | None, user: types.FrameType | None, running: RunningCall | None
) -> EagerCall:
    """Return what the user's frame called, from a frame in JAX, or below it, outwards."""
    frames: list[types.FrameType] = []
    while frame is not None and frame is not user:
        if _package(frame.f_globals) != "leafwise":
            frames.append(frame)
        frame = frame.f_back
    # Their code once each: under an audit hook Python takes its time for it.
    codes = [(each, each.f_code) for each in frames]
    inside = [each for each, code in codes if _is_named(each, code)]
    called = inside[-1] if inside else None
    found = {} if called is None else called.f_locals
    name = "" if called is None else called.f_code.co_name
    is_direct = all(_is_of_jax(each.f_globals) for each in frames)
    unsized = _unsized(found) if is_direct else ""
    is_masked = is_direct and not unsized and any(_is_mask(each.f_locals) for each in inside[-3:])
    return EagerCall(
        place=hash(tuple((code.co_filename, each.f_lineno) for each, code in codes)),
        name=name,
        functions=dict(_functions(called, running)),
        operands=dict(_operands(found, name)),
        is_direct=is_direct,
        parameters={each: value for each, value in _parameters(running) if _is_plain(value)},
        is_masked=is_masked,
        unsized=unsized,
    )


def _operands(found: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the trees of arrays among the variables of a function, flat ones as they were."""
    for each in _OPERANDS.get(name, ()):
        flat: Any = found.get(f"{each}_flat")
        if hasattr(flat, "tree"):
            yield each, jax.tree.unflatten(flat.tree, flat.vals)
        elif each in found:
            yield each, found[each]


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
    """Return whether a frame is of a function of JAX that the user may have called."""
    is_wrapper = code.co_name in _WRAPPERS or frame.f_globals.get("__name__") in _TREES
    return _is_of_jax(frame.f_globals) and not is_wrapper


def _package(names: Mapping[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def _is_of_jax(names: Mapping[str, Any]) -> bool:
    """Return whether a module is of JAX, by its global names."""
    return _package(names) in _JAX


def _functions(
    frame: types.FrameType | None, running: RunningCall | None
) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the user's functions among the arguments of a frame of JAX."""
    if running is not None and running.is_for_shapes:
        yield "fun", running.fun
    if frame is None or frame.f_globals.get("__name__") == "jax._src.api":
        return  # `grad` and its kind run a function step by step: it is no part of a program
    for name, each in _arguments(frame):
        fun = _unwrapped(each)
        if callable(fun) and not isinstance(fun, type) and _is_users(fun):
            yield name, fun


def _arguments(frame: types.FrameType) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a frame, those in a tuple or a list one by one."""
    code, found = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 4) + bool(code.co_flags & 8)  # *args and **kwargs
    for name in (*code.co_varnames[:count], *code.co_freevars):
        value = found.get(name)
        if isinstance(value, tuple | list):
            yield from ((f"{name}[{place}]", each) for place, each in enumerate(value))
        else:
            yield name, value


def _unwrapped(value: Any) -> Any:
    """Return what a wrapper of JAX's stands for: `jax.checkpoint(f)` is another each time."""
    while _is_of_jax(getattr(value, "__globals__", {})) and hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value


def _is_users(value: Any) -> bool:
    while hasattr(value, "func"):
        value = value.func
    package = str(getattr(value, "__module__", None)).partition(".")[0]
    return hasattr(value, "__name__") and package not in _JAX


def _parameters(running: RunningCall | None) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a primitive, or the static arguments of a function of JAX's."""
    fun: Any = None if running is None else running.fun
    code: Any = getattr(fun, "__code__", None)
    if hasattr(fun, "_apply_primitive") and "params" in code.co_freevars:
        yield from fun.__closure__[code.co_freevars.index("params")].cell_contents.items()
    elif running is not None:
        numbers, names = running.statics
        yield from ((str(at), running.args[at]) for at in numbers if at < len(running.args))
        yield from ((name, running.kwargs.get(name)) for name in names)


def _is_plain(value: Any) -> bool:
    """Return whether a parameter is no function, and no jaxpr of one."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return not (callable(value) and not isinstance(value, type)) and not hasattr(value, "jaxpr")


def _unsized(found: Mapping[str, Any]) -> str:
    """Return the parameter that a function lacks to return one size; empty for most."""
    if found.get("total_repeat_length", 0) is None and hasattr(found.get("repeats"), "dtype"):
        return "total_repeat_length"
    # With `x` and `y`, `where` chooses between two arrays, and finds nothing.
    return "size" if found.get("size", 0) is None and found.get("y") is None else ""


def _is_mask(found: Mapping[str, Any]) -> bool:
    index = found.get("item", found.get("idx"))
    several = index if isinstance(index, tuple) else (index,)
    return any(str(getattr(each, "dtype", "")) == "bool" for each in several)
