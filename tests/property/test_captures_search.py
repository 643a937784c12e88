"""Stale programs are those that read what is no longer what it was, and no others.

The programs of `drawn_programs` are built twice from source text: one copy is called, changed and
called again, the other one is called for the first time after the same changes.
"""

import warnings
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import leafwise as lw

from .drawn_programs import MISSED, Built, Program, draw_change, draw_program, outcomes

jit: Any = jax.jit  # so that lambdas need no types
watched: Any = lw.jit

pytestmark = pytest.mark.slow
EXAMPLES = {"thorough": 20_000}
many = settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 15))

SHAPES = (*[jnp.arange(1.0, 3.0)] * 3, jnp.ones(3))


def fresh(program: Program, changes: list[str], x: Any) -> Any:
    """Return what the program gives that is called for the first time after these changes."""
    twin = program.build()
    try:
        for code in changes:
            twin.change(code)
        return outcomes(jax.jit(twin.function)(x))
    finally:
        twin.close()


class Model:
    """What is read in each place, and in which states the function has been called."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found = {name: place.states[0].found for name, place in program.places.items()}
        self.changes: list[str] = []
        self.known: list[Any] = []
        self.is_coarse = any(program.places[name].is_coarse for name in program.read)

    def change(self, rng: Random, built: Built) -> None:
        """Draw some changes, and make them."""
        for _ in range(rng.randint(1, 2)):
            name, state = draw_change(rng, self.program)
            note(state.code)
            self.changes.append(state.code)
            built.change(state.code)
            if state.found is not None:
                self.found[name] = state.found

    def read(self) -> dict[str, Any]:
        """Return what is found now where the function reads."""
        return {name: self.found[name] for name in self.program.read}

    def is_new(self, *more: Any) -> bool:
        """Whether this state is there for the first time."""
        state = (self.read(), *more)
        if state in self.known:
            return False
        self.known.append(state)
        return True


@pytest.mark.nightly
@many
@given(st.randoms(use_true_random=False))
def test_a_retrace_gives_what_a_fresh_function_gives(rng: Random) -> None:
    """After any changes the result is that of a fresh function, bit for bit.

    Nothing is traced in a state that was there before.
    """
    program = draw_program(rng, MISSED)
    note(program.source)
    model, built = Model(program), program.build()
    function = built.function
    try:
        if rng.random() < 0.5:  # somebody else has traced the helpers before
            jit(lambda x: function(x))(SHAPES[0])
            model.change(rng, built)
        jitted: Any = lw.jit(function, on_stale="retrace")
        other: Any = watched(lambda x: function(x) + 1, on_stale="retrace")
        for _ in range(4):
            x, count = rng.choice(SHAPES), len(jitted.traces)
            note(f"call {x.shape}")
            assert outcomes(jitted(x)) == fresh(program, model.changes, x)
            wanted = {count + model.is_new(x.shape), count + model.is_coarse}
            assert len(jitted.traces) in wanted, jitted.traces[-1].explanation
            if rng.random() < 0.25:
                note("another call")
                other(x)
            model.change(rng, built)
    finally:
        built.close()


@many
@given(st.randoms(use_true_random=False))
def test_stale_calls_are_told_exactly(rng: Random) -> None:
    """`raise` speaks if what a trace has read is no longer what it was, and `warn` is right."""
    program = draw_program(rng, MISSED)
    note(program.source)
    model, built = Model(program), program.build()
    function = built.function
    try:
        strict: Any = lw.jit(function, on_stale="raise")
        loud: Any = watched(lambda x: function(x), on_stale="warn")
        x = SHAPES[0]
        old, traced = outcomes(strict(x)), model.read()
        loud(x)
        model.is_new()
        for _ in range(3):
            model.change(rng, built)
            raised = False
            try:
                assert outcomes(strict(x)) == old
            except lw.errors.StaleCaptureError as error:
                note(str(error))
                raised = True
            assert raised in {model.read() != traced, model.is_coarse}, (traced, model.read())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert outcomes(loud(x)) == fresh(program, model.changes, x)
            assert bool(caught) in {model.is_new(), model.is_coarse}, model.known
    finally:
        built.close()


@pytest.mark.nightly
@many
@given(st.randoms(use_true_random=False))
def test_an_exact_check_is_right_of_any_program(rng: Random) -> None:
    """It gives what a fresh function gives, also of places whose changes no other check sees."""
    program = draw_program(rng)
    note(program.source)
    model, built = Model(program), program.build()
    function = built.function
    try:
        jitted: Any = lw.jit(function)
        for _ in range(3):
            x = rng.choice(SHAPES)
            note(f"call {x.shape}")
            with lw.debug.check_captures(on_stale="retrace") as checks:
                assert outcomes(jitted(x)) == fresh(program, model.changes, x)
            assert not checks.not_compared
            model.change(rng, built)
    finally:
        built.close()
