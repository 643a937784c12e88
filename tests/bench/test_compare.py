"""`--check` finds what became worse, and only that."""

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Load = Callable[[str], ModuleType]


def _report(load: Load, data: Any) -> Any:
    return load("report").Report.from_json(data)


def _worse(data: Any, name: str, factor: float) -> Any:
    """Return the data with the score of one row multiplied."""
    planted = copy.deepcopy(data)
    (row,) = (row for row in planted["rows"] if row["name"] == name)
    row["figures"]["leafwise"] *= factor
    return planted


def test_equal_results_pass(written: Any, load: Load) -> None:
    """A run is not worse than itself, and every row of it is compared."""
    report = _report(load, written.data)
    assert load("compare").regressions(report, report) == []
    assert load("compare").not_compared(report, report) == []


def test_planted_regressions_are_found(written: Any, load: Load) -> None:
    """A score worse by more than the tolerance is named with how much; one within is not."""
    compare = load("compare")
    before = _report(load, written.data)
    compared = [row for row in before.rows if compare.tolerance(row) is not None]
    assert {row.table for row in compared} == {*("cost", "growth", "instances", "steps", "oracle")}
    for row in compared:
        within, beyond = (1 + compare.tolerance(row) * share for share in (0.99, 1.01))
        now = _report(load, _worse(written.data, row.name, within))
        assert compare.regressions(now, before) == []
        now = _report(load, _worse(written.data, row.name, beyond))
        (found,) = compare.regressions(now, before)
        assert found.startswith(f"Worse: {row.name}, ")
        said = re.search(r": \+(\d+)%, and", found)
        assert said is not None
        assert int(said[1]) == pytest.approx(100 * (beyond - 1), abs=1)


def test_what_is_missing_is_said(written: Any, load: Load) -> None:
    """A row, or the library it was compared with, that is gone is listed."""
    before = _report(load, written.data)
    now = copy.deepcopy(written.data)
    gone = now["rows"].pop(0)["name"]
    (other,) = (row for row in now["rows"] if row["name"] == "flatten")
    del other["figures"][other["against"]]
    report = _report(load, now)
    assert load("compare").not_compared(report, before) == [gone, "flatten"]
    assert load("compare").regressions(report, before) == []


def test_another_device_is_not_compared(load: Load) -> None:
    """Figures of a CPU say nothing about those of a GPU."""
    compare = load("compare")
    with pytest.raises(compare.NoComparisonError, match="measured on cpu, and this is another"):
        compare.committed("3.12", "another")


def test_exit_status(
    written: Any, load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` exits with 0 for equal results, 1 for worse ones and 2 without any."""
    run, compare = load("run"), load("compare")
    monkeypatch.setattr(run.libraries, "load", lambda: ({}, {}))
    worse = _worse(written.data, "flatten", 1.5)
    monkeypatch.setattr(run, "measured", lambda *_: _report(load, worse).rows)
    monkeypatch.setattr(compare, "committed", lambda *_: _report(load, worse))
    assert run.main(["--check"]) == 0
    assert "No row is worse" in capsys.readouterr().out
    monkeypatch.setattr(compare, "committed", lambda *_: _report(load, written.data))
    assert run.main(["--check"]) == 1
    assert "Worse: flatten, " in capsys.readouterr().out
    assert run.main([]) == 0

    def missing(*_: object) -> None:
        raise compare.NoComparisonError("no results")

    monkeypatch.setattr(compare, "committed", missing)
    assert run.main(["--check"]) == 2
    assert "no results" in capsys.readouterr().err


@pytest.mark.slow
def test_only_some_groups_are_measured(run_bench: Callable[..., str], tmp_path: Path) -> None:
    """`--only` measures the rows of the named groups."""
    file = tmp_path / "some.json"
    text = run_bench("--only", "oracle", "--json", str(file), "--markdown", str(tmp_path / "md"))
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert {row["table"] for row in rows} == {"oracle"}
    assert "By contestant: cost" not in text


def test_settings_are_not_mixed(written: Any, load: Load, tmp_path: Path) -> None:
    """Rows measured on other versions do not become part of committed results."""
    compare = load("compare")
    setting = _report(load, written.data).setting
    file = tmp_path / f"{setting.minor}.json"
    file.write_text(json.dumps(written.data), encoding="utf-8")
    assert compare.same_setting(setting, tmp_path).setting == setting
    other = dataclasses.replace(setting, versions={**setting.versions, "jaxlib": "jaxlib 0.0"})
    with pytest.raises(compare.NoComparisonError, match="is of another setting, save all rows"):
        compare.same_setting(other, tmp_path)
