"""Where a value is wanted, for strategies that are made of others."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from leafwise.testing.strategies._constructor import CannotBuildError

_DEPTH: Final = 2
"""How often classes may hold instances of classes that they are part of."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value is wanted.

    Attributes:
        text: ``Class.field``, for messages.
        home: The class whose annotation it is, where names are looked up.
        above: The classes of which an instance is being made, this being a part of it.
        errors: What constructors raised of late.
        varied: Whether values are to differ in shape, dtype and structure; else all are
            as much alike as can be.
        static: Whether the field is static.
        counts: Whether a whole number is likely to be a size: it is static, or no field.
        bindings: What the type variables of the annotation stand for.
        steps: Class and field on the way here, from the outermost class.
    """

    text: str
    home: Any
    above: tuple[Any, ...] = ()
    errors: list[BaseException] = dataclasses.field(default_factory=list[BaseException])
    varied: bool = False
    static: bool = False
    counts: bool = False
    bindings: Mapping[Any, Any] = dataclasses.field(default_factory=dict[Any, Any])
    steps: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the words for a message."""
        return self.text or self.home.__name__

    def inside(
        self,
        cls: type,
        name: str,
        home: Any,
        *,
        static: bool = False,
        counts: bool = False,
        bindings: Mapping[Any, Any] | None = None,
    ) -> "Place":
        """Return the place of an argument of `cls`, of which an instance is wanted here."""
        return dataclasses.replace(
            self,
            text=f"{self.text}.{name}" if self.text else f"{cls.__name__}.{name}",
            home=home,
            above=(*self.above, cls),
            static=static,
            counts=counts,
            bindings=bindings or {},
            steps=(*self.steps, (cls.__name__, name)),
        )

    def below(self, cls: Any) -> "Place":
        """Return the place of an instance of a subclass of `cls`."""
        return dataclasses.replace(self, above=(*self.above, cls))

    def forbids(self, cls: Any) -> bool:
        """Return whether another instance of a class would go too deep."""
        if cls not in self.above:
            return False
        return len(self.above) - len(set(self.above)) >= (_DEPTH if self.varied else 0)

    def nested(self, override: str) -> str:
        """Return code that puts an override here, from the outermost class."""
        for cls, field in reversed(self.steps):
            override = f"instances({cls}, {field}={override})"
        return override

    def fix(self, name: str = "") -> str:
        """Return code that helps where no value can be found.

        Args:
            name: The name of the type of which no values are known, if it is a class.
        """
        register = (
            f"hypothesis.strategies.register_type_strategy(\n"
            f"           {name}, hypothesis.strategies.builds({name}, ...))"
            if name
            else "hypothesis.strategies.register_type_strategy(...)"
        )
        if not self.varied:
            return f"give the field a default, or, beside the class:\n       {register}"
        if not self.steps:
            name = self.home.__name__
            return f"`hypothesis.strategies.register_type_strategy({name}, ...)`"
        override = self.nested("...")
        alternative = f", or, for every field of this type:\n       {register}" if name else ""
        return f"give a strategy for it: `{override}`{alternative}"


class EndlessError(CannotBuildError):
    """A class holds an instance of its own, which would hold another, and so on."""
