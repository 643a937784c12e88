"""Hostile values: each is a key, a leaf, or an error that names the field."""

import functools
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._objects.classes import is_a
from leafwise._objects.text import got

from .hostile import LONG, VALUES, WRAPS, Box, Proxy, nested

pytestmark = [
    pytest.mark.hazard,
    pytest.mark.slow,  # all of them together
    # Memory may be collected where no stack is left, and what runs then cannot raise.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


NAMES = [
    pytest.param(name, marks=[pytest.mark.nightly] if name.endswith(("deep", "by value")) else [])
    for name in VALUES
]


@lw.pytree
class Plain:
    x: Any
    n: lw.Static[Any] = 0


@lw.pytree(many_statics=True)
class Many:
    x: Any
    n: lw.Static[Any] = 0


@lw.pytree
class Frozen:
    x: Any
    n: Any = lw.static_field(default=0, freeze=True)


@lw.pytree
class ByContent:
    x: Any
    n: Any = lw.static_field(default=0, by="content")


@lw.pytree
class Checked:
    x: Any
    n: Any = lw.static_field(default=0, check=lambda _: False)


def same(tree: Any) -> Any:
    return tree


def use_key(cls: Any, value: Any) -> None:
    """Do with an instance what asks for its statics."""
    made, again, other = cls(1.0, value), cls(1.0, value), cls(1.0, ("other",))
    treedef = jax.tree.structure(made)
    assert treedef == jax.tree.structure(again)
    assert treedef != jax.tree.structure(other)
    assert all(map(isinstance, (repr(made), str(treedef), lw.pformat(made)), [str] * 3))
    assert not lw.diff(made, again)
    assert "n" in str(lw.diff(made, other))
    assert "n" in str(lw.explain(lw.signature(same, made), lw.signature(same, other)))
    assert str(lw.show(made))
    with lw.debug.check_statics():
        jax.tree.flatten(made)
    with pytest.raises(lw.errors.StructureMismatchError) as error:
        lw.assert_same_structure(made, other)
    assert ".n" in str(error.value) or "n (static): " in str(error.value)


def error_of(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001  # looked at by the test
        return error
    return None


@pytest.mark.parametrize(
    "cls", [Plain, *(pytest.param(each, marks=pytest.mark.nightly) for each in (Many, Frozen))]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_static_value(name: str, cls: Any) -> None:
    """It makes a key that can be printed and compared, or an error names class and field."""
    value = VALUES[name]()
    error, where = error_of(lambda: use_key(cls, value)), f"{cls.__name__}.n"
    # Reading a mock changes it.
    if isinstance(error, lw.errors.StaticFieldError | lw.errors.StaticMutatedError):
        assert str(error).startswith(where)
    elif error is not None:
        # `freeze=True` iterates over the value, with whatever its class does there.
        assert cls is Frozen
        assert any(where in note for note in error.__notes__)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in VALUES
        if re.match("long|(tuple|frozenset|FrozenMapping|record) .* deep", name)
    ],
)
def test_a_static_value_by_content(name: str) -> None:
    """The same for a field that is compared by content."""
    value = VALUES[name]()
    error = error_of(lambda: use_key(ByContent, value))
    assert error is None or (
        isinstance(error, lw.errors.StaticFieldError) and str(error).startswith("ByContent.n")
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_message_about_a_value(name: str) -> None:
    """A refusal of what lies next to it, and a failed check, name the field."""
    value = VALUES[name]()
    with pytest.raises(lw.errors.StaticFieldError, match=r"^Plain\.n"):
        Plain(1.0, [value])
    with pytest.raises(lw.errors.FieldCheckError, match=r"^Checked\.n: its check .* refused"):
        Checked(1.0, value)


@pytest.mark.parametrize("name", NAMES)
def test_a_leaf(name: str) -> None:
    """It can be printed, compared and explained as a leaf; a deep tree is refused by path."""
    value = VALUES[name]()
    other = Plain(1.0)
    made = Plain(value)
    assert repr(made).startswith("Plain(")
    assert lw.pformat(made)

    def compare() -> None:
        assert str(lw.show(made))
        assert isinstance(str(lw.diff(made, other, values=True)), str)
        assert str(lw.explain(lw.signature(same, made), lw.signature(same, other)))

    error = error_of(compare)
    if error is not None:
        assert isinstance(error, lw.errors.TreeError)
        assert str(error).startswith("Plain.x")
        assert "nested too deeply" in str(error)


@pytest.mark.parametrize("name", [each for each in NAMES if "2000 deep" not in str(each.values)])
def test_a_captured_value(name: str) -> None:
    """A function that reads it can be looked at, hoisted and jitted, whatever it is."""
    value, weight = VALUES[name](), jnp.ones(2)
    for held in (value, [value], {"a": value}, Box(value)):

        def scaled(x: Any, of: Any = held) -> Any:
            return [held, of] and x * weight  # noqa: B023

        assert {"weight", "held"} <= {each.name for each in lw.captures(scaled)}
        hoisted, captured = lw.hoist(scaled)
        assert hoisted({**captured, "weight": jnp.zeros(2)}, 1.0).tolist() == [0, 0]
        jitted = lw.jit(scaled, stale="retrace")
        assert jitted(1.0).tolist() == jitted(1.0).tolist() == [1, 1]
        assert len(jitted.traces) == 1


@pytest.mark.parametrize("wrap", WRAPS)
def test_too_deep(wrap: str) -> None:
    """What is nested too deeply for a key is refused as that, or read."""
    value = nested(WRAPS[wrap], 1500)
    error = error_of(lambda: Plain(1.0, value))
    if error is not None:
        assert isinstance(error, lw.errors.UnhashableStaticError)
        assert str(error).startswith("Plain.n")
        assert "nested too deeply" in str(error) or wrap in ("list", "dict")


@pytest.mark.parametrize("wrap", ["tuple", "list", "dict", "FrozenMapping"])
def test_freeze_too_deep(wrap: str) -> None:
    """`freeze` says so, and the field is named."""
    value = nested(WRAPS[wrap], 3000)
    with pytest.raises(ValueError, match="nested too deeply"):
        lw.freeze(value)
    with pytest.raises(ValueError, match="nested too deeply") as error:
        Frozen(1.0, value)
    assert "Frozen.n" in error.value.__notes__[0]


def test_a_proxy_is_not_what_it_says() -> None:
    """A mock of a float is no float: another key, compared by identity."""
    fake = mock.Mock(spec=float)
    assert isinstance(fake, float)
    assert not is_a(fake, float)
    assert jax.tree.structure(Plain(1.0, fake)) == jax.tree.structure(Plain(1.0, fake))
    assert jax.tree.structure(Plain(1.0, fake)) != jax.tree.structure(
        Plain(1.0, mock.Mock(spec=float))
    )
    assert jax.tree.structure(Plain(1.0, Proxy(1.0))) != jax.tree.structure(Plain(1.0, 1.0))
    assert lw.freeze(proxy := Proxy([1])) is proxy


def test_arrays_and_tracers_are_arrays() -> None:
    """What JAX says of arrays, tracers, keys and shapes holds by type as well."""
    seen: list[bool] = []

    def check(x: Any) -> Any:
        seen.append(is_a(x, jax.Array) is isinstance(x, jax.Array) is True)
        return x

    jax.jit(check)(1.0)
    jax.vmap(check)(jnp.ones(2))
    jax.grad(check)(1.0)
    jax.jit(check)(jax.random.key(0))
    check(jnp.ones(2))
    check(jax.random.key(0))
    assert seen == [True] * 6
    assert not is_a(np.ones(2), jax.Array)
    assert not is_a(jax.ShapeDtypeStruct((), "f4"), jax.Array)
    assert got(jnp.ones(2)).startswith("float32[2] (")


def test_long_numbers() -> None:
    """A number of thousands of digits is a static as any other."""
    made = functools.partial(Plain, 1.0)
    with pytest.raises(ValueError, match="digits"):
        repr(LONG)
    assert jax.tree.structure(made(LONG)) == jax.tree.structure(made(LONG + 0))
    assert jax.tree.structure(made(LONG)) != jax.tree.structure(made(LONG + 1))
    assert repr(made(LONG).__leafwise_key__) != repr(made(LONG + 1).__leafwise_key__)
    assert repr(made(LONG)).startswith("Plain(x=1.0, n=<int whose repr raises")
