"""What a class's attributes become, seen on JAX; and exchanging one of them."""

from typing import Any, NamedTuple

import attrs
import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._trees.roles import exchange, field_names_of, field_order, is_kept

from . import specimens

LIBRARIES = [
    specimens.Params,
    specimens.Slotted,
    specimens.Flax,
    specimens.Equinox,
    specimens.Plain,
    specimens.Jdc,
    specimens.Hand,
]


def made(cls: Any) -> Any:
    return cls(jnp.ones(3), 1.0) if cls is specimens.Params else cls(jnp.ones(3))


@pytest.mark.parametrize("cls", LIBRARIES)
def test_names(cls: Any) -> None:
    """Fields are sorted into static and dynamic, whatever the library calls them."""
    names = field_names_of(made(cls))
    assert "w" in names.dynamic
    assert "n" in names.static
    assert field_order(made(cls))[0] == "w"


@pytest.mark.parametrize("cls", LIBRARIES)
def test_exchange(cls: Any) -> None:
    """One attribute differs, the rest are the same objects, and the original stays."""
    x = made(cls)
    changed = exchange(x, "n", 7)
    assert (changed.n, x.n != 7, changed.w is x.w, type(changed)) == (7, True, True, cls)
    assert jax.tree.structure(changed) != jax.tree.structure(x)
    assert jax.tree.leaves(exchange(x, "w", 2.0))[0] == 2.0


def test_caches_are_no_statics() -> None:
    """Of a class that declares nothing, what flatten leaves out is a cache, not a static."""
    frozen = flax.core.FrozenDict({"a": jnp.ones(2)})
    hash_before = field_names_of(frozen)
    assert "_hash" not in hash_before.static
    assert not is_kept(frozen, "_hash")


def test_tuples_and_attrs() -> None:
    """Namedtuples and attrs classes have their own lists of fields."""

    class Pair(NamedTuple):
        a: float
        b: float

    assert field_names_of(Pair(1.0, 2.0)).dynamic == ("a", "b")
    assert exchange(Pair(1.0, 2.0), "b", 3.0) == Pair(1.0, 3.0)

    @attrs.frozen(slots=True)
    class Frozen:
        x: float
        n: int = 2

    lw.register(Frozen, dynamic=["x"], static=["n"])
    assert field_names_of(Frozen(1.0)) == (("n",), ("x",))
    assert exchange(Frozen(1.0), "n", 3).n == 3


@pytest.mark.parametrize("value", [0.5, np.ones(2, "int32"), (0.5, 1)])
def test_a_leaf_that_flatten_converts(value: Any) -> None:
    """It is dynamic, though no object in its place becomes a leaf; aux_data is static."""

    @jax.tree_util.register_pytree_node_class
    class Converts:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

        def tree_flatten(self) -> Any:
            leaves = jax.tree.map(lambda leaf: np.asarray(leaf).astype("float32"), self.x)
            return (leaves, np.ones(self.n)), self.n

        @classmethod
        def tree_unflatten(cls, n: Any, children: Any) -> Any:
            return cls(children[0], n)

    assert field_names_of(Converts(value, 3)) == (("n",), ("x",))
