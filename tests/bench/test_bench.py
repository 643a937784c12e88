"""The benchmark runs and reports every figure; how large they are is no matter here."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import leafwise as lw

MEASURES = ("construct", "flatten", "unflatten", "tree.map", "jit in", "jit in+out")
COST = [f"{measure}{count}" for count in ("", ", 50") for measure in MEASURES]
NO_PEERS = {"leafwise", "slots", "many_statics", "chex", "empty", "ready", "flat", "jax again"}

CONSTRUCT = 1.2 if sys.version_info[:2] == (3, 12) else 1.0
TARGETS = {
    "construct": CONSTRUCT,
    "construct, 50": CONSTRUCT,
    "flatten": 1.0,
    "flatten, 50": 0.95,
    "unflatten": 0.55,
    "unflatten, 50": 0.45,
    "tree.map, 50": 0.5,
    "jit in, 50": 1.0,
    "jit in+out, 50": 0.85,
    "construct, three statics never seen": 10,
    "decorate a class of 10 fields": 1.5,
    "dispatch, 2 cached static values over 1, many_statics": 1.1,
    "dispatch, an equal but distinct tuple of 10 over 1": 1.05,
    "construct again from one static tuple of 10 over 1": 1.2,
    "memory, constructed": 1.3,
    "memory, slots": 1.3,
    "import leafwise after jax": 25,
    "grad of an MLP, 12 leaves: trace + lower": 1.0,
}
if sys.version_info[:2] == (3, 13):
    READS = [f"read a {what} attribute" for what in ("dynamic", "static")]
    TARGETS |= {f"{read}, {how}": 1.1 for read in READS for how in ("constructed", "slots")}

TREES = ("a dict of arrays", "instances of 5 arrays", "a list of floats")
HOW = ("equal", "one shape differs", "every leaf differs", "one part missing")
GIVEN = ("one array", "an instance", "two keyword arguments")
CAPTURES = ("1 capture", "3 captures", "10 captures")
WATCHED = "call a compiled function, under a watch"
REMEMBERED = [f"call under lw.jit, {what}" for what in GIVEN]
CHECKED = [f"call under lw.jit, {what}" for what in CAPTURES]
IN_BLOCKS = [f"{name}, in check_captures" for name in CHECKED]
CALLS = [*REMEMBERED, *CHECKED, WATCHED]
SIGNATURES = [f"signature of 10 leaves, {tree}" for tree in TREES]
EXPLAINS = [f"explain 10 leaves, {tree}, {how}" for tree in TREES for how in HOW]
TARGETS |= dict.fromkeys(REMEMBERED, 1.05) | dict.fromkeys([*CHECKED, *IN_BLOCKS], 1.25)
TARGETS |= {WATCHED: 1.02} | dict.fromkeys([*SIGNATURES, *EXPLAINS], 50.0)

WITHOUT_TARGET = (
    "dispatch, 1 cached static value",
    "dispatch, 2 cached static values over 1",
    "dispatch, the same static tuple of 10",
    "construct, known statics, no other instance",
    "read a static attribute, unflattened",
    "memory, unflattened",
    "adam step, 14 leaves",
    "adam step, 14 leaves, beyond bare leaves",
    "training step of a small MLP",
    "first call of a function, under a watch",
    "first call of a function, under lw.jit",
    "trace of a function, under lw.jit",
)


def test_every_target_is_there(written: Any) -> None:
    """Each row of the issue's table is measured and has its target; no other row has one."""
    rows = {row["name"]: row for row in written.data["rows"]}
    assert len(rows) == len(written.data["rows"])
    assert {name: row["target"] for name, row in rows.items() if row["target"]} == TARGETS
    assert set(WITHOUT_TARGET) < set(rows)


def test_rows_have_all_contestants(written: Any) -> None:
    """The cost table shows every library found; each library is found or left out, not both."""
    setting = written.data["setting"]
    libraries = set(setting["versions"]) - {"jaxlib", "optax"}
    assert {"leafwise", "jax"} <= libraries
    assert not libraries & set(setting["skipped"])
    assert len(libraries | set(setting["skipped"])) == 8
    assert setting["device"]
    cost = [row for row in written.data["rows"] if row["table"] == "cost"]
    assert [row["name"] for row in cost] == COST
    for row in cost:
        bounds = set() if row["name"].startswith("construct") else {"empty", "ready"}
        assert set(row["figures"]) == libraries | {"slots"} | bounds
    for row in written.data["rows"]:
        assert next(iter(row["figures"])) == "leafwise"
        assert row["against"] not in NO_PEERS


