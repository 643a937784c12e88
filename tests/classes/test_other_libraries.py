"""Declarations and classes of other libraries: understood, or refused by name."""

import copy
import dataclasses
from typing import Any

import attrs
import cloudpickle
import jax
import pydantic
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


# ------------------------------------------------------------------------ what a class is already


def refusal(cls: Any) -> str:
    """Return why a class is refused."""
    with pytest.raises(lw.errors.DefinitionError) as caught:
        lw.pytree(cls)
    return caught.value.message


@pytest.mark.parametrize("default", [attrs.field(default=3), pydantic.Field(default=3)])
def test_declaration_of_another_library(default: Any) -> None:
    """`attrs.field()` would be the default value itself."""
    cls = type("Cell", (), {"__annotations__": {"size": int}, "size": default})
    with pytest.raises(lw.errors.DefinitionError, match=r"Cell\.size: its default declares"):
        lw.pytree(cls)


def test_class_of_attrs() -> None:
    """A class of attrs can stay one: it is registered as it is, as its message says."""

    @attrs.frozen
    class Cell:
        size: Any
        kind: Any

    assert "lw.register(Cell, dynamic=[...], static=[...])" in refusal(Cell)
    lw.register(Cell, dynamic=["size"], static=["kind"])
    assert jax.tree.leaves(Cell(1, "a")) == [1]


class _Maker:
    """Makes each subclass a dataclass and a pytree, as mjx does."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)
        jax.tree_util.register_dataclass(cls)


_Maker.__module__ = "mujoco.mjx._src.dataclasses"


def test_made_by_another_library() -> None:
    """A class that a decorator or a base of a library has made is refused, and told what it is."""

    class Model(_Maker):
        x: Any

    @jdc.pytree_dataclass
    class Mesh:
        n: int

    assert refusal(Model).startswith("Model: a dataclass and a pytree already, by another")
    assert refusal(Mesh).startswith("Mesh: a dataclass and a pytree already, by another")


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
