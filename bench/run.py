"""Measure leafwise against other pytree classes.

Run `python bench/run.py`: about six minutes, or one with `--quick`. All contestants take
turns in one process, so that a busy machine slows all of them alike; ratios are what counts.
"""

import argparse
import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import compare
import cost
import curves
import draw
import growth
import instances
import libraries
import oracle
import report
import training
from timing import Effort


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long each table is measured, and how far."""

    cost: Effort
    growth: Effort
    instances: Effort
    training: training.Plan
    oracle: oracle.Plan
    scales: tuple[growth.Scale, instances.Scale, training.Scale, oracle.Scale]


_SHORT: Final = 0.002
FULL: Final = Plan(
    Effort(75.0),
    Effort(25.0),
    Effort(6.0),
    training.Plan(Effort(25.0), Effort(15.0), Effort(8.0)),
    oracle.Plan(Effort(20.0, _SHORT), Effort(15.0), Effort(30.0)),
    (growth.FULL, instances.FULL, training.FULL, oracle.FULL),
)
QUICK: Final = Plan(
    Effort(6.0, _SHORT),
    Effort(3.0, _SHORT),
    Effort(1.0, _SHORT),
    training.Plan(Effort(4.0), Effort(4.0), Effort(1.0)),
    oracle.Plan(Effort(6.0, _SHORT), Effort(3.0), Effort(6.0)),
    (growth.QUICK, instances.QUICK, training.QUICK, oracle.QUICK),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parse(argv)
    found, skipped = libraries.load()
    setting = report.Setting.here(found, skipped)
    if options.curves is not None:
        effort, scale = _curve_plan(options)
        measured = curves.measure(found, effort, scale)
        curves.write(setting, measured, options.curves)
        if importlib.util.find_spec("matplotlib") is None:
            print("Nothing is drawn: matplotlib is not installed.")
        else:
            shown = options.curves == compare.RESULTS
            draw.draw_growth(options.curves, draw.IMAGES if shown else options.curves)
        return 0
    groups: Sequence[str] = options.only or list(TABLES)
    before = kept = None
    try:
        if options.check:
            whole = compare.committed(setting.minor, setting.device)
            before = compare.part(whole, _tables(groups))
        if options.save and options.only:
            kept = compare.same_setting(setting)
    except compare.NoComparisonError as error:
        print(error, file=sys.stderr)
        return 2
    result = report.Report(setting, _measure(found, _plan(options), groups))
    print(report.as_text(result), end="")
    _write(result, options, kept)
    return 0 if before is None else _compare(result, before)


def _plan(options: argparse.Namespace) -> Plan:
    if options.loops is None:
        return QUICK if options.quick else FULL
    once = Effort(0.0, loops=options.loops)
    scales = (growth.TINY, instances.TINY, training.TINY, oracle.TINY)
    trained, asked = training.Plan(once, once, once), oracle.Plan(once, once, once)
    return Plan(once, once, once, trained, asked, scales)


def _curve_plan(options: argparse.Namespace) -> tuple[Effort, curves.Scale]:
    if options.loops is not None:
        return Effort(0.0, loops=options.loops), curves.TINY
    if options.quick:
        return Effort(8.0, _SHORT), curves.QUICK
    return Effort(60.0), curves.FULL


TABLES: Final[Mapping[str, Sequence[str]]] = {
    "cost": (cost.TABLE,),
    "growth": (growth.TABLE,),
    "instances": (instances.TABLE,),
    "training": (training.TABLE, training.BEYOND),
    "oracle": (oracle.TABLE,),
}
"""The tables of each group of measurements, in the order of the results."""


def _measure(
    found: dict[str, libraries.Library], plan: Plan, groups: Sequence[str]
) -> list[report.Row]:
    python = sys.version_info[:2]
    grown, made, trained, asked = plan.scales
    measures: dict[str, Callable[[], list[report.Row]]] = {
        "cost": lambda: cost.measure(found, plan.cost, python),
        "growth": lambda: growth.measure(found, plan.growth, grown),
        "instances": lambda: instances.measure(found, plan.instances, made, python),
        "training": lambda: training.measure(found, plan.training, trained),
        "oracle": lambda: oracle.measure(found, plan.oracle, asked),
    }
    return [row for group in TABLES if group in groups for row in measures[group]()]


def _write(result: report.Report, options: argparse.Namespace, kept: report.Report | None) -> None:
    if options.json:
        _write_json(options.json, result)
    if options.save:
        whole = result if kept is None else compare.merged(result, kept, TABLES.values())
        _write_json(compare.RESULTS / f"{result.setting.minor}.json", whole)
    if options.markdown:
        options.markdown.write_text(report.as_markdown(result), encoding="utf-8")


def _write_json(file: Path, result: report.Report) -> None:
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(result.as_json(), indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def _tables(groups: Iterable[str]) -> list[str]:
    return [table for group in groups for table in TABLES[group]]


def _compare(result: report.Report, before: report.Report) -> int:
    """Say what became worse, and return the exit status."""
    worse = compare.regressions(result, before)
    if left := compare.not_compared(result, before):
        print(f"Not compared: {'; '.join(left)}.")
    print(*worse or ["No row is worse than the committed one."], sep="\n")
    return 1 if worse else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure for about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit 1 if a row is worse than the committed one (bench/compare.py), 2 without one",
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help=f"commit to these: write {compare.RESULTS.name}/X.Y.json",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=TABLES,
        metavar="GROUP",
        help=f"measure only these of {', '.join(TABLES)}; --save keeps the other rows",
    )
    parser.add_argument(
        "--curves",
        type=Path,
        nargs="?",
        const=compare.RESULTS,
        metavar="FOLDER",
        help="measure how costs grow instead, and draw it (default: where the documentation is)",
    )
    parser.add_argument("--loops", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
