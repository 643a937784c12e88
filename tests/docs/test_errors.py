"""Each error is a builtin one, too, travels, and ends with a link to its section of the page."""

import copy
import dataclasses
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from leafwise import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
NAMES = errors.__all__


def link_of(name: str) -> str:
    """Return the last line of an error of this class."""
    return f"See {errors.DOCS}reference/errors/#{name.lower()}"


BASES: dict[str, type[Exception]] = {
    "CheckpointError": ValueError,
    "DefinitionError": TypeError,
    "DifferentProcessesError": AssertionError,
    "FieldCheckError": ValueError,
    "FrozenInstanceError": dataclasses.FrozenInstanceError,
    "LawViolation": AssertionError,
    "PathError": LookupError,
    "PortableError": ValueError,
    "ProcessTimeoutError": TimeoutError,
    "RetraceError": AssertionError,
    "StaleCaptureError": RuntimeError,
    "StaticFieldError": TypeError,
    "StaticMutatedError": RuntimeError,
    "StructureMismatchError": AssertionError,
    "TreeError": ValueError,
}
DETAILS: dict[str, tuple[Any, ...]] = {
    "CheckpointError": ((errors.Difference("P.a", "1", "2"),),),
    "DifferentProcessesError": ({"P.n": {"1": (0,), "2": (1,)}},),
    "LawViolation": ("a law", "P.a", int),
    "ProcessTimeoutError": ((3,),),
    "RetraceError": (("an explanation",),),
    "StaleCaptureError": (("a capture",),),
    "StructureMismatchError": (("a difference",),),
}
"""What an error has next to its message."""


@pytest.mark.parametrize("name", NAMES)
def test_message_ends_with_the_link(name: str) -> None:
    """The last line leads to the section, once; pickling and copying lose nothing."""
    kind = getattr(errors, name)
    if kind is errors.StaticFieldError:
        error = kind(errors.StaticFinding("array", "P.a", "1", "no", (errors.StaticFix("2"),)))
        assert error.kind == "array"
    else:
        error = kind("no", *DETAILS.get(name, ()))
    error.add_note("a note")
    copies = [pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)]  # noqa: S301
    for each in (error, *copies):
        assert type(each) is kind
        assert isinstance(each, BASES.get(name, Exception))
        assert isinstance(each, UserWarning if name.endswith("Warning") else errors.LeafwiseError)
        assert vars(each) == vars(error)
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
