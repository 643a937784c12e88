"""`many_statics=True`: the hash of a treedef depends on the statics, and little else shows."""

import functools
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import pytest
from tests.kit.processes import run_python
from tests.objects.samples import Color, Pair

import leafwise as lw


@lw.pytree
class Plain:
    x: Any
    a: Any = lw.static_field(default=1)
    y: Any = 2.0


@lw.pytree(many_statics=True)
class Many(Plain):
    pass


@lw.pytree(many_statics=True, slots=True)
class Slotted(Plain):
    pass


def hashes(cls: Any, statics: list[Any]) -> int:
    """Count the hashes of the treedefs of instances with these statics."""
    return len({hash(jax.tree.structure(cls(1.0, static))) for static in statics})


@pytest.mark.parametrize("cls", [Many, Slotted])
def test_hashes_depend_on_statics(cls: Any) -> None:
    """1,000 static values have one hash without the option, and about 250 with it."""
    assert hashes(Plain, list(range(1000))) == 1
    assert hashes(cls, list(range(1000))) > 200
    assert hashes(cls, [("layer", str(i), i / 2) for i in range(1000)]) > 200


@pytest.mark.parametrize(
    "statics",
    [
        [Color.RED, Color.BLUE],
        [len, functools.partial(max, 1), functools.partial(max, 2)],
        [lw.StaticArray([i]) for i in range(3)],
        [lw.FrozenMapping(a=i) for i in range(3)],
        [int, str],
        [Pair(1, 2), Pair(1, 3)],
        [1, True, 1.0],
        [0.0, -0.0],
    ],
    ids=["enum", "partial", "array", "mapping", "type", "namedtuple", "one", "zero"],
)
def test_values_of_many_kinds_have_digests(statics: list[Any]) -> None:
    """What is read value by value is digested value by value."""
    assert hashes(Many, statics) == len(statics)


def test_where_the_child_shows() -> None:
    """One-level idioms see it, last, under a path that leads to it; what becomes of it is lost."""
    many = Many(1.0)
    one_level = {"is_leaf": lambda x: x is not many}
    paths = jax.tree_util.tree_flatten_with_path(many, **one_level)[0]
    assert [jax.tree_util.keystr(path) for path, _ in paths[:2]] == [".x", ".y"]
    path, child = paths[2]
    assert eval("many" + jax.tree_util.keystr(path)) is child  # noqa: S307
    assert jax.tree.map(str, many, **one_level) == Many("1.0", 1, "2.0")
    children = jax.tree.structure(many).children()
    assert [each.num_leaves for each in children] == [1, 1, 0]
    leaves, structure = eqx.tree_flatten_one_level(many)
    assert leaves[:2] == [1.0, 2.0]
    assert jax.tree.unflatten(structure, leaves) == many


def test_subclasses_decide_for_themselves() -> None:
    """Neither the option nor its absence is inherited."""

    @lw.pytree
    class Back(Many):
        pass

    assert jax.tree.structure(Back(1.0)).num_nodes == 3
    assert jax.tree.structure(Many(1.0)).num_nodes == 4


ARRIVE = """
import pickle, sys
make, treedef = pickle.load(sys.stdin.buffer)
made = make(1.0, ("a", 1))
import jax
assert jax.tree.structure(made) == treedef, (jax.tree.structure(made), treedef)
assert treedef.num_nodes == 4
"""


@pytest.mark.slow
def test_by_value_to_another_process() -> None:
    """A class that cloudpickle carries along keeps its option."""

    @lw.pytree(many_statics=True)
    class Local:
        x: Any
        a: Any = lw.static_field(default=1)
        y: Any = 2.0

    # In this order: JAX must know the class before it reads a treedef of it.
    sent = cloudpickle.dumps((Local, jax.tree.structure(Local(1.0, ("a", 1)))))
    run_python(ARRIVE, given=sent)
