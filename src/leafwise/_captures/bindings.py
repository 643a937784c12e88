"""What a function reads from outside of its arguments: each place, to be looked at again.

The code is followed, never run: through wrappers, partials, bound methods, callable objects,
and the user's own functions and methods that it names. Installed packages are not entered.
"""

import dataclasses
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from leafwise._captures.places import Holder, Place
from leafwise._captures.walk import Found, Walk
from leafwise._objects.text import got

__all__ = ["Binding", "Holder", "Treatment", "bindings_of"]


class Treatment(StrEnum):
    """How JAX treats what a function captures."""

    LITERAL = "literal"
    """A number that is written into the program."""
    CONSTANT = "constant"
    """An array that is handed to the program as an argument that nobody sees."""
    PYTREE = "pytree"
    """A container: each of its leaves is one of these."""
    FUNCTION = "function"
    """A function or class, which is called while JAX traces."""
    MODULE = "module"
    """A module."""
    STATIC = "static"
    """A Python object that only the trace sees: a `str`, a configuration."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """One place outside of its arguments that a function reads.

    Attributes:
        name: The place, as the code spells it: ``lr``, ``config.rate``, ``self.w``.
        function: What reads it: the function whose code does, or a callable of a package.
        holder: Where it is bound.
        line: The line of the first read in the file of `function`; 0 if there is none.
        is_written: Whether the code only writes to it, or only calls what changes it and
            drops the answer: ``traces.append(x)``, ``counter += 1``.
        place: Where to look.
    """

    name: str
    function: Callable[..., Any]
    holder: Holder
    line: int
    is_written: bool
    place: Place

    def read(self) -> Any:
        """Look again.

        Returns:
            The value as it is now; `leafwise._objects.content_names.ABSENT` if nothing is bound. No
            property and no ``__getattr__`` runs.
        """
        return self.place.read()


def bindings_of(fn: Callable[..., Any]) -> tuple[Binding, ...]:
    """Return everything that a function reads from outside of its arguments.

    Args:
        fn: Anything callable.

    Returns:
        Each place once, in the order of first reads: those of `fn` itself, then those of the
        functions that it names. Names of builtins and of installed packages are there, too.

    Raises:
        TypeError: `fn` is not callable.
    """
    if not callable(fn):
        msg = f"a function is wanted, got {got(fn)}"
        raise TypeError(msg)
    walk = Walk()
    walk.start(fn)
    return tuple(_named(walk.found))


def _named(found: list[Found]) -> list[Binding]:
    """Return bindings, with names that are unique within each function."""
    taken: dict[tuple[int, str], int] = {}
    bindings: list[Binding] = []
    for each in found:
        place = each.place
        key = id(each.reader), place.name
        taken[key] = taken.get(key, 0) + 1
        name = place.name if taken[key] == 1 else f"{place.name} ({taken[key]})"
        line = each.line
        bindings.append(Binding(name, each.reader, place.holder, line, each.is_written, place))
    return bindings
