"""Classes with special methods, metaclasses and new syntax; statics of derived types."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class Holder:
    a: lw.Static[Any]

    def get(self) -> Any:
        """Return the static."""
        return self.a


@pytest.mark.parametrize("slots", [False, True])
def test_getattr(slots: bool) -> None:
    """A class that hands unknown attributes on to a child is built, copied and flattened."""

    @lw.pytree(slots=slots)
    class P:
        x: Any
        a: lw.Static[int] = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self.x, name)

    p = P(jnp.ones(3))
    assert p.shape == (3,)
    assert jax.tree.map(lambda v: v, p).shape == (3,)
    assert copy.deepcopy(copy.copy(p)) == p
    assert jax.jit(lambda p: p.sum())(p) == 3.0


def test_container_methods() -> None:
    """`__len__`, `__iter__` and a `__bool__` that raises change nothing for JAX or `==`."""

    @lw.pytree
    class P:
        x: Any

        def __len__(self) -> int:
            return 0

        def __iter__(self) -> Any:
            return iter(())

        def __bool__(self) -> bool:
            raise TypeError

    assert P(1.0) == P(1.0)
    assert jax.tree.leaves(P(1.0)) == [1.0]
    assert repr(P(1.0)).endswith("P(x=1.0)")
    assert Holder(P(1.0)) == Holder(P(1.0))


def test_own_new() -> None:
    """A class with its own `__new__` is constructed by it, and rebuilt without it."""
    calls: list[Any] = []

    @lw.pytree
    class P:
        x: Any

        def __new__(cls, *args: Any) -> Any:
            calls.append(args)
            return super().__new__(cls)

    p = P(1.0)
    assert jax.tree.map(lambda v: v + 1, p).x == 2.0
    assert copy.copy(p) == p
    assert calls == [(1.0,)]


@pytest.mark.parametrize("kind", ["M8[s]", [("at", "M8[s]")]], ids=str)
def test_empty_metadata_of_a_dtype_is_none(kind: Any) -> None:
    """NumPy before 2.3.3 adds it to the dtypes of dates in a copy: the key stays the same."""
    plain, empty = np.dtype(kind), np.dtype(kind, metadata={})
    assert empty.metadata is not None
    assert jax.tree.structure(Holder(plain)) == jax.tree.structure(Holder(empty))
