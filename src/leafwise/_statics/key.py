"""The key: one object that represents all statics of an instance.

It is the aux_data that JAX compares. Keys are interned: instances with indistinguishable statics
share one key object, so that JAX's comparison comes down to identity. Statics that are equal but
distinguishable (frozen dataclasses, partials, objects with their own ``==``) get a key of their
own, which compares by the interned `Token` of its value; so `jax.tree.map` returns the very objects
that went in.

The tables contain weak references and numbers. For each class they keep one key alive, the latest
of plain values, so that short-lived instances do not create it again and again.
"""

import dataclasses
import functools
import weakref
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NoReturn, Protocol, TypeVar

import jax

from leafwise._objects.classes import ClassMap, redefined_mark
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.interrupts import reraise_interrupt
from leafwise._objects.locks import new_lock
from leafwise._statics import findings
from leafwise._statics.account import Account
from leafwise._statics.fold import Fold, Guards
from leafwise._statics.form import AS_KEY, Digest, plain_form
from leafwise._statics.reached import change_between, reached
from leafwise.errors import DefinitionError, StaticFieldError, StaticMutatedError

LOCK: Final = new_lock()

_DEAD: Final = deque["WeakEntry[Any]"]()
"""The entries of dead tokens, to be removed from their tables when the next key is added.

Adding an entry here is all that runs when a token dies. It is C code: if a signal handler raised in
a callback in Python, Python would only print the exception.
"""


class Token:
    """One canonical form, interned: two forms are equal if their tokens are the same object."""

    __slots__ = ("__weakref__", "form", "hash", "hash_node", "values")

    def __init__(self, form: tuple[Any, ...], values: tuple[Any, ...], hash_node: object) -> None:
        self.form = form
        self.hash = hash(form)
        self.values = values  # whose ids, or whose types' ids, are in the form
        # The extra child of instances whose class has ``many_statics``. All keys of this token
        # share it: equal aux_data must not come with unequal children.
        self.hash_node = hash_node


T = TypeVar("T", bound=Token)


class WeakEntry(weakref.ref[T]):
    """A weak reference that is removed from its table when its token has died."""

    __slots__ = ("position", "table")

    position: Any
    table: Any

    def forget(self) -> None:
        """Remove the entry from its table, if it is still there."""
        entries = self.table.get(self.position, [])
        entries[:] = [other for other in entries if other is not self]
        if not entries:
            self.table.pop(self.position, None)


class KeyEntry(WeakEntry["StaticKey"]):
    """A weak reference to a key, by its ids and its form."""

    __slots__ = ()

    def forget(self) -> None:
        """Remove the entry from its table, unless a later key has taken its place."""
        ids, form = self.position
        table: KeyTable = self.table
        if table.known.get(ids) is self:
            del table.known[ids]
        if form is not None and table.plain.get(form) is self:
            del table.plain[form]
        if table.last is self:
            table.last = no_key


def _forget_dead() -> None:
    """Remove the entries of dead tokens; the caller has the lock."""
    while _DEAD:
        _DEAD[0].forget()
        _DEAD.popleft()  # afterwards: a signal handler may raise


def no_key() -> "StaticKey | None":
    """Stand in for the weak reference to a key before there is one."""
    return None


def intern(table: dict[int, list[WeakEntry[T]]], form: tuple[Any, ...], make: Callable[[], T]) -> T:
    """Return the only live token of this form, which `make` creates if needed."""
    hashed = hash(form)
    known = _find(table, form, hashed)
    if known is not None:
        return known
    token = make()
    with LOCK:
        known = _find(table, form, hashed)
        if known is not None:
            return known
        # Before the list is looked up: making an entry can start a garbage collection,
        # which can empty the list, and so remove it from the table.
        entry = WeakEntry(token, _DEAD.append)
        entry.table, entry.position = table, hashed
        table.setdefault(hashed, []).append(entry)
        _forget_dead()
    return token


