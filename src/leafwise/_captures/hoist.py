"""`hoist`: the arrays that a function captures, as an argument of it."""

import inspect
import types
from collections.abc import Callable, Container, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np

from leafwise._captures.bindings import bindings_of, reachable
from leafwise._captures.exchange import Exchange, is_array
from leafwise._jax.context import make_context
from leafwise._objects.attributes import hides, is_tree
from leafwise._objects.classes import is_a, module_of
from leafwise._objects.code import is_installed_module
from leafwise._objects.parts import kind_of
from leafwise._objects.text import got
from leafwise._trees.nodes import FlatTree
from leafwise._trees.where import mask
from leafwise.errors import TreeError

P = ParamSpec("P")
R = TypeVar("R")


def hoist(
    fn: Callable[P, R], where: Any = None
) -> tuple[Callable[Concatenate[dict[str, Any], P], R], dict[str, Any]]:
    """Turn the arrays that a function captures into an argument of it.

    What a function reads from globals, closures, defaults, arguments of a partial, or attributes,
    JAX bakes into the program. Here it becomes a tree of arguments: it can be changed without a
    retrace, differentiated, mapped over and donated. Each call traces the function as it is, as
    `jax.jit` does, and exchanges the constants of the program that are one of the arrays: so jit
    the result.

    Args:
        fn: The function, or anything else that is callable: a partial, a bound method, a callable
            object, what `jax.jit`, `jax.vmap`, `jax.custom_vjp` or a decorator returns.
        where: Which captures: a name, or a selection made by `leafwise.where`, or anything that
            it takes, of the tree of all captures. The others stay baked in. None: all.

    Returns:
        The function ``fn2``, so that ``fn2(captured, *args)`` is ``fn(*args)``; and `captured`: a
        dict of arrays, and of trees with arrays, by the names that `leafwise.captures` has for
        them. An array that is captured in several places is there once. Numbers are not there,
        nor NumPy arrays without dimensions: JAX writes them into the program as it does numbers.

    Raises:
        PathError: `where` leads nowhere among the captures.
        TypeError: `fn` cannot be called. When ``fn2`` is called: its first argument is not a dict.
        TreeError: When ``fn2`` is called: its first argument has another structure than
            `captured`, or an array of another shape or dtype.
        HoistError: When ``fn2`` is called: JAX does not see an array of `captured`, as Python
            reads its value, or as nothing reads it in a call with these arguments.

    Examples:
        >>> import functools
        >>> import jax.numpy as jnp
        >>> half, captured = hoist(functools.partial(jnp.multiply, jnp.float32(0.5)))
        >>> half({"args[0]": 2 * captured["args[0]"]}, 3.0)
        Array(3., dtype=float32)
    """
    if not callable(fn):
        msg = f"hoist takes a function, got {got(fn)}\n  fix: fn2, captured = lw.hoist(fn)"
        raise TypeError(msg)
    captured = _chosen(_captured_by(fn), where)
    make_context()  # not while a hoisted function is traced
    return _hoisted(fn, captured), captured


