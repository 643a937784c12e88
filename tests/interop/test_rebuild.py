"""Static values from their JSON: what comes back is what was written, and nothing is called."""

import dataclasses
import datetime as dt
import enum
import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.objects.samples import Color, Count, Pair, Row
from tests.property.zoo import Identity, Own

import leafwise as lw
from leafwise._statics.portable import PortableReader, dump
from leafwise.errors import PortableError
from leafwise.interop.export import rebuild_static


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    rest: Any = dataclasses.field(default=(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted(Config):
    more: int = 0


class Derived(Config):
    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        object.__setattr__(self, "twice", 2 * rate)  # not a field


VALUES: list[Any] = [
    *(None, True, 1, 1.0, -0.0, float("nan"), 2**80, 1 - 0j, "a", "\ud800", b"\0", ..., ()),
    *((1, (True, 1.0)), frozenset({1, "a"}), {"a", 1}, [1, [2]], {"b": 1, 2: "a"}),
    *(Color.RED, Bits.A, Bits.A | Bits.B, Color, Config, Config(0.5, (1,)), Slotted(0.5, more=2)),
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
def test_what_means_nothing_elsewhere_is_refused_by_path(value: Any) -> None:
    """As a digest refuses it; of arrays and other objects there is not all in JSON."""
    with pytest.raises(PortableError, match=r"^P\.x"):
        rebuild_static(PortableReader().read(value, ""), "P.x")


@pytest.mark.parametrize(
    ("value", "written", "now", "words"),
    [
        (Color.RED, "Color.RED", "Color.ROT", r"there is no Color.ROT in "),
        (Bits.A | Bits.B, "Bits.B", "Bits.C", r"there is no Bits.C in "),
        (
            Config(1.0),
            ".rate",
            ".speed",
            r"Config has different fields here.*\n  in the file: .* speed",
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
def test_what_its_class_has_not_here_is_named(
    value: Any, written: str, now: str, words: str
) -> None:
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
