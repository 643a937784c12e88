"""The JSON of trees and statics: no two are confused, and what comes back is what was written."""

import collections
import dataclasses
import datetime as dt
import enum
import functools
import json
import pathlib
import re
import sys
import zoneinfo
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from tests.kit.processes import run_python
from tests.objects.samples import Color, Count, Pair, Row
from tests.property import zoo
from tests.property.zoo import Config, Identity, Own

import leafwise as lw
from leafwise._programs import description
from leafwise._programs.description import Record
from leafwise._statics.portable import PortableReader, dump, format_json
from leafwise.errors import PortableError
from leafwise.interop._checkpoint import (
    VERSION,
    describe_tree,
    fits,
    from_json,
    to_json,
)
from leafwise.interop.export import rebuild_static

differences = functools.partial(description.differences, fits=fits)


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Money:
    """Has its own ==, and a cache that pickling leaves out."""

    def __init__(self, cents: int) -> None:
        self.cents = cents
        self._cache = id(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)

    def __getstate__(self) -> dict[str, Any]:
        return {"cents": self.cents}


class Thing:
    @classmethod
    def make(cls) -> None: ...


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = 1

    def method(self) -> None: ...

    def other(self) -> None: ...


@jax.tree_util.register_pytree_node_class
class ByHand:
    """Its aux_data is its own, and its child has no name."""

    def __init__(self, x: Any, k: Any) -> None:
        self.x = x
        self.k = k

    def tree_flatten(self) -> tuple[tuple[Any], dict[str, Any]]:
        return (self.x,), {"k": self.k}

    @classmethod
    def tree_unflatten(cls, aux: dict[str, Any], children: tuple[Any]) -> "ByHand":
        return cls(*children, **aux)


@lw.pytree(many_statics=True)
class Many:
    x: Any
    a: lw.Static[Any] = 1


def text_of(value: Any) -> str:
    return dump(PortableReader().read(value, "P.a"))


def opaque_in(value: Any) -> list[str]:
    reader = PortableReader()
    reader.read(value, ".a")
    return [path for path, _ in reader.opaque]


@given(zoo.values)
def test_a_description_survives_its_text(value: Any) -> None:
    """What is read back from JSON is what was described."""
    described = describe_tree({"p": P(0.0, value)})
    again = from_json(json.loads(json.dumps(to_json(described.record))), "here")
    assert differences(described.record, again, "") == ()


# More of them in tests/property/zoo.py and tests/objects/samples.py.
DISTINCT = [
    *(Access.READ, Access.READ | Access.WRITE, Money(1), Money(2), Thing.make, json, int | None),
    *(jax.nn.relu, jax.nn.gelu, jnp.add, np.add, functools.partial(max, 1), np.array([1.0])),
    *(jax.tree_util.Partial(max, 1), pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("a/b")),
    *(jax.ShapeDtypeStruct((2,), "f4"), jax.ShapeDtypeStruct((2,), "i4"), re.compile("a")),
    *(re.compile("a", re.IGNORECASE), zoneinfo.ZoneInfo("UTC"), jax.sharding.PartitionSpec("x")),
    *(jax.lax.Precision.HIGH, "\ud800", "]['", jax.sharding.PartitionSpec("x", None), [1, 2]),
]


def test_values_made_to_be_confused_are_distinct() -> None:
    """No two of these values have one description, whatever ``==`` says of them."""
    texts = [text_of(value) for value in DISTINCT]
    twice = [text for text, count in collections.Counter(texts).items() if count > 1]
    assert not twice
    assert not [value for value in DISTINCT if opaque_in(value)]
    assert all(format_json(json.loads(text)) for text in texts)


def test_an_equal_object_has_an_equal_description() -> None:
    """An object with its own == is described as it is pickled: its caches do not count."""
    assert text_of(Money(3)) == text_of(Money(3)) != text_of(Money(4))


def a_lambda() -> Callable[[], int]:
    return lambda: 1


