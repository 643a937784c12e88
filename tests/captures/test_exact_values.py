"""A captured value is what it was only if its types, bits, order and sharing are."""

import collections
import datetime as dt
import decimal
import functools
import types
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

pytestmark = pytest.mark.hazard

jit: Any = lw.jit  # so that lambdas need no types


def made(text: str) -> Any:
    """Return a value that no constant of this file is."""
    return eval(text)  # noqa: S307  # ours


def longdouble(padding: int) -> Any:
    """Return a number whose padding, where there is any, has these bits."""
    data = bytearray(np.longdouble(1).tobytes())
    if np.finfo(np.longdouble).nmant == 63:
        data[10:] = bytes([padding]) * (len(data) - 10)
    return np.frombuffer(bytes(data), np.longdouble)[0]


def structured(unit: str) -> Any:
    """Return an array whose dtype has a field with metadata."""
    return np.zeros(2, [("a", np.dtype("f4", metadata={"unit": unit}))])


def in_order(*keys: str) -> Any:
    return collections.OrderedDict.fromkeys(keys, 1.0)


class Held:
    def __init__(self, *held: Any) -> None:
        self.held = held


OTHERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "types in a set": (lambda: {1}, lambda: {True}),
    "types in a frozenset": (lambda: frozenset({1}), lambda: frozenset({1.0})),
    "sign of an imaginary zero": (lambda: {0j}, lambda: {made("-0j")}),
    "sign of a zero": (lambda: [0.0], lambda: [-0.0]),
    "sign of a zero in NumPy": (lambda: [np.float32(0)], lambda: [np.float32(-0.0)]),
    "bits of nan": (
        lambda: np.array([0x7FC00000], np.uint32).view(np.float32)[0],
        lambda: np.array([0x7FC00001], np.uint32).view(np.float32)[0],
    ),
    "type of a key": (lambda: {1: 2.0}, lambda: {True: 2.0}),
    "order of keys": (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
    "order of an OrderedDict": (lambda: in_order("a", "b"), lambda: in_order("b", "a")),
    "default_factory": (
        lambda: collections.defaultdict(int, a=1),
        lambda: collections.defaultdict(float, a=1),
    ),
    "maxlen": (lambda: collections.deque([1], 2), lambda: collections.deque([1], 3)),
    "dtype of a scalar": (lambda: np.float32(1), lambda: np.float64(1)),
    "weak type": (lambda: jnp.array(1.0), lambda: jnp.float32(1.0)),
    "digits of a Decimal": (lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
    "fold of a time": (
        lambda: dt.datetime(2020, 1, 1),  # noqa: DTZ001  # it has no zone
        lambda: dt.datetime(2020, 1, 1, fold=1),  # noqa: DTZ001
    ),
    "zone of a time": (
        lambda: dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
        lambda: dt.datetime(2020, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ),
    "range": (lambda: range(0, 3, 2), lambda: range(0, 4, 2)),
    "metadata of a dtype": (
        lambda: np.dtype("f4", metadata={"unit": "m"}),
        lambda: np.dtype("f4", metadata={"unit": "s"}),
    ),
    "metadata of a field": (lambda: structured("m"), lambda: structured("s")),
    "attribute of a subclass of str": (
        lambda: setting("a", 1),
        lambda: setting("a", 2),
    ),
    "sharing of lists": (lambda: shared([1]), lambda: [[1], [1]]),
    "sharing of objects": (lambda: shared(Held(1)), lambda: [Held(1), Held(1)]),
    "sharing of arrays": (lambda: shared(np.ones(2)), lambda: [np.ones(2), np.ones(2)]),
}


class Text(str):
    """A text with an attribute."""

    __slots__ = ("level",)


def setting(text: str, level: int) -> Text:
    value = Text(text)
    value.level = level
    return value


def shared(value: Any) -> list[Any]:
    return [value, value]


@pytest.mark.parametrize("kind", OTHERS)
def test_what_differs_is_stale(kind: str) -> None:
    """Though `==` says that both are equal; a value that is made in the same way is no change."""
    first, second = OTHERS[kind]
    value = first()
    jitted = jit(lambda x: (x, repr(value))[0], stale="raise")
    jitted(1.0)
    value = first()
    jitted(1.0)
    value = second()
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)
    value = first()
    jitted(1.0)


def test_padding_is_no_difference() -> None:
    """What follows the ten bytes of a long double of x86 is nobody's."""
    value = longdouble(0)
    jitted = jit(lambda x: (x, repr(value))[0], stale="raise")
    jitted(1.0)
    value = longdouble(255)
    jitted(1.0)


def in_place(kind: str) -> tuple[Any, Callable[[], None]]:
    """Return a value, and what changes it in place."""
    if kind == "set":
        value: Any = {1, 2}

        def change() -> None:
            value.discard(1)
            value.add(True)

    elif kind == "OrderedDict":
        value = in_order("a", "b")
        change = functools.partial(value.move_to_end, "a")
    elif kind == "dict":
        value = {"a": 1, "b": 1}
        change = lambda: value.update(a=value.pop("a"))  # noqa: E731
    elif kind == "key":
        value = {1: "a"}

        def change() -> None:
            value[True] = value.pop(1)

    elif kind == "sharing":
        value = shared([1])

        def change() -> None:
            value[1] = list(value[0])

    elif kind == "class":
        value = [types.SimpleNamespace(a=1)]
        change = lambda: setattr(value[0], "a", True)  # noqa: E731
    elif kind == "code":
        value = [lambda x: x]
        change = lambda: setattr(value[0], "__code__", (lambda x: x * 2).__code__)  # noqa: E731
    elif kind == "property":
        value = [property(lambda _: 1)]

        def change() -> None:
            value[0] = property(lambda _: 2)

    else:
        value = bytearray(b"a")
        change = lambda: value.extend(b"b")  # noqa: E731
    return value, change


@pytest.mark.parametrize(
    "kind",
    ["set", "OrderedDict", "dict", "key", "sharing", "class", "code", "property", "bytearray"],
)
def test_a_change_in_place_is_stale(kind: str) -> None:
    """Also where both values are equal, and the object is the same one."""
    value, change = in_place(kind)
    jitted = jit(lambda x: (x, repr(value))[0], stale="raise")
    for _ in range(2):
        jitted(1.0)
    change()
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)


