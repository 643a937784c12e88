"""A fold that turns values into tokens, each with the path that it comes from.

A *policy* reads one value at a time: it adds a hashable token for the value apart from its parts,
and returns the parts that count. Under one policy, two values are the same exactly if their tokens
are equal, in order; a change is at the first path whose tokens differ.
"""

import contextlib
import enum
import functools
import operator
import types
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from leafwise._objects.parts import Part
from leafwise._objects.source.code import contents
from leafwise._objects.stand_ins import ById
from leafwise._statics import findings
from leafwise.errors import StaticFieldError, StaticFinding


class Guards:
    """The parts of some objects when they were read; one that is another object has changed.

    Fast enough to check at each flatten whether mutable objects have changed.
    """

    __slots__ = ("_cells", "_in_cells", "_others")

    def __init__(self) -> None:
        self._cells: list[types.CellType] = []
        self._in_cells: list[Any] = []
        self._others: list[tuple[Callable[[Any], Any], Any, Any]] = []

    def add_cells(self, function: types.FunctionType) -> None:
        cells = function.__closure__ or ()
        self._cells += cells
        self._in_cells += map(contents, cells)

    def add(self, read: Callable[[Any], Any], target: Any) -> None:
        self._others.append((read, target, read(target)))

    def unchanged(self) -> bool:
        try:
            return all(map(operator.is_, map(_CONTENTS, self._cells), self._in_cells)) and all(
                _same(read(target), was) for read, target, was in self._others
            )
        except (ValueError, TypeError, AttributeError):  # an emptied cell, a value without a hash
            return False


_CONTENTS: Final = operator.attrgetter("cell_contents")


def _same(now: Any, was: Any) -> bool:
    return len(now) == len(was) and all(
        one is two or (type(one) in (int, str, bytes) and type(two) is type(one) and one == two)
        for one, two in zip(now, was, strict=True)
    )


AGAIN: Final = object()
"""The token before the number of a value that occurs again."""


class Position(enum.IntEnum):
    """Where a value is, which decides what is allowed there; only `content` changes it."""

    STATIC = 0  # a static value, or a part of one
    HELD = 1  # inside a function, which may hold lists, arrays and objects
    ATTRIBUTE = 2  # of an object: what cannot be compared is compared by identity
    NAMED = 3  # read by code under a name: like an attribute, but checked less often


Reader: TypeAlias = Callable[[Any, Any, Any], Sequence[Part]]
"""Adds the tokens of the value at a path to a fold, and returns its parts, each with its step.

A path is the sum of its steps: a string, or in an account a tuple.
"""


def number_again(fold: "Fold", _value: Any, path: Any, number: int) -> None:
    fold.push(path, AGAIN, number)


class Policy(NamedTuple):
    """Which parts of a value count."""

    readers: Mapping[type, Reader]  # by type; that for `object` reads all other types
    # Records an object that can change; returns whether to read its parts.
    watch: "Callable[[Fold, Any, str], bool]"
    # Adds the token of a value that occurs again, or rejects it.
    again: "Callable[[Any, Any, Any, int], None]" = number_again


