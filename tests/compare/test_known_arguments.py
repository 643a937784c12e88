"""Known differences of arguments, leaf by leaf: predicted and observed."""

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from leafwise.types import Outcome, ReasonKind

from .pairs import Arguments, call, two_calls

pytestmark = pytest.mark.oracle

REUSE, DISPATCH = Outcome.REUSE, Outcome.DISPATCH
RECOMPILE, RETRACE, ERROR = Outcome.RECOMPILE, Outcome.RETRACE, Outcome.ERROR


Pair = namedtuple("Pair", ["a", "b"])  # noqa: PYI024  # the old way is a specimen, too
Couple = namedtuple("Couple", ["a", "b"])  # noqa: PYI024  # and so is another of the same fields


def helper(n: int = 1) -> int:
    return n


def ones(*shape: int) -> Any:
    return jnp.ones(shape)


def first_device(x: Any) -> Any:
    return jax.device_put(x, jax.devices()[0])


@dataclasses.dataclass(frozen=True)
class Row:
    """A pair of calls, and what must come of it.

    The calls are made when the test runs, so that a value made in them is a fresh one.
    """

    name: str
    before: Callable[[], Arguments]
    after: Callable[[], Arguments]
    outcome: Outcome
    path: str | None = None
    kind: ReasonKind | None = None
    fix: str = ""
    options: Any = dataclasses.field(default_factory=dict)


DYNAMIC = [
    Row("same avals", lambda: call(ones(3)), lambda: call(jnp.zeros(3)), REUSE),
    Row(
        "NumPy after JAX",
        lambda: call(ones(3)),
        lambda: call(np.ones(3, np.float32)),
        DISPATCH,
        "args[0]",
        ReasonKind.LEAF_KIND,
        "one slower call",
    ),
    Row("another Python number", lambda: call(2.0), lambda: call(1.0), REUSE),
    Row(
        "NumPy scalar after a Python number",
        lambda: call(1.0),
        lambda: call(np.float32(1)),
        RETRACE,
        "args[0]",
        ReasonKind.WEAK_TYPE,
        "jnp.float32(1.0)",
    ),
    Row(
        "weakly typed array after a strong one",
        lambda: call(jnp.float32(1)),
        lambda: call(jnp.asarray(1.0)),
        RETRACE,
        "args[0]",
        ReasonKind.WEAK_TYPE,
        "fix: `jnp.float32(x)` in this call",
    ),
    Row(
        "int after float",
        lambda: call(1.0),
        lambda: call(1),
        RETRACE,
        "args[0]",
        ReasonKind.DTYPE,
        "fix: `1.0` in this call",
    ),
    Row(
        "bool after int",
        lambda: call(1),
        lambda: call(True),
        RETRACE,
        "args[0]",
        ReasonKind.DTYPE,
        "fix: `1` in this call",
    ),
    Row(
        "committed after uncommitted",
        lambda: call(ones(3)),
        lambda: call(first_device(ones(3))),
        RECOMPILE,
        "args[0]",
        ReasonKind.COMMITMENT,
        "commit it in every call",
    ),
    Row(
        "uncommitted after committed",
        lambda: call(first_device(ones(3))),
        lambda: call(ones(3)),
        RECOMPILE,
        "args[0]",
        ReasonKind.COMMITMENT,
        "or in none",
    ),
    Row(
        "x64",
        lambda: call(1.0),
        lambda: call(1.0),
        RETRACE,
        "config.jax_enable_x64",
        ReasonKind.CONFIG,
        "set `jax_enable_x64` once",
        {"context": lambda: jax.enable_x64(True)},
    ),
    Row(
        "matmul precision",
        lambda: call(ones(3)),
        lambda: call(ones(3)),
        RETRACE,
        "config.jax_default_matmul_precision",
        ReasonKind.CONFIG,
        "one setting",
        {"context": lambda: jax.default_matmul_precision("highest")},
    ),
    Row(
        "shape",
        lambda: call({"w": ones(3)}),
        lambda: call({"w": ones(4)}),
        RETRACE,
        "args[0]['w']",
        ReasonKind.SHAPE,
        "pad",
    ),
    Row(
        "dtype",
        lambda: call(ones(3)),
        lambda: call(ones(3).astype(jnp.int32)),
        RETRACE,
        "args[0]",
        ReasonKind.DTYPE,
        "float32",
    ),
    Row(
        "deleted array",
        lambda: call(ones(3)),
        lambda: call(deleted()),
        ERROR,
        "args[0]",
        ReasonKind.INVALID,
        "use what the call that donated it returned",
    ),
    Row(
        "string",
        lambda: call(ones(3)),
        lambda: call("relu"),
        ERROR,
        "args[0]",
        ReasonKind.INVALID,
        "mark it static",
    ),
    Row(
        "ShapeDtypeStruct",
        lambda: call(ones(3)),
        lambda: call(jax.ShapeDtypeStruct((3,), jnp.float32)),
        ERROR,
        "args[0]",
        ReasonKind.INVALID,
        "eval_shape",
    ),
    Row(
        "old key after a new one",
        lambda: call(jax.random.key(0)),
        lambda: call(jax.random.PRNGKey(0)),
        RETRACE,
        "args[0]",
    ),
    Row("another key", lambda: call(jax.random.key(0)), lambda: call(jax.random.key(1)), REUSE),
]


def deleted() -> Any:
    array = jnp.arange(3.0) + 1
    array.delete()
    return array


