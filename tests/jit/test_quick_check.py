"""The check before each call sees what has changed, and passes on what it is given."""

import dataclasses
import functools
import gc
import linecache
import re
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise._captures.places import CapturedPlace


class Rates(NamedTuple):
    """Read by the functions below."""

    first: float
    second: float


class Halved(Rates):
    """A named tuple that answers for one of its fields itself."""

    @property
    def first(self) -> float:  # type: ignore[override]
        return HALF["of"]


HALF = {"of": 0.25}
rates: Any = Rates(0.5, 2.0)


def summed(x: Any, y: Any = 10.0, *more: Any, scale: Any = 1.0, **others: Any) -> Any:
    return rates.first * (x + y + sum(more)) * scale + sum(others.values())


WAYS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1.0,), {}),
    ((1.0, 2.0), {}),
    ((1.0, 2.0, 3.0), {}),
    ((1.0, *range(12)), {}),
    ((1.0,), {"y": 2.0}),
    ((), {"x": 1.0, "scale": 3.0}),
    ((1.0, 2.0), {"scale": 3.0, "other": 4.0}),
    ((1.0, 2.0, 3.0), {"arg_0": 4.0, "args": 1.0, "kwargs": 2.0, "not_given": 3.0}),
]


@pytest.mark.slow  # eight programs, twice
def test_any_way_to_call_after_any_other() -> None:
    """A call finds its arguments, whichever way the call was made that the check is made for."""
    its = jax.jit(summed)
    for first, named_first in WAYS:
        mine = lw.jit(summed)
        mine(*first, **named_first)
        for args, named in WAYS:
            assert mine(*args, **named) == its(*args, **named)


def two(x: Any, y: Any) -> Any:
    return rates.second * (x + y)


@pytest.mark.parametrize("given", [(), (1.0,), (1.0, 2.0, 3.0), (1.0, 2.0, {"z": 1.0})])
def test_wrong_arguments_are_refused_by_jax(given: tuple[Any, ...]) -> None:
    """The error is JAX's own, also once there is a check."""
    *args, named = given if given and isinstance(given[-1], dict) else (*given, {})
    mine, its = lw.jit(two), jax.jit(two)
    mine(1.0, 2.0)
    with pytest.raises(TypeError) as expected:
        its(*args, **named)
    with pytest.raises(TypeError) as found:
        mine(*args, **named)
    assert str(found.value) == str(expected.value)


def test_a_field_of_a_named_tuple_is_read_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code of the user's runs in that; a property in its place is followed instead."""
    read: list[Any] = []
    original = CapturedPlace.read
    counting = lambda place: (read.append(place), original(place))[1]  # noqa: E731
    monkeypatch.setattr(CapturedPlace, "read", counting)
    step = lw.jit(lambda x: x * rates.second)
    step(1.0)
    read.clear()
    step(2.0)
    assert not read
    monkeypatch.setitem(globals(), "rates", Halved(1.0, 2.0))
    halved = lw.jit(lambda x: x * rates.first, stale="raise")
    assert halved(1.0) == 0.25
    monkeypatch.setitem(HALF, "of", 0.125)
    with pytest.raises(lw.errors.StaleCaptureError, match="HALF"):
        halved(1.0)


class Plain:
    """An object that says nothing on how it is read."""

    kind = "plain"

    def __init__(self, rate: Any) -> None:
        self.rate = rate

    def doubled(self) -> float:
        return 2 * self.rate


class Slotted:
    """An object without a `__dict__`."""

    __slots__ = ()

    def one(self) -> float:
        return 1.0


class Other(Plain):
    """What an object can become by its `__class__`."""

    kind = "other"


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A dataclass with a container."""

    rate: float
    more: list[float]


@lw.pytree
class Ours:
    """A child, and a static that is kept in the key."""

    rate: float
    depth: int = lw.static_field(default=2)


class Cached:
    """An object with a slot and a dict, and what follows from the slot in the dict."""

    __slots__ = ("__dict__", "__weakref__", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        assert self.cached == rate

    @functools.cached_property
    def cached(self) -> float:
        return self.rate


class Scaling:
    """A callable that takes no weak references."""

    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return x * self.by


class Key:
    """A key that equals a text."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        return other == "a"


def _rename(value: dict[Any, float]) -> None:
    value.clear()
    value[Key()] = 1.0


def _let_go(value: Any, now: Any) -> None:
    value.rate = None
    gc.collect()
    value.rate = now()


def _inside(value: Any, name: str) -> Any:
    """Read an attribute in a way that shows nobody which one it is."""
    return next(getattr(value, each) for each in dir(value) if each == name)


def _letters(letter: str) -> str:
    return "".join([letter] * 3000)


def _scale(x: Any, by: Any = 2.0) -> Any:
    return x * by