def _find(table: dict[int, list[WeakEntry[T]]], form: tuple[Any, ...], hashed: int) -> T | None:
    for entry in tuple(table.get(hashed, ())):
        token = entry()
        if token is not None and token.form == form:
            return token
    return None


class StaticOwner(Protocol):
    """What a key needs to know about its class."""

    @property
    def cls(self) -> type: ...

    @property
    def static_names(self) -> tuple[str, ...]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentOwner:
    """The `StaticOwner` of an argument that is passed as a key: its function and its name."""

    cls: type
    static_names: tuple[str, ...]
    note: str = ""


def content_names(owner: StaticOwner) -> Container[str]:
    names: Container[str] = getattr(owner, "content_names", ())
    return names


def read_statics(
    owner: StaticOwner, values: tuple[Any, ...], paths: list[str] | None = None
) -> Fold:
    """Return the fold of static values, with the path of each token if `paths` is a list."""
    canon = Fold(AS_KEY, paths)
    canon.push("", id(owner.cls))
    by_content = content_names(owner)
    for name, value in zip(owner.static_names, values, strict=True):
        path = f"{owner.cls.__name__}.{name}"
        try:
            if name in by_content:
                from leafwise._statics.content import read_by_content  # noqa: PLC0415  # rare

                read_by_content(canon, value, path)
            else:
                canon.add(value, path)
        except (StaticFieldError, StaticMutatedError):
            raise
        except Exception as error:  # noqa: BLE001  # the code of a value may raise anything
            reraise_interrupt(error)
            canon.findings.append(findings.unreadable(path, value, error))
    canon.raise_findings(getattr(owner, "declaration", None))
    return canon


def reached_from(owner: StaticOwner, values: tuple[Any, ...]) -> Account:
    """Return what can be reached from statics, by path; raise if a tracer is reached."""
    names = [f"{owner.cls.__name__}.{name}" for name in owner.static_names]
    return reached(zip(names, values, strict=True))


KEY: Final = "__leafwise_key__"
"""The attribute of an instance that holds its key, once it is constructed."""


class StaticKey(Token):
    """The statics of an instance of one class, as JAX sees them.

    This kind is its own token: equality is identity, and never runs Python code.
    """

    __slots__ = ("fixed", "guards", "owner", "reached", "records", "rest_fixed")

    def __init__(
        self,
        owner: StaticOwner,
        values: tuple[Any, ...],
        form: tuple[Any, ...],
        canon: Fold | None,  # plain values need none
    ) -> None:
        pick: Any = getattr(owner, "hash_node", None)
        hash_node = None if pick is None else pick(values)
        super().__init__(form, values, hash_node)
        self.owner = owner
        # Whether nothing in the fields that are not compared by content can change in place.
        self.rest_fixed = canon is None or canon.fixed
        # For each field by content: what it consists of, and what its code reads.
        self.guards: Sequence[tuple[Guards, Guards]] = () if canon is None else canon.guards
        self.fixed = self.rest_fixed and not self.guards
        self.records: Sequence[Digest] = () if canon is None else canon.records
        self.reached: Account | None = None  # through the values, when the key was made

    def unchanged(self) -> bool:
        """Return whether values compared by content, and what their code reads, are unchanged."""
        return all(own.unchanged() and outer.unchanged() for own, outer in self.guards)

    def value_of(self, name: str) -> Any:
        return self.values[self.owner.static_names.index(name)]

    def __repr__(self) -> str:
        """Return ``Params(a=2, act='relu')``: JAX prints it in its own messages."""
        shallow = DescribeOptions(self.hash & 0xFFFFFFFF, self.owner.cls.__module__)
        deep, by_content = shallow._replace(by_content=True), content_names(self.owner)
        inside = ", ".join(
            f"{name}={describe(value, deep if name in by_content else shallow)}"
            for name, value in zip(self.owner.static_names, self.values, strict=True)
        )
        return f"{self.owner.cls.__name__}({inside}){redefined_mark(self.owner.cls)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_key, (table_of(self.owner.cls), self.values)

    def __copy__(self) -> "StaticKey":
        return self  # a key never changes

    def __deepcopy__(self, memo: dict[int, Any]) -> "StaticKey":
        return self


