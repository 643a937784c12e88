"""The tests are tests: each says what must hold."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def functions_of(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the test functions of a file, those in classes included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS))
)
def test_every_test_says_what_must_hold(path: Path) -> None:
    """A test function has a docstring."""
    silent = [test.name for test in functions_of(path) if not ast.get_docstring(test)]
    assert not silent
