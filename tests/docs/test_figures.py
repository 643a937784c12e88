"""The figures and pictures of README.md and docs/ show what JAX does now, and can be read."""

import importlib
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import pytest
from tests.kit.inside import duration, to_json

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str) -> Any:
    """Return a script that draws, which finds its neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        return importlib.import_module(name)


figures, pictures = map(script, ("figures", "pictures"))
DRAWN = {**figures.FIGURES, **pictures.PICTURES}
RUN = pictures.PICTURES.keys() - {"explain.svg"}  # which is drawn from a record


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name in RUN)) for name in DRAWN],
)
def test_figure_is_current(name: str) -> None:
    """The committed figure or picture is the one that would be drawn from a run now."""
    kept = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert DRAWN[name]() == kept, "run nox -s pictures, and look at them"


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
            event.pop("cpu", None)
            for level in event.get("levels", ()):
                level.pop("start", None)  # not counted on Python 3.11
        assert now == kept, "run nox -s pictures -- --record"
    results: list[dict[str, Any]] = [{}, {}]
    with jax.disable_jit():
        for code, names in zip(pictures.SCRIPTS.values(), results, strict=True):
            exec(code, names)  # noqa: S102  # our own text
    assert float(results[0]["error"]) == pytest.approx(float(results[1]["error"]), rel=1e-5)


def words(name: str) -> list[tuple[float, str]]:
    """Return where each text of a picture ends, and the text."""
    rows = ET.parse(DOCS / "images" / name).findall(".//{*}text[@textLength]")  # noqa: S314  # ours
    ends = [float(row.attrib["x"]) + float(row.attrib["textLength"]) for row in rows]
    texts = [(row.text or "").replace("\xa0", " ").strip() for row in rows]
    return list(zip(ends, texts, strict=True))


def test_first_picture_shows_what_the_fix_saves() -> None:
    """Its numbers are those of the record: two functions with two times, less after the fix."""
    runs = json.loads(pictures.RUNS.read_text(encoding="utf-8"))
    shown = " ".join(text for _, text in words("explain.svg"))
    spent: dict[tuple[str, str], float] = Counter()
    for run in pictures.SCRIPTS:
        assert f"of {duration(runs[run]['seconds'])}" in shown
        for event in runs[run]["events"]:
            spent[run, event["name"]] += event["seconds"]
    assert all(duration(seconds) in shown for seconds in spent.values())
    assert spent["before", "step"] > 1.5 * spent["before", "score"]
    assert all(4 * spent["after", name] < spent["before", name] for name in ("step", "score"))
    assert runs["after"]["seconds"] < runs["before"]["seconds"]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_cuts_no_line(name: str) -> None:
    """No line ends at the edge, as one that was cut would, and the last one has its descenders."""
    edge, _ = max(words(name))  # of the newlines, a column of 12.2 behind it
    # `explain` wraps its lines, and may fill them.
    assert name not in RUN or not any(text for end, text in words(name) if end > edge - 13)
    assert "clip-terminal)" not in (DOCS / "images" / name).read_text(encoding="utf-8")


def test_pictures_fetch_nothing() -> None:
    """A picture shows without a network."""
    for path in (DOCS / "images").glob("*.svg"):
        assert "url(http" not in path.read_text(encoding="utf-8")
        assert "@font-face" not in path.read_text(encoding="utf-8")