STRUCTURE = [
    Row(
        "dict key missing",
        lambda: call({"a": 1.0, "b": 1.0}),
        lambda: call({"a": 1.0}),
        RETRACE,
        "args[0]['b']",
        ReasonKind.STRUCTURE,
        "keep one set of keys",
    ),
    Row("dict order", lambda: call({"a": 1.0, "b": 1}), lambda: call({"b": 1, "a": 1.0}), REUSE),
    Row(
        "OrderedDict order",
        lambda: call(OrderedDict(a=1.0, b=1.0)),
        lambda: call(OrderedDict(b=1.0, a=1.0)),
        RETRACE,
        "args[0]",
        ReasonKind.STRUCTURE,
        "order",
    ),
    Row(
        "None became an array",
        lambda: call({"bias": None, "w": 1.0}),
        lambda: call({"bias": ones(3), "w": 1.0}),
        RETRACE,
        "args[0]['bias']",
        ReasonKind.STRUCTURE,
        "None became",
    ),
    Row(
        "an array became None",
        lambda: call((1.0, ones(3))),
        lambda: call((1.0, None)),
        RETRACE,
        "args[0][1]",
        ReasonKind.STRUCTURE,
        "became None",
    ),
    Row(
        "list length",
        lambda: call([1.0, 2.0]),
        lambda: call([1.0, 2.0, 3.0]),
        RETRACE,
        "args[0]",
        ReasonKind.STRUCTURE,
        "length",
    ),
    Row(
        "tuple after list",
        lambda: call([1.0]),
        lambda: call((1.0,)),
        RETRACE,
        "args[0]",
        ReasonKind.STRUCTURE,
        "structure",
    ),
    Row(
        "namedtuple after tuple",
        lambda: call((1.0, 2.0)),
        lambda: call(Pair(1.0, 2.0)),
        RETRACE,
        "args[0]",
        ReasonKind.STRUCTURE,
    ),
    Row(
        "another namedtuple class",
        lambda: call(Couple(1.0, 2.0)),
        lambda: call(Pair(1.0, 2.0)),
        RETRACE,
        "args[0]",
        ReasonKind.STRUCTURE,
    ),
    Row(
        "keyword after position",
        lambda: call(1.0, 2.0),
        lambda: call(1.0, y=2.0),
        RETRACE,
        None,
        ReasonKind.ARGUMENTS,
    ),
    Row(
        "one more argument",
        lambda: call(1.0),
        lambda: call(1.0, 2.0),
        RETRACE,
        "args[1]",
        ReasonKind.ARGUMENTS,
        "default",
    ),
    Row(
        "another optimizer's state",
        lambda: call(optax.sgd(0.1).init(ones(3))),
        lambda: call(optax.adam(0.1).init(ones(3))),
        RETRACE,
        None,
        ReasonKind.STRUCTURE,
    ),
    Row(
        "state of the optimizer built again",
        lambda: call(optax.adam(0.1).init(ones(3))),
        lambda: call(optax.adam(0.2).init(ones(3))),
        REUSE,
    ),
    Row(
        "Partial of another function",
        lambda: call(jax.tree_util.Partial(helper, 1.0)),
        lambda: call(jax.tree_util.Partial(jnp.sin, 1.0)),
        RETRACE,
        "args[0].func",
        ReasonKind.STATIC,
    ),
]

ARGUMENTS = [
    Row(
        "static_argnums 1 and True",
        lambda: call(1.0, 1),
        lambda: call(1.0, True),
        RETRACE,
        "args[1]",
        ReasonKind.STATIC,
        "1 (int) -> True (bool)",
        {"static_argnums": (1,)},
    ),
    Row(
        "static_argnums 1 and 2",
        lambda: call(1.0, 1),
        lambda: call(1.0, 2),
        RETRACE,
        "args[1]",
        ReasonKind.STATIC,
        "make it dynamic",
        {"static_argnums": (1,)},
    ),
    Row(
        "static_argnums, equal tuples",
        lambda: call(1.0, (1, "a")),
        lambda: call(1.0, (1, "".join("a"))),
        REUSE,
        options={"static_argnums": (1,)},
    ),
    Row(
        "static_argnames, another text",
        lambda: call(1.0, mode="a"),
        lambda: call(1.0, mode="b"),
        RETRACE,
        "kwargs['mode']",
        ReasonKind.STATIC,
        "keep one value, or a few",
        {"static_argnames": ("mode",)},
    ),
    Row(
        "static argument without a hash",
        lambda: call(1.0, (1,)),
        lambda: call(1.0, [1]),
        ERROR,
        "args[1]",
        ReasonKind.INVALID,
        "tuple",
        {"static_argnums": (1,)},
    ),
    Row(
        "fresh lambda as a static argument",
        lambda: call(1.0, lambda x: x),
        lambda: call(1.0, lambda x: x),
        RETRACE,
        "args[1]",
        ReasonKind.STATIC,
        "",
        {"static_argnums": (1,)},
    ),
]


@pytest.mark.parametrize("row", DYNAMIC + STRUCTURE + ARGUMENTS, ids=lambda row: row.name)
def test_a_known_situation(row: Row) -> None:
    """JAX does what the table says, and leafwise predicts it, with path, kind and fix."""
    seen = two_calls(row.before(), row.after(), **row.options)
    assert seen.outcome is row.outcome, "the table is wrong about JAX"
    assert seen.predicted.outcome is row.outcome, str(seen.predicted)
    if row.outcome is not ERROR:
        assert seen.equal is (row.outcome in (REUSE, DISPATCH))
    assert not seen.predicted.unsound
    if row.outcome is REUSE:
        assert not seen.predicted.reasons
        return
    reason = seen.predicted.reasons[0]
    assert row.path in (None, reason.path), str(seen.predicted)
    assert row.kind in (None, reason.kind), str(seen.predicted)
    assert row.fix in str(reason), str(seen.predicted)
    assert reason.path in str(seen.predicted)
