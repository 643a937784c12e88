"""`check_pytree`: who keeps the laws, who breaks which, and what is said of it."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

import attrs
import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import leafwise as lw
from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree, strategies

from . import specimens
from .specimens import Params

FEW = settings(max_examples=15, derandomize=True, deadline=None)
OURS = [specimens.Params, specimens.Leafless, specimens.Keyed]
OURS_AT_NIGHT = [
    specimens.Slotted,
    specimens.Many,
    specimens.Nested,
    specimens.Derived,
    specimens.Converted,
]
CONFUSED = {Law.DISTINCT_CLASSES} if jax.__version_info__ >= (0, 10) else set[Law]()
"""JAX compares dataclass nodes without their class, from 0.10 on."""
_, AUX = jax.tree_util.default_registry.flatten_one_level(specimens.Equinox(jnp.ones(1)))
UNHASHABLE = set() if isinstance(AUX, Hashable) else {Law.AUX_DATA_HASH}
"""The aux_data of equinox 0.13.2, the oldest that is supported, has no hash."""
OTHERS: list[tuple[Any, set[Law]]] = [
    (specimens.Equinox, {Law.STATIC_TYPES} | UNHASHABLE),
    (specimens.Plain, {Law.STATIC_TYPES} | CONFUSED),
]
AT_NIGHT: list[tuple[Any, set[Law]]] = [
    (specimens.Flax, {Law.STATIC_TYPES} | CONFUSED),
    (specimens.FlaxWithoutStatics, CONFUSED),
    (specimens.Chex, set()),
    (specimens.PlainWithPostInit, {Law.POST_INIT} | CONFUSED),
    (specimens.Jdc, {Law.STATIC_TYPES}),
    (specimens.Pair, set()),
    (specimens.Hand, set()),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls", [*OURS, *(pytest.param(cls, marks=pytest.mark.nightly) for cls in OURS_AT_NIGHT)]
)
def test_our_classes_keep_all_laws(cls: Any) -> None:
    """A leafwise class of any shape keeps every law."""
    check_pytree(cls, settings=FEW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "broken"),
    [*OTHERS, *(pytest.param(*each, marks=pytest.mark.nightly) for each in AT_NIGHT)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_other_libraries(cls: Any, broken: set[Law]) -> None:
    """Classes of other libraries break the laws that their libraries break, and no other."""
    found = {}
    for law in Law:
        try:
            check_pytree(cls, laws=[law], settings=FEW)
        except LawViolation as error:
            found[law] = error
    assert set(found) == broken
    for law, error in found.items():
        assert error.law == law
        assert error.path.partition(".")[0] == cls.__name__


def test_the_message() -> None:
    """A violation names class, field, law, both values with their types, and the fix."""
    with pytest.raises(LawViolation) as caught:
        check_pytree(specimens.Flax, laws="static-types", settings=FEW)
    text = str(caught.value)
    assert caught.value.path == "Flax.n"
    assert text.startswith("Flax.n: breaks the law static-types: ")
    assert "(int) -> " in text
    assert "fix: declare Flax with `@lw.pytree` and `n: lw.Static[int] = 1`" in text
    assert "instance: Flax(w=" in text
    assert "data(...)" not in text
    assert not getattr(caught.value, "__notes__", [])


def test_the_counterexample_is_small() -> None:
    """What is shown is the simplest instance that breaks the law, not the first one met."""

    class Picky(specimens.ByHand):
        static = ("n",)

        def __init__(self, x: float, n: int) -> None:
            self.x, self.n = x, n

        def __repr__(self) -> str:
            return f"Picky(x={self.x}, n={self.n})"

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls(*children, min(aux[0][2], 17))

    instances = st.builds(Picky, st.floats(), st.integers(0, 10**6))
    with pytest.raises(LawViolation, match=r"Picky\(x=0.0, n=18\)") as caught:
        check_pytree(instances, laws=["round-trip"], settings=settings(FEW, max_examples=200))
    assert caught.value.path == "Picky.n"


def test_one_seed_one_result() -> None:
    """A seed decides what is drawn; another one draws something else."""

    def drawn(seed: int) -> list[str]:
        seen: list[str] = []

        def note(instance: Any) -> Any:
            seen.append(str(instance))
            return instance

        free = settings(FEW, derandomize=False)
        check_pytree(specimens.params.map(note), laws=["round-trip"], settings=free, seed=seed)
        return seen

    assert drawn(1) == drawn(1) != drawn(2)


def test_examples_follow_the_settings() -> None:
    """Laws that only flatten get all the examples, those that compile a share."""
    counts = {}
    for law in (Law.ROUND_TRIP, Law.TRANSFORMATIONS):
        seen: list[Any] = []

        def note(n: int, seen: list[Any] = seen) -> Any:
            seen.append(n)
            return Params(1.0, float(n), n)

        strategy = st.integers(-100, 100).map(note)
        check_pytree(strategy, laws=[law], settings=settings(FEW, max_examples=40))
        counts[law] = len(seen)
    assert counts == {Law.ROUND_TRIP: 40, Law.TRANSFORMATIONS: 4}


@given(st.integers(0, 3))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.nested_given])
def test_inside_a_hypothesis_test(n: int) -> None:
    """It can be called from a property test, which draws what it checks."""
    check_pytree(
        strategies.instances(Params, n=st.just(n)),
        laws=["round-trip", "static-values"],
        settings=settings(FEW, max_examples=3),
    )


def test_not_a_pytree_class() -> None:
    """An instance, or a class that JAX takes for a leaf, is refused, with what to write."""

    class Forgotten:
        def __init__(self, x: float) -> None:
            self.x = x

    for wrong, words in (
        (Params(1.0, 2.0), r"got Params\(.*\n  fix: check_pytree\(Params\)"),
        (None, "got None"),
        (Forgotten, r"Forgotten is not a pytree class.*\n  fix: decorate"),
    ):
        with pytest.raises(TypeError, match=words) as error:
            check_pytree(wrong, settings=FEW)
        assert not getattr(error.value, "__notes__", []), "Hypothesis has no part in it"


def test_no_such_law() -> None:
    """A law that does not exist is refused, and those that do are listed."""
    every = f"; the laws are {', '.join(Law)}"
    with pytest.raises(ValueError, match="did you mean") as caught:
        check_pytree(Params, laws=["roundtrip"])
    words = "laws: there is no law 'roundtrip' (did you mean 'round-trip'?)"
    assert str(caught.value) == words + every
    with pytest.raises(ValueError, match="the laws are") as caught:
        check_pytree(Params, without="x")
    assert str(caught.value) == "without: there is no law 'x'" + every
    with pytest.raises(ValueError, match="is empty; None means all laws"):
        check_pytree(Params, laws=[])
    with pytest.raises(TypeError, match="laws takes names of laws, got 3"):
        check_pytree(Params, laws=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings takes hypothesis.settings\(...\), got 5"):
        check_pytree(Params, settings=5)  # type: ignore[arg-type]


def test_whose_field_it_is() -> None:
    """A violation names the class whose field is at fault: that of a part, or its own."""
    plain = strategies.instances(specimens.Plain)
    one, two = (st.builds(Holds, st.lists(plain, min_size=number)) for number in (1, 2))
    for strategy in (one, two, plain):
        with pytest.raises(LawViolation) as caught:
            check_pytree(strategy, laws=["static-types"], settings=FEW)
        assert caught.value.owner is specimens.Plain
    for law in CONFUSED:
        with pytest.raises(LawViolation) as caught:
            check_pytree(specimens.Plain, laws=[law], settings=FEW)
        assert caught.value.owner is None


@lw.pytree
class Holds:
    """A sound class that holds parts."""

    parts: list[Any]


@lw.pytree
class ConvertsAgain:
    n: int = lw.static_field(converter=lambda n: n + 1)


def test_a_converter_that_converts_again() -> None:
    """The fix says that the converter is at fault."""
    with pytest.raises(LawViolation, match=r"fix: .*let a converter and `__post_init__` keep"):
        check_pytree(ConvertsAgain, laws=["replace"], settings=FEW)


@jax.tree_util.register_pytree_with_keys_class
class Variable:
    """Holds a reference, and shows what that holds, as the variables of flax.nnx do.

    In JAX 0.11 and 0.12, one that was pickled cannot be read.
    """

    def __init__(self, value: Any) -> None:
        self.ref = value if isinstance(value, jax.Ref) else jax.new_ref(jnp.asarray(value))

    @property
    def value(self) -> Any:
        return self.ref[...]

    def replace(self) -> "Variable":
        return Variable(self.value)

    def tree_flatten_with_keys(self) -> Any:
        return ((jax.tree_util.GetAttrKey("value"), self.ref),), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "Variable":
        made = object.__new__(cls)
        (made.ref,) = children
        return made


@lw.pytree
class OnDevice:
    """A device has no copies; a shallow copy of an instance that holds it has the device."""

    device: lw.Static[jax.Device]


@dataclasses.dataclass(frozen=True, eq=False)
class Named:
    """It compares by identity: it is another one with each equal name that it is given."""

    name: str = "a"


@lw.pytree
class HoldsNamed:
    w: jax.Array
    named: lw.Static[Named]


@lw.pytree
class ByContent:
    """Functions by content, of which copies are other functions that show nothing."""

    w: jax.Array
    pair: tuple[Any, ...] = lw.static_field(compare_by="content")


@pytest.mark.parametrize(
    ("make", "laws"),
    [
        (lambda: st.builds(Variable, st.floats(-1, 1)), [Law.KEY_PATHS, Law.REPLACE, Law.COPIES]),
        (lambda: st.just(OnDevice(jax.devices()[0])), [Law.COPIES]),
        (lambda: HoldsNamed, [Law.STATIC_VALUES, Law.STATIC_TYPES]),
        (lambda: st.builds(ByContent, specimens.arrays, st.just((jnp.tanh, jnp.sin))), None),
    ],
    ids=["a reference", "a device", "by identity", "functions by content"],
)
def test_what_is_not_blamed(make: Any, laws: Any) -> None:
    """What holds something that has no copy, or that is read from elsewhere, keeps the laws."""
    check_pytree(make(), laws=laws, settings=FEW)


T = TypeVar("T")


class Spec:
    """A static that is compared by a part of what its constructor takes."""

    def __init__(self, a: int, b: int) -> None:
        self.a = a
        self.b = b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.a == other.a

    def __hash__(self) -> int:
        return 1


class Renamed:
    """A static that stores an argument that it forgets under another name, inside a tuple."""

    def __init__(self, width: int, heads: int = 1) -> None:
        self.size = width
        self._split = ("heads", heads)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Renamed) and self.size == other.size

    def __hash__(self) -> int:
        return hash(self.size)


class Whole(Spec):
    """A static that compares all that it holds."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and (self.a, self.b) == (other.a, other.b)

    __hash__ = Spec.__hash__


