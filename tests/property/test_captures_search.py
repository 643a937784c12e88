"""Stale programs are those that read what is no longer what it was, and no others.

The programs of `drawn_programs` are built twice from source text: one copy is called, changed and
called again, the other one is called for the first time after the same changes. Other seeds:
``check_retraces(random.Random(seed), print)``.
"""

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import leafwise as lw

from .drawn_programs import Built, Program, draw_change, draw_program, outcomes

Note = Callable[[str], None]
jit: Any = jax.jit  # so that lambdas need no types
watched: Any = lw.jit

pytestmark = pytest.mark.slow
EXAMPLES = {"ci": 25, "thorough": 20_000}
many = settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 10))

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
    """What is read in each place."""

    def __init__(self, program: Program, note: Note) -> None:
        self.program, self.note = program, note
        self.found = {name: place.states[0].found for name, place in program.places.items()}
        self.changes: list[str] = []

    def change(self, rng: Random, built: Built) -> None:
        """Draw some changes, and make them."""
        for _ in range(rng.randint(1, 2)):
            name, state = draw_change(rng, self.program)
            self.note(state.code)
            self.changes.append(state.code)
            built.change(state.code)
            if state.found is not None:
                self.found[name] = state.found

    def read(self) -> dict[str, Any]:
        """Return what is found now where the function reads."""
        return {name: self.found[name] for name in self.program.read}


def check_retraces(rng: Random, note: Note) -> None:
    """After any changes the result is that of a fresh function, bit for bit.

    Nothing is traced where nothing that was read has changed.
    """
    program = draw_program(rng)
    note(program.source)
    model, built = Model(program, note), program.build()
    try:
        if rng.random() < 0.5:  # somebody else has traced the helpers before
            jit(lambda x: built.function(x))(SHAPES[0])
            model.change(rng, built)
        jitted: Any = lw.jit(built.function, stale="retrace")
        other: Any = watched(lambda x: built.function(x) + 1, stale="retrace")
        traced: dict[Any, dict[str, Any]] = {}
        for _ in range(3):
            x, count, now = rng.choice(SHAPES), len(jitted.traces), model.read()
            if any(each != now for each in traced.values()):
                traced.clear()
            is_new = x.shape not in traced
            note(f"call {x.shape}")
            assert outcomes(jitted(x)) == fresh(program, model.changes, x)
            assert len(jitted.traces) == count + is_new, jitted.traces[-1].explanation
            traced[x.shape] = now
            if rng.random() < 0.25:
                note("another call")
                other(x)
            model.change(rng, built)
    finally:
        built.close()


def check_reports(rng: Random, note: Note) -> None:
    """`raise` speaks if what a trace has read is no longer what it was, and `warn` is right."""
    program = draw_program(rng)
    note(program.source)
    model, built = Model(program, note), program.build()
    try:
        strict: Any = lw.jit(built.function, stale="raise")
        loud: Any = watched(lambda x: built.function(x), stale="warn")
        x = SHAPES[0]
        old = outcomes(strict(x))
        loud(x)
        traced = reported = model.read()
        for _ in range(3):
            model.change(rng, built)
            now = model.read()
            changed = {name for name in traced if now[name] != traced[name]}
            raised = False
            try:
                assert outcomes(strict(x)) == old
            except lw.errors.StaleCaptureError as error:
                note(str(error))
                raised = True
            assert raised == bool(changed), (traced, now)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert outcomes(loud(x)) == fresh(program, model.changes, x)
            assert caught or not any(now[name] != reported[name] for name in changed), reported
            reported = {n: now[n] if n in changed else reported[n] for n in traced}
    finally:
        built.close()


@many
@given(st.randoms(use_true_random=False))
def test_a_retrace_gives_what_a_fresh_function_gives(rng: Random) -> None:
    """Bit for bit, after any changes; and nothing is traced where nothing was read."""
    check_retraces(rng, note)


@many
@given(st.randoms(use_true_random=False))
def test_stale_calls_are_told_exactly(rng: Random) -> None:
    """`raise` speaks if what a trace has read is no longer what it was, and `warn` is right."""
    check_reports(rng, note)
