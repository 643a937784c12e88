"""Changes of one thing in an instance, of every kind that JAX could see."""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import hypothesis
import jax
from hypothesis import strategies as st

from leafwise._objects.class_map import ClassMap
from leafwise._objects.text import got
from leafwise._trees.equality import is_distinct
from leafwise.testing._format import format_change, format_leaf, format_static, short_repr
from leafwise.testing.strategies import _changes
from leafwise.testing.strategies._constructor import parameters_of
from leafwise.testing.strategies._edit_positions import EditPosition, Role, edit_positions, is_below
from leafwise.testing.strategies._leaves import (
    other_dtype,
    other_shape,
    other_value,
    other_weak_type,
)

T = TypeVar("T")


class EditKind(StrEnum):
    """What an edit changes."""

    LEAF_VALUE = "leaf value"
    """The elements of a leaf: nothing that a program is made for."""
    STATIC_VALUE = "static value"
    """A static, or a part of one: another value."""
    STATIC_TYPE = "static type"
    """A static, or a part of one: an equal value of another type."""
    SHAPE = "shape"
    """The shape of a leaf."""
    DTYPE = "dtype"
    """The dtype of a leaf."""
    WEAK_TYPE = "weak type"
    """Whether the dtype of a leaf gives way to others."""
    ARRAY_KIND = "kind of array"
    """Where the data of a leaf lies: in JAX, in NumPy, in Python. Its aval is the same."""
    CONTAINER = "container"
    """The structure: a list becomes a tuple, an element comes or goes, a leaf becomes None."""


@dataclasses.dataclass(frozen=True)
class Edit(Generic[T]):
    """One change of one thing in an instance.

    Attributes:
        path: Where: ``layers[0].w``; empty for the whole.
        kind: What is changed.
        before: What was there.
        after: What is there now.
        edited: The changed instance; the original is as it was.
        given: What the class was given; a converter may store something else.
    """

    path: str
    kind: EditKind
    before: Any
    after: Any
    edited: T
    given: Any = None

    def __str__(self) -> str:
        """Return one line: path, kind, and the change."""
        return f"{self.path or 'the whole'}: {self.kind}: {self.change}"

    @property
    def change(self) -> str:
        """The change as text: ``2 -> 3``."""
        if self.kind is EditKind.STATIC_TYPE:
            kind = type(self.given)
            text = f"{format_static(self.before)} -> {short_repr(self.given)} ({kind.__name__})"
            same = type(self.after) is kind
            return text if same else f"{text}, converted to {format_static(self.after)}"
        if self.kind is EditKind.STATIC_VALUE:
            return format_change(_typed(self.before, self.after), _typed(self.after, self.before))
        if self.kind is EditKind.CONTAINER:
            return format_change(format_leaf(self.before), format_leaf(self.after))
        before, after = format_leaf(self.before), format_leaf(self.after)
        if self.kind is EditKind.ARRAY_KIND:
            kinds = type(self.before).__name__, type(self.after).__name__
            return format_change(f"{before} ({kinds[0]})", f"{after} ({kinds[1]})")
        return f"{before}, other elements" if before == after else f"{before} -> {after}"


def _typed(value: Any, other: Any) -> str:
    text = format_static(value)
    return f"{text} ({type(value).__name__})" if text == format_static(other) else text


_Change = Callable[[Any], "st.SearchStrategy[Any] | None"]
_CHANGES: Final[dict[EditKind, tuple[Role, _Change]]] = {
    EditKind.LEAF_VALUE: (Role.LEAF, _changes.leaf_values),
    EditKind.STATIC_VALUE: (Role.STATIC, _changes.static_values),
    EditKind.STATIC_TYPE: (Role.STATIC, _changes.static_types),
    EditKind.SHAPE: (Role.LEAF, _changes.leaf_shapes),
    EditKind.DTYPE: (Role.LEAF, _changes.leaf_dtypes),
    EditKind.WEAK_TYPE: (Role.LEAF, _changes.leaf_weak_types),
    EditKind.ARRAY_KIND: (Role.LEAF, _changes.leaf_kinds),
    EditKind.CONTAINER: (Role.CONTAINER, _changes.other_containers),
}

LEAF_EDITS: Final[dict[EditKind, Callable[[Any], Any]]] = {
    EditKind.LEAF_VALUE: other_value,
    EditKind.SHAPE: other_shape,
    EditKind.DTYPE: other_dtype,
    EditKind.WEAK_TYPE: other_weak_type,
}
"""The simplest other leaf of each kind, or None: what the strategies draw first."""

Options = dict[EditKind, list[tuple[EditPosition, "st.SearchStrategy[Any]"]]]
"""By kind of edit, the positions where one can be made, and a strategy for what is put there."""


def options_of(
    positions: Iterable[EditPosition], kinds: Iterable[EditKind] = tuple(EditKind)
) -> Options:
    """Return the edits that can be made at some positions."""
    positions = list(positions)
    found: Options = {}
    for kind in kinds:
        role, change = _CHANGES[kind]
        for position in positions:
            fits = position.role is role or (role is Role.CONTAINER and position.role is Role.LEAF)
            strategy = change(position.value) if fits else None
            if kind is EditKind.STATIC_VALUE and strategy is not None:
                strategy = _as_annotated(position, strategy)
            if strategy is not None:
                found.setdefault(kind, []).append((position, strategy))
    return found


