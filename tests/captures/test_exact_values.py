"""A captured value is what it was only if its types, bits, order and sharing are."""

import collections
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

pytestmark = pytest.mark.hazard

jit: Any = lw.jit  # so that lambdas need no types


class Held:
    def __init__(self, *held: Any) -> None:
        self.held = held


def in_order(*keys: str) -> Any:
    return collections.OrderedDict.fromkeys(keys, 1.0)


def shared(value: Any) -> list[Any]:
    return [value, value]


def sharding(*axes: str) -> Any:
    return jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P(*axes))


OTHERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "int and bool": (lambda: 1, lambda: True),
    "types in a set": (lambda: {1}, lambda: {True}),
    "weak type": (lambda: jnp.array(1.0), lambda: jnp.float32(1.0)),
    "sign of a zero in a list": (lambda: [0.0], lambda: [-0.0]),
    "path": (lambda: Path("/a") / "b", lambda: Path("/a/c")),
    "sharding": (lambda: sharding("x"), lambda: sharding()),
    "PRNG key": (lambda: jax.random.key(0), lambda: jax.random.key(1)),
    "array of JAX": (lambda: jnp.arange(3.0), lambda: jnp.arange(3.0) + 1),
    "sharing of lists": (lambda: shared([1]), lambda: [[1], [1]]),
    "sharing of objects": (lambda: shared(Held(1)), lambda: [Held(1), Held(1)]),
    "sharing of arrays": (lambda: shared(np.ones(2)), lambda: [np.ones(2), np.ones(2)]),
}
# A class that is defined again, as by a cell of a notebook, and one of another name.
for name in ("One", "Other"):
    one, other = (type(each, (), {}) for each in ("One", name))
    OTHERS |= {
        f"class {name}": (one, other),
        f"class {name} in a list": (lambda one=one: [one()], lambda other=other: [other()]),
    }


@pytest.mark.parametrize("kind", OTHERS)
def test_what_differs_is_stale(kind: str) -> None:
    """Though `==` says that both are equal; a value that is made in the same way is no change."""
    first, second = OTHERS[kind]
    value = first()
    jitted = jit(lambda x: (x, repr(value))[0], on_stale="raise")
    jitted(1.0)
    value = first()
    jitted(1.0)
    value = second()
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)
    value = first()
    jitted(1.0)


IN_PLACE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "set": (lambda: {1, 2}, lambda value: (value.discard(1), value.add(True))),
    "OrderedDict": (lambda: in_order("a", "b"), lambda value: value.move_to_end("a")),
    "dict": (lambda: {"a": 1, "b": 1}, lambda value: value.update(a=value.pop("a"))),
    "key": (lambda: {1: "a"}, lambda value: value.__setitem__(True, value.pop(1))),
    "sharing": (lambda: shared([1]), lambda value: value.__setitem__(1, [1])),
    "attribute": (
        lambda: [types.SimpleNamespace(a=1)],
        lambda value: setattr(value[0], "a", True),
    ),
    "code": (
        lambda: [lambda x: x],
        lambda value: setattr(value[0], "__code__", (lambda x: x * 2).__code__),
    ),
    "property": (
        lambda: [property(lambda _: 1)],
        lambda value: value.__setitem__(0, property(lambda _: 2)),
    ),
    "bytearray": (lambda: bytearray(b"a"), lambda value: value.extend(b"b")),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_change_in_place_is_stale(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both values are equal, and the object is the same one."""
    if kind == "code":  # as by `%autoreload`
        monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    make, change = IN_PLACE[kind]
    value = make()
    jitted = jit(lambda x: (x, repr(value))[0], on_stale="raise")
    for _ in range(2):
        jitted(1.0)
    change(value)
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)
