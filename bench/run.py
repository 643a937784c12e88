"""Measure leafwise against other pytree classes.

Run `python bench/run.py`: about two minutes, or 20 seconds with `--quick`. All contestants
take turns in one process, so that a busy machine slows all of them alike; the ratios to
jax's own `register_dataclass` are what counts.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import contestants
import cost
import growth
import report
from timing import Effort


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long each table is measured, and how far."""

    cost: Effort
    growth: Effort
    scale: growth.Scale


FULL = Plan(Effort(60.0), Effort(15.0), growth.FULL)
QUICK = Plan(Effort(6.0, slot=0.002), Effort(2.0, slot=0.002), growth.QUICK)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parse(argv)
    plan = QUICK if options.quick else FULL
    if options.loops is not None:
        effort = Effort(0.0, loops=options.loops)
        plan = Plan(effort, effort, growth.TINY)
    found, skipped = contestants.load()
    rows = cost.measure(found, plan.cost)
    lines = growth.measure(found, plan.growth, plan.scale)
    result = report.Report(found, skipped, rows, lines)
    print(report.as_text(result), end="")
    if options.json:
        text = json.dumps(report.as_json(result), indent=2, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(report.as_markdown(result), encoding="utf-8")
    return exit_status(result) if options.check else 0


def exit_status(result: report.Report) -> int:
    """Return what `--check` exits with."""
    return 1 if result.over else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure for about 20 seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if leafwise exceeds a limit (cost.LIMITS)"
    )
    parser.add_argument("--loops", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
