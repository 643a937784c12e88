"""Interning: one living token for each canonical form, in tables that keep none alive."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

LOCK: Final = threading.RLock()  # re-entrant: user code runs in == and in finalizers


class Token:
    """One canonical form, interned: two forms are equal if their tokens are one object.

    Attributes:
        form: The canonical form.
        values: The values whose types' and objects' ids stand in the form.
        spread: The extra child of instances whose class has ``many_statics``. It is one for
            all keys of this token: equal node data must not come with unequal children.
    """

    __slots__ = ("__weakref__", "form", "hash", "spread", "values")

    def __init__(
        self, form: tuple[Any, ...], hashed: int, values: tuple[Any, ...], spread: object
    ) -> None:
        """Keep the form, its hash, and the values alive."""
        self.form = form
        self.hash = hashed
        self.values = values
        self.spread = spread


T = TypeVar("T", bound=Token)


class Entry(weakref.ref[T]):
    """A weak reference that removes itself from its table when its key dies."""

    __slots__ = ("place", "table")

    place: Any
    table: Any


def let_go(table: dict[Any, Any]) -> None:
    """Free what an empty dict keeps for as many entries as it once had."""
    if not table:
        table.clear()


def no_key() -> None:
    """Stand where there was no key yet."""


def _forget_token(entry: Entry[Any], lock: Any = LOCK, let_go: Any = let_go) -> None:
    with lock:  # defaults, since globals are gone when the interpreter ends
        held = entry.table.get(entry.place)
        if held is not None:
            held[:] = [other for other in held if other is not entry]
            if not held:
                del entry.table[entry.place]
                let_go(entry.table)


def _token_entry(token: T, table: dict[int, list[Entry[T]]], hashed: int) -> Entry[T]:
    entry = Entry(token, _forget_token)
    entry.table, entry.place = table, hashed
    return entry


def intern(
    table: dict[int, list[Entry[T]]],
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


def _find(table: dict[int, list[Entry[T]]], form: tuple[Any, ...], hashed: int) -> T | None:
    for entry in tuple(table.get(hashed, ())):
        token = entry()
        if token is not None and token.form == form:
            return token
    return None
