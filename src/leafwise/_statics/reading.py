"""The state of reading one instance's statics: the form so far, findings, watched objects."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leafwise._statics import findings
from leafwise.errors import (
    Finding,
    InconsistentHashError,
    StaticFieldError,
    StaticMutatedError,
    static_field_error,
)

if TYPE_CHECKING:
    from leafwise._statics.guards import Guards


class Opaque:
    """An object in a form that compares by its own ``==`` (types are equal already)."""

    __slots__ = ("_hash", "_path", "_value")

    def __init__(self, value: Any, hashed: int, path: str) -> None:
        """Keep the object alive, and the hash it had."""
        self._value = value
        self._hash = hashed
        self._path = path

    def __hash__(self) -> int:
        """Return the hash that the object had when it was read."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Ask the objects, identity first."""
        if not isinstance(other, Opaque):
            return NotImplemented
        if self._value is other._value:
            return True
        if self._hash != other._hash:
            return False
        try:
            return bool(self._value == other._value)
        except Exception as error:
            finding = findings.eq_raises(self._path, self._value, error)
            raise static_field_error([InconsistentHashError], [finding]) from error


class Record:
    """What an object that could change was read as, while some key is alive."""

    __slots__ = ("__weakref__", "digest", "value")

    def __init__(self, value: Any, digest: int) -> None:
        """Keep the object alive, so that its ``id`` stays its own."""
        self.value = value
        self.digest = digest


_RECORDS: Final[weakref.WeakValueDictionary[int, Record]] = weakref.WeakValueDictionary()

Reader: TypeAlias = Callable[["Reading", Any, str], None]

READERS: Final[dict[type, Reader]] = {}
"""What reads a value of each type, and under `object` all others: `_statics` fills it."""


def read(reading: "Reading", value: Any, path: str) -> None:
    """Add the form of `value`, which stands at `path`, to the reading."""
    readers = reading.readers
    reader = readers.get(type(value)) or readers[object]
    reader(reading, value, path)


class Reading:
    """All statics of one instance, read.

    Attributes:
        form: The canonical form (valid once `raise_findings` did not raise).
        fixed: Whether nothing in it can change, so that identity is proof enough, and
            equal values cannot be told apart, so that one may stand for all.
        reaches: Whether code or attributes can be reached through it.
        readers: What reads a value of each type.
        records: What watches the objects that could change; to be kept with the key.
        guards: For each field by content: what it is made of, and what its code finds.
    """

    __slots__ = ("_above", "_found", "_out", "fixed", "guards", "reaches", "readers", "records")

    def __init__(self, readers: Mapping[type, Reader] = READERS) -> None:
        """Start empty."""
        self.readers = readers
        self._out: list[Any] = []
        self._found: list[tuple[type[StaticFieldError], Finding]] = []
        self._above: set[int] = set()
        self.fixed = True
        self.reaches = False
        self.records: list[Record] = []
        self.guards: list[tuple[Guards, Guards]] = []

    @property
    def form(self) -> tuple[Any, ...]:
        """The canonical form."""
        return tuple(self._out)

    @property
    def accepts(self) -> bool:
        """Whether nothing has been found that forbids a key."""
        return not self._found

    @property
    def findings(self) -> "tuple[tuple[type[StaticFieldError], Finding], ...]":
        """What was found that cannot be static."""
        return tuple(self._found)

    def find(self, found: tuple[type[StaticFieldError], Finding]) -> None:
        """Note that a value cannot be static."""
        self._found.append(found)

    def raise_findings(self) -> None:
        """Raise one error for everything that was found, if anything was."""
        if self._found:
            kinds, found = zip(*self._found, strict=True)
            raise static_field_error(kinds, found)

    def take_over(self, other: "Reading") -> None:
        """Add the form and the findings of another reading."""
        self.push(*other.form)
        for found in other.findings:
            self.find(found)

    def apart(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        """Return the form of some parts, which are not added to this one."""
        outer, self._out = self._out, []
        try:
            read_parts()
            return tuple(self._out)
        finally:
            self._out = outer

    def push(self, *tokens: Any) -> None:
        """Add tokens to the form."""
        self._out.extend(tokens)

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read the parts of a container that could contain itself."""
        if id(value) in self._above:
            self.find(findings.cyclic(path, value))
            return
        self._above.add(id(value))
        try:
            read_parts()
        finally:
            self._above.discard(id(value))

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read an object of a class of its own, and see that it has not changed.

        Raises:
            StaticMutatedError: It was read before as something else, by a key that
                is still alive.
        """
        self.fixed = False
        self.reaches = True
        start, problems = len(self._out), len(self._found)
        self.inside(value, path, read_parts)
        if len(self._found) > problems:
            return
        digest = hash(tuple(self._out[start:]))
        record = _RECORDS.get(id(value))
        if record is None or record.value is not value:
            record = _RECORDS[id(value)] = Record(value, digest)
        elif record.digest != digest:
            raise StaticMutatedError(findings.mutated(path, value))
        self.records.append(record)
