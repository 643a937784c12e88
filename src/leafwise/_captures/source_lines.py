"""The lines of the user's code that bind a captured value and that read it."""

import builtins
import dis
import functools
import linecache
import types
from typing import Final, NamedTuple

from leafwise._captures.bindings import Binding
from leafwise._captures.places import BoundIn, CapturedPlace
from leafwise._objects.attributes import name_of
from leafwise._objects.call_site import short_file
from leafwise._objects.code import parameters


class CapturedAt(NamedTuple):
    """Where a captured value is bound, and where it is first read.

    Attributes:
        holder: What kind of place it is bound in.
        owner: What that is: a file, a function, a class.
        bound: The line that binds it, in the file of its function; 0 if that is not known.
        file: The file of the first read.
        line: The line of the first read, from 1; 0 if that is not known.
        function: The function that reads it.
    """

    holder: BoundIn
    owner: str
    bound: int
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return ``global of train.py:12, read at train.py:30 by step``."""
        line = f":{self.bound}" if self.bound else ""
        where = (
            f" of {self.owner}{line}" if self.holder is not BoundIn.PARTIAL else f"({self.owner})"
        )
        read = f" at {short_file(self.file)}:{self.line}" if self.line else ""
        return f"{self.holder}{where}, read{read} by {self.function}"


def captured_at(binding: Binding) -> CapturedAt:
    """Return where a binding is bound and read."""
    file = "" if binding.code is None else binding.code.co_filename
    owner, bound = _owner(binding.place, file)
    function = binding.reader.rpartition("<locals>.")[2]
    return CapturedAt(binding.place.holder, owner, bound, file, binding.line, function)


def _owner(place: CapturedPlace, file: str) -> tuple[str, int]:
    """Return what holds a place, as text, and the line that binds it; 0 if that is not known."""
    owner = place.owner()
    if place.holder is BoundIn.GLOBAL:
        if place.variable not in owner and place.variable in vars(builtins):
            return "builtins", 0
        own = owner.get("__file__")
        file = own if isinstance(own, str) else file
        return short_file(file), _line(file, "<module>", place.variable)
    if place.holder is BoundIn.IMPORT:
        return short_file(file), 0
    if place.holder is BoundIn.PARTIAL:
        return name_of(owner), 0
    if place.holder is BoundIn.ATTRIBUTE:
        return owner.__name__, 0
    file = owner.co_filename
    around, _, name = owner.co_qualname.rpartition(".<locals>.")
    if place.holder is BoundIn.DEFAULT:
        return f"{name}, {short_file(file)}", owner.co_firstlineno
    line = _line(file, around, place.variable)
    return f"{around.rpartition('<locals>.')[2] or name}, {short_file(file)}", line


def _line(file: str, scope: str, name: str) -> int:
    return _lines("".join(linecache.getlines(file)), scope).get(name, 0)


@functools.lru_cache
def _lines(source: str, scope: str) -> dict[str, int]:
    """Return the last line of a scope that binds each name, by its qualified name."""
    found: dict[str, int] = {}
    for code in (each for each in _codes(source) if each.co_qualname == scope):
        found |= dict.fromkeys(parameters(code), code.co_firstlineno)
        stores = [each for each in dis.get_instructions(code) if each.opname in _STORES]
        found |= {each.argval: each.positions.lineno or 0 for each in stores if each.positions}
    return found


_STORES: Final = frozenset({"STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"})


@functools.lru_cache
def _codes(source: str) -> list[types.CodeType]:
    """Return the code of a file and all code inside."""
    try:
        found = [compile(source, "<source>", "exec")]
    except (SyntaxError, ValueError, RecursionError):  # it was edited since, or is not Python
        return []
    for code in found:
        found += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found