class Rate:
    """A static that compares all that it holds, though 0.0 equals -0.0."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rate) and self.rate == other.rate

    def __hash__(self) -> int:
        return hash(self.rate)


class Cached:
    """A static with a cache, whose size is told to the cache alone, and a number of its own."""

    _numbers: Iterator[int] = itertools.count()

    def __init__(self, power: int, cache_size: int = 8) -> None:
        self.power = power
        self._number = next(self._numbers)
        self._raised: Callable[[int], int] = functools.lru_cache(cache_size)(power.__pow__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cached) and self.power == other.power

    def __hash__(self) -> int:
        return hash(self.power)


@attrs.define(unsafe_hash=True)
class WithAName:
    """A static whose name is declared as not compared."""

    width: int
    name: str = attrs.field(default="", eq=False)


@lw.pytree
class Layer(Generic[T]):
    x: jax.Array
    spec: T = lw.static_field()


def check_layer(kind: Any) -> None:
    check_pytree(Layer[kind], laws=Law.STATIC_VALUES, settings=FEW)


def test_an_argument_that_eq_forgets_breaks_the_law() -> None:
    """The field, the argument, both values and where to compare it are named."""
    with pytest.raises(LawViolation) as caught:
        check_layer(Spec)
    assert caught.value.path == "Layer.spec"
    message = str(caught.value)
    assert re.search(r"Spec\(a=(\d), b=(\d)\) == Spec\(a=\1, b=(?!\2)\d\)", message)
    assert "fix: compare `b` in `Spec.__eq__`, or make Spec a frozen dataclass" in message


def test_an_argument_may_be_stored_under_another_name() -> None:
    """What counts is the trace of an argument, and it may have a default."""
    with pytest.raises(LawViolation, match=r"compare `heads` in `Renamed.__eq__`"):
        check_layer(Renamed)


@pytest.mark.parametrize("kind", [Whole, Rate, Cached, WithAName])
def test_what_compares_all_that_it_holds_keeps_the_law(kind: Any) -> None:
    """No trace, an equal float, and what is declared as not compared are no faults."""
    check_layer(kind)
