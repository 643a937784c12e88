"""`--check` finds what became worse, and only that."""

import copy
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
    if row["against"] is None:
        row["figures"]["leafwise"]["value"] *= factor
    else:
        row["figures"][row["against"]]["ratio"] *= factor
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
    assert {row.table for row in compared} == {"cost", "growth", "instances", "training"}
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


def test_another_best_peer_is_no_regression(written: Any, load: Load) -> None:
    """The ratio compared is to the peer that was the best before."""
    before = _report(load, written.data)
    now = copy.deepcopy(written.data)
    for row in now["rows"]:
        if row["against"] and "jax" in row["figures"]:
            row["against"] = "jax"
    assert load("compare").regressions(_report(load, now), before) == []


def test_what_is_missing_is_said(written: Any, load: Load) -> None:
    """A row, or the library it was compared with, that is no longer there is listed."""
    before = _report(load, written.data)
    now = copy.deepcopy(written.data)
    gone = now["rows"].pop(0)["name"]
    (other,) = (row for row in now["rows"] if row["name"] == "flatten")
    del other["figures"][other["against"]]
    report = _report(load, now)
    assert load("compare").not_compared(report, before) == [gone, "flatten"]
    assert load("compare").regressions(report, before) == []


def test_nothing_to_compare_with(load: Load, tmp_path: Path) -> None:
    """Without committed results for this Python the message names the file to write."""
    compare = load("compare")
    with pytest.raises(compare.NoComparisonError, match=r"9\.9\.json is missing; --save writes"):
        compare.committed("9.9", "cpu", tmp_path)


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
    monkeypatch.setattr(run, "_measure", lambda *_: _report(load, worse).rows)
    monkeypatch.setattr(compare, "committed", lambda *_: _report(load, worse))
    assert run.main(["--check"]) == 0
    assert "No row is worse" in capsys.readouterr().out
    monkeypatch.setattr(compare, "committed", lambda *_: _report(load, written.data))
    assert run.main(["--check"]) == 1
    assert "Worse: flatten, " in capsys.readouterr().out
    assert run.main([]) == 0

    def missing(*_: object) -> None:
        msg = "no results"
        raise compare.NoComparisonError(msg)

    monkeypatch.setattr(compare, "committed", missing)
    assert run.main(["--check"]) == 2
    assert "no results" in capsys.readouterr().err
