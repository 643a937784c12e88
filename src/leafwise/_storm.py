"""One warning where one field or argument has caused trace after trace."""

import os
import threading
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from leafwise import _advice
from leafwise._reasons import Outcome, Reason, ReasonKind, Said, say
from leafwise._signature import Signature
from leafwise._sites import Site
from leafwise._text import got
from leafwise.errors import RetraceStormWarning

_USUAL: Final = 8
_LOCK: Final = threading.Lock()
_COUNTS: Final[Counter[str]] = Counter()

GIVEN: Final[list[str]] = []
"""The warnings so far: at most one for each field and argument."""


def _from_environment() -> int | None:
    text = os.environ.get("LEAFWISE_STORM_GUARD", "")
    number = int(text) if text.isdecimal() else _USUAL
    return number or None


_threshold: int | None = _from_environment()


def storm_guard(traces: int | None = _USUAL) -> None:
    """Set after how many traces that one field or argument caused there is a warning.

    The counts start again from zero. The environment variable ``LEAFWISE_STORM_GUARD``
    sets the number for a whole process; 0 turns the guard off.

    Args:
        traces: How many; None turns the guard off.

    Raises:
        ValueError: `traces` is neither None nor a positive integer.

    Warns:
        RetraceStormWarning: (later, while tracing) once for each field of a class, and for
            each argument of a function.
    """
    global _threshold  # noqa: PLW0603  # one switch for the process, as documented
    number: Any = traces
    if number is not None and (not isinstance(number, int) or number < 1):
        msg = f"storm_guard takes a positive number of traces, or None, got {got(traces)}"
        raise ValueError(msg)
    with _LOCK:
        _threshold = traces
        _COUNTS.clear()


def count(
    function: str, signature: Signature, reasons: tuple[Reason, ...], site: Site | None
) -> None:
    """Count the causes of one trace, and warn of those that keep coming back."""
    if _threshold is None:
        return
    causes = [reason for reason in reasons if reason.outcome is Outcome.RETRACE]
    classes = signature.classes if causes else {}
    owners = {_owner(function, classes, reason.path): reason for reason in reversed(causes)}
    for owner, reason in owners.items():
        with _LOCK:
            _COUNTS[owner] += 1
            reached = _COUNTS[owner] == _threshold
        if reached:
            file, line = (site.file, site.line) if site is not None else ("<unknown>", 0)
            text = _message(owner, function, reason, _threshold)
            GIVEN.append(text)
            warnings.warn_explicit(text, RetraceStormWarning, file, line)


def _owner(function: str, classes: Mapping[str, type], path: str) -> str:
    """Return the field of a class, or the argument of a function, that a path leads to."""
    holder, _, name = path.rpartition(".")
    cls = classes.get(holder)
    if cls is not None and name.isidentifier():
        return f"{cls.__qualname__}.{name}"
    return f"{path} of {function}"


def _message(owner: str, function: str, reason: Reason, times: int) -> str:
    words = reason.before, reason.after
    described = any(isinstance(word, Said) for word in words)
    static = reason.kind is ReasonKind.STATIC and not described
    cause = _advice.cause_of(*words) if static else f"changing {reason.kind}"
    return (
        f"{owner} has caused {times} traces of {function}: {cause}, now {say(reason.after)}. "
        f"{reason.advice}\n(path: {reason.path}; leafwise.storm_guard(None) turns this off)"
    )
