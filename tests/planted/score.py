"""The kit's score: how many planted faults it found, and how many correct classes it blamed."""

from collections.abc import Iterable
from typing import Final

FAULT: Final = "planted fault"
CORRECT: Final = "correct class"
"""The properties by which a test tells what it was about."""


def score(outcomes: Iterable[tuple[str, str, bool]]) -> str:
    """Return the score in one line.

    A fault counts as found if every test of it passed, one for each seed.

    Args:
        outcomes: Property, name of the class, and whether the test passed.

    Returns:
        The line; empty if there were no such tests.
    """
    results: dict[str, dict[str, list[bool]]] = {FAULT: {}, CORRECT: {}}
    for kind, name, passed in outcomes:
        results[kind].setdefault(name, []).append(passed)
    faults, correct = results[FAULT], results[CORRECT]
    if not faults and not correct:
        return ""
    found = sum(all(passed) for passed in faults.values())
    blamed = sum(not all(passed) for passed in correct.values())
    seeds = min(map(len, faults.values()), default=0)
    times = f"{seeds} seeds" if seeds != 1 else "1 seed"
    return (
        f"leafwise.testing: {found} of {len(faults)} planted faults found ({times} each), "
        f"{blamed} false alarms in {len(correct)} correct classes"
    )
