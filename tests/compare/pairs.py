"""One call of a jitted function after another: what JAX did, and what was predicted."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import pytest
from tests.kit.inside import count_events

import leafwise as lw


def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Write down the arguments of a call."""
    return args, kwargs


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def helper(n: int = 1) -> int:
    return n


def ones(*shape: int) -> Any:
    return jax.numpy.ones(shape)


def first_device(x: Any) -> Any:
    return jax.device_put(x, jax.devices()[0])


def deleted() -> Any:
    array = jax.numpy.arange(3.0) + 1
    array.delete()
    return array


@dataclasses.dataclass
class Seen:
    """What JAX did with the second of two calls, and what leafwise says of it."""

    outcome: lw.types.Outcome
    predicted: lw.types.Explanation
    equal: bool


def everything(*args: Any, **kwargs: Any) -> list[Any]:
    """Use all arguments, so that JAX drops none."""
    return [
        jax.random.key_data(leaf)
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else leaf
        for leaf in jax.tree.leaves((args, kwargs))
        if hasattr(leaf, "dtype")
    ]


def observed(function: Any, arguments: Arguments) -> lw.types.Outcome:
    """Make a call; return what JAX did, by its own count."""
    args, kwargs = arguments
    entries = function._cache_size()
    with count_events() as counts:
        try:
            function(*args, **kwargs)
        except Exception:  # noqa: BLE001  # whatever JAX raises
            return lw.types.Outcome.ERROR
    if counts.traces:
        return lw.types.Outcome.RETRACE
    if counts.lowerings or counts.compiles:
        return lw.types.Outcome.RECOMPILE
    return lw.types.Outcome.DISPATCH if function._cache_size() > entries else lw.types.Outcome.REUSE


def two_calls(
    before: Arguments,
    after: Arguments,
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    context: Callable[[], Any] = contextlib.nullcontext,
) -> Seen:
    """Make two calls of a fresh function; the second one is made in a context."""
    statics: Any = {}
    if static_argnums:
        statics["static_argnums"] = tuple(static_argnums)
    if static_argnames:
        statics["static_argnames"] = tuple(static_argnames)

    def function(*args: Any, **kwargs: Any) -> list[Any]:
        return everything(*args, **kwargs)

    jitted = jax.jit(function, **statics)
    earlier = lw.signature(*before[0], **before[1], **statics)
    jitted(*before[0], **before[1])
    with context():
        later = lw.signature(*after[0], **after[1], **statics)
        outcome = observed(jitted, after)
    return Seen(outcome, later.explain(earlier), earlier == later)


HEAD = """
from collections import OrderedDict, namedtuple
import jax, jax.numpy as jnp, numpy as np, optax
from functools import partial
from jax.tree_util import Partial
from tests.compare.pairs import call, deleted, first_device, helper, ones
from tests.kit.specimens import Equinox, Flax, Jdc, Plain, Slotted
Pair = namedtuple("Pair", ["a", "b"])  # the old way is a specimen, too
NAN = float("nan")
class Machine:  # it compares by identity
    def method(self): return 1
def closure(): return lambda: None
"""


class Row(NamedTuple):
    """The arguments of two calls, what JAX does for the second one, and the reason's place."""

    name: str
    before: str
    after: str
    outcome: str
    place: str


def rows(table: str) -> list[Any]:
    """Return the rows of a table."""
    found = re.findall(r"(.*?): (.*) \| (.*) -> (\w+)(?:, )?(.*)\n", table)
    return [pytest.param(Row(*cells), id=cells[0]) for cells in found]


def check_row(row: Row, **options: Any) -> None:
    """Check that JAX does what a row says, and that leafwise predicts it, with path and kind."""
    names: dict[str, Any] = {}
    exec(f"{HEAD}calls = call({row.before}), call({row.after})", names)  # noqa: S102  # ours
    seen = two_calls(*names["calls"], **options)
    assert seen.outcome == row.outcome, "the table is wrong about JAX"
    assert seen.predicted.outcome == row.outcome, str(seen.predicted)
    if row.outcome != "error":
        assert seen.equal is (row.outcome in ("reuse", "dispatch"))
    assert not seen.predicted.unsound
    if row.outcome == "reuse":
        assert not seen.predicted.reasons
        return
    reason = seen.predicted.reasons[0]
    assert f"{reason.path}: {reason.kind}" == row.place
    assert reason.path in str(seen.predicted)
