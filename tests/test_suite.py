"""The tests are tests: each says what must hold."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent


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
