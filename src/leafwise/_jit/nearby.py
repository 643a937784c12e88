"""Which earlier programs may be the nearest to a call, found without comparing it with each."""

import functools
import heapq
import operator
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from leafwise._compare.signature import Signature
from leafwise._trees.nodes import Node

_MOST: Final = 6
"""With how many programs a retrace is compared: what that costs must not grow with the log."""

_SEARCHED: Final = 128
"""Among how many of the latest programs those with the most equal parts are looked for."""

_MOST_PARTS: Final = 64
"""Of a call with more parts, those that differ in a single one are not looked up."""


class NearbyPrograms:
    """The programs of a log by the hashes of their parts: statics, leaves, configuration.

    The nearest one to a call most often differs in one part: these are found among all programs.
    Otherwise it is a late one with the most equal parts.
    """

    def __init__(self) -> None:
        self._by_all_but: dict[int, int] = {}
        self._recent: deque[tuple[int, frozenset[int]]] = deque(maxlen=_SEARCHED)
        self._latest: tuple[Signature | None, list[int]] = None, []

    def add(self, index: int, signature: Signature) -> None:
        """Add a program, with its index in the log."""
        parts = self._parts_of(signature)
        self._recent.append((index, frozenset(parts)))
        self._by_all_but.update(dict.fromkeys(_all_but_one(parts), index))

    def candidates(self, signature: Signature, count: int) -> Iterator[list[int]]:
        """Yield the indices of the programs to compare a call with, of so many, in order.

        First those that differ in one part, then more: one part can differ in several ways,
        where another structure is a single reason.
        """
        if count <= _MOST:
            yield list(range(count))
            return
        parts = self._parts_of(signature)
        but_one = self._by_all_but
        found = dict.fromkeys(but_one[each] for each in _all_but_one(parts) if each in but_one)
        close = list(found)[:_MOST]
        if close:
            yield sorted(close)
        every = frozenset(parts)
        recent = [(len(every & each), index) for index, each in list(self._recent)]
        alike = [index for _, index in heapq.nlargest(_MOST, recent)]
        yield sorted(list(dict.fromkeys(close + alike))[: len(close) + _MOST])

    def _parts_of(self, signature: Signature) -> list[int]:
        """Return the parts of a call, which is looked up and then added."""
        known, parts = self._latest
        if known is not signature:
            parts = _parts(signature)
            self._latest = signature, parts
        return parts


def _all_but_one(parts: list[int]) -> Iterator[int]:
    """Yield the hash of all parts, and of all but one part, for each."""
    every = functools.reduce(operator.xor, parts)
    yield every
    for part in parts if len(parts) <= _MOST_PARTS else ():
        yield hash((every ^ part, "one"))


def _parts(signature: Signature) -> list[int]:
    """Return a hash for each static and for each leaf, with where it stands."""
    statics, todo = [_hash(("config", signature.config))], [signature.root]
    while todo:
        node = todo.pop()
        place = len(statics)
        statics.append(_hash((place, node.cls, len(node.children))))
        statics += [_hash((place, at, type(value), value)) for at, value in enumerate(node.values)]
        todo += [child for child in node.children if isinstance(child, Node)]
    leaves = [
        _hash((place, leaf.aval, leaf.kind, leaf.value))
        for place, leaf in enumerate(signature.leaf_records)
    ]
    return statics + leaves


def _hash(values: tuple[Any, ...]) -> int:
    try:
        return hash(values)
    except Exception:  # noqa: BLE001  # without a hash, or the user's own code
        return hash((*values[:-1], type(values[-1])))
