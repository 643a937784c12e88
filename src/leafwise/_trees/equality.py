"""Comparing static values, by ``!=`` as JAX does and by canonical form; where they differ."""

from typing import Any, Literal, NamedTuple, TypeAlias

from leafwise._classes.options import By
from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.frozen import freeze
from leafwise._objects.interrupts import or_default
from leafwise._objects.parts import kind_of
from leafwise._objects.stand_ins import MISSING
from leafwise._statics.account import BY_CONTENT, BY_IDENTITY, OBJECTS, differences
from leafwise._statics.fold import Fold
from leafwise._statics.form import AS_KEY, consists_of_parts

How: TypeAlias = Literal["!=", "entry", "equal", "unequal", "identity", "content"]
"""How JAX compares two statics: aux_data by ``!=``, hashed ones by a hash table "entry", those of
a leafwise key with functions by "identity" or "content"; "equal" or "unequal" if known already."""


class StaticPair(NamedTuple):
    """Two statics at one path, how JAX compares them, and the keys that it compares instead."""

    before: Any
    after: Any
    how: How
    keys: tuple[Any, Any] | None = None


class Verdict(NamedTuple):
    """How two statics compare, and the first parts that differ; ``==`` misses "hidden" ones."""

    word: Literal["equal", "raises", "differ", "unsound", "hidden"]
    step: str
    before: Any
    after: Any


def verdict_of(pair: StaticPair) -> Verdict:
    one, other, how, _ = pair
    equal = _is_equal(pair)
    if equal is None:
        return Verdict("raises", "", one, other)
    if not equal:  # functions that differ only inside are printed alike
        parts = first_difference(one, other, by=how) if how == "content" else ("", one, other)
        return Verdict("differ", *parts)
    if how not in ("identity", "content") and is_distinct(one, other):
        return Verdict("unsound", "", one, other)
    hidden = hidden_difference(one, other)
    return Verdict("equal", "", one, other) if hidden is None else Verdict("hidden", *hidden)


def _is_equal(pair: StaticPair) -> bool | None:
    """Return whether JAX considers two statics equal, or None if comparing them raises."""
    one, other, how, keys = pair
    if MISSING is one or MISSING is other:
        return False
    if how == "!=":
        return jax_equal(one, other)
    if how == "entry":
        return same_entry(one, other)
    if how in ("equal", "unequal") or keys is None:
        return how == "equal"
    by: By = "content" if how == "content" else "identity"
    return keys[0] == keys[1] or is_distinct(one, other, by) is False


@or_default(None)  # the value's own code
def jax_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal to JAX, which uses ``!=``, or None if that raises."""
    return one is other or not bool(one != other)


@or_default(None)  # the value's own code
def same_entry(one: Any, other: Any) -> bool:
    """Return whether two values hit the same hash table entry, or None if that raises."""
    # Tables use `==`; a subclass of float with an `==` of its own has the `!=` of float.
    return hash(one) == hash(other) and (one is other or bool(one == other))


def is_distinct(one: Any, other: Any, by: By = "identity") -> bool | None:
    """Return whether two values differ in type or value, at any depth, or None if unknown."""
    if one is other:
        return False
    mine, its = _form(one, by), _form(other, by)
    if mine is None or its is None:  # a list, say: compare immutable equivalents
        mine, its = _form(one, by, frozen=True), _form(other, by, frozen=True)
    return None if mine is None or its is None else mine != its


@or_default(None)  # a value that cannot be static, or its own code
def _form(value: Any, by: By, *, frozen: bool = False) -> tuple[Any, ...] | None:
    reading = Fold(AS_KEY)
    value = freeze(value) if frozen else value
    if by == "content":
        from leafwise._statics.content import read_by_content  # noqa: PLC0415  # few ask for it

        read_by_content(reading, value, "value")
    else:
        reading.add(value, "value")
    reading.raise_findings()
    return reading.form


def first_difference(
    before: Any, after: Any, path: str = "", by: By = "identity"
) -> tuple[str, Any, Any]:
    """Return the path to the first parts of two values that differ, and the two parts."""
    scope = BY_CONTENT if by == "content" else BY_IDENTITY
    for at, mine, its in differences(before, after, scope):
        return path + at, mine[at], its[at]
    return path, before, after


def hidden_difference(one: Any, other: Any) -> tuple[str, Any, Any] | None:
    """Return the path and the plain parts that differ although the class's ``==`` says equal."""
    for path, mine, its in differences(one, other, OBJECTS):
        parts = mine[path], its[path]
        kinds = {"None" if part is None else kind_of(part).name for part in parts}
        classes = [cls for cls in map(type, mine.values()) if not consists_of_parts(cls)]
        if kinds <= {"plain", "time", "dtype"} and not all(map(compares_by_identity, classes)):
            return path, *parts
    return None
