"""`lw.freeze`, `FrozenMapping` and `static_field(freeze=True)`."""

import collections
import types
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.objects.samples import Pair

import leafwise as lw


@lw.pytree
class P:
    x: Any
    a: Any = lw.static_field(default=None, freeze=True)


FROZEN: dict[str, tuple[Any, Any]] = {
    "list": ([1, [2, 3]], (1, (2, 3))),
    "tuple": ((1, [2]), (1, (2,))),
    "dict": ({"k": [1]}, lw.FrozenMapping({"k": (1,)})),
    "set": ({1, 2}, frozenset({1, 2})),
    "bytearray": (bytearray(b"a"), b"a"),
    "numpy": (np.ones(2), lw.StaticArray(np.ones(2))),
    "jax": (jnp.ones(2), lw.StaticArray(np.ones(2, np.float32))),
    "array in a list": ([np.ones(2)], (lw.StaticArray(np.ones(2)),)),
    "namedtuple": (Pair([1], {2}), Pair((1,), frozenset({2}))),
    "mappingproxy": (types.MappingProxyType({"k": [1]}), lw.FrozenMapping({"k": (1,)})),
    "OrderedDict": (collections.OrderedDict(k=[1]), lw.FrozenMapping({"k": (1,)})),
    "frozen mapping of lists": (lw.FrozenMapping(k=[1]), lw.FrozenMapping(k=(1,))),
}


@pytest.mark.parametrize("name", FROZEN)
def test_freeze(name: str) -> None:
    """What can change in place becomes immutable, at any depth, also by `freeze=True`."""
    value, expected = FROZEN[name]
    p = P(1.0, value)
    for frozen in (lw.freeze(value), p.a, lw.replace(p, x=2.0).a):
        assert type(frozen) is type(expected)
        assert frozen == expected
    assert jax.tree.structure(p) == jax.tree.structure(P(2.0, value))


IMMUTABLE = [1, "a", (1, (2,)), frozenset({1}), None, len, b"b", Pair(1, 2), lw.FrozenMapping(a=1)]


@pytest.mark.parametrize("value", [*IMMUTABLE, lw.StaticArray([1])], ids=repr)
def test_immutable_values_come_back_themselves(value: Any) -> None:
    """Where nothing has to change, `freeze` returns the very object."""
    assert lw.freeze(value) is value


def test_freeze_copies() -> None:
    """Later changes of the original do not reach the frozen value."""
    inner, table = [1], np.ones(2)
    value = {"k": inner, "t": table}
    p = P(1.0, value)
    inner.append(2)
    table[0] = 5
    value["new"] = [3]
    assert p.a["k"] == (1,)
    assert np.asarray(p.a["t"]).tolist() == [1.0, 1.0]
    assert list(p.a) == ["k", "t"]


def test_tracers_inside_are_reported_by_field() -> None:
    """A tracer in a field that freezes is named by class, field and path, with the rest."""

    @lw.pytree
    class Q:
        a: Any = lw.static_field(freeze=True)
        b: lw.Static[Any] = None

    with pytest.raises(lw.errors.StaticFieldError, match=r"Q\.a\['k'\]\[1\]"):
        jax.jit(lambda v: Q({"k": [1, v]}))(1.0)
    with pytest.raises(lw.errors.StaticFieldError, match=r"Q\.b: a list") as error:
        jax.jit(lambda v: Q({"k": [1, v]}, []))(1.0)
    assert [finding.kind for finding in error.value.findings] == ["tracer", "unhashable"]


def test_object_arrays_are_refused() -> None:
    """An array of Python objects has no bytes to be keyed on."""
    with pytest.raises(TypeError, match="not Python objects"):
        lw.freeze(np.array([object()], object))


def test_frozen_mapping_is_a_mapping() -> None:
    """It reads like a dict and equals any mapping of equal items, in any order."""
    mapping = lw.FrozenMapping({"b": 1}, a=2)
    assert isinstance(mapping, Mapping)
    assert list(mapping.items()) == [("b", 1), ("a", 2)]
    assert mapping["a"] == 2
    assert mapping.get("z") is None
    assert "b" in mapping
    assert len(mapping) == 2
    assert {**mapping} == mapping == {"a": 2, "b": 1}
    assert mapping == lw.FrozenMapping({"a": 2, "b": 1})
    assert mapping != {"a": 2}
    assert mapping | {"c": 3} == lw.FrozenMapping(b=1, a=2, c=3)
    assert lw.FrozenMapping([("a", 1)]) == lw.FrozenMapping(a=1)
    with pytest.raises(KeyError):
        mapping["z"]


def test_frozen_mapping_is_hashable() -> None:
    """Equal mappings hash the same, whatever their order; unhashable items say so."""
    one, two = lw.FrozenMapping(a=1, b=2), lw.FrozenMapping(b=2, a=1)
    assert hash(one) == hash(two)
    assert {one: "x"}[two] == "x"
    with pytest.raises(TypeError, match="unhashable"):
        hash(lw.FrozenMapping(a=[]))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.__setitem__("a", 2),
        lambda m: m.__delitem__("a"),
        lambda m: setattr(m, "a", 2),
        lambda m: setattr(m, "_items", {}),
        lambda m: m.update(a=2),
        lambda m: m.clear(),
    ],
    ids=["setitem", "delitem", "setattr", "items", "update", "clear"],
)
def test_frozen_mapping_cannot_be_changed(change: Any) -> None:
    """No public way changes a mapping: each is an error, and content and hash stay."""
    mapping = lw.FrozenMapping(a=1)
    before = hash(mapping)
    with pytest.raises((AttributeError, TypeError)):
        change(mapping)
    assert mapping == {"a": 1}
    assert hash(mapping) == before == hash(lw.FrozenMapping(a=1))
