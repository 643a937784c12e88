"""The `>>>` examples in the docstrings of leafwise run, and turns of phrase are English.

They may use every public name, `lw`, `jax`, `jnp` and `np` without importing it.
"""

import doctest
import importlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise

SOURCE = Path(leafwise.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    """Every example prints what its docstring says."""
    module = importlib.import_module(name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    namespace = {each: getattr(leafwise, each) for each in leafwise.__all__}
    namespace |= {"lw": leafwise, "jax": jax, "jnp": jnp, "np": np}
    assert doctest.testmod(module, extraglobs=namespace, optionflags=options).failed == 0


ROOT = Path(__file__).parents[2]
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
