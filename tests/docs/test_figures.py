"""The figures and pictures of README.md and docs/ show what JAX does now, and can be read."""

import importlib
import importlib.util
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.kit.inside import to_json

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("captured.svg", "key.svg", "second-call.svg")
ALL = (*NAMES, "loops-memory.svg")


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    """Return the script that draws them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("figures")
        for name in ("figures", "drawing"):
            patch.delitem(sys.modules, name)


def test_every_figure_is_known(figures: ModuleType) -> None:
    """The names are those that the script draws."""
    assert tuple(figures.FIGURES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_current(figures: ModuleType, name: str) -> None:
    """The committed figure is the one that would be drawn from a run now."""
    kept = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert figures.FIGURES[name]() == kept, "run python docs/figures.py and look at the figures"


def test_code_of_the_figure_is_the_code_that_runs(figures: ModuleType) -> None:
    """The lines shown are executed, and give the jaxpr that stands below them."""
    shown = (DOCS / "images" / "captured.svg").read_text(encoding="utf-8")
    namespace = {"jax": figures.jax, "jnp": figures.jnp}
    exec(figures.CODE, namespace)  # noqa: S102  # our own text
    x = figures.jnp.ones(3)
    jaxpr = str(namespace["step"].trace(figures.Fit(x), x).jaxpr)
    assert jaxpr == str(figures.step.trace(figures.Fit(x), x).jaxpr)
    words = "".join(ET.fromstring(shown).itertext())  # noqa: S314  # our own file
    assert all(line.strip() in words for line in jaxpr.splitlines())


@pytest.mark.parametrize("name", ALL)
def test_figure_speaks_to_all(name: str) -> None:
    """A figure has a title and a description, colours for dark pages, and a page with alt text."""
    svg = (DOCS / "images" / name).read_text(encoding="utf-8")
    root = ET.fromstring(svg)  # noqa: S314  # our own file
    (title, description) = (root.find(f"{{*}}{tag}") for tag in ("title", "desc"))
    assert title is not None
    assert description is not None
    assert title.text
    assert description.text
    assert len(description.text) > 80
    assert "prefers-color-scheme: dark" in svg
    assert int(root.attrib["width"]) <= 440  # so that a phone shows it in letters of nine pixels
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    alts = re.findall(rf"!\[([^\]]+)\]\(\.\./images/{re.escape(name)}\)", pages)
    assert alts
    assert all(len(alt) > 60 for alt in alts)


spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
assert spec is not None
assert spec.loader is not None
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_picture_is_current(name: str) -> None:
    """The committed picture is the one that would be drawn now."""
    drawn = pictures.PICTURES[name]()
    kept = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert drawn == kept, "run python docs/pictures.py and look at the pictures"


@pytest.mark.nightly
@pytest.mark.slow
def test_recorded_runs_are_what_the_scripts_give() -> None:
    """Run now, each script gives the events of its recorded run in all but their times."""
    runs = json.loads(pictures.RUNS.read_text(encoding="utf-8"))
    assert set(runs) == {"date", "machine", "python", "jax", "commit", *pictures.SCRIPTS}
    for name, code in pictures.SCRIPTS.items():
        now = json.loads(json.dumps(to_json(pictures.explained(code).events)))
        kept = runs[name]["events"]
        for event in (*now, *kept):
            assert min(event.pop("start"), event.pop("seconds")) > 0
            event.pop("first", None)  # of a compile that took a second
        assert now == kept, "run python docs/pictures.py --record"


def test_pictures_fetch_nothing() -> None:
    """A picture shows without a network."""
    for path in (DOCS / "images").glob("*.svg"):
        assert "url(http" not in path.read_text(encoding="utf-8")
        assert "@font-face" not in path.read_text(encoding="utf-8")
