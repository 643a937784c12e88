"""Which earlier programs may be the nearest to a call, found without comparing it with each."""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from leafwise._compare.signature import Signature
from leafwise._trees.nodes import Node

_MOST: Final = 6
"""With how many programs a retrace is compared: what that costs must not grow with the log."""

_SEARCHED: Final = 64
"""Among how many of the latest programs those with the most equal parts are looked for."""

_LATEST: Final = 3
"""How many programs are kept for each part."""

_MOST_PARTS: Final = 64
"""Of a call with more parts, those that differ in a single one are not looked up."""


class NearbyPrograms:
    """The programs of a log by the hashes of their parts: statics, leaves, configuration.

    The nearest one to a call most often differs in one part: these are found among all programs.
    Otherwise it differs in the leaves alone or in the statics alone, is a late one with the most
    equal parts, or shares a part that few have.
    """

    def __init__(self) -> None:
        self._by_part: dict[int, list[int]] = {}
        self._by_all_but: dict[int, int] = {}
        self._count: dict[int, int] = {}
        self._recent: deque[tuple[int, frozenset[int]]] = deque(maxlen=_SEARCHED)
        self._latest: tuple[Signature | None, _Parts] = None, ([], [])

    def add(self, index: int, signature: Signature) -> None:
        """Add a program, with its index in the log."""
        statics, leaves = self._parts_of(signature)
        for part in (*statics, *leaves):
            latest = self._by_part.setdefault(part, [])
            latest.append(index)
            del latest[:-_LATEST]
            self._count[part] = self._count.get(part, 0) + 1
        self._recent.append((index, frozenset((*statics, *leaves))))
        self._by_all_but.update(dict.fromkeys(_all_but_one(statics, leaves), index))
        self._by_all_but.update(dict.fromkeys(_one_kind(statics, leaves), index))

    def candidates(self, signature: Signature, count: int) -> Iterator[list[int]]:
        """Yield the indices of the programs to compare a call with, of so many, in order.

        First those that differ in one part, then more: one part can differ in several ways,
        where another structure is a single reason.
        """
        if count <= _MOST:
            yield list(range(count))
            return
        statics, leaves = self._parts_of(signature)
        but_one = self._by_all_but
        found = (but_one[each] for each in _all_but_one(statics, leaves) if each in but_one)
        close = list(itertools.islice(_once(found), _MOST))
        if close:
            yield sorted(close)
        one_kind = (but_one[each] for each in _one_kind(statics, leaves) if each in but_one)
        parts = {*statics, *leaves}
        recent = [(len(parts & each), index) for index, each in list(self._recent)]
        alike = (index for _, index in heapq.nlargest(_MOST // 2, recent))
        known = [part for part in parts if part in self._by_part]
        rare = heapq.nsmallest(_MOST, known, key=self._count.__getitem__)
        others = (index for part in rare for index in reversed(self._by_part[part]))
        chosen = _once(itertools.chain(close, one_kind, alike, others))
        yield sorted(itertools.islice(chosen, len(close) + _MOST))

    def _parts_of(self, signature: Signature) -> "_Parts":
        """Return the parts of a call, which is looked up and then added."""
        known, parts = self._latest
        if known is not signature:
            parts = _parts(signature)
            self._latest = signature, parts
        return parts


def _once(indices: Iterator[int]) -> Iterator[int]:
    seen: set[int] = set()
    for index in indices:
        if index not in seen:
            seen.add(index)
            yield index


def _all_but_one(statics: list[int], leaves: list[int]) -> Iterator[int]:
    """Yield the hash of all parts, and of all but one part, for each."""
    every = _joined(statics) ^ _joined(leaves)
    yield every
    if len(statics) + len(leaves) <= _MOST_PARTS:
        for part in (*statics, *leaves):
            yield hash((every ^ part, "one"))


def _one_kind(statics: list[int], leaves: list[int]) -> tuple[int, int]:
    """Return the hash of the statics, and that of the leaves."""
    return hash((_joined(statics), "statics")), hash((_joined(leaves), "leaves"))


def _joined(parts: list[int]) -> int:
    whole = 0
    for part in parts:
        whole ^= part
    return whole


_Parts = tuple[list[int], list[int]]


def _parts(signature: Signature) -> _Parts:
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
    return statics, leaves


def _hash(values: tuple[Any, ...]) -> int:
    try:
        return hash(values)
    except Exception:  # noqa: BLE001  # without a hash, or the user's own code
        return hash((*values[:-1], type(values[-1])))
