"""`leafwise.interop.equinox.Module`: copies, pickles, tree definitions and other processes."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

from .modules import KEEPS, Layer, works


@works("a `functools.cached_property` changes no tree definition")
def test_cached_property() -> None:
    """Touching one changes nothing that JAX sees."""
    layer = Layer(jnp.ones(4))
    before = jax.tree.structure(layer)
    assert layer.norm == 2.0
    assert jax.tree.structure(layer) == before


SCRIPT = """
import pickle, sys
import jax, jax.numpy as jnp
import travelling
layer, structure = pickle.loads(sys.stdin.buffer.read())
assert jax.tree.structure(layer) == jax.tree.structure(travelling.Layer(jnp.ones(2), 0.0))
assert jax.tree.structure(layer) != jax.tree.structure(travelling.Layer(jnp.ones(2), -0.0))
print(layer.zero, structure.unflatten([1.0]).zero)
"""
MODULE = """
import jax
import leafwise as lw
from leafwise.interop.equinox import Module
class Layer(Module):
    w: jax.Array
    zero: float = lw.static_field(default=0.0)
"""


@pytest.mark.slow
@works("tree definitions that can be pickled, also to another process")
@works("instances and tree definitions that travel to another process, key included")
def test_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a new process they have the key that equal instances have there."""
    (tmp_path / "travelling.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import travelling  # it was written just now

    layer = travelling.Layer(jnp.ones(2), 0.0)
    sent = pickle.dumps((layer, jax.tree.structure(layer)))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=sent, capture_output=True, check=False
    )
    assert run.stderr.decode() == ""
    assert run.stdout.decode().split() == ["0.0", "0.0"]


@pytest.mark.slow
@works(
    "a class that cloudpickle pickles by value",
    cannot="rejected, because equinox looks for the fields too early",
)
def test_class_by_value_is_refused() -> None:
    """Instead of instances that lose their leaves silently there is an error."""
    script = f"{MODULE}\nimport cloudpickle, sys\nlayer = Layer(1.0)\n"
    send = f"{script}sys.stdout.buffer.write(cloudpickle.dumps(layer))"
    sent = subprocess.run([sys.executable, "-c", send], capture_output=True, check=True).stdout
    load = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    loaded = subprocess.run(
        [sys.executable, "-c", load], input=sent, capture_output=True, check=False
    )
    assert "DefinitionError: Layer: equinox does not see its fields (w)" in loaded.stderr.decode()


@works(f"{KEEPS} `copy`, `deepcopy` and `pickle`")
def test_copies() -> None:
    """Copies have the same key; statics are shared, children copied, once each."""
    plain = object()
    layer = Layer(jnp.ones(2), name="a")
    holder = Holder([layer, layer], plain)
    for made in (copy.copy(holder), copy.deepcopy(holder)):
        assert jax.tree.structure(made) == jax.tree.structure(holder)
        assert made.static is plain
    deep = copy.deepcopy(holder)
    assert deep.items is not holder.items
    assert deep.items[0] is deep.items[1]
    again = pickle.loads(pickle.dumps(layer))  # noqa: S301  # our own
    assert jax.tree.structure(again) == jax.tree.structure(layer)
    assert eqx.tree_equal(again, layer)


class Holder(Module):
    items: list[Layer]
    static: object = lw.static_field()


@works(f"{KEEPS} classes with a pickling of their own")
def test_own_pickling() -> None:
    """A state that the class wrote itself is filled in, and has a sound key."""
    slim = pickle.loads(pickle.dumps(Slim(1.0, True)))  # noqa: S301  # our own
    assert (slim.x, slim.n) == (1.0, True)
    assert jax.tree.structure(slim) == jax.tree.structure(Slim(2.0, True))
    assert jax.tree.structure(slim) != jax.tree.structure(Slim(2.0, 1))


class Slim(Module):
    x: float
    n: int = lw.static_field()

    def __getstate__(self) -> dict[str, object]:
        return {"x": self.x, "n": self.n}
