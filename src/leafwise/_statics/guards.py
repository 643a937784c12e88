"""Whether objects still consist of the same parts: a check fast enough for each flatten."""

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
    """The parts of some objects when they were read, compared by identity."""

    __slots__ = ("_bare", "_cell_values", "_cells", "_functions", "_others", "_parts")

    def __init__(self) -> None:
        self._cells: list[types.CellType] = []
        self._cell_values: list[Any] = []
        self._bare: list[Any] = []
        self._functions: list[types.FunctionType] = []
        self._parts: list[Any] = []
        self._others: list[tuple[PartsReader, Any, tuple[Any, ...]]] = []

    def add_cell(self, cell: types.CellType, value: Any) -> None:
        self._cells.append(cell)
        self._cell_values.append(value)

    def add_attributes(self, function: types.FunctionType) -> None:
        if function.__dict__:
            self.add(items, function.__dict__)
        else:  # most functions have none, and that is faster to check
            self._bare.append(function)

    def add_function(self, function: types.FunctionType) -> None:
        """Guard code and defaults, which are slow to read: CPython audits each access."""
        self._functions.append(function)
        self._parts += _PARTS(function)
        if function.__kwdefaults__:
            self.add(items, function.__kwdefaults__)

    def add(self, read_parts: PartsReader, target: Any) -> None:
        self._others.append((read_parts, target, read_parts(target)))

    def unchanged(self) -> bool:
        """Return whether all parts are the same; after False they may still be equal."""
        same = operator.is_
        try:
            return (
                all(map(same, map(_CONTENTS, self._cells), self._cell_values))
                and not any(map(_ATTRIBUTES, self._bare))
                and all(map(same, _together(map(_PARTS, self._functions)), self._parts))
                and all(_same(read_parts(target), was) for read_parts, target, was in self._others)
            )
        except Exception:  # noqa: BLE001  # an emptied cell, a hash that raises: not the same
            return False


def items(mapping: Mapping[Any, Any]) -> tuple[Any, ...]:
    return (*mapping, *mapping.values())


def _same(now: tuple[Any, ...], was: tuple[Any, ...]) -> bool:
    return len(now) == len(was) and all(map(_is_same, now, was))


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) in _PLAIN and type(other) is type(one) and one == other)


_PLAIN: Final = (int, str, bytes)
