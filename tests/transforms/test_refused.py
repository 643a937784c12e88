"""What a finished program refuses, and where JAX itself stops: with the message."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

import leafwise as lw
from leafwise.interop.export import register_serialization

from .row import step
from .specimens import (
    EAGER,
    VALUES,
    net,
    statics_of,
)

ROOT = Path(__file__).parents[2]


@lw.pytree
class State:
    x: Any
    n: Any = lw.static_field(default=1)


def test_a_donated_instance_is_used_up() -> None:
    """Its buffers are gone, its class and statics are there, and what is made of it is refused."""
    program = jax.jit(step, donate_argnums=0)
    given = State(jnp.float32(1) + 0, "kept")
    assert program(given).x == 1.75
    assert (given.x.is_deleted(), given.n) == (True, "kept")
    for used in (given, lw.replace(given, n="other")):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            program(used)


ELSEWHERE = """
import sys
import jax
from jax import export
from tests.transforms.row import same, step
from tests.transforms.specimens import EAGER, VALUES
from leafwise.interop.export import register_serialization

register_serialization()
data = sys.stdin.buffer.read()
cut = int.from_bytes(data[:8], "big")
for kind, part in ((VALUES, data[8:8 + cut]), (EAGER, data[8 + cut:])):
    program = export.deserialize(part)
    same(program.call(kind.make("tanh")), step(kind.make("tanh")))
    assert program.in_tree == jax.tree.structure(((kind.make("tanh"),), {}))
    try:
        program.call(kind.make("sin"))
    except ValueError as error:
        print("refused" if "act='sin'" in str(error) else error)
"""


@pytest.mark.nightly
def test_serialised_and_called_in_another_process() -> None:
    """A program comes back with classes and statics, and refuses other statics there too."""
    register_serialization()
    parts = [
        export.export(jax.jit(step))(kind.make("tanh")).serialize(vjp_order=1)
        for kind in (VALUES, EAGER)
    ]
    first = net("tanh")
    gradient = jax.grad(lambda p: export.deserialize(parts[0]).call(p).layers[0].w, allow_int=True)(
        first
    )
    assert statics_of(gradient) == statics_of(first)
    assert gradient.step.dtype == jax.dtypes.float0
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=len(parts[0]).to_bytes(8, "big") + b"".join(map(bytes, parts)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.split() == [b"refused", b"refused"]
