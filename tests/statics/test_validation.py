"""Validation of statics at construction: each row of the table, at any depth."""

import collections
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .judge import Box

Pair = collections.namedtuple("Pair", ["left", "right"])  # noqa: PYI024


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = None


@dataclasses.dataclass(frozen=True)
class Holder:
    held: Any

    def method(self) -> None:
        """Be bound."""


class Hashing(dict[Any, Any]):
    def __hash__(self) -> int:  # type: ignore[override]  # as flax's `FrozenDict` does
        return hash(frozenset(self.items()))


@dataclasses.dataclass
class Open:
    n: int = 1


@dataclasses.dataclass(unsafe_hash=True)
class OpenWithHash:
    n: int = 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Node:
    leaf: Any


class NoHash:
    __hash__ = None  # type: ignore[assignment]


class RaisingHash:
    def __hash__(self) -> int:
        raise RuntimeError("no hash today")


class NeverEqual:
    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


class RaisingEq:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no answer")

    def __hash__(self) -> int:
        return 1


class EqWithoutHash:  # the point
    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqWithoutHash)


UNHASHABLE: dict[str, Callable[[], Any]] = {
    "list": lambda: [1],
    "dict": lambda: {"k": 1},
    "set": lambda: {1},
    "bytearray": lambda: bytearray(b"a"),
    "deque": lambda: collections.deque([1]),
    "OrderedDict": lambda: collections.OrderedDict(k=1),
    "SimpleNamespace": lambda: types.SimpleNamespace(a=1),
    "open dataclass": Open,
    "open dataclass with a hash": OpenWithHash,
    "mappingproxy": lambda: types.MappingProxyType({}),
    "no hash": NoHash,
    "memoryview": lambda: memoryview(bytearray(b"a")),
    "record": lambda: np.zeros(1, "i4,i4")[0],
}
ARRAY: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.ones((2, 3), np.float32),
    "jax": lambda: jnp.ones((2, 3)),
    "0-d": lambda: jnp.float32(1),
    "key": lambda: jax.random.key(0),
    "jax Partial": lambda: jax.tree_util.Partial(abs, jnp.ones(2)),
    "structured": lambda: np.zeros(2, [("a", "f4")]),
    "pytree": lambda: P(jnp.ones(3)),
    "registered dataclass": lambda: Node(np.ones(3)),
    "nested pytree": lambda: Node([{"k": Node(jnp.ones(3))}]),
    "unsealed StaticArray": lambda: np.array(lw.StaticArray([1, 2]), subok=True),
}
INCONSISTENT: dict[str, Callable[[], Any]] = {
    "hash raises": RaisingHash,
    "never equal": NeverEqual,
    "eq raises": RaisingEq,
    "eq without hash": EqWithoutHash,
}
ROWS: dict[str, tuple[Callable[[], Any], str]] = {
    **{name: (make, "unhashable") for name, make in UNHASHABLE.items()},
    **{name: (make, "array") for name, make in ARRAY.items()},
    **{name: (make, "inconsistent") for name, make in INCONSISTENT.items()},
}
POSITIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "itself": (lambda v: v, ""),
    "tuple": (lambda v: (1, v), "[1]"),
    "tuple of tuples": (lambda v: ((1, (v,)),), "[0][1][0]"),
    "mapping": (lambda v: lw.FrozenMapping({("k", 1): v}), "[('k', 1)]"),
    "mapping with a hash": (lambda v: Hashing(k=Hashing(k=v)), "['k']['k']"),
    "frozen dataclass": (Holder, ".held"),
    "namedtuple": (lambda v: Pair(1, v), ".right"),
    "partial": (lambda v: functools.partial(print, 1, v), ".args[1]"),
    "partial keyword": (lambda v: functools.partial(print, sep=v), ".keywords['sep']"),
    "bound method": (lambda v: Holder(v).method, ".__self__.held"),
    "slice": (lambda v: slice(1, v), ".stop"),
    "jax Partial": (lambda v: jax.tree_util.Partial(print, (v,)), ".args[0][0]"),
    "frozenset": (lambda v: frozenset({functools.partial(print, v)}), "{"),
    "static of a static": (lambda v: Holder((Holder(v),)), ".held[0].held"),
}


