"""Values that cannot be part of a cache key: refused by name, where JAX goes wrong later."""

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

from .judge import Plain, Sound, calls

pytestmark = pytest.mark.hazard


@dataclasses.dataclass
class Open:
    value: int = 1


@dataclasses.dataclass(unsafe_hash=True)
class OpenHashed:
    value: int = 1


@dataclasses.dataclass(frozen=True)
class Holder:
    item: Any
    beside: Any = dataclasses.field(default=None, compare=False)


class NoHash:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoHash)


class BadHash:
    def __hash__(self) -> int:
        raise RuntimeError("no hash today")


class MovingHash:
    count = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MovingHash)

    def __hash__(self) -> int:
        self.count += 1
        return self.count


class NotItself:
    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


MUTABLE: dict[str, Callable[[], Any]] = {
    "list": lambda: [1],
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "bytearray": lambda: bytearray(b"a"),
    "deque": lambda: collections.deque([1]),
    "namespace": lambda: types.SimpleNamespace(a=1),
    "dataclass": Open,
    "dataclass-hashed": OpenHashed,
    "mappingproxy": lambda: types.MappingProxyType({"a": 1}),
    "memoryview": lambda: memoryview(bytearray(b"a")),
    "record-array": lambda: np.zeros(1, "i4,i4")[0],
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.ones((2, 3)),
    "numpy-0d": lambda: np.array(1.0),
    "jax": lambda: jnp.ones((2, 3)),
    "jax-scalar": lambda: jnp.float32(1),
    "key": lambda: jax.random.key(0),
    "pytree": lambda: Sound(jnp.ones(2), 1),
    "jax-partial": lambda: jax.tree_util.Partial(abs, jnp.ones(2)),
}
HASHES: dict[str, Callable[[], Any]] = {
    "no-hash": NoHash,
    "bad-hash": BadHash,
    "moving-hash": MovingHash,
    "not-itself": NotItself,
}
PLACES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "alone": (lambda v: v, "Sound.s"),
    "tuple": (lambda v: (0, v), "Sound.s[1]"),
    "deep": (lambda v: (0, ((v,), 1)), "Sound.s[1][0][0]"),
    "mapping": (lambda v: lw.FrozenMapping(k=v), "Sound.s['k']"),
    "dataclass": (lambda v: Holder(v), "Sound.s.item"),
    "dataclass-not-compared": (lambda v: Holder(1, v), "Sound.s.beside"),
    "partial": (lambda v: functools.partial(print, v), "Sound.s.args[0]"),
    "keyword": (lambda v: functools.partial(print, sep=v), "Sound.s.keywords['sep']"),
    "method": (lambda v: Holder(v).__repr__, "Sound.s.__self__.item"),
    "slice": (lambda v: slice(v), "Sound.s.stop"),
}

KINDS = [
    *((name, make, lw.errors.UnhashableStaticError) for name, make in MUTABLE.items()),
    *((name, make, lw.errors.ArrayInStaticError) for name, make in ARRAYS.items()),
    *((name, make, lw.errors.InconsistentHashError) for name, make in HASHES.items()),
]


@pytest.mark.parametrize(
    ("make", "error"), [pytest.param(make, error, id=name) for name, make, error in KINDS]
)
@pytest.mark.parametrize("place", PLACES)
def test_refused_at_construction_by_path(make: Any, error: Any, place: str) -> None:
    """The error comes when the instance is made, and names where the value stands."""
    wrap, path = PLACES[place]
    with pytest.raises(error) as caught:
        Sound(1.0, wrap(make()))
    finding = caught.value.findings[0]
    assert finding.path.startswith(path)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("place", PLACES)
def test_a_tracer_is_refused_at_the_line(place: str) -> None:
    """A tracer in a static is refused inside the traced function, at any depth."""
    wrap, path = PLACES[place]

    @jax.jit
    def program(x: Any) -> Any:
        Sound(1.0, wrap(x))
        return x

    with pytest.raises(lw.errors.TracerInStaticError) as caught:
        program(1.0)
    assert caught.value.findings[0].path.startswith(path)
    assert "program" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize("kind", ["closure", "default", "attribute"])
