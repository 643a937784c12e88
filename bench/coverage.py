"""Show how much of JAX's time `leafwise explain` accounts for in programs of other libraries.

Run `python bench/coverage.py`, or with the names of some of bench/programs: each gets an
environment of its own from the package `uv`. A finding accounts for its time if a person found that
its cause is true, or by design; whether its fix helps is not judged here.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PROGRAMS: Final = {path.stem: path for path in sorted(ROOT.glob("bench/programs/*.py"))}
TRUE, DESIGN, LINE, FALSE, OPEN = "true", "by design", "only a line", "false", "not judged"

VERDICTS: Final[dict[str, dict[str, str]]] = {
    "brainstate_rnn": {
        "56: args[0], args[1], shape": TRUE,
        **dict.fromkeys([f"{line}: first, outside" for line in (18, 34)], TRUE),
        "26: first, line": TRUE,
    },
    "dynamax_casino": {
        "27: _loss_fn, function": TRUE,
        **dict.fromkeys([f"{line}: first, outside" for line in (13, 17, 18, 23)], TRUE),
        "23: first, line": TRUE,
    },
    "equimo_vit": {"25: first, loop": TRUE, "13: first, outside": TRUE},
    "exponax_rollouts": {
        **dict.fromkeys([f"{line}: outside" for line in (13, 16, 21, 22)], TRUE),
        **dict.fromkeys([f"{line}: first, outside" for line in (11, 12, 18, 20)], TRUE),
    },
    "fdtdx_gaussian": {
        "33: value_fn, function": TRUE,
        "40: run, function": TRUE,
        "33: first, outside": TRUE,
        "37: first, line": TRUE,
    },
    "flax_gemma": {
        "68: temperature, static": TRUE,
        "68: tokens, shape": TRUE,
        "65: first, outside": TRUE,
        "41: first, copies": TRUE,
    },
    "flax_imagenet": {
        "25: first, draws": TRUE,
        "39: first, loop": TRUE,
        "47: first, line": LINE,
        **dict.fromkeys([f"{line}: first, outside" for line in (47, 66)], TRUE),
    },
    "haiku_transformer": {"20: first, loop": TRUE, "51: first, outside": TRUE},
    "jaxoplanet_orbits": {
        "20: light_curve_impl, function": TRUE,
        "17: light_curve_impl, function": TRUE,
        **dict.fromkeys([f"{line}: first, line" for line in (17, 26)], TRUE),
    },
    "jaxsim_arm": {
        "26: link_name, static": DESIGN,
        "26: joint_name, static": DESIGN,
        **dict.fromkeys([f"{line}: first, outside" for line in (26, 28)], TRUE),
        "30: first, line": TRUE,
        **dict.fromkeys([f"{line}: first, line" for line in (31, 32)], LINE),
    },
    "mpax_lps": {"24: outside": TRUE, "23: first, outside": TRUE, "27: first, line": TRUE},
    "optax_nanolm": {
        "32: first, copies": TRUE,
        **dict.fromkeys([f"{line}: first, outside" for line in (58, 59, 66)], TRUE),
    },
    "pgx_alphazero": {
        "61: params['conv2_d']['b'], params['conv2_d']['w'] and 16 more, sharding": TRUE,
        "62: params['conv2_d']['b'], params['conv2_d']['w'] and 16 more, sharding": TRUE,
        **dict.fromkeys([f"{line}: first, line" for line in (19, 22, 40, 52)], LINE),
        **dict.fromkeys([f"{line}: first, draws" for line in (19, 22)], TRUE),
        **dict.fromkeys([f"{line}: first, outside" for line in (56, 57)], TRUE),
    },
    "pgx_games": {"14: first, outside": TRUE},  # three games are three programs
    "sax_circuits": {
        **dict.fromkeys([f"{line}: loss, function" for line in (46, 47)], DESIGN),
        "47: Ai, Aj, shape": DESIGN,  # circuits of two sizes
        "47: Ai, Aj and 1 more, shape": DESIGN,
        **dict.fromkeys([f"{line}: first, outside" for line in (35, 37, 47)], TRUE),
    },
    "tinygp_sets": {
        "31: x, y, shape": TRUE,
        "35: x, y, shape": TRUE,
        "34: self.num_data, static": TRUE,
        "38: a, structure": DESIGN,  # matrices and kernels of several classes
        "38: self.lower.p, self.lower.q, shape": DESIGN,
        "38: self.kernel, structure": DESIGN,
        "38: b, structure": DESIGN,
        "38: b.d, weak type": TRUE,
        **dict.fromkeys([f"{line}: first, outside" for line in (18, 26, 34)], TRUE),
    },
    "torax_basic": {"13: first, line": TRUE, "13: first, outside": TRUE},
}
"""What a person says of each finding, by program, then by line and cause. What has no verdict is
`OPEN`: look at it with --list, and at the others if leafwise words them in another way. A first
compile of the kind `line` is true where it names the functions of a package that make most of the
operations; else it names a place, but no cause."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir(), "coverage"),
        help="for the environments and reports, default %(default)s",
    )
    parser.add_argument("--reports", type=Path, help="for the reports, if not FOLDER/reports")
    parser.add_argument("--read", action="store_true", help="run nothing, read the reports")
    parser.add_argument("--list", action="store_true", help="list the findings and verdicts, too")
    options = parser.parse_args(argv)
    reports = options.reports or options.folder / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    rows, every = [], Counter[str]()
    for name in options.names or PROGRAMS:
        report = reports / f"{name}.json"
        if not options.read:
            run(name, options.folder / "environments" / name, report)
        if not report.exists():
            rows.append([name, "no report"])
            continue
        recorded = json.loads(report.read_text(encoding="utf-8"))
        spent = shares(name, recorded)
        every += spent
        failed = f" (exit {recorded['exit']})" * (recorded["exit"] != 0)
        rows.append([name + failed, f"{recorded['cpu']:.0f}", *columns(spent)])
        for finding in findings(name, recorded) if options.list else ():
            print(name, *finding, sep=" | ")
    head = ["program", "CPU s", "JAX s", "accounted", TRUE, DESIGN, LINE, FALSE, OPEN, "none"]
    for row in (head, ["---"] * len(head), *rows, ["all", "", *columns(every)]):
        print("|", " | ".join(row), "|")


