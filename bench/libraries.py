"""The libraries that are compared, and how a class is written in each.

A library that is not installed is left out, with a word why.
"""

# ruff: noqa: PLC0415  # every library here may be missing

import dataclasses
import importlib.metadata
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

import leafwise as lw

OURS: Final = "leafwise"
SLOTS: Final = "slots"
MANY: Final = "many_statics"
BASELINE: Final = "jax"
WITHOUT_STATICS: Final = "chex"
EMPTY: Final = "empty"
READY: Final = "ready"
DICT: Final = "dict"
FROZEN: Final = "frozen dataclass"
AGAIN: Final = "jax again"

_METADATA: Final = {"static": True}


def _as_it_is(cls: type) -> type:
    return cls


@dataclasses.dataclass(frozen=True)
class Library:
    """One way to write a pytree class.

    Attributes:
        name: In short.
        version: Its distribution and version.
        decorate: What the class is decorated with.
        static: What marks a static field; None if there are no statics.
        base: What the class derives from, if it must.
    """

    name: str
    version: str
    decorate: Callable[[type], Any] = _as_it_is
    static: Callable[[], Any] | None = None
    base: type = object

    def undecorated(self, name: str, dynamic: Sequence[str], static: Sequence[str] = ()) -> type:
        """Return a class with these fields, as a user would have written it."""
        marked = {} if self.static is None else {each: self.static() for each in static}
        annotations = dict.fromkeys(dynamic, jax.Array) | dict.fromkeys(marked, object)
        body = {"__module__": __name__, "__annotations__": annotations, **marked}
        return types.new_class(name, (self.base,), exec_body=lambda space: space.update(body))

    def define(self, name: str, dynamic: Sequence[str], static: Sequence[str] = ()) -> Any:
        """Return the finished class."""
        return self.decorate(self.undecorated(name, dynamic, static))


@dataclasses.dataclass(frozen=True)
class Dicts(Library):
    """Plain dicts in place of a class: they have no statics and nothing to decorate."""

    def define(self, name: str, dynamic: Sequence[str], static: Sequence[str] = ()) -> Any:
        """Return what makes a dict of the dynamic fields."""
        del name, static
        chosen = tuple(dynamic)
        return lambda **fields: {each: fields[each] for each in chosen}


def native(**options: bool) -> Callable[[type], type]:
    """Return what `jax.tree_util` offers: a frozen dataclass, registered."""
    frozen = dataclasses.dataclass(frozen=True, **options)
    return lambda cls: jax.tree_util.register_dataclass(frozen(cls))


def _native_field() -> Any:
    return dataclasses.field(metadata=_METADATA)


def _leafwise(name: str, **options: bool) -> Library:
    # It may run from its sources, where no distribution is known.
    return Library(name, f"leafwise {lw.__version__}", lw.pytree(**options), lw.static_field)


def _version(distribution: str) -> str:
    return f"{distribution} {importlib.metadata.version(distribution)}"


def _jax() -> Library:
    return Library(BASELINE, _version("jax"), native(), _native_field)


def _flax() -> Library:
    from flax import struct

    return Library(
        "flax", _version("flax"), struct.dataclass, lambda: struct.field(pytree_node=False)
    )


def _equinox() -> Library:
    import equinox as eqx

    return Library(
        "equinox", _version("equinox"), static=lambda: eqx.field(static=True), base=eqx.Module
    )


def _jax_dataclasses() -> Library:
    import jax_dataclasses as jdc

    return Library("jdc", _version("jax-dataclasses"), jdc.pytree_dataclass, jdc.static_field)


def _chex() -> Library:
    import chex

    return Library(WITHOUT_STATICS, _version("chex"), chex.dataclass(frozen=True))


def _penzai() -> Library:
    from penzai.core import struct

    def static() -> Any:
        return dataclasses.field(metadata={"pytree_node": False})

    return Library("penzai", _version("penzai"), struct.pytree_dataclass, static, struct.Struct)


def _jarp() -> Library:
    from liblaf import jarp

    return Library("jarp", _version("liblaf-jarp"), jarp.frozen, jarp.static)


_PEERS: Final[Mapping[str, Callable[[], Library]]] = {
    BASELINE: _jax,
    "flax": _flax,
    "equinox": _equinox,
    "jdc": _jax_dataclasses,
    WITHOUT_STATICS: _chex,
    "penzai": _penzai,
    "jarp": _jarp,
}


def load() -> tuple[dict[str, Library], dict[str, str]]:
    """Try every library.

    Returns:
        The libraries by name, ours first, and the reason for each one left out.
    """
    found = {OURS: _leafwise(OURS), SLOTS: _leafwise(SLOTS, slots=True)}
    skipped: dict[str, str] = {}
    for name, make in _PEERS.items():
        try:
            library = make()
            made = library.define("Tried", ["x"], ["a"])
            values = {"x": jnp.float32(0)} | ({} if library.static is None else {"a": 1})
            jax.tree.map(jnp.asarray, made(**values))
        except ImportError:
            skipped[name] = f"{name} is not installed"
        except Exception as error:  # a peer may not support this Python or jax
            if name == BASELINE:
                raise
            skipped[name] = f"{name} fails: {error!r:.100}"
        else:
            found[name] = library
    return found, skipped


def with_many_statics() -> Library:
    """Return leafwise with the option for many static values."""
    return _leafwise(MANY, many_statics=True)


def plain_dicts() -> Library:
    """Return plain dicts."""
    return Dicts(DICT, "dict")


def frozen_dataclass(*, slots: bool) -> Library:
    """Return a dataclass that JAX does not know."""
    decorate = dataclasses.dataclass(frozen=True, slots=slots)
    return Library(FROZEN, "dataclasses", decorate, _native_field)
