"""The table of fixes with their programs, in `fixes.txt`."""

import re
from pathlib import Path

PROGRAMS: list[tuple[str, str]] = re.findall(
    r"^@@ (.*)\n((?:[-+ ] .*\n)+)",
    Path(__file__).with_name("fixes.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)
"""Each fix, and its program as a diff."""

COUNTED = " (3.12)"
"""At the end of a fix that needs this Python, which counts runs of lines, or a JAX that it has."""


def alike(fix: str) -> str:
    """Return a fix without the names and the code of its program."""
    fix = fix.removesuffix(COUNTED).replace(", before the loop", "")
    names = r"`[^`]+`( of `[^`]+`)?((, | and | or )`[^`]+`( of `[^`]+`)?)*|\b[A-Z][a-z]\w+\b"
    fix = re.sub(r"train\.py:\d+", "train.py", re.sub(names, "`...`", fix))
    return re.sub(r"\b(lambda|partial)\b", "function", fix)
