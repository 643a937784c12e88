"""What type checkers see of `field(sharding=)`, `shardings` and `shard`."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

import leafwise as lw

P: Any = PartitionSpec  # JAX gives its constructor no types


@lw.pytree
class Params:
    w: jax.Array = lw.field(sharding=P("data", None))
    s: float = lw.field(default=1.0, sharding=P())


params = Params(jnp.ones((2, 2)))
mesh = jax.make_mesh((1,), ("data",))

assert_type(lw.shardings(params, mesh), Params)
assert_type(lw.shardings([params]), list[Params])
assert_type(lw.shard(params, mesh, paths={"w": P()}, default=P()), Params)
assert_type(lw.shard(params, rules={"a": None, "b": "data", "c": ("x", "y")}), Params)
assert_type(lw.shard(params, mesh.abstract_mesh, rules=[("a", None), ("a", "data")]), Params)
lw.shard(params, "data")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
lw.shardings(params, mesh, rule={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
lw.static_field(default=1, sharding=P())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
