"""How static values compare: by ``!=`` as in JAX, and by their canonical forms."""

from typing import Any

from leafwise._classes.options import By
from leafwise._classes.spec import REDEFINED
from leafwise._objects.frozen import freeze
from leafwise._statics.form import Canonicaliser, canonicalise


def jax_equal(one: Any, other: Any) -> bool | None:
    """Return whether two values are equal to JAX, which uses ``!=``; None if that raises."""
    try:
        return one is other or not bool(one != other)
    except Exception:  # noqa: BLE001  # the value's own code
        return None


def same_entry(one: Any, other: Any) -> bool | None:
    """Return whether two values find one entry of a hash table: equal, and with one hash.

    Returns:
        None if hashing or comparing them raises. With different hashes nothing is compared.
    """
    try:
        return hash(one) == hash(other) and jax_equal(one, other)
    except Exception:  # noqa: BLE001  # the value's own code
        return None


def is_distinct(one: Any, other: Any, by: By = "identity") -> bool | None:
    """Return whether two values differ in type or value, all the way down.

    Args:
        one: A value.
        other: Another.
        by: How functions are compared.

    Returns:
        None if that cannot be known: there is a value of which no key can be made.
    """
    if one is other:
        return False
    mine, its = _form(one, by), _form(other, by)
    if mine is None or its is None:  # a list, say, which an immutable equal stands for
        mine, its = _form(one, by, frozen=True), _form(other, by, frozen=True)
    return None if mine is None or its is None else mine != its


def _form(value: Any, by: By, *, frozen: bool = False) -> tuple[Any, ...] | None:
    reading = Canonicaliser()
    try:
        value = freeze(value) if frozen else value
        if by == "content":
            from leafwise._statics.content import read_by_content  # noqa: PLC0415  # few ask for it

            read_by_content(reading, value, "value")
        else:
            canonicalise(reading, value, "value")
        reading.raise_findings()
    except Exception:  # noqa: BLE001  # the value's own code runs
        return None
    return reading.form


def is_redefinition(one: type, other: type) -> bool:
    """Return whether two classes are definitions of one name."""
    return one is not other and _name(one) == _name(other)


def _name(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__.removesuffix(f" ({REDEFINED})")
