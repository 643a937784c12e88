"""The table of docs/reference/ecosystem.md, made from what tests/interop found.

    python tests/interop/table.py OLDEST.json NEWEST.json [--write]

Without `--write`, the page must say what was found; which versions were the newest then does
not matter.
"""

import argparse
import difflib
import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ecosystem.md"
BEGIN, END = "<!-- begin: tests/interop/table.py -->", "<!-- end -->"


def main(arguments: list[str] | None = None) -> str | None:
    """Write or compare the table; return what is wrong, if anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("oldest", type=Path)
    parser.add_argument("newest", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    newest = json.loads(options.newest.read_text())
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    made = table(json.loads(options.oldest.read_text()), newest)
    made = f"{before}{BEGIN}\n{made}\n{END}{after}"
    if options.write:
        PAGE.write_text(made)
        return None
    return difference(page, made)


def table(oldest: dict[str, Any], newest: dict[str, Any]) -> str:
    """Return the Markdown of all libraries: a summary, and what cannot be had."""
    columns = [{_key(line): line for line in each["lines"]} for each in (oldest, newest)]
    keys = sorted({*columns[0], *columns[1]}, key=lambda key: (key[0].lower(), key[1]))
    summary: list[str] = []
    refused: list[str] = []
    for library in dict.fromkeys(library for library, _ in keys):
        versions = [each["versions"].get(library, "") for each in (oldest, newest)]
        works = 0
        limits: list[str] = []
        for key in keys:
            if key[0] == library:
                lines = [column.get(key) for column in columns]
                marks = list(map(_mark, lines))
                tried = [each for each in zip(versions, marks, strict=True) if each[1]]
                if {mark for _, mark in tried} - {"yes"}:
                    limits.append(_limit(key[1], tried, lines))
                else:
                    works += 1
        summary.append(f"| {library} | {' | '.join(versions)} | {works} | {len(limits)} |")
        if limits:
            refused += ["", f"### {library}", "", "| | why, and what to do |", "|---|---|", *limits]
    return "\n".join(
        [
            f"Tried with JAX {oldest['versions']['jax']} on Python {oldest['python']}, and with "
            f"JAX {newest['versions']['jax']} on Python {newest['python']}.",
            "",
            "| library | oldest | newest | works | does not |",
            "|---|---|---|---|---|",
            *summary,
            "",
            "## What does not work",
            *refused,
        ]
    )


def _key(line: dict[str, Any]) -> tuple[str, str]:
    return line["library"], line["what"]


def _mark(line: dict[str, Any] | None) -> str:
    """Return what a version did; nothing if it was not tried."""
    if line is None or line["outcome"] == "skipped":
        return ""
    if line["outcome"] == "failed":
        return "**failed**"
    return "no" if line["cannot"] else "yes"


def _limit(what: str, tried: list[tuple[str, str]], lines: list[dict[str, Any] | None]) -> str:
    why = next((line["cannot"] for line in lines if line and line["cannot"]), "")
    marks = {mark for _, mark in tried}
    if marks != {"no"} or len(tried) < len(lines):
        why = f"{', '.join(f'{version}: {mark}' for version, mark in tried)}. {why}"
    return f"| {what} | {why.rstrip()} |"


def difference(page: str, made: str) -> str | None:
    """Return how a page differs from the one that would be made, versions aside."""
    old, new = (re.sub(r"\b\d+(\.\d+)+\b", "N", text).splitlines() for text in (page, made))
    if old == new:
        return None
    lines = difflib.unified_diff(old, new, "docs/reference/ecosystem.md", "what was found")
    return "\n".join([*lines, "", "nox -s downstream -- --write-table writes it again"])


if __name__ == "__main__":
    sys.exit(main())
