"""The key: one object behind which all statics of an instance stand.

It is the aux_data that JAX compares. Keys are interned: instances with statics that
cannot be told apart share one key object, so that JAX's comparison is one of identity.
Statics that can be told apart though they are the same value (frozen dataclasses,
partials, objects with their own ``==``) get a key of their own, which compares by the
interned `Token` of its value; their own objects thus come back from `jax.tree.map`.

Nothing here keeps a key alive: the tables hold weak references, and numbers.
"""

import functools
import threading
import typing
import weakref
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from leafwise._objects.class_map import ClassMap
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._statics import findings
from leafwise._statics.form import Canonicaliser, Digest, canonicalise, plain_form
from leafwise._statics.snapshot import Snapshot
from leafwise.errors import StaticFieldError, StaticMutatedError, static_field_error

if TYPE_CHECKING:
    from leafwise._statics.guards import Guards


LOCK: Final = threading.RLock()  # re-entrant: user code runs in == and in finalizers


class Token:
    """One canonical form, interned: two forms are equal if their tokens are one object.

    Attributes:
        form: The canonical form.
        values: The values whose types' and objects' ids stand in the form.
        hash_node: The extra child of instances whose class has ``many_statics``. It is one for
            all keys of this token: equal aux_data must not come with unequal children.
    """

    __slots__ = ("__weakref__", "form", "hash", "hash_node", "values")

    def __init__(
        self, form: tuple[Any, ...], hashed: int, values: tuple[Any, ...], hash_node: object
    ) -> None:
        """Keep the form, its hash, and the values alive."""
        self.form = form
        self.hash = hashed
        self.values = values
        self.hash_node = hash_node


T = TypeVar("T", bound=Token)


class WeakEntry(weakref.ref[T]):
    """A weak reference that removes itself from its table when its key dies."""

    __slots__ = ("place", "table")

    place: Any
    table: Any


def shrink_if_empty(table: dict[Any, Any]) -> None:
    """Free what an empty dict keeps for as many entries as it once had."""
    if not table:
        table.clear()


def no_key() -> None:
    """Stand where there was no key yet."""


def _forget_token(
    entry: WeakEntry[Any], lock: Any = LOCK, shrink_if_empty: Any = shrink_if_empty
) -> None:
    with lock:  # defaults, since globals are gone when the interpreter ends
        held = entry.table.get(entry.place)
        if held is not None:
            held[:] = [other for other in held if other is not entry]
            if not held:
                del entry.table[entry.place]
                shrink_if_empty(entry.table)


def _token_entry(token: T, table: dict[int, list[WeakEntry[T]]], hashed: int) -> WeakEntry[T]:
    entry = WeakEntry(token, _forget_token)
    entry.table, entry.place = table, hashed
    return entry


def intern(
    table: dict[int, list[WeakEntry[T]]],
    form: tuple[Any, ...],
    hashed: int,
    make: Callable[[], T],
) -> T:
    """Return the one living token of this form."""
    found = _find(table, form, hashed)
    if found is not None:
        return found
    made = make()
    with LOCK:
        found = _find(table, form, hashed)
        if found is not None:
            return found
        # Made first: a collection while it is made can empty, and so remove, the list.
        entry = _token_entry(made, table, hashed)
        table.setdefault(hashed, []).append(entry)
    return made


def _find(table: dict[int, list[WeakEntry[T]]], form: tuple[Any, ...], hashed: int) -> T | None:
    for entry in tuple(table.get(hashed, ())):
        token = entry()
        if token is not None and token.form == form:
            return token
    return None


class StaticOwner(Protocol):
    """What a key needs to know about the class it belongs to."""

    @property
    def cls(self) -> type:
        """The class."""
        ...

    @property
    def static_names(self) -> tuple[str, ...]:
        """Its static fields, in order."""
        ...

    @property
    def note(self) -> str:
        """Words that tell this class from others of its name; usually empty."""
        ...

    @property
    def hash_node(self) -> Callable[[tuple[Any, ...]], object] | None:
        """What picks the extra child of an instance by its statics, if it has one."""
        ...


def content_names(owner: StaticOwner) -> Container[str]:
    """Return the static fields that are compared by content."""
    names: Container[str] = getattr(owner, "content_names", ())
    return names


