"""What JAX does for a call, the reasons and the fixes, as values that do not import JAX.

A difference is passed from the comparison to the report as a `Reason`. Its text, and that of
its fix, is made when it is read; whatever a later step needs is a field of the value.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from leafwise._findings.words import ShownAsText, described, paths_of, without_addresses
from leafwise._objects.stand_ins import MISSING, Verbatim

T = TypeVar("T")


class Outcome(StrEnum):
    """What JAX does for a call, after earlier calls of the same function.

    Outcomes are ordered by cost: if several apply, the last one counts.
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


_SEVERITIES: Final = {outcome: place for place, outcome in enumerate(Outcome)}


class ReasonKind(StrEnum):
    """What differs between two calls. The order is that in which reasons are ranked."""

    INVALID = "invalid"
    """A leaf that a jitted function does not accept."""
    COMPARISON = "comparison"
    """A static whose ``==`` or ``hash`` raises."""
    DEVICES = "devices"
    """Arguments committed to different devices."""
    ARGUMENTS = "arguments"
    """Which arguments are given, and how."""
    CLASS = "class"
    """A redefined class or, in `leafwise.diff`, any other class."""
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
    """Whether the dtype of a leaf yields to others in promotion."""
    VARYING = "varying axes"
    """The axes of a `jax.shard_map` along which a leaf varies."""
    CONFIG = "config"
    """JAX's configuration."""
    SHARDING = "sharding"
    """The sharding of a leaf over devices."""
    COMMITMENT = "commitment"
    """Whether an array is committed to its device."""
    CACHE = "cache"
    """Nothing in the arguments: the program was cached once, and no longer is."""
    FUNCTION = "function"
    """The function itself: recreated, or jitted again."""
    LEAF_KIND = "kind"
    """Where the data of a leaf lies: in JAX, in NumPy, in Python."""
    VALUE = "value"
    """The data of a leaf, which no program depends on; only `leafwise.diff` compares it."""


_RANKS: Final = {kind: place for place, kind in enumerate(ReasonKind)}


class Act(StrEnum):
    """What a fix does to the user's code."""

    CONVERT = "convert"
    """Wrap the argument in a function, or call its method: the first of `Fix.code` in the earlier
    call, the second in this one; an empty string leaves it as it is."""
    DEFINE_ONCE = "define once"
    """Move the definition of the function, or its `jax.jit`, before the loops around the call."""
    JIT_ONCE = "jit once"
    """Define the first part of `Fix.code` before the loops, and call the second one instead."""
    ROLL = "roll"
    """Leave out ``unroll=``."""
    MAKE_DYNAMIC = "make dynamic"
    """Make the field dynamic."""
    PAD = "pad"
    """Pad the argument; no edit is known."""
    NOTHING = "nothing"
    """Nothing: the difference is intended."""


class Fix(NamedTuple):
    """What to do about a difference; false if there is nothing to do.

    Attributes:
        words: The sentence, with braces for `names`, if it has any.
        act: The edit to the code; None if only a person can make it.
        code: The code that the edit needs.
        names: The user's names and numbers. Fixes that differ only in these count as one.
    """

    words: str = ""
    act: Act | None = None
    code: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is something to do."""
        return bool(self.words)

    def __str__(self) -> str:
        """Return the sentence."""
        return self.words.format(*self.names) if self.names else self.words

    @property
    def alike(self) -> tuple[Any, ...]:
        """The part of it that is the same in this fix for other arguments."""
        return self[:3]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which `json.dumps` takes."""
        return self._asdict()

    @classmethod
    def from_json(
        cls, words: str, act: Act | None, code: tuple[str, ...], names: tuple[str, ...]
    ) -> "Fix":
        """Return the fix from what `as_dict` returned; its words take no more than the names."""
        if names and re.search("[{}]", words.replace("{}", "", len(names))):
            raise TypeError(f"wanted words for {len(names)} names, got {words!r}")
        return cls(words, act, code, names)


class Passing(StrEnum):
    """The ways to pass values that differ to a jitted function."""

    ARGUMENT = "an argument"
    NUMBER = "an argument (static if it is a size)"
    STATIC = "a static argument"
    HYPERPARAMETER = "an argument (`optax.inject_hyperparams`)"

    def words(self, number: int) -> str:
        """Return the words for so many values: "arguments (static if they are sizes)"."""
        if number == 1:
            return self.value
        plural = re.sub("^an? ", "", self).replace("argument", "arguments")
        return plural.replace("it is a size", "they are sizes")


