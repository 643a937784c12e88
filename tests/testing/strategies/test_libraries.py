"""The strategies for annotations of other libraries."""

from typing import Any, NamedTuple

import flax.core
import flax.struct
import jax
import pytest

import leafwise as lw
from leafwise.testing import strategies

from .seeking import drawn


def test_a_mapping_of_a_library() -> None:
    """A mapping that is no dict is made from one: flax's FrozenDict."""

    @flax.struct.dataclass
    class State:
        params: flax.core.FrozenDict[str, float]
        bare: flax.core.FrozenDict

    found = drawn(strategies.instances(State))
    for name in ("params", "bare"):
        assert {type(getattr(each, name)) for each in found} == {flax.core.FrozenDict}
        assert any(getattr(each, name) for each in found)


class AnyState(NamedTuple):
    inner: NamedTuple


def test_any_named_tuple() -> None:
    """The annotation ``NamedTuple`` means any of them, as in the states of blackjax."""
    for state in drawn(strategies.instances(AnyState), count=5):
        inner: Any = state.inner
        assert isinstance(inner, tuple)
        assert len(jax.tree.leaves(inner)) == len(inner._fields)


def test_a_mapping_that_is_a_tree() -> None:
    """A mapping of a library is made of a dict, also if no types of its items are said."""
    nnx = pytest.importorskip("flax.nnx")
    holder = lw.pytree(type("Holder", (), {"__annotations__": {"state": nnx.State}}))
    for value in drawn(strategies.instances(holder), count=5):
        assert isinstance(value.state, nnx.State)
        assert len({type(key) for key in value.state}) <= 1
        jax.tree.leaves(value)
