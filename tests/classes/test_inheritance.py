"""Inheritance: staticness, constructors, and subclasses that are not decorated."""

import dataclasses
from typing import Any

import jax
import pytest

import leafwise as lw


@lw.pytree
class Base:
    x: Any
    a: int = lw.static_field(default=1)
    b: lw.Static[str] = "b"


@pytest.mark.parametrize(("body", "default"), [({}, 1), ({"a": 3}, 3)], ids=["inherited", "own"])
@pytest.mark.parametrize("annotation", [int, Any, float | None])
def test_override_of_a_static_field_must_say_so(
    annotation: Any, body: dict[str, Any], default: int
) -> None:
    """Overriding a static field without saying static or dynamic is a definition error."""
    body = {"__annotations__": {"a": annotation}, **body}
    with pytest.raises(
        lw.errors.DefinitionError, match=r"P\.a: overrides a static field of Base"
    ) as e:
        lw.pytree(type("P", (Base,), body))
    assert f"= lw.static_field(default={default})` or" in str(e.value)
    assert f"= lw.field(default={default})` for a dynamic one" in str(e.value)


OVERRIDES = {
    "value": 3,
    "property": property(lambda self: 3),
}


@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("field", ["a", "x"])
def test_override_without_an_annotation(field: str, name: str) -> None:
    """Assigning a field's name in a subclass changes no default, so it is refused."""
    with pytest.raises(lw.errors.DefinitionError, match=rf"P\.{field}\b"):
        lw.pytree(type("P", (Base,), {field: OVERRIDES[name]}))


def test_fields_of_a_plain_frozen_base() -> None:
    """Fields of a plain frozen dataclass follow the same rules as one's own."""

    @dataclasses.dataclass(frozen=True)
    class Plain:
        n: lw.Static[int]
        m: int = dataclasses.field(default=1, metadata={"static": True})

    @lw.pytree
    class P(Plain):
        x: Any = 1.0

    assert jax.tree.leaves(P(3)) == [1.0]

    @dataclasses.dataclass(frozen=True)
    class Text:
        name: str

    with pytest.raises(lw.errors.DefinitionError, match="JAX cannot trace a str"):

        @lw.pytree
        class Q(Text):
            x: Any = 1.0


def test_base_that_is_not_frozen() -> None:
    """A dataclass that can change in place cannot be a base: `dataclasses` says why."""
    base = dataclasses.make_dataclass("Open", ["x"])
    with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):
        lw.pytree(type("P", (base,), {}))


def test_super_init_chain() -> None:
    """Hand-written constructors can call each other through `super()`."""

    @lw.pytree
    class A:
        x: Any
        a: lw.Static[int]

        def __init__(self, x: Any, a: int) -> None:
            self.x, self.a = x, a

    @lw.pytree
    class B(A):
        y: Any
        b: lw.Static[Any] = None

        def __init__(self, y: Any, b: Any, *args: Any) -> None:
            super().__init__(*args)
            self.y, self.b = y + self.x, b

    instance = B(1.0, "b", 2.0, 3)
    assert (instance.x, instance.y, instance.a, instance.b) == (2.0, 3.0, 3, "b")
    assert jax.tree.leaves(instance) == [2.0, 3.0]
    with pytest.raises(lw.errors.StaticFieldError, match=r"B\.b"):
        B(1.0, [], 2.0, 3)


def test_super_reads_statics_that_moved() -> None:
    """`super()` finds a static field by name where a subclass keeps it at another place."""

    @lw.pytree
    class Base:
        x: Any = 0.0
        a: Any = lw.static_field(default="a")
        y: Any = 0.0
        b: Any = lw.static_field(default="b")

    class Reading:
        def above(self) -> tuple[Any, ...]:
            bound = super()
            return tuple(getattr(bound, name) for name in ("a", "b"))

    @lw.pytree
    class Shifted(Reading, Base):
        x: Any = lw.static_field(default="x")

    @lw.pytree
    class Further(Shifted):
        y: Any = lw.static_field(default="y")

    assert Shifted(a=1, b=2).above() == (1, 2)
    assert Further(a=3, b=4).above() == (3, 4)
    assert Further(y=5).y == 5
    assert (Base(a=7).a, Base(b=8).b) == (7, 8)
    assert jax.tree.map(lambda leaf: leaf, Shifted(a=9)).above() == (9, "b")


def test_undecorated_class_in_between() -> None:
    """An undecorated class with fields between two decorated ones would lose them."""

    class Between(Base):
        y: Any = 1.0

    with pytest.raises(
        lw.errors.DefinitionError, match=r"Between .* declares y, but is not decorated"
    ):

        @lw.pytree
        class P(Between):
            pass


class Foreign:
    def __init__(self, x: Any = 1.0) -> None:
        self.__dict__["x"] = x


UNDECORATED: dict[str, tuple[tuple[type, ...], dict[str, Any], tuple[Any, ...]]] = {
    "without a constructor": ((Base,), {}, (1.0,)),
    "with fields": ((Base,), {"__annotations__": {"y": int}, "y": 1}, (1.0,)),
    "with a constructor": ((Base,), {"__init__": lambda self: setattr(self, "x", 1.0)}, ()),
    "constructor of a mixin": ((Foreign, Base), {}, ()),
    "of a subclass": ((type("Middle", (Base,), {"__init__": lambda _: None}),), {}, ()),
}


@pytest.mark.parametrize("name", UNDECORATED)
def test_undecorated_subclass(name: str) -> None:
    """An undecorated subclass raises when first instantiated, and the error has the fix."""
    bases, body, arguments = UNDECORATED[name]
    cls = type("P", bases, body)
    for _ in range(2):
        with pytest.raises(lw.errors.DefinitionError, match="P is a subclass of") as error:
            cls(*arguments)
        assert "fix: @lw.pytree\n       class P(Base): ..." in str(error.value)
    assert isinstance(error.value, TypeError)
