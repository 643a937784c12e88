"""Changes of one thing in an instance, of every kind that JAX could see."""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import hypothesis
import jax
import numpy as np
from hypothesis import strategies as st

from leafwise._classes.annotations import unwrap
from leafwise._objects.text import got
from leafwise._trees.equality import is_distinct
from leafwise.testing._format import (
    format_change,
    format_leaf,
    format_static,
    is_key,
    short_repr,
)
from leafwise.testing.strategies import _changes
from leafwise.testing.strategies._annotations import argument_for, says_nothing
from leafwise.testing.strategies._constructor import FieldContext
from leafwise.testing.strategies._edit_positions import (
    EditPosition,
    Role,
    edit_positions,
    is_below,
    parameter_for,
    parameters,
)
from leafwise.testing.strategies._leaves import (
    is_default_dtype,
    is_numeric,
    other_dtype,
    other_kind,
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
            kind = type(self.after).__name__
            return f"{format_static(self.before)} -> {short_repr(self.after)} ({kind})"
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


LEAF_EDITS: Final[dict[EditKind, Callable[[Any], Any]]] = {
    EditKind.LEAF_VALUE: other_value,
    EditKind.SHAPE: other_shape,
    EditKind.DTYPE: other_dtype,
    EditKind.WEAK_TYPE: other_weak_type,
    EditKind.ARRAY_KIND: other_kind,
}
"""Another leaf of each kind, or None: of what a leaf holds, no program depends on more."""

_OTHER_EDITS: Final[dict[EditKind, Callable[[Any], "st.SearchStrategy[Any] | None"]]] = {
    EditKind.STATIC_VALUE: _changes.static_values,
    EditKind.STATIC_TYPE: _changes.static_types,
    EditKind.CONTAINER: _changes.other_containers,
}

Options = dict[EditKind, list[tuple[EditPosition, "st.SearchStrategy[Any]"]]]
"""By kind of edit, the positions where one can be made, and a strategy for what is put there."""


def options_of(
    positions: Iterable[EditPosition], kinds: Iterable[EditKind] = tuple(EditKind)
) -> Options:
    """Return the edits that can be made at some positions."""
    found: Options = {}
    positions = [position for position in positions if position.make is not None]
    for kind in kinds:
        for position in positions:
            strategy = _others(kind, position)
            if strategy is not None:
                found.setdefault(kind, []).append((position, strategy))
    return found


def _others(kind: EditKind, position: EditPosition) -> "st.SearchStrategy[Any] | None":
    """Return a strategy for what an edit of a kind puts at a position; None if there is none."""
    value, role = position.value, position.role
    if kind in LEAF_EDITS:
        is_leaf = role is Role.LEAF and is_numeric(value) and can_be_other(kind, value)
        # Not made before it is drawn: few are, of many leaves.
        return st.just(value).map(LEAF_EDITS[kind]) if is_leaf else None
    if (kind is EditKind.CONTAINER) is (role is Role.STATIC):
        return None
    if position.holder is not None and kind is EditKind.STATIC_VALUE:
        parameter = parameter_for(parameters(position.holder), position.name)
        annotation = unwrap(parameter.kind) if parameter else None
        if typing.get_origin(annotation) is typing.Literal:
            listed = typing.get_args(annotation)
            others = [choice for choice in listed if is_distinct(choice, value)]
            return st.sampled_from(others) if others else None
    return _OTHER_EDITS[kind](value)


def can_be_other(kind: EditKind, leaf: Any) -> bool:
    """Return whether there is another leaf of a kind, without making one of an array."""
    if kind is EditKind.LEAF_VALUE:
        return bool(np.size(leaf))
    if kind is EditKind.WEAK_TYPE and not is_key(leaf):
        return is_default_dtype(jax.typeof(leaf).dtype) or jax.typeof(leaf).weak_type
    if kind is EditKind.ARRAY_KIND:
        return other_kind(leaf) is not None
    return kind is EditKind.SHAPE or not is_key(leaf)


def by_annotation(position: EditPosition) -> "st.SearchStrategy[Any] | None":
    """Return a strategy for what a static is given, if its annotation says anything."""
    holder, name = position.holder, position.name
    parameter = parameter_for(parameters(holder), name) if holder else None
    if holder is None or parameter is None or says_nothing(parameter.kind):
        return None
    where = FieldContext(f"{holder.__name__}.{name}", parameter.owner, static=True)
    return argument_for(holder, parameter, where)


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
    positions = list(edit_positions(instance))
    if paths is not None:
        known = [position.path for position in positions]
        for path in paths:
            if not any(is_below(each, [path]) for each in known):
                names = ", ".join(dict.fromkeys(filter(None, known)))
                kind = type(instance).__name__
                raise ValueError(f"{kind}: nothing is at {path!r}; there is {names}")
        positions = [each for each in positions if is_below(each.path, paths)]
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
    if position.make is None:
        return None
    try:
        made = position.make(new)
        edited = position.around(made)
        leaves, structure = jax.tree_util.tree_flatten(edited)
        jax.tree_util.tree_unflatten(structure, leaves)  # which may call the constructor
        is_named = position.role is Role.STATIC and position.name
        stored = getattr(made, position.name) if is_named else new
    except (Exception, SystemExit):  # noqa: BLE001  # the user's own checks
        return None
    if is_named and is_distinct(position.value, stored) is False:
        return None
    if kind is EditKind.STATIC_TYPE and type(stored) is not type(new):
        return None  # a converter changed its type
    return Edit(position.path, kind, position.value, stored, edited, new)
