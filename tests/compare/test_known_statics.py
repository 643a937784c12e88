"""Known differences of static values, library by library: predicted and observed."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest
from tests.kit.specimens import Equinox, Flax, Jdc, Plain, Slotted
from tests.statics.test_distinct import EQUAL

import leafwise as lw
from leafwise.types import Outcome, ReasonKind

from .pairs import call, first_device, helper, ones, two_calls

pytestmark = pytest.mark.oracle

REUSE, DISPATCH = Outcome.REUSE, Outcome.DISPATCH
RECOMPILE, RETRACE, ERROR = Outcome.RECOMPILE, Outcome.RETRACE, Outcome.ERROR


PLAIN = [Plain, Flax, Equinox, Jdc]


class Machine:
    """Compares by identity."""

    def method(self) -> int:
        return 1


confused = pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")  # Equinox says it
@pytest.mark.parametrize(
    ("cls", "one", "other"),
    [
        pytest.param(cls, *pair, id=f"{cls.__name__}-{name}")
        for cls in PLAIN
        for name, pair in EQUAL.items()
        if cls is Plain or name in ("int-bool", "not-compared-field")
    ],
)
def test_equal_statics_of_other_libraries_are_marked(cls: Any, one: Any, other: Any) -> None:
    """JAX shares one program for two values: predicted, and marked unsound, with the field."""
    jax.clear_caches()  # JAX compares with the statics of all programs: of an array it fails
    seen = two_calls(call(cls(ones(3), one)), call(cls(ones(3), other)))
    assert seen.outcome is REUSE, "the table is wrong about JAX"
    assert seen.predicted.outcome is REUSE, str(seen.predicted)
    assert seen.equal
    assert not seen.predicted.reasons
    assert [reason.path for reason in seen.predicted.unsound] == ["args[0].n"]


@confused
def test_leafwise_statics_retrace(one: Any, other: Any) -> None:
    """A leafwise class gives each of two such values its own program, as predicted."""
    seen = two_calls(call(Slotted(ones(3), one)), call(Slotted(ones(3), other)))
    assert seen.outcome is RETRACE, "the table is wrong about leafwise"
    assert seen.predicted.outcome is RETRACE, str(seen.predicted)
    assert not seen.equal
    assert [reason.path for reason in seen.predicted.reasons] == ["args[0].n"]
    assert seen.predicted.reasons[0].kind is ReasonKind.STATIC
    assert not seen.predicted.unsound


# A new object on every call: JAX retraces each time.
CHURN: dict[str, Callable[[], Any]] = {
    "lambda": lambda: lambda x: x,
    "partial": lambda: functools.partial(helper, 1),
    "closure": lambda: closure(),
    "bound method": lambda: Machine().method,
    "identity object": lambda: Machine(),
}


def closure() -> Callable[[int], int]:
    def inner(x: int) -> int:
        return x

    return inner


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        pytest.param(name, cls, id=f"{name}-{cls.__name__}")
        for cls in PLAIN
        for name in CHURN
        if cls is Plain or name == "lambda"
    ],
)
def test_fresh_statics_retrace(cls: Any, name: str) -> None:
    """A value that is recreated for each call retraces; the field is named."""
    make = CHURN[name]
    seen = two_calls(call(cls(1.0, make())), call(cls(1.0, make())))
    assert seen.outcome is RETRACE, "the table is wrong about JAX"
    assert seen.predicted.outcome is RETRACE
    (reason,) = seen.predicted.reasons
    assert (reason.path, reason.kind) == ("args[0].n", ReasonKind.STATIC)


@pytest.mark.parametrize("cls", [*PLAIN, Slotted], ids=lambda cls: cls.__name__)
def test_an_optimizer_built_again_retraces(cls: Any) -> None:
    """A rebuilt optimizer is another value; its class is named, and none of its functions."""
    seen = two_calls(call(cls(1.0, optax.adam(0.1))), call(cls(1.0, optax.adam(0.1))))
    assert seen.outcome is RETRACE
    assert seen.predicted.outcome is RETRACE
    (reason,) = seen.predicted.reasons
    assert reason.path == "args[0].n"
    assert reason.words == ("optax.GradientTransformationExtraArgs", "a new one")


def test_an_optimizer_of_filter_jit_is_one_line() -> None:
    """Its functions are leaves there: they are reasons of their own, and shown as one."""
    one, two = (lw.signature({"opt": optax.adam(0.1)}, filter_jit=True) for _ in range(2))
    found = two.explain(one)
    assert len(found.reasons) == 2
    (shown,) = found.as_dict()["reasons"]
    name = "optax.GradientTransformationExtraArgs"
    assert shown["path"] == "args[0]['opt']"
    assert (shown["before"], shown["after"]) == (name, "a new one")
    assert len(str(found).splitlines()) == 3


@pytest.mark.parametrize("cls", PLAIN, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("wrap", [lambda nan: nan, lambda nan: (1, nan)], ids=["bare", "tuple"])
def test_a_fresh_nan_retraces(cls: Any, wrap: Callable[[float], Any]) -> None:
    """NaN is unequal to another NaN, and equal to the same object inside a tuple."""
    fresh = two_calls(call(cls(1.0, wrap(float("nan")))), call(cls(1.0, wrap(float("nan")))))
    assert fresh.outcome is fresh.predicted.outcome is RETRACE
    assert fresh.predicted.reasons[0].path == "args[0].n"
    nan = float("nan")
    same = two_calls(call(cls(1.0, wrap(nan))), call(cls(1.0, wrap(nan))))
    assert same.outcome is same.predicted.outcome is REUSE


def test_a_fresh_nan_is_one_value_to_leafwise() -> None:
    """Every NaN of one bit pattern is the same static of a leafwise class."""
    seen = two_calls(call(Slotted(1.0, float("nan"))), call(Slotted(1.0, float("nan"))))
    assert seen.outcome is seen.predicted.outcome is REUSE


@pytest.mark.parametrize("cls", [Plain, Flax, Jdc], ids=lambda cls: cls.__name__)
def test_an_array_as_a_static_raises_on_the_second_call(cls: Any) -> None:
    """JAX cannot compare two arrays: the second call raises, as predicted."""
    jax.clear_caches()
    seen = two_calls(call(cls(1.0, np.ones(2))), call(cls(1.0, np.ones(2))))
    jax.clear_caches()
    assert seen.outcome is ERROR, "the table is wrong about JAX"
    assert seen.predicted.outcome is ERROR
    (reason,) = seen.predicted.reasons
    assert (reason.path, reason.kind) == ("args[0].n", ReasonKind.COMPARISON)
    assert not seen.equal


@pytest.mark.parametrize("cls", PLAIN, ids=lambda cls: cls.__name__)
def test_a_static_without_a_hash_is_accepted(cls: Any) -> None:
    """JAX never hashes the statics of a node: an equal list shares the program."""
    equal = two_calls(call(cls(1.0, [1])), call(cls(1.0, [1])))
    assert equal.outcome is equal.predicted.outcome is REUSE
    other = two_calls(call(cls(1.0, [1])), call(cls(1.0, [2])))
    assert other.outcome is other.predicted.outcome is RETRACE
    assert other.predicted.reasons[0].path == "args[0].n"


def test_a_class_defined_again() -> None:
    """Two definitions of one class are two structures: predicted, and said."""

    def define() -> Any:
        global Again  # noqa: PLW0603  # as a notebook's cell, it binds the name again

        @lw.pytree
        class Again:
            x: Any

        return Again

    seen = two_calls(call(define()(1.0)), call(define()(1.0)))
    assert seen.outcome is seen.predicted.outcome is RETRACE
    (reason,) = seen.predicted.reasons
    assert (reason.path, reason.kind) == ("args[0]", ReasonKind.CLASS)


def test_all_reasons_are_given_and_ranked() -> None:
    """A change of four things gives four reasons, the gravest first."""
    before = call(Slotted({"a": ones(3), "b": 1.0}, "x"), ones(2))
    after = call(
        Slotted({"a": np.ones(3, np.float32), "b": np.float32(1)}, "y"), first_device(ones(2))
    )
    seen = two_calls(before, after)
    assert seen.outcome is seen.predicted.outcome is RETRACE
    found = [(reason.path, reason.outcome) for reason in seen.predicted.reasons]
    assert found == [
        ("args[0].n", RETRACE),
        ("args[0].w['b']", RETRACE),
        ("args[1]", RECOMPILE),
        ("args[0].w['a']", DISPATCH),
    ]
