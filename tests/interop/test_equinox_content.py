"""`leafwise.interop.equinox.Module`: functions by content are looked at whenever flattened."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

from .modules import works

LOOKS = "a function by content in a `leafwise.interop.equinox.Module` is checked at each flatten"


def scaled_by(rates: list[float]) -> Any:
    """Return a function over a list."""
    return lambda x: rates[0] * x


class M(Module):
    x: Any
    f: Any = lw.static_field(compare_by="content")


USES: dict[str, Callable[[Any], Any]] = {
    "leaves": jax.tree.leaves,
    "jit": jax.jit(lambda m: m.f(m.x)),
    "filter_jit": eqx.filter_jit(lambda m: m.f(m.x)),
    "tree_at": lambda m: eqx.tree_at(lambda m: m.x, m, 2.0),
}


@works(LOOKS)
@pytest.mark.parametrize("use", USES)
def test_a_change_in_place(use: str) -> None:
    """A module whose function changed is refused wherever it is flattened; a new one is not."""
    rates = [7.0]
    changed = M(1.0, scaled_by(rates))
    USES[use](changed)
    rates[0] = 8.0
    with pytest.raises(lw.errors.StaticMutatedError, match=r"\.f.*changed in place"):
        USES[use](changed)
    fresh = M(1.0, changed.f)
    USES[use](fresh)
    assert jax.jit(lambda m: m.f(m.x))(fresh) == 8


@works(LOOKS)
def test_no_program_answers_for_another() -> None:
    """Equal modules hold the first one's function: where it changes, none of them is traced."""
    rates = [7.5]
    first, other = M(1.0, scaled_by(rates)), M(1.0, scaled_by([7.5]))
    assert other.f is first.f
    rates[0] = 8.0
    program = jax.jit(lambda m: m.f(m.x))
    for module in (first, other):
        with pytest.raises(lw.errors.StaticMutatedError, match=r"M\.f"):
            program(module)
    assert program(M(1.0, scaled_by(rates))) == 8
    rates[0] = 7.5
    assert program(first) == program(other) == 7.5
