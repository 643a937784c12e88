"""The repr of a key, which JAX prints on a mismatch: it names class and fields, and differs."""

import dataclasses
import enum
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.hazard


@lw.pytree
class Params:
    x: Any
    a: Any = lw.static_field(default=2)
    act: Any = lw.static_field(default="relu")


def key_repr(static: Any) -> str:
    """Return what JAX prints for a key with this static."""
    text = str(jax.tree.structure(Params(1.0, static)))
    assert "Params[Params(a=" in text
    return text


def local_enum() -> Any:
    class Mode(enum.Enum):
        ON = 1

    return Mode.ON


def local_dataclass() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Config:
        depth: int = 1

    return Config()


def local_object() -> Any:
    class Thing:
        def __repr__(self) -> str:
            return "Thing()"

    return Thing()


@pytest.mark.parametrize(
    "make",
    [
        local_enum,
        local_dataclass,
        local_object,
        lambda: lambda: None,
    ],
)
def test_look_alikes_say_why_they_differ(make: Any) -> None:
    """What prints alike is followed by the reason that it is not the same."""
    first, second = make(), make()
    structures = [jax.tree.structure(Params(1.0, static)) for static in (first, second)]
    assert structures[0] != structures[1]
    left, right = key_repr(first), key_repr(second)
    assert left != right
    for text in (left, right):
        assert any(why in text for why in ("identity", "redefined", "local", "0x"))


@pytest.mark.parametrize(
    ("static", "text"),
    [
        pytest.param(1, "a=1,", id="int"),
        pytest.param(True, "a=True,", id="bool"),
        pytest.param(-0.0, "a=-0.0,", id="float"),
        pytest.param(10**5000, "a=", id="huge int"),
        pytest.param("x" * 5000, "a='xxx", id="long text"),
        pytest.param(tuple(range(5000)), "a=(0, 1, 2", id="long tuple"),
        pytest.param(frozenset("ab"), "a=frozenset({'a', 'b'})", id="frozenset"),
        pytest.param(lw.FrozenMapping(k=1), "a={'k': 1}", id="mapping"),
        pytest.param(lw.StaticArray([1]), "a=StaticArray([1]", id="array"),
        pytest.param(jnp.float32, "a=jax.numpy.float32", id="jnp dtype"),
        pytest.param(len, "a=<", id="builtin"),
    ],
)
def test_statics_as_text(static: Any, text: str) -> None:
    """Statics are printed as code where they are short, and cut where they are not."""
    printed = key_repr(static)
    assert text in printed
    assert len(printed) < 1000


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(10**5000, 10**5000 + 1, id="huge int"),
        pytest.param("x" * 5000, "x" * 4999 + "y", id="long text"),
        pytest.param(tuple(range(5000)), (*range(4999), 0), id="long tuple"),
        pytest.param(b"x" * 5000, b"x" * 4999 + b"y", id="long bytes"),
        pytest.param(frozenset(range(5000)), frozenset(range(1, 5001)), id="large set"),
        pytest.param(
            lw.StaticArray(jnp.zeros(1000)), lw.StaticArray(-jnp.zeros(1000)), id="large array"
        ),
        pytest.param(
            lw.FrozenMapping({i: i for i in range(500)}),
            lw.FrozenMapping({i: i % 499 for i in range(500)}),
            id="large mapping",
        ),
    ],
)
def test_what_is_cut_still_differs(first: Any, second: Any) -> None:
    """A digest distinguishes long values whose text is cut."""
    assert key_repr(first) != key_repr(second)