def read_statics(owner: StaticOwner, values: tuple[Any, ...]) -> Canonicaliser:
    """Read and validate the statics of one instance."""
    reading = Canonicaliser()
    reading.push(id(owner.cls))
    by_content = content_names(owner)
    for name, value in zip(owner.static_names, values, strict=True):
        path = f"{owner.cls.__name__}.{name}"
        if name in by_content:
            from leafwise._statics.content import read_by_content  # noqa: PLC0415  # few ask for it

            read_by_content(reading, value, path)
        else:
            canonicalise(reading, value, path)
    reading.raise_findings()
    return reading


def take_snapshot(owner: StaticOwner, values: tuple[Any, ...]) -> Snapshot:
    """Look at all that can be reached through the statics of one instance."""
    snapshot = Snapshot()
    for name, value in zip(owner.static_names, values, strict=True):
        snapshot.look(value, f"{owner.cls.__name__}.{name}")
    return snapshot


def refuse_tracers(snapshot: Snapshot) -> None:
    """Refuse statics through which a tracer can be reached.

    Raises:
        TracerInStaticError: One can be; all are named.
    """
    if snapshot.tracers:
        found = [findings.traced(path, value) for path, value in snapshot.tracers]
        kinds, each = zip(*found, strict=True)
        raise static_field_error(kinds, each)


KEY: Final = "__leafwise_key__"
"""The attribute of an instance that holds its key, once it is constructed."""


class StaticKey(Token):
    """The statics of an instance of one class, as JAX sees them.

    This kind is itself its token: equality is identity, and never runs Python code.

    Attributes:
        owner: The class, and the names of its static fields.
        values: The static values in field order, as `jax.tree.map` hands them out.
        fixed: Whether nothing in the values can change in place.
        guards: For each field by content: what it is made of, and what its code finds.
        rest_fixed: Whether nothing in the other fields can change.
        records: What watches the objects that could.
        snapshot: What could be reached through the values when the key was made.
        alias: Equal values that were met last, if they are long ones.
    """

    __slots__ = ("alias", "fixed", "guards", "owner", "records", "rest_fixed", "snapshot")

    def __init__(
        self,
        owner: StaticOwner,
        values: tuple[Any, ...],
        form: tuple[Any, ...],
        reading: Canonicaliser | None,
    ) -> None:
        """Keep what `reading` found of `values`; none was needed for plain ones."""
        hash_node = None if owner.hash_node is None else owner.hash_node(values)
        super().__init__(form, hash(form), values, hash_node)
        self.owner = owner
        self.rest_fixed = reading is None or reading.fixed
        self.guards: Sequence[tuple[Guards, Guards]] = () if reading is None else reading.guards
        self.fixed = self.rest_fixed and not self.guards
        self.records: Sequence[Digest] = () if reading is None else reading.records
        self.snapshot: Snapshot | None = None
        self.alias: tuple[Any, ...] | None = None

    def holds(self) -> bool:
        """Return whether values by content, and what their code finds, are as they were read."""
        return all(own.hold() and around.hold() for own, around in self.guards)

    def holds_itself(self) -> bool:
        """Return whether values by content are as they were read."""
        return all(own.hold() for own, _ in self.guards)

    def value_of(self, name: str) -> Any:
        """Return the value of a static field."""
        return self.values[self.owner.static_names.index(name)]

    def __repr__(self) -> str:
        """Return ``Params(a=2, act='relu')``: JAX prints it in its own messages."""
        look = DescribeOptions(self.hash & 0xFFFFFFFF, self.owner.cls.__module__)
        deep, by_content = look._replace(by_content=True), content_names(self.owner)
        pairs = zip(self.owner.static_names, self.values, strict=True)
        inside = ", ".join(
            f"{name}={describe(value, deep if name in by_content else look)}"
            for name, value in pairs
        )
        return f"{self.owner.cls.__name__}({inside}){self.owner.note}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by class and values; loading interns."""
        return _load_key, (self.owner.cls, self.values)

    def __copy__(self) -> "StaticKey":
        """Return itself: a key never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "StaticKey":
        """Return itself: a key never changes."""
        return self


class OwnStaticKey(StaticKey):
    """A key that holds its instance's own objects and compares by their common token."""

    __slots__ = ("token",)

    token: Token

    def __eq__(self, other: object) -> bool:
        """Return whether both stand for one token."""
        return isinstance(other, OwnStaticKey) and self.token is other.token

    def __hash__(self) -> int:
        """Return the hash of the form."""
        return self.hash


