"""What type checkers see of `pytree`: constructor, fields, frozen-ness, `replace`."""

from typing import Any, Generic, TypeVar, assert_type

import jax
import jax.numpy as jnp

import leafwise as lw

T = TypeVar("T")


@lw.pytree
class Params:
    x: jax.Array
    a: int = lw.static_field(default=2)
    act: lw.Static[str] = "relu"
    names: tuple[str, ...] = lw.static_field(default_factory=lambda: ("w",))


@lw.pytree(kw_only=True, slots=True)
class Options(Generic[T]):
    value: T
    scale: float = 1.0
    total: float = lw.field(init=False)


x = jnp.ones(3)
params = Params(x, 3, act="tanh")
assert_type(params, Params)
assert_type(params.x, jax.Array)
assert_type(params.a, int)
assert_type(params.act, str)
assert_type(params.names, tuple[str, ...])
assert_type(lw.replace(params, a=3), Params)
assert_type(Options(value=1).value, int)

# The constructor is checked.
Params()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Params(x, "three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Params(x, b=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Options(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Options(value=1, total=2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# Instances are frozen.
params.a = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

# There is no mutable variant.
lw.pytree(frozen=False)  # type: ignore[call-overload]  # pyright: ignore


def matched(value: Params) -> int:
    match value:
        case Params(x=_, a=a):
            return assert_type(a, int)


assert_type(lw.freeze([1]), Any)
assert_type(lw.FrozenMapping({"a": 1}), lw.FrozenMapping[str, int])
assert_type(lw.FrozenMapping(a=1)["a"], int)
assert_type(lw.StaticArray([1, 2]), lw.StaticArray)


@lw.pytree
class Trained:
    rate: float = lw.static_field(by="identity", default=0.1)
    call: type[int] = lw.static_field(by="content", default=int)


assert_type(Trained().rate, float)
lw.static_field(by="value")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
lw.field(by="content")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

# There is no `.replace` that type checkers could see.
params.replace(a=3)  # type: ignore[attr-defined]  # pyright: ignore


@lw.pytree(replace=True)
class Replaced:
    a: int


assert_type(Replaced(1).a, int)


@lw.jit
def padded(n: lw.Static[int], x: jax.Array) -> jax.Array:
    return x.repeat(n)


# The mark is nothing to type checkers.
assert_type(padded(3, x), jax.Array)
padded("3", x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