def test_a_hidden_tracer_is_refused(kind: str) -> None:
    """A tracer behind a function or an object's attribute is refused, too."""

    def hide(x: Any) -> Any:
        if kind == "closure":
            return lambda: x
        if kind == "default":
            return lambda y=x: y
        hidden = type("Hidden", (), {})()
        hidden.x = x
        return hidden

    @jax.jit
    def program(x: Any) -> Any:
        Sound(1.0, hide(x))
        return x

    with pytest.raises(lw.errors.TracerInStaticError, match=r"Sound\.s"):
        program(1.0)


def test_plain_jax_leaks_a_tracer() -> None:
    """What the two tests above prevent: the tracer gets out of the program."""
    leaked = jax.jit(lambda x: Plain(x, x))(1.0)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        jnp.add(leaked.s, 1)


@pytest.mark.parametrize("kind", ["list", "dict", "set", "dataclass-hashed"])
def test_plain_jax_answers_for_a_mutated_static(kind: str) -> None:
    """What refusing mutable statics prevents: the old program answers."""
    static = MUTABLE[kind]()
    seen = []

    @jax.jit
    def program(p: Any) -> Any:
        seen.append(repr(p.s))
        return p.x

    program(Plain(1.0, static))
    before = repr(static)
    if kind == "list":
        static.append(2)
    elif kind == "dict":
        static["b"] = 2
    elif kind == "set":
        static.add(2)
    else:
        static.value = 2
    program(Plain(1.0, static))
    assert seen == [before]


def test_plain_jax_fails_late_on_arrays() -> None:
    """What refusing arrays prevents: an error in the second call, that names no field."""
    with pytest.raises(ValueError, match="Exception raised while checking equality"):
        calls(Plain, np.ones(2), np.ones(2))
    jax.clear_caches()  # or it fails in other tests, of other functions


@pytest.mark.parametrize("kind", ["list", "dict", "set", "numpy", "jax"])
def test_freezing_accepts_them(kind: str) -> None:
    """``static_field(freeze=True)`` takes the same values, and the programs are right."""

    @lw.pytree
    class Frozen:
        x: Any
        s: Any = lw.static_field(freeze=True)

    make = (MUTABLE | ARRAYS)[kind]
    value = make()
    assert calls(Frozen, value, make(), (value,), make()).programs == [1, 1, 2, 1]


def test_a_list_made_inside_of_jit_never_gets_out() -> None:
    """A mutable static of an output would be shared by every later call."""

    @jax.jit
    def plain(x: Any) -> Any:
        return Plain(x, [1])

    first = plain(1.0)
    first.s.append(2)
    assert plain(1.0).s == [1, 2], "this is the hazard"
    with pytest.raises(lw.errors.UnhashableStaticError, match=r"Sound\.s"):
        jax.jit(lambda x: Sound(x, [1]))(1.0)


def test_all_bad_fields_are_reported_at_once() -> None:
    """One error names every field, and is of every kind."""

    @lw.pytree
    class Many:
        a: Any = lw.static_field()
        b: Any = lw.static_field()
        c: Any = lw.static_field()

    with pytest.raises(lw.errors.StaticFieldError) as caught:
        Many([1], 2, (np.ones(2), NoHash()))
    paths = [finding.path for finding in caught.value.findings]
    assert paths == ["Many.a", "Many.c[0]", "Many.c[1]"]
    for kind in (
        lw.errors.UnhashableStaticError,
        lw.errors.ArrayInStaticError,
        lw.errors.InconsistentHashError,
    ):
        assert isinstance(caught.value, kind)


def test_nothing_is_validated_at_unflatten() -> None:
    """JAX may put anything into the leaves, and statics were validated already."""
    structure = jax.tree.structure(Sound(1.0, "a"))
    for leaf in (object(), [1], np.ones(2), None, {"a": 1}):
        assert jax.tree.unflatten(structure, [leaf]).x is leaf
