"""What `CaptureWalk` finds, as a list: one entry for each place that a function reads."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from leafwise._captures.places import BoundIn, CapturedPlace
from leafwise._captures.walk import CaptureSite, CaptureWalk
from leafwise._objects.text import got


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """One place outside its arguments that a function reads.

    Attributes:
        name: The place, as the code spells it: ``lr``, ``config.rate``, ``self.w``.
        function: What reads it: the function whose code does, or a callable of a package.
        holder: Where it is bound.
        line: The line of the first read in the file of `function`; 0 if there is none.
        is_written: Whether the code only writes to it, or only calls what changes it and
            drops the answer: ``traces.append(x)``, ``counter += 1``.
        is_called: Whether the code only calls it.
        place: Where to look.
        readers: All that read it, and do not only write to it.
    """

    name: str
    function: Callable[..., Any]
    holder: BoundIn
    line: int
    is_written: bool
    is_called: bool
    place: CapturedPlace
    readers: tuple[Callable[..., Any], ...]

    def read(self) -> Any:
        """Return the current value; `MISSING` if nothing is bound.

        No property and no ``__getattr__`` runs.
        """
        return self.place.read()


def bindings_of(fn: Callable[..., Any], given: Iterable[Any] = ()) -> tuple[Binding, ...]:
    """Return everything that a function reads from outside its arguments.

    Args:
        fn: Anything callable.
        given: The same.

    Returns:
        Each place once, in the order of first reads: those of `fn` itself, then those of the
        functions that it names. Names of builtins and of installed packages are there, too.

    Raises:
        TypeError: `fn` is not callable.
    """
    return bindings_and_callables(fn, given)[0]


def bindings_and_callables(
    fn: Callable[..., Any], given: Iterable[Any] = ()
) -> tuple[tuple[Binding, ...], list[Any]]:
    """Return what `bindings_of` does, and everything callable on the way there.

    Args:
        fn: Anything callable.
        given: The classes of its arguments, whose methods it may call, and functions there.

    Raises:
        TypeError: `fn` is not callable.
    """
    if not callable(fn):
        msg = f"a function is wanted, got {got(fn)}"
        raise TypeError(msg)
    walk = CaptureWalk()
    walk.start(fn, given)
    return tuple(_named(walk.found)), walk.entered()


def _named(found: list[CaptureSite]) -> list[Binding]:
    """Return bindings, with names that are unique within each function."""
    taken: dict[tuple[int, str], int] = {}
    bindings: list[Binding] = []
    for each in found:
        place = each.place
        key = id(each.reader), place.name
        taken[key] = taken.get(key, 0) + 1
        name = place.name if taken[key] == 1 else f"{place.name} ({taken[key]})"
        line, readers = each.line, tuple(each.readers.values())
        uses = each.is_written, each.is_called
        bindings.append(Binding(name, each.reader, place.holder, line, *uses, place, readers))
    return bindings
