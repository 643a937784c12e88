"""Known differences of arguments, leaf by leaf: predicted and observed."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from leafwise.types import Outcome

from .pairs import Arguments, call, two_calls

pytestmark = pytest.mark.oracle

REUSE, DISPATCH = Outcome.REUSE, Outcome.DISPATCH
RECOMPILE, RETRACE, ERROR = Outcome.RECOMPILE, Outcome.RETRACE, Outcome.ERROR


Pair = namedtuple("Pair", ["a", "b"])  # noqa: PYI024  # the old way is a specimen, too


def helper(n: int = 1) -> int:
    return n


def ones(*shape: int) -> Any:
    return jnp.ones(shape)


def first_device(x: Any) -> Any:
    return jax.device_put(x, jax.devices()[0])


def deleted() -> Any:
    array = jnp.arange(3.0) + 1
    array.delete()
    return array


KNOWN: dict[str, tuple[Outcome, Callable[[], tuple[Arguments, Arguments]], str]] = {
    "same avals": (REUSE, lambda: (call(ones(3)), call(jnp.zeros(3))), ""),
    "NumPy after JAX": (
        DISPATCH,
        lambda: (call(ones(3)), call(np.ones(3, np.float32))),
        "args[0]: kind jax array -> numpy array",
    ),
    "another Python number": (REUSE, lambda: (call(2.0), call(1.0)), ""),
    "NumPy scalar after a Python number": (
        RETRACE,
        lambda: (call(1.0), call(np.float32(1))),
        "args[0]: weak type float32[] (Python scalar, weakly typed) -> float32[] (numpy scalar)",
    ),
    "weakly typed array after a strong one": (
        RETRACE,
        lambda: (call(jnp.float32(1)), call(jnp.asarray(1.0))),
        "args[0]: weak type float32[] (jax array) -> float32[] (jax array, weakly typed)",
    ),
    "int after float": (RETRACE, lambda: (call(1.0), call(1)), "args[0]: dtype float32 -> int32"),
    "committed after uncommitted": (
        RECOMPILE,
        lambda: (call(ones(3)), call(first_device(ones(3)))),
        "args[0] (commitment): on {0} -> committed to {0}".format(jax.devices()[0]),
    ),
    "x64": (
        RETRACE,
        lambda: (call(1.0), call(1.0)),
        "config.jax_enable_x64 (config): False -> True",
    ),
    "matmul precision": (
        RETRACE,
        lambda: (call(ones(3)), call(ones(3))),
        "config.jax_default_matmul_precision (config): None -> 'highest'",
    ),
    "shape": (
        RETRACE,
        lambda: (call({"w": ones(3)}), call({"w": ones(4)})),
        "args[0]['w']: shape (3,) -> (4,)",
    ),
    "dtype": (
        RETRACE,
        lambda: (call(ones(3)), call(ones(3).astype(jnp.int32))),
        "args[0]: dtype float32 -> int32",
    ),
    "deleted array": (
        ERROR,
        lambda: (call(ones(3)), call(deleted())),
        "args[0] (invalid): float32[3] (jax array) -> an array that was deleted or donated",
    ),
    "string": (
        ERROR,
        lambda: (call(ones(3)), call("relu")),
        "args[0] (invalid): float32[3] (jax array) -> 'relu' (str), which JAX refuses",
    ),
    "ShapeDtypeStruct": (
        ERROR,
        lambda: (call(ones(3)), call(jax.ShapeDtypeStruct((3,), jnp.float32))),
        "args[0] (invalid): float32[3] (jax array) -> float32[3] (ShapeDtypeStruct)",
    ),
    "old key after a new one": (
        RETRACE,
        lambda: (call(jax.random.key(0)), call(jax.random.PRNGKey(0))),
        "args[0]: dtype key<fry>[] -> uint32[2]",
    ),
    "another key": (REUSE, lambda: (call(jax.random.key(0)), call(jax.random.key(1))), ""),
    "dict key missing": (
        RETRACE,
        lambda: (call({"a": 1.0, "b": 1.0}), call({"a": 1.0})),
        "args[0]['b'] (structure): there -> (absent)",
    ),
    "dict order": (REUSE, lambda: (call({"a": 1.0, "b": 1}), call({"b": 1, "a": 1.0})), ""),
    "OrderedDict order": (
        RETRACE,
        lambda: (call(OrderedDict(a=1.0, b=1.0)), call(OrderedDict(b=1.0, a=1.0))),
        "args[0] (structure): ['a'], ['b'] -> ['b'], ['a']",
    ),
    "None became an array": (
        RETRACE,
        lambda: (call({"bias": None, "w": 1.0}), call({"bias": ones(3), "w": 1.0})),
        "args[0]['bias'] (structure): None became an array",
    ),
    "an array became None": (
        RETRACE,
        lambda: (call((1.0, ones(3))), call((1.0, None))),
        "args[0][1] (structure): an array became None",
    ),
    "list length": (
        RETRACE,
        lambda: (call([1.0, 2.0]), call([1.0, 2.0, 3.0])),
        "args[0] (structure): 2 elements -> 3 elements",
    ),
    "namedtuple after tuple": (
        RETRACE,
        lambda: (call((1.0, 2.0)), call(Pair(1.0, 2.0))),
        "args[0] (structure): tuple -> Pair",
    ),
    "keyword after position": (
        RETRACE,
        lambda: (call(1.0, 2.0), call(1.0, y=2.0)),
        "args[1] (arguments): given before, and not now",
    ),
    "one more argument": (
        RETRACE,
        lambda: (call(1.0), call(1.0, 2.0)),
        "args[1] (arguments): not given before",
    ),
    "another optimizer's state": (
        RETRACE,
        lambda: (call(optax.sgd(0.1).init(ones(3))), call(optax.adam(0.1).init(ones(3)))),
        "args[0][0] (structure): EmptyState -> ScaleByAdamState",
    ),
    "state of the optimizer built again": (
        REUSE,
        lambda: (call(optax.adam(0.1).init(ones(3))), call(optax.adam(0.2).init(ones(3)))),
        "",
    ),
    "Partial of another function": (
        RETRACE,
        lambda: (
            call(jax.tree_util.Partial(helper, 1.0)),
            call(jax.tree_util.Partial(jnp.sin, 1.0)),
        ),
        "args[0].func (static): another function",
    ),
    "static_argnums 1 and True": (
        RETRACE,
        lambda: (call(1.0, 1), call(1.0, True)),
        "args[1] (static): 1 (int) -> True (bool)",
    ),
    "static_argnums 1 and 2": (
        RETRACE,
        lambda: (call(1.0, 1), call(1.0, 2)),
        "args[1] (static): 1 -> 2",
    ),
    "static_argnames, another text": (
        RETRACE,
        lambda: (call(1.0, mode="a"), call(1.0, mode="b")),
        "kwargs['mode'] (static): 'a' -> 'b'",
    ),
    "static argument without a hash": (
        ERROR,
        lambda: (call(1.0, (1,)), call(1.0, [1])),
        "args[1] (invalid): (1,) -> [1]",
    ),
    "fresh lambda as a static argument": (
        RETRACE,
        lambda: (call(1.0, lambda x: x), call(1.0, lambda x: x)),
        "args[1] (static): another function",
    ),
}
"""What JAX does for the second of two calls, and the reason that is given."""

FIXES = {
    "old key after a new one": "or `PRNGKey` in every call",
    "NumPy after JAX": "one slower call",
    "NumPy scalar after a Python number": "jnp.float32(1.0)",
    "weakly typed array after a strong one": "`jnp.float32(x)` in this call",
    "int after float": "`1.0` in this call",
    "committed after uncommitted": "commit it in every call",
    "x64": "set `jax_enable_x64` once",
    "matmul precision": "one setting",
    "shape": "pad",
    "dtype": "float32",
    "deleted array": "use what the call that donated it returned",
    "string": "mark it static",
    "ShapeDtypeStruct": "eval_shape",
    "dict key missing": "keep one set of keys",
    "OrderedDict order": "order",
    "list length": "length",
    "one more argument": "default",
    "static_argnums 1 and 2": "make it dynamic",
    "static_argnames, another text": "keep one value, or a few",
    "static argument without a hash": "tuple",
}

OPTIONS: dict[str, Any] = {
    "x64": {"context": lambda: jax.enable_x64(True)},
    "matmul precision": {"context": lambda: jax.default_matmul_precision("highest")},
    "static_argnums 1 and True": {"static_argnums": (1,)},
    "static_argnums 1 and 2": {"static_argnums": (1,)},
    "static_argnames, another text": {"static_argnames": ("mode",)},
    "static argument without a hash": {"static_argnums": (1,)},
    "fresh lambda as a static argument": {"static_argnums": (1,)},
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_situation(name: str) -> None:
    """JAX does what the table says, and leafwise predicts it, with path, kind and fix."""
    outcome, make, words = KNOWN[name]
    seen = two_calls(*make(), **OPTIONS.get(name, {}))
    assert seen.outcome is outcome, "the table is wrong about JAX"
    assert seen.predicted.outcome is outcome, str(seen.predicted)
    if outcome is not ERROR:
        assert seen.equal is (outcome in (REUSE, DISPATCH))
    assert not seen.predicted.unsound
    if outcome is REUSE:
        assert not seen.predicted.reasons
        return
    reason = seen.predicted.reasons[0]
    assert str(reason).startswith(words)
    assert FIXES.get(name, "") in str(reason.fix)
    assert reason.path in str(seen.predicted)
