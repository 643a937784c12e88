"""The lines of the user's code that assign a name, an attribute or an item, or change it in place.

A variable is looked for in the bytecode, which knows its scope; attributes and items in the source.
"""

import ast
import dis
import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from leafwise._objects.call_site import is_users_file, short_file
from leafwise._objects.names import MUTATORS

_MOST_LINES: Final = 8
_CHANGES: Final = MUTATORS | {"fill"}


@functools.lru_cache(maxsize=256)
def assignments(name: str, reader: str) -> tuple[str, ...]:
    """Return the lines of the user's code that assign something, or change it in place.

    Args:
        name: As the code spells it: ``rate``, ``config.rate``, ``config['rate']``, ``items[0]``.
        reader: The file of the code that reads it: only there a name alone is the same variable.
    """
    try:
        wanted = ast.parse(name.partition(" (")[0], mode="eval").body
    except (SyntaxError, ValueError):
        return ()
    is_variable = isinstance(_root(wanted), ast.Name) and not isinstance(wanted, ast.Attribute)
    found: list[str] = []
    for file in [reader] if is_variable else [reader, *_users_files()]:
        parsed = _parsed(file, _identifier(wanted).encode())
        if parsed is None:
            continue
        tree, code = parsed
        lines = set(_changes(tree, wanted))
        if isinstance(wanted, ast.Name):
            lines.update(_variable_stores(code, wanted.id))
        elif isinstance(wanted, ast.Attribute) and Path(file).stem == _last(wanted.value):
            lines.update(_variable_stores(code, wanted.attr))
        found += [f"{short_file(file)}:{line}" for line in sorted(lines)]
    return tuple(dict.fromkeys(found))[:_MOST_LINES]


@functools.lru_cache(maxsize=256)
def _parsed(file: str, name: bytes) -> tuple[ast.AST, types.CodeType] | None:
    """Return a file that has a name in it."""
    try:
        source = Path(file).read_bytes()
        if name not in source:
            return None
        return ast.parse(source), compile(source, file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None


def _identifier(node: ast.expr) -> str:
    """Return the last name of an expression, subscripts left aside."""
    return _last(_root(node))


def _users_files() -> list[str]:
    files = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    return [each for each in files if isinstance(each, str) and is_users_file(each)]


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _last(node: ast.expr) -> str:
    """Return the last name of an expression: of ``self.layers`` it is ``layers``."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Subscript(value, key):
            return f"{_last(value)}[{ast.dump(key)}]"
        case _:
            return ""


def _changes(tree: ast.AST, wanted: ast.expr) -> Iterator[int]:
    """Yield the lines that assign an attribute or item, or change what is there in place."""
    name = _last(wanted)
    inside = {name, _last(wanted.value)} if isinstance(wanted, ast.Subscript) else {name}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(owner, attribute, ast.Store() | ast.Del()):
                if isinstance(wanted, ast.Attribute) and attribute == wanted.attr:
                    near = {_last(wanted.value), "self", "cls"}
                    if _last(owner) in near or _last(wanted.value) in ("self", "cls"):
                        yield node.lineno
            case ast.Subscript(owner, _, ast.Store() | ast.Del()):
                if _last(node) == name or _last(owner) == name:
                    yield node.lineno
            case ast.Call(ast.Attribute(owner, method)) if method in _CHANGES:
                if _last(owner) in inside:
                    yield node.lineno
            case ast.ClassDef(body=body) if isinstance(wanted, ast.Attribute):
                yield from _class_stores(body, wanted.attr)
            case _:
                pass


def _class_stores(body: list[ast.stmt], name: str) -> Iterator[int]:
    for each in body:
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if any(_last(target) == name for target in targets):
                yield each.lineno


def _variable_stores(code: types.CodeType, name: str) -> Iterator[int]:
    """Yield the lines that assign a variable of a module, or one that inner functions read."""
    todo = [code]
    while todo:
        code = todo.pop()
        todo += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        stores = {"STORE_GLOBAL", "STORE_DEREF", *(["STORE_NAME"] * (code.co_name == "<module>"))}
        for each in dis.get_instructions(code):
            line = None if each.positions is None else each.positions.lineno
            if each.opname in stores and each.argval == name and line is not None:
                yield line
