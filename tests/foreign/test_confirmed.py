"""What `leafwise check` and `explain` say of libraries is so: shown with JAX and them alone."""

import copy
import dataclasses
from collections import Counter as Counts
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("default")
eqx = pytest.importorskip("equinox")
jax_md = pytest.importorskip("jax_md")
nnx = pytest.importorskip("flax.nnx")
struct = pytest.importorskip("flax.struct")


class Counter:
    """Counts the traces of a function."""

    def __init__(self) -> None:
        self.traces = 0
        self.jitted = jax.jit(self._traced)

    def _traced(self, value: Any) -> Any:
        self.traces += 1
        return jax.tree.leaves(value)


@struct.dataclass
class One:
    x: jax.Array
    n: Any = struct.field(pytree_node=False, default=1)


@struct.dataclass
class Other:
    x: jax.Array
    n: Any = struct.field(pytree_node=False, default=1)


def test_cond_takes_one_class_for_another() -> None:
    """Two classes of flax.struct are one to `cond`: the second branch gives the first class."""
    one, other = One(jnp.zeros(2)), Other(jnp.zeros(2))
    assert type(jax.lax.cond(True, lambda: one, lambda: other)) is One
    assert type(jax.lax.cond(False, lambda: one, lambda: other)) is One


def test_true_and_one_are_one_static() -> None:
    """The program that was traced for `1` answers for `True`."""
    counter = Counter()
    for n in (1, True, 1.0):
        counter.jitted(One(jnp.zeros(2), n))
    assert counter.traces == 1


def test_a_list_as_a_static_changes_in_place() -> None:
    """JAX takes a list as a static, and the program of its old content still runs."""
    names: Any = [1, 2]
    program = jax.jit(lambda one: one.x + sum(one.n))
    one = One(jnp.zeros(()), names)
    assert program(one) == 3.0
    names.append(4)
    assert program(one) == 3.0  # 7.0 in plain Python


def test_a_cell_size_is_a_leaf() -> None:
    """`cell_size: dataclasses.static_field()` is an annotation: the field is dynamic."""
    from jax_md.partition import CellList

    field = next(each for each in dataclasses.fields(CellList) if each.name == "cell_size")
    assert isinstance(field.type, dataclasses.Field)
    values = {each.name: 0.0 for each in dataclasses.fields(CellList)}
    cells = CellList(**values | {"cell_size": 2.5, "named_buffer": {}})
    assert 2.5 in jax.tree.leaves(cells)


def test_arrays_as_statics_cannot_be_compared() -> None:
    """A force field is traced once; another one raises as its arrays are compared."""
    from jax_md.mm_forcefields.reaxff.reaxff_forcefield import ForceField

    def make() -> Any:
        return ForceField(**{each.name: np.zeros(2) for each in dataclasses.fields(ForceField)})

    counter = Counter()
    counter.jitted(make())
    with pytest.raises(ValueError, match="Exception raised while checking equality"):
        counter.jitted(make())


def test_a_graph_state_cannot_be_copied() -> None:
    """Its `__getattr__` asks for a field that the copy does not have yet."""
    state = nnx.graphlib.GraphState(*nnx.split(nnx.Linear(2, 2, rngs=nnx.Rngs(0))))
    with pytest.raises(RecursionError):
        copy.copy(state)


def test_arrays_as_metadata_cannot_be_compared() -> None:
    """A model whose parameter has an array as metadata: a second one raises."""

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.w = nnx.Param(jnp.ones(2), mean=np.zeros(2))

    total = nnx.jit(lambda model: model.w.sum())
    assert total(Model()) == 2.0
    with pytest.raises(ValueError, match="Exception raised while checking equality"):
        total(Model())


def test_a_uint64_converts_what_stands_for_a_leaf() -> None:
    """Its `__post_init__` runs when JAX rebuilds it, and makes another number of what it gets."""
    from brax.training.types import UInt64

    value = UInt64(hi=jnp.int16(1), lo=jnp.int16(2))
    assert value.hi.dtype == jnp.uint32
    rebuilt = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), value)
    assert rebuilt.hi.dtype == jnp.uint32


def test_a_uint64_has_no_gradient() -> None:
    """`jax.grad` rebuilds it with zeros of the type `float0`, which it tries to convert."""
    from brax.training.types import UInt64

    value = UInt64(hi=jnp.uint32(1), lo=jnp.uint32(2))
    with pytest.raises(ValueError, match="invalid literal for int"):
        jax.grad(lambda one: 1.0 * one.lo, allow_int=True)(value)
    plain = jax.grad(lambda one: 1.0 * one.x, allow_int=True)(One(jnp.uint32(2)))
    assert plain.x.dtype == jax.dtypes.float0


def test_functions_cannot_be_traced() -> None:
    """What holds functions in dynamic fields is never passed to a jitted function."""
    from brax.training.agents.bc.networks import BCNetworks

    fields = {each.name: len for each in dataclasses.fields(BCNetworks)}
    with pytest.raises(TypeError, match="as an abstract array"):
        Counter().jitted(BCNetworks(**fields))


def test_a_flat_state_comes_back_with_a_tuple() -> None:
    """The values of a state are a list, until JAX has rebuilt it."""
    state = nnx.statelib.FlatState([(("a",), 1)], sort=True)
    assert type(state._values) is list
    assert type(jax.tree.map(lambda leaf: leaf, state)._values) is tuple


def test_an_update_context_equals_any_other() -> None:
    """Its ``==`` is always true: the program that was traced for one tag answers for another."""
    tags = jax.jit(lambda context: jnp.asarray(context.tag))
    others = [None] * 5
    assert tags(nnx.graphlib.UpdateContext(0, *others)) == 0
    assert tags(nnx.graphlib.UpdateContext(1, *others)) == 0


def test_post_init_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX calls the constructor of a state as it rebuilds it."""
    cls = nnx.graphlib.GraphState
    state = cls(*nnx.split(nnx.Linear(2, 2, rngs=nnx.Rngs(0))))
    runs: list[int] = []
    monkeypatch.setattr(cls, "__post_init__", lambda self: runs.append(1))
    jax.tree.map(lambda leaf: leaf, state)
    assert runs


def traces_of(function: str, call: Callable[[], object]) -> int:
    """Return how often JAX traces a function of this name during a call."""
    counts: Counts[str] = Counts()

    def count(event: str, _: float, **about: Any) -> None:
        counts[str(about.get("fun_name"))] += event.endswith("jaxpr_trace_duration")

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        call()
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    return counts[function]


def test_each_message_has_a_program() -> None:
    """A check of equinox is traced for each message, and for each structure of what it returns."""
    x = jnp.ones(7)
    bad = x[0] < 0

    def times(value: Any, message: str) -> int:
        check = "branched_error_if_impl"
        return traces_of(check, lambda: eqx.error_if(value, bad, message))

    assert times(x, "one") == 1
    assert times(x, "one") == 0
    assert times(x, "another") == 1
    assert times((x, x), "another") == 1


def test_a_placeholder_that_is_given_has_a_program() -> None:
    """`safe_mask` is traced again when its placeholder is an argument, and no default."""
    from jax_md.util import safe_mask

    x = jnp.ones(7)

    def times(*placeholder: float) -> int:
        return traces_of("safe_mask", lambda: safe_mask(x > 0, jnp.sqrt, x, *placeholder))

    assert [times(), times(), times(0.0), times(0.0)] == [1, 0, 1, 0]
