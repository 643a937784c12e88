"""`update` and `replace`: copies of a tree, or of an instance, with other values in some places."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from leafwise._classes import instance
from leafwise._classes.instance import check_names
from leafwise._classes.spec import is_decorated
from leafwise._objects.attributes import has_generated_init
from leafwise._objects.classes import is_a
from leafwise._objects.text import got
from leafwise._trees.exchange import copy_with_parts, parts_of
from leafwise._trees.paths import Request, Steps, group_by_part, name_in, requests_of, whole_request
from leafwise.errors import LeafwiseError

T = TypeVar("T")
Path = TypeVar("Path", bound=str | tuple[Any, ...])


def update(tree: T, changes: Mapping[Path, Any]) -> T:
    """Return a copy of a tree with other values at some places, static ones included.

    Takes any tree, and leads into static values too: ``"config.depth"`` where ``config`` is a
    static field that holds a frozen dataclass, a tuple, a `FrozenMapping` or a partial.

    Every object on the way is rebuilt, from the inside out, with all changes at once, and
    validated as `replace` does: a generated constructor runs, with converters, checks, and
    the validation of statics. One written by hand does not run, and neither does one that
    does not take the fields that change (``init=False``): the fields are set, the changed
    ones converted and checked. For an equinox module ``__check_init__`` runs then, too. All
    other objects stay the same objects.

    Args:
        tree: Any tree; it stays as it is.
        changes: The new values by path: ``"encoder.act"``, ``"layers[0].w"``,
            ``"params['a b']"``, as leafwise prints them, or key paths of JAX.

    Returns:
        The copy.

    Raises:
        PathError: A path leads nowhere; the message has the nearest one.
        TreeError: Two changes meet: one is at, or in, the place of the other.
        TypeError: `changes` is not a mapping from paths, or an object cannot be copied.
        Exception: What constructors, converters and checks raise, with a note that says
            where.

    Examples:
        >>> @pytree
        ... class Layer:
        ...     w: float
        >>> update({"layer": Layer(1.0)}, {"['layer'].w": 2.0})
        {'layer': Layer(w=2.0)}
    """
    requests = requests_of(changes, "lw.update")
    updated: T = _updated(tree, requests, (), tree) if requests else tree
    return updated


def _updated(value: Any, requests: Sequence[Request], path: Steps, tree: Any) -> Any:
    whole = whole_request(requests, len(path))
    if whole is not None:
        return whole.value
    parts = parts_of(value)
    places = group_by_part(
        requests, path, value, parts and parts.steps, tree=tree, paths=_paths(tree)
    )
    if parts is None:  # then there is no request either: one that leads on would have raised
        return value
    changes: dict[str, Any] = {}
    for place, inside in places.items():
        step = parts.steps[place]
        changes[step] = _updated(parts.values[place], inside, (*path, step), tree)
    try:
        return copy_with_parts(value, parts, changes)
    except Exception as error:
        error.add_note(f"in lw.update, where {name_in(tree, path)} is rebuilt")
        raise


def _paths(tree: Any) -> Iterator[Steps]:
    """Yield the paths to all that can be changed, outer ones first."""
    level: list[tuple[Steps, Any]] = [((), tree)]
    while level:
        below: list[tuple[Steps, Any]] = []
        for path, value in level:
            yield path
            parts = parts_of(value)
            if parts is not None:
                steps = [(*path, step) for step in parts.steps]
                below += zip(steps, parts.values, strict=True)
        level = below


def replace(obj: T, /, **changes: Any) -> T:
    """Return a copy of an instance with some fields changed.

    The constructor runs, as in `dataclasses.replace`: converters, checks and the
    validation of statics included. A constructor that was written by hand may take other
    arguments than fields, so it does not run: the fields are set, the changed ones converted
    and checked, and the statics validated. The same holds for every equinox module, whose
    ``__check_init__`` runs then. `leafwise.update` does this at any depth.

    Args:
        obj: An instance of a pytree class (or of any dataclass).
        **changes: New values by field name. A type checker does not see a wrong name:
            it is an error when this runs.

    Returns:
        An instance of the same class.

    Raises:
        TypeError: A name is not a field, or `obj` is a class.
        ValueError: A field has ``init=False``, so the generated constructor does not
            take it.

    Examples:
        >>> @pytree
        ... class Params:
        ...     lr: float
        >>> replace(Params(0.1), lr=0.2)
        Params(lr=0.2)
    """
    if is_a(obj, type):
        raise TypeError(f"replace() changes an instance, got the class {obj.__qualname__}")
    cls = type(obj)
    if not dataclasses.is_dataclass(cls):
        raise TypeError(
            f"replace() changes an instance of a pytree class or dataclass, got {got(obj)}"
        )
    changed: T
    if is_decorated(cls):
        try:
            changed = instance.replace(obj, **changes)
        except LeafwiseError as error:
            __tracebackhide__ = True
            raise error.without_own_frames()  # noqa: B904  # the same error
        return changed
    check_names(obj, changes)
    # Whether calling the class with its fields runs nothing but the constructor.
    if type(cls).__call__ is type.__call__ and has_generated_init(cls):
        changed = dataclasses.replace(cast("Any", obj), **changes)
        return changed
    parts = parts_of(obj)
    steps = {f".{name}": value for name, value in changes.items()}
    changed = obj if parts is None else copy_with_parts(obj, parts, steps)
    return changed
