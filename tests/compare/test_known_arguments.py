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

from .pairs import Arguments, call, deleted, first_device, helper, ones, two_calls

pytestmark = pytest.mark.oracle

REUSE, DISPATCH = Outcome.REUSE, Outcome.DISPATCH
RECOMPILE, RETRACE, ERROR = Outcome.RECOMPILE, Outcome.RETRACE, Outcome.ERROR


Pair = namedtuple("Pair", ["a", "b"])  # noqa: PYI024  # the old way is a specimen, too


def pair(before: Any, after: Any) -> tuple[Arguments, Arguments]:
    """Return two calls with one argument each."""
    return call(before), call(after)


KNOWN: dict[str, tuple[Outcome, Callable[[], tuple[Arguments, Arguments]], str]] = {
    "same avals": (REUSE, lambda: pair(ones(3), jnp.zeros(3)), ""),
    "NumPy after JAX": (DISPATCH, lambda: pair(ones(3), np.ones(3, np.float32)), "args[0]: kind"),
    "another Python number": (REUSE, lambda: pair(2.0, 1.0), ""),
    "NumPy scalar after a Python number": (
        RETRACE,
        lambda: pair(1.0, np.float32(1)),
        "args[0]: weak type",
    ),
    "weakly typed array after a strong one": (
        RETRACE,
        lambda: pair(jnp.float32(1), jnp.asarray(1.0)),
        "args[0]: weak type",
    ),
    "int after float": (RETRACE, lambda: pair(1.0, 1), "args[0]: dtype"),
    "committed after uncommitted": (
        RECOMPILE,
        lambda: pair(ones(3), first_device(ones(3))),
        "args[0]: commitment",
    ),
    "x64": (RETRACE, lambda: pair(1.0, 1.0), "config.jax_enable_x64: config"),
    "matmul precision": (
        RETRACE,
        lambda: pair(ones(3), ones(3)),
        "config.jax_default_matmul_precision: config",
    ),
    "shape": (RETRACE, lambda: pair({"w": ones(3)}, {"w": ones(4)}), "args[0]['w']: shape"),
    "dtype": (RETRACE, lambda: pair(ones(3), ones(3).astype(jnp.int32)), "args[0]: dtype"),
    "deleted array": (ERROR, lambda: pair(ones(3), deleted()), "args[0]: invalid"),
    "string": (ERROR, lambda: pair(ones(3), "relu"), "args[0]: invalid"),
    "ShapeDtypeStruct": (
        ERROR,
        lambda: pair(ones(3), jax.ShapeDtypeStruct((3,), jnp.float32)),
        "args[0]: invalid",
    ),
    "old key after a new one": (
        RETRACE,
        lambda: pair(jax.random.key(0), jax.random.PRNGKey(0)),
        "args[0]: dtype",
    ),
    "another key": (REUSE, lambda: pair(jax.random.key(0), jax.random.key(1)), ""),
    "dict key missing": (
        RETRACE,
        lambda: pair({"a": 1.0, "b": 1.0}, {"a": 1.0}),
        "args[0]['b']: structure",
    ),
    "dict order": (REUSE, lambda: pair({"a": 1.0, "b": 1}, {"b": 1, "a": 1.0}), ""),
    "OrderedDict order": (
        RETRACE,
        lambda: pair(OrderedDict(a=1.0, b=1.0), OrderedDict(b=1.0, a=1.0)),
        "args[0]: structure",
    ),
    "None became an array": (
        RETRACE,
        lambda: pair({"bias": None, "w": 1.0}, {"bias": ones(3), "w": 1.0}),
        "args[0]['bias']: structure",
    ),
    "an array became None": (
        RETRACE,
        lambda: pair((1.0, ones(3)), (1.0, None)),
        "args[0][1]: structure",
    ),
    "list length": (RETRACE, lambda: pair([1.0, 2.0], [1.0, 2.0, 3.0]), "args[0]: structure"),
    "namedtuple after tuple": (
        RETRACE,
        lambda: pair((1.0, 2.0), Pair(1.0, 2.0)),
        "args[0]: structure",
    ),
    "keyword after position": (
        RETRACE,
        lambda: (call(1.0, 2.0), call(1.0, y=2.0)),
        "args[1]: arguments",
    ),
    "one more argument": (RETRACE, lambda: (call(1.0), call(1.0, 2.0)), "args[1]: arguments"),
    "another optimizer's state": (
        RETRACE,
        lambda: pair(optax.sgd(0.1).init(ones(3)), optax.adam(0.1).init(ones(3))),
        "args[0][0]: structure",
    ),
    "state of the optimizer built again": (
        REUSE,
        lambda: pair(optax.adam(0.1).init(ones(3)), optax.adam(0.2).init(ones(3))),
        "",
    ),
    "Partial of another function": (
        RETRACE,
        lambda: pair(jax.tree_util.Partial(helper, 1.0), jax.tree_util.Partial(jnp.sin, 1.0)),
        "args[0].func: static",
    ),
    "static_argnums 1 and True": (
        RETRACE,
        lambda: (call(1.0, 1), call(1.0, True)),
        "args[1]: static",
    ),
    "static_argnums 1 and 2": (RETRACE, lambda: (call(1.0, 1), call(1.0, 2)), "args[1]: static"),
    "static_argnames, another text": (
        RETRACE,
        lambda: (call(1.0, mode="a"), call(1.0, mode="b")),
        "kwargs['mode']: static",
    ),
    "static argument without a hash": (
        ERROR,
        lambda: (call(1.0, (1,)), call(1.0, [1])),
        "args[1]: invalid",
    ),
    "fresh lambda as a static argument": (
        RETRACE,
        lambda: (call(1.0, lambda x: x), call(1.0, lambda x: x)),
        "args[1]: static",
    ),
}
"""What JAX does for the second of two calls, and the path and the kind of the reason."""

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
    """JAX does what the table says, and leafwise predicts it, with path and kind."""
    outcome, make, place = KNOWN[name]
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
    assert f"{reason.path}: {reason.kind}" == place
    assert reason.path in str(seen.predicted)
