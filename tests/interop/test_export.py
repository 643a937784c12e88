"""Exported functions over pytree classes: what comes back, and what is refused, by field."""

import functools
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import pytest
from jax import export
from tests.kit.processes import run_python
from tests.objects.samples import Color, Pair
from tests.property.zoo import Config, Identity

import leafwise as lw
from leafwise.errors import PortableError
from leafwise.interop.export import register_serialization

register_serialization()
register_serialization()  # once is enough, and twice is the same

T = TypeVar("T")


@lw.pytree
class Base:
    w: jax.Array
    act: Any = lw.static_field(default=jax.nn.relu)


@lw.pytree
class Child(Base, Generic[T]):
    b: Any = 0.0
    mode: Color = lw.static_field(default=Color.RED)
    config: Any = lw.static_field(default=Config(0.5))


@lw.pytree(many_statics=True)
class Many:
    x: Any
    name: str = lw.static_field(default="a")


@lw.pytree
class Net:
    layers: Any
    extra: Any = lw.static_field(default=())
    by_content: Any = lw.static_field(default=None, compare_by="content")


class Plain:
    def __init__(self, x: Any, n: int) -> None:
        self.x, self.n = x, n


lw.register(Plain, dynamic=("x",), static=("n",))


@jax.jit
def step(net: Any, x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf * x, net), jnp.sum(x)


def full() -> Any:
    child = Child(jnp.ones(3), jnp.tanh, jnp.ones(2), Color.BLUE, Config((float("nan"), (True, 2))))
    layers = {
        "a": [child, Base(jnp.ones(1))],
        "b": (Many(jnp.ones(2), "b"), None, Plain(1.0, -0.0)),
    }
    extra = (Pair(1, b"x"), functools.partial(jax.nn.gelu, approximate=True), frozenset({"a", 1}))
    return Net(layers, (*extra, jnp.bfloat16, lw.freeze({"k": [1.0]})), jax.nn.silu)


def test_what_was_exported_is_called_with_the_same_classes_and_statics() -> None:
    """Structure, statics and results are those of the function itself."""
    net, x = full(), jnp.float32(2)
    again = export.deserialize(export.export(step)(net, x).serialize())
    assert again.in_tree == jax.tree.structure(((net, x), {}))
    assert jax.tree.structure(again.call(net, x)) == jax.tree.structure(step(net, x))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, again.call(net, x), step(net, x)))


def test_the_gradient_is_exported_as_well() -> None:
    """`vjp_order=1` gives the gradient of what was loaded, as an instance."""

    @jax.jit
    def loss(net: Any) -> Any:
        return jnp.sum(net.w**2 * net.b)

    child = Child(jnp.arange(3.0), b=jnp.float32(2))
    again = export.deserialize(export.export(loss)(child).serialize(vjp_order=1))
    found = jax.grad(again.call)(child)
    assert type(found) is Child
    assert found.w.tolist() == [0.0, 4.0, 8.0]
    assert found.mode is Color.RED


@pytest.mark.parametrize(
    "static",
    [lambda x: x, Identity("a"), lw.StaticArray(jnp.ones(3)), (1, (lambda: 0,))],
    ids=["lambda", "identity", "array", "nested"],
)
def test_unportable_statics_are_refused_by_field(static: Any) -> None:
    """When it is written, and not when another process reads it."""
    with pytest.raises(PortableError, match=r"^Base\.act(\[1\]\[0\])?: a value like"):
        export.export(step)(Base(jnp.ones(1), static), 1.0).serialize()


def define(source: str) -> Any:
    """Define a class of this module again, under the name `Changing`."""
    space = {"lw": lw, "Any": Any, "__name__": __name__}
    exec(f"@lw.pytree\nclass Changing:\n{source}", space)  # noqa: S102  # a class defined again
    globals()["Changing"] = space["Changing"]
    return space["Changing"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("    x: Any\n    s: int = 1", "here: dynamic x, s; static none"),
        (
            "    x: Any\n    y: Any = 0\n    s: int = lw.static_field(default=1)",
            "here: dynamic x, y; static s",
        ),
    ],
)
def test_a_class_with_other_fields_is_refused_by_field(source: str, words: str) -> None:
    """When the file is read, by its class of today."""
    cls = define("    x: Any\n    s: int = lw.static_field(default=1)")
    blob = export.export(step)(cls(1.0), 1.0).serialize()
    define(source)
    with pytest.raises(PortableError) as caught:
        export.deserialize(blob)
    assert words in caught.value.message


def test_a_redefined_class_with_equal_fields_is_used() -> None:
    """As in a notebook whose cell runs twice."""
    source = "    x: Any\n    s: int = lw.static_field(default=1)"
    blob = export.export(step)(define(source)(1.0), 1.0).serialize()
    today = define(source)
    found, _ = export.deserialize(blob).call(today(1.0), 2.0)
    assert type(found) is today


def test_a_class_that_was_named_by_hand_keeps_that() -> None:
    """No name is taken from anybody, and the statics travel as its author wrote them."""

    class Own:
        def __init__(self, x: Any) -> None:
            self.x = x

    jax.tree_util.register_pytree_node(Own, lambda own: ((own.x,), None), lambda _, x: Own(*x))
    export.register_pytree_node_serialization(
        Own,
        serialized_name="own",
        serialize_auxdata=lambda _: b"",
        deserialize_auxdata=lambda _: None,
    )
    register_serialization()
    again = export.deserialize(export.export(step)(Own(1.0), 1.0).serialize())
    assert type(again.call(Own(1.0), 1.0)[0]) is Own


SETUP = """
import sys
from pathlib import Path
import jax
from jax import export
import tests.interop.test_export as specimens
net, x, file = specimens.full(), jax.numpy.float32(2), Path(sys.argv[1])
"""
WRITE = "file.write_bytes(export.export(specimens.step)(net, x).serialize(vjp_order=1))"
READ = """
again = export.deserialize(file.read_bytes())
assert again.in_tree == jax.tree.structure(((net, x), {}))
one, two = again.call(net, x), specimens.step(net, x)
assert jax.tree.all(jax.tree.map(jax.numpy.array_equal, one, two))
print(jax.grad(lambda net: again.call(net, x)[0].layers["a"][1].w[0], allow_int=True)(net).extra)
"""


@pytest.mark.nightly
def test_another_process_with_another_hash_seed_reads_it(tmp_path: Path) -> None:
    """Sets and `many_statics` among the statics do not depend on the process."""
    for seed, source in (("1", WRITE), ("2", READ), ("3", READ)):
        run_python(SETUP + source, str(tmp_path / "step.bin"), PYTHONHASHSEED=seed)
