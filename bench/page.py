"""The tables of docs/explanation/speed.md, made from the committed results.

Each stands between `<!-- bench: name -->` and `<!-- end -->`; the text around them is not ours.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import compare
import cost
import growth
import instances
import oracle
import report
import training
from report import Cells, Report
from rows import FACTOR, Row

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "explanation" / "speed.md"

_BLOCK: Final = re.compile(r"(?<=<!-- bench: )([\w-]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def committed() -> list[Report]:
    """Return the committed results, the newest Python last."""
    paths = sorted(compare.RESULTS.glob("3.*.json"), key=lambda path: int(path.stem[2:]))
    return [Report.from_json(json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def update() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(text, committed()), encoding="utf-8")


def filled(text: str, reports: Sequence[Report]) -> str:
    """Return a page with its tables recreated."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]} -->\n\n{BLOCKS[found[1]](reports)}\n\n"

    return _BLOCK.sub(block, text)


def _settings(reports: Sequence[Report]) -> str:
    return "\n".join(f"- {each.setting.line}" for each in reports)


def _targets(reports: Sequence[Report]) -> str:
    """Return every row that has a target on some Python, a column for each Python."""
    by_name = [{row.name: row for row in each.rows} for each in reports]
    asked = {row.name for each in reports for row in each.rows if row.target}
    names = [row.name for row in reports[-1].rows if row.name in asked]
    head = ["", "target", *(f"Python {each.setting.minor}" for each in reports)]
    body = [[name, *_across([rows.get(name) for rows in by_name])] for name in names]
    return report.markdown([head, *body])


def _across(rows: Sequence[Row | None]) -> list[str]:
    """Return the target of a row, and its score on each Python."""
    targets = [report.target_of(row).removesuffix(" !") if row else "-" for row in rows]
    shown = list(dict.fromkeys(each for each in targets if each != "-"))
    return ["; ".join(shown), *(_score(row) if row else "-" for row in rows)]


def _score(row: Row) -> str:
    if row.score is None:
        return "-"
    absolute = row.against is None and row.unit != FACTOR
    text = report.amount(row.score, row.unit) if absolute else report.times(row.score)
    text = f"**{text}**" if row.is_over else text
    return f"{text} of {row.against}" if row.against else text


def _of_newest(cells: Callable[[Sequence[Row]], Cells]) -> Callable[[Sequence[Report]], str]:
    return lambda reports: report.markdown(cells(reports[-1].rows))


def _table(name: str) -> Callable[[Sequence[Report]], str]:
    return _of_newest(lambda rows: report.by_contestant(rows, name))


BLOCKS: Final[Mapping[str, Callable[[Sequence[Report]], str]]] = {
    "settings": _settings,
    "targets": _targets,
    "multiples": _of_newest(report.multiples),
    "cost": _table(cost.TABLE),
    "growth": _table(growth.TABLE),
    "instances": _table(instances.TABLE),
    "oracle": _table(oracle.TABLE),
    "training": _table(training.TABLE),
    "beyond": _table(training.BEYOND),
}
