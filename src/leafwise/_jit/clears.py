"""The calls of `jax.clear_caches`: what was made before one is made again, whatever it is given."""

import functools
import inspect
from typing import Any, Final

import jax

from leafwise._compare.fixes import Cause
from leafwise._display.reasons import Outcome, Reason, ReasonKind
from leafwise._objects.call_site import Site, site_of
from leafwise._objects.stand_ins import MISSING

CLEARS: Final[list[Site | None]] = []
"""The lines that called it, while that is noted."""


def note_clears(*, on: bool) -> None:
    """Note the calls from now on, or stop it."""
    namespace: Any = jax  # which has no types
    clear = inspect.unwrap(namespace.clear_caches)

    @functools.wraps(clear)
    def clear_caches() -> None:
        CLEARS.append(site_of(inspect.currentframe()))
        clear()

    namespace.clear_caches = clear_caches if on else clear


def reason_of_clear(count: int, outcome: Outcome) -> Reason | None:
    """Return why the like of what was made after so many calls is made again, if that is why."""
    if count == len(CLEARS):
        return None
    facts = ReasonKind.CACHE, outcome, MISSING, MISSING, Cause.CLEARED_BY_CALL
    return Reason("(not an argument)", *facts, CLEARS[-1])
