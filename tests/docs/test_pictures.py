"""The pictures of README.md and docs/ show what this version does."""

import importlib.util
from pathlib import Path

import pytest

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


def test_pictures_fetch_nothing() -> None:
    """A picture shows without a network."""
    for path in (DOCS / "images").glob("*.svg"):
        assert "url(http" not in path.read_text(encoding="utf-8")
        assert "@font-face" not in path.read_text(encoding="utf-8")
