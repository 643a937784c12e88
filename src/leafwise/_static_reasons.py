"""The difference between two static values, and what JAX makes of it."""

from collections.abc import Iterator
from typing import Any

from leafwise import _advice
from leafwise._reasons import Outcome, Reason, ReasonKind
from leafwise._values import told_apart


def static_reason(path: str, mine: Any, its: Any, *, equal: bool | None) -> Iterator[Reason]:
    """Yield the reason that two static values of one place give, if any.

    Args:
        path: Where they stand.
        mine: The value of the earlier call.
        its: The value of the later call.
        equal: Whether JAX takes them for equal; None if comparing them raises.

    Yields:
        At most one reason; with the outcome "reuse" where they share a program though they
        can be told apart.
    """
    if equal is None:
        kind, advice = ReasonKind.COMPARISON, _advice.comparison(its)
        yield Reason(path, kind, Outcome.ERROR, mine, its, advice)
    elif not equal:
        yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, mine, its, _advice.static(mine, its))
    elif told_apart(mine, its):
        advice = _advice.unsound(mine, its)
        yield Reason(path, ReasonKind.STATIC, Outcome.REUSE, mine, its, advice)
