"""`flax.struct` dataclasses and leafwise classes inside each other, and flax's own utilities."""

from typing import Any

import flax.core
import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw


@lw.pytree
class Scale:
    w: jax.Array
    power: lw.Static[Any] = 2


@flax.struct.dataclass
class State:
    scale: Any
    count: Any = None
    kind: Any = flax.struct.field(pytree_node=False, default="a")


class Node(flax.struct.PyTreeNode):
    scale: Any
    kind: Any = flax.struct.field(pytree_node=False, default="a")


@lw.pytree
class Holder:
    state: Any
    config: lw.Static[Any] = None


def scaled(tree: Any) -> Any:
    return jax.tree.map(lambda x: x * 2, tree)


@pytest.mark.works(
    "flax", "leafwise classes in a `struct.dataclass` or `PyTreeNode`, and inside out"
)
@pytest.mark.parametrize("outer", [State, Node], ids=["dataclass", "PyTreeNode"])
def test_nested_both_ways(outer: Any) -> None:
    """Nested in each other they go through the transformations, at any depth."""
    tree = Holder(outer(Holder(outer(Scale(jnp.arange(3.0))))))
    doubled = jax.jit(scaled)(tree)
    assert jax.tree.structure(doubled) == jax.tree.structure(tree)
    assert doubled.state.scale.state.scale.w.tolist() == [0, 2, 4]
    gradient = jax.grad(lambda tree: jnp.sum(tree.state.scale.state.scale.w**2))(tree)
    assert gradient.state.scale.state.scale.w.tolist() == [0, 2, 4]
    assert "power=2" in repr(tree)


@pytest.mark.works("flax", "`.replace` of a `struct.dataclass` around a leafwise class")
def test_replace() -> None:
    """flax's `replace` exchanges a leafwise instance, and `lw.replace` a flax one."""
    state = State(Scale(jnp.ones(2)), 1)
    changed = state.replace(scale=lw.replace(state.scale, power=3))
    assert (changed.scale.power, changed.count) == (3, 1)
    assert lw.replace(state, count=2).count == 2


@pytest.mark.works("flax", "statics of leafwise classes stay type-exact in a `struct.dataclass`")
def test_statics_inside_are_told_apart() -> None:
    """`1` and `True` in a leafwise class are two programs, wherever flax holds it."""

    @jax.jit
    def power(state: State) -> Any:
        return state.scale.power

    with lw.budget(traces=2, exact=True, eager=False):
        for value in (1, True, 1):
            power(State(Scale(jnp.ones(2), value), 1))


@pytest.mark.works(
    "flax",
    "type-exact statics of a `struct.dataclass` itself",
    cannot="flax compares its own statics by `==`: `1`, `True` and `1.0` share a program, also "
    "inside a leafwise class. Make the class `@lw.pytree`, or keep it in a static field",
)
def test_statics_of_flax_are_confused() -> None:
    """What flax holds static is compared by flax: the answer is that of the first value."""

    @jax.jit
    def kind(holder: Holder) -> jax.Array:
        return jnp.asarray(holder.state.kind)

    with lw.budget(traces=1, exact=True, eager=False):
        assert kind(Holder(State(1, 1, 1))).dtype == jnp.int32
        assert kind(Holder(State(1, 1, True))).dtype == jnp.int32


@pytest.mark.works("flax", "`struct.field(pytree_node=False)` in a leafwise class is static")
def test_field_metadata() -> None:
    """flax's own field declarations say static and dynamic in a leafwise class too."""

    @lw.pytree
    class Mixed:
        w: jax.Array = flax.struct.field(pytree_node=True)
        act: str = flax.struct.field(pytree_node=False, default="relu")

    assert len(jax.tree.leaves(Mixed(jnp.ones(2)))) == 1
    assert jax.tree.structure(Mixed(1)) != jax.tree.structure(Mixed(1, "gelu"))
    with pytest.raises(lw.errors.StaticFieldError, match=r"Mixed\.act"):
        Mixed(jnp.ones(2), ["relu"])  # type: ignore[arg-type]


def test_static_field_in_flax() -> None:
    """`lw.static_field` means static in a `struct.dataclass`."""

    @flax.struct.dataclass
    class Mixed:
        w: Any
        act: str = lw.static_field(default="relu")

    assert jax.tree.leaves(Mixed(1)) == [1]
    assert jax.tree.structure(Mixed(1)) != jax.tree.structure(Mixed(1, "gelu"))


@pytest.mark.works("flax", "`FrozenDict` as a dynamic and as a static field")
def test_frozen_dicts() -> None:
    """A `FrozenDict` is a pytree in a dynamic field, read by order and type in a static one."""
    params = flax.core.freeze({"a": {"w": jnp.ones(2)}})
    doubled = jax.jit(scaled)(Holder(params))
    assert doubled.state["a"]["w"].tolist() == [2, 2]

    def structure(content: Any) -> Any:
        return jax.tree.structure(Holder(0, flax.core.freeze(content)))

    assert structure({"a": 1, "b": {"c": 2}}) == structure({"a": 1, "b": {"c": 2}})
    assert structure({"a": 1}) != structure({"a": True})
    with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.config\['a'\]: a list"):
        structure({"a": [1]})
