"""The object that stands for a value that is absent."""

import copy
import pickle

from tests.kit.inside import Advice, Outcome, Reason, ReasonKind

from leafwise._objects.stand_ins import MISSING


def test_a_pickled_reason_prints_as_before() -> None:
    """A reason keeps what was absent, and on which side."""
    neither = Reason(
        "f", ReasonKind.CACHE, Outcome.UNKNOWN, MISSING, MISSING, Advice("gone", "fix")
    )
    for reason in (neither, neither._replace(before=3)):
        again = pickle.loads(pickle.dumps(reason))  # noqa: S301  # our own
        assert str(again) == str(reason)
        assert again.after is copy.deepcopy(reason).after is MISSING
    assert str(neither) == "f (cache): gone\n  fix: fix"
