"""Equal statics in new objects: one program, where plain JAX often makes another."""

import dataclasses
import functools
import operator
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import count_events

import leafwise as lw

from .judge import Sound, calls
from .test_distinct import Model, Struct

pytestmark = pytest.mark.hazard


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    sizes: tuple[int, ...] = (1, 2)

    def scaled(self, x: Any) -> Any:
        return x * self.rate


@dataclasses.dataclass(frozen=True)
class Held:
    """A frozen dataclass that holds things which compare by identity in plain Python."""

    call: Any


def activation(x: Any, slope: float = 0.1) -> Any:
    return jnp.where(x > 0, x, x * slope)


# A new one each call, for every one of which plain JAX retraces.
FRESH: dict[str, Callable[[], Any]] = {
    "nan": lambda: float("nan"),
    "nan-in-tuple": lambda: (1, float("nan")),
    "nan-in-config": lambda: Config(float("nan")),
    "partial": lambda: functools.partial(activation, slope=0.2),
    "partial-in-config": lambda: Held(functools.partial(activation, slope=0.2)),
    "partial-of-method": lambda: functools.partial(Config(0.5).scaled, 1.0),
    "jax-partial": lambda: jax.tree_util.Partial(activation, slope=0.2),
    "method-of-nan": lambda: Config(float("nan")).scaled,
    "pydantic": lambda: Model(size=(1, float("nan"))),
    "msgspec": lambda: Struct((1, float("nan"))),
    "attrgetter": lambda: operator.attrgetter("real", "imag"),
    "itemgetter": lambda: operator.itemgetter(slice(1), 2),
    "methodcaller": lambda: operator.methodcaller("scaled", 2.0, rate=(1,)),
    "iinfo": lambda: np.iinfo(np.int32),
    "method": lambda: Config(0.5).scaled,
}


@pytest.mark.parametrize("kind", FRESH)
def test_fresh_equal_statics_share_a_program(cls: Any, sound: bool, kind: str) -> None:
    """The second and third instance are answered by the program of the first."""
    make = FRESH[kind]
    programs = calls(cls, make(), make(), make()).programs
    assert programs == ([1, 1, 1] if sound else [1, 2, 3])


def test_compiles_are_counted_by_jax(cls: Any, sound: bool) -> None:
    """JAX's own events agree: one trace, lowering and compile for four fresh NaNs."""

    def judged(p: Any) -> Any:
        return p.x * 2 + jnp.nan_to_num(p.s)

    program = jax.jit(judged)
    with count_events("judged") as counts:
        for _ in range(4):
            program(cls(jnp.float32(1), float("nan")))
    count = 1 if sound else 4
    assert (counts.traces, counts.lowerings, counts.compiles) == (count, count, count)


class Name(str):
    @functools.cached_property
    def loud(self) -> str:
        return self.upper()


class Size(namedtuple("Size", ["a"])):  # noqa: PYI024, SLOT002
    @functools.cached_property
    def doubled(self) -> int:
        return self.a * 2


@dataclasses.dataclass(frozen=True)
class Depth:
    a: int

    @functools.cached_property
    def doubled(self) -> int:
        return self.a * 2


@attrs.frozen
class Slotted:
    a: int

    @functools.cached_property
    def doubled(self) -> list[int]:
        return [self.a, self.a]


@dataclasses.dataclass(frozen=True)
class Remembers:
    """Keeps what it has computed, without cached_property."""

    a: int

    @property
    def by_hand(self) -> list[int]:
        if "_kept" not in self.__dict__:
            object.__setattr__(self, "_kept", [self.a])
        return vars(self)["_kept"]

    def __hash__(self) -> int:
        object.__setattr__(self, "_hash", hash(self.a))
        return vars(self)["_hash"]

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in self.__dict__.items() if name != "_kept"}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        pytest.param(lambda: Slotted(1), "doubled", id="attrs-slots"),
        pytest.param(lambda: Remembers(1), "by_hand", id="setattr"),
        pytest.param(lambda: Remembers(1), "__hash__", id="hash"),
        pytest.param(lambda: Name("a"), "loud", id="str"),
        pytest.param(lambda: Size(1), "doubled", id="namedtuple"),
        pytest.param(lambda: Depth(1), "doubled", id="dataclass"),
    ],
)
def test_a_cached_property_of_a_static_is_no_change(make: Any, name: str) -> None:
    """A static that remembers what it has computed is the same static as before."""
    static = make()
    before = Sound(1.0, static)
    structure = jax.tree.structure(before)
    hash(static) if name == "__hash__" else getattr(static, name)
    assert jax.tree.structure(Sound(1.0, static)) == structure
    assert jax.tree.structure(Sound(1.0, make())) == structure
    with lw.debug.check_statics():
        assert jax.tree.structure(before) == structure


def test_nested_frozen_dicts_of_flax_have_not_changed() -> None:
    """A mapping that makes its values when they are read is not reported as changed."""
    flax = pytest.importorskip("flax.core", reason="has no wheel for Python 3.15")
    static = flax.FrozenDict({"a": {"b": 1}})
    instance = Sound(1.0, static)
    with lw.debug.check_statics():
        assert jax.tree.structure(instance) == jax.tree.structure(Sound(1.0, static))


class FrozenDictWithHash(dict[str, int]):
    """A dict as those of the frozendict package: its one slot remembers the hash."""

    __slots__ = ("kept",)

    def __hash__(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        self.kept = hash(frozenset(self.items()))
        return self.kept


def test_a_dict_with_as_many_slots_as_items_is_read() -> None:
    """A hashable dict whose slot remembers its hash is one static, before and after."""
    static = FrozenDictWithHash(a=1)
    structure = jax.tree.structure(Sound(1.0, static))
    assert structure == jax.tree.structure(Sound(1.0, FrozenDictWithHash(a=1)))
    assert structure != jax.tree.structure(Sound(1.0, FrozenDictWithHash(a=True)))
    with lw.debug.check_statics():
        hash(static)
        assert structure == jax.tree.structure(Sound(1.0, static))
