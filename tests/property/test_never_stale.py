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

import leafwise as lw

from .zoo import Config, Own

STATICS = [1, True, 1.0, "a", (1, 2.0), Own(1, "x"), Own(1, "y"), Config(1), None, -1, -2]
statics = st.sampled_from(STATICS)
leaves = st.floats(allow_nan=False)


@lw.pytree
class Params:
    x: Any
    a: Any = lw.static_field(default=1)
    y: Any = None
    b: lw.Static[Any] = "b"


@lw.pytree(slots=True)
class SlottedParams:
    x: Any
    a: Any = lw.static_field(default=1)
    y: Any = None
    b: lw.Static[Any] = "b"


@lw.pytree
class WithInit:
    x: Any
    a: Any = lw.static_field()
    y: Any = None
    b: Any = lw.static_field(default="b")

    def __init__(self, x: Any, a: Any, y: Any = None, b: Any = "b") -> None:
        self.b, self.y, self.a, self.x = b, y, a, x


@lw.pytree(many_statics=True)
class Many(Params):
    pass


class Foreign:
    """A mutable class that was registered by hand."""

    def __init__(self, x: Any, a: Any, y: Any = None, b: Any = "b") -> None:
        self.x, self.a, self.y, self.b = x, a, y, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and vars(self) == vars(other)

    __hash__ = None


lw.register(Foreign, dynamic=["x", "y"], static=["a", "b"])

CLASSES = [Params, SlottedParams, WithInit, Many, Foreign]


class Freshness(RuleBasedStateMachine):
    """One instance goes through everything that can happen to it; a dict says what it holds."""

    cls: Any
    instance: Any
    model: dict[str, Any]

    @initialize(x=leaves, a=statics)
    def construct(self, x: float, a: Any) -> None:
        self.instance = self.cls(x, a)
        self.model = {"x": x, "a": a, "y": None, "b": "b"}

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
        name = data.draw(st.sampled_from(sorted(self.model)))
        value = data.draw(statics if name in "ab" else leaves)
        if not through_the_dict:
            self.attempt(name, value, lambda: object.__setattr__(self.instance, name, value))
        elif hasattr(self.instance, "__dict__"):
            self.attempt(name, value, lambda: vars(self.instance).update({name: value}))

    @rule(data=st.data())
    def set_openly(self, data: st.DataObject) -> None:
        if self.cls is not Foreign:
            name = data.draw(st.sampled_from([*sorted(self.model), "unknown"]))
            with pytest.raises(lw.errors.FrozenInstanceError):
                setattr(self.instance, name, 1)
            with pytest.raises(lw.errors.FrozenInstanceError):
                delattr(self.instance, name)

    @rule()
    def copied(self) -> None:
        self.instance = copy.copy(self.instance)

    @rule()
    def deep_copied(self) -> None:
        self.instance = copy.deepcopy(self.instance)

    @rule()
    def pickled(self) -> None:
        self.instance = pickle.loads(pickle.dumps(self.instance))  # noqa: S301

    @rule()
    def mapped(self) -> None:
        self.instance = jax.tree.map(lambda leaf: leaf, self.instance)

    @rule()
    def hashed_and_printed(self) -> None:
        if self.cls is not Foreign:
            hash(self.instance)
        repr(self.instance)

    @rule(data=st.data())
    def replaced(self, data: st.DataObject) -> None:
        if self.cls is Foreign:
            return
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.model[name] = data.draw(statics if name in "ab" else leaves)
        self.instance = lw.replace(self.instance, **{name: self.model[name]})

    @invariant()
    def treedef_is_that_of_a_new_instance(self) -> None:
        fresh = self.cls(**self.model)
        values, structure = jax.tree.flatten(self.instance)
        wanted, fresh_structure = jax.tree.flatten(fresh)
        assert structure == fresh_structure
        assert values == wanted
        assert [leaf for _, leaf in jax.tree.leaves_with_path(self.instance)] == wanted
        for name, value in self.model.items():
            assert type(getattr(self.instance, name)) is type(value)
            assert getattr(self.instance, name) == value
        rebuilt = jax.tree.unflatten(structure, values)
        for name, value in self.model.items():
            assert type(getattr(rebuilt, name)) is type(value)
            assert getattr(rebuilt, name) == value
        if self.cls is not Foreign:
            assert self.instance == fresh
            assert hash(self.instance) == hash(fresh)


@pytest.mark.parametrize("is_checked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cls", CLASSES)
def test_freshness(cls: Any, *, is_checked: bool) -> None:
    """Its treedef is that of a new one, also while every static is read at every flatten."""
    machine = type(f"Freshness{cls.__name__}", (Freshness,), {"cls": cls})
    with lw.debug.check_statics() if is_checked else contextlib.nullcontext():
        run_state_machine_as_test(machine, settings=settings(stateful_step_count=15))
