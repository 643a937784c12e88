"""What equinox does with trees, with leafwise classes among their nodes."""

import io
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

from .modules import works


@lw.pytree
class Params:
    w: jax.Array
    act: str = lw.static_field(default="relu")


class Net(eqx.Module):
    params: Params
    bias: jax.Array
    count: int = 2


@lw.pytree
class Outer:
    net: Net
    label: lw.Static[str] = "a"


def made(act: str = "relu", label: str = "a", w: float = 1.0) -> Outer:
    return Outer(Net(Params(jnp.full(3, w, "float32"), act), jnp.zeros(2)), label)


@works("`partition`, `combine`, `filter` and the `is_array` filters on leafwise classes")
def test_partition_and_combine() -> None:
    """The parts are instances with the same statics, and make the whole again."""
    outer = made("tanh", "b")
    dynamic, static = eqx.partition(outer, eqx.is_array)
    assert type(dynamic) is type(static) is Outer
    assert (dynamic.label, static.net.params.act) == ("b", "tanh")
    assert (dynamic.net.count, static.net.count) == (None, 2)
    assert static.net.params.w is None
    assert eqx.tree_equal(eqx.combine(dynamic, static), outer)


@works("`tree_at` on the dynamic fields of a leafwise class, at any depth")
def test_tree_at_dynamic() -> None:
    """Leaves and nodes are exchanged; classes and statics stay."""
    changed = eqx.tree_at(lambda o: (o.net.params.w, o.net.bias), made("tanh"), (1, 2))
    assert (changed.net.params.w, changed.net.bias) == (1, 2)
    assert (type(changed), changed.net.params.act) == (Outer, "tanh")


@works(
    "`tree_at` on a static field", cannot="a static is not a leaf: use `lw.replace` or `lw.update`"
)
def test_tree_at_static() -> None:
    """Equinox says that a static is not a leaf."""
    with pytest.raises((TypeError, ValueError), match=r"leaf|node|PyTree"):
        eqx.tree_at(lambda o: o.net.params.act, made(), "gelu")
    assert lw.replace(made().net.params, act="gelu").act == "gelu"


@works("`tree_equal`, which sees statics and their types")
def test_tree_equal() -> None:
    """Trees are equal if leaves, classes and statics are."""
    assert eqx.tree_equal(made(), made())
    assert not eqx.tree_equal(made(), made("tanh"))
    one, other = Params(jnp.ones(1), 1), Params(jnp.ones(1), True)
    assert not eqx.tree_equal(one, other)


@works("`tree_serialise_leaves` and `tree_deserialise_leaves`")
def test_serialise_leaves() -> None:
    """The leaves come back into an instance of the same structure."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, made(w=5.0))
    file.seek(0)
    assert eqx.tree_deserialise_leaves(file, made(w=0.0)) == made(w=5.0)


@works(
    "`tree_deserialise_leaves` into another static configuration",
    cannot="equinox stores leaves only: `leafwise.interop.orbax` stores statics, too",
)
def test_serialise_leaves_loses_statics() -> None:
    """Statics are neither stored nor compared: those of the instance to be filled win."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, made("tanh", "b", w=5.0))
    file.seek(0)
    restored = eqx.tree_deserialise_leaves(file, made("relu", "a"))
    assert restored == made("relu", "a", w=5.0)


@works("`error_if` on and inside leafwise classes")
def test_error_if() -> None:
    """An instance passes through unchanged, or the error is raised."""

    @eqx.filter_jit
    def checked(outer: Outer) -> Outer:
        return eqx.error_if(outer, outer.net.params.w[0] < 0, "negative")

    assert checked(made("tanh")) == made("tanh")
    with pytest.raises(Exception, match="negative"):
        jax.block_until_ready(checked(made(w=-1.0)))


@works("`eqx.nn.State`, `StatefulLayer` and `BatchNorm` in leafwise classes")
def test_state_and_batch_norm() -> None:
    """A stateful layer in a leafwise class is found, and its state is updated in one trace."""

    @lw.pytree
    class Model:
        norm: eqx.nn.BatchNorm
        scale: jax.Array
        mode: lw.Static[str] = "train"

        def __call__(self, x: jax.Array, state: eqx.nn.State) -> Any:
            out, state = self.norm(x, state)
            return self.scale * out, state

    model, state = eqx.nn.make_with_state(
        lambda: Model(eqx.nn.BatchNorm(2, "batch", mode="batch"), jnp.asarray(2.0))
    )()

    @eqx.filter_jit
    def step(model: Model, state: eqx.nn.State, x: jax.Array) -> Any:
        mapped = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return mapped(x, state)

    x = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    with lw.budget(traces=1, exact=True, of="step"):
        for _ in range(3):
            out, state = step(model, state, x)
    assert jnp.allclose(out.mean(axis=0), 0.0, atol=1e-5)
    assert eqx.nn.inference_mode(model).norm.inference is True
