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
    """Return the Markdown of all libraries."""
    columns = [{_key(line): line for line in each["lines"]} for each in (oldest, newest)]
    keys = sorted({*columns[0], *columns[1]}, key=lambda key: (key[0].lower(), key[1]))
    text: list[str] = [
        f"Tried with JAX {oldest['versions']['jax']} on Python {oldest['python']}, and with "
        f"JAX {newest['versions']['jax']} on Python {newest['python']}."
    ]
    for library in dict.fromkeys(library for library, _ in keys):
        versions = [each["versions"].get(library, "") for each in (oldest, newest)]
        text += ["", f"## {library}", "", f"| | {versions[0]} | {versions[1]} |", "|---|---|---|"]
        for key in keys:
            if key[0] == library:
                text.append(_row(key[1], [column.get(key) for column in columns]))
    return "\n".join(text)


def _key(line: dict[str, Any]) -> tuple[str, str]:
    return line["library"], line["what"]


def _row(what: str, lines: list[dict[str, Any] | None]) -> str:
    why = next((line["cannot"] for line in lines if line and line["cannot"]), None)
    shown = f"{what}<br>*{why}*" if why else what
    return f"| {shown} | " + " | ".join(map(_mark, lines)) + " |"


def _mark(line: dict[str, Any] | None) -> str:
    if line is None or line["outcome"] == "skipped":
        return "not tried"
    if line["outcome"] == "failed":
        return "**failed**"
    return "no" if line["cannot"] else "yes"


def difference(page: str, made: str) -> str | None:
    """Return how a page differs from the one that would be made, versions aside."""
    old, new = (re.sub(r"\b\d+(\.\d+)+\b", "N", text).splitlines() for text in (page, made))
    if old == new:
        return None
    lines = difflib.unified_diff(old, new, "docs/reference/ecosystem.md", "what was found")
    return "\n".join([*lines, "", "nox -s downstream -- --write-table writes it again"])


if __name__ == "__main__":
    sys.exit(main())