class OwnStaticKey(StaticKey):
    """A key with objects of its own, which compares by the token that equal keys share."""

    __slots__ = ("token",)

    token: Token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnStaticKey) and self.token is other.token

    def __hash__(self) -> int:
        return self.hash


# An instance keeps its key in its `__dict__`, so that `vars` of it is a tree of its fields.
for _kind in (StaticKey, OwnStaticKey):
    jax.tree_util.register_pytree_node(_kind, lambda key: ((), key), lambda key, _: key)


class KeyTable:
    """The keys of one class."""

    __slots__ = ("_owner", "cls", "find_owner", "kept", "known", "last", "plain", "tokens")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        # By the ids of their static objects. An id is valid only while its object lives: an entry
        # refers to the key that keeps those objects alive, and disappears with it.
        self.known: dict[tuple[int, ...], KeyEntry] = {}
        self.last: Callable[[], StaticKey | None] = no_key  # the last fixed key that was returned
        # By their form. Plain values refer to nothing else, so the table may keep them alive.
        self.plain: dict[tuple[Any, ...], KeyEntry] = {}
        self.kept: StaticKey | None = None  # of a few plain values, alive without an instance
        self.tokens: dict[int, list[WeakEntry[Any]]] = {}  # the other interned forms, by hash
        self._owner: StaticOwner | None = None
        self.find_owner: Callable[[type], StaticOwner] = _refuse_unregistered

    @property
    def owner(self) -> StaticOwner:
        """The class and its static fields, if it is registered in this process."""
        if self._owner is None:
            self._owner = self.find_owner(self.cls)
        return self._owner

    def set_owner(
        self, owner: StaticOwner, find_owner: Callable[[type], StaticOwner] | None = None
    ) -> None:
        # `find_owner` finds it where the table is loaded before the class is registered, as when
        # cloudpickle sends a class by value with the table in its constructor's globals. It
        # travels with the table, so it is pickled by name.
        self._owner = owner
        if find_owner is not None:
            self.find_owner = find_owner

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the keys: ids mean nothing in another process.
        return _load_table, (self.cls, self.find_owner)

    def add(
        self, key: StaticKey, ids: tuple[int, ...], form: tuple[Any, ...] | None = None
    ) -> None:
        """Add a key by the ids of its values, and by its form if that is plain."""
        entry = KeyEntry(key, _DEAD.append)
        entry.table, entry.position = self, (ids, form)
        if form is not None:  # first: it is what makes the key the only one of its form
            self.plain[form] = entry
            texts = (token for token in form if type(token) in (str, bytes))
            is_small = len(form) < _LONG and all(len(text) < _LONG_TEXT for text in texts)
            self.kept = key if is_small else self.kept
        self.known[ids] = entry
        if key.fixed:
            self.last = entry
        _forget_dead()


_LONG: Final = 32
"""Only forms with fewer tokens keep their key alive."""

_LONG_TEXT: Final = 1 << 10


def _refuse_unregistered(cls: type) -> StaticOwner:
    raise DefinitionError(
        f"{cls.__name__}: not registered as a pytree in this process\n"
        f"  fix: call lw.register({cls.__name__}, ...) in the module that defines it"
    )


_TABLES: Final[ClassMap[KeyTable]] = ClassMap()


def table_of(cls: type) -> KeyTable:
    """Return the key table of a class, which may not be registered yet."""
    return _TABLES.setdefault(cls, lambda: KeyTable(cls))


def _load_table(cls: type, find_owner: Callable[[type], StaticOwner]) -> KeyTable:
    table = table_of(cls)
    table.find_owner = find_owner
    return table


def _load_key(table: KeyTable, values: tuple[Any, ...]) -> StaticKey:
    _ = table.owner.static_names  # a `LazyOwner` registers its class when it is read
    return key_of(table, values)


