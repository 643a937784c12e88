"""Every public name is documented, examples in docstrings run, and every page can be found.

Examples may use every public name, `lw`, `jax`, `jnp` and `np` without importing it.
"""

import ast
import doctest
import importlib
import inspect
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise
from leafwise.testing import Law

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
MODULES = (
    "leafwise",
    "leafwise.debug",
    "leafwise.distributed",
    "leafwise.errors",
    "leafwise.types",
    "leafwise.testing",
    "leafwise.testing.strategies",
)
NAMES = [
    (module, name)
    for module in MODULES
    for name in importlib.import_module(module).__all__
    # Not modules, whose names are listed.
    if name not in ("debug", "distributed", "errors", "strategies", "types")
]


def documented_assignments() -> Iterator[str]:
    """Yield names assigned in leafwise with a docstring below, such as a type alias."""
    for path in (ROOT / "src" / "leafwise").rglob("*.py"):
        body = ast.parse(path.read_text()).body
        for node, after in itertools.pairwise(body):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                targets = getattr(node, "targets", [getattr(node, "target", None)])
                yield from (each.id for each in targets if isinstance(each, ast.Name))


def test_names_have_docstrings() -> None:
    """A public name says what it is, in a docstring of its own."""
    assigned = set(documented_assignments())

    def has_a_docstring(module: str, name: str) -> bool:
        value = getattr(importlib.import_module(module), name)
        own = inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
        return bool(own and inspect.getdoc(value)) or name in assigned

    assert [each for each in NAMES if not has_a_docstring(*each)] == []


def test_names_are_in_the_reference() -> None:
    """A public name has its place in the API reference, and those of `lw` are in its contents."""
    pages = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    listed = re.findall(r"^::: leafwise\.(?:\w+\.)*(\w+)$", pages, re.MULTILINE)
    assert [name for _, name in NAMES if name not in listed] == []
    contents = re.findall(r"`(?:lw\.)?(\w+)`", (REFERENCE / "api.md").read_text())
    assert [name for name in leafwise.__all__ if name not in contents] == []


def test_the_laws_are_in_the_reference() -> None:
    """The table of laws is that of `leafwise.testing.Law`."""
    rows = [f"| `{law}` | {law.statement} |" for law in Law]
    lines = (REFERENCE / "testing.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("| `")] == rows


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for item in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _pages(item)


def test_navigation_lists_the_pages() -> None:
    """The navigation names every page for users and no other: the site builder checks neither."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    written = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    ours = [page for page in written if page.startswith("contributing/")]
    assert sorted(_pages(nav)) == sorted({*written} - {*ours})


SOURCE = Path(leafwise.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples(name: str) -> None:
    """Every example prints what its docstring says."""
    module = importlib.import_module(name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    namespace = {each: getattr(leafwise, each) for each in leafwise.__all__}
    namespace |= {"lw": leafwise, "jax": jax, "jnp": jnp, "np": np}
    assert doctest.testmod(module, extraglobs=namespace, optionflags=options).failed == 0


FILES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
BETTER = {
    "is not a ...": r"(?<![Tt]here )\b(is|are|was|were) no (?!(longer|more|other)\b)[a-z`]",
    "or None; without one": r"\b(is|are|was|were) none\b",
    "code of the user": r"\bof the user's(?! \w)",
    "a verb that says what it does": r'"""Let\b',
    "no caller; who": r"\b(any|no|some)body\b|\bwhoever\b",
    "what it is given; what it says": r"\b(is|was|are|were|has|have) told\b",
}
"""For each expression what stands in its place."""


def test_turns_of_phrase() -> None:
    """Each has a shorter way to say it, which stands there instead."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()} (better: {better})"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for better, pattern in BETTER.items()
        if re.search(pattern, line)
    ]
    assert found == []
