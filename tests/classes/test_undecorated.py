"""Subclasses that are not decorated: refused, since JAX would not see their fields."""

from typing import Any

import pytest

import leafwise as lw


@lw.pytree
class Base:
    x: Any
    a: int = lw.static_field(default=1)


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


def own_init(self: Any) -> None:
    """Set fields as usual."""
    self.x = 1.0


class Foreign:
    def __init__(self, x: Any = 1.0) -> None:
        self.__dict__["x"] = x


UNDECORATED: dict[str, tuple[tuple[type, ...], dict[str, Any]]] = {
    "without a constructor": ((Base,), {}),
    "with fields": ((Base,), {"__annotations__": {"y": int}, "y": 1}),
    "with a constructor": ((Base,), {"__init__": own_init}),
    "constructor of a mixin": ((Foreign, Base), {}),
    "of a subclass": ((type("Middle", (Base,), {"__init__": lambda _self: None}),), {}),
}


@pytest.mark.parametrize("name", UNDECORATED)
def test_undecorated_subclass(name: str) -> None:
    """An undecorated subclass raises when first instantiated, and the error has the fix."""
    bases, body = UNDECORATED[name]
    cls = type("P", bases, body)
    arguments = (1.0,) if "__init__" not in body and "mixin" not in name else ()
    arguments = () if name == "of a subclass" else arguments
    for _ in range(2):
        with pytest.raises(lw.errors.DefinitionError, match="P is a subclass of") as error:
            cls(*arguments)
        assert "fix: @lw.pytree\n       class P(Base): ..." in str(error.value)
    assert isinstance(error.value, TypeError)
