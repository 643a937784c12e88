"""Each error ends with a link to its section of the errors page."""

import copy
import pickle
import re
import tomllib
import warnings
from pathlib import Path

import pytest

from leafwise import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
NAMES = errors.__all__


def link_of(name: str) -> str:
    """Return the last line of an error of this class."""
    return f"See {errors.DOCS}reference/errors/#{name.lower()}"


def made(name: str) -> Exception:
    """Return an error or warning of this class."""
    kind = getattr(errors, name)
    found = errors.Finding("array", "P.a", "1", "no", "2")
    return kind(found if issubclass(kind, errors.StaticFieldError) else "no")


@pytest.mark.parametrize("name", NAMES)
def test_message_ends_with_the_link(name: str) -> None:
    """The last line leads to the section, once, also after pickling and copying."""
    error = made(name)
    copies = [pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)]  # noqa: S301
    for each in (error, *copies):
        assert type(each) is type(error)
        assert each.message in ("no", "P.a: no\n  got: 1\n  fix: 2")
        assert str(each) == f"{each.message}\n{link_of(name)}"


def test_a_subclass() -> None:
    """The link is that of the first class which has a section."""

    class Mine(errors.PathError):
        """An error of a user's."""

    assert str(Mine("x")) == f"x\n{link_of('PathError')}"


def test_warnings_end_with_the_link() -> None:
    """So does the text of a warning that is made from its message."""
    with pytest.warns(errors.RetraceStormWarning) as caught:
        warnings.warn_explicit("storm", errors.RetraceStormWarning, __file__, 1)
    assert str(caught[0].message) == f"storm\n{link_of('RetraceStormWarning')}"


def test_each_class_has_a_section() -> None:
    """The headings of the page are the classes: tests/site looks at the anchors that they get."""
    headings = re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(NAMES)


def test_the_address_is_that_of_the_project() -> None:
    """What PyPI shows as the documentation is what the links of errors start with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Documentation"] == errors.DOCS
