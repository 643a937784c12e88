"""The loops around an expression, found in the source of its file.

A call that runs a function repeatedly counts as a loop: ``map``, ``reduce``, `jax.tree.map`, or any
call with ``unroll=``. Recursion, and loops inside other C functions such as those of `itertools`,
are not detected.
"""

import ast
import bisect
import contextlib
import functools
import linecache
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from leafwise._objects.locks import cached_property

_MAPPING: Final = re.compile(r"(.*\.)?tree[_.]map(_with_path)?|map|(functools\.)?reduce")
_UNROLL: Final = "unroll"

_Position: TypeAlias = tuple[int, int]


class Loop(NamedTuple):
    """A loop, by the file and the number of its first line."""

    file: str
    line: int
    kind: str  # "for", "while", "comprehension", "unroll", or the name of the function called
    has_parts: bool = False  # whether it runs over objects with parts, such as layers, not arrays
    is_fixed: bool = False  # whether it runs over a literal, or the items of a dict or a tree
    library: str = ""  # whose module the class around it is, if it is one: "flax", "haiku"

    @property
    def is_call(self) -> bool:
        """Whether it is a call that runs a function repeatedly."""
        return self.kind not in ("for", "while", "comprehension")


class _Body(NamedTuple):
    """The body of a loop, or that of a function if `loop` is None."""

    start: _Position
    end: _Position
    loop: Loop | None


class _Source:
    """The lines of a file, and what was found in them, until they are read again."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self._file, self.lines = file, lines
        self._margins = [line for line, text in enumerate(lines, 1) if re.match(r"[@\w]", text)]
        self.around = functools.cache(self._around)
        self._loops = functools.cache(self._loops_of)

    @cached_property
    def marks(self) -> Sequence[tuple[int, int, int]]:
        """The first and last line of what a line marks as expected, and that line."""
        lines = [line for line, text in enumerate(self.lines, 1) if _EXPECTED.match(text)]
        marks = [(line, line, line) for line in lines]
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse("".join(self.lines if lines else ()))):
                if isinstance(node, _BLOCKS):
                    of_head = [n for n in lines if node.lineno <= n < node.body[0].lineno]
                    marks += [(node.lineno, node.end_lineno or 0, line) for line in of_head]
        return marks

    def _around(self, line: int, column: int, *, calls: bool) -> Sequence[Loop]:
        bodies, callers = self._loops(*self._block(line)) or self._loops(1, None) or ([], {})
        at = line, column
        around = [body for body in bodies if body.start <= at < body.end]
        around.sort(key=lambda body: body.start, reverse=True)
        loops = [callers[at]] if calls and at in callers else []
        for body in around:
            if body.loop is None:
                break
            loops.append(body.loop)
        return loops

    def _block(self, line: int) -> tuple[int, int | None]:
        """Return the first and last line of the top-level function or class around a line."""
        # For a line outside these, that is the whole file. Margins begin in the first column.
        place = bisect.bisect_right(self._margins, line)
        start, end = (0, *self._margins)[place], (*self._margins, None)[place]
        is_block = start and self.lines[start - 1].startswith(("def ", "class ", "async def "))
        return (start, end and end - 1) if is_block else (1, None)

    def _loops_of(
        self, start: int, end: int | None
    ) -> tuple[list[_Body], dict[_Position, Loop]] | None:
        """Return the bodies of loops and functions in a range of lines, and calls that loop."""
        bodies: list[_Body] = []
        callers: dict[_Position, Loop] = {}
        try:
            tree = ast.parse("\n" * (start - 1) + "".join(self.lines[start - 1 : end]))
        except (SyntaxError, ValueError):
            return None
        for top, node in ((each, node) for each in tree.body for node in ast.walk(each)):
            loop, repeated = _repeated(node, self._file)
            loop = loop and loop._replace(library=self._library(top))
            for nodes in repeated:
                first, last = nodes[0], nodes[-1]
                stop = last.end_lineno or 0, last.end_col_offset or 0
                bodies.append(_Body((first.lineno, first.col_offset), stop, loop))
            if isinstance(node, ast.Call) and (kind := _repeating(node)):
                callers[node.lineno, node.col_offset] = Loop(self._file, node.lineno, kind)
        return bodies, callers

    def _library(self, statement: ast.stmt) -> str:
        """Return flax or haiku for a class that is a module of it: ``class Net(nn.Module)``."""
        for name in map(ast.unparse, getattr(statement, "bases", ())):
            if name.rpartition(".")[2] == "Module" and "nnx" not in name:
                line = rf"^\s*(?:import|from)\s+(flax|haiku)\b.*\b{name.partition('.')[0]}\b"
                if found := re.search(line, "".join(self.lines), re.MULTILINE):
                    return found[1]
        return ""


_EXPECTED: Final = re.compile(r"\s*[^\s#].*#\s*(.*\W)?leafwise:\s*expected\s*$")
_BLOCKS: Final = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith)

_sources: Final[dict[str, _Source]] = {}
"""The sources by file name: each holds for the list of lines that `linecache` has now."""


def loops_around(file: str, line: int, column: int, *, calls: bool) -> Sequence[Loop]:
    """Return the loops around the expression at a line and column, innermost first."""
    # With `calls`, the expression itself counts if it is a call that runs a loop.
    return _source_of(file).around(line, column, calls=calls)


def marked_line(file: str, start: int, end: int) -> int:
    """Return the line that marks a call as expected, by a comment at its end; 0 if none does."""
    # That is a line of the call, or of a ``for``, ``while`` or ``with`` statement around it.
    marks = _source_of(file).marks
    return next((line for first, last, line in marks if first <= end and start <= last), 0)


def _source_of(file: str) -> _Source:
    lines, source = linecache.getlines(file), _sources.get(file)
    if source is None or source.lines is not lines:
        source = _sources[file] = _Source(file, lines)
    return source


def _repeated(
    node: ast.AST, file: str
) -> tuple[Loop | None, Sequence[list[ast.expr] | list[ast.stmt]]]:
    """Return a loop and the code that it repeats; for a function, None and its body."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return None, [node.body]
        case ast.Lambda():
            return None, [[node.body]]
        case ast.For() | ast.AsyncFor():
            loop = Loop(file, node.lineno, "for", _has_parts(node), _is_fixed(node.iter))
            return loop, [node.body]
        case ast.While():
            return Loop(file, node.lineno, "while"), [[node.test], node.body]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            parts = [[part] for part in _repeated_parts(node)]
            is_fixed = _is_fixed(node.generators[0].iter)
            return Loop(file, node.lineno, "comprehension", is_fixed=is_fixed), parts
        case _:
            return None, []


