"""A static value that changed in place is noticed when the next instance is built from it."""

import dataclasses
import functools
from typing import Any

import jax
import pytest

import leafwise as lw

from .judge import P, Value


class HashOnly:
    v = 1

    def __hash__(self) -> int:
        return hash(self.v)


@dataclasses.dataclass(frozen=True)
class Frozen:
    v: Any


MADE: dict[str, Any] = {
    "value": Value,
    "hash only": lambda v: HashOnly(),
    "frozen dataclass": Frozen,
}


@pytest.mark.parametrize("nested", ["", "tuple", "partial", "dataclass", "method"])
@pytest.mark.parametrize("name", MADE)
def test_building_from_a_changed_object(name: str, nested: str) -> None:
    """As long as a key of the old content lives, the next construction raises at once."""
    value = MADE[name](1)
    place = {
        "": lambda v: v,
        "tuple": lambda v: (v,),
        "partial": lambda v: functools.partial(print, v),
        "dataclass": Frozen,
        "method": lambda v: Frozen(v).__repr__,
    }[nested]
    first = P(1.0, place(value))
    object.__setattr__(value, "v", 2)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.s.*changed in place") as error:
        P(2.0, place(value))
    assert isinstance(error.value, RuntimeError)
    assert "build a new value instead" in str(error.value)
    assert first.x == 1.0


def test_partial_whose_keywords_changed() -> None:
    """A partial is read by its parts, and they can be changed."""
    part = functools.partial(print, sep="a")
    first = P(1.0, part)
    part.keywords["sep"] = "b"
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.s"):
        P(1.0, part)
    assert first.s is part


def test_changed_and_changed_back() -> None:
    """An object that is again what it was is accepted."""
    value = Value(1)
    first = P(1.0, value)
    value.v = 2
    with pytest.raises(lw.errors.StaticMutatedError):
        P(1.0, value)
    value.v = 1
    assert jax.tree.structure(P(2.0, value)) == jax.tree.structure(first)


def test_changed_after_its_instances_are_gone() -> None:
    """Where no key of the old content lives, the new content is simply another key."""
    value = Value(1)
    P(1.0, value)
    value.v = 2
    assert P(1.0, value).s.v == 2


def test_a_change_that_keeps_the_hash() -> None:
    """``hash(-1)`` is ``hash(-2)``: the changed value is another key, as a new one is."""
    value = Frozen(-1)
    before = jax.tree.structure(P(1.0, value))
    object.__setattr__(value, "v", -2)
    assert jax.tree.structure(P(1.0, value)) != before
    assert jax.tree.structure(P(1.0, value)) == jax.tree.structure(P(1.0, Frozen(-2)))


def test_registered_classes_notice_too() -> None:
    """A class under `lw.register` raises at the flatten."""

    class R:
        def __init__(self, a: Any) -> None:
            self.x, self.a = 1.0, a

    lw.register(R, dynamic=["x"], static=["a"])
    value = Value(1)
    structure = jax.tree.structure(R(value))
    value.v = 2
    with pytest.raises(lw.errors.StaticMutatedError, match=r"R\.a"):
        jax.tree.leaves(R(value))
    assert structure == structure  # noqa: PLR0124  # it keeps the key alive
