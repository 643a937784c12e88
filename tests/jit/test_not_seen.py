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
from typing import Any

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


class Metaclass(type):
    made_of = 1.0

    @property
    def rate(cls) -> float:
        return cls.made_of


class WithMetaclass(metaclass=Metaclass):
    pass


class Partly:
    def scaled(self, x: Any, by: Any) -> Any:
        return x * by[0]


def what_a_metaclass_has() -> tuple[Any, Any]:
    Metaclass.made_of = 1.0
    return lambda x: x * WithMetaclass.rate, lambda: setattr(Metaclass, "made_of", 2.0)


def partial_method() -> tuple[Any, Any]:
    by = [1.0]

    class Holder(Partly):
        doubled = functools.partialmethod(Partly.scaled, by=by)

    holder: Any = Holder()
    return lambda x: holder.doubled(x), lambda: by.__setitem__(0, 2.0)


def environment() -> tuple[Any, Any]:
    return lambda x: x * float(os.environ["LEAFWISE_TEST_RATE"]), lambda: os.environ.update(
        LEAFWISE_TEST_RATE="2"
    )


def attribute_of_an_enum_member() -> tuple[Any, Any]:
    class Kind(enum.Enum):
        ONE = 1

    Kind.ONE.rate = 1.0  # type: ignore[attr-defined]
    return lambda x: x * Kind.ONE.rate, lambda: setattr(Kind.ONE, "rate", 2.0)  # type: ignore[attr-defined]


class Texted:
    def __str__(self) -> str:
        return str(made_up)


class Base(abc.ABC):  # noqa: B024  # classes register with it
    pass


def text_of_an_object() -> tuple[Any, Any]:
    globals()["made_up"], held = 1.0, Texted()
    return lambda x: x * float(f"{held}"), lambda: globals().update(made_up=2.0)


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


def callback_under_another_name() -> tuple[Any, Any]:
    double: Any = lambda x: x * made_up  # noqa: E731

    def change() -> None:
        nonlocal double
        double = lambda x: x * 2  # noqa: E731

    globals()["made_up"] = 1.0
    return lambda x: jax.pure_callback(double, x, x), change


class Answers:
    scale = 1.0

    def __getattribute__(self, name: str) -> Any:
        return Answers.scale if name == "rate" else object.__getattribute__(self, name)


def what_getattribute_reads() -> tuple[Any, Any]:
    Answers.scale = 1.0
    answers = Answers()
    return lambda x: x * answers.rate, lambda: setattr(Answers, "scale", 2.0)


def what_a_module_answers() -> tuple[Any, Any]:
    module: Any = types.ModuleType("answers")
    module.scale = 1.0
    module.__getattr__ = lambda _: module.scale
    return lambda x: x * module.rate, lambda: setattr(module, "scale", 2.0)


UNSEEN: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(name_that_is_made_up, its_own_code, context_variable, what_a_metaclass_has),
        *(partial_method, environment, attribute_of_an_enum_member),
        *(what_getattribute_reads, what_a_module_answers),
        *(text_of_an_object, builtin_that_is_shadowed, class_that_registers_later),
        *(module_by_its_name, code_in_a_text, callback_under_another_name),
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


def test_attributes_of_a_static_argument() -> None:
    """It is no capture, and its `==` is the user's."""
    held = Held()
    jitted = jit(lambda it, x: x * it.rate, static_argnums=0, stale="raise")
    jitted(held, ONES)
    held.rate = 2.0
    assert np.array_equal(jitted(held, ONES), ONES)


def other_way() -> tuple[Any, Any]:
    held, is_on = Held(), False
    return lambda x: x * held.rate if is_on else x, lambda: setattr(held, "rate", 2.0)


def local_of_two_assignments() -> tuple[Any, Any]:
    held = Held()

    def function(x: Any) -> Any:
        it: Any = held
        for _ in range(1):
            it = it if x is None else held
        return x * it.rate

    return function, lambda: setattr(held, "other", 2.0)


def attribute_by_a_name_that_is_made_up() -> tuple[Any, Any]:
    held, name = Held(), "ra" + "te"
    return lambda x: x * getattr(held, name), lambda: setattr(held, "other", 2.0)


def registered_for_another_type() -> tuple[Any, Any]:
    @functools.singledispatch
    def scaled(x: Any) -> Any:
        return x

    return lambda x: scaled(x), lambda: scaled.register(str, lambda x: x * 2)


def handed_to_a_package() -> tuple[Any, Any]:
    held = Held()
    return lambda x: x * jax.tree.leaves([held])[0].rate, lambda: setattr(held, "other", 2.0)


def handed_to_what_the_function_makes() -> tuple[Any, Any]:
    held = Held()

    class Reader:
        def read(self, it: Any) -> Any:
            return it.rate

    return lambda x: x * Reader().read(held), lambda: setattr(held, "other", 2.0)


TOO_MUCH: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(other_way, local_of_two_assignments, attribute_by_a_name_that_is_made_up),
        *(registered_for_another_type, handed_to_a_package, handed_to_what_the_function_makes),
    )
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