def _repeating(call: ast.Call) -> str:
    """Return the kind of loop that a call runs, or an empty string."""
    if any(isinstance(part, ast.Call) and _dotted(part.func) == "map" for part in call.args):
        return "map"  # which runs when this call consumes its items
    if any(keyword.arg == _UNROLL for keyword in call.keywords):
        return _UNROLL
    name = _dotted(call.func)
    return name if _MAPPING.fullmatch(name) else ""


def _repeated_parts(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
) -> Iterable[ast.expr]:
    """Return what a comprehension evaluates repeatedly: all but its first iterable."""
    values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    inner = [generator.iter for generator in node.generators[1:]]
    return [*values, *inner, *(test for generator in node.generators for test in generator.ifs)]


def _is_fixed(items: ast.expr) -> bool:
    name = _dotted(items.func).rpartition(".")[2] if isinstance(items, ast.Call) else ""
    return name in _FIXED or isinstance(items, ast.Dict | ast.List | ast.Tuple | ast.Set)


_FIXED: Final = ("items", "values", "leaves", "tree_leaves", "leaves_with_path")


def _has_parts(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether a loop's variable is called, or its attributes or named items are read."""
    target = loop.target
    if isinstance(target, ast.Tuple) and not isinstance(loop.iter, ast.Call):
        return True  # `for w, b in params`, not a loop over several arrays
    if isinstance(target, ast.Tuple):  # of `enumerate`
        target = target.elts[-1]
    name, body = re.escape(ast.unparse(target)), "\n".join(map(ast.unparse, loop.body))
    return re.search(rf"\b{name}{_USED}", body) is not None


_USED: Final = r"(\(|\[['\"]|\.(?!(T|at|dtype|mean|ndim|reshape|shape|size|sum)\b))"
"""How an object with parts is used, as opposed to an array."""


def _dotted(node: ast.expr) -> str:
    """Return the last two names of an expression: ``tree.map`` for ``jax.tree.map``."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value).rpartition('.')[2]}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""
