"""Annotations of GitHub Actions."""

from dataclasses import replace

from tests.kit.inside import AuditRecord, WrongRecord, annotation, annotations_of

from .sample import report, usual


def test_what_ends_a_part_is_escaped() -> None:
    """Lines, and the marks between properties, do not end what they stand in."""
    assert annotation("error", "100 %\ntwo", "a: b, c", "m.py", 3) == (
        "::error file=m.py,line=3,title=a%3A b%2C c::100 %25%0Atwo"
    )
    assert annotation("notice", "text", "title") == "::notice title=title::text"


def test_each_finding_is_a_warning_at_its_line() -> None:
    """A report has a line for each finding, and one for each call that the audit found."""
    wrong = WrongRecord("churn.py:7", "step answered for `n=1`", 1)
    given = replace(usual(), audit=AuditRecord(3, 0.0, [wrong]))
    assert annotations_of(given).splitlines() == [
        "::warning file=churn.py,line=40,title=train_step retraced 2 times%2C 1.20 s::"
        "state.opt.lr (static): 0.1 -> 0.2%0Afix: make it an array",
        "::warning file=churn.py,line=7,title=another program answered::step answered for `n=1`",
    ]
    assert annotations_of(report()) == ""
