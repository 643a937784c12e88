"""Instances that another library flattens, with a key of leafwise among their statics.

The key is kept in an attribute of the instance, which the other library takes for one more
static. So that comparing the statics themselves adds nothing to comparing the keys, each is
exchanged for the one object that the keys of equal instances share.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from leafwise._classes.fields import OPTIONS, Converter, FieldOptions
from leafwise._classes.spec import FieldSpec
from leafwise._objects.text import got
from leafwise._statics import findings
from leafwise._statics.form import Canonicaliser, canonicalise, plain_form
from leafwise._statics.key import (
    KEY,
    KeyTable,
    OwnStaticKey,
    StaticKey,
    key_of,
    refuse_tracers,
    table_of,
    verify,
    verify_content,
)
from leafwise._statics.snapshot import Snapshot
from leafwise.errors import DefinitionError, StaticMutatedError

if TYPE_CHECKING:
    import dataclasses


class LazyOwner:
    """A class whose static fields can be asked for only once the class is finished.

    Attributes:
        cls: The class.
        note: As in `StaticOwner`.
        hash_node: As in `StaticOwner`.
    """

    def __init__(
        self, cls: type, find: Callable[[type], "tuple[dataclasses.Field[Any], ...]"]
    ) -> None:
        """Know the class, and what finds its static fields."""
        self.cls = cls
        self.note = ""
        self.hash_node: Callable[[tuple[Any, ...]], object] | None = None
        self._find = find

    @functools.cached_property
    def _fields(self) -> "tuple[dataclasses.Field[Any], ...]":
        return self._find(self.cls)

    @property
    def static_names(self) -> tuple[str, ...]:
        """The static fields, in order."""
        return self._names

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._fields)

    @functools.cached_property
    def content_names(self) -> frozenset[str]:
        """Those of them that are compared by content."""
        options = {
            field.name: field.metadata.get(OPTIONS, FieldOptions()) for field in self._fields
        }
        return frozenset(name for name, each in options.items() if each.by == "content")


class Boxed:
    """A static on its way to the key, in a place where its kind would be complained about."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        """Hold the value."""
        self.value = value


def _unbox(value: object) -> object:
    return value.value if isinstance(value, Boxed) else value


def key_in(instance: object) -> StaticKey | None:
    """Return the key that an instance keeps in an attribute, or None."""
    key = _state(instance).get(KEY)
    return key if isinstance(key, StaticKey) else None


def _state(instance: object) -> dict[str, Any]:
    # Not `vars`: `verify_sealed` runs whenever a class is asked for an instance's __dict__.
    try:
        state: dict[str, Any] = object.__getattribute__(instance, "__dict__")
    except AttributeError:
        return {}
    return state


def seal(instance: object) -> None:
    """Give an instance the key of its statics, and the objects that its equals share.

    Raises:
        StaticFieldError: A static value is no key.
    """
    table = table_of(type(instance))
    names = table.owner.static_names
    state = _state(instance)
    # A default that no constructor has assigned is on the class only.
    values = [state[name] if name in state else getattr(instance, name) for name in names]
    key = _shared(table, key_of(table, tuple(map(_unbox, values))))
    state.update(zip(names, key.values, strict=True))
    state[KEY] = key


def _shared(table: KeyTable, key: StaticKey) -> StaticKey:
    """Return the key of the first values, where equal ones can be told apart."""
    if not isinstance(key, OwnStaticKey) or key.token.values is key.values:
        return key
    try:
        first = key_of(table, key.token.values)
    except StaticMutatedError:  # those have changed since: not the fault of these
        first = None
    if first is not None and first == key:
        return first
    key.token.values = key.values  # the next ones share these
    return key


def verify_sealed_content(instance: object) -> None:
    """Compare the statics of an instance by content with what its key was made from.

    Raises:
        StaticMutatedError: One of them changed.
    """
    key = key_in(instance)
    if key is not None:
        verify_content(key)


def verify_sealed(instance: object) -> None:
    """Compare the statics of an instance with what its key was made from.

    Raises:
        StaticMutatedError: One of them changed, or another value was put in its place.
    """
    key = key_in(instance)
    if key is None:
        return
    verify(key)
    state = _state(instance)
    for name, value in zip(key.owner.static_names, key.values, strict=True):
        if state.get(name) is not value:
            place = f"{key.owner.cls.__name__}.{name}"
            detail = f"it was {got(value)} and was assigned anew"
            raise StaticMutatedError(findings.mutated(place, state.get(name), detail))


def convert(field: Converter, value: Any) -> Any:
    """Return what a class of another library stores for a value.

    Raises:
        FieldCheckError: The field's check answered False.
        StaticFieldError: The field is static, and the value can be no part of a cache key.
        DefinitionError: The field is compared by content, which its class cannot.
        Exception: Whatever converter or check raise, with a note naming the field.
    """
    definition, options = field.definition, field.options
    if options.converter is not None or options.check is not None or options.freeze:
        spec = FieldSpec(field.owner, definition.name, field.static, options, definition)
        value = spec.prepare(value)
    if options.by == "content":
        _check_keyed(field)  # it is read, and refused, when the key is made
    elif not field.static or plain_form(0, (value,)) is not None:
        return value
    else:
        _validate(value, f"{field.owner}.{definition.name}")
    return Boxed(value) if field.keyed and _holds_numpy(value) else value


def _holds_numpy(value: Any) -> bool:
    """Return whether equinox would warn of a JAX array, where a table or scalar of numpy is."""
    leaves = jax.tree_util.tree_leaves(value)
    return any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)


def _check_keyed(field: Converter) -> None:
    if not field.keyed:
        msg = (
            f"{field.owner}.{field.definition.name}: by='content' is about the key of an "
            f"instance, and equinox compares the values themselves\n"
            f"  fix: let {field.owner} derive from leafwise.interop.equinox.Module"
        )
        raise DefinitionError(msg)


def _validate(value: Any, path: str) -> None:
    reading = Canonicaliser()
    canonicalise(reading, value, path)
    reading.raise_findings()
    if reading.reaches:
        snapshot = Snapshot()
        snapshot.look(value, path)
        refuse_tracers(snapshot)
