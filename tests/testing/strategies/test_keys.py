"""Keys of mappings: JAX can sort those of each dict that is drawn."""

import collections
import enum
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import pytest

from .seeking import drawn
from .test_annotations import of


class Unordered(enum.Enum):
    """Its members cannot be sorted."""

    A = 1
    B = "b"


K = TypeVar("K", bound=Hashable)


class Keyed(NamedTuple, Generic[K]):
    inner: Mapping[K, float]


def keys_of(value: Any) -> list[list[Any]]:
    """Return the keys of each mapping in a value."""
    if isinstance(value, Mapping):
        return [list(value), *(keys for each in value.values() for keys in keys_of(each))]
    is_several = isinstance(value, list | tuple)
    return [keys for each in value for keys in keys_of(each)] if is_several else []


@pytest.mark.parametrize(
    "annotation",
    [
        dict[Any, float],
        collections.defaultdict[object, float],
        Keyed,
        Sequence[tuple[Mapping[Any, float], ...]],
    ],
    ids=str,
)
def test_keys_that_may_be_anything(annotation: Any) -> None:
    """They are strings."""
    values = drawn(of(annotation))
    found = [keys for value in values for keys in keys_of(value)]
    assert {type(key) for keys in found for key in keys} == {str}
    assert any(len(keys) == 2 for keys in found)
    jax.tree.leaves(values)


@pytest.mark.parametrize(
    "annotation",
    [
        dict[Unordered, float],
        dict[int | str, float],
        list[dict[Unordered | str, dict[complex, float]]],
    ],
    ids=str,
)
def test_keys_that_cannot_be_sorted(annotation: Any) -> None:
    """JAX flattens each dict that is drawn, and not only empty ones."""
    values = drawn(of(annotation))
    assert any(map(jax.tree.leaves, values))
