"""`hoist`: the arrays that a function captures, as an argument of it."""

import inspect
import types
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import jax

from leafwise._captures.hoist_kinds import Path
from leafwise._captures.hoist_walk import HoistWalk
from leafwise._captures.rebuild import Fixed, JittedPart, Making, Part, Slot, parts_below, prune
from leafwise._captures.walk import bindings_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got
from leafwise._statics.findings import is_tracer
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
    function is made again for each call, with other cells and globals, through the functions
    that it calls; nothing of the user's own is changed. Jit the result: outside `jax.jit`
    each call makes it again.

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
        TypeError: `fn` cannot be called. When ``fn2`` is called: its first argument is no dict.
        TreeError: When ``fn2`` is called: its first argument has another structure than `captured`.

    Example:
        >>> import jax.numpy as jnp
        >>> rate = jnp.float32(0.5)
        >>> step, captured = hoist(lambda x: rate * x)
        >>> step({"rate": 2 * captured["rate"]}, 3.0)
        Array(3., dtype=float32)
    """
    if not callable(fn):
        msg = f"hoist takes a function, got {got(fn)}\n  fix: fn2, captured = lw.hoist(fn)"
        raise TypeError(msg)
    bindings = bindings_of(fn)
    walk = HoistWalk(scalars=scalars)
    root = walk.root(fn, [each.read() for each in bindings if each.is_written])
    read = HoistWalk(scalars=scalars)
    for each in bindings:
        value = MISSING if each.is_written else each.read()
        if not isinstance(value, types.MethodType):  # what it reads has bindings of its own
            read.visit(value, Path(each.name, ""))
    chosen = _chosen(_read_captures(walk, read, root), where)
    for index, slot in enumerate(jax.tree.leaves(chosen)):
        slot.index = index
    captured: dict[str, Any] = jax.tree.map(_value_of, chosen)
    prune(root)
    _refuse(root)
    for part in parts_below(root):
        if isinstance(part, JittedPart):
            part.finish()
    return _hoisted(fn, root, captured), captured


def _read_captures(walk: HoistWalk, read: HoistWalk, root: Part) -> dict[str, Any]:
    """Return the captures without attributes that no code reads.

    Args:
        walk: The walk over all that the function leads to.
        read: The walk over what its code is known to read.
        root: Gets what is read in a way that was not followed, for a refusal.
    """
    known = {id(slot.value) for slot in walk.slots}
    for missed in [slot for slot in read.slots if id(slot.value) not in known]:
        fixed = Fixed(missed.value, "it is read in a way that could not be followed")
        fixed.inside["value"] = missed
        walk.name(Path(missed.name, "elsewhere"), missed)
        root.inside["missed", missed.name] = fixed
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


def _refuse(root: Part) -> None:
    """Refuse captures that are where no other value can be put."""
    wrong = {
        slot.name: part.reason
        for part in parts_below(root)
        if isinstance(part, Fixed)
        for slot in part.slots()
    }
    if wrong:
        lines = [f"{name}: cannot be made an argument: {why}" for name, why in wrong.items()]
        left = " | ".join(f"lw.where({f'[{name!r}]'!r})" for name in wrong)
        left = f"({left})" if len(wrong) > 1 else left
        lines.append(
            f"  fix: pass it as an argument of the function yourself; or leave it baked in: "
            f"`lw.hoist(fn, ~{left})`"
        )
        raise HoistError("\n".join(lines))


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
    """Return the error for a first argument that is no tree of the captures."""
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
