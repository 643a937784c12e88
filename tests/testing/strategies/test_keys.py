"""Keys of mappings: JAX can sort those of each dict that is drawn."""

import collections
import enum
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import jax
import pytest

from leafwise.testing import strategies as lst

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


def has_two(kind: type) -> Callable[[Any], bool]:
    return lambda value: any(
        len(keys) == 2 and all(type(key) is kind for key in keys) for keys in keys_of(value)
    )


UNSAID: list[Any] = [
    dict[Hashable, float],
    dict[Any, float],
    Mapping[object, float],
    MutableMapping[Any, float],
    collections.OrderedDict[Hashable, float],
    collections.defaultdict[object, float],
    Keyed,
    Keyed[Any],
    dict[int | str, float],
    list[dict[Hashable, float]],
    Sequence[tuple[Mapping[Any, float], ...]],
    dict[str, dict[Hashable, float]],
]


@pytest.mark.parametrize("annotation", UNSAID, ids=str)
def test_keys_that_may_be_anything(annotation: Any) -> None:
    """They are strings, or whole numbers, never both in one mapping."""
    values = drawn(of(annotation))
    for keys in (keys for value in values for keys in keys_of(value)):
        assert {type(key) for key in keys} <= {int} or {type(key) for key in keys} <= {str}
    assert any(map(has_two(int), values))
    assert any(map(has_two(str), values))
    jax.tree.leaves(values)


@pytest.mark.parametrize(
    "annotation",
    [
        dict[Unordered, float],
        dict[complex, float],
        dict[Literal[1, "a"] | None, float],
        dict[tuple[int | str, ...], float],
        Mapping[type[int] | Callable[[int], int], float],
        list[dict[Unordered | str, dict[complex, float]]],
    ],
    ids=str,
)
def test_keys_that_cannot_be_sorted(annotation: Any) -> None:
    """JAX flattens each dict that is drawn, and not only empty ones."""
    values = drawn(of(annotation))
    assert any(map(jax.tree.leaves, values))


def test_keys_in_a_static() -> None:
    """What holds for a dict that JAX sorts holds for one that is static, at any depth."""

    class Held:
        def __init__(self, cfg: dict[Any, list[Mapping[Hashable, int]]]) -> None:
            self.cfg = cfg

        def tree_flatten(self) -> Any:
            return (), self.cfg

        @classmethod
        def tree_unflatten(cls, cfg: Any, _: Any) -> Any:
            return cls(cfg)

    jax.tree_util.register_pytree_node_class(Held)
    found = [keys for made in drawn(lst.instances(Held)) for keys in keys_of(made.cfg)]
    assert all(len({type(key) for key in keys}) <= 1 for keys in found)
    assert max(map(len, found)) == 2
