"""The blocks of `leafwise.debug.check_captures`, and who is notified when one begins or ends."""

import os
import weakref
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from leafwise._captures.fixes import Fix, lines_of
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
    """Return ``stale=`` as an action.

    Raises:
        ValueError: It is none of the four.
    """
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
        fix: How the value can be passed instead.
    """

    function: str
    name: str
    reader: str
    holder: str
    line: str
    before: str
    after: str
    call: Site | None = None
    fix: Fix = Fix()

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
        owner = self.name.rpartition(".")[0]
        is_attribute = owner in ("self", "cls") or self.holder == "attribute"
        fixes = lines_of(self.fix, self.function, self.name, is_attribute=is_attribute)
        return (
            f"{self.function} captures `{self.name}`{where}, which was {self.before} when it was "
            f"traced and is {self.after} now\n"
            f"  fix: {fixes[0]}\n"
            f"  or {fixes[1]}\n"
            f'  or let it be traced again silently: `lw.jit(..., stale="retrace")`'
        )


class CaptureChecks:
    """What a block of `leafwise.debug.check_captures` has found so far.

    Attributes:
        action: What happens to a stale call.
        stale: What was found stale: all of it, also where it is a warning or an error.
        not_compared: The functions that could not be traced again, each with the reason.
        observes: Whether nothing is warned of, and each function does what its own ``stale=``
            says.
    """

    def __init__(self, action: StaleAction, *, observes: bool = False) -> None:
        self.action = action
        self.observes = observes
        self.stale: list[StaleCapture] = []
        self.not_compared: dict[str, str] = {}

    @property
    def is_exact(self) -> bool:
        """Whether each program is compared with a fresh trace."""
        return not self.observes

    def note(self, owner: int, found: list[StaleCapture]) -> None:  # noqa: ARG002  # an override's
        """Add what a call found; the owner identifies the function."""
        self.stale += found


class Follower(Protocol):
    """What is notified when a block begins or ends."""

    def block_changed(self) -> None:
        """Fingerprint the captures again at the next call."""
        ...


_LOCK: Final = new_lock()
_FOLLOWERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_blocks: tuple[CaptureChecks, ...] = ()


def current_block() -> CaptureChecks | None:
    """Return the innermost block; None if there is none."""
    blocks = _blocks
    return blocks[-1] if blocks else None


def follow_blocks(follower: Follower) -> None:
    """Notify a follower when a block begins or ends, as long as it lives."""
    with _LOCK:
        _FOLLOWERS.add(follower)


def followers() -> list[Any]:
    """Return the followers that are alive."""
    with _LOCK:
        return list(_FOLLOWERS)


def enter_block(block: CaptureChecks) -> None:
    """Begin a block, for all threads."""
    global _blocks  # noqa: PLW0603  # one switch for the process; replaced, never changed
    with _LOCK:
        _blocks = (*_blocks, block)
    for each in followers():
        each.block_changed()


def leave_block(block: CaptureChecks) -> None:
    """End a block."""
    global _blocks  # noqa: PLW0603  # one switch for the process; replaced, never changed
    with _LOCK:
        _blocks = tuple(each for each in _blocks if each is not block)
    for each in followers():
        each.block_changed()


def _from_environment() -> None:
    text = os.environ.get("LEAFWISE_CHECK_CAPTURES", "")
    if text not in ("", "0"):
        action = (
            StaleAction.RAISE if text == "1" else checked_action(text, "LEAFWISE_CHECK_CAPTURES")
        )
        enter_block(CaptureChecks(action))


_from_environment()
