"""A function or an optimizer that is rebuilt for each call."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import leafwise as lw

from .judge import Plain, Sound

pytestmark = pytest.mark.hazard


@lw.pytree
class ByContent:
    """The fields of the judge's classes, functions compared by content."""

    x: Any
    s: Any = lw.static_field(by="content")


def closure(by: float) -> Callable[[Any], Any]:
    """Return a function over a cell."""
    return lambda x: by * x


MAKERS: dict[str, Callable[[float], Any]] = {
    "lambda": closure,
    "optimizer": optax.adam,
    "schedule": lambda rate: optax.sgd(optax.cosine_decay_schedule(rate, 10)),
}


def count(cls: Any, *functions: Any) -> tuple[int, list[float]]:
    """Call one jitted function with each; return how often it was traced, and the answers."""
    seen: list[Any] = []

    @jax.jit
    def program(p: Any) -> Any:
        seen.append(p.s)
        if callable(p.s):
            return p.s(p.x)
        return p.s.update(p.x, p.s.init(p.x), p.x)[0]

    answers = [float(program(cls(jnp.float32(2.0), each))) for each in functions]
    return len(seen), answers


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_rebuilt_for_each_call(name: str) -> None:
    """By identity each is a program of its own; by content there is one, with equal answers."""
    make = MAKERS[name]
    for cls, traces in ((Plain, 3), (Sound, 3), (ByContent, 1)):
        found, answers = count(cls, *[make(0.5) for _ in range(3)])
        assert found == traces
        assert len(set(answers)) == 1
        assert answers == count(Plain, make(0.5))[1] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_another_number_inside(name: str) -> None:
    """Another rate inside a function is another program, however functions are compared."""
    make = MAKERS[name]
    for cls in (Plain, Sound, ByContent):
        found, (first, second) = count(cls, make(0.5), make(0.25))
        assert found == 2
        assert first != second
