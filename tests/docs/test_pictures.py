"""The pictures of README.md and docs/ show what this version does."""

import importlib.util
import json
from pathlib import Path

import pytest
from tests.kit.inside import to_json

DOCS = Path(__file__).parents[2] / "docs"
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