def _forget_key(
    entry: WeakEntry[StaticKey],
    lock: Any = LOCK,
    shrink_if_empty: Any = shrink_if_empty,
    no_key: Any = no_key,
) -> None:
    with lock:
        place, form = entry.place
        table: KeyTable = entry.table
        if table.known.get(place) is entry:
            del table.known[place]
            shrink_if_empty(table.known)
        if form is not None and table.plain.get(form) is entry:
            del table.plain[form]
            shrink_if_empty(table.plain)
        if table.last is entry:
            table.last = no_key


class KeyTable:
    """The keys of one class.

    Attributes:
        cls: The class whose keys these are.
        known: The keys by the ids of the static objects they hold. An id is proof only
            while its object lives: an entry leads to the very key that holds those
            objects, and goes with it.
        last: Leads to the last fixed key that was asked for, or to None.
        plain: The keys of plain values, by their form. Plain values lead nowhere, so that
            the table may hold them.
        tokens: The other interned forms, by hash.
    """

    __slots__ = ("_owner", "cls", "known", "last", "plain", "tokens")

    def __init__(self, cls: type) -> None:
        """Start empty."""
        self.cls = cls
        self.known: dict[tuple[int, ...], WeakEntry[StaticKey]] = {}
        self.last: Callable[[], StaticKey | None] = no_key
        self.plain: dict[tuple[Any, ...], WeakEntry[StaticKey]] = {}
        self.tokens: dict[int, list[WeakEntry[Any]]] = {}
        self._owner: StaticOwner | None = None

    @property
    def owner(self) -> StaticOwner:
        """What the decorator knows of the class, registered by now if it was not."""
        if self._owner is None:
            self._owner = _finders[0](self.cls)
        return self._owner

    def set_owner(self, owner: StaticOwner) -> None:
        """Name the class and its static fields."""
        self._owner = owner

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the class's name only: ids mean nothing in another process."""
        return table_of, (self.cls,)

    def place(
        self, key: StaticKey, ids: tuple[int, ...], form: tuple[Any, ...] | None = None
    ) -> None:
        """Let a key be found by the ids of its values, and by its form if that is plain."""
        entry = WeakEntry(key, _forget_key)
        entry.table, entry.place = self, (ids, form)
        self.known[ids] = entry
        if form is not None:
            self.plain[form] = entry
        if key.fixed:
            self.last = entry

    def alias(self, key: StaticKey, ids: tuple[int, ...], values: tuple[Any, ...]) -> None:
        """Let a key be found by equal values, too: the last ones, which it keeps alive."""
        with LOCK:
            if key.alias is not None:
                self.known.pop(tuple(map(id, key.alias)), None)
            key.alias = values
            entry = WeakEntry(key, _forget_key)
            entry.table, entry.place = self, (ids, None)
            self.known[ids] = entry


_LONG: Final = 32
"""A form of so many tokens takes longer to make again than an alias to keep."""

_finders: Final[list[Callable[[type], StaticOwner]]] = []


def find_owners_with(finder: Callable[[type], StaticOwner]) -> None:
    """Name the function that finds, and if need be registers, the class of a table."""
    _finders[:] = [finder]


_TABLES: Final[ClassMap[KeyTable]] = ClassMap()


def table_of(cls: type) -> KeyTable:
    """Return the one table of a class, which may not be registered yet."""
    return _TABLES.setdefault(cls, lambda: KeyTable(cls))


def _load_key(cls: type, values: tuple[Any, ...]) -> StaticKey:
    table = table_of(cls)
    _ = table.owner.static_names  # a `LazyOwner` announces its class when it is asked
    return key_of(table, values)


