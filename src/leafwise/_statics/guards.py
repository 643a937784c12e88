"""Whether objects still hold what they held, asked so quickly that each flatten can ask."""

import itertools
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

_CONTENTS: Final = operator.attrgetter("cell_contents")
_ATTRIBUTES: Final = operator.attrgetter("__dict__")
_PARTS: Final = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_together: Final = itertools.chain.from_iterable

PartsReader = Callable[[Any], tuple[Any, ...]]


class Guards:
    """What some objects held when they were read, by identity."""

    __slots__ = ("_bare", "_cells", "_functions", "_held", "_others", "_parts")

    def __init__(self) -> None:
        """Start empty."""
        self._cells: list[types.CellType] = []
        self._held: list[Any] = []
        self._bare: list[Any] = []
        self._functions: list[types.FunctionType] = []
        self._parts: list[Any] = []
        self._others: list[tuple[PartsReader, Any, tuple[Any, ...]]] = []

    def add_cell(self, cell: types.CellType, held: Any) -> None:
        """Note the content of a cell that is not empty."""
        self._cells.append(cell)
        self._held.append(held)

    def add_attributes(self, function: types.FunctionType) -> None:
        """Note the attributes of a function, which most often has none."""
        if function.__dict__:
            self.add(items, function.__dict__)
        else:
            self._bare.append(function)

    def add_function(self, function: types.FunctionType) -> None:
        """Note what else can be assigned on a function: Python audits it, and takes its time."""
        self._functions.append(function)
        self._parts += _PARTS(function)
        if function.__kwdefaults__:
            self.add(items, function.__kwdefaults__)

    def add(self, look: PartsReader, target: Any) -> None:
        """Note what `look` finds in an object."""
        self._others.append((look, target, look(target)))

    def hold(self) -> bool:
        """Return whether all is as it was; False may also mean equal objects in their place."""
        same = operator.is_
        try:
            return (
                all(map(same, map(_CONTENTS, self._cells), self._held))
                and not any(map(_ATTRIBUTES, self._bare))
                and all(map(same, _together(map(_PARTS, self._functions)), self._parts))
                and all(_same(look(target), was) for look, target, was in self._others)
            )
        except Exception:  # noqa: BLE001  # an emptied cell, a hash that raises: look closer
            return False


def items(mapping: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Return the keys and values of a mapping."""
    return (*mapping, *mapping.values())


def _same(now: tuple[Any, ...], was: tuple[Any, ...]) -> bool:
    return len(now) == len(was) and all(map(_is_same, now, was))


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) in _PLAIN and type(other) is type(one) and one == other)


_PLAIN: Final = (int, str, bytes)