def _swap(function: Any, code: Any) -> None:
    function.__code__ = code.__code__


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "an attribute": (
        lambda: Plain(1.0),
        lambda value: value.rate,
        lambda value: setattr(value, "rate", 2.0),
    ),
    "a frozen dataclass": (
        lambda: Frozen(1.0, [2.0]),
        lambda value: value.rate,
        lambda value: object.__setattr__(value, "rate", 2.0),
    ),
    "a list in it": (
        lambda: [Frozen(1.0, [1.0])],
        lambda value: sum(value[0].more),
        lambda value: value[0].more.append(1.0),
    ),
    "an item of a dict": (
        lambda: {"{a}": {"b": [1.0]}},
        lambda value: value["{a}"]["b"][0],
        lambda value: value["{a}"]["b"].__setitem__(0, 2.0),
    ),
    "the order of a dict": (
        lambda: {"a": 1.0, "b": 2.0},
        lambda value: next(iter(value.values())),
        lambda value: value.update(a=value.pop("a")),
    ),
    "one in a named tuple": (
        lambda: Rates(Plain(1.0), 1.0),
        lambda value: value.first.rate,
        lambda value: setattr(value.first, "rate", 2.0),
    ),
    "a method": (
        lambda: Plain(1.0),
        lambda value: value.doubled() / 2,
        lambda value: setattr(value, "doubled", lambda: 4.0),
    ),
    "the method of an object with slots": (
        Slotted,
        lambda value: value.one(),
        lambda value: setattr(type(value), "one", lambda _: 2.0),
    ),
    "the code of a function": (
        lambda: types.FunctionType(_scale.__code__, {}, argdefs=(2.0,)),
        lambda value: value(0.5),
        lambda value: _swap(value, lambda x, by: 2 * x * by),
    ),
    "the default of a function": (
        lambda: types.FunctionType(_scale.__code__, {}, argdefs=(2.0,)),
        lambda value: value(0.5),
        lambda value: setattr(value, "__defaults__", (4.0,)),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_of_what_is_captured_is_seen(what: str) -> None:
    """The check reads all parts of a value itself, and one that changes is another program."""
    make, read, change = CHANGES[what]
    value = make()
    step = lw.jit(lambda x: x * read(value), stale="retrace")
    assert step(1.0) == step(1.0) == 1.0
    assert len(step.traces) == 1
    assert not {"same_", "read_"} & set(re.findall(r"[a-z]+_", _source_of_check(step)))
    change(value)
    assert step(1.0) == 2.0


def _shared() -> Plain:
    inside = Plain(1.0)
    inside.first = 1.0  # type: ignore[attr-defined]
    value = Plain(lambda: inside.first)  # type: ignore[attr-defined]
    vars(value)["inside"] = inside
    return value


UNSEEN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a slot of which a cached property has the value": (
        lambda: Cached(1.0),
        lambda value: _inside(value, "rate"),
        lambda value: setattr(value, "rate", 2.0),
    ),
    "an object in a static of ours": (
        lambda: Ours(1.0, depth=(3, Plain(1.0))),  # type: ignore[arg-type]
        lambda value: _inside(_inside(value, "depth")[1], "rate"),
        lambda value: setattr(value.depth[1], "rate", 2.0),
    ),
    "a key that equals the one before": (
        lambda: {"a": 1.0},
        lambda value: 1.0 if type(next(iter(value))) is str else 2.0,
        _rename,
    ),
    "none in the place of an array that is gone": (
        lambda: Plain(jnp.ones(3)),
        lambda value: 2.0 if _inside(value, "rate") is None else 1.0,
        lambda value: _let_go(value, lambda: None),
    ),
    "a long text in the place of one that is gone": (
        lambda: Plain(_letters("a")),
        lambda value: {"a": 1.0, "b": 2.0}[_inside(value, "rate")[0]],
        lambda value: _let_go(value, lambda: _letters("b")),
    ),
    "an object that a function before it has, too": (
        _shared,
        lambda value: _inside(value, "rate")() * _inside(_inside(value, "inside"), "rate"),
        lambda value: setattr(value.inside, "rate", 2.0),
    ),
    "a callable in a partial": (
        lambda: functools.partial(Scaling(1.0), 1.0),
        lambda value: value(),
        lambda value: setattr(value.func, "by", 2.0),
    ),
}


@pytest.mark.parametrize("what", UNSEEN)
def test_a_change_far_inside_is_seen(what: str) -> None:
    """Also one that no name in the code of the function leads to."""
    make, read, change = UNSEEN[what]
    held = [make()]
    step = lw.jit(lambda x: x * read(held[0]), stale="retrace")
    assert step(1.0) == step(1.0) == 1.0
    assert len(step.traces) == 1
    change(held[0])
    assert step(1.0) == 2.0


def _source_of_check(function: Any) -> str:
    return "".join(linecache.getlines(function.__call__.__code__.co_filename))


def test_a_tuple_of_numbers_is_compared_at_once() -> None:
    """It cannot change: one comparison is enough, and another tuple is looked into."""
    sizes: Any = (1.0, (2.0, 3.0))

    def grow(x: Any) -> Any:
        return x * sizes[1][1]

    step = lw.jit(grow, stale="retrace")
    assert step(1.0) == 3.0
    assert "[0]" not in _source_of_check(step)
    sizes = (1.0, (2.0, 3.0))
    assert (step(1.0), len(step.traces)) == (3.0, 1)
    sizes = (1.0, (2.0, 4.0))
    assert (step(1.0), len(step.traces)) == (4.0, 2)


def test_what_is_captured_is_not_kept_alive() -> None:
    """Neither an object nor an array in it, once the function has another one."""
    held = [Plain(jnp.ones(3))]
    object_, array = weakref.ref(held[0]), weakref.ref(held[0].rate)
    step = lw.jit(lambda x: x * sum(each.rate.shape[0] for each in list(held)) / 3)  # whole
    assert step(1.0) == step(1.0) == 1.0
    assert ".rate" in _source_of_check(step) or "['rate']" in _source_of_check(step)
    held[0] = Plain(jnp.ones(3))
    gc.collect()
    assert object_() is None
    assert array() is None
