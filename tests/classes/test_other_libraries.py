"""Declarations and classes of other libraries: understood, or refused by name."""

import copy
import dataclasses
import enum
from typing import Any, NamedTuple

import attrs
import cloudpickle
import jax
import pytest

import leafwise as lw

jdc = pytest.importorskip("jax_dataclasses")


def test_markers_of_jax_dataclasses() -> None:
    """`jdc.Static[...]` and `jdc.static_field()` declare a static field, as there."""

    @lw.pytree
    class Mesh:
        w: Any
        n: jdc.Static[int] = 3
        name: "jdc.Static[str]" = "a"
        depth: int = jdc.static_field(default=2)

    mesh = Mesh(1.0)
    assert jax.tree.leaves(mesh) == [1.0]
    assert jax.tree.structure(mesh) != jax.tree.structure(Mesh(1.0, True))
    assert jax.tree.structure(mesh) != jax.tree.structure(Mesh(1.0, depth=2.0))  # type: ignore[arg-type]


def test_buried_marker_of_jax_dataclasses() -> None:
    """Inside another type it has no effect there, and is refused here."""
    with pytest.raises(lw.errors.DefinitionError, match=r"fix: `n: lw\.Static\[int \| None\]`"):

        @lw.pytree
        class Mesh:
            n: jdc.Static[int] | None = None


def test_marker_of_treeo() -> None:
    """treeo's metadata, which has an entry `kind` too, says static; `node` alone says nothing."""

    @lw.pytree
    class Tree:
        a: Any = dataclasses.field(metadata={"node": False, "kind": object})
        b: Any = dataclasses.field(metadata={"node": True, "kind": object})
        c: Any = dataclasses.field(metadata={"node": 0})

    assert jax.tree.leaves(Tree("a", 2, 3)) == [2, 3]


@pytest.mark.parametrize(
    ("annotation", "fix"),
    [
        (lw.static_field(), "static_field"),
        (dataclasses.field(metadata={"pytree_node": False}), "static_field"),
        (lw.field(), "lw.field"),
    ],
)
def test_declaration_as_annotation(annotation: Any, fix: str) -> None:
    """A `:` in the place of `=` makes a dynamic field of a static one, so it is refused."""
    cls = type("Cell", (), {"__annotations__": {"size": annotation}})
    with pytest.raises(lw.errors.DefinitionError, match=rf"Cell\.size: .* `:`[^`]*`=`.*\n.*{fix}"):
        lw.pytree(cls)


def test_declaration_of_attrs() -> None:
    """`attrs.field()` would be the default value itself."""
    with pytest.raises(lw.errors.DefinitionError, match=r"Cell\.size: .*_CountingAttr of attr"):

        @lw.pytree
        class Cell:
            size: int = attrs.field(default=3)


# ------------------------------------------------------------------------ what a class is already


def refusal(cls: Any) -> str:
    """Return why a class is refused."""
    with pytest.raises(lw.errors.DefinitionError) as caught:
        lw.pytree(cls)
    return caught.value.message


class Moments(NamedTuple):
    mean: float
    variance: float


def test_named_tuple() -> None:
    """A `NamedTuple` is told what it is, and what its methods become."""
    text = refusal(Moments)
    assert text.startswith("Moments: a NamedTuple is a tuple")
    assert "lw.replace(obj, x=1)" in text
    assert "remove" not in text
    assert "a NamedTuple is a tuple" in refusal(type("Sub", (Moments,), {}))


def test_enum_class() -> None:
    """An `Enum` is not a tree: its members are constants."""
    assert "keep a member in a static field" in refusal(enum.Enum("Mode", "A B"))


def test_class_of_attrs() -> None:
    """A class of attrs can stay one: it is registered as it is, as its message says."""

    @attrs.frozen
    class Cell:
        size: Any
        kind: Any

    assert "lw.register(Cell, dynamic=[...], static=[...])" in refusal(Cell)
    lw.register(Cell, dynamic=["size"], static=["kind"])
    assert jax.tree.leaves(Cell(1, "a")) == [1]


def test_class_of_jax_dataclasses() -> None:
    """The decorator that has to go is named."""

    @jdc.pytree_dataclass
    class Mesh:
        n: int

    text = refusal(Mesh)
    assert "@jax_dataclasses.pytree_dataclass has made it" in text
    assert "fix: @lw.pytree in its place" in text


def test_registered_by_hand() -> None:
    """What registers a class has to go, not a `@dataclass` that is not there."""

    @jax.tree_util.register_pytree_node_class
    class Pair:
        def tree_flatten(self) -> Any:
            return (), None

        @classmethod
        def tree_unflatten(cls, _aux: Any, _children: Any) -> Any:
            return cls()

    text = refusal(Pair)
    assert "register_pytree_node_class" in text
    assert "@dataclass" not in text


class _Maker:
    """Makes each subclass a dataclass and a pytree, as mjx does."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)
        jax.tree_util.register_dataclass(cls)


_Maker.__module__ = "mujoco.mjx._src.dataclasses"


def test_base_that_makes_dataclasses() -> None:
    """The base that makes the class what it is, and its library, are named; no decorator is."""

    class Model(_Maker):
        x: Any

    class System(Model):
        y: Any

    text = refusal(System)
    assert text == (
        "System: each subclass of Model is a dataclass and a pytree already, by _Maker of mujoco\n"
        "  fix: keep a Model in a field, or have no such base; without @lw.pytree the class stays "
        "one of mujoco"
    )
    assert "subclass of _Maker is a dataclass and a pytree already, by mujoco" in refusal(Model)


def test_pytree_class_beside_such_a_base() -> None:
    """A class that such a base makes a pytree, next to one of leafwise, is one: brax has these."""

    @lw.pytree
    class Base:
        def doubled(self) -> Any:
            return jax.tree.map(lambda leaf: 2 * leaf, self)

    class Contact(_Maker):
        x: Any

    class Before(Base, Contact):
        y: Any

    class After(Contact, Base):
        y: Any

    for both in (Before, After):
        made: Any = both(1.0, 2.0)
        assert made.doubled() == both(2.0, 4.0)
        assert jax.jit(Base.doubled)(made).y == 4.0
        assert copy.copy(made) == copy.deepcopy(made) == made
        assert cloudpickle.loads(cloudpickle.dumps(made)).y == 2.0
    with pytest.raises(lw.errors.DefinitionError):
        type("Bare", (Base,), {})()
