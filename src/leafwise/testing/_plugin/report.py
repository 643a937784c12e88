"""The report of a run: the counts of all its processes, as a table and as JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest

_COUNTS: Final = ("traces", "lowerings", "compiles", "cache_hits", "seconds")


def report_of(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the counts of all processes, as plain values."""
    keys = ("name", "file", "line", "eager")
    functions = _merged((row for part in parts for row in part["functions"]), keys)
    for each in [each for each in functions if not each["file"] and not each["eager"]]:
        # Some JAX events have a name only: they belong to the one function of that name.
        same = [other for other in functions if other["name"] == each["name"] and other["file"]]
        if len(same) == 1:
            functions.remove(each)
            for name in _COUNTS:
                same[0][name] += each[name]
    tests = _merged((row for part in parts for row in part["tests"]), ("nodeid",))
    return {
        "leafwise": metadata.version("leafwise"),
        "jax": metadata.version("jax"),
        "seconds": sum(part["seconds"] for part in parts),
        "functions": sorted(functions, key=_rank),
        "tests": sorted(tests, key=_rank),
    }


def write(file: Path, report: dict[str, Any]) -> str:
    """Write a report as JSON; return the error's text, empty if there is none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        return f"the report could not be written: {error}"
    return ""


def _merged(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        counts = sums.setdefault(tuple(row[name] for name in names), Counter())
        counts.update({name: row[name] for name in _COUNTS})
    return [
        {**dict(zip(names, key, strict=True)), **{name: counts[name] for name in _COUNTS}}
        for key, counts in sums.items()
    ]


def _rank(row: dict[str, Any]) -> tuple[Any, ...]:
    return -row["compiles"], -row["seconds"], row.get("nodeid") or row["name"]


def lines_of(report: dict[str, Any], most: int | None) -> list[str]:
    """Return the lines of a report: a table of the functions, and one of the tests."""
    if not report["functions"]:
        return ["nothing"]
    lines: list[str] = []
    for title, kind in (("function", "functions"), ("test", "tests")):
        rows = report[kind]
        if not rows:
            continue
        lines += [*([""] if lines else []), *_table(title, rows[:most])]
        if most is not None and len(rows) > most:
            lines.append(f"... and {len(rows) - most} more, with -v")
    return [*lines, "", f"JAX was busy for {report['seconds']:.2f} seconds"]


_WIDTHS: Final = dict(zip(_COUNTS, (6, 9, 8, 10, 8), strict=True))


def _table(title: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    heads = [name.replace("_", " ").rjust(_WIDTHS[name]) for name in _COUNTS]
    lines = ["  ".join([*heads, title])]
    for row in rows:
        counts = [str(row[name]).rjust(_WIDTHS[name]) for name in _COUNTS[:-1]]
        seconds = f"{row['seconds']:.3f}".rjust(_WIDTHS["seconds"])
        place = f" ({row['file']}:{row['line']})" if row.get("file") else ""
        lines.append("  ".join([*counts, seconds, f"{row.get('nodeid') or row['name']}{place}"]))
    return lines


def message_of(error: pytest.ExceptionInfo[BaseException], path: str, line: int) -> Any:
    """Return what pytest prints for an error: its message, and a place."""
    shown: Any = error.getrepr(style="value", chain=False)
    crash = shown.reprcrash
    if crash is not None:
        crash.path, crash.lineno = path, line
        shown.reprtraceback.reprentries[-1].reprfileloc = crash
    return shown