def how_to_pass(*values: Any) -> Passing:
    """Return the way to pass values that differ to a jitted function."""
    # Imported here, as printing a report does not load JAX.
    import jax  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    from leafwise._objects.classes import is_a  # noqa: PLC0415

    leaves = jax.tree.leaves(values)
    numbers = (int, float, complex, np.generic, np.ndarray, jax.Array)
    if not all(is_a(leaf, numbers) and not is_a(leaf, bool | Enum) for leaf in leaves):
        return Passing.STATIC
    return Passing.NUMBER if any(is_a(leaf, int) for leaf in leaves) else Passing.ARGUMENT


class Change(NamedTuple):
    """A value that differs between two functions of one definition, or two objects of a class."""

    name: str
    before: str = ""
    after: str = ""
    is_function: bool = False
    holder: str = ""  # the name of the function that captures it, if that is an attribute
    how: Passing = Passing.ARGUMENT

    @property
    def place(self) -> str:
        """The name, and that of the function that captures it."""
        return f"`{self.name}`" + (f" of `{self.holder}`" if self.holder else "")

    def __str__(self) -> str:
        """Return the place and both values, unless they are functions or too long."""
        return self.place + (f", {self.before} -> {self.after}" if self.before else "")


class Advice(NamedTuple):
    """A difference in words, empty if the values show it, and what to do about it."""

    change: str = ""
    fix: Fix = Fix()


class Wording(Protocol):
    """The protocol of a `leafwise._compare.fixes.Cause`, which words a reason."""

    def word(self, reason: "Reason", /) -> Advice:
        """Return the change and the fix."""
        ...

    def values(self, reason: "Reason", /) -> tuple[str, str] | None:
        """Return both values as text, or None for the usual text."""
        ...

    def merge(self, reasons: "list[Reason]", /) -> "list[Reason]":
        """Return the reasons of one object, merged into one if they have the same cause."""
        ...


class Reason(NamedTuple):
    """One difference between two calls.

    Attributes:
        path: The place: ``state.opt.lr``, with the name of the parameter or, if that is not
            known, ``args[0].opt.lr``. ``config.jax_enable_x64`` for a JAX option.
        kind: What differs.
        outcome: What this difference alone leads to.
        before: The earlier value.
        after: The value of the call that is explained.
        cause: The cause, which words the change and the fix; or their words.
        details: Further data that the cause needs.
        holder: The path of the object that has the function, if all of it may be recreated.
    """

    path: str
    kind: ReasonKind
    outcome: Outcome
    before: Any
    after: Any
    cause: Wording | Advice = Advice()
    details: Any = ()
    holder: str | None = None

    @property
    def advice(self) -> Advice:
        """What differs and what to do, worded when it is read."""
        return self.cause if isinstance(self.cause, Advice) else self.cause.word(self)

    @property
    def fix(self) -> Fix:
        """What to do about it; ``str`` turns it into a sentence."""
        return self.advice.fix

    @property
    def change(self) -> str:
        """What differs, in words, or the values before and after."""
        if self.before is self.after is MISSING:
            return self.advice.change
        return self.advice.change or " -> ".join(self.words)

    @property
    def words(self) -> tuple[str, str]:
        """Both values as text; classes with the same name get their modules."""
        before, after = self.before, self.after
        words = None if isinstance(self.cause, Advice) else self.cause.values(self)
        if words is not None:
            return words
        if isinstance(before, type) and isinstance(after, type) and before is not after:
            from leafwise._objects.classes import distinct_names  # noqa: PLC0415  # imports JAX

            return distinct_names(before, after)
        texts = format_value(before), format_value(after)
        if texts[0] == texts[1] and "..." in texts[0]:
            from leafwise._objects.text import shorten_both  # noqa: PLC0415  # imports JAX

            return shorten_both(before, after)
        return texts

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key among other reasons; the lowest comes first."""
        return -self.outcome.severity, _RANKS[self.kind]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values; ``edit`` has the fields of the fix."""
        fix = self.fix
        texts = (self.path, self.kind, self.outcome, *self.words, self.change, fix)
        names = ("path", "kind", "outcome", "before", "after", "change", "fix")
        record: dict[str, Any] = {
            name: without_addresses(str(text)) for name, text in zip(names, texts, strict=True)
        }
        return record | {"edit": fix.as_dict()} if fix.act or fix.names else record

    @classmethod
    def from_json(
        cls,
        *,
        path: str,
        kind: ReasonKind,
        outcome: Outcome,
        before: str,
        after: str,
        change: str,
        fix: str,
        edit: Fix | None = None,
    ) -> "Reason":
        """Return the reason from what `as_dict` returned."""
        advice = Advice(change, Fix(fix) if edit is None else edit)
        return cls(path, kind, outcome, Verbatim(before), Verbatim(after), advice)

    def __repr__(self) -> str:
        """Return the attributes as text, without the edit."""
        texts = [f"{name}={text!r}" for name, text in self.as_dict().items() if name != "edit"]
        return f"Reason({', '.join(texts)})"

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


