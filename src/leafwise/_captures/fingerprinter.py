"""The fingerprint of one value: a form that is equal as long as the value has not changed.

Nothing large is kept alive: of an array, a function or an object there is a weak reference, of
what can change in place the content, up to a size. No ``==`` of the user's runs.
"""

import itertools
import operator
import struct
import types
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.classes import is_a

MOST_BYTES: Final = 1 << 10
"""A NumPy array, or a text, of more bytes than these is large."""

MOST_ITEMS: Final = 32
"""A container of more items than these is large."""

MOST_ATTRIBUTES: Final = 128
"""An object of more attributes than these is large."""

MOST_PARTS: Final = 128
"""So many containers and objects of a value are fingerprinted; further ones are large."""

_MOST_COMPARED: Final = 1 << 26
"""Two JAX arrays of more bytes than these are different ones unless they are one object."""

Same: TypeAlias = Callable[[Any], bool]


class Fingerprinted(NamedTuple):
    """The fingerprint of a value.

    Attributes:
        form: Equal for values that cannot be distinguished.
        same: A fast check whether a value is this one, unchanged; None if being the same object
            is enough, and the object is small.
        is_fixed: Whether it is the same as long as it is the same object.
        source: The source of `same`, if it can be written out.
    """

    form: Any
    same: Same | None = None
    is_fixed: bool = False
    source: "Source | None" = None

    def terms(self, found: str, value: Any, names: "Names") -> list[str]:
        """Return expressions that are all true as long as `found` reads the value unchanged.

        Args:
            found: An expression, which is evaluated once.
            value: The value.
            names: The names of what the expressions need.
        """
        if self.same is None:
            return [f"{found} is {names.of('value', value)}"]
        if self.source is not None and names.room > 0:
            names.room -= 1
            return self.source(found, names)
        return [f"{names.of('same', self.same)}({found})"]


