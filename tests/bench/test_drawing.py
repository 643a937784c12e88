"""The page on speed shows the committed results, in its tables and its pictures."""

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
IMAGES = ROOT / "docs" / "images"
AGAIN = "run python bench/draw.py and look at the page"

Load = Callable[[str], ModuleType]


def test_tables_are_those_of_the_results(load: Load) -> None:
    """The tables of the page are what the script makes of bench/results/."""
    page = load("page")
    text = PAGE.read_text(encoding="utf-8")
    assert page.filled(text, page.committed()) == text, AGAIN
    assert set(re.findall(r"<!-- bench: ([\w-]+) -->", text)) == set(page.BLOCKS)


def test_results_are_there_for_every_python(load: Load) -> None:
    """Each supported Python has results, of the same rows, and the newest comes last."""
    reports = load("page").committed()
    assert [each.setting.minor for each in reports] == ["3.11", "3.12", "3.13"]
    names = [[row.name for row in each.rows] for each in reports]
    assert names[0] == names[1] == names[2]


def test_pictures_are_those_of_the_results(load: Load) -> None:
    """Each picture was drawn from the figures that are committed, and the page shows it."""
    draw, newest = load("draw"), load("page").committed()[-1].setting.minor
    text = PAGE.read_text(encoding="utf-8")
    for name in draw.PICTURES:
        source = RESULTS / (f"{newest}.json" if name == "speed-cost.svg" else "curves.json")
        assert draw.stamp(source) in (IMAGES / name).read_text(encoding="utf-8"), AGAIN
        assert f"(../images/{name})" in text


def test_results_say_nothing_of_the_machine_but_its_kind() -> None:
    """Results are published: they hold cores and architecture, and no name or path."""
    for path in RESULTS.glob("*.json"):
        setting = json.loads(path.read_text(encoding="utf-8"))["setting"]
        assert set(setting) == {"python", "device", "machine", "versions", "skipped"}
        assert re.fullmatch(r"\d+ cores, \w+", setting["machine"])


def _texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)  # noqa: S314  # it is ours
    return [
        "".join(each.itertext()).strip() for each in root.iter("{http://www.w3.org/2000/svg}text")
    ]


def test_cost_is_drawn(written: Any, load: Load) -> None:
    """The bars name every library that has statics; the picture is a small, whole SVG."""
    pytest.importorskip("matplotlib")
    report = load("report").Report.from_json(written.data)
    svg = load("draw").draw_cost(report.rows)
    assert svg == load("draw").draw_cost(report.rows)
    assert {"leafwise", "slots", "flatten, 50", "jax register_dataclass"} <= set(_texts(svg))
    assert len(svg) < 60_000


@pytest.mark.slow
def test_curves_are_measured_and_drawn(
    run_bench: Callable[..., str], load: Load, tmp_path: Path
) -> None:
    """`--curves` measures every curve, and each picture shows its panels."""
    run_bench("--curves", str(tmp_path))
    setting, curves = load("curves").read(tmp_path)
    assert setting.python
    for curve in curves:
        assert "leafwise" in curve.lines
        assert all(len(values) == len(curve.xs) for values in curve.lines.values())
    panels = {panel.name for panels in load("draw").GROWTH.values() for panel in panels}
    assert {curve.name for curve in curves} == panels
    if importlib.util.find_spec("matplotlib") is None:
        return
    for name, panels in load("draw").GROWTH.items():
        svg = (tmp_path / name).read_text(encoding="utf-8")
        assert {panel.title for panel in panels} | {"leafwise"} <= set(_texts(svg))
        assert load("draw").stamp(tmp_path / "curves.json") in svg
        assert "<dc:date>" not in svg
        assert len(svg) < 60_000