def key_of(table: KeyTable, values: tuple[Any, ...]) -> StaticKey:
    """Return the key of static values: an existing one, or one made after validation.

    Raises:
        StaticFieldError: A value cannot be static (all findings in one error).
        StaticMutatedError: A value changed in place since a key was made from it.
    """
    ids = tuple(map(id, values))
    entry = table.known.get(ids, no_key)
    known = entry()
    if known is not None and known.fixed:
        table.last = entry
        return known
    if known is not None and known.guards and known.rest_fixed and known.unchanged():
        return known
    owner = table.owner
    form = plain_form(id(owner.cls), values)
    if form is not None:
        return _plain_key(table, values, ids, form)
    canon = read_statics(owner, values)
    if known is not None and known.form == canon.form:
        return known
    form = canon.form
    key: StaticKey
    if canon.fixed and not canon.guards:
        key = intern(
            table.tokens, form, lambda: _with_reached(StaticKey(owner, values, form, canon), canon)
        )
        if any(value is not kept for value, kept in zip(values, key.values, strict=True)):
            return key
    else:
        own = OwnStaticKey(owner, values, form, canon)
        make_token = functools.partial(Token, form, values, own.hash_node)
        own.token = intern(table.tokens, form, make_token)
        own.hash_node = own.token.hash_node
        key = _with_reached(own, canon)
    with LOCK:
        # Another thread may have made the key of the same objects meanwhile.
        other = table.known.get(ids, no_key)()
        if other is not None and other.form == key.form:
            return other
        table.add(key, ids)
    return key


def _plain_key(
    table: KeyTable, values: tuple[Any, ...], ids: tuple[int, ...], form: tuple[Any, ...]
) -> StaticKey:
    """Return the key of plain values, which are never rejected and cannot change."""
    known = table.plain.get(form, no_key)()
    if known is not None:
        return known
    key = StaticKey(table.owner, values, form, None)
    with LOCK:
        known = table.plain.get(form, no_key)()
        if known is not None:
            return known
        table.add(key, ids, form)
    return key


def _with_reached(key: StaticKey, canon: Fold) -> StaticKey:
    if canon.reaches or canon.guards:
        key.reached = reached_from(key.owner, key.values)
    return key


def verify(key: StaticKey) -> None:
    """Read the values of a key again, and raise if one has changed, with its field and path."""
    owner, now, problem = key.owner, None, None
    try:
        now = None if key.fixed else read_statics(owner, key.values, [])
    except (StaticFieldError, StaticMutatedError) as error:
        problem = error  # a message about what can be reached is more precise
    is_same = key.fixed or (now is not None and now.form == key.form)
    passed: Container[str] = ()
    if now is not None and is_same and key.guards:
        # Guards compare by identity, so replacing an object with an equal one triggers them.
        key.guards, passed = now.guards, content_names(owner)
    if key.reached is not None:
        change = change_between(key.reached, reached_from(owner, key.values), passed)
        if change is not None:
            _raise_mutated(key, *change)
    if problem is not None:
        raise problem
    if now is not None and not is_same:
        _raise_mutated(key, now.change_since(key.form))


def _raise_mutated(key: StaticKey, path: str, detail: str = "") -> NoReturn:
    field = findings.field_of(path)
    where = f"{key.owner.cls.__name__}.{field}" if detail else path
    raise StaticMutatedError(findings.mutated(where, key.value_of(field), detail))


def verify_content(key: StaticKey) -> None:
    """Check at each flatten that the values that a key compares by content have not changed."""
    # A function compared by identity has its own programs. One compared by content shares them
    # with equal functions, and must not be traced in their place once it has changed.
    if not all(own.unchanged() for own, _ in key.guards):
        verify(key)


def argument_value(argument: Any) -> Any:
    """Return the value of a static argument, which may be passed as a key."""
    if isinstance(argument, StaticKey) and isinstance(argument.owner, ArgumentOwner):
        return argument.values[0]
    return argument
