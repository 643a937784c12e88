"""Turns of phrase that no native speaker of the field would use stay out of source and docs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.py")),
]

BETTER = {
    "is not a ...": r"(?<![Tt]here )\b(is|are|was|were) no (?!(longer|more|other)\b)[a-z`]",
    "or None; without one": r"\b(is|are|was|were) none\b",
    "code of the user": r"\bof the user's(?! \w)",
    "a verb that says what it does": r'"""Let\b',
    "no caller; who": r"\b(any|no|some)body\b|\bwhoever\b",
    "what it is given; what it says": r"\b(is|was|are|were|has|have) told\b",
}
"""For each expression what stands in its place."""


@pytest.mark.parametrize("better", BETTER)
def test_turns_of_phrase(better: str) -> None:
    """Each has a shorter way to say it, which stands there instead."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(BETTER[better], line)
    ]
    assert found == [], f"better: {better}"