class Fold:
    """The tokens of some values under one policy."""

    __slots__ = (
        *("_attributes", "_ends", "_inside", "_members", "_named", "_numbers", "_readers"),
        *("findings", "fixed", "guards", "kept", "outer", "own"),
        *("paths", "policy", "position", "reaches", "records", "tokens"),
    )

    own: Guards  # by content: of what a value consists of
    outer: Guards  # of what its code reads by name, and of what hardly ever changes

    def __init__(self, policy: Policy, paths: list[Any] | None = None) -> None:
        self.policy = policy
        self._readers = policy.readers
        self.paths = paths  # that of each token, or None if they are not needed
        self.tokens: list[Any] = []
        self.findings: list[StaticFinding] = []
        # Whether nothing in the values can change, so that the same objects always have the same
        # tokens, and equal values are indistinguishable, so that one can replace all.
        self.fixed = True
        self.reaches = False  # whether functions or attributes can be reached through the values
        self.kept: list[Any] = []  # the numbered values: their ids may be in the tokens
        self.records: list[Any] = []  # the digests of the objects that can change, for the key
        self.guards: list[tuple[Guards, Guards]] = []  # `own` and `outer`, by field by content
        self.position = Position.STATIC  # of the value being read; its reader sets its parts'
        self._numbers: dict[int, int] = {}
        self._inside: int | None = None
        self._ends: tuple[Callable[[], object], ...] = ()
        self._members = 0
        self._attributes: list[tuple[Any, str]] = []
        self._named: list[tuple[Any, str]] = []

    @property
    def form(self) -> tuple[Any, ...]:
        return tuple(self.tokens)

    @property
    def guard(self) -> Guards:
        """The guards that check the value being read."""
        return self.outer if self.position is Position.NAMED else self.own

    def change_since(self, form: tuple[Any, ...]) -> str:
        """Return the path of the first token that differs from an earlier form."""
        paths: list[str] = self.paths or [""]
        pairs = zip(paths, self.tokens, form, strict=False)
        return next((path for path, token, earlier in pairs if token != earlier), paths[-1])

    def raise_findings(self, declaration: Callable[[str, str], str] | None = None) -> None:
        """Raise one error for all findings, if any; they show the `declaration` of their fields."""
        if self.findings:
            raise StaticFieldError(
                *(findings.with_declaration(finding, declaration) for finding in self.findings)
            )

    @property
    def size(self) -> int:
        """The number of values that were read or deferred."""
        return max(len(self.tokens), len(self._attributes) + len(self._named))

    # For callers.

    def add(self, value: Any, path: Any) -> Self:
        """Add the tokens of a value and its parts, and then those of the values they deferred."""
        self._read(value, path)
        return self.add_deferred() if self._attributes or self._named else self

    def add_deferred(self) -> Self:
        """Add the tokens of deferred values, and of those that these defer."""
        for position, waiting in (
            (Position.ATTRIBUTE, self._attributes),
            (Position.NAMED, self._named),
        ):
            for item, where in waiting:  # which grows in this loop
                self.position = position
                self._read(item, where)
        return self

    def _read(self, value: Any, path: Any) -> None:
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

    def _read_members(self, parts: Sequence[Part], path: Any) -> None:
        """Add parts in any order, as a multiset: two NaNs of the same bits can both be in a set."""
        position, deferred = self.position, (self._attributes, self._named)
        forms, start = Counter[tuple[Any, ...]](), len(self.tokens)
        for step, part in parts:
            self._attributes, self._named = [], []  # what a member leads to belongs to it
            self.add(part, path + step)
            forms[tuple(self.tokens[start:])] += 1
            self.back_to(start)
            self.position = position
        self._attributes, self._named = deferred
        self.push(path, frozenset(forms.items()))

    # For readers.

    def back_to(self, start: int) -> None:
        del self.tokens[start:], (self.paths or [])[start:]

    def push(self, path: Any, *tokens: Any) -> None:
        self.tokens += tokens
        if self.paths is not None:
            self.paths += [path] * len(tokens)

    def enter(self, value: Any, path: Any, *, is_shared: bool = False) -> bool:
        """Return whether to read the parts of a value; False if it occurs again."""
        # That means inside itself or, if it `is_shared` because it can change, anywhere.
        key, numbers = id(value), self._numbers
        if key not in numbers:
            numbers[key] = len(self.kept)
            self.kept.append(value)
            self._inside = None if is_shared else key
            return True
        self.policy.again(self, value, path, numbers[key])
        return False

    def is_numbered(self, value: Any) -> bool:
        """Return whether `enter` would say that a value occurs again."""
        return id(value) in self._numbers

    def number_parts_apart(self) -> None:
        """Forget the numbers of the parts of the current value once they are read."""
        self.at_end(functools.partial(setattr, self, "_numbers", dict(self._numbers)))

    @contextlib.contextmanager
    def apart(self, owner: Any) -> Generator[None, None, None]:
        """Read values in this block by themselves, as parts of `owner`; forget their numbers."""
        numbers, self._numbers = self._numbers, {**self._numbers, id(owner): len(self.kept)}
        deferred, self._attributes, self._named = (self._attributes, self._named), [], []
        self.kept.append(owner)
        try:
            yield
        finally:
            self._numbers = numbers
            self._attributes, self._named = deferred

    def in_any_order(self, members: int) -> None:
        self._members = members

    def at_end(self, run: Callable[[], object]) -> None:
        """Call `run` once all parts of the current value are read; the last added runs first."""
        self._ends = run, *self._ends

    def defer(self, value: Any, path: Any, *, is_named: bool = False) -> None:
        """Read an attribute, or what code reads by name, after everything around it."""
        is_named = is_named or self.position is Position.NAMED
        (self._named if is_named else self._attributes).append((value, path))

    def or_itself(self, value: Any, path: str) -> None:
        """Compare a value by identity if something in it is rejected."""
        tokens, problems, number = len(self.tokens), len(self.findings), len(self.kept)

        def end() -> None:
            if len(self.findings) > problems:
                self.back_to(tokens)
                del self.findings[problems:]
                self._numbers = {key: n for key, n in self._numbers.items() if n < number}
                self.push(path, ById(value))

        self.at_end(end)
