"""Measure leafwise against other pytree classes.

Run `python bench/run.py`: some four minutes, or one with `--quick`. All contestants take turns
in one process, and the least CPU time of each counts; ratios are what is compared.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

# What a step computes runs on the thread that calls it, whose time is taken.
os.environ["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = "false"

import checked
import compare
import cost
import explained
import growth
import instances
import libraries
import oracle
import report
import steps
from report import Report
from rows import Row
from timing import Effort


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long each table is measured, and how far."""

    cost: Effort
    steps: Effort
    growth: Effort
    instances: Effort
    oracle: oracle.Plan
    scales: tuple[growth.Scale, instances.Scale, oracle.Scale]
    script: float = 30.0


_SHORT: Final = 0.002
FULL: Final = Plan(
    Effort(75.0),
    Effort(25.0),
    Effort(25.0),
    Effort(6.0),
    oracle.Plan(Effort(25.0, _SHORT), Effort(25.0), Effort(20.0)),
    (growth.FULL, instances.FULL, oracle.FULL),
)
QUICK: Final = Plan(
    Effort(8.0, _SHORT),
    Effort(5.0, _SHORT),
    Effort(4.0, _SHORT),
    Effort(1.0, _SHORT),
    oracle.Plan(Effort(8.0, _SHORT), Effort(8.0), Effort(6.0)),
    (growth.QUICK, instances.QUICK, oracle.QUICK),
    script=5.0,
)
_ONCE: Final = Effort(0.0, loops=1)
TINY: Final = Plan(
    _ONCE,
    _ONCE,
    _ONCE,
    _ONCE,
    oracle.Plan(_ONCE, _ONCE, _ONCE),
    (growth.TINY, instances.TINY, oracle.TINY),
    script=0.0,
)

Libraries = Mapping[str, libraries.Library]
MEASURES: Final[Mapping[str, Callable[[Libraries, Plan], list[Row]]]] = {
    steps.TABLE: lambda found, plan: steps.measure(found, plan.steps),
    cost.TABLE: lambda found, plan: cost.measure(found, plan.cost),
    growth.TABLE: lambda found, plan: growth.measure(found, plan.growth, plan.scales[0]),
    instances.TABLE: lambda found, plan: instances.measure(
        found, plan.instances, plan.scales[1], sys.version_info[:2]
    ),
    oracle.TABLE: lambda found, plan: oracle.measure(found, plan.oracle, plan.scales[2]),
    checked.TABLE: lambda _, plan: checked.measure(whole=plan.script > 0),
    explained.TABLE: lambda _, plan: explained.measure(plan.script),
}
"""What measures each table, in the order of the results."""
USUAL: Final = tuple(each for each in MEASURES if each not in (checked.TABLE, explained.TABLE))
"""Without those that take longer than all others together."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parse(argv)
    found, skipped = libraries.load()
    setting = report.Setting.here(found, skipped)
    tables: Sequence[str] = options.only or USUAL
    try:
        before = compare.committed(setting.minor, setting.device) if options.check else None
        kept = compare.same_setting(setting) if options.save and options.only else None
    except compare.NoComparisonError as error:
        print(error, file=sys.stderr)
        return 2
    if options.runs > 1:
        result = report.middle(_runs(options.runs, sys.argv[1:] if argv is None else argv))
    else:
        result = Report(setting, measured(found, _plan(options), tables))
    print(report.as_text(result), end="")
    _write(result, options, kept)
    return 0 if before is None else _compare(result, compare.part(before, tables))


def measured(found: Libraries, plan: Plan, tables: Sequence[str]) -> list[Row]:
    """Return the rows of these tables."""
    return [row for name in MEASURES if name in tables for row in MEASURES[name](found, plan)]


def _plan(options: argparse.Namespace) -> Plan:
    return TINY if options.tiny else QUICK if options.quick else FULL


def _runs(count: int, argv: Sequence[str]) -> list[Report]:
    """Return the reports of several runs, each in a process of its own."""
    found: list[Report] = []
    left_out = ("--save", "--check")
    arguments = [each for each in argv if each not in left_out]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            file = Path(folder, f"{number}.json")
            command = [sys.executable, __file__, *arguments, "--runs", "1", "--json", str(file)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # ours
            found.append(Report.from_json(json.loads(file.read_text(encoding="utf-8"))))
    return found


def _write(result: Report, options: argparse.Namespace, kept: Report | None) -> None:
    if options.json:
        _write_json(options.json, result)
    if options.save:
        whole = result if kept is None else compare.merged(result, kept, list(MEASURES))
        _write_json(compare.RESULTS / f"{result.setting.minor}.json", whole)
    if options.markdown:
        options.markdown.write_text(report.as_markdown(result), encoding="utf-8")


def _write_json(file: Path, result: Report) -> None:
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(result.as_json(), indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def _compare(result: Report, before: Report) -> int:
    """Say what became worse, and return the exit status."""
    worse = compare.regressions(result, before)
    if left := compare.not_compared(result, before):
        print(f"Not compared: {'; '.join(left)}.")
    print(*worse or ["No row is worse than the committed one."], sep="\n")
    return 1 if worse else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure for about a minute")
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="run so often, each time in a new process; of each row the run in the middle counts",
    )
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
        choices=MEASURES,
        metavar="TABLE",
        help=f"measure only these of {', '.join(MEASURES)}, the last two of which take minutes and "
        "half an hour, and are left out without this option; --save keeps the other rows",
    )
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
