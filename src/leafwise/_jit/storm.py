"""Warns once when one field or argument keeps causing traces."""

import types
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, cast

from leafwise._compare.signature import Signature
from leafwise._findings.reasons import Explanation, Outcome, Reason, ReasonKind
from leafwise._objects.classes import ClassMap
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import BoundMethod
from leafwise._objects.source.call_site import Site
from leafwise._objects.source.code import Block
from leafwise._objects.text import got
from leafwise.errors import RetraceStormWarning

_USUAL: Final = 8
_LOCK: Final = new_lock()
_WARNED: Final = ClassMap[Counter[Any]]()
"""The fields of each class that were warned about."""

_blocks: Final[list["StormGuard"]] = []  # the blocks that are open, the innermost first


class StormGuard(Block):
    """A block with its own limit on traces by one cause, made by `storm_guard`.

    Attributes:
        traces: The number of traces by one field or argument that triggers a warning, or None.
    """

    _code = "storm_guard(...)"

    def __init__(self, traces: int | None) -> None:
        self.traces = traces

    def __enter__(self) -> None:
        """Begin the block, for all threads."""
        with _LOCK:
            _blocks.insert(0, self)

    def __exit__(self, *_: object) -> None:
        """End the block, and restore the previous limit."""
        with _LOCK:
            _blocks.remove(self)  # its innermost entry


def storm_guard(traces: int | None = _USUAL) -> StormGuard:
    """Set the number of traces by one field or argument that triggers a warning, in a block.

    Traces are counted per function, and per combination of argument classes: a function that is
    called with many environments is traced for each of them, which is not a storm. Under pytest,
    they are counted per test.

    It covers all threads, and can be nested: the innermost block applies. Earlier counts are kept,
    and each field or argument is warned about only once. It is also a decorator, for functions that
    run when they are called.

    Outside any block, the number is 8.

    Args:
        traces: The number of traces; None turns the guard off.

    Raises:
        TypeError: `traces` is neither None nor an integer; or (as a decorator) a generator or a
            coroutine function is decorated, which would run outside the block.
        ValueError: `traces` is less than 1.

    Warns:
        RetraceStormWarning: (inside, while tracing) once for each field of a class, and for
            each argument of a function.

    Examples:
        >>> with storm_guard(None):
        ...     sweep(step, range(100))  # doctest: +SKIP
    """
    number: Any = traces  # which a user may have got wrong
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if number is not None and (not is_number or number < 1):
        raise (ValueError if is_number else TypeError)(
            f"storm_guard takes a positive number of traces, or None, got {got(number)}\n"
            f"  fix: to turn the guard off, write storm_guard(None)"
        )
    return StormGuard(traces)


def count(
    counts: Counter[Any],
    function: str,
    signature: Signature,
    explanation: Explanation,
    site: Site | None,
) -> None:
    """Count the causes of one trace, and warn about those that keep recurring."""
    threshold = next((block.traces for block in _blocks), _USUAL)
    causes = [reason for reason in explanation.reasons if reason.outcome is Outcome.RETRACE]
    if threshold is None or not causes:
        return
    classes = signature.classes
    owners = {_owner_of(reason, classes): reason for reason in reversed(causes)}
    for (cls, owner), reason in owners.items():
        key = _test, owner, *_kinds_of(reason, causes, classes)
        with _LOCK:
            counts[key] += 1
            # Warn about a field once per class, and about an argument once per function.
            warned = counts if cls is None else _WARNED.setdefault(cls, Counter)
            reached = counts[key] >= threshold and not warned[_test, owner]
            warned[_test, owner] += reached
        if reached:
            text = _message(owner, function, reason, counts[key])
            file, line = ("<unknown>", 0) if site is None else (site.file, site.line)
            warnings.warn_explicit(text, RetraceStormWarning, file, line)


def _kinds_of(reason: Reason, causes: list[Reason], classes: Mapping[str, type]) -> tuple[Any, Any]:
    """Return the classes of nodes and statics per which the traces of one cause are counted."""
    # In `for env in (Ant(), Humanoid(), ...): step(env, x)` each environment has its own class, as
    # a node or as a static: each needs its own program, which is not a storm.
    nodes = frozenset(map(id, classes.values()))
    if reason.kind is ReasonKind.STATIC:
        return nodes, _kind(reason.after)  # of `step(env, depth)`, those of the depth alone
    statics = (cause.after for cause in causes if cause.kind is ReasonKind.STATIC)
    return nodes, frozenset(map(_kind, statics))


def _owner_of(reason: Reason, classes: Mapping[str, type]) -> tuple[type | None, str]:
    """Return a reason's class and field (`Config.rate`), or else None and its path."""
    holder, _, name = reason.path.rpartition(".")
    cls = classes.get(holder) if name.isidentifier() else None
    return cls, reason.path if cls is None else f"{cls.__qualname__}.{name}"


def _kind(static: Any) -> Any:
    """Return the kind of a static: the ids of the classes in it."""
    if type(static) is tuple:  # `layers=(Dense(8), Relu())`
        return frozenset(map(_kind, static))
    if issubclass(type(static), types.MethodType | BoundMethod):  # `env.step`: by its instance
        static = cast("types.MethodType", static).__self__
    return id(type(static))


_test = 0


def begin_test() -> None:
    """Reset the counts: traces of other tests are not part of a storm."""
    global _test  # noqa: PLW0603  # one number for the process
    _test += 1


def _message(owner: str, function: str, reason: Reason, times: int) -> str:
    static = reason.kind is ReasonKind.STATIC
    change = reason.change if static else f"{reason.kind} {reason.change}"
    return (
        f"{owner} has caused {times} traces of {function}, the last one: {change}\n"
        f"  fix: {reason.fix}\n"
        f"(path: {reason.path}; `with leafwise.storm_guard(None):` turns this off)"
    )
