"""One warning where one field or argument has caused trace after trace."""

import os
import threading
import warnings
from collections import Counter
from typing import Any, Final

from leafwise._compare import fixes
from leafwise._compare.explain import Explanation
from leafwise._compare.reasons import Outcome, Reason, ReasonKind, format_value
from leafwise._compare.signature import Signature
from leafwise._objects.call_site import Site
from leafwise._objects.class_map import ClassMap
from leafwise._objects.text import Verbatim, got
from leafwise.errors import RetraceStormWarning

_USUAL: Final = 8
_LOCK: Final = threading.Lock()
_BY_CLASS: Final[ClassMap[Counter[str]]] = ClassMap()
"""How often each field of a class has caused a trace, of whatever function."""

GIVEN: Final[list[str]] = []
"""The warnings so far: at most one for each field and argument."""


def _from_environment() -> int | None:
    text = os.environ.get("LEAFWISE_STORM_GUARD", "")
    number = int(text) if text.isdecimal() else _USUAL
    return number or None


_threshold: int | None = _from_environment()


def storm_guard(traces: int | None = _USUAL) -> None:
    """Set after how many traces that one field or argument caused there is a warning.

    What was counted before stays. The environment variable ``LEAFWISE_STORM_GUARD``
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
    wrong = not isinstance(number, int) or isinstance(number, bool) or number < 1
    if number is not None and wrong:
        msg = f"storm_guard takes a positive number of traces, or None, got {got(traces)}"
        raise ValueError(msg)
    _threshold = traces


def count(
    counts: Counter[str], function: str, signature: Signature, found: Explanation, site: Site | None
) -> None:
    """Count the causes of one trace, and warn of those that keep coming back.

    Args:
        counts: How often each argument of this function has caused a trace so far.
        function: Its name.
        signature: The call that was traced.
        found: Why.
        site: The line that called.
    """
    if _threshold is None:
        return
    causes = [reason for reason in found.reasons if reason.outcome is Outcome.RETRACE]
    classes = signature.classes if causes else {}
    places: dict[str, tuple[Counter[str], str, Reason]] = {}
    for reason in reversed(causes):
        holder, _, name = reason.path.rpartition(".")
        cls = classes.get(holder)
        if cls is not None and name.isidentifier():
            owner, counted = f"{cls.__qualname__}.{name}", _BY_CLASS.setdefault(cls, Counter)
        else:
            owner, counted = f"{reason.path} of {function}", counts
        places[owner] = counted, owner, reason
    for counted, owner, reason in places.values():
        with _LOCK:
            counted[owner] += 1
            warned = f"warned of {owner}"
            reached = counted[owner] >= _threshold and not counted[warned]
            counted[warned] += reached
        if reached:
            file, line = (site.file, site.line) if site is not None else ("<unknown>", 0)
            text = _message(owner, function, reason, counted[owner])
            GIVEN.append(text)
            warnings.warn_explicit(text, RetraceStormWarning, file, line)


def _message(owner: str, function: str, reason: Reason, times: int) -> str:
    words = reason.before, reason.after
    described = any(isinstance(word, Verbatim) for word in words)
    static = reason.kind is ReasonKind.STATIC and not described
    cause = fixes.cause_of(*words) if static else f"changing {reason.kind}"
    return (
        f"{owner} has caused {times} traces, the last one of {function}: {cause}, now "
        f"{format_value(reason.after)}. "
        f"{reason.fix}\n(path: {reason.path}; leafwise.storm_guard(None) turns this off)"
    )
