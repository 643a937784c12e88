"""Classes to send through every transformation."""

import dataclasses
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

import leafwise as lw


@dataclasses.dataclass(frozen=True)
class Config:
    """A static that compares by value, with a field that does not count in its ``==``."""

    power: int = 2
    note: str = dataclasses.field(default="", compare=False)


RUNS: Counter[str] = Counter()
"""How often constructors ran, by class name."""


@lw.pytree
class Layer:
    """Two leaves, statics of several kinds, and a ``__post_init__`` that counts its runs."""

    w: jax.Array
    b: Any = 0.0
    act: str = lw.static_field(default="tanh")
    config: Config = lw.static_field(default=Config())
    rank: int = lw.static_field(init=False)

    def __post_init__(self) -> None:
        RUNS["Layer"] += 1
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
        RUNS["SlottedLayer"] += 1
        self.rank = jnp.ndim(self.w)

    __call__ = Layer.__call__


@lw.pytree
class WrittenLayer:
    """The same fields, set by a constructor that was written by hand."""

    w: jax.Array
    b: Any
    act: str = lw.static_field()
    config: Config = lw.static_field()
    rank: int = lw.static_field()

    def __init__(
        self, w: Any, b: Any = 0.0, *, act: str = "tanh", config: Config = Config()
    ) -> None:
        RUNS["WrittenLayer"] += 1
        self.w, self.b, self.act, self.config = w, b, act, config
        self.rank = jnp.ndim(w)

    __call__ = Layer.__call__


@lw.pytree(many_statics=True)
class ManyLayer(Layer):
    """The same fields, and a leafless child beside them."""

    def __post_init__(self) -> None:
        RUNS["ManyLayer"] += 1
        self.rank = jnp.ndim(self.w)


class ForeignLayer:
    """A class that is not ours."""

    def __init__(self, w: Any, b: Any = 0.0, act: str = "tanh", config: Config = Config()) -> None:
        RUNS["ForeignLayer"] += 1
        self.w, self.b, self.act, self.config = w, b, act, config
        self.rank = jnp.ndim(w)

    __call__ = Layer.__call__


lw.register(ForeignLayer, dynamic=["w", "b"], static=["act", "config", "rank"])

CLASSES = [Layer, SlottedLayer, WrittenLayer, ManyLayer, ForeignLayer]


def statics_of(layer: Any) -> tuple[Any, ...]:
    """Return all that is static, for a comparison by type and value."""
    return (type(layer), layer.act, layer.config, layer.config.note, layer.rank)


class Check:
    """What every transformation has to leave as it was.

    Attributes:
        layer: The instance that goes in.
        traces: How often a body that called `seen` was traced.
    """

    def __init__(self, cls: Any) -> None:
        """Make one instance of the class."""
        self.cls = cls
        self.layer = self.make()
        self.traces = 0
        self._runs = RUNS[cls.__name__]
        self._statics = statics_of(self.layer)

    def make(self, w: float = 0.5) -> Any:
        """Return an instance; equal statics at each call, in objects of their own."""
        return self.cls(jnp.float32(w), jnp.float32(0.1), act="tanh", config=Config(2, "note"))

    def again(self) -> Any:
        """Return another instance with equal statics, not counted as a run."""
        RUNS[self.cls.__name__] -= 1
        return self.make()

    def seen(self, layer: Any) -> Any:
        """Check an instance that a transformation handed to a body, and return it."""
        self.traces += 1
        self.intact(layer)
        return layer

    def intact(self, layer: Any) -> None:
        """Check class and statics of an instance."""
        assert statics_of(layer) == self._statics
        assert type(layer.rank) is int

    def done(self, *results: Any) -> None:
        """Check results, and that no constructor ran since the check was made."""
        for result in results:
            self.intact(result)
        assert RUNS[self.cls.__name__] == self._runs, "__init__ or __post_init__ ran again"