def test_a_function_that_was_replaced_is_opaque(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function whose name leads to another one by now is not known by that name."""
    old = a_lambda
    assert not opaque_in(old)
    monkeypatch.setattr(sys.modules[__name__], "a_lambda", opaque_in)
    assert opaque_in(old)


SCRIPT = """
    import jax, jax.numpy as jnp, leafwise as lw
    from leafwise._statics.portable import dump
    from leafwise.interop._checkpoint import describe_tree, to_json
    from tests.property.zoo import Color, Config, Point
    from tests.statics.judge import P

    class Frozen(dict):
        def __hash__(self):
            self._hash = hash(tuple(self.items()))
            return self._hash

    class Named:
        def __init__(self, name):
            self.name, self._cached_hash = name, hash(name)

        def __eq__(self, other):
            return isinstance(other, Named) and self.name == other.name

        def __hash__(self):
            return self._cached_hash

    value = (Frozen(a=1), Named("a"), frozenset({"a", "b", ("c", 1.0), jnp.tanh}), Color.RED,
             Config(1), Point(1, 2.0), lw.FrozenMapping(z=1, a=jax.nn.relu), lw.StaticArray([1.0]))
    tree = {"p": P(jnp.ones((2, 3)), value), "k": jax.random.key(0), "n": None, "s": {"é": 1.0}}
    print(dump(to_json(describe_tree(tree).record)))
"""


@pytest.mark.slow
def test_a_description_is_the_same_in_another_process() -> None:
    """Neither the seed of hashes, nor what objects remember of it, nor addresses reach it."""
    seeds = ({"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"} for seed in "12")
    texts = [run_python(SCRIPT, **variables) for variables in seeds]
    assert texts[0] == texts[1]
    assert b'"name"' in texts[0]
    assert b'"jax.nn:relu"' in texts[0]
    assert b'".p.x"' not in texts[0]
    assert b"['p'].x" in texts[0]


def described(tree: Any) -> Record:
    return describe_tree(tree).record


OD = collections.OrderedDict
STRUCTURES = [
    *((), [], {}, None, (1.0,), [1.0], {"0": 1.0}, {0: 1.0}, Pair(1.0, 2.0), (1.0, 2.0)),
    *((1.0, None), (None, 1.0), {"a": {}}, {"a": ()}, {"a": None}, OD(a=1.0, b=2.0)),
    *(OD(b=2.0, a=1.0), {"a": 1.0, "b": 2.0}, collections.defaultdict(list, a=1.0)),
    *(collections.defaultdict(dict, a=1.0), {"a": 1.0}, {Color.RED: 1.0}, {"x.y": {"z": 1.0}}),
    *({"x": {"y.z": 1.0}}, {1: 1.0}, {True: 1.0}, {1.0: 1.0}, {(1, 2): 1.0}, P(1.0), P(1.0, 2)),
    *(ByHand(1.0, 1), ByHand(1.0, True), ByHand((1.0,), 1), P(1.0).method, P(1.0).other),
    *(P((1.0,)), Many(1.0), Many(1.0, 2), jax.tree_util.Partial(max, 1.0)),
    *(jax.tree_util.Partial(min, 1.0), jnp.ones(2), jnp.ones(3), jnp.ones(2, "int32"), 1, True),
    *(1.0, 1j, jax.random.key(0), jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0)),
    jax.nn.relu,
]


def test_structures_are_distinct() -> None:
    """Two trees without a difference have one structure, and leaves of one kind."""
    texts = [dump(to_json(described(tree))) for tree in STRUCTURES]
    twice = [text for text, count in collections.Counter(texts).items() if count > 1]
    assert not twice
    for one in STRUCTURES:
        for other in STRUCTURES:
            found = differences(described(one), described(other), "tree")
            assert (one is other) or found


def test_two_places_of_one_path_are_refused() -> None:
    """A tree is not described if what is saved of one leaf could come back in another."""

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number

        def __lt__(self, other: "Key") -> bool:
            return self.number < other.number

        def __repr__(self) -> str:
            return "Key"

    with pytest.raises(lw.errors.CheckpointError, match=r"dict\[Key\]: two places of the tree"):
        describe_tree({Key(1): 1.0, Key(2): 2.0})


def test_differences_name_the_place_inside_a_static() -> None:
    """A difference is named as deep as both statics have the same parts."""
    one = P(1.0, Config((1, lw.FrozenMapping(act=jax.nn.relu)), "a" * 300))
    other = P(1.0, Config((1.0, lw.FrozenMapping(act=jax.nn.gelu)), "a" * 301))
    *found, long = differences(described(one), described(other), "P")
    assert long.saved != long.target
    assert [str(each) for each in found] == [
        "P.a.a[0]: saved 1, target 1.0",
        "P.a.a[1]['act']: saved jax.nn:relu, target jax.nn:gelu",
    ]


@pytest.mark.parametrize(
    "content",
    [{"version": VERSION + 1}, {"version": VERSION - 1}, {"format": "other"}, []],
    ids=["newer", "older", "other", "list"],
)
def test_what_is_not_a_description_is_refused(content: Any) -> None:
    """What is not a description of this version is an error that names the file."""
    with pytest.raises(lw.errors.CheckpointError, match=r"the file: (?s:.*)or a newer one"):
        from_json(content, "the file")


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Rated:
    rate: float
    rest: Any = dataclasses.field(default=(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted(Rated):
    more: int = 0


class Derived(Rated):
    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        object.__setattr__(self, "twice", 2 * rate)  # not a field


VALUES: list[Any] = [
    *(None, True, 1, 1.0, -0.0, float("nan"), 2**80, 1 - 0j, "a", "\ud800", b"\0", ..., ()),
    *((1, (True, 1.0)), frozenset({1, "a"}), {"a", 1}, [1, [2]], {"b": 1, 2: "a"}),
    *(Color.RED, Bits.A, Bits.A | Bits.B, Color, Rated, Rated(0.5, (1,)), Slotted(0.5, more=2)),
    *(Derived(1.0), Pair(1, Pair("a", None)), Row((1, 2)), jax.lax.Precision.HIGH, jnp),
    *(np.float32(2), np.int64(1), np.bool_(1), jnp.bfloat16.dtype.type(1)),
    *(np.dtype("int8"), jnp.bfloat16, lw.freeze({"a": [1, {"b": 2}]})),
    *(jax.nn.relu, jnp.tanh, functools.partial(jax.nn.gelu, approximate=True), np.sin, min),
]


@pytest.mark.parametrize("value", VALUES, ids=map(str, range(len(VALUES))))
def test_what_comes_back_is_what_was_written(value: Any) -> None:
    """Of the same type, and with the same JSON, which distinguishes what keys do."""
    written = json.loads(json.dumps(PortableReader().read(value, "")))
    again = rebuild_static(written, "P.x")
    assert type(again) is type(value)
    assert dump(PortableReader().read(again, "")) == dump(written)


@pytest.mark.parametrize(
    "value",
    [
        *(lambda: 0, Identity("a"), Identity("a").method, functools.partial(lambda: 0)),
        *(np.ones(3), (1, [object()]), dt.date(2020, 1, 2), Own(1), Count(3)),
    ],
    ids=["lambda", "id", "method", "partial", "array", "in", "date", "own", "number"],
)
def test_unportable_statics_raise_with_their_path(value: Any) -> None:
    """As a digest refuses it; of arrays and other objects there is not all in JSON."""
    with pytest.raises(PortableError, match=r"^P\.x"):
        rebuild_static(PortableReader().read(value, ""), "P.x")


@pytest.mark.parametrize(
    ("value", "written", "now", "words"),
    [
        (Color.RED, "Color.RED", "Color.ROT", r"there is no Color.ROT in "),
        (Bits.A | Bits.B, "Bits.B", "Bits.C", r"there is no Bits.C in "),
        (
            Rated(1.0),
            ".rate",
            ".speed",
            r"Rated has different fields here.*\n  in the file: .* speed",
        ),
        (
            (0, Slotted(1.0)),
            '".more": 0, ',
            "",
            r"Slotted has different fields here.*\n  in the file.*\n  here: .* more",
        ),
    ],
    ids=["enum", "flag", "renamed", "new"],
)
def test_what_the_class_lacks_here_is_named(value: Any, written: str, now: str, words: str) -> None:
    """A member of an enum or a field of a dataclass that came or went since."""
    text = json.dumps(PortableReader().read(value, ""), sort_keys=True)
    assert written in text
    with pytest.raises(PortableError, match=rf"^P\.x.*{words}"):
        rebuild_static(json.loads(text.replace(written, now)), "P.x")


CALLED: list[Any] = []


class Dangerous:
    def __init__(self, *args: Any) -> None:
        CALLED.append(args)

    def __class_getitem__(cls, item: Any) -> Any:
        CALLED.append(item)
        return cls


HERE = f"{__name__}:Dangerous"


@pytest.mark.parametrize(
    "written",
    [
        {"class": HERE, "parts": [1]},
        {"class": HERE, "parts": {"": 1}},
        {"class": HERE, "parts": {"": {"class": "dict", "parts": []}}},
        {"class": HERE, "parts": [{"class": "name", "parts": ["os:getcwd"]}, None, None]},
        {"class": "functools:reduce", "parts": {}},
        {"class": 3, "parts": []},
        {"class": "unknown", "parts": []},
        {"class": "numpy:dtype", "parts": ["os.getcwd()"]},
        {"class": "float", "parts": ["one"]},
        {"class": "name", "parts": ["no_such_module:f"]},
        {"class": "name", "parts": ["os:no_such_name"]},
        {"class": "name", "parts": [f"{HERE}.A"]},
        {"class": "name", "parts": [HERE, HERE]},
    ],
    ids=map(str, range(13)),
)
def test_a_file_calls_nothing(written: Any) -> None:
    """No class of a user's is called, nothing is unpickled, and all else is one kind of error."""
    with pytest.raises(PortableError, match=r"^P\.x"):
        rebuild_static(written, "P.x")
    assert CALLED == []
