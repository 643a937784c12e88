"""What type checkers see of `where`, `partition`, `combine`, `mask`, `labels`, `update`, `axes`."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp
from jax.tree_util import GetAttrKey

import leafwise as lw


@lw.pytree
class Params:
    w: jax.Array
    b: jax.Array
    act: str = lw.static_field(default="relu")


params = Params(jnp.ones(3), jnp.zeros(3))

assert_type(lw.select("w"), lw.types.Selection)
assert_type(lw.select("w", Params, jnp.isrealobj, trainable=False), lw.types.Selection)
assert_type(lw.select("w") & ~lw.select("b") | lw.select(Params), lw.types.Selection)
lw.select("w") & "b"  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]

assert_type(lw.partition(params, "w"), tuple[Params, Params])
assert_type(lw.combine(*lw.partition(params, lw.select("w"))), Params)
assert_type(lw.mask(params, "w"), Params)
assert_type(lw.labels(params, {"slow": "w"}, "fast"), Params)
assert_type(lw.axes(params, None, {"w": 0}, b=1), Params)
assert_type(lw.axes([params], 0), list[Params])

assert_type(lw.update(params, {"w": jnp.zeros(3), "act": "tanh"}), Params)
changes: dict[str, Any] = {"act": "tanh"}
assert_type(lw.update({"p": params}, changes), dict[str, Params])
assert_type(lw.update(params, {(GetAttrKey("w"),): 1}), Params)
lw.update(params, {0: 1})  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
lw.update(params, act="tanh")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
lw.combine()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
