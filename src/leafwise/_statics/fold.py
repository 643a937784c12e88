"""One account of what a value holds: each path that leads to a part, and a token of what is there.

A *policy* reads one value at a time: it adds a token, hashable, that says what the value is apart
from its parts, and returns the parts that count. Two policies share this fold: how a key compares
(`leafwise._statics.form`), and how it compares functions by content (`content`). Under one policy
two values are the same exactly if their tokens are, in this order; what changed is at the first
path whose tokens differ.
"""

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from leafwise._objects.parts import Part
from leafwise._objects.stand_ins import ById
from leafwise._statics import findings
from leafwise._statics.guards import Guards
from leafwise.errors import StaticFieldError, StaticFinding

AGAIN: Final = object()
"""Stands in a token before the number of a value that is met again."""


class Position(enum.IntEnum):
    """Where a value stands, which decides what may stand there; by content alone it changes."""

    STATIC = 0
    """A static value, or a part of one."""
    HELD = 1
    """Inside a function, which may hold lists, arrays and objects."""
    ATTRIBUTE = 2
    """An attribute of an object: what cannot be compared is compared by identity."""
    NAMED = 3
    """What code finds by a name: as an attribute, but looked at less often."""


Reader: TypeAlias = Callable[["Fold", Any, str], Sequence[Part]]
"""Adds the tokens of a value that stands at a path, and returns its parts."""


class Policy(NamedTuple):
    """What of a value counts.

    Attributes:
        readers: What reads a value of each type, and under `object` all others.
        watch: Notes an object that could change; returns whether its parts are to be read.
        refuses_cycles: Whether what contains itself is refused; otherwise it is numbered.
    """

    readers: Mapping[type, Reader]
    watch: "Callable[[Fold, Any, str], bool]"
    refuses_cycles: bool = False


