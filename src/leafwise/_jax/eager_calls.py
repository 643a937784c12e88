"""What the user called of JAX, where JAX compiles outside any jitted function."""

import operator
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

_JAX: Final = ("jax", "jaxlib")
_TREES: Final = ("jax._src.tree_util", "jax._src.tree")
_WRAPPERS: Final = {"reraise_with_filtered_traceback", "op", "meth", "method", "<lambda>"}


class EagerCall(NamedTuple):
    """A call of JAX in the user's code.

    Attributes:
        place: The instructions from the user's line to here, and those of JAX that are around it:
            equal if the same ran again.
        name: The function of JAX that was called: ``while_loop``.
        functions: The user's functions among its arguments, by parameter.
        parameters: The simple parameters of the primitive that is compiled.
        is_masked: Whether an array is indexed with a boolean mask.
        unsized: The parameter for the size of the result that was not given: ``size``, or empty.
        shapes: The shapes of its arguments.
        operands: The arguments of the program, where no call of a jitted function has them.
    """

    place: tuple[Any, ...]
    name: str
    functions: Mapping[str, Callable[..., Any]]
    parameters: Mapping[str, Any]
    is_masked: bool
    unsized: str
    shapes: tuple[Any, ...]
    operands: tuple[Any, ...] | None = None


def eager_call(
    frame: types.FrameType | None, user: types.FrameType | None, compiled: Any
) -> EagerCall:
    """Return what the user's frame called.

    Args:
        frame: A frame in JAX, or below it.
        user: The frame of the user's code that called.
        compiled: The function that JAX compiles; None if it cannot be seen.
    """
    frames: list[types.FrameType] = []
    while frame is not None:
        frames.append(frame)
        if frame is user:
            break
        frame = frame.f_back
    # Their code once each: under an audit hook Python takes its time for it.
    codes = [(each, each.f_code) for each in frames if _package(each.f_globals) != "leafwise"]
    inside = [(each, code) for each, code in codes if _is_of_jax(each.f_globals)]
    named = [
        each
        for each, code in inside
        if code.co_name not in _WRAPPERS and each.f_globals.get("__name__") not in _TREES
    ]
    called = named[-1] if named else None
    unsized = "" if called is None else _unsized(called.f_locals)
    return EagerCall(
        place=(*((id(code), _step(each, code)) for each, code in codes), *_around(user)),
        name="" if called is None else called.f_code.co_name,
        functions={} if called is None else dict(_functions(called)),
        parameters=_parameters(compiled),
        is_masked=not unsized and any(_is_mask(each.f_locals) for each in named[-3:]),
        unsized=unsized,
        shapes=() if called is None else tuple(_shapes(called)),
        operands=_operands(inside),
    )


def _step(frame: types.FrameType, code: types.CodeType) -> tuple[int, ...]:
    """Return where a frame is: where JAX loops, also at which equation or leaf."""
    if frame.f_globals.get("__name__") == _TREES[0] and code.co_name == "<genexpr>":
        return (_leaf_at(frame),)
    if "eqn" not in code.co_varnames or not _is_of_jax(frame.f_globals):
        return (frame.f_lasti,)
    found = frame.f_locals
    equations = enumerate(getattr(found.get("jaxpr"), "eqns", ()))
    at = (place for place, each in equations if each is found.get("eqn"))
    return frame.f_lasti, next(at, -1)


def _around(frame: types.FrameType | None) -> Iterator[tuple[Any, ...]]:
    """Yield the instructions of JAX that led to a frame of the user's, outwards."""
    while frame is not None:
        frame = frame.f_back
        if frame is not None and _is_of_jax(frame.f_globals):
            yield id(frame.f_code), _step(frame, frame.f_code)


def _leaf_at(frame: types.FrameType) -> int:
    """Return at which leaf the loop of `jax.tree.map` is; -1 where this is not one."""
    leaves = frame.f_locals.get("xs")
    around = {} if leaves is None or frame.f_back is None else frame.f_back.f_locals
    rows = around.get("all_leaves", around.get("all_keypath_leaves", ()))
    found = enumerate(zip(*rows, strict=False))
    return next((at for at, each in found if all(map(operator.is_, each, leaves or ()))), -1)


def _package(names: Mapping[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def _is_of_jax(names: Mapping[str, Any]) -> bool:
    """Return whether a module is of JAX, by its global names."""
    return _package(names) in _JAX


def _operands(
    inside: list[tuple[types.FrameType, types.CodeType]],
) -> tuple[Any, ...] | None:
    """Return the arguments where JAX runs a program that it traced elsewhere: in a gradient."""
    for frame, code in inside:
        if code.co_name == "_pjit_call_impl_python":
            found: tuple[Any, ...] | None = frame.f_locals.get("args")
            return found
    return None


def _functions(frame: types.FrameType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the user's functions among the arguments of a frame of JAX."""
    if frame.f_globals.get("__name__") == "jax._src.api":
        return  # `grad` and its kind run a function step by step: it is no part of a program
    for name, each in _arguments(frame):
        fun = _unwrapped(each)
        if callable(fun) and not isinstance(fun, type) and _is_users(fun):
            yield name, fun


def _shapes(frame: types.FrameType) -> Iterator[Any]:
    return (each.shape for _, each in _arguments(frame) if hasattr(each, "shape"))


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


def _parameters(compiled: Any) -> dict[str, Any]:
    """Return the parameters of a primitive that are simple values."""
    code: Any = getattr(compiled, "__code__", None)
    if not hasattr(compiled, "_apply_primitive") or "params" not in code.co_freevars:
        return {}
    cell = compiled.__closure__[code.co_freevars.index("params")]
    return {name: each for name, each in cell.cell_contents.items() if _is_simple(each)}


def _is_simple(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_simple, value))
    return value is None or type(value) in {float, str} or hasattr(value, "__index__")


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
