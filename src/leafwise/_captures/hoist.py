"""`hoist`: the arrays that a function captures, as an argument of it."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import jax

from leafwise._captures.bindings import Binding, bindings_of
from leafwise._captures.hoist_kinds import Path
from leafwise._captures.hoist_walk import NOT_FOLLOWED, HoistWalk
from leafwise._captures.places import BoundIn, CapturedPlace
from leafwise._captures.rebuild import (
    Fixed,
    JittedPart,
    Making,
    Part,
    Slot,
    held_back,
    parts_below,
    prune,
    slots_below,
)
from leafwise._captures.waiting_methods import names_in
from leafwise._objects.attributes import in_class, is_installed
from leafwise._objects.classes import is_a
from leafwise._objects.text import got
from leafwise._statics.findings import is_tracer
from leafwise._trees.nodes import FlatTree
from leafwise._trees.where import mask
from leafwise.errors import HoistError, TreeError

P = ParamSpec("P")
R = TypeVar("R")


def hoist(
    fn: Callable[P, R], where: Any = None, *, scalars: bool = False
) -> tuple[Callable[Concatenate[dict[str, Any], P], R], dict[str, Any]]:
    """Turn the arrays that a function captures into an argument of it.

    What a function reads from globals, closures, defaults, arguments of a partial, or attributes
    of the object that it is bound to, JAX bakes into the program. Here it becomes a tree of
    arguments: it can be changed without a retrace, differentiated, mapped over and donated. The
    function is rebuilt for each call, with other cells and globals, through the functions
    that it calls; nothing of the user's own is changed. Jit the result: outside `jax.jit`
    each call rebuilds it.

    Args:
        fn: The function: also a partial, a bound method, a callable object, or what `jax.jit`,
            `jax.vmap`, `jax.grad`, `jax.custom_vjp` or a decorator returns. It must not depend on
            changing what it captures.
        where: Which captures: a name, or a selection made by `leafwise.where`, or anything that
            it takes, of the tree of all captures. The others stay baked in. None: all.
        scalars: Whether floats and complex numbers are captures, too: each becomes a weakly typed
            argument. Integers and bools stay, as Python code branches on them.

    Returns:
        The function ``fn2``, so that ``fn2(captured, *args)`` is ``fn(*args)``; and `captured`: a
        dict of arrays, and of trees with arrays, by the names that the code has for them. An
        array that is captured in several places is there once.

    Raises:
        HoistError: A chosen capture is where no other value can be put: in a static field, on a
            class, in a variable that the function assigns.
        PathError: `where` leads nowhere among the captures.
        TypeError: `fn` cannot be called. When ``fn2`` is called: its first argument is not a dict.
        TreeError: When ``fn2`` is called: its first argument has another structure than `captured`.

    Examples:
        >>> import jax.numpy as jnp
        >>> rate = jnp.float32(0.5)
        >>> step, captured = hoist(lambda x: rate * x)
        >>> step({"rate": 2 * captured["rate"]}, 3.0)
        Array(3., dtype=float32)
    """
    if not callable(fn):
        msg = f"hoist takes a function, got {got(fn)}\n  fix: fn2, captured = lw.hoist(fn)"
        raise TypeError(msg)
    bindings = list(_read_by(fn, set()))
    walk = HoistWalk(scalars=scalars)
    root = walk.root(fn, [each.read() for each in bindings if each.is_written])
    read = HoistWalk(scalars=scalars)
    fixed = [
        pair for each in bindings if not each.is_written for pair in _fixed_at(each, walk, read)
    ]
    refused = {id(slot.value) for _, slot in held_back(root)}
    for slot, holder in sorted(fixed, key=lambda pair: pair[1].reason == NOT_FOLLOWED):
        if id(slot.value) not in refused:
            holder.inside["value"] = walk.adopt(slot)
            root.inside["fixed", len(refused)] = holder
            refused.add(id(slot.value))
    chosen = _chosen(_read_captures(walk, read), where)
    for index, slot in enumerate(jax.tree.leaves(chosen)):
        slot.index = index
    captured: dict[str, Any] = jax.tree.map(_value_of, chosen)
    prune(root)
    _refuse(root, captured)
    for part in parts_below(root):
        if isinstance(part, JittedPart):
            part.finish()
    return _hoisted(fn, root, captured), captured


def _fixed_at(binding: Binding, walk: HoistWalk, read: HoistWalk) -> Iterator[tuple[Slot, Fixed]]:
    """Yield what is read where no other value can be put: it would stay a constant silently.

    The same array may also be captured where another value can be put.

    Args:
        binding: What is read.
        walk: The walk over all that the function leads to.
        read: The walk over what its code is known to read.
    """
    value = binding.read()
    if is_a(value, types.MethodType) or binding.place.is_member:  # it has bindings itself
        return
    slots = slots_below(read.visit(value, Path(binding.name, "")))
    reason = (walk.obstacle(binding.place) or _kept_by(binding, walk)) if slots else ""
    for slot in slots:
        if reason or not walk.has(slot.value):
            yield slot, Fixed(slot.value, reason or NOT_FOLLOWED)


def _read_by(fn: Callable[..., Any], done: set[tuple[int, int]]) -> Iterator[Binding]:
    """Yield what a function reads; not what cached properties hold, but what these read.

    A copy of an object computes them again.
    """
    for each in bindings_of(fn):
        stored = _stored_by(each.place)
        if stored is None:
            yield each
        elif (key := (id(stored.__self__), id(stored.__func__))) not in done:
            done.add(key)
            yield from _read_by(stored, done)


def _stored_by(place: CapturedPlace) -> types.MethodType | None:
    for holder, step, _ in place.way():
        member = in_class(type(holder), step) if isinstance(step, str) else None
        if is_a(member, functools.cached_property):
            return types.MethodType(member.func, holder)
    return None


def _kept_by(binding: Binding, walk: HoistWalk) -> str:
    """Return why a function that reads a variable stays as it is; nothing if none does."""
    for function in binding.readers:
        if _has_variable(function, binding.place) and not walk.has(function):
            name = function.__qualname__.rpartition("<locals>.")[2]
            return f"{name} reads it, and {'a class' if '.' in name else 'it'} stays as it is"
    return ""


def _has_variable(function: Any, place: CapturedPlace) -> bool:
    """Return whether a function has the variable of a place, and is not given what is there."""
    if not is_a(function, types.FunctionType) or is_installed(function):
        return False
    if place.holder is BoundIn.GLOBAL:
        names = names_in(function.__code__)
        return place.owner is function.__globals__ and place.variable in names
    cells = [("cell", id(cell)) for cell in function.__closure__ or ()]
    return place.key in cells or (place.holder is BoundIn.DEFAULT and place.owner is function)


def _read_captures(walk: HoistWalk, read: HoistWalk) -> dict[str, Any]:
    """Return the captures without attributes that no code reads.

    Args:
        walk: The walk over all that the function leads to.
        read: The walk over what its code is known to read.
    """
    if walk.sees_all:
        return walk.captures
    is_read = {id(slot.value) for slot in read.slots}
    unread = {slot for slot in walk.of_objects if slot and id(slot.value) not in is_read}

    def if_read(slot: Slot) -> Slot | None:
        return None if slot in unread else slot

    return _without_empty(jax.tree.map(if_read, walk.captures))


def _without_empty(captures: dict[str, Any]) -> dict[str, Any]:
    return {name: tree for name, tree in captures.items() if jax.tree.leaves(tree)}


def _value_of(slot: Slot) -> Any:
    return slot.value


def _chosen(captures: dict[str, Any], where: Any) -> dict[str, Any]:
    """Return the tree of the slots that `where` selects, with None for the others."""
    if where is None:
        return captures
    if isinstance(where, str):
        where = _as_path(where, captures)
    flags = mask(jax.tree.map(_value_of, captures), where)
    return _without_empty(jax.tree.map(_slot_if, captures, flags))


def _slot_if(slot: Slot, flag: bool) -> Slot | None:  # noqa: FBT001  # two leaves of two trees
    return slot if flag else None


def _as_path(where: str, captures: dict[str, Any]) -> str:
    """Return a name of a capture as the path that it is in the tree of all."""
    named = [
        name for name in captures if where == name or where.startswith((f"{name}.", f"{name}["))
    ]
    name = max(named, key=len, default="")
    return f"[{name!r}]{where[len(name) :]}" if name else where


def _refuse(root: Part, captured: dict[str, Any]) -> None:
    """Refuse captures that are where no other value can be put."""
    if not (held := list(held_back(root))):
        return
    places = [
        (name, steps) for name in sorted(captured) for steps in FlatTree(captured[name]).paths
    ]
    wrong: dict[str, str] = {}
    lines: dict[str, None] = {}
    for fixed, slot in held:
        name, steps = places[cast("int", slot.index)]
        text = "".join(steps)
        wrong[name + text] = f"[{name!r}]{text}"
        lines[f"{name}{text}: cannot be made an argument: {fixed.reason}"] = None
    left = " | ".join(f"lw.where({path!r})" for path in wrong.values())
    left = f"({left})" if len(wrong) > 1 else left
    fix = (
        f"  fix: pass it as an argument of the function yourself; or leave it baked in: "
        f"`lw.hoist(fn, ~{left})`"
    )
    raise HoistError("\n".join([*lines, fix]))


def _hoisted(fn: Any, root: Part, captured: dict[str, Any]) -> Any:
    structure: Any = jax.tree.structure(captured)

    def hoisted(captured: dict[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        leaves, given = jax.tree.flatten(captured)
        if given != structure:
            raise _other_structure(captured, structure)
        if not leaves:
            return fn(*args, **kwargs)
        try:
            return Making(dict(enumerate(leaves))).call(root, args, kwargs)
        except _NEEDS_VALUE as error:
            _add_hint(error, captured)
            raise

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if isinstance(found := getattr(fn, name, None), str):
            setattr(hoisted, name, found)
    hoisted.__dict__["__signature__"] = _signature(fn)
    return hoisted


_NEEDS_VALUE: Final = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def _add_hint(error: Exception, captured: dict[str, Any]) -> None:
    """Say what is an argument now, in an error about a value that is not known."""
    traced = [name for name, tree in captured.items() if any(map(is_tracer, jax.tree.leaves(tree)))]
    if traced and not any(note.startswith(_HINT) for note in getattr(error, "__notes__", ())):
        path = f"[{traced[0]!r}]"
        error.add_note(
            f"{_HINT}: {', '.join(traced)}. What Python reads the value of must stay baked in\n"
            f"  fix: leave it out, as `lw.hoist(fn, ~lw.where({path!r}))` does; part of an array "
            f"of JAX, as `w[0]`, is traced all the same: take it outside the function"
        )


_HINT: Final = "leafwise: in a function of lw.hoist, whose captures are traced arguments now"


def _other_structure(given: Any, structure: Any) -> Exception:
    """Return the error for a first argument that is not a tree of the captures."""
    if not isinstance(given, dict):
        names = ", ".join(structure.unflatten(range(structure.num_leaves))) or "nothing"
        return TypeError(
            f"a hoisted function takes its captures first, a dict of {names}: got {got(given)}\n"
            f"  fix: fn2(captured, *args)"
        )
    return TreeError(
        f"captured has another structure: {structure} is wanted, got {jax.tree.structure(given)}\n"
        f"  fix: change the leaves of what lw.hoist returned: `jax.tree.map(..., captured)`"
    )


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
