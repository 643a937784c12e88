"""Instances that another library flattens, with a leafwise key among their statics.

The key is an attribute of the instance, which the other library treats as one more static.
Each static is replaced by one object that all equal instances share, so that the library's
own comparison of the statics always agrees with that of the keys.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from leafwise._classes.options import OPTIONS, Boxed, FieldOptions
from leafwise._objects.attributes import dict_of
from leafwise._objects.locks import cached_property
from leafwise._statics.key import KEY, KeyTable, OwnStaticKey, StaticKey, key_of, table_of
from leafwise.errors import StaticMutatedError


class LazyOwner:
    """A class whose static fields are known only once the class is finished."""

    def __init__(
        self, cls: type, find: Callable[[type], tuple[dataclasses.Field[Any], ...]]
    ) -> None:
        self.cls = cls
        self._find = find

    @cached_property
    def _options(self) -> dict[str, FieldOptions]:
        fields = self._find(self.cls)
        return {field.name: field.metadata.get(OPTIONS, FieldOptions()) for field in fields}

    @property
    def static_names(self) -> tuple[str, ...]:
        return tuple(self._options)

    @cached_property
    def content_names(self) -> frozenset[str]:
        return frozenset(
            name for name, each in self._options.items() if each.compare_by == "content"
        )


def key_in(instance: object) -> StaticKey | None:
    key = dict_of(instance).get(KEY)
    return key if isinstance(key, StaticKey) else None


def seal(instance: object) -> None:
    """Store the key in an instance, and replace its statics by those that equal ones share."""
    table = table_of(type(instance))
    names = table.owner.static_names
    state = dict_of(instance)
    # A default that no constructor assigned exists on the class only.
    values = [state[name] if name in state else getattr(instance, name) for name in names]
    values = [value.value if isinstance(value, Boxed) else value for value in values]
    key = _shared(table, key_of(table, tuple(values)))
    state.update(zip(names, key.values, strict=True))
    state[KEY] = key


def _shared(table: KeyTable, key: StaticKey) -> StaticKey:
    """Return the key of the first equal values, if `key` holds equal but other objects."""
    if not isinstance(key, OwnStaticKey) or key.token.values is key.values:
        return key
    # The first values may have changed, which does not concern these.
    with contextlib.suppress(StaticMutatedError):
        if (first := key_of(table, key.token.values)) == key:
            return first
    key.token.values = key.values  # later instances share these
    return key
