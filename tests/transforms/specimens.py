"""Kinds of classes to send through every transformation, and what must stay of them."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

import leafwise as lw
from leafwise.interop.equinox import Module

T = TypeVar("T")

RUNS: list[str] = []
"""The constructors that ran, by class name."""


@dataclasses.dataclass(frozen=True)
class Config:
    """A static that compares by value, with a field that does not count in its ``==``."""

    power: int = 2
    note: str = dataclasses.field(default="", compare=False)


@lw.pytree
class Layer:
    """Two leaves, statics of several kinds, and a ``__post_init__`` that counts its runs."""

    w: jax.Array
    b: Any = 0.0
    act: str = lw.static_field(default="tanh")
    config: Config = lw.static_field(default=Config())
    rank: int = lw.static_field(init=False)

    def __post_init__(self) -> None:
        RUNS.append(type(self).__name__)
        self.rank = jnp.ndim(self.w)

    def __call__(self, x: Any) -> Any:
        y = self.w * x + self.b
        return getattr(jnp, self.act)(y) ** self.config.power


@lw.pytree(slots=True)
class SlottedLayer:
    """The same fields in slots."""

    w: jax.Array
    b: Any = 0.0
    act: str = lw.static_field(default="tanh")
    config: Config = lw.static_field(default=Config())
    rank: int = lw.static_field(init=False)

    def __post_init__(self) -> None:
        RUNS.append("SlottedLayer")
        self.rank = jnp.ndim(self.w)

    __call__ = Layer.__call__


@lw.pytree(many_statics=True)
class ManyLayer(Layer):
    """The same fields, and a leafless child beside them."""


class ForeignLayer:
    """A class that is not ours."""

    def __init__(self, w: Any, b: Any = 0.0, act: str = "tanh", config: Config = Config()) -> None:
        RUNS.append("ForeignLayer")
        self.w, self.b, self.act, self.config = w, b, act, config
        self.rank = jnp.ndim(w)

    __call__ = Layer.__call__


lw.register(ForeignLayer, dynamic=["w", "b"], static=["act", "config", "rank"])


@lw.pytree
class WideLayer(Layer, Generic[T]):
    """A generic subclass: one more leaf, one more static, two converted fields."""

    scale: T = lw.field(default=2.0, converter=jnp.float32)
    depth: Any = lw.static_field(default=1, converter=lambda n: n)


@lw.pytree
class Counter:
    """A leaf of each dtype: a number, a count, a flag and bits."""

    x: jax.Array
    step: jax.Array
    on: jax.Array
    level: Any = lw.static_field(default=1)

    def __post_init__(self) -> None:
        RUNS.append("Counter")


@lw.pytree
class Net:
    """Instances in containers, None, nothing, and an integer among the leaves."""

    layers: Any
    step: Any
    gap: Any = None
    none: Any = ()
    name: Any = lw.static_field(default="net")

    def __post_init__(self) -> None:
        RUNS.append("Net")


class PlainModule(eqx.Module):
    inner: Any
    name: str = eqx.field(static=True)


class Mixed(Module):
    x: jax.Array
    act: str = lw.static_field()

    def __post_init__(self) -> None:
        RUNS.append("Mixed")


@lw.pytree
class Holder:
    module: Any
    mixed: Any
    name: str = lw.static_field(default="holder")


FIELDS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        (Layer, SlottedLayer, ManyLayer, ForeignLayer),
        (("w", "b"), ("act", "config", "rank")),
    ),
    WideLayer: (("w", "b", "scale"), ("act", "config", "rank", "depth")),
    Counter: (("x", "step", "on"), ("level",)),
    Net: (("layers", "step", "gap", "none"), ("name",)),
    PlainModule: (("inner",), ("name",)),
    Mixed: (("x",), ("act",)),
    Holder: (("module", "mixed"), ("name",)),
}
"""The dynamic and the static fields of each class, by hand: leafwise is not asked."""


def statics_of(tree: Any) -> Any:
    """Return classes, containers and statics (by type and text), down to the leaves."""
    cls = type(tree)
    if cls in FIELDS:
        dynamic, static = FIELDS[cls]
        values = [(name, getattr(tree, name)) for name in static]
        return (
            cls,
            [(name, type(value), repr(value)) for name, value in values],
            [statics_of(getattr(tree, name)) for name in dynamic],
        )
    if cls is dict:
        return cls, [(key, statics_of(tree[key])) for key in sorted(tree)]  # as JAX has them
    if isinstance(tree, list | tuple):
        return (cls, [statics_of(value) for value in tree])
    return None if tree is None else "leaf"


class Kind(NamedTuple):
    """A way to make a class: equal arguments make equal statics, of objects of their own."""

    name: str
    make: Callable[[str], Any]


def f32(value: float) -> jax.Array:
    """Return a scalar that has no weak type."""
    return jnp.float32(value)


def layer(cls: Callable[..., Any], act: str) -> Any:
    """Return an instance of a class with the fields of `Layer`."""
    return cls(f32(0.5), f32(0.1), act=act, config=Config(2, "no" + "te"))


def counter(act: str) -> Counter:
    """Return a `Counter`; its static is 1 or True, which Python calls equal."""
    return Counter(f32(0.5), jnp.int32(3), jnp.bool_(True), 1 if act == "tanh" else True)


def net(act: str) -> Net:
    """Return a `Net`, whose inmost static is the one that changes."""
    inner = SlottedLayer(f32(0.25), None, act=act)
    return Net([layer(Layer, "tanh"), {"b": (inner,), "a": {}}], jnp.int32(3))


def modules(act: str) -> Any:
    """Return a class of ours with an `equinox.Module` with a class of ours inside."""
    return Holder(PlainModule(layer(Layer, act), "m"), Mixed(f32(0.75), act))


def _layers(cls: Callable[..., Any]) -> Callable[[str], Any]:
    return lambda act: layer(cls, act)


VALUES = Kind("Net", net)
"""The kind whose numbers are compared."""

EAGER = Kind("ManyLayer", _layers(ManyLayer))
"""The kind that also runs outside any program."""

DIFFERENTIATED = [VALUES, EAGER, Kind("Counter", counter)]
"""The kinds whose derivatives are taken: the others have no leaves of other sorts."""

KINDS = [
    *DIFFERENTIATED,
    Kind("Layer", _layers(Layer)),
    Kind("SlottedLayer", _layers(SlottedLayer)),
    Kind("ForeignLayer", _layers(ForeignLayer)),
    Kind("WideLayer", _layers(WideLayer[Any])),
    Kind("modules", modules),
]
"""Every transformation meets each of them."""


def inexact(leaf: Any) -> bool:
    """Return whether derivatives by this leaf are numbers, and not `float0`."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))
