"""`leafwise.interop.flax.struct` in the place of `flax.struct`: one line of a file changes."""

import pickle
import sys
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

    @struct.dataclass
    class Longer(State):
        y: Any = 0.0

    class Node(struct.PyTreeNode):
        x: Any
        name: str = struct.field(pytree_node=False, default="a")

    class Below(Node):
        y: Any = struct.field(pytree_node=True, default=1)

    @struct.dataclass(kw_only=True)
    class Named:
        a: Any = 1
        b: Any

    class Keyed(struct.PyTreeNode, kw_only=True):
        a: Any = 1
        b: Any

    return Params, State, Longer, Node, Below, Named, Keyed


@works("flax", ONE_LINE)
def test_one_line() -> None:
    """A file does what it did: fields, `.replace`, leaves in their order, jit, serialization."""

    def results(struct: Any) -> Any:
        params, state, longer, node, below, named, keyed = file_of(struct)
        trees = [
            state(params(), jnp.ones(2)),
            longer(params(size=3), 1.0, y=2.0).replace(x=5.0, extra={"a": 1}),
            state(params(), 1.0).moved(2),
            node(1.0, "b").replace(x=3),
            below(1.0).replace(name="c", y=4),
            named(b=2),
            keyed(b=2),
        ]
        doubled = [
            jax.jit(lambda tree: jax.tree.map(lambda x: 2 * x, tree))(each) for each in trees
        ]
        sizes = [trees[0].params.size, doubled[1].params.size, doubled[4].name]
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
    with pytest.raises(lw.errors.UnhashableStaticError, match=r"Params\.size"):
        params(size=[1])


class Node(struct.PyTreeNode, Generic[T]):
    x: T
    names: "Mapping[str, int] | None" = struct.field(False, default=None)

    def total(self) -> Any:
        return super().__init__, self.x


def test_node() -> None:
    """A node is generic, pickles, nests, and takes `super()`; a decorator on it changes nothing."""
    node = Node[int](3)
    assert pickle.loads(pickle.dumps(node)) == node  # noqa: S301
    assert node.total()[1] == 3
    assert lw.pytree(Node) is Node
    assert struct.dataclass(Node) is Node
    assert jax.tree.leaves({"a": node}) == [3]


def test_local_names() -> None:
    """Annotations as text find the names that the class statement sees."""
    Count = lw.Static[int]  # noqa: N806

    class Local(struct.PyTreeNode):
        x: "Count"

    @struct.dataclass
    class Decorated:
        x: "Count"

    assert not jax.tree.leaves([Local(1), Decorated(1)])


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

    class Holder(flax.struct.PyTreeNode):
        state: New

    for state, leaves in ((New(1.0), [1.0, 2.0]), (Again(1.0), [1.0, 2.0, 3.0])):
        changed = state.replace(size=5)  # type: ignore[attr-defined]
        assert (changed.size, type(changed)) == (5, type(state))
        assert jax.tree.leaves(Holder(state)) == leaves
        assert serialization.from_bytes(state, serialization.to_bytes(state)) == state
    assert Holder(New(1.0)).replace(state=New(2.0)).state.x == 2.0


def test_options() -> None:
    """flax's `frozen=True` is taken; what would make another class than a pytree class is not."""

    @struct.dataclass(frozen=True, order=True, slots=True)
    class Ordered:
        x: Any

    assert Ordered(1) < Ordered(2)
    assert Ordered(1).replace(x=3).x == 3  # type: ignore[attr-defined]
    with pytest.raises(lw.errors.DefinitionError, match="no mutable pytree class"):
        struct.dataclass(frozen=False)(type("Local", (), {}))
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'unsafe_hash'"):
        struct.dataclass(unsafe_hash=True)(type("Local", (), {}))


def test_struct_alone() -> None:
    """It is a module to import from, as flax's is."""
    assert sys.modules["leafwise.interop.flax.struct"] is struct
    assert {"dataclass", "field", "PyTreeNode"} == {*struct.__all__}
