"""The figures and pictures of README.md and docs/ show what JAX does now, and can be read."""

import importlib
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from tests.kit.inside import to_json

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str) -> Any:
    """Return a script that draws, which finds its neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        return importlib.import_module(name)


figures, pictures = map(script, ("figures", "pictures"))
DRAWN = {**figures.FIGURES, **pictures.PICTURES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name in pictures.PICTURES))
        for name in DRAWN
    ],
)
def test_figure_is_current(name: str) -> None:
    """The committed figure or picture is the one that would be drawn from a run now."""
    kept = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert DRAWN[name]() == kept, "run docs/figures.py or docs/pictures.py, and look at them"


def test_code_of_the_figure_is_the_code_that_runs() -> None:
    """The lines shown are executed, and give the jaxpr that stands below them."""
    shown = (DOCS / "images" / "captured.svg").read_text(encoding="utf-8")
    namespace = {"jax": figures.jax, "jnp": figures.jnp}
    exec(figures.CODE, namespace)  # noqa: S102  # our own text
    x = figures.jnp.ones(3)
    jaxpr = str(namespace["step"].trace(figures.Fit(x), x).jaxpr)
    assert jaxpr == str(figures.step.trace(figures.Fit(x), x).jaxpr)
    words = "".join(ET.fromstring(shown).itertext())  # noqa: S314  # our own file
    assert all(line.strip() in words for line in jaxpr.splitlines())


@pytest.mark.parametrize("name", [*figures.FIGURES, "loops-memory.svg"])
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
