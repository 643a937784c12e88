"""Stale programs are those that read what is no longer what it was, and no others.

The programs of `drawn_programs` are built twice from source text: one copy is called, changed and
called again, the other one is called for the first time after the same changes.
"""

import warnings
from contextlib import closing
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import leafwise as lw

from .drawn_programs import MISSED, Program, draw_change, draw_program, outcomes

jit: Any = jax.jit  # so that lambdas need no types
watched: Any = lw.jit

pytestmark = pytest.mark.slow
EXAMPLES = {"thorough": 20_000}
many = settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 15))

SHAPES = (*[jnp.arange(1.0, 3.0)] * 3, jnp.ones(3))


class Model:
    """A program, what is read in each place, and in which states its function has been called."""

    def __init__(self, program: Program) -> None:
        note(program.source)
        self.program, self.built = program, program.build()
        self.function = self.built.function
        self.found = {name: place.states[0].found for name, place in program.places.items()}
        self.changes: list[str] = []
        self.known: list[Any] = []
        self.is_coarse = any(program.places[name].is_coarse for name in program.read)

    def close(self) -> None:
        self.built.close()

    def change(self, rng: Random) -> None:
        for _ in range(rng.randint(1, 2)):
            name, state = draw_change(rng, self.program)
            note(state.code)
            self.changes.append(state.code)
            self.built.change(state.code)
            if state.found is not None:
                self.found[name] = state.found

    def fresh(self, x: Any) -> Any:
        """Return what the program gives that is called for the first time after these changes."""
        with closing(self.program.build()) as twin:
            for code in self.changes:
                twin.change(code)
            return outcomes(jax.jit(twin.function)(x))

    def read(self) -> dict[str, Any]:
        """Return what is found now where the function reads."""
        return {name: self.found[name] for name in self.program.read}

    def is_new(self, *more: Any) -> bool:
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
    with closing(Model(draw_program(rng, MISSED))) as model:
        function = model.function
        if rng.random() < 0.5:  # somebody else has traced the helpers before
            jit(lambda x: function(x))(SHAPES[0])
            model.change(rng)
        jitted: Any = lw.jit(function, on_stale="retrace")
        other: Any = watched(lambda x: function(x) + 1, on_stale="retrace")
        for _ in range(4):
            x, count = rng.choice(SHAPES), len(jitted.traces)
            note(f"call {x.shape}")
            assert outcomes(jitted(x)) == model.fresh(x)
            wanted = {count + model.is_new(x.shape), count + model.is_coarse}
            assert len(jitted.traces) in wanted, jitted.traces[-1].explanation
            if rng.random() < 0.25:
                note("another call")
                other(x)
            model.change(rng)


@many
@given(st.randoms(use_true_random=False))
def test_stale_calls_are_told_exactly(rng: Random) -> None:
    """`raise` speaks if what a trace has read is no longer what it was, and `warn` is right."""
    with closing(Model(draw_program(rng, MISSED))) as model:
        function = model.function
        strict: Any = lw.jit(function, on_stale="raise")
        loud: Any = watched(lambda x: function(x), on_stale="warn")
        x = SHAPES[0]
        old, traced = outcomes(strict(x)), model.read()
        loud(x)
        model.is_new()
        for _ in range(3):
            model.change(rng)
            raised = False
            try:
                assert outcomes(strict(x)) == old
            except lw.errors.StaleCaptureError as error:
                note(str(error))
                raised = True
            assert raised in {model.read() != traced, model.is_coarse}, (traced, model.read())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert outcomes(loud(x)) == model.fresh(x)
            assert bool(caught) in {model.is_new(), model.is_coarse}, model.known


@pytest.mark.nightly
@many
@given(st.randoms(use_true_random=False))
def test_an_exact_check_is_right_of_any_program(rng: Random) -> None:
    """It gives what a fresh function gives, also of places whose changes no other check sees."""
    with closing(Model(draw_program(rng))) as model:
        jitted: Any = lw.jit(model.function)
        for _ in range(3):
            x = rng.choice(SHAPES)
            note(f"call {x.shape}")
            with lw.debug.check_captures(on_stale="retrace") as checks:
                assert outcomes(jitted(x)) == model.fresh(x)
            assert not checks.not_compared
            model.change(rng)
