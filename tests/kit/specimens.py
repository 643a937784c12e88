"""Classes of every library, importable by name from another process."""

import dataclasses
import enum
from typing import Any, Generic, NamedTuple, TypeVar

import chex
import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import jax_dataclasses as jdc
from hypothesis import strategies as st

import leafwise as lw

T = TypeVar("T")


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int = 2
    note: str = dataclasses.field(default="", compare=False)


@lw.pytree
class Params:
    w: jax.Array
    lr: float
    n: int = lw.static_field(default=2)
    act: lw.Static[str] = "relu"


@lw.pytree(slots=True)
class Slotted:
    w: jax.Array
    n: int = lw.static_field(default=2)


@lw.pytree(many_statics=True)
class Many:
    w: jax.Array
    config: Config = lw.static_field(default=Config())
    mode: Mode = lw.static_field(default=Mode.TRAIN)


@lw.pytree
class Nested(Generic[T]):
    inner: Params
    extra: list[float]
    scale: T
    rate: float = lw.static_field(default=0.5)


@lw.pytree
class Derived(Params):
    n: int = lw.static_field(default=5)
    twice: int = lw.static_field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.n


@lw.pytree
class Converted:
    x: jax.Array = lw.field(converter=jnp.asarray)
    n: int = lw.static_field(converter=int, default=1)


@lw.pytree
class Leafless:
    n: lw.Static[int] = 2


@lw.pytree
class Keyed:
    key: jax.Array = dataclasses.field(default_factory=lambda: jax.random.key(0))


@flax.struct.dataclass
class Flax:
    w: jax.Array
    n: int = flax.struct.field(pytree_node=False, default=1)


@flax.struct.dataclass
class FlaxWithoutStatics:
    w: jax.Array


class Equinox(eqx.Module):
    w: jax.Array
    n: int = eqx.field(static=True, default=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    w: jax.Array
    n: int = dataclasses.field(metadata={"static": True}, default=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class PlainWithPostInit:
    w: jax.Array

    def __post_init__(self) -> None:
        """Check nothing."""


@chex.dataclass
class Chex:
    w: jax.Array
    b: float


@jdc.pytree_dataclass
class Jdc:
    w: jax.Array
    n: jdc.Static[int] = 1


class Pair(NamedTuple):
    w: jax.Array
    b: float


class ByHand:
    """Registered by hand, and right: subclasses name their children and their statics."""

    dynamic: tuple[str, ...] = ("x",)
    static: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node_class(cls)

    def children(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.dynamic)

    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.static}

    def tree_flatten(self) -> Any:
        return self.children(), tuple((k, type(v), v) for k, v in self.arguments().items())

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        self = object.__new__(cls)
        vars(self).update(zip(cls.dynamic, children, strict=True))
        vars(self).update((name, value) for name, _, value in aux)
        return self


class Hand(ByHand):
    dynamic = ("w",)
    static = ("n",)

    def __init__(self, w: jax.Array, n: int = 1) -> None:
        self.w, self.n = w, n


arrays = st.integers(0, 3).map(lambda n: jnp.full(n % 3 + 1, float(n)))
numbers = st.floats(width=16, allow_nan=False)
params = st.builds(Params, arrays, numbers, st.integers(0, 5), st.sampled_from(["relu", "tanh"]))
