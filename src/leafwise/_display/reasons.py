"""What JAX does for a call, the reasons for it, and the fixes: values, which name no JAX.

A difference goes the whole way from the comparison to the report as a `Reason`. Its words, and
those of its fix, are made when they are read; what a later step needs is a field of the value.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, Protocol

from leafwise._display.words import ShownAsText, described, paths_of, without_addresses
from leafwise._objects.stand_ins import MISSING, Verbatim


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


_SEVERITIES: Final = {outcome: place for place, outcome in enumerate(Outcome)}


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
    VARYING = "varying axes"
    """The axes of a `jax.shard_map` along which a leaf varies."""
    CONFIG = "config"
    """JAX's configuration."""
    SHARDING = "sharding"
    """How a leaf is spread over devices."""
    COMMITMENT = "commitment"
    """Whether an array is committed to its device."""
    CACHE = "cache"
    """Not the arguments: the program was cached once, and is no longer."""
    FUNCTION = "function"
    """The function itself: recreated, or jitted again."""
    LEAF_KIND = "kind"
    """Where the data of a leaf lies: in JAX, in NumPy, in Python."""
    VALUE = "value"
    """The data of a leaf, which no program depends on: only `leafwise.diff` looks at it."""


_RANKS: Final = {kind: place for place, kind in enumerate(ReasonKind)}


class Act(StrEnum):
    """What a fix does to the user's code."""

    CONVERT = "convert"
    """Wrap the argument in a function, or call its method: the first of `Fix.code` in the earlier
    call, the second in this one; an empty text leaves it as it is."""
    DEFINE_ONCE = "define once"
    """Move the definition of the function, or its `jax.jit`, before the loops around the call."""
    JIT_ONCE = "jit once"
    """Define the first part of `Fix.code` before the loops, and call the second one instead."""
    ROLL = "roll"
    """Leave out ``unroll=``."""
    MAKE_DYNAMIC = "make dynamic"
    """Make the field dynamic."""
    PAD = "pad"
    """Pad the argument: no edit is known."""
    NOTHING = "nothing"
    """Nothing: the difference is intended."""


class Fix(NamedTuple):
    """What to do about a difference. It is false where there is nothing to do.

    Attributes:
        words: The sentence, with braces for `names`, if there are any.
        act: What to do to the code; None for what only a person can do.
        code: The code that this takes.
        names: The user's names and numbers. Two fixes that differ in these alone are one.
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
        """What it has in common with the same fix for other arguments."""
        return self[:3]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which `json.dumps` takes."""
        return self._asdict()

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Fix":
        """Return the fix that `as_dict` made a record of."""
        act = record["act"] and Act(record["act"])
        return cls(record["words"], act, tuple(record["code"]), tuple(record["names"]))


class Passing(StrEnum):
    """As what values that differ can be passed to a jitted function."""

    ARGUMENT = "an argument"
    NUMBER = "an argument (static if it is a size)"
    STATIC = "a static argument"
    HYPERPARAMETER = "an argument (`optax.inject_hyperparams`)"


def how_to_pass(*values: Any) -> Passing:
    """Return as what values that differ can be passed to a jitted function."""
    # A report is printed without loading JAX.
    import jax  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    from leafwise._objects.classes import is_a  # noqa: PLC0415

    leaves = jax.tree.leaves(values)
    numbers = (int, float, complex, np.generic, np.ndarray, jax.Array)
    if not all(is_a(leaf, numbers) and not is_a(leaf, bool | Enum) for leaf in leaves):
        return Passing.STATIC
    return Passing.NUMBER if any(is_a(leaf, int) for leaf in leaves) else Passing.ARGUMENT


class Change(NamedTuple):
    """What two functions of one definition capture that differs, or two objects of one class."""

    name: str
    before: str = ""
    after: str = ""
    is_function: bool = False
    holder: str = ""
    """The function that captures it, if that has a name of its own: an attribute."""
    how: Passing = Passing.ARGUMENT

    @property
    def place(self) -> str:
        """Return the name, and that of the function that captures it."""
        return f"`{self.name}`" + (f" of `{self.holder}`" if self.holder else "")

    def __str__(self) -> str:
        """Return the place, and both values unless these are functions or too long."""
        return self.place + (f", {self.before} -> {self.after}" if self.before else "")


