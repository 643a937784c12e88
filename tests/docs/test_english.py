"""Turns of phrase that no native speaker of the field would use stay out of source and docs."""

import re
from pathlib import Path

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
