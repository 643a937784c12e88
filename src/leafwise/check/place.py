"""Where a value is wanted, for strategies that are made of others."""

import dataclasses

from leafwise.check.parameters import CannotBuildError


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value is wanted.

    Attributes:
        text: ``Class.field``, for messages.
        home: The class whose annotation it is, where names are looked up.
        above: The classes of which an instance is being made, this being a part of it.
        errors: What constructors raised of late.
    """

    text: str
    home: type
    above: tuple[type, ...] = ()
    errors: list[BaseException] = dataclasses.field(default_factory=list[BaseException])

    def __str__(self) -> str:
        """Return the words for a message."""
        return self.text

    def inside(self, cls: type, name: str, home: type) -> "Place":
        """Return the place of an argument of `cls`, of which an instance is wanted here."""
        return Place(f"{self.text}.{name}", home, (*self.above, cls), self.errors)


class EndlessError(CannotBuildError):
    """A class holds an instance of its own, which would hold another, and so on."""