def test_figures_are_positive(written: Any) -> None:
    """Every figure is more than nothing, but for differences of two times."""
    for row in written.data["rows"]:
        if row["table"] != "beyond bare leaves":
            assert all(figure["value"] > 0 for figure in row["figures"].values()), row["name"]


def test_over_target_lists_rows_by_their_score(written: Any) -> None:
    """What is listed and marked as over the target are the rows whose score exceeds it."""
    rows = written.data["rows"]
    over = [row["name"] for row in rows if row["target"] and round(row["score"], 2) > row["target"]]
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


def test_calls_have_a_control(written: Any) -> None:
    """What is within noise is said beside the noise: the same calls of jax, once more."""
    rows = {row["name"]: row for row in written.data["rows"] if row["table"] == "oracle"}
    assert len(rows) == len(CALLS) + len(IN_BLOCKS) + len(SIGNATURES) + len(EXPLAINS) + 3
    for name in CALLS:
        assert list(rows[name]["figures"]) == ["leafwise", "jax", "jax again"]
        assert rows[name]["against"] == "jax"
    for name in (*SIGNATURES, *EXPLAINS):
        assert list(rows[name]["figures"]) == ["leafwise"]
        assert rows[name]["unit"] == "ms"


@pytest.mark.parametrize("how", ["equal", "one shape differs", "every leaf differs", "one part"])
def test_trees_differ_as_they_say(load: Callable[[str], ModuleType], how: str) -> None:
    """The trees that are explained give the reasons that their rows name."""
    leaves = [1.0, 2.0, 3.0]
    family = load("oracle").trees_of(list, leaves.copy)
    (later,) = (tree for name, tree in family.later.items() if name.startswith(how))
    found = lw.explain(lw.signature(family.before), lw.signature(later))
    paths = sorted({reason.path for reason in found.reasons})
    everywhere = [f"args[0][{place}]" for place in range(3)]
    expected = {
        "equal": [],
        "one shape differs": everywhere[2:],
        "every leaf differs": everywhere,
        "one part": ["args[0]"],
    }
    assert paths == expected[how]


def test_json_can_be_read_back(written: Any, load: Callable[[str], ModuleType]) -> None:
    """A report made from its JSON is the same report."""
    report = load("report")
    again = report.Report.from_json(written.data)
    assert again.as_json() == written.data
    assert report.as_text(again) == written.text
    assert report.as_markdown(again) == written.markdown


@pytest.mark.parametrize(
    ("quickest", "best"),
    [("jax", "jax"), ("jarp", "jarp"), ("chex", "flax"), ("slots", "flax"), ("ready", "flax")],
)
def test_best_peer(load: Callable[[str], ModuleType], quickest: str, best: str) -> None:
    """The best peer is the quickest other library that has static fields."""
    rows = load("rows")
    ratios = {"leafwise": 1.0, "slots": 0.9, "flax": 0.8, "jax": 0.7, "chex": 0.7, quickest: 2.0}
    figures = {name: rows.Figure(1.0, 0.0, ratio) for name, ratio in ratios.items()}
    assert rows.best_peer(figures) == best


def test_growth_is_each_contestants_own(load: Callable[[str], ModuleType]) -> None:
    """A growth row divides a contestant's time by its own, and its target is about ours."""
    rows, timing = load("rows"), load("timing")
    small = {"leafwise": timing.Samples((1.0, 1.0)), "jax": timing.Samples((2.0, 2.0))}
    large = {"leafwise": timing.Samples((1.5, 1.5)), "jax": timing.Samples((8.0, 8.0))}
    row = rows.growth("growth", "more", large, small, target=1.4)
    assert row.score == row.ours.value == 1.5
    assert row.is_over
    assert row.figures["jax"].value == 4.0
    assert row.ratio_to("jax") == 1.5 / 4