class Names:
    """The names of the values that generated code needs.

    Attributes:
        values: The values by name.
        room: So many more values are looked into by code of their own.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.room = _MOST_WRITTEN_OUT
        self._known: dict[tuple[str, int], str] = {}
        self._locals = itertools.count()

    def local(self) -> str:
        """Return a new name of a local variable."""
        return f"at_{next(self._locals)}"

    def of(self, kind: str, value: Any) -> str:
        """Return the name of a value, which begins with a word for what it is."""
        name = self._known.setdefault((kind, id(value)), f"{kind}_{len(self.values)}")
        self.values[name] = value
        return name


_MOST_WRITTEN_OUT: Final = 64
Source: TypeAlias = Callable[[str, Names], list[str]]


class Form(NamedTuple):
    """The form of a value with parts.

    Attributes:
        kind: The class, and what else is not one of its parts.
        steps: The way to each part: ``.rate``, ``['a']``; empty if it has no name.
        parts: The form of each.
    """

    kind: Any
    steps: tuple[str, ...]
    parts: tuple[Any, ...]


class TooLarge(Exception):  # noqa: N818  # a signal between two functions of this module
    """A value is too large for its content to be compared."""


class Fingerprinter:
    """Fingerprints one value, and what is inside it.

    Args:
        kinds: The function that fingerprints values of each type, the most special types first.
        words: The names of the attributes that count of a plain object.
    """

    def __init__(self, kinds: "Kinds", words: frozenset[str]) -> None:
        self._kinds = kinds
        self.words = words
        self._room = MOST_PARTS
        self._met: dict[int, tuple[int, Any]] = {}

    def fingerprint(self, value: Any) -> Fingerprinted:
        """Fingerprint a value, or a part of it."""
        kind: Any = type(value)
        if kind in PLAIN:
            return self._plain(value)
        # One object in two places is not the same as two equal ones: code may ask `a is b`.
        if id(value) in self._met and not issubclass(kind, _SINGLE):
            return as_one(("again", self._met[id(value)][0]), value)
        self._met[id(value)] = len(self._met), value  # so that the id is not used again
        try:
            of_kind = next(each for kinds, each in self._kinds if is_a(value, kinds))
            return of_kind(self, value)
        except TooLarge:
            return _by_identity(value)
        except Exception:  # noqa: BLE001  # the user's own code
            return _by_identity(value)

    def fingerprint_all(self, values: list[Any]) -> list[Fingerprinted]:
        """Fingerprint the parts of a value; one of many parts leaves room for the others."""
        left = sum(not _is_leaf(value) for value in values)
        found: list[Fingerprinted] = []
        for value in values:
            if _is_leaf(value):
                found.append(self.fingerprint(value))
                continue
            share = -(-self._room // left)
            kept, self._room, left = self._room - share, share, left - 1
            found.append(self.fingerprint(value))
            self._room += kept
        return found

    def fingerprint_apart(self, values: list[Any]) -> list[Fingerprinted]:
        """Fingerprint parts that no check looks into, so that each is looked into elsewhere."""
        met, self._met = self._met, dict(self._met)
        try:
            return self.fingerprint_all(values)
        finally:
            self._met = met

    def enter(self) -> None:
        """Raise if there is no room for a value with parts."""
        if self._room <= 0:
            raise TooLarge
        self._room -= 1

    def check_size(self, size: int, most: int) -> None:
        """Raise if a value is large."""
        if size > most:
            raise TooLarge

    def _plain(self, value: Any) -> Fingerprinted:
        kind = type(value)
        if kind is float:
            return Fingerprinted((kind, struct.pack("d", value)), is_fixed=True)
        if kind is complex:
            parts = struct.pack("dd", value.real, value.imag)
            return Fingerprinted((kind, parts), is_fixed=True)
        if kind in (str, bytes) and len(value) > MOST_BYTES:
            return _large_text(value)
        return Fingerprinted((kind, value), is_fixed=True)


def _large_text(value: str | bytes) -> Fingerprinted:
    """Fingerprint a text by its hash, which it keeps: another one may get its address."""
    kind, known = type(value), hash(value)

    def source(found: str, names: Names) -> list[str]:
        at = names.local()
        terms = f"type({at} := {found}) is {names.of('kind', kind)}"
        return [terms, f"hash({at}) == {names.of('hash', known)}"]

    same: Same = lambda now: type(now) is kind and bool(hash(now) == known)  # noqa: E731
    return Fingerprinted((kind, len(value), known), same, source=source)


Kinds: TypeAlias = tuple[tuple[Any, Callable[[Fingerprinter, Any], Fingerprinted]], ...]

PLAIN: Final = frozenset(
    {int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)


_SINGLE: Final = (np.generic, np.dtype, type, Enum, types.ModuleType)
"""The types whose values nobody distinguishes from equal ones, or of which none are equal."""

_LEAVES: Final = (jax.Array, np.ndarray, np.generic, np.dtype, type, Enum, types.ModuleType)


def _is_leaf(value: Any) -> bool:
    kind: Any = type(value)
    return kind in PLAIN or issubclass(kind, _LEAVES)


class ByWeakId:
    """An object that is equal to itself alone, and is not kept alive; a container with its size.

    Args:
        value: The object. Of one that takes no weak references, the address is compared.
    """

    __slots__ = ("_find", "_place")

    @property
    def kind(self) -> type:
        """The type of the object."""
        return self._place[1]

    def __init__(self, value: Any) -> None:
        self._place = _place_of(value)
        self._find = _weak(value)

    def is_of(self, value: Any) -> bool:
        """Return whether a value is this object."""
        return self._place == _place_of(value) and self._is_there()

    def _is_there(self) -> bool:
        return self._find is None or self._find() is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByWeakId) and self._place == other._place and self._is_there()

    def __hash__(self) -> int:
        return hash(self._place)


def _place_of(value: Any) -> tuple[int, type[Any], int]:
    kind = type(value)  # an object may say another thing to `isinstance`, or raise
    return id(value), kind, len(value) if issubclass(kind, list | dict | set) else 0


class OfArray:
    """A JAX array, which never changes: equal to one of the same type and content."""

    __slots__ = ("_bytes", "_find", "_type")

    def __init__(self, value: Any) -> None:
        weak = bool(getattr(value, "weak_type", False))  # which a PRNG key does not have
        self._type = str(value.dtype), tuple(value.shape), weak
        self._find: Callable[[], Any] = weakref.ref(value)
        self._bytes = content_of(value, MOST_BYTES)

    @property
    def value(self) -> Any:
        """The array, or a copy of its content; None if neither is there."""
        found = self._find()
        if found is not None or self._bytes is None:
            return found
        dtype, shape, _ = self._type
        try:
            return np.frombuffer(self._bytes, jnp.dtype(dtype)).reshape(shape)
        except (TypeError, ValueError):  # PRNG keys
            return None

    def __eq__(self, other: object) -> bool:
        """Return whether both have one type and one content, as far as both are there."""
        if not isinstance(other, OfArray) or self._type != other._type:
            return False
        one, another = self._find(), other._find()
        if one is not None and one is another:
            return True
        mine, its = self._content(), other._content()
        return mine is not None and mine == its

    def __hash__(self) -> int:
        return hash(self._type)

    def _content(self) -> bytes | None:
        if self._bytes is not None:
            return self._bytes
        value = self._find()
        return None if value is None else content_of(value, _MOST_COMPARED)


def content_of(value: Any, most: int) -> bytes | None:
    """Return the bytes of a JAX array; None if there are too many, or they cannot be had."""
    try:
        if value.nbytes > most or not value.is_fully_addressable or value.is_deleted():
            return None
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            value = jax.random.key_data(value)
        return np.asarray(value).tobytes()
    except Exception:  # noqa: BLE001  # donated meanwhile, or a guard forbids the transfer
        return None


def _weak(value: Any) -> Callable[[], Any] | None:
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def as_one(form: Any, value: Any) -> Fingerprinted:
    """Return the fingerprint of what is the same as long as it is the same object."""
    return Fingerprinted(form, identity_check(value), is_fixed=True, source=identity_source(value))


def as_object(form: Any, value: Any) -> Fingerprinted:
    """Return the fingerprint of what is the same as long as it is one object of one class."""
    own, itself, kind = identity_check(value), identity_source(value), type(value)

    def source(found: str, names: Names) -> list[str]:
        at = names.local()
        is_kind = f"type({at}) is {names.of('kind', kind)}"
        return [*itself(f"({at} := {found})", names), is_kind]

    same: Same = lambda now: type(now) is kind and own(now)  # noqa: E731  # `__class__` changes
    return Fingerprinted(form, same, source=source)


def identity_check(value: Any) -> Same:
    """Return a check whether it is given `value`, without keeping that alive."""
    find = _weak(value)
    if find is None:
        return address_check(value)
    return lambda now: find() is now is not None  # as a dead reference returns


def address_check(value: Any) -> Same:
    """Return a check whether an object of the same type has the same address."""
    place, kind = id(value), type(value)
    return lambda now: id(now) == place and type(now) is kind


def identity_source(value: Any) -> Source:
    """Return the source of `identity_check`."""
    find = _weak(value)
    if find is not None:
        return lambda found, names: [f"{names.of('ref', find)}() is {found} is not None"]
    place, kind = id(value), type(value)

    def source(found: str, names: Names) -> list[str]:
        at = names.local()
        terms = f"id({at} := {found}) == {names.of('place', place)}"
        return [terms, f"type({at}) is {names.of('kind', kind)}"]

    return source


def parts_source(  # what `parts_check` has, as text
    value: Any,
    read: Sequence[tuple[str, Any, Fingerprinted]],
    *,
    size: int | None = None,
    keys: tuple[str, ...] | None = None,
    in_dict: bool = False,
) -> Source:
    """Return the source of a check of a value with parts.

    Args:
        value: The value.
        read: What follows the value to read each part, the part, and its fingerprint:
            ``.rate``, ``[0]``.
        size: The length of the value, if that can change.
        keys: All its keys in order, if those can change.
        in_dict: Whether the parts, and the keys, are those of its ``__dict__``.
    """
    is_it, kind = identity_source(value), type(value)

    def source(found: str, names: Names) -> list[str]:
        at = first = names.local()
        terms = is_it(f"({at} := {found})", names)
        if len(terms) == 1:  # `__class__` can be assigned
            terms.append(f"type({at}) is {names.of('kind', kind)}")
        if in_dict:
            inside = names.local()
            find = names.of("getattribute", object.__getattribute__)
            first, at = f"({inside} := {find}({at}, '__dict__'))", inside
        if size is not None:
            terms.append(f"len({first}) == {size}")
            first = at
        if keys is not None:
            terms.append(_source_of_keys(first, keys, names, are_names=in_dict))
            first = at
        for way, item, part in read:
            terms += part.terms(first + way, item, names)
            first = at
        return terms

    return source


def _source_of_keys(found: str, keys: tuple[str, ...], names: Names, *, are_names: bool) -> str:
    """Return the source of a check of the keys of a dict."""
    known = names.of("keys", keys)
    if are_names:
        return f"(*{found},) == {known}"
    # The `==` of another key would be the user's.
    return f"all(map({names.of('is', operator.is_)}, {found}, {known}))"


def parts_check(
    value: Any,
    items: Sequence[Any],
    parts: list[Fingerprinted],
    parts_of: Callable[[Any], Sequence[Any]],
) -> Same:
    """Return a fast check of a value with parts.

    Args:
        value: The value.
        items: Its parts.
        parts: Their fingerprints.
        parts_of: Returns the parts of a value.
    """
    own, count, kind = identity_check(value), len(items), type(value)
    plain = [(n, item) for n, item in enumerate(items) if parts[n].same is None]
    others = [(n, part.same) for n, part in enumerate(parts) if part.same is not None]

    def same(now: Any) -> bool:
        if type(now) is not kind or not own(now):  # `__class__` can be assigned
            return False
        found = parts_of(now)
        if len(found) != count:
            return False
        for place, kept in plain:
            if found[place] is not kept:
                return False
        for place, check in others:  # noqa: SIM110  # faster than a generator
            if not check(found[place]):
                return False
        return True

    return same


def check_of(fingerprinted: Fingerprinted, value: Any) -> Same:
    """Return a fast check of a part."""
    if fingerprinted.same is not None:
        return fingerprinted.same
    return lambda now: now is value


def combine(
    form: Any, same: Same | None, parts: list[Fingerprinted], source: Source | None = None
) -> Fingerprinted:
    """Return the fingerprint of a value with parts."""
    is_fixed = same is None and all(part.is_fixed for part in parts)
    return Fingerprinted(form, same, is_fixed, source)


def _by_identity(value: Any) -> Fingerprinted:
    itself = ByWeakId(value)
    return Fingerprinted(itself, itself.is_of, is_fixed=True)
