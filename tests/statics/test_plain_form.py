"""The quick way to a key's form, and the usual one, come to the same."""

from random import Random
from typing import Any

import pytest

from leafwise._statics.form import Canonicaliser, canonicalise, plain_form

PLAIN: list[Any] = [1, True, 1.5, 0.0, -0.0, float("nan"), "a", b"a", None]


def draw(rng: Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(PLAIN)
    return tuple(draw(rng, depth - 1) for _ in range(rng.randrange(4)))


def usual(value: Any) -> tuple[Any, ...]:
    canon = Canonicaliser()
    canon.push(7)
    canonicalise(canon, value, "p")
    return canon.form


def test_tuples_of_plain_values() -> None:
    """Each token is the same, so that equal values have one key whichever way they took."""
    rng = Random(0)  # noqa: S311  # a fixed seed
    for _ in range(500):
        value = draw(rng, 3)
        assert plain_form(7, (value,)) == usual(value)


@pytest.mark.parametrize("value", [1j, [1], (1, [2]), (1, (2, 1j)), frozenset([1])])
def test_what_is_not_plain(value: Any) -> None:
    """A value in which something else is takes the usual way."""
    assert plain_form(7, (value,)) is None


def test_deep() -> None:
    """So does a tuple that is nested deep: the usual way has an error for it."""
    value: Any = ()
    for _ in range(2000):
        value = (value,)
    assert plain_form(7, (value,)) is None
