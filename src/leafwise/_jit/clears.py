"""Calls of `jax.clear_caches`, after which JAX makes all programs again, whatever the arguments."""

import functools
import inspect
from typing import Any, Final

import jax

from leafwise._compare.fixes import Cause
from leafwise._display.reasons import Outcome, Reason, ReasonKind
from leafwise._objects.call_site import Site, site_of
from leafwise._objects.stand_ins import MISSING

CLEARS: Final[list[Site | None]] = []
"""The lines that called it, while calls are recorded."""


def note_clears(*, on: bool) -> None:
    """Start or stop recording the calls."""
    namespace: Any = jax  # which has no types
    clear = inspect.unwrap(namespace.clear_caches)

    @functools.wraps(clear)
    def clear_caches() -> None:
        CLEARS.append(site_of(inspect.currentframe()))
        clear()

    namespace.clear_caches = clear_caches if on else clear


def reason_of_clear(count: int, outcome: Outcome) -> Reason | None:
    """Return the reason for a new program, if one made after `count` calls was cleared since."""
    if count == len(CLEARS):
        return None
    facts = ReasonKind.CACHE, outcome, MISSING, MISSING, Cause.CLEARED_BY_CALL
    return Reason("(not an argument)", *facts, CLEARS[-1])