def _captured_by(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return all arrays that a function captures, and trees with arrays, by name."""
    found: dict[str, Any] = {}
    seen: dict[int, Any] = {}
    for each in bindings_of(reachable(fn), fn):
        if each.place.is_member or each.itself:
            continue
        for name, tree in _arrays_in(each.read(), each.name, seen):
            reader = each.reader.rpartition("<locals>.")[2]
            free = name if name not in found else f"{reader}: {name}"
            found[_unique(free, found)] = tree
    return found


def _unique(name: str, taken: Container[str]) -> str:
    count, found = 1, name
    while found in taken:
        count += 1
        found = f"{name} ({count})"
    return found


def _arrays_in(value: Any, name: str, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value that have not been seen, and trees of such, with names."""
    todo = [(name, value)]
    while todo:
        name, value = todo.pop()
        if id(value) in seen or _is_opaque(value):
            continue
        seen[id(value)] = value
        if _is_capture(value):
            yield name, value
            continue
        try:
            parts = _parts_of(value)
        except Exception:  # noqa: BLE001  # code of the user's, which may raise anything
            parts = []
        fresh = {id(part): part for _, part in parts if id(part) not in seen and _is_capture(part)}
        if fresh and is_tree(value):
            seen.update(fresh)
            leaves = [fresh.pop(id(part), None) for _, part in parts]
            yield name, jax.tree.unflatten(jax.tree.structure(value), leaves)
        todo += [(name + step, part) for step, part in reversed(parts)]


def _parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a tree, and the parts of everything else, with the ways there."""
    if is_tree(value):
        flat = FlatTree(value)
        return [("".join(way), leaf) for way, leaf in zip(flat.paths, flat.leaves, strict=True)]
    return [pair for pair in kind_of(value).parts(value) if not pair[0].startswith(" key ")]


def _is_capture(value: Any) -> bool:
    return is_array(value) and not (is_a(value, np.ndarray) and value.ndim == 0)


def _is_opaque(value: Any) -> bool:
    """Return whether a value is a module or code, what it reads is captured by itself."""
    if hides(value) or is_a(value, types.ModuleType):
        return True
    return callable(value) and is_installed_module(module_of(type(value))) and not is_tree(value)


def _chosen(captures: dict[str, Any], where: Any) -> dict[str, Any]:
    """Return the tree of what `where` selects, with None for everything else."""
    if where is None:
        return captures
    if isinstance(where, str):
        where = _as_path(where, captures)
    chosen: dict[str, Any] = jax.tree.map(_if, captures, mask(captures, where))
    return {name: tree for name, tree in chosen.items() if jax.tree.leaves(tree)}


def _if(leaf: Any, flag: bool) -> Any:  # noqa: FBT001  # two leaves of two trees
    return leaf if flag else None


def _as_path(where: str, captures: dict[str, Any]) -> str:
    """Return a name of a capture as the path that it is in the tree of all."""
    named = [
        name for name in captures if where == name or where.startswith((f"{name}.", f"{name}["))
    ]
    name = max(named, key=len, default="")
    return f"[{name!r}]{where[len(name) :]}" if name else where


def _hoisted(fn: Any, captures: dict[str, Any]) -> Any:
    arrays, structure = jax.tree.flatten(captures)
    paths = [f"[{name!r}]{way}" for name in sorted(captures) for way in _ways_in(captures[name])]

    def hoisted(captured: dict[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        values = _checked(captured, structure, paths, arrays)
        if not values:
            return fn(*args, **kwargs)
        exchange = Exchange(dict(zip(paths, arrays, strict=True)), values)
        return exchange.call(fn, args, kwargs, takes_all=True)

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if isinstance(found := getattr(fn, name, None), str):
            setattr(hoisted, name, found)
    hoisted.__dict__["__signature__"] = _signature(fn)
    return hoisted


def _ways_in(tree: Any) -> list[str]:
    return ["".join(steps) for steps in FlatTree(tree).paths]


def _checked(given: Any, structure: Any, paths: list[str], arrays: list[Any]) -> list[Any]:
    """Return the values of a tree of the captures, which must be like these."""
    if not isinstance(given, dict):
        names = ", ".join(structure.unflatten(range(structure.num_leaves))) or "nothing"
        msg = (
            f"a hoisted function takes its captures first, a dict of {names}: got {got(given)}\n"
            f"  fix: fn2(captured, *args)"
        )
        raise TypeError(msg)
    values, found = jax.tree.flatten(given)
    if found != structure:
        msg = (
            f"captured has another structure: {structure} is wanted, got {found}\n"
            f"  fix: change the leaves of what lw.hoist returned: `jax.tree.map(..., captured)`"
        )
        raise TreeError(msg)
    for path, array, value in zip(paths, arrays, values, strict=True):
        wanted, aval = jax.typeof(array), jax.typeof(value)
        if (wanted.shape, wanted.dtype) != (aval.shape, aval.dtype):
            msg = (
                f"captured{path} is another kind of array: {wanted.str_short()} is wanted, as the "
                f"function is traced with it, got {aval.str_short()}\n"
                f"  fix: keep its shape, and `.astype({str(wanted.dtype)!r})`"
            )
            raise TreeError(msg)
    return values


def _signature(fn: Any) -> inspect.Signature | None:
    """Return the signature of the function with one more parameter."""
    try:
        own = inspect.signature(fn)
    except (TypeError, ValueError):  # of a builtin
        return None
    names = {"captured", *own.parameters}
    first = "captured" if "captured" not in own.parameters else max(names, key=len) + "_"
    kind = inspect.Parameter.POSITIONAL_ONLY
    try:
        return own.replace(parameters=[inspect.Parameter(first, kind), *own.parameters.values()])
    except ValueError:
        return None
