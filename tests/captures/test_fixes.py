"""A stale capture names what can be done about it, which depends on what it is."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._captures.treatment import Way, parameter_of, way_of

jit: Any = lw.jit  # so that lambdas need no types


class Kind(enum.Enum):
    ONE = 1


class Configuration:
    rate = 1.0

    def __call__(self, x: Any) -> Any:
        return x * self.rate


@dataclasses.dataclass(frozen=True)
class Frozen:
    rate: float


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (1.0, Way.ARGUMENT),
        (np.ones(2), Way.ARGUMENT),
        (jnp.ones(2), Way.ARGUMENT),
        ([1.0, 2.0], Way.ARGUMENT),
        ({"a": np.ones(2)}, Way.ARGUMENT),
        ({"a": "text"}, Way.PYTREE),
        (("a", 1.0), Way.STATIC),
        ("text", Way.STATIC),
        (True, Way.STATIC),
        (None, Way.STATIC),
        (Kind.ONE, Way.STATIC),
        (Frozen(1.0), Way.STATIC),
        (Frozen, Way.STATIC),
        (Configuration(), Way.PYTREE),
        (parameter_of, Way.STATIC),
        (Configuration().__call__, Way.STATIC),
        (jax.jit(parameter_of), Way.STATIC),
    ],
    ids=map(str, range(17)),
)
def test_how_a_value_can_be_passed(value: Any, way: Way) -> None:
    """Numbers are arguments, what is hashed by value is static, the rest a pytree class."""
    assert way_of(value) is way


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("rate", "rate"),
        ("self.rate (2)", "rate"),
        ("config['rate']", "rate"),
        ("c.sub[0]", "sub"),
        ("step.__self__", "step"),
        ("config['class']", "config"),
        ("__self__", "value"),
    ],
)
def test_parameters(name: str, parameter: str) -> None:
    """A capture has a name that a parameter can have."""
    assert parameter_of(name) == parameter


def stale(fun: Any, change: Callable[[], None]) -> str:
    """Return what is said of the one stale call."""
    jitted = jit(fun, on_stale="raise")
    jitted(jnp.ones(2))
    change()
    with pytest.raises(lw.errors.StaleCaptureError) as info:
        jitted(jnp.ones(2))
    assert len(info.value.captures) == 1
    return str(info.value)


def test_the_fixes_of_a_text() -> None:
    """No array can be made of it: it is a static argument, or a static field."""
    mode = "a"

    def change() -> None:
        nonlocal mode
        mode = "b"

    said = stale(lambda x: x if mode == "a" else -x, change)
    assert 'argument `mode` of `<lambda>`, with `static_argnames="mode"`' in said
    assert "`@lw.pytree class Params: mode: Any = lw.static_field()`" in said


def test_the_name_of_an_object_that_is_called() -> None:
    """It is that of its class, where JAX has none."""
    model = Configuration()
    said = stale(model, lambda: setattr(model, "rate", 2.0))
    assert said.startswith("Configuration.__call__ captures ")
    assert "unnamed" not in said


def test_an_optimizer_is_named_once() -> None:
    """The variables of optax that differ with it are not reported next to it."""
    optax: Any = pytest.importorskip("optax")
    optimizer = optax.sgd(0.1)
    assert way_of(optimizer) is Way.STATIC

    def change() -> None:
        nonlocal optimizer
        optimizer = optax.sgd(0.2)

    said = stale(lambda x: optimizer.update(x, optimizer.init(x))[0], change)
    assert "`optimizer.update`" in said
