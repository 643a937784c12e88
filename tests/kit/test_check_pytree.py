"""`check_pytree`: who keeps the laws, who breaks which, and what is said of it."""

import functools
import pickle
import random
import re
from collections.abc import Hashable
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planted import children, statics

import leafwise as lw
from leafwise.testing import Law, LawViolation, check_pytree, strategies

from . import specimens
from .specimens import Params

FEW = settings(max_examples=15, derandomize=True, deadline=None)
OURS = [
    specimens.Params,
    specimens.Slotted,
    specimens.Many,
    specimens.Nested,
    specimens.Derived,
    specimens.Converted,
    specimens.Leafless,
    specimens.Keyed,
]
CONFUSED = {Law.DISTINCT_CLASSES}
"""JAX compares dataclass nodes without their class."""
_, AUX = jax.tree_util.default_registry.flatten_one_level(specimens.Equinox(jnp.ones(1)))
UNHASHABLE = set() if isinstance(AUX, Hashable) else {Law.AUX_DATA_HASH}
"""The aux_data of equinox 0.13.2, the oldest that is supported, has no hash."""
OTHERS: list[tuple[Any, set[Law]]] = [
    (specimens.Flax, {Law.STATIC_TYPES} | CONFUSED),
    (specimens.FlaxWithoutStatics, CONFUSED),
    (specimens.Equinox, {Law.STATIC_TYPES} | UNHASHABLE),
    (specimens.Plain, {Law.STATIC_TYPES} | CONFUSED),
    (specimens.Chex, set()),
]
AT_NIGHT: list[tuple[Any, set[Law]]] = [
    (specimens.PlainWithPostInit, {Law.POST_INIT} | CONFUSED),
    (specimens.Jdc, {Law.STATIC_TYPES}),
    (specimens.Pair, set()),
    (specimens.Hand, set()),
]


@pytest.mark.slow
@pytest.mark.parametrize("cls", OURS)
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
    assert "fix: declare Flax by `@lw.pytree`, with `n: int = lw.static_field(default=" in text
    assert "instance: Flax(w=" in text
    assert "data(...)" not in text
    assert not getattr(caught.value, "__notes__", [])


def test_the_counterexample_is_small() -> None:
    """What is shown is the simplest instance that breaks the law, not the first one met."""

    @jax.tree_util.register_pytree_node_class
    class Picky:
        def __init__(self, x: float, n: int) -> None:
            self.x, self.n = x, n

        def __repr__(self) -> str:
            return f"Picky(x={self.x}, n={self.n})"

        def tree_flatten(self) -> Any:
            return (self.x,), (type(self.n), self.n)

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls(*children, min(aux[1], 17))

    instances = st.builds(Picky, st.floats(), st.integers(0, 10**6))
    with pytest.raises(LawViolation, match=r"Picky\(x=0.0, n=18\)") as caught:
        check_pytree(instances, laws=["round-trip"], settings=settings(FEW, max_examples=200))
    assert caught.value.path == "Picky.n"


def test_a_violation_is_an_assertion_that_pickles() -> None:
    """`LawViolation` is an AssertionError of leafwise, and travels with law and path."""
    with pytest.raises(LawViolation) as caught:
        check_pytree(specimens.Plain, laws=[Law.DISTINCT_CLASSES], settings=FEW)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert isinstance(again, AssertionError)
    assert isinstance(again, lw.LeafwiseError)
    assert (str(again), again.law, again.path) == (
        str(caught.value),
        caught.value.law,
        caught.value.path,
    )


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
@settings(
    max_examples=3, deadline=None, suppress_health_check=[hypothesis.HealthCheck.nested_given]
)
def test_inside_a_hypothesis_test(n: int) -> None:
    """It can be called from a property test, which draws what it checks."""
    check_pytree(
        strategies.instances(Params, n=st.just(n)),
        laws=["round-trip", "static-values"],
        settings=settings(FEW, max_examples=3),
    )


def test_a_strategy_decides_what_is_checked() -> None:
    """Given a strategy, only what it draws is checked."""

    @jax.tree_util.register_pytree_node_class
    class Fragile:
        def __init__(self, x: float) -> None:
            self.x = x

        def tree_flatten(self) -> Any:
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(0.0 if children[0] == 7.0 else children[0])

    law = {"laws": ["round-trip"], "settings": FEW}
    check_pytree(st.builds(Fragile, st.just(1.0)), **law)
    with pytest.raises(LawViolation):
        check_pytree(st.builds(Fragile, st.just(7.0)), **law)


