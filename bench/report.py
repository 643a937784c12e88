"""The tables as aligned text, Markdown and JSON."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contestants import BASELINE, OURS, WITHOUT_STATICS, Contestant
from cost import Row
from growth import Line

NOTE: Final = (
    f"Median over rounds, ± half of the interquartile range; ratios are taken within a round. "
    f"{BASELINE} is `jax.tree_util.register_dataclass` over a frozen dataclass. "
    f"{WITHOUT_STATICS} has no static fields: its class has the five dynamic ones only, and it "
    f"is never the best peer. jdc is jax_dataclasses, jarp is liblaf-jarp."
)

Table = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """All that was measured.

    Attributes:
        contestants: The libraries, ours and jax first.
        skipped: Why a library was left out.
        rows: The cost table.
        lines: The growth table.
    """

    contestants: Sequence[Contestant]
    skipped: Mapping[str, str]
    rows: Sequence[Row]
    lines: Sequence[Line]

    @property
    def over(self) -> list[Row]:
        """The rows in which leafwise exceeds its limit."""
        return [row for row in self.rows if row.is_over]

    @property
    def names(self) -> list[str]:
        """The contestants' names."""
        return [each.name for each in self.contestants]

    @property
    def setting(self) -> str:
        """Versions, on one line."""
        versions = [each.version for each in self.contestants]
        python = f"Python {platform.python_version()}"
        jaxlib = f"jaxlib {importlib.metadata.version('jaxlib')}"
        return ", ".join([python, *versions, jaxlib, f"{os.cpu_count()} cores"])

    def tables(self) -> dict[str, Table]:
        """Return title and cells of each table, its head first."""
        rounds = len(self.rows[0].samples[OURS].seconds)
        return {
            f"Cost, µs a call ({rounds} rounds)": self._times(),
            f"Cost, in multiples of {BASELINE}": self._ratios(),
            "Growth (informative, no limit)": _growth(self.lines),
        }

    def _times(self) -> Table:
        def cell(row: Row, name: str) -> str:
            samples = row.samples[name]
            return f"{samples.microseconds:.3g} ±{samples.spread:.0%}"

        body = [[row.name, *(cell(row, name) for name in self.names)] for row in self.rows]
        return [["", *self.names], *body]

    def _ratios(self) -> Table:
        others = [name for name in self.names if name not in (OURS, BASELINE)]
        head = ["", OURS, "limit", "best peer", f"{OURS} / best", *others]
        body: list[list[str]] = []
        for row in self.rows:
            best = row.best_peer
            mark = " !" if row.is_over else ""
            ours = [f"{row.ratio():.2f}{mark}", f"{row.limit:.2f}"]
            ours += [best, f"{row.ratio(to=best):.2f}"]
            body.append([row.name, *ours, *(f"{row.ratio(name):.2f}" for name in others)])
        return [head, *body]

    def footnotes(self) -> list[str]:
        """Return what a reader must know beside the tables."""
        left_out = [f"Left out: {reason}." for reason in self.skipped.values()]
        over = [
            f"Over the limit: {row.name}, {row.ratio():.2f} > {row.limit:.2f}." for row in self.over
        ]
        return [NOTE, *left_out, *over]


def _growth(lines: Sequence[Line]) -> Table:
    head = ["", "unit", OURS, "reference", "ratio", "reference is"]
    body: list[list[str]] = []
    for line in lines:
        no_reference = line.reference is None
        reference = "-" if no_reference else f"{line.reference:.3g}"
        ratio = "-" if line.ratio is None else f"{line.ratio:.2f}"
        body.append(
            [line.name, line.unit, f"{line.ours:.3g}", reference, ratio, line.reference_name]
        )
    return [head, *body]


def as_text(report: Report) -> str:
    """Return the report for a terminal."""
    parts = [report.setting]
    for title, table in report.tables().items():
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in table
        ]
        parts.append("\n".join([title, *(line.rstrip() for line in lines)]))
    return "\n\n".join([*parts, "\n".join(report.footnotes())]) + "\n"


def as_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    parts = ["# Benchmark", report.setting]
    for title, table in report.tables().items():
        rule = ["---", *["---:"] * (len(table[0]) - 1)]
        lines = [f"| {' | '.join(row)} |" for row in (table[0], rule, *table[1:])]
        parts.append("\n".join([f"## {title}", "", *lines]))
    return "\n\n".join([*parts, *report.footnotes()]) + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as data: microseconds, fractions and ratios."""
    return {
        "python": platform.python_version(),
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine()},
        "versions": {each.name: each.version for each in report.contestants},
        "skipped": dict(report.skipped),
        "baseline": BASELINE,
        "cost": [_row(row) for row in report.rows],
        "growth": [_line(line) for line in report.lines],
        "over_limit": [row.name for row in report.over],
    }


def _row(row: Row) -> dict[str, Any]:
    best = row.best_peer
    return {
        "measure": row.measure,
        "instances": row.count,
        "rounds": len(row.samples[OURS].seconds),
        "limit": row.limit,
        "ratio": row.ratio(),
        "best_peer": best,
        "ratio_to_best_peer": row.ratio(to=best),
        "times": {
            name: {
                "microseconds": samples.microseconds,
                "spread": samples.spread,
                "ratio": row.ratio(name),
            }
            for name, samples in row.samples.items()
        },
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "unit": line.unit,
        OURS: line.ours,
        "reference": line.reference,
        "reference_name": line.reference_name,
        "ratio": line.ratio,
    }
