"""Keys of mappings: JAX can sort those of each dict that is drawn."""

import collections
import enum
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import pytest

from leafwise.testing import strategies as lst
from leafwise.testing.strategies._leaves import has_unsortable_keys

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


class Comparable(Hashable, Protocol):
    """As flax has it."""

    def __lt__(self, other: Any, /) -> bool: ...


C = TypeVar("C", bound=Comparable)


class Store(Mapping[C, Any]):
    """As flax's `nnx.State`, which takes a mapping or its pairs, and sorts the keys itself."""

    def __init__(self, mapping: Mapping[C, Mapping | float] | Iterator[tuple[C, Any]], /) -> None:  # type: ignore[type-arg]
        self.content = dict(mapping)

    def __getitem__(self, key: C) -> Any:
        return self.content[key]

    def __iter__(self) -> Iterator[C]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


jax.tree_util.register_pytree_node(
    Store,
    lambda store: ([store[key] for key in sorted(store)], tuple(sorted(store))),
    lambda keys, values: Store(dict(zip(keys, values, strict=True))),
)


def test_mappings_that_sort_their_keys() -> None:
    """A class that is a mapping has keys of one type, from a dict and from pairs."""
    values = drawn(lst.instances(Store))
    assert any(len(keys) == 2 for value in values for keys in keys_of(value))
    jax.tree.leaves(values)
    assert has_unsortable_keys(Store({1: 1.0, "a": 2.0}))  # by a strategy of the user's
    assert not has_unsortable_keys(Store({1: 1.0}))
