"""The score counts what the tests saw."""

from .score import CORRECT, FAULT, score


def test_missed_seed_counts_as_missed() -> None:
    """A fault is found if it is found at each seed."""
    line = score([(FAULT, "A", True), (FAULT, "A", False), (FAULT, "B", True), (FAULT, "B", True)])
    assert line.startswith("leafwise.testing: 1 of 2 planted faults found (2 seeds each)")


def test_one_broken_law_is_one_false_alarm() -> None:
    """A correct class counts as blamed once, however many laws it is said to break."""
    broken = [(CORRECT, "A", False), (CORRECT, "A", False), (CORRECT, "B", True)]
    assert score(broken).endswith("1 false alarms in 2 correct classes")


def test_no_tests_no_score() -> None:
    """Nothing is printed where none of the tests ran."""
    assert not score([])
