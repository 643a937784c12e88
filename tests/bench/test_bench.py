"""The benchmark runs and reports every figure; how large they are is no matter here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
MEASURES = ("construct", "flatten", "unflatten", "tree.map", "jit in", "jit in+out")
ROWS = [(measure, count) for count in (1, 50) for measure in MEASURES]
GROWTH = ("dispatch", "construct", "decorate", "read an attribute", "an instance", "import")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """Run the benchmark once, with one call a slot: its JSON, Markdown and text."""
    folder = tmp_path_factory.mktemp("bench")
    files = folder / "bench.json", folder / "bench.md"
    command = [sys.executable, str(BENCH / "run.py"), "--loops", "1"]
    command += ["--json", str(files[0]), "--markdown", str(files[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    data, markdown = (file.read_text(encoding="utf-8") for file in files)
    return json.loads(data), markdown, done.stdout


def test_cost_has_all_rows_and_columns(written: tuple[dict[str, Any], str, str]) -> None:
    """Every measure is there for 1 and for 50 instances, of every library that is there."""
    data, _, _ = written
    assert {"leafwise", "jax"} <= set(data["versions"])
    assert not set(data["versions"]) & set(data["skipped"])
    assert len(data["versions"]) + len(data["skipped"]) == 8
    assert [(row["measure"], row["instances"]) for row in data["cost"]] == ROWS
    for row in data["cost"]:
        assert set(row["times"]) == set(data["versions"])
        assert all(time["microseconds"] > 0 for time in row["times"].values())
        assert row["times"]["jax"]["ratio"] == 1
        assert row["ratio"] == row["times"]["leafwise"]["ratio"]
        assert row["best_peer"] in set(row["times"]) - {"leafwise", "chex"}
        assert row["limit"] == (2.0 if row["measure"] == "construct" else 1.25)


def test_growth_has_all_lines(written: tuple[dict[str, Any], str, str]) -> None:
    """Each subject of the growth table has a positive figure."""
    data, _, _ = written
    for subject in GROWTH:
        lines = [line for line in data["growth"] if line["name"].startswith(subject)]
        assert lines, subject
        assert all(line["leafwise"] > 0 for line in lines)


def test_over_limit_lists_rows_by_their_ratio(written: tuple[dict[str, Any], str, str]) -> None:
    """What `--check` fails on are the rows whose ratio exceeds their limit."""
    data, _, text = written
    over = [row for row in data["cost"] if row["ratio"] > row["limit"]]
    names = [row["measure"] + (", 50" if row["instances"] == 50 else "") for row in over]
    assert data["over_limit"] == names
    assert text.count("Over the limit: ") == len(names)


def test_tables_show_what_the_json_holds(written: tuple[dict[str, Any], str, str]) -> None:
    """Text and Markdown name all versions, measures and lines."""
    data, markdown, text = written
    names = [*data["versions"].values(), *MEASURES, *(line["name"] for line in data["growth"])]
    for shown in (markdown, text):
        assert all(name in shown for name in names)
    tables = [line.count("|") for line in markdown.splitlines() if line.startswith("|")]
    assert len(tables) == 2 * (len(ROWS) + 2) + len(data["growth"]) + 2


@pytest.mark.parametrize(
    ("measure", "ours", "status"),
    [("flatten", 1.2, 0), ("flatten", 1.3, 1), ("construct", 1.9, 0), ("construct", 2.1, 1)],
)
def test_check_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, measure: str, ours: float, status: int
) -> None:
    """`--check` exits with 1 if leafwise takes more than the limit, with 0 if not."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCH))
    try:
        import cost
        import report
        import run
        import timing

        samples = {"leafwise": timing.Samples((ours, ours)), "jax": timing.Samples((1.0, 1.0))}
        row = cost.Row(measure, 1, samples)
        assert run.exit_status(report.Report([], {}, [row], [])) == status
    finally:
        for name in ("contestants", "cost", "growth", "report", "run", "timing"):
            if name not in before:
                sys.modules.pop(name, None)