class EqualClasses(type):
    """The class of classes that say that they are equal to all others."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 1


@pytest.mark.parametrize("metaclass", [type, EqualClasses])
@pytest.mark.parametrize("name", ["One", "Other"])
@pytest.mark.parametrize(
    "inside",
    [lambda c: c, lambda c: [c], lambda c: (c,), lambda c: {"a": c}],
    ids=["itself", "list", "tuple", "dict"],
)
def test_an_object_of_another_class_is_stale(metaclass: Any, name: str, inside: Any) -> None:
    """Also where the classes have one name, or their metaclass says that they are equal."""
    one, other = metaclass("One", (), {}), metaclass(name, (), {})
    value = inside(one())
    jitted = jit(lambda x: (x, repr(value))[0], stale="raise")
    for _ in range(2):
        jitted(1.0)
    value = inside(one())
    jitted(1.0)
    value = inside(other())
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)


def test_a_partial_that_says_other_arguments() -> None:
    """What it passes on counts, and not the attributes of its class."""

    class Misleading(functools.partial[Any]):
        # Other attributes than those of the base, which is what misleads.
        args = property(lambda _: ())  # type: ignore[assignment]
        keywords = property(lambda _: {})  # type: ignore[assignment]

    value = [Misleading(max, 1)]
    jitted = jit(lambda x: x * value[0](0), stale="raise")
    assert jitted(1.0) == 1.0
    value[0] = Misleading(max, 2)
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)
