"""One warning where one field or argument has caused trace after trace."""

import types
import warnings
from collections import Counter
from typing import Any, Final, cast

from leafwise._classes.spec import MARK
from leafwise._compare.explain import Explanation
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature
from leafwise._objects.call_site import Site
from leafwise._objects.classes import ClassMap
from leafwise._objects.code import Block
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import BoundMethod
from leafwise._objects.text import got
from leafwise.errors import RetraceStormWarning

_USUAL: Final = 8
_LOCK: Final = new_lock()
_WARNED: Final = ClassMap[Counter[Any]]()
"""The fields of each class that there was a warning of."""


_blocks: "tuple[storm_guard, ...]" = ()


class storm_guard(Block):  # noqa: N801  # a context manager that is used like a function
    """Set after how many traces that one field or argument caused there is a warning, in a block.

    They are counted for each function, and for arguments of the same classes: a function that is
    called with many environments is traced for each of them, which is no storm. Under pytest they
    are counted for each test.

    It covers all threads, and can be nested: the innermost block counts. What was counted before
    the block stays, and a field or argument that was warned of is not warned of again. Also a
    decorator, of functions that run when they are called.

    Outside any block it is 8.

    Args:
        traces: How many; None turns the guard off.

    Attributes:
        traces: The number.

    Raises:
        TypeError: `traces` is neither None nor an integer; or (as a decorator) a generator or a
            coroutine function is decorated, which would run outside the block.
        ValueError: `traces` is less than 1.

    Warns:
        RetraceStormWarning: (inside, while tracing) once for each field of a class, and for
            each argument of a function; and once for a function that has 100 programs which
            differ in statics alone, of a class without ``many_statics``.

    Examples:
        >>> with storm_guard(None):
        ...     sweep(step, range(100))  # doctest: +SKIP
    """

    _code = "storm_guard(...)"

    def __init__(self, traces: int | None = _USUAL) -> None:
        given: Any = traces  # which a user may have got wrong
        is_number = isinstance(given, int) and not isinstance(given, bool)
        if given is not None and (not is_number or given < 1):
            raise (ValueError if is_number else TypeError)(
                f"storm_guard takes a positive number of traces, or None, got {got(given)}\n"
                f"  fix: to turn the guard off, write storm_guard(None)"
            )
        self.traces = traces

    def __enter__(self) -> None:
        """Begin the block, for all threads."""
        global _blocks  # noqa: PLW0603  # one switch for the process; replaced, never changed
        with _LOCK:
            _blocks = (*_blocks, self)

    def __exit__(self, *_: object) -> None:
        """End the block: what was in force before it is again."""
        global _blocks  # noqa: PLW0603  # one switch for the process; replaced, never changed
        with _LOCK:
            # The last one: the same block may have been entered twice.
            last = max(place for place, each in enumerate(_blocks) if each is self)
            _blocks = (*_blocks[:last], *_blocks[last + 1 :])


def count(
    counts: Counter[Any],
    function: str,
    signature: Signature,
    found: Explanation,
    site: Site | None,
) -> None:
    """Count the causes of one trace, and warn of those that keep coming back."""
    blocks = _blocks
    threshold = blocks[-1].traces if blocks else _USUAL
    if threshold is None:
        return
    causes = [reason for reason in found.reasons if reason.outcome is Outcome.RETRACE]
    classes = signature.classes if causes else {}
    places: dict[str, tuple[type | None, Reason]] = {}
    for reason in reversed(causes):
        holder, _, name = reason.path.rpartition(".")
        cls = classes.get(holder) if name.isidentifier() else None
        owner = f"{reason.path} of {function}" if cls is None else f"{cls.__qualname__}.{name}"
        places[owner] = cls, reason
    # Twenty environments, one after the other, are twenty classes, as nodes or as statics: each
    # needs a program of its own, and that is no storm.
    nodes = frozenset(map(id, classes.values()))
    statics = frozenset(_kind(each.after) for each in causes if each.kind is ReasonKind.STATIC)
    for owner, (cls, reason) in places.items():
        kinds = _kind(reason.after) if reason.kind is ReasonKind.STATIC else statics
        with _LOCK:
            key = _test, owner, nodes, kinds
            counts[key] += 1
            warned = counts if cls is None else _WARNED.setdefault(cls, Counter)
            reached = counts[key] >= threshold and not warned[_test, owner]
            warned[_test, owner] += reached
        if reached:
            _warn(_message(owner, function, reason, counts[key]), site)
    if causes and all(each.kind is ReasonKind.STATIC for each in causes):
        # JAX finds these by comparing their statics with those of each program.
        marks = {cls: vars(cls).get(MARK) for cls, _ in places.values() if cls is not None}
        searched = {cls for cls, mark in marks.items() if mark is not None and not mark[1]}
        with _LOCK:
            counts[_test, nodes] += bool(searched)
            reached = bool(searched) and counts[_test, nodes] == _MANY
        if reached:
            names = sorted(cls.__qualname__ for cls in searched)
            _warn(_MESSAGE_OF_MANY.format(function, _MANY, " and ".join(names)), site)


_MANY: Final = 100
_MESSAGE_OF_MANY: Final = (
    "{} was traced {} times for statics of {} alone: a call searches for its program among all of "
    "them. @leafwise.pytree(many_statics=True) lets JAX find it at once.\n"
    "(`with leafwise.storm_guard(None):` turns this off)"
)


def _warn(text: str, site: Site | None) -> None:
    file, line = (site.file, site.line) if site is not None else ("<unknown>", 0)
    warnings.warn_explicit(text, RetraceStormWarning, file, line)


def _kind(static: Any, depth: int = 3) -> Any:
    """Return what two statics of one kind have in common: the ids of the classes in them."""
    if type(static) is tuple and depth:
        return tuple(_kind(item, depth - 1) for item in static)
    if issubclass(type(static), types.MethodType | BoundMethod):  # a method is of its instance
        static = cast("types.MethodType", static).__self__
    return id(type(static))


_test = 0


def begin_test() -> None:
    """Count from here: traces of other tests are no part of a storm."""
    global _test  # noqa: PLW0603  # one number for the process
    _test += 1


def _message(owner: str, function: str, reason: Reason, times: int) -> str:
    static = reason.kind is ReasonKind.STATIC
    change = reason.change if static else f"{reason.kind} {reason.change}"
    of = "" if owner.endswith(f" of {function}") else f" of {function}"
    return (
        f"{owner} has caused {times} traces{of}, the last one: {change}\n"
        f"  fix: {reason.fix}\n"
        f"(path: {reason.path}; `with leafwise.storm_guard(None):` turns this off)"
    )
