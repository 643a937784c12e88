"""The lines of the user's code that bind a captured value and that read it."""

import ast
import builtins
import linecache
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from leafwise._captures.bindings import Binding
from leafwise._captures.places import BoundIn, CapturedPlace
from leafwise._objects.attributes import name_of
from leafwise._objects.call_site import short_file


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


class SourceLines:
    """Finds the lines of captures; each file is parsed once."""

    def __init__(self) -> None:
        self._parsed: dict[str, ast.Module | None] = {}

    def of(self, binding: Binding) -> CapturedAt:
        """Return where a binding is bound and read."""
        file = "" if binding.code is None else binding.code.co_filename
        owner, bound = self._owner(binding.place, file)
        function = binding.reader.rpartition("<locals>.")[2]
        return CapturedAt(binding.place.holder, owner, bound, file, binding.line, function)

    def _owner(self, place: CapturedPlace, file: str) -> tuple[str, int]:
        owner = place.owner()
        if place.holder is BoundIn.GLOBAL:
            if place.variable not in owner and place.variable in vars(builtins):
                return "builtins", 0
            own = owner.get("__file__")
            file = own if isinstance(own, str) else file
            return short_file(file), self._line(file, place.variable, ())
        if place.holder is BoundIn.IMPORT:
            return short_file(file), 0
        if place.holder is BoundIn.PARTIAL:
            return name_of(owner), 0
        if place.holder is BoundIn.ATTRIBUTE:
            return owner.__name__, 0
        code, name = owner, owner.co_qualname.rpartition("<locals>.")[2]
        if place.holder is BoundIn.DEFAULT:
            return f"{name}, {short_file(code.co_filename)}", code.co_firstlineno
        around = code.co_qualname.split(".<locals>.")[:-1] or [code.co_name]
        line = self._line(code.co_filename, place.variable, tuple(around))
        return f"{around[-1]}, {short_file(code.co_filename)}", line

    def _line(self, file: str, name: str, scopes: tuple[str, ...]) -> int:
        """Return the last line of a scope that binds a name; 0 if there is none."""
        if file not in self._parsed:
            self._parsed[file] = _parse(file)
        tree: Any = self._parsed[file]
        for scope in scopes:
            for part in scope.split("."):
                found = [node for node in _own_nodes(tree) if _defines(node, part)]
                tree = found[-1] if found else None
        lines = [line for node in _own_nodes(tree) for bound, line in _bound(node) if bound == name]
        return lines[-1] if lines else 0


_LONGEST_FILE: Final = 50_000


def _parse(file: str) -> ast.Module | None:
    lines = linecache.getlines(file)
    if not lines or len(lines) > _LONGEST_FILE:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):  # it was edited since, or is not Python
        return None


_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _own_nodes(scope: ast.AST | None) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in order, without those inside inner scopes."""
    pending = [] if scope is None else list(ast.iter_child_nodes(scope))[::-1]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending += list(ast.iter_child_nodes(node))[::-1]


def _defines(node: ast.AST, name: str) -> bool:
    return isinstance(node, _SCOPES) and getattr(node, "name", "<lambda>") == name


def _bound(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node binds, with the line."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, node.lineno
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, node.lineno