def run(name: str, environment: Path, report: Path) -> None:
    """Run a program under `leafwise explain`, in an environment with what its header asks for."""
    uv, script, folder = [sys.executable, "-m", "uv"], PROGRAMS[name], environment / "bin"
    needed = ["--python", folder / "python", "-r", script, "-e", f"{ROOT}[cli]"]
    fresh = ["--python", sys.executable, "--allow-existing", environment]
    report.unlink(missing_ok=True)
    for arguments in (["venv", *fresh], ["pip", "install", *needed]):
        if subprocess.run([*uv, *arguments, "--quiet"], check=False).returncode:  # noqa: S603  # ours
            return
    command = ["explain", "--output-format", "json", "-o", report, script]
    on_cpu = os.environ | {"JAX_PLATFORMS": "cpu"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with report.with_suffix(".txt").open("wb") as output:
        subprocess.run(  # noqa: S603  # ours
            [folder / "leafwise", *command], check=False, stdout=output, stderr=output, env=on_cpu
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if report.exists():
        recorded = json.loads(report.read_text(encoding="utf-8")) | {"cpu": cpu}
        report.write_text(json.dumps(recorded), encoding="utf-8")


def shares(name: str, recorded: dict[str, Any]) -> Counter[str]:
    """Return JAX's seconds by verdict, those in no finding as `none`."""
    spent = Counter[str]()
    for verdict, seconds, *_ in findings(name, recorded):
        spent[verdict] += seconds
    spent["none"] = max(0.0, busy(recorded["events"]) - spent.total())
    return spent


def findings(name: str, recorded: dict[str, Any]) -> list[tuple[str, float, str, str]]:
    """Return each finding's verdict, seconds, key among the verdicts, and what it says."""
    found = []
    for finding in (*recorded["findings"], *recorded.get("first", ())):
        seconds, cause = finding["seconds"], finding.get("kind", "outside")
        if isinstance(seconds, dict):  # of a first compile: to trace, lower and compile
            seconds, cause = sum(seconds.values()), f"first, {cause}"
        reasons = finding.get("reasons", ())
        for reason in reasons[:1]:
            cause = f"{reason['path']}, {reason['kind']}"
        key = f"{Path(finding['place']).name}: {cause}".removeprefix(f"{name}.py:")
        verdict = VERDICTS.get(name, {}).get(key, OPEN)
        words = (finding["what"], *(reason["change"] for reason in reasons), *finding["fixes"])
        found.append((verdict, round(seconds, 2), key, "; ".join(words)))
    return found


def busy(events: list[dict[str, Any]]) -> float:
    """Return how long JAX traced, lowered or compiled, counting nested events once."""
    spent, last = 0.0, ("", "", 0.0)
    for event in sorted(
        events, key=lambda event: (event["process"], event["thread"], event["start"])
    ):
        owner, start = (event["process"], event["thread"]), event["start"]
        end = start + event["seconds"]
        covered = last[2] if last[:2] == owner else start
        spent += max(0.0, end - max(start, covered))
        last = (*owner, max(end, covered))
    return spent


def columns(spent: Counter[str]) -> list[str]:
    """Return JAX's seconds, the share accounted for, and the seconds of each verdict."""
    total = spent.total()
    accounted = (spent[TRUE] + spent[DESIGN]) / total if total else 0.0
    verdicts = (TRUE, DESIGN, LINE, FALSE, OPEN, "none")
    return [f"{total:.1f}", f"{accounted:.0%}", *(f"{spent[verdict]:.1f}" for verdict in verdicts)]


if __name__ == "__main__":
    main()
