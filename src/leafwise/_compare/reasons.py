"""What JAX does for a call, and the reasons for it, as values: nothing here compares or words."""

import contextlib
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from leafwise._compare.fixes import (
    Advice,
    Cause,
    are_recreated,
    changed_part,
    class_name,
    distinct_names,
    fresh_object,
    rebuilt,
)
from leafwise._display.words import described
from leafwise._objects.classes import is_a, module_of, qualname_of
from leafwise._objects.describe import describe
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim
from leafwise._trees.equality import first_difference


class Outcome(StrEnum):
    """What JAX does for a call, after an earlier one of the same function.

    The order is the order of cost: of several outcomes the last one counts.
    """

    REUSE = "reuse"
    """A cache hit: nothing runs in Python."""
    DISPATCH = "dispatch"
    """A new dispatch entry for the same program."""
    RECOMPILE = "recompile"
    """Lowered and compiled again, from the existing trace."""
    RETRACE = "retrace"
    """The function runs in Python again, and is lowered and compiled."""
    UNKNOWN = "unknown"
    """Not decided by the arguments."""
    ERROR = "error"
    """The call raises."""

    @property
    def severity(self) -> int:
        """The position in the order of cost: 0 is reuse."""
        return _SEVERITIES[self]


_SEVERITIES = {outcome: place for place, outcome in enumerate(Outcome)}


class ReasonKind(StrEnum):
    """What differs between two calls. The order is that in which reasons are ranked."""

    INVALID = "invalid"
    """A leaf that no jitted function takes."""
    COMPARISON = "comparison"
    """A static whose ``==`` or ``hash`` raises."""
    DEVICES = "devices"
    """Arguments committed to different devices."""
    ARGUMENTS = "arguments"
    """Which arguments are given, and how."""
    CLASS = "class"
    """A redefined class; for `leafwise.diff` any other class."""
    STRUCTURE = "structure"
    """The nodes of the tree: their types, keys and numbers of children."""
    STATIC = "static"
    """A static value."""
    CAPTURE = "capture"
    """Something that the function captures, and that changed since the trace."""
    SHAPE = "shape"
    """The shape of a leaf."""
    BATCH = "batch"
    """The size or the axes of a batch, under `jax.vmap`."""
    DTYPE = "dtype"
    """The dtype of a leaf."""
    WEAK_TYPE = "weak type"
    """Whether the dtype of a leaf gives way to others."""
    CONFIG = "config"
    """JAX's configuration."""
    SHARDING = "sharding"
    """How a leaf is spread over devices."""
    COMMITMENT = "commitment"
    """Whether an array is committed to its device."""
    CACHE = "cache"
    """Not the arguments: the program was cached once, and is no longer."""
    LEAF_KIND = "kind"
    """Where the data of a leaf lies: in JAX, in NumPy, in Python."""
    VALUE = "value"
    """The data of a leaf, which no program depends on: only `leafwise.diff` looks at it."""


_RANKS = {
    (outcome, kind): (-outcome.severity, place)
    for outcome in Outcome
    for place, kind in enumerate(ReasonKind)
}


class _Facts(NamedTuple):
    path: str
    kind: ReasonKind
    outcome: Outcome
    before: Any
    after: Any
    cause: Cause | Advice = Advice()
    details: tuple[Any, ...] = ()


class Reason(_Facts):
    """One difference between two calls.

    Attributes:
        path: Where: ``state.opt.lr``, with the name of the parameter or, where that is not
            known, ``args[0].opt.lr``. ``config.jax_enable_x64`` for an option of JAX.
        kind: What differs.
        outcome: What this alone leads to.
        before: The earlier value.
        after: The value of the call that is explained.
        cause: What makes it differ, which words the change and the fix; or these words.
        details: What else that takes.
    """

    __slots__ = ()

    @property
    def advice(self) -> Advice:
        """What differs, and what to do: worded when it is read."""
        return self.cause if isinstance(self.cause, Advice) else self.cause.word(self)

    @property
    def fix(self) -> str:
        """What to do about it; empty where there is nothing."""
        return self.advice.fix

    @property
    def change(self) -> str:
        """What differs: in words, or the value before and after."""
        if self.before is self.after is MISSING:
            return self.advice.change
        return self.advice.change or " -> ".join(self.words)

    @property
    def words(self) -> tuple[str, str]:
        """Both values as text; classes of one name with their modules."""
        if is_a(self.before, type) and is_a(self.after, type) and self.before is not self.after:
            return distinct_names(self.before, self.after)
        if (holder := rebuilt(self)) is not None:
            return holder, "a new one"
        before, after = format_value(self.before), format_value(self.after)
        if before == after and "..." in before and self.cause is Cause.STATIC:
            with contextlib.suppress(Exception):  # code of the values' own classes
                _, one, other = first_difference(self.before, self.after)
                return f"...{format_value(one)}...", f"...{format_value(other)}..."
        return before, after

    @property
    def rank(self) -> tuple[int, int]:
        """The position among other reasons: the lowest comes first."""
        return _RANKS[self.outcome, self.kind]

    def _asdict(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        advice = {"change": self.change, "fix": self.fix}
        return {**dict(zip(self._fields[:5], self, strict=False)), **advice}

    def __repr__(self) -> str:
        """Return the attributes that are to be read."""
        return f"Reason({', '.join(f'{name}={each!r}' for name, each in self._asdict().items())})"

    def __str__(self) -> str:
        """Return the path, the kind and what changed, and the fix on a line of its own."""
        line = described(self.path or "the tree", self.kind, self.change)
        return f"{line}\n  fix: {self.fix}" if self.fix else line

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values as text: another process may not find a function or a class."""
        before, after = (
            value if value is MISSING else Verbatim(word)
            for value, word in zip((self.before, self.after), self.words, strict=True)
        )
        return Reason, (self.path, self.kind, self.outcome, before, after, self.advice)


def merge_rebuilt(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons, all functions of an object that is built again as one."""
    groups: dict[str, list[Reason]] = {}
    for each in reasons:
        is_leaf = each.cause is Cause.STATIC and len(each.details) == _LEAF_DETAILS
        is_new = is_leaf and are_recreated(each.before, each.after)
        holder = re.sub(r"(\.\w+|\[[^]]*\])$", "", each.path) if is_new else ""
        groups.setdefault(holder or f" {each.path} {each.kind}", []).append(each)
    found: list[Reason] = []
    for path, several in groups.items():
        *_, cls, number = several[0].details or (object, 0)
        if len(several) == number > 1 and module_of(cls) != "builtins":
            name = class_name(cls)
            words = Verbatim(name), Verbatim("a new one")
            changes = (changed_part(each.before, each.after) for each in several)
            advice = fresh_object(name, next(filter(None, changes), ""))
            kind, outcome = several[0].kind, several[0].outcome
            found.append(Reason(path, kind, outcome, *words, advice))
        else:
            found += several
    return found


_LEAF_DETAILS: Final = 4


def format_value(value: Any) -> str:
    if is_a(value, Verbatim) or value is MISSING:
        return str(value)
    return qualname_of(value) if is_a(value, type) else describe(value)
