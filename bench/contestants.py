"""One class, five dynamic and three static fields, written in each library.

A library that is not installed is left out, with a word why.
"""

# ruff: noqa: PLC0415  # every library here may be missing

import dataclasses
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp

import leafwise as lw

OURS: Final = "leafwise"
BASELINE: Final = "jax"
WITHOUT_STATICS: Final = "chex"
"""No best peer: it carries five fields where the others carry eight."""

_STATICS: Final[Mapping[str, object]] = {"depth": 4, "act": "relu", "shape": (8, 16)}


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A library and its version of the class.

    Attributes:
        name: The library, in short.
        version: Its distribution and version.
        cls: The class.
        arguments: What an instance is constructed from, by field name.
    """

    name: str
    version: str
    cls: Callable[..., Any]
    arguments: Mapping[str, object]

    def make(self) -> Any:
        """Construct an instance."""
        return self.cls(**self.arguments)


def arguments(*, statics: bool = True) -> dict[str, object]:
    """Return values for the fields: five float32 scalars, an int, a str and a tuple."""
    names = ("weight", "bias", "mean", "var", "step")
    arrays = {name: jnp.float32(number) for number, name in enumerate(names)}
    return arrays | (dict(_STATICS) if statics else {})


def _leafwise() -> type:
    @lw.pytree
    class Params:
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: int = lw.static_field()
        act: str = lw.static_field()
        shape: tuple[int, ...] = lw.static_field()

    return Params


def _jax() -> type:
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Params:
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: int = dataclasses.field(metadata={"static": True})
        act: str = dataclasses.field(metadata={"static": True})
        shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    return Params


def _flax() -> type:
    from flax import struct

    @struct.dataclass
    class Params:
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: int = struct.field(pytree_node=False)
        act: str = struct.field(pytree_node=False)
        shape: tuple[int, ...] = struct.field(pytree_node=False)

    return Params


def _equinox() -> type:
    import equinox as eqx

    class Params(eqx.Module):
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: int = eqx.field(static=True)
        act: str = eqx.field(static=True)
        shape: tuple[int, ...] = eqx.field(static=True)

    return Params


def _jax_dataclasses() -> type:
    import jax_dataclasses as jdc

    @jdc.pytree_dataclass
    class Params:
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: jdc.Static[int]
        act: jdc.Static[str]
        shape: jdc.Static[tuple[int, ...]]

    return Params


def _chex() -> type:
    import chex

    @chex.dataclass(frozen=True)
    class Params:
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array

    return Params


def _penzai() -> type:
    from penzai.core import struct

    @struct.pytree_dataclass
    class Params(struct.Struct):
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: int = dataclasses.field(metadata={"pytree_node": False})
        act: str = dataclasses.field(metadata={"pytree_node": False})
        shape: tuple[int, ...] = dataclasses.field(metadata={"pytree_node": False})

    return Params


def _jarp() -> type:
    from liblaf import jarp

    @jarp.frozen
    class Params:
        weight: jax.Array
        bias: jax.Array
        mean: jax.Array
        var: jax.Array
        step: jax.Array
        depth: int = jarp.static()
        act: str = jarp.static()
        shape: tuple[int, ...] = jarp.static()

    return Params


_BUILDERS: Final[Mapping[str, tuple[str, Callable[[], type]]]] = {
    OURS: ("leafwise", _leafwise),
    BASELINE: ("jax", _jax),
    "flax": ("flax", _flax),
    "equinox": ("equinox", _equinox),
    "jdc": ("jax-dataclasses", _jax_dataclasses),
    WITHOUT_STATICS: ("chex", _chex),
    "penzai": ("penzai", _penzai),
    "jarp": ("liblaf-jarp", _jarp),
}
"""By short name: the distribution, and what makes the class."""


def load() -> tuple[list[Contestant], dict[str, str]]:
    """Make every class that can be made.

    Returns:
        The contestants, and the reason for each library left out.
    """
    found: list[Contestant] = []
    skipped: dict[str, str] = {}
    for name, (distribution, build) in _BUILDERS.items():
        try:
            values = arguments(statics=name != WITHOUT_STATICS)
            contestant = Contestant(name, _version(distribution), build(), values)
            jax.tree.map(jnp.asarray, contestant.make())
        except ImportError:
            skipped[name] = f"{distribution} is not installed"
        except Exception as error:  # a peer may not support this Python or jax
            if name in (OURS, BASELINE):
                raise
            skipped[name] = f"{distribution} fails: {error!r:.100}"
        else:
            found.append(contestant)
    return found, skipped


def _version(distribution: str) -> str:
    if distribution == OURS:  # it may run from its sources
        return f"{OURS} {lw.__version__}"
    return f"{distribution} {importlib.metadata.version(distribution)}"
