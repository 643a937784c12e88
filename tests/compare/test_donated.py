"""What `explain_errors` and `lw.jit` add where a donated array is donated twice, or used again."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.kit.specimens import Slotted

import leafwise as lw


def add(state: Any, x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + x, state)


JITS: dict[str, Any] = {
    "jax": partial(jax.jit, donate_argnums=0),
    "leafwise": partial(lw.jit, donate_argnames="state"),
}


def note_of(call: Callable[[], Any]) -> str:
    with pytest.raises((RuntimeError, ValueError)) as error, lw.debug.explain_errors():
        call()
    (note,) = (each for each in error.value.__notes__ if each.startswith("leafwise: "))
    return note


@pytest.mark.parametrize("name", JITS)
def test_one_buffer_twice(name: str) -> None:
    """Both places are named, by the first call and by a later one; a copy is what it needs."""
    step, w = JITS[name](add), jnp.ones(3)
    tree = {"params": [w], "opt": Slotted(jax.device_put(w))}
    words = "`state['opt'].w` and `state['params'][0]` are the same buffer, donated twice: donate "
    for _ in range(2):
        assert words + "`jnp.copy(state['params'][0])`" in note_of(lambda: step(tree, 1.0))
    step(tree | {"params": [jnp.copy(w)]}, 1.0)
    pair = [jnp.ones(3)] * 2
    assert "`state[0]` and `state[1]` are the same" in note_of(lambda: step(pair, 1.0))


def test_lw_jit_says_it_without_a_block() -> None:
    """By the call that would be the first."""
    with pytest.raises(RuntimeError) as error:
        JITS["leafwise"](lambda state: add(state, 1.0))([jnp.ones(3)] * 2)
    assert "`state[0]` and `state[1]` are the same buffer" in "".join(error.value.__notes__)


class Trainer:
    def __init__(self, step: Any) -> None:
        self.step, self.state = step, {"w": jnp.ones(3)}

    def train(self) -> Any:
        self.step(self.state, 1.0)
        return self.state["w"] + 1


def in_a_loop(step: Any) -> Any:
    state = {"w": jnp.ones(3), "b": jnp.ones(3)}
    for _ in range(2):
        new = step(state=state, x=1.0)
    return new


def through_a_leaf(step: Any) -> Any:
    state = {"w": jnp.ones(3), "b": 1.0}
    kept = state["w"]
    step(state, 1.0)
    return jax.jit(jnp.sin)(kept)


def by_two_calls(step: Any) -> Any:
    state = {"w": jnp.ones(3)}
    if state:
        step(state, 1.0)
    else:
        step(state, 2.0)
    return float(state["w"][0])


USES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an attribute": (lambda step: Trainer(step).train(), "`self.state` was donated at {}:57"),
    "a loop": (in_a_loop, "`state` was donated at {}:64"),
    "a leaf": (through_a_leaf, "`state['w']` was donated at {}:71"),
    "two calls": (by_two_calls, "`state` was donated to an earlier call"),
}


@pytest.mark.parametrize("name", JITS)
@pytest.mark.parametrize("use", USES)
def test_a_donated_array_is_used_again(use: str, name: str) -> None:
    """The variable is named, and the line that donated it, if only one call can have."""
    call, words = USES[use]
    note = note_of(lambda: call(JITS[name](add)))
    assert words.format("test_donated.py") + ": use what that call returned" in note
