"""The blocks of `leafwise.debug.check_captures`, and who is notified when one begins or ends."""

import weakref
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from leafwise._captures.treatment import Way, lines_of
from leafwise._objects.call_site import Site, short_file
from leafwise._objects.locks import new_lock
from leafwise._objects.text import got


class StaleAction(StrEnum):
    """What happens when a call would be answered for the old value of a capture."""

    WARN = "warn"
    RAISE = "raise"
    RETRACE = "retrace"
    IGNORE = "ignore"


StaleOption: TypeAlias = Literal["warn", "raise", "retrace", "ignore"]
"""One of those, as it is written."""


def checked_action(value: object, owner: str) -> StaleAction:
    """Return ``stale=`` as an action."""
    if isinstance(value, str) and value in set(StaleAction):
        return StaleAction(value)
    actions = ", ".join(repr(str(each)) for each in StaleAction)
    raise ValueError(f"{owner} takes stale= one of {actions}, got {got(value)}")


class StaleCapture(NamedTuple):
    """A capture that changed since the trace whose program would answer a call.

    Attributes:
        function: The name of the jitted function.
        name: The capture, as the code spells it: ``lr``, ``self.w``. Empty where only the program
            shows that something has changed.
        reader: The function whose code reads it: the jitted one, or one that it calls.
        holder: Where it is bound: ``"global"``, ``"closure"``, ``"default"``, ``"attribute"``,
            ``"argument of partial"``; or ``"program"``.
        line: The line that reads it: ``train.py:12``. Of a program, that of the operation.
        before: The value that the program was made with, as text; of a program the operation.
        after: The value now, as text; the operation of a fresh trace.
        call: The line of the user's code that called; None if there is none.
        way: How the value can be passed instead.
    """

    function: str
    name: str
    reader: str
    holder: str
    line: str
    before: str
    after: str
    call: Site | None = None
    way: Way = Way.ARGUMENT

    def __str__(self) -> str:
        """Return the message: what changed, where it is read, and the fixes."""
        inside = "" if self.reader.endswith(self.function) else f" in {self.reader}"
        file, _, number = self.line.rpartition(":")
        where = f" ({short_file(file)}:{number}{inside})" if file else inside
        if not self.name:
            return (
                f"{self.function} reads something that has changed since it was traced{where}: "
                f"`{self.before}` is `{self.after}` in a fresh trace\n"
                f"  fix: pass what it reads there as an argument"
            )
        fixes = lines_of(self.way, self.function, self.name)
        return (
            f"{self.function} captures `{self.name}`{where}, which was {self.before} when it was "
            f"traced and is {self.after} now\n"
            f"  fix: {fixes[0]}\n"
            f"  or {fixes[1]}\n"
            f'  or let it be traced again silently: `lw.jit(..., stale="retrace")`'
        )


class CaptureChecks:
    """What a block of `leafwise.debug.check_captures` has found so far."""

    def __init__(self, action: StaleAction, *, is_exact: bool = True) -> None:
        self.action = action
        # Each program is compared with a fresh trace; otherwise nothing is warned of, and each
        # function does what its `stale=` says.
        self.is_exact = is_exact
        self.stale: list[StaleCapture] = []  # also where it is a warning or an error
        self.not_compared: dict[str, str] = {}  # the functions that could not be traced, and why

    def note(self, owner: int, stale: list[StaleCapture]) -> None:  # noqa: ARG002  # an override's
        """Add what a call found; the owner identifies the function."""
        self.stale += stale


_LOCK: Final = new_lock()
_FOLLOWERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_blocks: tuple[CaptureChecks, ...] = ()


def current_block() -> CaptureChecks | None:
    """Return the innermost block; None if there is none."""
    return next(reversed(_blocks), None)


def follow_blocks(follower: Any) -> None:
    """Call `follower.block_changed()` when a block begins or ends, as long as it lives."""
    with _LOCK:
        _FOLLOWERS.add(follower)


def switch_block(block: CaptureChecks, *, is_on: bool) -> None:
    """Begin or end a block, for all threads."""
    global _blocks  # noqa: PLW0603  # one switch for the process; replaced, never changed
    with _LOCK:
        others = tuple(each for each in _blocks if each is not block)
        _blocks = (*others, block) if is_on else others
        followers = list(_FOLLOWERS)
    for each in followers:
        each.block_changed()
