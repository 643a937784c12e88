"""The matrix can fail: each thing that it looks at is spoiled once."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

from .row import Function, Row, Rows, Seen, step
from .specimens import EAGER, FIELDS, RUNS, VALUES, Kind, inexact
from .test_matrix import test_derivatives as derivatives
from .test_matrix import test_result as result

ONCE = ("1", "0", "1")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rebuilt:
    """Plain JAX: the constructor runs whenever JAX rebuilds."""

    x: Any
    act: Any = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        RUNS.append("Rebuilt")


@jax.tree_util.register_pytree_node_class
class Forgetful:
    """A class that hands out another static than it was given."""

    def __init__(self, x: Any, act: Any) -> None:
        self.x, self.act = x, act

    def tree_flatten(self) -> Any:
        return (self.x,), self.act

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Any:
        return cls(*children, "tanh")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Confused:
    """Plain JAX: a static of another type is the same program."""

    x: Any
    act: Any = dataclasses.field(metadata={"static": True})


@lw.pytree
class Fine:
    x: Any
    act: Any = lw.static_field()


@pytest.fixture(autouse=True)
def _fields() -> Iterator[None]:
    names = (("x",), ("act",))
    FIELDS.update(dict.fromkeys((Rebuilt, Forgetful, Confused, Fine), names))
    yield
    for cls in (Rebuilt, Forgetful, Confused, Fine):
        del FIELDS[cls]


def kind(cls: Any, **statics: Any) -> Kind:
    return Kind(cls.__name__, lambda act: cls(jnp.float32(0.5), statics.get(act, act)))


def row(build: Any, traces: Any = ONCE, **more: Any) -> Row:
    rows = Rows("Planted")
    rows.add("planted", "everything", step, traces, concrete=True, **more)(build)
    return rows[0]


def jit(seen: Seen) -> Function:
    return jax.jit(lambda p: step(seen(p)))


def test_a_sound_class_passes() -> None:
    """What follows fails for its own reason: the same row holds for a class that is sound."""
    result(row(jit), kind(Fine))
    result(row(jit), kind(Fine, tanh=1, sin=True))
    derivatives(row(jit), VALUES)


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (kind(Rebuilt), "Rebuilt"),
        (kind(Forgetful), "sin"),
        (kind(Confused, tanh=1, sin=True), "True"),
    ],
    ids=["a constructor that runs again", "a static that is lost", "two statics taken for one"],
)
def test_a_spoiled_class_fails(spoiled: Kind, why: str) -> None:
    """The result of a row is not accepted."""
    with pytest.raises(AssertionError, match=why):
        result(row(jit), spoiled)


def wrong_number(seen: Seen) -> Function:
    return jax.jit(lambda p: jax.tree.map(lambda x: x + 0.5, step(seen(p))))


def wrong_class(seen: Seen) -> Function:
    return jax.jit(lambda p: [step(seen(p))])


def wrong_dtype(seen: Seen) -> Function:
    return jax.jit(lambda p: jax.tree.map(lambda x: x.astype(jnp.float16), step(seen(p))))


def one_more_trace(seen: Seen) -> Function:
    return lambda p: jax.jit(lambda q: step(seen(q)))(p)


@pytest.mark.parametrize(
    "build", [wrong_number, wrong_class, wrong_dtype, one_more_trace], ids=lambda f: f.__name__
)
def test_a_spoiled_row_fails(build: Any) -> None:
    """A wrong number, class or dtype, and a trace too many, are seen."""
    with pytest.raises(AssertionError):
        result(row(build), EAGER)


def wrong_slope(seen: Seen) -> Function:
    def bend(x: Any) -> Any:
        return x + (x - jax.lax.stop_gradient(x)) if inexact(x) else x  # in its slope alone

    return jax.jit(lambda p: jax.tree.map(bend, step(seen(p))))


KEPT: list[Any] = []


def leak(seen: Seen) -> Function:
    return jax.jit(lambda p: KEPT.append(p) or step(seen(p)))


@pytest.mark.parametrize(
    ("spoiled", "error"),
    [
        (row(wrong_slope), AssertionError),
        (row(leak), Exception),
        (row(jit, forward="no such error"), pytest.fail.Exception),
    ],
    ids=["a wrong gradient", "a leaked tracer", "a refusal that does not come"],
)
def test_a_spoiled_derivative_fails(spoiled: Row, error: Any) -> None:
    """A wrong derivative, a tracer that gets out, and an error that is not raised, are seen."""
    with pytest.raises(error):
        derivatives(spoiled, VALUES)
    KEPT.clear()
