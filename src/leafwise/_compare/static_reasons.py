"""The difference between two static values, and what JAX makes of it."""

from collections.abc import Iterator
from typing import Any

from leafwise._classes.fields import By
from leafwise._compare import fixes
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._trees.equality import told_apart


def static_reason(
    path: str, mine: Any, its: Any, *, equal: bool | None, by: By | None = None
) -> Iterator[Reason]:
    """Yield the reason that two static values of one place give, if any.

    Args:
        path: Where they stand.
        mine: The value of the earlier call.
        its: The value of the later call.
        equal: Whether JAX takes them for equal; None if comparing them raises.
        by: How functions are compared, if they stand in a field of leafwise.

    Yields:
        At most one reason; with the outcome "reuse" where they share a program though they
        can be told apart.
    """
    if equal is None:
        kind, advice = ReasonKind.COMPARISON, fixes.comparison(its)
        yield Reason(path, kind, Outcome.ERROR, mine, its, advice)
    elif not equal:
        advice = fixes.static(mine, its, by)
        if by == "content":  # from outside, functions that differ inside look alike
            _, mine, its = fixes.inner_difference(mine, its, by=by)
        yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, mine, its, advice)
    elif by is None and told_apart(mine, its):
        advice = fixes.unsound(mine, its)
        yield Reason(path, ReasonKind.STATIC, Outcome.REUSE, mine, its, advice)