def _as_annotated(
    position: EditPosition, strategy: "st.SearchStrategy[Any]"
) -> "st.SearchStrategy[Any] | None":
    """Return a strategy for what an annotation lists, if it lists values; else the one given."""
    choices = _choices(position.holder, position.name) if position.holder is not None else ()
    if not choices:
        return strategy
    others = [choice for choice in choices if is_distinct(choice, position.value)]
    return st.sampled_from(others) if others else None


def _choices(holder: type, name: str) -> tuple[Any, ...]:
    """Return the values that ``Literal[...]`` allows for a parameter of a constructor."""
    known = _LITERALS.get(holder)
    if known is None:
        try:
            known = {each.name: _literals(each.kind) for each in parameters_of(holder)}
        except Exception:  # noqa: BLE001  # an annotation of the user's that cannot be resolved
            return ()
        _LITERALS[holder] = known
    return known.get(name, ())


_LITERALS: Final[ClassMap[dict[str, tuple[Any, ...]]]] = ClassMap()
"""The values that are listed for the parameters of each class: all are read at once."""


def _literals(kind: Any) -> tuple[Any, ...]:
    while typing.get_origin(kind) in (typing.Annotated, typing.Final):
        kind = typing.get_args(kind)[0]
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def edits(
    instance: T,
    *,
    kinds: Iterable[EditKind | str] | EditKind | str | None = None,
    at: str | Iterable[str] | None = None,
) -> "st.SearchStrategy[Edit[T]]":
    """Return a strategy for changes of one thing in an instance.

    Args:
        instance: An instance of a pytree class of any library, or any other pytree. It is
            not changed.
        kinds: The kinds of edits; None for all that can be made.
        at: Where: a path such as ``"config.depth"``, or several; what lies below counts.
            None for everywhere.

    Returns:
        A strategy for `Edit`. Simple edits come first: where a test fails, the smallest
        change that makes it fail is shown.

    Raises:
        TypeError: `instance` is a class.
        ValueError: A kind is unknown, nothing is at a path, or there is no such edit.

    Examples:
        >>> @given(st.data())  # doctest: +SKIP
        ... def test(data):
        ...     params = data.draw(instances(Params))
        ...     edit = data.draw(edits(params, kinds=["leaf value"]))
        ...     assert jax.tree.structure(edit.edited) == jax.tree.structure(params)
    """
    if isinstance(instance, type):
        raise TypeError(
            f"edits takes an instance, got the class {instance.__qualname__}\n"
            f"  fix: instances({instance.__name__}).flatmap(edits)"
        )
    named = [kinds] if isinstance(kinds, str) else EditKind if kinds is None else kinds
    chosen = [_kind(kind) for kind in named]
    paths = [at] if isinstance(at, str) else None if at is None else list(at)
    if paths is not None:
        _check_paths(instance, paths)
    positions = [
        position
        for position in edit_positions(instance)
        if paths is None or is_below(position.path, paths)
    ]
    found = options_of(positions, chosen)
    if not found:
        names = " or ".join(chosen) or "(none)"
        where = f" at {' or '.join(paths) or '(nowhere)'}" if paths is not None else ""
        raise ValueError(f"{type(instance).__name__}: there is no edit of the kind {names}{where}")
    return edits_of(found)


def _kind(kind: EditKind | str) -> EditKind:
    try:
        return EditKind(kind)
    except ValueError:
        raise ValueError(
            f"edits(kinds=...): {got(kind)} is not a kind of edit; there are {', '.join(EditKind)}"
        ) from None


def _check_paths(instance: Any, paths: list[str]) -> None:
    known = [position.path for position in edit_positions(instance)]
    for path in paths:
        if not any(is_below(each, [path]) for each in known):
            names = ", ".join(dict.fromkeys(filter(None, known)))
            raise ValueError(f"{type(instance).__name__}: nothing is at {path!r}; there is {names}")


@st.composite
def edits_of(draw: st.DrawFn, found: Options) -> Edit[Any]:
    """Draw one of the edits that can be made."""
    kind = draw(st.sampled_from(list(found)))
    position, strategy = draw(st.sampled_from(found[kind]))
    edit = make_edit(kind, position, draw(strategy))
    if edit is None:
        hypothesis.reject()
    return edit


def make_edit(kind: EditKind, position: EditPosition, new: Any) -> Edit[Any] | None:
    """Return an edit; None if the class rejects the value, or stores the one that it had."""
    try:
        edited = position.put(new)
        leaves, structure = jax.tree_util.tree_flatten(edited)
        jax.tree_util.tree_unflatten(structure, leaves)  # which may call the constructor
    except Exception:  # noqa: BLE001  # the user's own checks
        return None
    stored = new
    if position.role is Role.STATIC and position.name:
        path = position.path
        found = (each.value for each in edit_positions(edited, path) if each.path == path)
        stored = next(found, new)
        if is_distinct(position.value, stored) is False:
            return None
        if kind is EditKind.STATIC_TYPE and type(stored) is not type(new):
            return None  # a converter changed its type
    return Edit(position.path, kind, position.value, stored, edited, new)
