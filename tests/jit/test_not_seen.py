"""What the check of captures cannot see, and where it speaks of what was not read.

The list in `docs/how-to/captures.md` has these, and no others. Who solves one removes it here.
"""

import abc
import contextvars
import enum
import functools
import importlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types
made_up = 1.0


class Held:
    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        self.other = 1.0


def name_that_is_made_up() -> tuple[Any, Any]:
    name = "made_" + "up"

    def change() -> None:
        globals()["made_up"] = 2.0

    globals()["made_up"] = 1.0
    return lambda x: x * globals()[name], change


def its_own_code() -> tuple[Any, Any]:
    def function(x: Any) -> Any:
        return x

    return function, lambda: setattr(function, "__code__", (lambda x: x * 2).__code__)


def context_variable() -> tuple[Any, Any]:
    variable = contextvars.ContextVar("rate", default=1.0)
    return lambda x: x * variable.get(), lambda: variable.set(2.0)


def environment() -> tuple[Any, Any]:
    return lambda x: x * float(os.environ["LEAFWISE_TEST_RATE"]), lambda: os.environ.update(
        LEAFWISE_TEST_RATE="2"
    )


def attribute_of_an_enum_member() -> tuple[Any, Any]:
    class Kind(enum.Enum):
        ONE = 1

    Kind.ONE.rate = 1.0  # type: ignore[attr-defined]
    return lambda x: x * Kind.ONE.rate, lambda: setattr(Kind.ONE, "rate", 2.0)  # type: ignore[attr-defined]


class Base(abc.ABC):  # noqa: B024  # classes register with it
    pass


def builtin_that_is_shadowed() -> tuple[Any, Any]:
    globals().pop("max", None)

    def change() -> None:
        globals()["max"] = lambda *_: 2.0

    return lambda x: x * max(0.5, 1.0), change


def class_that_registers_later() -> tuple[Any, Any]:
    class Other:
        pass

    other = Other()
    return lambda x: x * (2.0 if isinstance(other, Base) else 1.0), lambda: Base.register(Other)


def module_by_its_name() -> tuple[Any, Any]:
    module = sys.modules["leafwise_test_rates"] = types.ModuleType("leafwise_test_rates")
    module.rate = 1.0  # type: ignore[attr-defined]
    return (
        lambda x: x * importlib.import_module("leafwise_test_" + "rates").rate,
        lambda: setattr(module, "rate", 2.0),
    )


def code_in_a_text() -> tuple[Any, Any]:
    globals()["made_up"] = 1.0
    return lambda x: x * eval("made_up"), lambda: globals().update(made_up=2.0)  # noqa: S307


def is_the_same() -> tuple[Any, Any]:
    one, other = Held(), Held()
    pair = [one, one]
    return lambda x: x * (1.0 if pair[0] is pair[1] else 2.0), lambda: pair.__setitem__(1, other)


@lw.pytree
class Frozen:
    rate: float = 1.0
    shared: ClassVar[float] = 1.0


def what_a_frozen_object_holds() -> tuple[Any, Any]:
    frozen = Frozen()
    function = lambda x: x * jax.tree.leaves(frozen)[0]  # noqa: E731
    return function, lambda: vars(frozen).update(rate=2.0)


def class_attribute_of_an_item() -> tuple[Any, Any]:
    frozen = [Frozen()]
    Frozen.shared = 1.0
    return lambda x: x * sum(each.shared for each in frozen), lambda: setattr(Frozen, "shared", 2.0)


class Dispatching:
    @functools.singledispatchmethod
    def of(self, x: Any) -> Any:
        return x


def method_registered_later() -> tuple[Any, Any]:
    held = Dispatching()

    def change() -> None:
        Dispatching.of.register(object, lambda _self, x: x * 2)

    return lambda x: held.of(x), change


UNSEEN: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(name_that_is_made_up, its_own_code, context_variable, environment),
        *(attribute_of_an_enum_member, builtin_that_is_shadowed, class_that_registers_later),
        *(module_by_its_name, code_in_a_text, is_the_same, what_a_frozen_object_holds),
        *(class_attribute_of_an_item, method_registered_later),
    )
}


@pytest.mark.parametrize("make", UNSEEN.values(), ids=UNSEEN)
def test_what_cannot_be_seen(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is answered for the old value, and nothing is said; a block sees it."""
    monkeypatch.setenv("LEAFWISE_TEST_RATE", "1")  # what it was comes back in the end
    function, change = make()
    strict = jit(function, stale="raise")
    old = strict(ONES)
    change()
    with jax.disable_jit():
        assert not np.array_equal(function(ONES), old)
    assert np.array_equal(strict(ONES), old)
    if make is not environment:
        with lw.debug.check_captures(), pytest.raises(lw.errors.StaleCaptureError):
            strict(ONES)


def test_a_program_that_was_compiled_ahead_of_time() -> None:
    """It is JAX's alone."""
    held = Held()
    compiled = jit(lambda x: x * held.rate, stale="raise").lower(ONES).compile()
    held.rate = 2.0
    assert np.array_equal(compiled(ONES), ONES)


def other_way() -> tuple[Any, Any]:
    held, is_on = Held(), False
    return lambda x: x * held.rate if is_on else x, lambda: setattr(held, "rate", 2.0)


def registered_for_another_type() -> tuple[Any, Any]:
    @functools.singledispatch
    def scaled(x: Any) -> Any:
        return x

    return lambda x: scaled(x), lambda: scaled.register(str, lambda x: x * 2)


def presence() -> tuple[Any, Any]:
    config = {"rate": 2.0}
    return lambda x: x * (2.0 if "rate" in config else 1.0), lambda: config.update(rate=3.0)


TOO_MUCH: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (other_way, registered_for_another_type, presence)
}


@pytest.mark.parametrize("make", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_counts_though_it_was_not_read(make: Callable[[], Any]) -> None:
    """The call is said to be stale, and a retrace gives what was there."""
    function, change = make()
    strict, fresh = jit(function, stale="raise"), jit(function, stale="retrace")
    old = strict(ONES)
    fresh(ONES)
    change()
    with pytest.raises(lw.errors.StaleCaptureError):
        strict(ONES)
    assert np.array_equal(fresh(ONES), old)
