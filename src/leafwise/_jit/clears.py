"""Calls of `jax.clear_caches`, after which JAX makes all programs again, whatever the arguments."""

import functools
import inspect
from collections.abc import Iterable
from typing import Any, Final

import jax
import numpy as np

from leafwise._captures.treatment import contents_of
from leafwise._compare.fixes import Cause
from leafwise._findings.reasons import Outcome, Reason, ReasonKind
from leafwise._jax.events import ignore_events
from leafwise._objects.classes import is_a
from leafwise._objects.source.call_site import Site, site_of
from leafwise._objects.stand_ins import MISSING
from leafwise._statics.account import CAPTURED

CLEARS: Final[list[Site | None]] = []
"""The lines that called it, while calls are recorded."""


def note_clears(*, on: bool) -> None:
    """Start or stop recording the calls."""
    namespace: Any = jax  # its types forbid to replace a function
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


def has_old_copy(values: Iterable[Any]) -> bool:
    """Return whether JAX has a copy of an array in `values` from before that changed in place."""
    # It copies an array of 64 bits to convert it, and keeps the copy while any program uses it.
    most, contents = CAPTURED.most_bytes, [pair for value in values for pair in contents_of(value)]
    arrays = [item for _, item in contents if is_a(item, np.ndarray) and item.nbytes <= most]
    for array in arrays:
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        if dtype == array.dtype or not array.dtype.isnative:  # JAX refuses another byte order
            continue
        with ignore_events(), np.errstate(all="ignore"):
            closed: Any = jax.make_jaxpr(functools.partial(jax.lax.add, array, array))()
            copy = closed.consts[0] if closed.consts else closed.eqns[0].invars[0].val
            if copy.dtype == dtype and np.asarray(copy).tobytes() != array.astype(dtype).tobytes():
                return True
    return False
