"""The tests are tests: each says what must hold; and names in the source are of one thing."""

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"


def functions_of(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yield the test functions of a module, those in classes included."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node.body)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def test_every_test_says_what_must_hold() -> None:
    """A test function has a docstring."""
    silent = [
        f"{path.relative_to(TESTS)}:{test.lineno} {test.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for test in functions_of(ast.parse(path.read_text(encoding="utf-8")).body)
        if not ast.get_docstring(test)
    ]
    assert not silent


def test_no_two_classes_have_one_name() -> None:
    """A class is known by its name, wherever it stands."""
    names = collections.Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_the_inside_has_one_door() -> None:
    """A private module of `cli`, `_display` or `_jit` that moves is named in one file of tests."""
    behind = ("leafwise.cli", "leafwise._display", "leafwise._jit")
    doors = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in modules_of(node)
        if f"{name}.".startswith(tuple(f"{wing}." for wing in behind))
    }
    assert doors == {"kit/inside.py"}


def modules_of(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
