"""Changes of exactly one field of an instance, of every kind that a key distinguishes."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator
from typing import Any

import jax

from leafwise._trees.roles import Names, exchange, field_order, names_of, stored_value
from leafwise.cli.changes import Builder, simplest
from leafwise.errors import CannotBuildError, StaticFieldError
from leafwise.testing._format import (
    format_change,
    format_leaf,
    format_static,
    short_repr,
    without_addresses,
)
from leafwise.testing.strategies._leaves import LEAF_EDITS, is_numeric
from leafwise.testing.strategies._statics import is_distinct, twins


@dataclasses.dataclass(frozen=True)
class FieldEdit:
    """One change of one field.

    Attributes:
        field: The field's name.
        kind: What was changed: ``value``, ``type``, ``shape``, ``dtype``, ``weak type``,
            ``structure``.
        change: The change as text: ``2 -> 3``.
        edited: The changed instance; None if there is no such change.
        static: Whether the field is static.
        must_retrace: What the kind of field promises; None if it promises nothing.
    """

    field: str
    kind: str
    change: str
    edited: Any | None
    static: bool
    must_retrace: bool | None = None


def edits(builder: Builder) -> Iterator[FieldEdit]:
    """Yield all changes of one field each, in field order."""
    for name in field_order(builder.base):
        with while_changing(builder.cls, name):
            yield from edits_of(builder, name, names_of(builder.base))


def edits_of(builder: Builder, name: str, names: Names) -> Iterator[FieldEdit]:
    """Yield all changes of one field.

    A field that is neither a child nor in the aux_data is lost. If the constructor takes it, it
    is changed as a static, which it should have been.
    """
    if name in names.dynamic:
        yield from _dynamic_edits(builder, name)
    elif name in names.static or builder.takes(name):
        yield from _static_edits(builder, name)
    else:
        yield FieldEdit(name, "value", "computed, and in no program", None, static=True)


@contextlib.contextmanager
def while_changing(cls: type, name: str) -> Generator[None, None, None]:
    """Note on an exception from the block which field was being changed."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while {cls.__name__}.{name} was changed")
        raise


def _find_other(builder: Builder, name: str, wanted: Callable[[Any], bool]) -> Any:
    """Return a wanted value that the class stores in a field, other arguments unchanged.

    Raises:
        LookupError: None was found.
        CannotBuildError: No values are known.
    """
    strategy, stored = builder.values_of(name)
    drawn = simplest(strategy, lambda each: any(map(wanted, stored(each))))
    return stored(drawn)[0]


def _static_edits(builder: Builder, name: str) -> Iterator[FieldEdit]:
    value = getattr(builder.base, name)
    other = _other_static(builder, name, value)
    yield other
    for twin in twins(value) if other.kind == "value" else ():
        made = builder.try_build({name: twin}) if builder.takes(name) else None
        if made is None:
            continue
        stored = stored_value(made, name, twin)
        distinct = is_distinct(value, stored)
        text = f"{format_static(value)} -> {short_repr(twin)} ({type(twin).__name__})"
        if type(stored) is not type(twin):
            text += f", converted to {format_static(stored)}"
        edited = exchange(builder.base, name, stored)
        yield FieldEdit(name, "type", text, edited, static=True, must_retrace=distinct)
        return


def _other_static(builder: Builder, name: str, value: Any) -> FieldEdit:
    base: Any = jax.tree_util.tree_structure(builder.base)

    def distinct(stored: Any) -> bool:
        distinct = is_distinct(value, stored)
        if distinct is not None:
            return distinct
        edited: Any = exchange(builder.base, name, stored)
        return bool(base != jax.tree_util.tree_structure(edited))

    kind = "value"
    try:
        try:
            other = _find_other(builder, name, lambda each: distinct(each) and not _eq(value, each))
        except LookupError:  # those that == does not distinguish are of another type
            kind, other = "type", _find_other(builder, name, distinct)
    except (CannotBuildError, StaticFieldError) as error:
        return FieldEdit(
            name, "value", without_addresses(str(error)).splitlines()[0], None, static=True
        )
    except LookupError:
        return FieldEdit(name, "value", "no other value was found", None, static=True)
    text = format_change(format_static(value), format_static(other))
    edited = exchange(builder.base, name, other)
    return FieldEdit(name, kind, text, edited, static=True, must_retrace=True)


def _eq(value: Any, other: Any) -> bool:
    """Return whether two values are equal to ==."""
    try:
        return bool(value == other)
    except Exception:  # noqa: BLE001  # a user's ==; arrays
        return False


def _dynamic_edits(builder: Builder, name: str) -> Iterator[FieldEdit]:
    value = getattr(builder.base, name)
    leaves, structure = jax.tree_util.tree_flatten(value)
    index = next((i for i, leaf in enumerate(leaves) if is_numeric(leaf)), None)
    if index is None:
        yield _structure_edit(builder, name)
        return
    leaf = leaves[index]
    for kind, edit_leaf, must_retrace in LEAF_EDITS:
        changed = edit_leaf(leaf)
        if changed is None:
            if kind == "value":
                text = f"{format_leaf(leaf)} has no elements"
                yield FieldEdit(name, kind, text, None, static=False)
            continue
        new_leaves = [*leaves[:index], changed, *leaves[index + 1 :]]
        edited = exchange(builder.base, name, jax.tree_util.tree_unflatten(structure, new_leaves))
        text = f"{format_leaf(leaf)} -> {format_leaf(changed)}"
        if kind == "value" and format_leaf(leaf) == format_leaf(changed):
            text = f"{format_leaf(leaf)}, other elements"
        yield FieldEdit(name, kind, text, edited, static=False, must_retrace=must_retrace)
    if builder.may_be_none(name):
        yield _structure_edit(builder, name)


def _structure_edit(builder: Builder, name: str) -> FieldEdit:
    """Return a change of a field's structure, such as from None to an array."""
    value = getattr(builder.base, name)
    before: Any = jax.tree_util.tree_structure(value)

    def distinct(stored: Any) -> bool:
        after: Any = jax.tree_util.tree_structure(stored)
        return bool(before != after)

    try:
        other = _find_other(builder, name, distinct)
    except (LookupError, CannotBuildError):
        text = f"{short_repr(value)} has no leaf that could be changed"
        return FieldEdit(name, "structure", text, None, static=False)
    text = format_change(short_repr(value), format_leaf(other))
    edited = exchange(builder.base, name, other)
    return FieldEdit(name, "structure", text, edited, static=False, must_retrace=True)
