"""JAX as the judge: two classes of one shape, and programs that tell which trace they are."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import leafwise as lw


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain:
    """What JAX offers by itself: every hazard must show here, or its test cannot fail."""

    x: Any
    s: Any = dataclasses.field(default=1, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OtherPlain:
    x: Any
    s: Any = dataclasses.field(default=1, metadata={"static": True})


@lw.pytree
class P:
    """Fields as those of `Sound`, under a name that is short in messages."""

    x: Any
    s: lw.Static[Any]


class Value:
    """An object that compares by its own ``==``, and can change."""

    def __init__(self, v: Any) -> None:
        self.v = v

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.v == other.v

    def __hash__(self) -> int:
        return hash(self.v)


class Box:
    """An object that compares by identity, and can change."""

    def __init__(self, v: Any) -> None:
        self.v = v

    def times(self, x: Any) -> Any:
        """Return a product."""
        return x * self.v


@lw.pytree
class ByContent:
    """Its static is compared by content."""

    x: Any
    s: Any = lw.static_field(compare_by="content")


@lw.pytree
class Sound:
    """The same fields under leafwise."""

    x: Any
    s: Any = lw.static_field(default=1)


@lw.pytree
class OtherSound:
    x: Any
    s: Any = lw.static_field(default=1)


def structure(cls: Any, static: Any) -> Any:
    """Return the treedef of an instance with this static."""
    return jax.tree.structure(cls(1.0, static))


class Verdict(NamedTuple):
    """What JAX did with one call after another.

    Attributes:
        programs: For each call, the number of the trace that answered it, from 1.
        statics: What each trace saw in the static field.
    """

    programs: list[int]
    statics: list[Any]


def calls(cls: Any, *statics: Any) -> Verdict:
    """Call one jitted function with an instance for each static.

    JAX compares the statics of a plain class with those of every program it remembers,
    other functions' and other classes' included, and fails if one of them is an array.
    """
    if cls is Plain:
        jax.clear_caches()
    seen: list[Any] = []

    @jax.jit
    def program(p: Any) -> Any:
        seen.append(p.s)  # runs once per trace
        return p.x * 0 + len(seen)

    x = jnp.int32(0)
    return Verdict([int(program(cls(x, static))) for static in statics], seen)
