"""`leafwise.interop.flax.struct` in the place of `flax.struct`: one line of a file changes."""

import pickle
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import pytest
from flax import serialization

import leafwise as lw
from leafwise.interop.flax import struct

if TYPE_CHECKING:
    from collections.abc import Mapping  # what a file may import for type checkers only

T = TypeVar("T")
works = pytest.mark.works
ONE_LINE = "`from leafwise.interop.flax import struct` in the place of `from flax import struct`"


def file_of(struct: Any) -> Any:
    """Return the classes of a file that imports this `struct`."""

    @struct.dataclass
    class Params:
        gravity: float = 9.8
        size: int = struct.field(pytree_node=False, default=2)

    @struct.dataclass
    class State:
        params: Params
        x: Any
        extra: "Mapping[str, Any]" = struct.field(default_factory=dict)

        def moved(self, by: Any) -> Any:
            return self.replace(x=self.x + by)  # type: ignore[attr-defined]

    class Node(struct.PyTreeNode):
        x: Any
        name: str = struct.field(pytree_node=False, default="a")

    @struct.dataclass(kw_only=True)
    class Named:
        a: Any = 1
        b: Any

    return Params, State, Node, Named


@works("flax", ONE_LINE)
def test_one_line() -> None:
    """A file does what it did: fields, `.replace`, leaves in their order, jit, serialization."""

    def results(struct: Any) -> Any:
        params, state, node, named = file_of(struct)
        trees = [
            state(params(), jnp.ones(2)),
            state(params(size=3), 1.0).moved(2).replace(extra={"a": 1}),
            node(1.0, "b").replace(x=3),
            named(b=2),
        ]
        doubled = [
            jax.jit(lambda tree: jax.tree.map(lambda x: 2 * x, tree))(each) for each in trees
        ]
        sizes = [trees[0].params.size, doubled[1].params.size, doubled[2].name]
        paths = [
            [
                (jax.tree_util.keystr(path), str(leaf))
                for path, leaf in jax.tree.leaves_with_path(each)
            ]
            for each in (*trees, *doubled)
        ]
        written = [
            jax.tree.leaves(serialization.from_bytes(each, serialization.to_bytes(each)))
            for each in trees
        ]
        return sizes, paths, str(written)

    assert results(struct) == results(flax.struct)


@works("flax", "type-exact statics after that line")
def test_statics_are_sound() -> None:
    """What flax answered for `1` when it got `True` is now two programs."""
    params = file_of(struct)[0]
    assert jax.tree.structure(params(size=1)) != jax.tree.structure(params(size=True))


class Node(struct.PyTreeNode, Generic[T]):
    x: T
    names: "Mapping[str, int] | None" = struct.field(False, default=None)


def test_node() -> None:
    """A node is generic and pickles; a decorator on it changes nothing."""
    node = Node[int](3)
    assert pickle.loads(pickle.dumps(node)) == node  # noqa: S301
    assert struct.dataclass(Node) is Node


@works("flax", "classes of both `struct` modules as bases and fields of each other")
def test_half_of_a_package() -> None:
    """Files that have been changed, and others, derive from each other and hold each other."""

    @flax.struct.dataclass
    class Old:
        x: Any
        size: int = flax.struct.field(pytree_node=False, default=1)

    @struct.dataclass
    class New(Old):
        y: Any = 2.0

    @flax.struct.dataclass
    class Again(New):
        z: Any = 3.0

    for state, leaves in ((New(1.0), [1.0, 2.0]), (Again(1.0), [1.0, 2.0, 3.0])):
        changed = state.replace(size=5)  # type: ignore[attr-defined]
        assert (changed.size, type(changed)) == (5, type(state))
        assert jax.tree.leaves(Old(state)) == leaves
        assert serialization.from_bytes(state, serialization.to_bytes(state)) == state


def test_options() -> None:
    """flax's `frozen=True` is taken; what would make another class than a pytree class is not."""

    @struct.dataclass(frozen=True)
    class Frozen:
        x: Any

    assert Frozen(1).replace(x=3).x == 3  # type: ignore[attr-defined]
    with pytest.raises(lw.errors.DefinitionError, match="no mutable pytree class"):
        struct.dataclass(frozen=False)(type("Local", (), {}))