def test_not_a_class() -> None:
    """An instance, or anything else, is refused with what to write."""
    with pytest.raises(TypeError, match=r"got Params\(.*\n  fix: check_pytree\(Params\)"):
        check_pytree(Params(1.0, 2.0))
    with pytest.raises(TypeError, match="got None"):
        check_pytree(None)


def test_not_a_pytree_class() -> None:
    """A class that JAX takes for a leaf is refused, and not passed silently."""

    class Forgotten:
        def __init__(self, x: float) -> None:
            self.x = x

    match = r"Forgotten is not a pytree class.*\n  fix: decorate"
    with pytest.raises(TypeError, match=match) as error:
        check_pytree(Forgotten, settings=FEW)
    assert not getattr(error.value, "__notes__", []), "Hypothesis has no part in it"


def test_no_such_law() -> None:
    """A law that does not exist is refused, and those that do are listed."""
    every = f"; there are {', '.join(Law)}"
    with pytest.raises(ValueError, match="did you mean") as caught:
        check_pytree(Params, laws=["roundtrip"])
    words = "laws: there is no law 'roundtrip' (did you mean 'round-trip'?)"
    assert str(caught.value) == words + every
    with pytest.raises(ValueError, match="there are") as caught:
        check_pytree(Params, without="x")
    assert str(caught.value) == "without: there is no law 'x'" + every
    with pytest.raises(ValueError, match="no law is named"):
        check_pytree(Params, laws=[])
    with pytest.raises(TypeError, match="laws takes names of laws, got 3"):
        check_pytree(Params, laws=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings takes hypothesis.settings\(...\), got 5"):
        check_pytree(Params, settings=5)  # type: ignore[arg-type]


@pytest.mark.nightly
@pytest.mark.slow
def test_laws_can_be_left_out() -> None:
    """A class of another library passes without the laws that its library does not keep."""
    check_pytree(specimens.Flax, without=["static-types", Law.DISTINCT_CLASSES], settings=FEW)


def test_an_error_of_the_users() -> None:
    """A class whose flatten raises breaks the law, with what it raised and where."""

    @jax.tree_util.register_pytree_node_class
    class Raising:
        def __init__(self, x: float) -> None:
            self.x = x

        def tree_flatten(self) -> Any:
            raise RuntimeError("not today")

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(*children)

    with pytest.raises(LawViolation, match="flatten raised RuntimeError: not today"):
        check_pytree(Raising, laws=["round-trip"], settings=FEW)


def test_the_random_state_and_settings_stay() -> None:
    """Checking changes neither the profile nor anything else that a test reads."""
    before = repr(hypothesis.settings()), random.getstate()
    check_pytree(Params, laws=["round-trip"], settings=FEW)
    assert (repr(hypothesis.settings()), random.getstate()) == before


def test_names_are_complete() -> None:
    """Every law says what must hold, and what to do where it does not."""
    for law in Law:
        assert law == law.value == str(law)
        assert law.statement
        assert law.fix
    assert len({law.statement for law in Law}) == len(Law)


def test_a_typo_in_a_lazy_name() -> None:
    """A name that does not exist is an AttributeError of the module."""
    import leafwise.testing as kit

    with pytest.raises(AttributeError, match="no attribute 'check_pytre'"):
        _ = kit.check_pytre
    assert set(kit.__all__) <= set(dir(kit))


@lw.pytree
class ByContent:
    """Functions by content, of which copies are other functions that show nothing."""

    w: jax.Array
    pair: tuple[Any, ...] = lw.static_field(by="content")


@pytest.mark.parametrize("law", list(Law))
def test_a_copy_that_is_refused(law: Law) -> None:
    """Where a copy of a static is refused, the class is not blamed for it."""
    drawn = strategies.instances(ByContent, pair=st.just((jax.numpy.tanh, jax.numpy.sin)))
    check_pytree(drawn, laws=[law], settings=FEW)


def test_whose_field_it_is() -> None:
    """A violation names the class whose field is at fault: that of a part, or its own."""
    holder = st.builds(Holds, st.lists(strategies.instances(specimens.Plain), min_size=1))
    for strategy in (holder, strategies.instances(specimens.Plain)):
        with pytest.raises(LawViolation) as caught:
            check_pytree(strategy, laws=["static-types"], settings=FEW)
        assert caught.value.owner is specimens.Plain
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # made here
        assert again.owner is specimens.Plain
    with pytest.raises(LawViolation) as caught:
        check_pytree(specimens.Plain, laws=["distinct-classes"], settings=FEW)
    assert caught.value.owner is None


@lw.pytree
class Holds:
    """A sound class that holds parts."""

    parts: list[Any]


def test_leaves_by_value() -> None:
    """A class that decides by value what a leaf is loses the leaves that `in_axes` needs."""

    @jax.tree_util.register_pytree_node_class
    class ByValue:
        def __init__(self, x: jax.Array, y: jax.Array) -> None:
            self.x, self.y = x, y

        def tree_flatten(self) -> Any:
            kept = vars(self)
            is_leaf = [not isinstance(value, str | int | float) for value in kept.values()]
            pairs = list(zip(kept.values(), is_leaf, strict=True))
            children = [value if leaf else None for value, leaf in pairs]
            return children, tuple(None if leaf else value for value, leaf in pairs)

        @classmethod
        def tree_unflatten(cls, statics: Any, children: Any) -> Any:
            made = object.__new__(cls)
            pairs = zip(children, statics, strict=True)
            made.x, made.y = (child if static is None else static for child, static in pairs)
            return made

    x = ByValue(jnp.ones(2), jnp.ones(2))
    axes = jax.tree.map(lambda leaf: 0, x)
    assert not jax.tree.leaves(axes)
    with pytest.raises(ValueError, match="in_axes"):
        jax.vmap(lambda each: each.x, in_axes=(axes,))(x)
    with pytest.raises(LawViolation) as caught:
        check_pytree(ByValue, laws=["any-leaf"])
    assert "though unflatten has stored each" in str(caught.value)
    assert "decide by field, not by value" in str(caught.value)
    assert "object.__new__" not in str(caught.value)


@jax.tree_util.register_pytree_with_keys_class
class UnflattenRefusesTracers(children.Body):
    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        if any(isinstance(child, jax.core.Tracer) for child in children):
            raise TypeError
        return super().tree_unflatten(aux, children)


@lw.pytree
class ConvertsAgain:
    n: int = lw.static_field(converter=lambda n: n + 1)


@pytest.mark.parametrize(
    ("cls", "law", "fix"),
    [
        (children.CopiedWithPlus, Law.ANY_LEAF, "return the children from flatten as they are"),
        (UnflattenRefusesTracers, Law.TRANSFORMATIONS, "unflatten with `object.__new__"),
        (children.ShapeInAux, Law.ANY_LEAF, "build aux_data from the statics alone"),
        (statics.FreshEachTime, Law.IDENTITY_MAP, "build aux_data from the statics alone"),
        (ConvertsAgain, Law.REPLACE, "let a converter and `__post_init__` keep"),
    ],
)
def test_the_fix_is_for_what_is_at_fault(cls: type, law: Law, fix: str) -> None:
    """One law is broken in several ways: the fix says which function is to change."""
    with pytest.raises(LawViolation, match=f"fix: .*{re.escape(fix)}"):
        check_pytree(cls, laws=[law], settings=FEW)


@lw.pytree
class OnDevice:
    device: lw.Static[jax.Device]


def test_a_static_that_cannot_be_copied() -> None:
    """A device has no copies; a shallow copy of an instance that holds it has the device."""
    check_pytree(st.just(OnDevice(jax.devices()[0])), laws=["copies"], settings=FEW)


def test_what_a_dataclass_holds_beside_its_fields() -> None:
    """`__post_init__` does not run again: what it stored beside the fields is gone."""

    @lw.pytree
    class Scaled:
        w: Any
        n: lw.Static[int] = 2

        def __post_init__(self) -> None:
            object.__setattr__(self, "scale", 3.0 * self.n)

        @functools.cached_property
        def half(self) -> float:
            return self.n / 2

    with pytest.raises(LawViolation, match=r"Scaled\.scale: breaks the law no-hidden-state"):
        check_pytree(Scaled, settings=FEW)
