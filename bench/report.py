"""All that one run found, and how it reads: text, Markdown and JSON."""

import dataclasses
import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import jax
from libraries import AGAIN, BASELINE, OURS, SLOTS, Library
from rows import FACTOR, Row

NOTES: Final = (
    "The least CPU time of the calling thread over all rounds (of the whole process where "
    "something is compiled, imported or explained); what a step computes runs on that thread. "
    "Ratios are leafwise's time over the other's.",
    f"{AGAIN} is a second {BASELINE}: A/A is by what fraction the two came out apart, and a target "
    "is missed if the ratio is over it by more than that.",
    "The best peer is the fastest other library that does the same work.",
    f"{BASELINE} is `jax.tree_util.register_dataclass` over a frozen dataclass; slots is leafwise "
    "with slots=True; jdc is jax_dataclasses, jarp is liblaf-jarp; chex has no static fields, so "
    "its class has the five dynamic ones only.",
    "ready and empty are bounds, not libraries: classes whose functions in Python only return an "
    "object made beforehand, with five children and without.",
    "In the oracle table, and under lw.jit, jax is `jax.jit`.",
)

Cells = Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where the run took place.

    Attributes:
        python: The version.
        device: What JAX computes on.
        machine: Cores and architecture.
        versions: Distributions and their versions, by short name.
        skipped: Why a library was left out.
        runs: Of how many runs the one in the middle counts, for each row.
    """

    python: str
    device: str
    machine: str
    versions: Mapping[str, str]
    skipped: Mapping[str, str]
    runs: int = 1

    @classmethod
    def here(cls, libraries: Mapping[str, Library], skipped: Mapping[str, str]) -> Self:
        """Return the setting of this process."""
        versions = {name: each.version for name, each in libraries.items() if name != SLOTS}
        versions["jaxlib"] = f"jaxlib {importlib.metadata.version('jaxlib')}"
        versions["optax"] = f"optax {importlib.metadata.version('optax')}"
        machine = f"{os.cpu_count()} cores, {platform.machine()}"
        device = jax.devices()[0].device_kind
        return cls(platform.python_version(), device, machine, versions, skipped)

    @property
    def minor(self) -> str:
        """The Python version without its last part."""
        return self.python.rpartition(".")[0]

    @property
    def line(self) -> str:
        """All of it on one line."""
        where = [f"device {self.device}", self.machine]
        return ", ".join([f"Python {self.python}", *self.versions.values(), *where])


@dataclasses.dataclass(frozen=True)
class Report:
    """All that was measured."""

    setting: Setting
    rows: Sequence[Row]

    @property
    def over(self) -> list[Row]:
        """The rows over their target."""
        return [row for row in self.rows if row.is_over]

    def as_json(self) -> dict[str, Any]:
        """Return the report as data."""
        rows = [row.as_json() for row in self.rows]
        over = [row.name for row in self.over]
        return {"setting": dataclasses.asdict(self.setting), "rows": rows, "over_target": over}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the report that `as_json` was asked for."""
        return cls(Setting(**data["setting"]), [Row.from_json(row) for row in data["rows"]])


def middle(reports: Sequence[Report]) -> Report:
    """Return of several runs, for each row, the one with the median score."""
    setting = dataclasses.replace(reports[0].setting, runs=len(reports))
    return Report(setting, [_middle(each) for each in zip(*(r.rows for r in reports), strict=True)])


def _middle(rows: Sequence[Row]) -> Row:
    peers = Counter(row.against for row in rows)
    against = peers.most_common(1)[0][0]  # not the same library each time
    alike = [dataclasses.replace(row, against=against) for row in rows]
    return sorted(alike, key=lambda row: row.score)[len(alike) // 2]


def tables(report: Report) -> dict[str, Cells]:
    """Return title and cells of each table, its head first."""
    made: dict[str, Cells] = {"Rows and targets": overview(report.rows)}
    for name in dict.fromkeys(row.table for row in report.rows):
        made[f"By contestant: {name}"] = by_contestant(report.rows, name)
    return made


def overview(rows: Sequence[Row]) -> Cells:
    """Return every row with its score and its target."""
    body: list[list[str]] = []
    for row in rows:
        other, ratio = "-", "-"
        if row.against is not None:
            other = f"{row.against} {amount(row.figures[row.against], row.unit)}"
            ratio = times(row.score)
        noise = f"±{row.noise:.2f}" if AGAIN in row.figures else "-"
        body.append([row.name, amount(row.ours, row.unit), other, ratio, noise, target_of(row)])
    return [["", OURS, "compared with", "ratio", "A/A", "target"], *body]


def target_of(row: Row) -> str:
    """Return a row's target, marked if it is missed."""
    if row.target is None:
        return "-"
    unit = "" if row.against is not None else row.unit
    limit = times(row.target) if unit in ("", FACTOR) else amount(row.target, unit)
    return f"≤ {limit}{' !' if row.is_over else ''}"


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit."""
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if value else 0
    return f"{value:,.{digits}f} {unit}"


def times(ratio: float) -> str:
    """Return a ratio as it is shown."""
    return f"{ratio:.2f}"


def by_contestant(rows: Sequence[Row], table: str) -> Cells:
    """Return the figures of one table, a column for each contestant."""
    chosen = [row for row in rows if row.table == table]
    names = list(dict.fromkeys(name for row in chosen for name in row.figures))

    def cell(row: Row, name: str) -> str:
        return amount(row.figures[name], row.unit) if name in row.figures else "-"

    return [["", *names], *([row.name, *(cell(row, name) for name in names)] for row in chosen)]


def footnotes(report: Report) -> list[str]:
    """Return what a reader must know beside the tables."""
    left_out = [f"Left out: {reason}." for reason in report.setting.skipped.values()]
    return [*NOTES, *left_out, *map(missed, report.over)]


def missed(row: Row) -> str:
    """Return the sentence about a row over its target."""
    unit = row.unit if row.against is None else ""
    shown = amount(row.score, unit) if unit not in ("", FACTOR) else times(row.score)
    to = f" of {row.against}" if row.against else ""
    return f"Over the target: {row.name}, {shown}{to}, {target_of(row).removesuffix(' !')}."


def as_text(report: Report) -> str:
    """Return the report for a terminal."""
    parts = [report.setting.line]
    for title, cells in tables(report).items():
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        ]
        parts.append("\n".join([title, *(line.rstrip() for line in lines)]))
    return "\n\n".join([*parts, "\n".join(footnotes(report))]) + "\n"


def as_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    parts = ["# Benchmark", report.setting.line]
    parts += [f"## {title}\n\n{markdown(cells)}" for title, cells in tables(report).items()]
    return "\n\n".join([*parts, *footnotes(report)]) + "\n"


def markdown(cells: Cells) -> str:
    """Return a table as Markdown."""
    rule = ["---", *["---:"] * (len(cells[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:]))
