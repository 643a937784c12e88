"""Values that Python calls equal, and classes of one shape, which traced code can distinguish."""

import datetime
import enum
import uuid
import zoneinfo
from collections import namedtuple
from typing import Annotated, Any, Literal

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pydantic
import pytest
from tests.property.zoo import Config, Level

import leafwise as lw

from .judge import calls

pytestmark = pytest.mark.hazard


class Rank(enum.IntEnum):
    FIRST = 1


class Word(enum.StrEnum):
    RELU = "relu"


class Scalar(np.float64):
    tag: object = None


class Items(list[object]):
    def __hash__(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(tuple(self))


class Layer(eqx.Module):
    size: object = eqx.field(static=True)


@attrs.define(unsafe_hash=True)
class Hashed:
    """Not frozen, but it promises not to change; what it does not compare may."""

    value: Any
    last: Any = attrs.field(default=None, eq=False)


class Struct(msgspec.Struct, frozen=True):
    size: Any
    last: Any = None


class Model(pydantic.BaseModel, frozen=True):
    size: Any
    last: Any = None


@attrs.frozen
class Rate:
    size: object


class Noted(Rate):
    def __init__(self, size: object, note: object) -> None:
        super().__init__(size)
        self.__dict__["note"] = note


def tagged(value: Any, tag: object) -> Any:
    value.tag = tag
    return value


Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  # the untyped kind is meant
Size = namedtuple("Size", ["x", "y"])  # noqa: PYI024


UTC = datetime.UTC
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)

# All of these are equal in Python, so that plain JAX takes one for the other.
EQUAL: dict[str, tuple[Any, Any]] = {
    "int-bool": (1, True),
    "str-enum": ("relu", Word.RELU),
    "tuple-namedtuple": ((1, 2), Point(1, 2)),
    "two-namedtuples": (Point(1, 2), Size(1, 2)),
    "zero-sign": (0.0, -0.0),
    "dtype-name": ("float32", np.dtype("float32")),
    "jnp-np-dtype": (jnp.float32, np.float32),
    "np-subclass-state": (tagged(Scalar(1), 1), tagged(Scalar(1), 2)),
    "instant-zone-kind": (NOON, NOON.astimezone(zoneinfo.ZoneInfo("UTC"))),
    "hashable-list": (Items([1]), Items([True])),
    "memoryview-format": (memoryview(b"a"), memoryview(b"a").cast("b")),
    "equinox-static": (Layer(1), Layer(True)),
    "attrs-hashed": (Hashed(1), Hashed(True)),
    "alias": (list[1], list[True]),  # type: ignore[valid-type]
    "alias-metadata-enum": (Annotated[int, Level.LOW], Annotated[int, Rank.FIRST]),
    "alias-in-alias": (list[Annotated[int, 1]], list[Annotated[int, True]]),
    "literal-order": (Literal[1, 2], Literal[2, 1]),
    "msgspec": (Struct(1), Struct(True)),
    "msgspec-deep": (Struct(((0.0,), 1)), Struct(((-0.0,), 1))),
    "pydantic": (Model(size=1), Model(size=1.0)),
    "attrs-subclass-state": (Noted(1, 2), Noted(1, 3)),
    "uuid-safe": (
        uuid.UUID(int=1),
        uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
    ),
    "not-compared-field": (Config(1, "a"), Config(1, "b")),
    "mapping-order": (
        lw.FrozenMapping({"a": 1, "b": 2}),
        lw.FrozenMapping({"b": 2, "a": 1}),
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_get_their_own_programs(cls: Any, sound: bool, name: str) -> None:
    """Each value gets a program traced for it; plain JAX answers the second from the first."""
    first, second = EQUAL[name]
    assert first == second, "not a hazard"
    if not sound:
        assert calls(cls, first, second, first).programs == [1, 1, 1]
        return
    verdict = calls(cls, first, second, first)
    assert verdict.programs == [1, 2, 1]
    assert [type(static) for static in verdict.statics] == [type(first), type(second)]


@pytest.mark.parametrize(
    "statics",
    [
        (1, True, 1.0, np.float32(1), np.int64(1), np.float16(1), np.bool_(True), Level.LOW),
        ((1, 2), (1.0, 2.0), (True, 2)),
    ],
    ids=["scalars", "tuples"],
)
def test_result_is_that_of_a_fresh_program(cls: Any, sound: bool, statics: Any) -> None:
    """dtype and value are those of a function that was never called before."""

    def body(p: Any) -> Any:
        factor = p.s[0] if isinstance(p.s, tuple) else p.s
        return p.x * factor

    program = jax.jit(body)
    x = jnp.ones(2, jnp.int8)
    wanted = [jax.jit(lambda p: body(p))(cls(x, static)).dtype for static in statics]
    assert len(set(wanted)) > 1
    got = [program(cls(x, static)).dtype for static in statics]
    assert (got == wanted) is sound


def test_negative_zero_keeps_its_infinity(cls: Any, sound: bool) -> None:
    """``1 / -0.0`` is minus infinity, whichever zero came first."""
    program = jax.jit(lambda p: p.x / p.s)
    one = jnp.float32(1)
    assert program(cls(one, 0.0)) == jnp.inf
    assert program(cls(one, -0.0)) == (-jnp.inf if sound else jnp.inf)