@pytest.mark.parametrize(
    ("row", "position"),
    [
        (row, position)
        for row in ROWS
        for position in POSITIONS
        if row in ("list", "numpy", "hash raises") or position in ("itself", "tuple")
    ],
)
def test_row(row: str, position: str) -> None:
    """The value is refused wherever it stands, by class, field and path, with a reason."""
    make, kind = ROWS[row]
    place, path = POSITIONS[position]
    with pytest.raises(lw.errors.StaticFieldError, match=r"^P\.a") as error:
        P(1.0, place(make()))
    (finding,) = error.value.findings
    assert error.value.kind == finding.kind == kind
    assert finding.path.startswith(f"P.a{path}")
    assert finding.reason
    assert finding.fix
    assert error.value.message == str(finding)
    assert isinstance(error.value, TypeError)


class Compared(Box):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared)

    def __hash__(self) -> int:
        return 1


TRACER_POSITIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **{name: made for name, made in POSITIONS.items() if name != "frozenset"},
    "pytree": (Node, ".leaf"),
    "leafwise instance": (lambda v: P([v]), ".x[0]"),
    "closure": (lambda v: lambda: v, ".__closure__['v']"),
    "closure of a closure": (lambda v: lambda f=lambda: v: f, ".__defaults__[0].__closure__['v']"),
    "default": (lambda v: lambda x=v: x, ".__defaults__[0]"),
    "keyword default": (lambda v: eval("lambda *, x=v: x", {"v": v}), ".__kwdefaults__['x']"),  # noqa: S307
    "plain object": (Box, ".v"),
    "list in a closure": (lambda v: (lambda w: lambda: w)([v]), ".__closure__['w'][0]"),  # noqa: PLC3002
    "receiver": (lambda v: Box(v).times, ".__self__.v"),
    "compared object": (Compared, ".v"),
}


@pytest.mark.parametrize("position", TRACER_POSITIONS)
def test_tracer(position: str) -> None:
    """A tracer is refused at the user's line, at any depth, also where code hides it."""
    place, path = TRACER_POSITIONS[position]
    reached: list[str] = []

    def traced(v: Any) -> Any:
        reached.append("before")
        made = P(1.0, place(v))
        reached.append("after")
        return made.x

    with pytest.raises(lw.errors.StaticFieldError, match=r"^P\.a") as error:
        jax.jit(traced)(1.0)
    assert reached == ["before"]
    assert error.value.findings[0].path == f"P.a{path}"
    assert error.value.kind == "tracer"
    assert "make the field dynamic" in str(error.value)
    assert "compute the value outside" in str(error.value)
    frames = [frame.name for frame in error.traceback]
    assert "traced" in frames


def test_several_fields_are_reported_together() -> None:
    """One error names every bad value of every field, and has the kind of each."""

    @lw.pytree
    class Q:
        a: lw.Static[Any]
        b: lw.Static[Any]
        c: lw.Static[Any] = 1
        d: lw.Static[Any] = None

    with pytest.raises(lw.errors.StaticFieldError) as error:
        jax.jit(lambda v: Q([1], (np.ones(2), ({},)), v, RaisingHash()))(1.0)
    found = error.value
    paths = [finding.path for finding in found.findings]
    assert paths == ["Q.a", "Q.b[0]", "Q.b[1][0]", "Q.c", "Q.d"]
    kinds = [finding.kind for finding in found.findings]
    assert kinds == ["unhashable", "array", "unhashable", "tracer", "inconsistent"]
    assert found.message == "\n".join(map(str, found.findings))


def test_cycles() -> None:
    """A container that contains itself is refused, not read forever."""
    holder = Holder(None)
    object.__setattr__(holder, "held", (holder,))
    with pytest.raises(lw.errors.StaticFieldError, match="contains itself"):
        P(1.0, holder)


def test_shared_parts_are_no_cycle() -> None:
    """The same part in two places is fine."""
    part = Holder((1,))
    assert P(1.0, (part, part, Holder(part))).a[0] is part


GOOD: dict[str, Any] = {
    "jax function": jax.nn.relu,
    "jitted": jax.jit(lambda x: x),
    "module": jax,
    "device": jax.devices()[0],
    "mesh": jax.sharding.Mesh(np.array(jax.devices()), "x"),
    "spec": jax.sharding.PartitionSpec("x"),
    "treedef": jax.tree.structure([1]),
    "leafless": P(None),
    "leaf without an array": P(1.5),
    "struct": jax.ShapeDtypeStruct((2,), jnp.float32),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_values(name: str) -> None:
    """What cannot change and has a hash is accepted, given back itself, and shares a treedef."""
    p = P(1.0, GOOD[name])
    assert p.a is GOOD[name]
    assert jax.tree.structure(p) == jax.tree.structure(P(2.0, GOOD[name]))
    assert jax.jit(lambda p: p.x)(p) == 1.0
    assert jax.tree.map(lambda v: v, p).a is GOOD[name]
    assert repr(jax.tree.structure(p))
