"""The loops around a piece of code, read from the text of its file.

What calls a function again and again counts as a loop: ``map``, ``reduce``, `jax.tree.map`, and a
call with ``unroll=``. Loops through other functions in C, as those of `itertools`, and recursion
are not seen.
"""

import ast
import bisect
import functools
import linecache
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

_MAPPING: Final = re.compile(r"(.*\.)?tree[_.]map(_with_path)?|map|(functools\.)?reduce")
_UNROLL: Final = "unroll"

_Position: TypeAlias = tuple[int, int]


class Loop(NamedTuple):
    """A loop.

    Attributes:
        file: The file.
        line: Its first line.
        kind: ``for``, ``while``, ``comprehension``, ``unroll``, or the name of what is called.
        has_parts: Whether it runs over objects with parts, such as layers, and not over arrays.
    """

    file: str
    line: int
    kind: str
    has_parts: bool = False

    @property
    def is_call(self) -> bool:
        """Whether a function is called that calls another one again and again."""
        return self.kind not in ("for", "while", "comprehension")


class _Body(NamedTuple):
    """The body of a loop, or with no loop that of a function."""

    start: _Position
    end: _Position
    loop: Loop | None


@functools.cache
def loops_around(file: str, line: int, column: int, *, calls: bool) -> Sequence[Loop]:
    """Return the loops that a function is in, by the expression that it evaluates.

    The innermost is first; the expression itself is one if it `calls` what runs in a loop.
    """
    bodies, callers = _loops_of(file, *_block(file, line)) or _loops_of(file, 1, None) or ([], {})
    at = line, column
    around = [body for body in bodies if body.start <= at < body.end]
    around.sort(key=lambda body: body.start, reverse=True)
    loops = [callers[at]] if calls and at in callers else []
    for body in around:
        if body.loop is None:
            break
        loops.append(body.loop)
    return loops


def _block(file: str, line: int) -> tuple[int, int | None]:
    """Return the first line and the end of the function or class at the margin that has a line.

    Where something else stands there, it is the file.
    """
    starts = _margins(file)
    place = bisect.bisect_right(starts, line)
    start, end = (0, *starts)[place], (*starts, None)[place]
    is_block = linecache.getline(file, start).startswith(("def ", "class ", "async def "))
    return (start, end and end - 1) if is_block else (1, None)


@functools.cache
def _margins(file: str) -> list[int]:
    """Return the lines of a file that begin at its margin."""
    lines = enumerate(linecache.getlines(file), 1)
    return [number for number, text in lines if re.match(r"[@\w]", text)]


@functools.cache
def _loops_of(
    file: str, start: int, end: int | None
) -> tuple[list[_Body], dict[_Position, Loop]] | None:
    """Return the bodies of loops and functions in some lines, and the calls that are loops."""
    bodies: list[_Body] = []
    callers: dict[_Position, Loop] = {}
    try:
        tree = ast.parse("\n" * (start - 1) + "".join(linecache.getlines(file)[start - 1 : end]))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        loop, repeated = _repeated(node, file)
        for nodes in repeated:
            first, last = nodes[0], nodes[-1]
            stop = last.end_lineno or 0, last.end_col_offset or 0
            bodies.append(_Body((first.lineno, first.col_offset), stop, loop))
        if isinstance(node, ast.Call) and (kind := _repeating(node)):
            callers[node.lineno, node.col_offset] = Loop(file, node.lineno, kind)
    return bodies, callers


def _repeated(
    node: ast.AST, file: str
) -> tuple[Loop | None, Sequence[list[ast.expr] | list[ast.stmt]]]:
    """Return a loop, and what it evaluates again; the body of a function, which is no loop."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return None, [node.body]
        case ast.Lambda():
            return None, [[node.body]]
        case ast.For() | ast.AsyncFor():
            return Loop(file, node.lineno, "for", _has_parts(node)), [node.body]
        case ast.While():
            return Loop(file, node.lineno, "while"), [[node.test], node.body]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            parts = [[part] for part in _repeated_parts(node)]
            return Loop(file, node.lineno, "comprehension"), parts
        case _:
            return None, []


def _repeating(call: ast.Call) -> str:
    """Return the kind of loop that a call is; empty if it is none."""
    if any(isinstance(part, ast.Call) and _dotted(part.func) == "map" for part in call.args):
        return "map"  # which runs when this call takes its items
    if any(keyword.arg == _UNROLL for keyword in call.keywords):
        return _UNROLL
    name = _dotted(call.func)
    return name if _MAPPING.fullmatch(name) else ""


def _repeated_parts(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
) -> Iterable[ast.expr]:
    """Return what a comprehension evaluates again: all but its first iterable."""
    values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    inner = [generator.iter for generator in node.generators[1:]]
    return [*values, *inner, *(test for generator in node.generators for test in generator.ifs)]


def _has_parts(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether the variable of a loop is called, or has attributes or items by name."""
    target = loop.target
    if isinstance(target, ast.Tuple) and not isinstance(loop.iter, ast.Call):
        return True  # `for w, b in params`, and not over several arrays
    if isinstance(target, ast.Tuple):  # of `enumerate`
        target = target.elts[-1]
    name, body = re.escape(ast.unparse(target)), "\n".join(map(ast.unparse, loop.body))
    return re.search(rf"\b{name}{_USED}", body) is not None


_USED: Final = r"(\(|\[['\"]|\.(?!(T|at|dtype|mean|ndim|reshape|shape|size|sum)\b))"
"""How an object with parts is used, and not how an array is."""


def _dotted(node: ast.expr) -> str:
    """Return ``tree.map`` for ``jax.tree.map``: at most two names."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value).rpartition('.')[2]}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""