def key_of(table: KeyTable, values: tuple[Any, ...]) -> StaticKey:
    """Return the key of static values: an existing one, or one made after validation.

    Raises:
        StaticFieldError: A value cannot be static (all findings in one error).
        StaticMutatedError: A value changed in place since a key was made from it.
    """
    ids = tuple(map(id, values))
    entry = table.known.get(ids)
    known = entry() if entry is not None else None
    if known is not None and known.fixed:
        table.last = typing.cast("WeakEntry[StaticKey]", entry)
        return known
    if known is not None and known.guards and known.rest_fixed and known.holds():
        return known
    owner = table.owner
    form = plain_form(id(owner.cls), values)
    if form is not None:
        return _plain_key(table, values, ids, form)
    reading = read_statics(owner, values)
    if known is not None and known.form == reading.form:
        return known
    form = reading.form
    key: StaticKey
    if reading.fixed and not reading.guards:
        make = functools.partial(_make_key, owner, values, reading)
        key = intern(table.tokens, form, hash(form), make)
        if any(mine is not its for mine, its in zip(values, key.values, strict=True)):
            return key
    else:
        own = OwnStaticKey(owner, values, form, reading)
        make_token = functools.partial(Token, form, own.hash, values, own.hash_node)
        own.token = intern(table.tokens, form, own.hash, make_token)
        own.hash_node = own.token.hash_node
        key = _with_snapshot(own, reading)
    with LOCK:
        # Another thread may have made the key of the same objects meanwhile.
        entry = table.known.get(ids)
        other = entry() if entry is not None else None
        if other is not None and other.form == key.form:
            return other
        table.place(key, ids)
    return key


def _plain_key(
    table: KeyTable, values: tuple[Any, ...], ids: tuple[int, ...], form: tuple[Any, ...]
) -> StaticKey:
    """Return the key of plain values, which cannot be refused, and cannot change."""
    entry = table.plain.get(form)
    found = entry() if entry is not None else None
    if found is not None:
        if len(form) >= _LONG:
            table.alias(found, ids, values)
        return found
    made = StaticKey(table.owner, values, form, None)
    with LOCK:
        entry = table.plain.get(form)
        found = entry() if entry is not None else None
        if found is not None:
            return found
        table.place(made, ids, form)
    return made


def _make_key(owner: StaticOwner, values: tuple[Any, ...], reading: Canonicaliser) -> StaticKey:
    return _with_snapshot(StaticKey(owner, values, reading.form, reading), reading)


def _with_snapshot(key: StaticKey, reading: Canonicaliser) -> StaticKey:
    if reading.reaches or reading.guards:
        key.snapshot = take_snapshot(key.owner, key.values)
        refuse_tracers(key.snapshot)
    return key


def verify(key: StaticKey) -> None:
    """Read the values of a key again and compare with what it was made from.

    Raises:
        StaticMutatedError: Something changed; the message names field and path.
    """
    owner = key.owner
    passed = content_names(owner) if key.guards and _is_same_again(key) else ()
    if key.snapshot is not None:
        now = take_snapshot(owner, key.values)
        change = now.change_since(key.snapshot, passed)
        if change is not None:
            path, detail = change
            field = findings.field_of(path)
            place = f"{owner.cls.__name__}.{field}"
            message = findings.mutated(place, key.value_of(field), detail)
            raise StaticMutatedError(message)
    if not (key.fixed or passed) and read_statics(owner, key.values).form != key.form:
        raise StaticMutatedError(findings.mutated(_place_of_change(key), key.values))


def _place_of_change(key: StaticKey) -> str:
    """Return where something changed that no path leads to: a new attribute, or a global."""
    by_content = [name for name in key.owner.static_names if name in content_names(key.owner)]
    if not key.rest_fixed or len(by_content) != 1:
        return repr(key)
    return f"{key.owner.cls.__name__}.{by_content[0]}"


def _is_same_again(key: StaticKey) -> bool:
    """Return whether a key with values by content is the same still, and guard it anew."""
    try:
        reading = read_statics(key.owner, key.values)
    except (StaticFieldError, StaticMutatedError):
        return False
    if reading.form != key.form:
        return False
    key.guards = reading.guards
    return True


def verify_content(key: StaticKey) -> None:
    """Compare the values by content of a key with what it was made from.

    Unlike functions by identity they share programs with others, for which a changed one
    would be traced. So each flatten asks.

    Raises:
        StaticMutatedError: Something changed; the message names field and path.
    """
    if not key.holds_itself():
        verify(key)