class Advice(NamedTuple):
    """A difference in words, empty where the values say it, and what to do about it."""

    change: str = ""
    fix: Fix = Fix()

    def word(self, _: "Reason") -> "Advice":
        """Return itself: it is worded already."""
        return self

    def values(self, _: "Reason") -> tuple[str, str] | None:
        """Return None: both values are shown as they are."""
        return None

    def merge(self, reasons: "list[Reason]") -> "list[Reason]":
        """Return reasons of one object as they are."""
        return reasons


class Wording(Protocol):
    """What words a reason: an `Advice`, or a `leafwise._compare.fixes.Cause`."""

    def word(self, reason: "Reason", /) -> Advice:
        """Return the change and the fix."""
        ...

    def values(self, reason: "Reason", /) -> tuple[str, str] | None:
        """Return both values as text; None for the usual text."""
        ...

    def merge(self, reasons: "list[Reason]", /) -> "list[Reason]":
        """Return the reasons of one object, as one where they have one cause."""
        ...


class Reason(NamedTuple):
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
        holder: The path of the object whose function it is, if that may be recreated as a whole.
    """

    path: str
    kind: ReasonKind
    outcome: Outcome
    before: Any
    after: Any
    cause: Wording = Advice()
    details: Any = ()
    holder: str | None = None

    @property
    def advice(self) -> Advice:
        """What differs, and what to do: worded when it is read."""
        return self.cause.word(self)

    @property
    def fix(self) -> Fix:
        """What to do about it; ``str`` makes a sentence of it."""
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
        before, after = self.before, self.after
        if (words := self.cause.values(self)) is not None:
            return words
        if isinstance(before, type) and isinstance(after, type) and before is not after:
            from leafwise._objects.classes import distinct_names  # noqa: PLC0415  # it names no JAX

            return distinct_names(before, after)
        return format_value(before), format_value(after)

    @property
    def rank(self) -> tuple[int, int]:
        """The position among other reasons: the lowest comes first."""
        return -self.outcome.severity, _RANKS[self.kind]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values; ``edit`` has what the sentence of the fix was made from."""
        fix = self.fix
        texts = (self.path, self.kind, self.outcome, *self.words, self.change, fix)
        names = ("path", "kind", "outcome", "before", "after", "change", "fix")
        record: dict[str, Any] = {
            name: without_addresses(str(text)) for name, text in zip(names, texts, strict=True)
        }
        return record | {"edit": fix.as_dict()} if fix.act or fix.names else record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Reason":
        """Return the reason that `as_dict` made a record of."""
        edit = record.get("edit")
        fix = Fix(record["fix"]) if edit is None else Fix.from_json(edit)
        values = Verbatim(record["before"]), Verbatim(record["after"])
        kind, outcome = ReasonKind(record["kind"]), Outcome(record["outcome"])
        return cls(record["path"], kind, outcome, *values, Advice(record["change"], fix))

    def __repr__(self) -> str:
        """Return the attributes that are to be read, as texts."""
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
    """Return a value as text; what is worded already as it is."""
    if type(value) is Verbatim or value is MISSING:
        return str(value)
    # A report is read without JAX, and all that it holds is worded.
    from leafwise._objects.classes import is_a  # noqa: PLC0415
    from leafwise._objects.describe import describe  # noqa: PLC0415

    return value.__qualname__ if is_a(value, type) else describe(value)


@dataclasses.dataclass(frozen=True)
class Explanation(ShownAsText):
    """What JAX does for a call, and all reasons for it.

    Attributes:
        outcome: What JAX does.
        reasons: What differs from the nearest earlier call, the most severe first.
        unsound: Statics that are distinct though JAX takes them for equal: the program of the
            first one answers for the other.
        nearest: The index of the nearest earlier call among those given. None if there was no
            earlier call.
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
        # A retrace or recompile makes a new dispatch entry anyway.
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
    Outcome.RECOMPILE: "lowered and compiled from a trace that was there",
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
    """Return reasons, all functions of an object that is recreated as one."""
    return [
        reason
        for several in _groups(reasons, lambda reason: reason.holder or id(reason))
        for reason in several[0].cause.merge(several)
    ]


def joined(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons, those that differ in their paths alone as one."""
    groups = _groups(reasons, lambda reason: (reason.kind, reason.change, reason.fix.alike))
    return [
        several[0]._replace(path=paths_of(reason.path for reason in several)) for several in groups
    ]


def _groups(reasons: Iterable[Reason], key: Callable[[Reason], Any]) -> list[list[Reason]]:
    groups: dict[Any, list[Reason]] = {}
    for reason in reasons:
        groups.setdefault(key(reason), []).append(reason)
    return list(groups.values())
