"""The lines of the user's code that assign a variable, an attribute or an item.

A variable is looked for in the bytecode, which knows its scope; attributes and items in the source.
"""

import ast
import dis
import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeGuard

from leafwise._objects.call_site import is_users_file, short_file
from leafwise._objects.names import MUTATORS

_MOST_LINES: Final = 8


@functools.lru_cache(maxsize=256)
def assignments(name: str, reader: str) -> tuple[str, ...]:
    """Return the lines of the user's code that assign something, or change it in place."""
    try:
        wanted = ast.parse(name.partition(" (")[0], mode="eval").body
    except (SyntaxError, ValueError):
        return ()
    *owner, own = _names(wanted) or [""]
    files = [reader]
    if owner:
        modules = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
        files += [each for each in modules if isinstance(each, str) and is_users_file(each)]
    found: list[str] = []
    for file in dict.fromkeys(files):
        try:
            source = Path(file).read_bytes()
            if own.encode() not in source:
                continue
            tree, code = ast.parse(source), compile(source, file, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            continue
        lines = {node.lineno for node in ast.walk(tree) if _changes(node, owner, own)}
        if isinstance(wanted, ast.Name) or [Path(file).stem] == owner:
            lines.update(_variable_stores(code, own))
        found += [f"{short_file(file)}:{line}" for line in sorted(lines)]
    return tuple(found[:_MOST_LINES])


def _names(node: ast.expr) -> list[str]:
    """Return the last two names of an expression: ``self.layers[0]`` has ``self, layers``."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(value, name):
            return [*_names(value)[-1:], name]
        case ast.Subscript(value):
            return _names(value)
        case _:
            return []


def _changes(node: ast.AST, owner: list[str], own: str) -> TypeGuard[ast.expr]:
    """Return whether code assigns an attribute or an item, or changes it in place."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            names = _names(node)
        case ast.Subscript(value, ctx=ast.Store() | ast.Del()):
            names = _names(value)
        case ast.Call(ast.Attribute(value, method)) if method in MUTATORS:
            names = _names(value)
        case _:
            return False
    is_near = names[:-1] == owner or {"self", "cls"} & {*names[:-1], *owner}
    return names[-1:] == [own] and len(names) == 1 + len(owner) and bool(is_near)


def _variable_stores(code: types.CodeType, name: str) -> Iterator[int]:
    """Yield the lines that assign a variable of a module, or one that inner functions read."""
    stores = {"STORE_GLOBAL", "STORE_DEREF", *(["STORE_NAME"] * (code.co_name == "<module>"))}
    for each in dis.get_instructions(code):
        if each.opname in stores and each.argval == name and each.positions is not None:
            yield each.positions.lineno or 0
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _variable_stores(inner, name)
