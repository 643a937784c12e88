"""What a finished program refuses, and where JAX itself stops: with the message."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

import leafwise as lw
from leafwise.interop.export import register_serialization

from .row import ones, same, step
from .specimens import (
    EAGER,
    VALUES,
    Kind,
    net,
    statics_of,
)

ROOT = Path(__file__).parents[2]


@lw.pytree
class State:
    x: Any
    n: Any = lw.static_field(default=1)


def compiled(p: Any) -> Any:
    return jax.jit(step).lower(p).compile()


def exported(p: Any) -> Any:
    return export.export(jax.jit(step))(p).call


finished = pytest.mark.parametrize("finish", [compiled, exported])


@finished
@pytest.mark.parametrize("kind", [VALUES, EAGER], ids=lambda kind: kind.name)
def test_other_statics(finish: Any, kind: Kind) -> None:
    """A finished program names class and field of the static that it was not made for."""
    program = finish(kind.make("tanh"))
    same(program(kind.make("tanh")), step(kind.make("tanh")))
    with pytest.raises((TypeError, ValueError)) as caught:
        program(kind.make("sin"))
    name = "SlottedLayer" if kind is VALUES else "ManyLayer"
    caught.match(rf"{name}\(act='tanh'")
    caught.match(rf"{name}\(act='sin'")


@finished
@pytest.mark.parametrize(
    ("leaf", "text"),
    [(jnp.ones(2, jnp.float32), "2"), (jnp.int32(1), "int32")],
    ids=["shape", "dtype"],
)
def test_other_leaves(finish: Any, leaf: Any, text: str) -> None:
    """The same for a shape or dtype: the path of the field is in the message."""
    program = finish(State(jnp.float32(1)))
    with pytest.raises((TypeError, ValueError), match=r"\.x") as caught:
        program(State(leaf))
    caught.match(text)


def test_lowered_for_structs_of_another_static() -> None:
    """What is lowered for an instance of structs is for the statics of that instance."""
    struct = State(jax.ShapeDtypeStruct((), jnp.float32), n=1)
    program = jax.jit(step).lower(struct).compile()
    assert program(State(jnp.float32(2))).x == 3.25
    with pytest.raises(TypeError, match=r"State\(n=1\).*State\(n=True\)"):
        program(State(jnp.float32(2), n=True))


def test_a_donated_instance_is_used_up() -> None:
    """Its buffers are gone, its class and statics are there, and what is made of it is refused."""
    program = jax.jit(step, donate_argnums=0)
    given = State(jnp.float32(1) + 0, "kept")
    assert program(given).x == 1.75
    assert (given.x.is_deleted(), given.n) == (True, "kept")
    for used in (given, lw.replace(given, n="other")):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            program(used)


def test_an_array_in_two_fields_is_not_donated_twice() -> None:
    """XLA takes a buffer once: so it is with any tree."""
    x = jnp.float32(1) + 0
    with pytest.raises(RuntimeError, match="donate the same buffer twice"):
        jax.jit(step, donate_argnums=0)({"a": State(x), "b": State(x)})


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


@pytest.mark.slow
def test_serialised_and_called_in_another_process() -> None:
    """A program comes back with classes and statics, and refuses other statics there too."""
    pytest.importorskip("flatbuffers")
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


@pytest.mark.parametrize("function", [lax.select, jnp.where])
def test_select_takes_arrays(function: Any) -> None:
    """`lax.select` and `jnp.where` refuse an instance, as they refuse any tree."""
    tree = State(jnp.float32(1))
    with pytest.raises(TypeError, match="State"):
        function(True, tree, tree)


@pytest.mark.parametrize("derive", [jax.grad, jax.jacfwd, jax.jacrev, jax.hessian])
def test_integers_have_no_derivative(derive: Any) -> None:
    """JAX asks for `allow_int=True`, or for the leaves that have derivatives."""
    count = State(jnp.int32(1))
    with pytest.raises(TypeError, match="int32"):
        derive(lambda p: p.x * 1.0)(count)


def test_tangents_of_integers_are_float0() -> None:
    """A tangent of the same class with a number for a count is refused."""
    count = State(jnp.int32(1))
    jax.jvp(step, (count,), (ones(count),))
    with pytest.raises(TypeError, match="float0"):
        jax.jvp(step, (count,), (State(jnp.float32(1)),))


@pytest.mark.parametrize("other", [2, True, 1.0, "1"])
def test_a_static_that_changes_in_a_loop(other: Any) -> None:
    """A carry cannot change its statics, not even to an equal value of another type."""
    with pytest.raises(TypeError, match=rf"n={other!r}"):
        lax.scan(lambda p, _: (lw.replace(p, n=other), None), State(0.0), None, length=2)
