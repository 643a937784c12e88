"""What type checkers see of `pytree`: constructor, fields, frozen-ness, `replace`."""

import dataclasses
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


@lw.pytree
class Summed:
    x: jax.Array
    scale: int = lw.static_field(default=1)
    total: jax.Array = lw.field(init=False)

    def __post_init__(self) -> None:
        self.total = self.x.sum() * self.scale


@lw.pytree
class Own:
    w: jax.Array
    depth: lw.Static[int]

    def __init__(self, size: int) -> None:
        self.w = jnp.ones(size)
        self.depth = size
        self.depth = "deep"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


assert_type(Summed(x, scale=2).total, jax.Array)
assert_type(Own(3).depth, int)
Own(x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type({Summed(x): 1}, dict[Summed, int])


# An assignment is seen where the class asks for it, and then everywhere.
@lw.pytree(frozen=True)
class Frozen:
    x: jax.Array
    total: jax.Array = lw.field(init=False)

    def __post_init__(self) -> None:
        self.total = self.x  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


Frozen(x).x = x  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@dataclasses.dataclass(frozen=True)
class Base:
    a: int


@lw.pytree(frozen=True)
class OfFrozen(Base):
    b: int


@lw.pytree  # pyright: ignore[reportGeneralTypeIssues]
class OfFrozenToo(Base):  # type: ignore[misc]
    b: int


assert_type(OfFrozen(1, 2).a, int)


@lw.pytree(order=True, eq=True)
class Ordered:
    a: int


assert_type(Ordered(1) < Ordered(2), bool)
_ = Ordered(1) < 1  # type: ignore[operator]  # pyright: ignore


# A converter's default is what the converter takes.
@lw.pytree
class Converted:
    x: jax.Array = lw.field(converter=jnp.asarray, default=1.0)
    y: jax.Array = lw.field(converter=jnp.asarray, default_factory=list[int])
    sizes: tuple[int, ...] = lw.static_field(converter=tuple, default=[1, 2])
    plain: jax.Array = lw.field(default=1.0)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    count: int = lw.static_field(default="1")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


assert_type(Converted().x, jax.Array)
assert_type(Converted(x).sizes, tuple[int, ...])
# mypy does not know converters: to it, the constructor takes what the field holds.
Converted(1.0)  # type: ignore[arg-type]
Converted(sizes=[1, 2])  # type: ignore[arg-type]
lw.field(converter=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]

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
    rate: float = lw.static_field(compare_by="identity", default=0.1)
    call: type[int] = lw.static_field(compare_by="content", default=int)


assert_type(Trained().rate, float)
lw.static_field(compare_by="value")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
lw.field(compare_by="content")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

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
