"""The objects that stand for values."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.inside import Advice, Outcome, Reason, ReasonKind

from leafwise._objects.stand_ins import MISSING, ById


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_missing_is_copied_as_itself(duplicate: Callable[[Any], Any]) -> None:
    """There is one such object, so that `is` finds it in a copied result."""
    assert duplicate([MISSING])[0] is MISSING
    assert repr(MISSING) == "(absent)"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_missing_is_pickled_as_itself(protocol: int) -> None:
    """There is one such object, so that `is` finds it in a result from another process."""
    assert pickle.loads(pickle.dumps(MISSING, protocol)) is MISSING  # noqa: S301  # our own


def test_a_pickled_reason_prints_as_before() -> None:
    """A reason keeps what was absent, and on which side."""
    neither = Reason(
        "f", ReasonKind.CACHE, Outcome.UNKNOWN, MISSING, MISSING, Advice("gone", "fix")
    )
    for reason in (neither, neither._replace(before=3)):
        again = pickle.loads(pickle.dumps(reason))  # noqa: S301  # our own
        assert str(again) == str(reason)
        assert again.after is MISSING
    assert str(neither) == "f (cache): gone\n  fix: fix"


def test_by_id_compares_the_object_itself() -> None:
    """Equal objects are distinct, and one object is equal to itself in a set."""
    one, other = [], []
    assert ById(one) == ById(one) != ById(other)
    assert len({ById(one), ById(one), ById(other)}) == 2
