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
import threading
import types
from collections.abc import Iterator
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

    def __call__(self, x: Any) -> Any:
        return x * self.rate


class Base(abc.ABC):  # noqa: B024  # classes register with it
    pass


@lw.pytree
class Frozen:
    rate: float = 1.0
    shared: ClassVar[float] = 1.0


# Each yields a function, and then changes what it reads.


def name_that_is_made_up() -> Iterator[Any]:
    name = "made_" + "up"
    globals()["made_up"] = 1.0
    yield lambda x: x * globals()[name]
    globals()["made_up"] = 2.0


def code_in_a_text() -> Iterator[Any]:
    globals()["made_up"] = 1.0
    yield lambda x: x * eval("made_up")  # noqa: S307
    globals()["made_up"] = 2.0


def module_by_its_name() -> Iterator[Any]:
    module: Any = types.ModuleType("leafwise_test_rates")
    sys.modules["leafwise_test_rates"], module.rate = module, 1.0
    yield lambda x: x * importlib.import_module("leafwise_test_" + "rates").rate
    module.rate = 2.0


def its_own_code() -> Iterator[Any]:
    def function(x: Any) -> Any:
        return x

    yield function
    function.__code__ = (lambda x: x * 2).__code__


def context_variable() -> Iterator[Any]:
    variable = contextvars.ContextVar("rate", default=1.0)
    yield lambda x: x * variable.get()
    variable.set(2.0)


def environment() -> Iterator[Any]:
    yield lambda x: x * float(os.environ["LEAFWISE_TEST_RATE"])
    os.environ["LEAFWISE_TEST_RATE"] = "2"


def value_of_this_thread() -> Iterator[Any]:
    here = threading.local()
    here.rate = 1.0
    yield lambda x: x * here.rate
    here.rate = 2.0


def its_class() -> Iterator[Any]:
    class Doubled(Held):
        def __call__(self, x: Any) -> Any:
            return x * 2

    held = Held()
    yield lambda x: held(x)
    held.__class__ = Doubled


def attribute_of_an_enum_member() -> Iterator[Any]:
    one: Any = enum.Enum("Kind", "ONE").ONE
    one.rate = 1.0
    yield lambda x: x * one.rate
    one.rate = 2.0


def class_that_registers_later() -> Iterator[Any]:
    held = Held()
    yield lambda x: x * (2.0 if isinstance(held, Base) else 1.0)
    Base.register(Held)


def is_the_same() -> Iterator[Any]:
    one = Held()
    pair = [one, one]
    yield lambda x: x * (1.0 if pair[0] is pair[1] else 2.0)
    pair[1] = Held()


def what_a_frozen_object_holds() -> Iterator[Any]:
    frozen = Frozen()
    yield lambda x: x * jax.tree.leaves(frozen)[0]
    vars(frozen)["rate"] = 2.0


def class_attribute_of_an_item() -> Iterator[Any]:
    frozen = [Frozen()]
    yield lambda x: x * sum(each.shared for each in frozen)
    Frozen.shared = 2.0


UNSEEN = (
    *(name_that_is_made_up, code_in_a_text, module_by_its_name, its_own_code, context_variable),
    *(environment, attribute_of_an_enum_member, class_that_registers_later, is_the_same),
    *(what_a_frozen_object_holds, class_attribute_of_an_item, value_of_this_thread, its_class),
)


@pytest.mark.parametrize("make", UNSEEN)
def test_what_cannot_be_seen(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is answered for the old value, and nothing is said; a block sees it."""
    monkeypatch.setenv("LEAFWISE_TEST_RATE", "1")  # what it was comes back in the end
    changes = make()
    function = next(changes)
    strict = jit(function, stale="raise")
    old = strict(ONES)
    assert next(changes, "changed") == "changed"
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


def other_way() -> Iterator[Any]:
    held, is_on = Held(), False
    yield lambda x: x * held.rate if is_on else x
    held.rate = 2.0


def registered_for_another_type() -> Iterator[Any]:
    scaled = functools.singledispatch(lambda x: x)
    yield lambda x: scaled(x)
    scaled.register(str, lambda x: x * 2)


def presence() -> Iterator[Any]:
    config = {"rate": 2.0}
    yield lambda x: x * (2.0 if "rate" in config else 1.0)
    config["rate"] = 3.0


@pytest.mark.parametrize("make", [other_way, registered_for_another_type, presence])
def test_what_counts_though_it_was_not_read(make: Any) -> None:
    """The call is said to be stale, and a retrace gives what was there."""
    changes = make()
    function = next(changes)
    strict, fresh = jit(function, stale="raise"), jit(function, stale="retrace")
    old = strict(ONES)
    fresh(ONES)
    assert next(changes, "changed") == "changed"
    with pytest.raises(lw.errors.StaleCaptureError):
        strict(ONES)
    assert np.array_equal(fresh(ONES), old)