class Fold:
    """The account of some values under one policy.

    Attributes:
        paths: The path of each token, if somebody asks for them.
        tokens: What stands there.
        findings: What the policy refuses, in order.
        fixed: Whether nothing in it can change, so that identity is proof enough, and
            equal values are indistinguishable, so that one may stand for all.
        reaches: Whether code or attributes can be reached through it.
        kept: The values that are numbered, since their ids may stand in the tokens.
        records: Of the objects that could change a digest each; to be kept with the key.
        guards: For each field by content: what it is made of, and what its code finds.
        own: By content, what checks fast that nothing that a value is made of has changed.
        outer: The same of what its code finds by name, and of what hardly changes.
        position: Where the value stands that is being read; its parts stand where this says then.
    """

    __slots__ = (
        *("_attributes", "_ends", "_inside", "_members", "_named", "_numbers", "_readers"),
        *("findings", "fixed", "guards", "kept", "outer", "own"),
        *("paths", "policy", "position", "reaches", "records", "tokens"),
    )

    own: Guards
    outer: Guards

    def __init__(self, policy: Policy, paths: list[str] | None = None) -> None:
        self.policy = policy
        self._readers = policy.readers
        self.paths = paths
        self.tokens: list[Any] = []
        self.findings: list[StaticFinding] = []
        self.fixed = True
        self.reaches = False
        self.kept: list[Any] = []
        self.records: list[Any] = []
        self.guards: list[tuple[Guards, Guards]] = []
        self.position = Position.STATIC
        self._numbers: dict[int, int] = {}
        self._inside: int | None = None
        self._ends: tuple[Callable[[], object], ...] = ()
        self._members = 0
        self._attributes: list[tuple[Any, str]] = []
        self._named: list[tuple[Any, str]] = []

    @property
    def form(self) -> tuple[Any, ...]:
        """The canonical form: the tokens, once nothing is refused."""
        return tuple(self.tokens)

    @property
    def guard(self) -> Guards:
        """What checks that the value that is being read has not changed."""
        return self.outer if self.position is Position.NAMED else self.own

    def change_since(self, form: tuple[Any, ...]) -> str:
        """Return the path of the first token that differs from that of a form."""
        paths = self.paths or [""]
        pairs = zip(paths, self.tokens, form, strict=False)
        return next((path for path, mine, its in pairs if mine != its), paths[-1])

    def raise_findings(self, declaration: Callable[[str, str], str] | None = None) -> None:
        """Raise one error for all findings, which show the `declaration` of fields, if any."""
        if self.findings:
            raise StaticFieldError(
                *(findings.with_declaration(finding, declaration) for finding in self.findings)
            )

    # For those who want an account.

    def add(self, value: Any, path: str) -> Self:
        """Add the tokens of a value and its parts, and then of what these have deferred."""
        self._read(value, path)
        if not (self._attributes or self._named):
            return self
        for position, waiting in (
            (Position.ATTRIBUTE, self._attributes),
            (Position.NAMED, self._named),
        ):
            for item, where in waiting:  # which grows meanwhile
                self.position = position
                self._read(item, where)
        return self

    def _read(self, value: Any, path: str) -> None:
        reader = self._readers.get(type(value)) or self._readers[object]
        parts = reader(self, value, path)
        if not (parts or self._ends or self._inside):
            return
        inside, members, ends = self._inside, self._members, self._ends
        self._inside, self._members, self._ends = None, 0, ()
        if parts:
            position = self.position
            if members:
                self._read_members(parts[:members], path)
            for step, part in parts[members:] if members else parts:
                self._read(part, path + step)
                self.position = position
        if inside is not None:
            del self._numbers[inside]
        for end in ends:
            end()

    def _read_members(self, parts: Sequence[Part], path: str) -> None:
        """Add parts in any order, as a multiset: two NaNs of the same bits can both be in a set."""
        position, deferred = self.position, (self._attributes, self._named)
        forms, start = Counter[tuple[Any, ...]](), len(self.tokens)
        for step, part in parts:
            self._attributes, self._named = [], []  # what a member leads to belongs to it
            self.add(part, path + step)
            forms[tuple(self.tokens[start:])] += 1
            self._back_to(start)
            self.position = position
        self._attributes, self._named = deferred
        self.push(path, frozenset(forms.items()))

    def _back_to(self, start: int) -> None:
        del self.tokens[start:], (self.paths or [])[start:]

    # For readers.

    def push(self, path: str, *tokens: Any) -> None:
        """Add tokens."""
        self.tokens += tokens
        if self.paths is not None:
            self.paths += [path] * len(tokens)

    def enter(self, value: Any, path: str, *, is_shared: bool = False) -> bool:
        """Return whether the parts of a value are to be read; not where it is met again.

        It is met again inside itself; where it `is_shared`, since it can change, anywhere.
        """
        key, numbers = id(value), self._numbers
        if key not in numbers:
            numbers[key] = len(self.kept)
            self.kept.append(value)
            self._inside = None if is_shared else key
            return True
        if self.policy.refuses_cycles:
            self.findings.append(findings.cyclic(path, value))
        else:
            self.push(path, AGAIN, numbers[key])
        return False

    def in_any_order(self, members: int) -> None:
        """Let the order of so many of the parts that are returned, the first ones, not count."""
        self._members = members

    def at_end(self, run: Callable[[], object]) -> None:
        """Run something once all parts of the value that is being read are, the last one first."""
        self._ends = run, *self._ends

    def defer(self, value: Any, path: str, *, is_named: bool = False) -> None:
        """Read an attribute, or what code finds by a name, once all that is around is read."""
        is_named = is_named or self.position is Position.NAMED
        (self._named if is_named else self._attributes).append((value, path))

    def or_itself(self, value: Any, path: str) -> None:
        """Let the identity of a value stand for it, if something in it is refused."""
        tokens, problems, number = len(self.tokens), len(self.findings), len(self.kept)

        def end() -> None:
            if len(self.findings) > problems:
                self._back_to(tokens)
                del self.findings[problems:]
                self._numbers = {key: n for key, n in self._numbers.items() if n < number}
                self.push(path, ById(value))

        self.at_end(end)
