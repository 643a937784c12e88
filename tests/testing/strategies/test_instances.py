"""`instances`: classes of every make, defaults, overrides, refusals, and drawing in a test."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import attrs
import chex
import equinox as eqx
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import specimens
from tests.kit.specimens import Pair, Plain

import leafwise as lw
from leafwise.errors import CannotBuildError
from leafwise.testing import strategies
from leafwise.testing.strategies import arrays, instances

from .seeking import assert_reaches, drawn, minimal


@lw.pytree
class Params:
    w: jax.Array
    lr: float
    depth: int = lw.static_field(default=2)
    act: lw.Static[str] = "relu"


@lw.pytree(slots=True, kw_only=True)
class Slotted:
    x: jax.Array
    n: lw.Static[int]


class Handmade(specimens.ByHand):
    static = ("size", "tag")

    def __init__(self, x: jax.Array, /, size: int, *rest: int, tag: str = "a", **more: int) -> None:
        self.x, self.size, self.tag, self.rest, self.more = x, size, tag, rest, more


@lw.pytree
class Derived:
    scale: dataclasses.InitVar[int]
    n: lw.Static[int] = 2
    zeros: jax.Array = lw.field(init=False)

    def __post_init__(self, scale: int) -> None:
        self.zeros = jnp.zeros(self.n) * scale


@lw.pytree
class Converted:
    x: jax.Array = lw.field(converter=jnp.asarray)
    sizes: list[int] = lw.static_field(freeze=True)
    dtype: np.typing.DTypeLike = lw.static_field(converter=np.dtype, default="float16")


@pytest.mark.parametrize("cls", [Params, Slotted, Plain, Pair, Handmade, Derived, Converted])
def test_classes_of_every_make(cls: Any) -> None:
    """Instances are of the class, go through jit, and differ."""
    made = drawn(instances(cls), 30)
    assert {type(each) for each in made} == {cls}
    assert len({str(jax.tree.structure(each)) for each in made}) > 1 or cls is Pair
    for each in made[:5]:
        out = jax.jit(lambda tree: tree)(each)
        assert jax.tree.structure(out) == jax.tree.structure(each)


@pytest.mark.slow
def test_other_libraries() -> None:
    """Classes of equinox, flax, chex, jax_dataclasses and attrs are read as well."""

    @chex.dataclass(frozen=True)
    class Chex:
        w: jax.Array
        n: int = 1

    @attrs.define
    class Attrs:
        w: jax.Array
        _n: int = attrs.field(default=1, validator=attrs.validators.in_(range(5)))
        more: list[int] = attrs.field(factory=list)

    for cls in (specimens.Equinox, specimens.Flax, specimens.Jdc, Chex, Attrs):
        number = "_n" if cls is Attrs else "n"
        assert_reaches(
            instances(cls),
            lambda made: made.w.ndim == 2,
            lambda made, number=number: getattr(made, number) == 1,
            lambda made, number=number: getattr(made, number) != 1,
            count=90,
        )
    assert all(made._n == 3 for made in drawn(instances(Attrs, n=st.just(3))))
    layers = drawn(instances(eqx.nn.Linear, key=st.just(jax.random.key(0))), 2)
    assert {type(each) for each in layers} == {eqx.nn.Linear}


@pytest.mark.slow
def test_defaults_come_about_half_of_the_time() -> None:
    """A default is met, and so are other values; a factory makes one for each instance."""
    numbers = itertools.count()

    @dataclasses.dataclass
    class Counted:
        number: int = dataclasses.field(default_factory=lambda: next(numbers) + 1000)
        items: list[int] = dataclasses.field(default_factory=list)

    made = drawn(instances(Counted), 100)
    fresh = [each.number for each in made if each.number >= 1000]
    assert 20 < len(fresh) < 80
    assert len(set(fresh)) == len(fresh)
    assert len({id(each.items) for each in made}) == len(made)
    assert minimal(instances(Params)) == Params(jnp.float32(0), 0.0)


def test_a_field_that_nothing_is_known_of_keeps_its_default() -> None:
    """A default saves a field that cannot be built."""

    class Opaque:
        def __init__(self, *, other: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    @dataclasses.dataclass
    class Saved:
        part: Opaque | None = None
        other: "Missing" = 3  # type: ignore[name-defined]  # noqa: F821

    assert all(made == Saved() for made in drawn(instances(Saved)))


def test_overrides() -> None:
    """An override is drawn from always; ``...`` asks for the annotation, never the default."""
    made = drawn(instances(Params, depth=st.integers(7, 9), w=arrays((2,), "bfloat16")))
    assert {each.depth for each in made} == {7, 8, 9}
    assert {(each.w.shape, str(each.w.dtype)) for each in made} == {((2,), "bfloat16")}
    assert "relu" not in {each.act for each in drawn(instances(Params, act=...), 60)}
    more = drawn(instances(Handmade, other=st.just(5), draw=st.just(3)), 10)
    assert all(each.more == {"other": 5, "draw": 3} for each in more)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: instances(Params, dept=st.none()), ["Params", "'dept'", "did you mean 'depth'"]),
        (lambda: instances(Params, zzz=st.none()), ["no 'zzz'", "it takes w, lr, depth"]),
        (lambda: instances(Params, depth=3), ["takes a strategy, got 3 (int)", "depth=st.just(3)"]),
        (lambda: instances(Derived, zeros=arrays()), ["'zeros'", "init=False"]),
        (lambda: instances(Pair(1, 2)), ["takes a class", "instances(Pair)"]),
        (lambda: instances(3), ["takes a class, got 3 (int)"]),
        (lambda: instances(Params | None), ["takes a class"]),
    ],
)
def test_wrong_calls(call: Any, words: list[str]) -> None:
    """A call that cannot be meant is refused at once, with what would be right."""
    with pytest.raises(TypeError) as raised:
        call()
    for each in words:
        assert each in str(raised.value)


class Unknowable:
    def __init__(self, part: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Inner:
    part: Unknowable


@dataclasses.dataclass
class Outer:
    n: int
    inner: Inner


@dataclasses.dataclass
class Never:
    n: int

    def __post_init__(self) -> None:
        raise ValueError("not today")


@dataclasses.dataclass
class HoldsNever:
    never: Never


def error_of(strategy: Any) -> str:
    """Return what drawing raises, in a test as users write it."""

    @settings(max_examples=60, database=None, derandomize=True)
    @given(strategy)
    def test(made: Any) -> None: ...

    with pytest.raises(CannotBuildError) as raised:
        test()
    return str(raised.value)


def test_what_cannot_be_built() -> None:
    """The message names the field, and the override to write from where one stands."""
    text = error_of(instances(Outer))
    assert "Outer.inner.part.part: its annotation cannot be resolved" in text
    assert "instances(Outer, inner=instances(Inner, part=instances(Unknowable, part=...)))" in text
    whole = instances(Unknowable, part=st.none())
    assert drawn(instances(Outer, inner=instances(Inner, part=whole)), 5)


def test_a_class_that_refuses_everything() -> None:
    """It is given up before Hypothesis gives up, with the reason and both fixes."""
    text = error_of(instances(Never))
    for words in ("Never: no drawn values", "ValueError: not today", "instances(Never, n=...)"):
        assert words in text
    assert "register_type_strategy(Never, ...)" in text
    assert "instances(HoldsNever, never=instances(Never, n=...))" in error_of(instances(HoldsNever))


@lw.pytree
class Picky:
    n: int = lw.static_field(validator=lambda value: value > 2)
    m: int = lw.static_field(validator=lambda value: value % 10 == 3)
    mode: str = lw.static_field(validator=lambda value: "a" in value)
    rate: float = lw.field(validator=lambda value: 0 < value < 1)
    x: jax.Array = lw.field(validator=lambda value: value.ndim == 2)


@lw.pytree
class Unforgiving:
    n: lw.Static[int]
    m: lw.Static[int]

    def __post_init__(self) -> None:
        if self.n <= self.m:
            raise ValueError("n must be more than m")


@pytest.mark.slow
def test_checks_are_respected() -> None:
    """Fields that refuse most values are drawn one by one, and a whole instance again."""
    for made in drawn(instances(Picky), 20):
        assert made.n > 2
        assert made.m % 10 == 3
    assert_reaches(instances(Picky), lambda p: p.mode != "a", lambda p: p.n > 3, count=40)
    assert all(made.n > made.m for made in drawn(instances(Unforgiving)))
    assert minimal(instances(Unforgiving), lambda p: p.n > 2) == Unforgiving(3, 1)


class Unit:
    def __init__(self, name: str) -> None:
        self.name = name


@lw.pytree
class Fitting:
    n: lw.Static[int]


st.register_type_strategy(Unit, st.sampled_from([Unit("m"), Unit("km")]))
st.register_type_strategy(Fitting, instances(Fitting, n=st.just(1000)))


@lw.pytree
class Length:
    value: jax.Array
    unit: lw.Static[Unit]
    units: lw.Static[tuple[Unit, ...]]
    fitting: Fitting


def test_registered_strategies() -> None:
    """`register_type_strategy` is honoured for fields and for the class itself."""
    for made in drawn(instances(Length)):
        assert {made.unit.name, *(unit.name for unit in made.units)} <= {"m", "km"}
        assert made.fitting.n == 1000
    assert all(made.n == 1000 for made in drawn(instances(Fitting)))
    assert {made.n for made in drawn(instances(Fitting, n=...))} == {0, 1, 2, 3, 4, 5}


@lw.pytree
class Linked:
    n: lw.Static[int]
    next: "Linked | None" = None


st.register_type_strategy(Linked, instances(Linked))


@pytest.mark.slow
def test_a_strategy_registered_for_its_own_class() -> None:
    """``register_type_strategy(Linked, instances(Linked))`` is no endless loop."""
    assert_reaches(instances(Linked), lambda made: made.next is not None)
    assert_reaches(st.from_type(Linked), lambda made: made.next is not None)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data())
def test_drawn_within_a_test(data: st.DataObject) -> None:
    """A strategy may be made and drawn from inside a test; nothing of it is nested."""
    picky = data.draw(instances(Picky))
    assert picky.n > 2
    made = data.draw(st.lists(instances(Params, w=arrays((2,))), min_size=1, max_size=3))
    assert {type(each) for each in made} == {Params}
    assert data.draw(instances(Unforgiving)).n > 0


def test_annotations_are_read_late() -> None:
    """A class may name what is defined below, as long as nothing is drawn."""
    strategy = instances(Early)
    assert type(minimal(strategy).late) is Late


@dataclasses.dataclass
class Early:
    late: "Late"


@dataclasses.dataclass
class Late:
    n: int


def test_a_constructor_that_takes_a_random_key() -> None:
    """An array that a constructor takes as ``key``, and no field, is a random key."""

    class Layer(eqx.Module):
        weight: jax.Array

        def __init__(self, size: int, *, init_key: jax.Array) -> None:
            self.weight = jax.random.normal(init_key, (size,))

    class Table(eqx.Module):
        key: jax.Array

    assert all(made.weight.ndim == 1 for made in drawn(instances(Layer), 3))
    dtypes = {made.key.dtype for made in drawn(instances(Table), 5)}
    assert not any(jnp.issubdtype(each, jax.dtypes.prng_key) for each in dtypes)


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
