"""Methods for another class: copies of functions whose ``super()`` leads to it."""

import functools
import types
from typing import Any

_CLASS = "__class__"
"""The cell through which a method without arguments to ``super()`` finds its class."""


def rebound(value: Any, name: str, new: types.CellType) -> Any:
    """Return a class attribute for a class that takes the place of another.

    What does not refer to the other class is returned as it is. A function that does is
    copied, so that both classes go on working.

    Args:
        value: What stands in the dict of the class.
        name: The class's ``__name__``: only cells that hold a class of this name are exchanged.
        new: The cell that will hold the new class.
    """
    return _Rebinding(name, new).of(value)


class _Rebinding:
    def __init__(self, name: str, new: types.CellType) -> None:
        self.name = name
        self.new = new
        self.seen: dict[int, types.FunctionType] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, staticmethod | classmethod):
            inner = value.__func__
            made = self.of(inner)
            return value if made is inner else type(value)(made)
        if isinstance(value, property):
            get, put, delete = map(self.of, (value.fget, value.fset, value.fdel))
            same = get is value.fget and put is value.fset and delete is value.fdel
            return value if same else type(value)(get, put, delete, value.__doc__)
        if isinstance(value, functools.cached_property):
            made = self.of(value.func)
            return value if made is value.func else type(value)(made)
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        """Return a copy if a cell has to be exchanged, at any depth of decoration."""
        if id(function) in self.seen:
            return self.seen[id(function)]
        self.seen[id(function)] = function  # it may hold itself
        cells = function.__closure__ or ()
        names = function.__code__.co_freevars
        exchanged = tuple(self._cell(name, cell) for name, cell in zip(names, cells, strict=True))
        if all(old is new for old, new in zip(cells, exchanged, strict=True)):
            return function
        made = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            exchanged,
        )
        made.__kwdefaults__ = function.__kwdefaults__
        functools.update_wrapper(made, function)
        # Which has taken the function itself for what is wrapped.
        del vars(made)["__wrapped__"]
        if "__wrapped__" in vars(function):
            vars(made)["__wrapped__"] = self.of(vars(function)["__wrapped__"])
        self.seen[id(function)] = made
        return made

    def _cell(self, name: str, cell: types.CellType) -> types.CellType:
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            return cell
        if name == _CLASS:
            return self.new if getattr(content, "__name__", None) == self.name else cell
        made = self.of(content)
        return cell if made is content else types.CellType(made)
