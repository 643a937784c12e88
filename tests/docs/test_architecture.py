"""The page "Architecture" has every table that outlives a call."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "contributing" / "architecture.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## What outlives a call")[1]
EMPTY = r"\{\}|\[\]|(dict|set|list)(\[.*\])?\(\)"
TABLE = re.compile(rf"{EMPTY}|([\w.]+\.)?(count|deque|local|Counter|defaultdict|Weak|\w*cache\b).*")
SAFE = ("ClassMap", "per_class")
"""By class, whose keys cannot be confused."""
CHANGES = {"append", "add", "update", "setdefault", "pop", "clear", "insert", "remove", "discard"}


def tables_of_page() -> set[str]:
    """Return the first column of the page's table."""
    return {cell.replace("`", "") for cell in re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE)}


def tables_in(tree: ast.Module) -> Iterator[str]:
    """Yield the variables of a module that change, and its functions with a cache."""
    variables = set[str]()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name, value = ast.unparse(target), ast.unparse(node.value or target)
            variables |= set() if value.startswith(SAFE) else {name}
            yield from {name} if TABLE.fullmatch(value) else ()
        elif isinstance(node, ast.FunctionDef):
            cached = filter(TABLE.fullmatch, map(ast.unparse, node.decorator_list))
            yield from (node.name for _ in cached)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Attribute | ast.Subscript):
            changes = not isinstance(node.ctx, ast.Load) or getattr(node, "attr", "") in CHANGES
            yield from variables & {getattr(node.value, "id", "")} if changes else ()


@pytest.mark.slow  # it parses the source
def test_each_table_is_on_the_page() -> None:
    """A new table, cache or switch of a module says there what its key does not confuse."""
    named = re.findall(r"`([\w/]+\.py)`((?:\s`\w+`)+)", SECTION)
    known = {f"{file} {name}" for file, names in named for name in re.findall(r"\w+", names)}
    found = {
        f"{path.relative_to(SOURCE).as_posix()} {name}".removeprefix("leafwise/")
        for path in SOURCE.rglob("*.py")
        for name in tables_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - known == set()
