"""Checks whether mutable objects have changed, fast enough for each flatten."""

import operator
import types
from collections.abc import Callable
from typing import Any, Final

from leafwise._objects.source.code import contents


class Guards:
    """The parts of some objects when they were read; one that is another object has changed."""

    __slots__ = ("_cells", "_in_cells", "_others")

    def __init__(self) -> None:
        self._cells: list[types.CellType] = []
        self._in_cells: list[Any] = []
        self._others: list[tuple[Callable[[Any], Any], Any, Any]] = []

    def add_cells(self, function: types.FunctionType) -> None:
        cells = function.__closure__ or ()
        self._cells += cells
        self._in_cells += map(contents, cells)

    def add(self, read: Callable[[Any], Any], target: Any) -> None:
        self._others.append((read, target, read(target)))

    def unchanged(self) -> bool:
        try:
            return all(map(operator.is_, map(_CONTENTS, self._cells), self._in_cells)) and all(
                _same(read(target), was) for read, target, was in self._others
            )
        except (ValueError, TypeError, AttributeError):  # an emptied cell, a value without a hash
            return False


_CONTENTS: Final = operator.attrgetter("cell_contents")


def _same(now: Any, was: Any) -> bool:
    return len(now) == len(was) and all(
        one is two or (type(one) in (int, str, bytes) and type(two) is type(one) and one == two)
        for one, two in zip(now, was, strict=True)
    )
