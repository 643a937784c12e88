"""Each kind of fix with code in it, put into the program that provoked it as it is printed."""

import re
from pathlib import Path

import pytest
from tests.kit.explained import program

import leafwise as lw

HEAD = """\
import dataclasses
import equinox as eqx
import functools
import jax
import jax.numpy as jnp
import numpy as np
from typing import Any, Callable
import leafwise as lw
"""

# A program that raises; what of it is replaced by the code of the fix.
RAISED: dict[str, tuple[str, dict[str, str]]] = {
    "range": (
        "@lw.jit\ndef f(n):\n    return sum(jnp.ones(2) for _ in range(n))\nf(3)",
        {"f(n)": "f({1})"},
    ),
    "shape": ("@lw.jit\ndef f(n):\n    return jnp.zeros(n)\nf(3)", {"f(n)": "f({1})"}),
    "if": ("@lw.jit\ndef f(b):\n    return 1 if b else 2\nf(True)", {"f(b)": "f({1})"}),
    "text": ("@lw.jit\ndef f(mode):\n    return len(mode)\nf('a')", {"f(mode)": "f({1})"}),
    "function": ("@lw.jit\ndef f(g):\n    return g(1.0)\nf(jnp.sin)", {"f(g)": "f({1})"}),
    "under jax.jit": (
        "@functools.partial(jax.jit)\ndef f(n):\n    return jnp.zeros(n)\n"
        "with lw.debug.explain_errors():\n    f(3)",
        {"partial(jax.jit)": "partial(jax.jit, {2})"},
    ),
    "method": (
        "class Model:\n    def __init__(self, w):\n        self.w = w\n    w: jax.Array\n"
        "    @lw.jit\n    def step(self, x):\n        return self.w * x\n"
        "Model(jnp.ones(2)).step(1.0)",
        {"class Model": "{1}\nclass Model"},
    ),
    "function in a field": (
        "@lw.pytree\nclass P:\n    x: jax.Array\n    act: Callable[..., Any] = jax.nn.relu\n"
        "lw.jit(lambda p: p.act(p.x))(P(jnp.ones(2)))",
        {"act: Callable[..., Any] = jax.nn.relu": "{1}"},
    ),
    "a list in a static": (
        "@lw.pytree\nclass P:\n    x: jax.Array\n    n: lw.Static[Any] = None\nP(1.0, [1, 2])",
        {"[1, 2]": "{0}"},
    ),
}


@pytest.mark.parametrize("name", RAISED)
def test_of_an_error(name: str, tmp_path: Path) -> None:
    """With its fix the program runs."""
    code, places = RAISED[name]
    with pytest.raises(Exception, match=r".") as caught:
        program(tmp_path, HEAD + code)[1]()
    notes = [each for each in getattr(caught.value, "__notes__", []) if "leafwise: " in each]
    text = notes[0] if notes else str(getattr(caught.value, "message", ""))
    pieces = re.findall("`([^`]+)`", text if notes else text.partition("fix: ")[2])
    if name == "under jax.jit":
        assert not isinstance(caught.value, lw.errors.LeafwiseError)
    for old, new in places.items():
        code = code.replace(old, new.format(*pieces))
    program(tmp_path, HEAD + code)[1]()