def format_value(value: Any) -> str:
    """Return a value as text; text stays as it is."""
    if type(value) is Verbatim or value is MISSING:
        return str(value)
    # Imported here, as a report, which has only text, is read without JAX.
    from leafwise._objects.classes import is_a  # noqa: PLC0415
    from leafwise._objects.describe import describe  # noqa: PLC0415

    return value.__qualname__ if is_a(value, type) else describe(value)


@dataclasses.dataclass(frozen=True)
class Explanation(ShownAsText):
    """What JAX does for a call, and all reasons for it.

    Attributes:
        outcome: What JAX does.
        reasons: The differences from the nearest earlier call, the most severe first.
        unsound: Statics that are distinct although JAX considers them equal: calls with one
            run the program that was compiled for the other.
        nearest: The index of the nearest call among the earlier ones; None for a first call.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...] = ()
    unsound: tuple[Reason, ...] = ()
    nearest: int | None = None

    @property
    def acted(self) -> list[Reason]:
        """The reasons that JAX acted upon, and then statics that only look equal."""
        cheap = (Outcome.REUSE, Outcome.DISPATCH)
        costly = [reason for reason in self.reasons if reason.outcome not in cheap]
        return [*costly, *self.unsound]

    def __str__(self) -> str:
        """Return the outcome, and a line for each reason."""
        first = _FIRST.get(self.outcome) if self.nearest is None else None
        unsound = "; shared, but unsound" if self.unsound else ""
        words = f"{self.outcome}: {_SENTENCES[self.outcome]}{unsound}"
        lines = [f"first call: {first}" if first else words]
        # A retrace or recompile creates a new dispatch entry anyway.
        shown = [reason for reason in self.reasons if reason.outcome is not Outcome.DISPATCH]
        every = joined(merged((*(shown or self.reasons), *self.unsound)))
        lines += [str(reason) for reason in every[:_SHOWN]]
        if len(every) > _SHOWN:
            lines.append(f"... and {len(every) - _SHOWN} more")
        return "\n".join(lines).replace("\n", "\n  ")

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which `json.dumps` takes."""
        return {
            "outcome": str(self.outcome),
            "nearest": self.nearest,
            "reasons": [reason.as_dict() for reason in merged(self.reasons)],
            "unsound": [reason.as_dict() for reason in self.unsound],
        }


_SHOWN: Final = 12
_FIRST: Final = {
    Outcome.RETRACE: "traced, lowered and compiled",
    Outcome.RECOMPILE: "lowered and compiled from an existing trace",
}
_SENTENCES: Final = {
    Outcome.REUSE: "a cache hit, nothing runs in Python",
    Outcome.DISPATCH: "a new dispatch entry for the same program",
    Outcome.RECOMPILE: "lowered and compiled again, without a trace",
    Outcome.RETRACE: "traced, lowered and compiled again",
    Outcome.ERROR: "the call raises",
    Outcome.UNKNOWN: "not decided by the arguments",
}


def merged(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons, with those for the functions of one recreated object merged into one."""
    every: list[Reason] = []
    for several in grouped(reasons, lambda reason: reason.holder or id(reason)).values():
        cause = several[0].cause
        every += several if isinstance(cause, Advice) else cause.merge(several)
    return every


def joined(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons, with those that differ only in their paths joined into one."""
    groups = grouped(reasons, lambda reason: (reason.kind, reason.change, reason.fix.alike))
    return [
        several[0]._replace(path=paths_of(reason.path for reason in several))
        for several in groups.values()
    ]


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return items by a key that some of them share, both in order."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
