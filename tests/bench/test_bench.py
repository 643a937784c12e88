"""The benchmark runs and reports every figure; how large they are does not matter here."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import pytest

MEASURES = ("construct", "flatten", "unflatten", "tree.map", "jit in", "jit in+out")
REBUILT = ["flatten, 50 rebuilt", "jit in, 50 rebuilt"]
COST = [*(f"{measure}{count}" for count in ("", ", 50") for measure in MEASURES), *REBUILT]
NO_PEERS = {"leafwise", "slots", "many_statics", "chex", "empty", "ready", "dict", "jax again"}
STEPS = ["adam step, 20 leaves", "RL step, 27 leaves, two calls", "ODE step, 6 leaves"]
CALLED = (
    *("one array", "an instance", "two keyword arguments", "1 capture", "3 captures"),
    *("10 captures", "an optimizer of optax captured", "an MLP of equinox captured"),
)
TREES = ("a dict of arrays", "instances of 5 arrays", "a list of floats")
HOW = ("equal", "one shape differs", "every leaf differs", "one part missing")
SIGNATURES = [f"signature of 10 leaves, {tree}" for tree in TREES]
EXPLAINS = [f"explain 10 leaves, {tree}, {how}" for tree in TREES for how in HOW]


def test_rows_have_all_contestants(written: Any) -> None:
    """The cost table shows every library found; each library is found or left out, not both."""
    setting = written.data["setting"]
    assert len({row["name"] for row in written.data["rows"]}) == len(written.data["rows"])
    libraries = set(setting["versions"]) - {"jaxlib", "optax"}
    assert {"leafwise", "jax"} <= libraries
    assert not libraries & set(setting["skipped"])
    assert len(libraries | set(setting["skipped"])) == 8
    assert setting["device"]
    cost = [row for row in written.data["rows"] if row["table"] == "cost"]
    assert [row["name"] for row in cost] == COST
    for row in cost:
        without = row["name"].startswith("construct") or row["name"] in REBUILT
        bounds = set() if without else {"empty", "ready"}
        assert set(row["figures"]) == libraries | {"slots", "jax again"} | bounds
    for row in written.data["rows"]:
        assert next(iter(row["figures"])) == "leafwise"
        assert row["against"] not in NO_PEERS


def test_over_target_lists_rows_by_their_score(written: Any) -> None:
    """What is listed and marked as over the target are the rows whose score exceeds it."""
    rows = written.data["rows"]
    asked = [row for row in rows if row["target"]]
    over = [row["name"] for row in asked if round(row["score"] - row["noise"], 2) > row["target"]]
    assert written.data["over_target"] == over
    assert [row["name"] for row in rows if row["over"]] == over
    for shown in (written.text, written.markdown):
        lines = [line for line in shown.splitlines() if line.startswith("Over the target: ")]
        assert len(lines) == len(over)
        assert all(
            line.startswith(f"Over the target: {n}, ") for line, n in zip(lines, over, strict=True)
        )
        assert shown.count(" !") == len(over)


def test_tables_show_what_the_json_holds(written: Any) -> None:
    """Text and Markdown name the setting and show every row, twice."""
    names = [row["name"] for row in written.data["rows"]]
    setting = written.data["setting"]
    for shown, edge in ((written.text, ""), (written.markdown, "| ")):
        assert all(version in shown for version in setting["versions"].values())
        assert f"device {setting['device']}" in shown
        starts = [line.removeprefix(edge) for line in shown.splitlines()]
        for name in names:
            assert sum(line.startswith((f"{name} ", f"{name}\t")) for line in starts) >= 2, name


def test_ratios_have_a_control(written: Any) -> None:
    """What is within noise is said beside the noise: jax once more, in all rows but reads."""
    rows = {row["name"]: row for row in written.data["rows"]}
    for name, row in rows.items():
        if row["against"] is not None and row["table"] not in ("instances", "growth"):
            again, jax = (row["figures"][each] for each in ("jax again", "jax"))
            assert row["noise"] == pytest.approx(abs(again / jax - 1)), name
    for what in CALLED:
        row = rows[f"call under lw.jit, {what}"]
        assert list(row["figures"]) == ["leafwise", "jax", "jax again"]
        assert row["against"] == "jax"
    for name in (*SIGNATURES, *EXPLAINS):
        assert list(rows[name]["figures"]) == ["leafwise"]
        assert rows[name]["unit"] == "ms"


@pytest.mark.slow  # nine programs
def test_every_step_has_the_same_leaves(load: Callable[[str], ModuleType]) -> None:
    """Each library takes the steps that the rows name, with the same result."""
    steps, libraries = load("steps"), load("libraries")
    found = libraries.load()[0]
    of_adam = 20 + 40 + 2  # both moments, a count and a rate
    for name, count in zip(STEPS, (of_adam, 27, 6), strict=True):
        results: list[list[float]] = []
        for library in (found["leafwise"], found["jax"], libraries.plain_dicts()):
            step = steps.STEPS[name](library)
            names = dict(step.names)
            given = names.keys() & {"state", "agent", "world"}
            assert len(jax.tree.leaves([names[each] for each in given])) == count
            exec(step.statement, names)  # noqa: S102  # as `timeit` does
            after = jax.tree.leaves(names["world" if "world" in given else "state"])
            results.append(sorted(float(leaf.sum()) for leaf in after))
        assert results[0] == results[1] == results[2]


def test_growth_is_each_contestants_own(load: Callable[[str], ModuleType]) -> None:
    """A growth row divides a contestant's time by its own."""
    rows = load("rows")
    small, large = {"leafwise": 1.0, "jax": 2.0}, {"leafwise": 1.5, "jax": 8.0}
    row = rows.growth("growth", "more", large, small, target=1.4)
    assert row.score == row.ours == 1.5
    assert row.is_over
    assert row.figures["jax"] == 4.0
    row = rows.growth("growth", "more", large, small, target=1.0, against="jax")
    assert row.score == 1.5 / 4
    assert not row.is_over


def test_noise_is_not_a_miss(load: Callable[[str], ModuleType]) -> None:
    """A target is missed by what two equal contestants do not come out apart by."""
    rows = load("rows")
    for again, over in ((1.0, True), (1.04, True), (1.06, False), (0.94, False)):
        figures = {"leafwise": 1.15, "jax": 1.0, "jax again": again}
        assert rows.Row("cost", "flatten", "µs", figures, "jax", 1.1).is_over is over


def test_the_run_in_the_middle_counts(load: Callable[[str], ModuleType], written: Any) -> None:
    """Of several runs each row is the one with the median score, against one peer."""
    report, rows = load("report"), load("rows")
    whole = report.Report.from_json(written.data)
    runs = [
        report.Report(whole.setting, [rows.Row("cost", "flatten", "µs", figures, against)])
        for figures, against in (
            ({"leafwise": 3.0, "jax": 1.0, "flax": 2.0}, "jax"),
            ({"leafwise": 1.0, "jax": 1.0, "flax": 0.1}, "flax"),
            ({"leafwise": 2.0, "jax": 1.0, "flax": 2.0}, "jax"),
        )
    ]
    found = report.middle(runs)
    assert (found.rows[0].score, found.rows[0].against, found.setting.runs) == (2.0, "jax", 3)
