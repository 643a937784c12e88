"""A change in place of whatever a static value may hold is found, and named by its path."""

import collections
import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class Params:
    x: Any
    s: lw.Static[Any]


class Plain:
    """An object that compares by identity."""

    def __init__(self, first: Any, second: Any = 0) -> None:
        self.first, self.second = first, second

    def method(self) -> None:
        """Have a method to bind."""


class Slotted:
    __slots__ = ("__private", "first")

    def __init__(self, first: Any, private: Any) -> None:
        self.first, self.__private = first, private


class Own:
    """An object with an `==` that reads nothing of what it holds."""

    def __init__(self, first: Any) -> None:
        self.first = first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self is other

    def __hash__(self) -> int:
        return 7


class Text(str):
    first: Any


@dataclasses.dataclass(frozen=True)
class Record:
    """One that keeps more than its fields; it is hashed by none, so that they may be lists."""

    first: Any = dataclasses.field(hash=False)
    given: dataclasses.InitVar[Any] = None

    def __post_init__(self, given: Any) -> None:
        object.__setattr__(self, "second", given)


def function(held: Any, default: Any = 3) -> Any:
    def inner(x: Any, y: Any = default, *, z: Any = 2) -> Any:
        return x, y, z, held

    inner.note = 1  # type: ignore[attr-defined]
    return inner


def text(first: Any) -> Text:
    made = Text("t")
    made.first = first
    return made


# What differs in content alone is in `tests/objects/samples.py`; here each change is in place.
CHANGES = [
    # In objects and records.
    (lambda: Plain(1), "v.first = True", ".first"),
    (lambda: Plain(1), "v.third = 3", ""),
    (lambda: Plain(1), "del v.first", ""),
    (lambda: Plain(Plain(1, 2)), "v.first.second = 3", ".first.second"),
    (lambda: Plain([Plain((Plain(1),))]), "v.first[0].first[0].first = 2", ".first[0].first[0]"),
    (lambda: Slotted(1, 2), "v.first = True", ".first"),
    (lambda: Slotted(1, [2]), "v._Slotted__private.append(3)", "._Slotted__private"),
    (lambda: Own(1), "v.first = True", ".first"),
    (lambda: text(Plain(1)), "v.first.first = True", ".first.first"),
    (lambda: Record(Plain([1])), "v.first.first[0] = True", ".first.first[0]"),
    (lambda: Record(1, Plain([1])), "v.second.first.append(2)", ".second.first"),
    # In functions.
    (lambda: function(1), "v.__closure__[0].cell_contents = True", ".__closure__['held']"),
    (lambda: function([1]), "v.__closure__[0].cell_contents.append(2)", ".__closure__['held']"),
    (lambda: function(1), "v.__defaults__ = (3.0,)", ".__defaults__[0]"),
    (lambda: function(1, {"k": 1}), "v.__defaults__[0]['k'] = True", ".__defaults__[0]['k']"),
    (lambda: function(1), "v.__kwdefaults__['z'] = 2.0", ".__kwdefaults__['z']"),
    (lambda: function(1), "v.note = True", ".note"),
    (lambda: Plain(lambda: 1), "v.first.__code__ = (lambda: 2).__code__", ".first"),
    (lambda: Plain(1).method, "v.__self__.first = True", ".__self__.first"),
    (lambda: functools.partial(print, Plain(1)), "v.args[0].first = True", ".args[0].first"),
    (lambda: functools.partial(print, end=1), "v.keywords['end'] = True", ".keywords['end']"),
    (lambda: functools.partial(print, end=1), "v.keywords['sep'] = 1", ""),
    # In containers.
    (lambda: (1, (Plain(1),)), "v[1][0].first = True", "[1][0].first"),
    (lambda: Plain([1, 2]), "v.first[1] = 2.0", ".first[1]"),
    (lambda: Plain([1, 2]), "v.first.append(3)", ".first"),
    (lambda: Plain(collections.deque([1], 5)), "v.first.append(3)", ".first"),
    (lambda: Plain({"k": 1, 1: 2}), "v.first['k'] = True", ".first['k']"),
    (lambda: Plain({"k": 1, 1: 2}), "v.first['new'] = 1", ".first"),
    (lambda: Plain({"k": 1, 1: 2}), "v.first['k'] = v.first.pop('k')", ".first"),
    (lambda: Plain({1, "a", 0.0}), "v.first.discard(1); v.first.add(True)", ".first"),
    (lambda: Plain(np.zeros(2)), "v.first[0] = -0.0", ".first"),
    (lambda: Plain(np.array([Plain(1)])), "v.first[0].first = True", ".first[0].first"),
    (lambda: Plain(bytearray(b"ab")), "v.first.append(3)", ".first"),
]


@pytest.mark.parametrize(("make", "change", "path"), CHANGES, ids=range(len(CHANGES)))
def test_every_change_is_named_with_its_path(make: Any, change: str, path: str) -> None:
    """Nothing is found before the change, and the path to it stands in the message after it."""
    params = Params(1.0, make())
    with lw.debug.check_statics():
        jax.tree.structure(params)
        exec(change, {"v": params.s, "np": np})  # noqa: S102  # the rows above
        with pytest.raises(lw.errors.StaticMutatedError) as caught:
            jax.tree.structure(params)
    assert f"(Params.s{path}" in str(caught.value)
