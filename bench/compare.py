"""Is this run worse than the committed one?"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from libraries import OURS
from report import Report, Setting
from rows import Row

RESULTS: Final = Path(__file__).parent / "results"

# More than what two full runs on one machine differed by: 5 % (cost, training), 9 % (growth),
# 12 % (instances). Short runs came out up to 11 % apart, and 17 % (instances): look twice.
RELATIVE: Final[Mapping[str, float]] = {
    "check": 0.30,
    "cost": 0.10,
    "growth": 0.15,
    "instances": 0.20,
    "oracle": 0.15,
    "steps": 0.10,
    "explain": 0.10,
}
"""By what fraction a ratio may be worse, by table; others are not compared."""
# What is no ratio of two times taken side by side moves with the machine and its neighbours:
# up to 36 %, 61 % and 51 % here.
ABSOLUTE: Final[Mapping[str, float]] = {"x": 0.5, "µs": 1.0, "ms": 1.0, "s": 0.5}
"""The same for figures without a peer, by unit."""
# Between runs the plain read stayed the same and the property took 27 or 45 ns: up to 77 %.
_UNSTEADY: Final[Mapping[str, float]] = {"read a static attribute": 1.0}


class NoComparisonError(Exception):
    """There is nothing that this run can be compared with; the message says what to do."""


def committed(minor: str, device: str, folder: Path | None = None) -> Report:
    """Return the committed results for a Python.

    Raises:
        NoComparisonError: There are none, or they come from another kind of device.
    """
    path = (folder or RESULTS) / f"{minor}.json"
    if not path.exists():
        raise NoComparisonError(f"no results to compare with: {path} is missing; --save writes it")
    report = Report.from_json(json.loads(path.read_text(encoding="utf-8")))
    if report.setting.device != device:
        raise NoComparisonError(
            f"{path} was measured on {report.setting.device}, and this is {device}"
        )
    return report


def same_setting(setting: Setting, folder: Path | None = None) -> Report:
    """Return the committed results that a run of some tables can become part of.

    Raises:
        NoComparisonError: There are none, or they were measured on other versions.
    """
    report = committed(setting.minor, setting.device, folder)
    if report.setting != setting:
        raise NoComparisonError(
            f"{setting.minor}.json is of another setting, save all rows: {report.setting.line}"
        )
    return report


def part(report: Report, tables: Iterable[str]) -> Report:
    """Return the rows of these tables."""
    chosen = set(tables)
    return Report(report.setting, [row for row in report.rows if row.table in chosen])


def merged(now: Report, before: Report, tables: Sequence[str]) -> Report:
    """Return a run, and of an earlier one the tables that it lacks, in this order."""
    new = {row.table for row in now.rows}
    kept = [*now.rows, *(row for row in before.rows if row.table not in new)]
    return Report(now.setting, sorted(kept, key=lambda row: tables.index(row.table)))


def tolerance(row: Row) -> float | None:
    """Return by what fraction a score may be worse; None if the row is not compared."""
    if row.table not in RELATIVE:
        return None
    for start, tolerated in _UNSTEADY.items():
        if row.name.startswith(start):
            return tolerated
    return ABSOLUTE[row.unit] if row.against is None else RELATIVE[row.table]


def regressions(now: Report, before: Report) -> list[str]:
    """Return a sentence for each row that became worse by more than its tolerance.

    The ratio is to the contestant that was the best peer before, whichever it is now.
    """
    rows = {row.name: row for row in now.rows}
    found: list[str] = []
    for old in before.rows:
        new, tolerated = rows.get(old.name), tolerance(old)
        if new is None or tolerated is None or (old.against or OURS) not in new.figures:
            continue
        score = dataclasses.replace(new, against=old.against).score
        if score > old.score * (1 + tolerated):
            against = f"of {old.against}" if old.against else old.unit
            found.append(
                f"Worse: {old.name}, {score:.3g} {against} where it was {old.score:.3g}: "
                f"{score / old.score - 1:+.0%}, and {tolerated:.0%} is tolerated."
            )
    return found


def not_compared(now: Report, before: Report) -> list[str]:
    """Return the committed rows for which this run has no counterpart."""
    rows = {row.name: row for row in now.rows}
    return [
        old.name
        for old in before.rows
        if old.name not in rows or (old.against and old.against not in rows[old.name].figures)
    ]
