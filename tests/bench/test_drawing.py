"""The page on speed shows the committed results, in its table and its picture."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
AGAIN = "run python bench/page.py and look at the page"

Load = Callable[[str], ModuleType]


def test_the_table_is_that_of_the_results(load: Load) -> None:
    """The table of the page is what the script makes of the newest results."""
    page = load("page")
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- bench -->") == 1
    assert page.filled(text, page.committed()[-1]) == text, AGAIN


def test_results_are_there_for_two_pythons(load: Load) -> None:
    """Two Pythons have results, of the same rows, as JSON and to read."""
    page, report = load("page"), load("report")
    reports = page.committed()
    assert [each.setting.minor for each in reports] == ["3.12", "3.14"]
    names = [[row.name for row in each.rows if row.table != "explain"] for each in reports]
    assert all(each == names[0] for each in names)
    for each in reports:
        path = RESULTS / f"{each.setting.minor}.md"
        assert path.read_text(encoding="utf-8") == report.as_markdown(each), AGAIN


def test_the_picture_is_that_of_the_results(load: Load) -> None:
    """It was drawn from the figures that are committed, and the page shows it."""
    page = load("page")
    assert page.stamp(page.committed()[-1]) in page.IMAGE.read_text(encoding="utf-8"), AGAIN
    assert f"(../images/{page.IMAGE.name})" in page.PAGE.read_text(encoding="utf-8")


def test_results_say_nothing_of_the_machine_but_its_kind() -> None:
    """Results are published: they hold cores and architecture, and no name or path."""
    for path in RESULTS.glob("*.json"):
        setting = json.loads(path.read_text(encoding="utf-8"))["setting"]
        assert set(setting) == {"python", "device", "machine", "versions", "skipped", "runs"}
        assert re.fullmatch(r"\d+ cores, \w+", setting["machine"])
