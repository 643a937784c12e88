"""The law of freshness: a treedef is always that of an instance newly made of the same values."""

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.transforms.specimens import Config, ForeignLayer, Layer, ManyLayer, SlottedLayer

import leafwise as lw

from .zoo import Own

STATICS = [1, True, 1.0, "a", (1, 2.0), Own(1, "x"), Own(1, "y"), Config(1), None, -1, -2]
statics = st.sampled_from(STATICS)
leaves = st.floats(allow_nan=False)
CLASSES = [Layer, SlottedLayer, ManyLayer, ForeignLayer]
WAYS: list[Callable[[Any], Any]] = [
    *(copy.copy, copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))),  # noqa: S301
    lambda tree: jax.tree.map(lambda leaf: leaf, tree),
]


class Freshness(RuleBasedStateMachine):
    """One instance goes through everything that can happen to it; a dict says what it holds."""

    cls: Any
    instance: Any
    model: dict[str, Any]

    @initialize(w=leaves, act=statics)
    def construct(self, w: float, act: Any) -> None:
        self.instance = self.cls(w, act=act)
        self.model = {"w": w, "act": act, "b": 0.0, "config": Config()}

    def drawn(self, data: st.DataObject) -> tuple[str, Any]:
        """Draw a field and a value of it."""
        name = data.draw(st.sampled_from(sorted(self.model)))
        return name, data.draw(statics if name in ("act", "config") else leaves)

    def attempt(self, name: str, value: Any, change: Callable[[], None]) -> None:
        """Try a change that a user should not make: it is refused, without effect, or seen."""
        before = getattr(self.instance, name)
        with contextlib.suppress(AttributeError):
            change()
        now = getattr(self.instance, name)
        assert now is before or now is value
        self.model[name] = now

    @rule(data=st.data(), through_the_dict=st.booleans())
    def set_behind_our_back(self, data: st.DataObject, *, through_the_dict: bool) -> None:
        name, value = self.drawn(data)
        if not through_the_dict:
            self.attempt(name, value, lambda: object.__setattr__(self.instance, name, value))
        elif hasattr(self.instance, "__dict__"):
            self.attempt(name, value, lambda: vars(self.instance).update({name: value}))

    @rule(data=st.data())
    def set_openly(self, data: st.DataObject) -> None:
        if self.cls is not ForeignLayer:
            name = data.draw(st.sampled_from([*sorted(self.model), "unknown"]))
            with pytest.raises(lw.errors.FrozenInstanceError):
                setattr(self.instance, name, 1)
            with pytest.raises(lw.errors.FrozenInstanceError):
                delattr(self.instance, name)

    @rule(way=st.sampled_from(WAYS))
    def rebuilt(self, way: Callable[[Any], Any]) -> None:
        self.instance = way(self.instance)

    @rule()
    def hashed_and_printed(self) -> None:
        hash(self.instance)
        repr(self.instance)

    @rule(data=st.data())
    def replaced(self, data: st.DataObject) -> None:
        if self.cls is ForeignLayer:
            return
        name, self.model[name] = self.drawn(data)
        self.instance = lw.replace(self.instance, **{name: self.model[name]})

    @invariant()
    def treedef_is_that_of_a_new_instance(self) -> None:
        fresh = self.cls(**self.model)
        values, structure = jax.tree.flatten(self.instance)
        wanted, fresh_structure = jax.tree.flatten(fresh)
        assert structure == fresh_structure
        assert values == wanted
        assert [leaf for _, leaf in jax.tree.leaves_with_path(self.instance)] == wanted
        for instance in (self.instance, jax.tree.unflatten(structure, values)):
            for name, value in self.model.items():
                assert type(getattr(instance, name)) is type(value)
                assert getattr(instance, name) == value
        if self.cls is not ForeignLayer:
            assert self.instance == fresh
            assert hash(self.instance) == hash(fresh)


@pytest.mark.parametrize("is_checked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cls", CLASSES)
def test_freshness(cls: Any, *, is_checked: bool) -> None:
    """Its treedef is that of a new one, also while every static is read at every flatten."""
    machine = type(f"Freshness{cls.__name__}", (Freshness,), {"cls": cls})
    with lw.debug.check_statics() if is_checked else contextlib.nullcontext():
        run_state_machine_as_test(machine, settings=settings(stateful_step_count=15))
