"""A static is only called dynamic where it can be: drawn functions are jitted without it."""

import re
import sys
import traceback
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.explained import program

import leafwise as lw

HELPERS = """\
import jax, jax.numpy as jnp
def chosen(x, k, m=0):
    return x + m if k > 2 else x - m
@jax.jit
def scaled(x, k): return x * k
"""
PIECES = (
    "x = x * n + 1",
    "x = x[n] - n",
    "x = jnp.where(n > 2, x, -x)",
    "x = scaled(x, n)",
    "x = chosen(x, 3, m=n)",
    "x = x + (n is None)",
    "m = n + 1; x = x + m",
    "m = 7; x = x if m > 2 else x * n",
    "m = n; m = 7; x = x if m > 2 else x * n",
    "x = x + (lambda k: k if k > 2 else 0)(7) * n",
    "m = n\n    while m > 2: m -= 1",
    "m = -n; x = x + 1 if m % 2 else x",
    "x = chosen(x, n)",
    "x = chosen(x, k=n + 1)",
    "x = chosen(x, -n, m=3)",
    "x = x + sum(range(n))",
    "x = x[:n].sum() + x",
    "x = x + jnp.zeros((n, 2)).sum()",
    "x = x.reshape(-1, n, 1).sum() + x",
    "x = x + max(n, 2)",
    "if n > 2 and x.ndim: x = x + 1",
    "while x.ndim + 2 < n + 2: x = x[None]",
)
bodies = st.lists(st.sampled_from(PIECES), min_size=1, max_size=2)


def line_of_error(step: Any, file: str) -> int:
    """Return the line in a file that raises where the static is traced."""
    with pytest.raises((TypeError, IndexError, jax.errors.JAXTypeError)) as e:
        jax.jit(step)(jnp.arange(6.0), 3)
    return [line for line in traceback.extract_tb(e.tb) if line.filename == file][-1].lineno or 0


@pytest.mark.slow
@settings(max_examples=25)
@given(bodies, bodies)
def test_dynamic_where_it_can_be(
    tmp_path_factory: pytest.TempPathFactory, one: list[str], other: list[str]
) -> None:
    """What raises for a traced static is named by its line; all else computes the same."""
    lines = [
        ["def step(x, n):", *(f"    {piece}" for piece in body), "    return x"]
        for body in (one, other)
    ]
    code = HELPERS + "\n".join([*lines[0], "one = step", *lines[1], ""])
    file, body = program(tmp_path_factory.mktemp("uses"), code)
    body()
    names = vars(sys.modules[Path(file).stem])
    steps = [lw.jit(names[name], static_argnames="n") for name in ("step", "one")]
    for n in (3, 2):
        for step in steps:
            step(jnp.arange(6.0), n)
    for name, step in zip(("step", "one"), steps, strict=True):
        fix = str(step.traces[-1].reasons[0].fix)
        if (needed := re.search(r"\.py:(\d+) needs its value", fix)) is None:
            assert "make it dynamic" in fix
            dynamic = jax.jit(names[name])(jnp.arange(6.0), 3)
            np.testing.assert_array_equal(dynamic, step(jnp.arange(6.0), 3))
        else:
            assert line_of_error(names[name], file) == int(needed[1])
