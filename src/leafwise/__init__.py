"""Pytree dataclasses whose jit cache keys you can trust."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leafwise import debug, distributed, errors, types
    from leafwise._captures.captures import captures
    from leafwise._classes.fields import Static, field, static_field
    from leafwise._classes.instance import pformat
    from leafwise._classes.pytree import pytree, register
    from leafwise._compare.carry import stable_carry
    from leafwise._compare.diff import assert_same_structure, diff
    from leafwise._compare.signature import signature
    from leafwise._display.diagram import show
    from leafwise._jit.jit import jit
    from leafwise._jit.storm import storm_guard
    from leafwise._jit.watch import budget, no_retrace, watch
    from leafwise._objects.frozen import FrozenMapping, StaticArray, freeze
    from leafwise._programs.digest import digest
    from leafwise._trees.combine import axes, combine
    from leafwise._trees.select import labels, mask, partition, select
    from leafwise._trees.shardings import shard, shardings
    from leafwise._trees.update import replace, update
    from leafwise.errors import LeafwiseError

__version__ = "0.1.0"

# Names are loaded on first use: JAX reads its settings when it is imported, so importing leafwise
# must not import JAX. `leafwise explain` does not even need it.
_HOMES = {
    "_captures.captures": ("captures",),
    "_classes.fields": ("Static", "field", "static_field"),
    "_classes.instance": ("pformat",),
    "_classes.pytree": ("pytree", "register"),
    "_compare.carry": ("stable_carry",),
    "_compare.diff": ("assert_same_structure", "diff"),
    "_programs.digest": ("digest",),
    "_compare.signature": ("signature",),
    "_display.diagram": ("show",),
    "_jit.jit": ("jit",),
    "_jit.storm": ("storm_guard",),
    "_jit.watch": ("budget", "no_retrace", "watch"),
    "_objects.frozen": ("FrozenMapping", "StaticArray", "freeze"),
    "_trees.combine": ("axes", "combine"),
    "_trees.select": ("labels", "mask", "partition", "select"),
    "_trees.shardings": ("shard", "shardings"),
    "_trees.update": ("replace", "update"),
    "errors": ("LeafwiseError",),
}
_MODULES = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = ("debug", "distributed", "errors", "types")


def __getattr__(name: str) -> object:
    """Load the module that defines a name when the name is first used."""
    if name in _SUBMODULES:
        return importlib.import_module(f"leafwise.{name}")
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        for home in ("errors", "types") if name[:1].isupper() else ():
            if name in importlib.import_module(f"leafwise.{home}").__all__:
                msg += f": it is lw.{home}.{name}"
        raise AttributeError(msg)
    found: object = getattr(importlib.import_module(f"leafwise.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def load_ipython_extension(shell: object) -> None:
    """Add the magics ``%%explain`` and ``%explain``; called by ``%load_ext leafwise``."""
    importlib.import_module("leafwise.cli.magics").load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Remove the magics; called by ``%unload_ext leafwise``."""
    importlib.import_module("leafwise.cli.magics").unload(shell)


def __dir__() -> list[str]:
    """Return all names, including those that are not loaded yet."""
    return sorted({*globals(), *_MODULES, *_SUBMODULES})


__all__ = [
    "FrozenMapping",
    "LeafwiseError",
    "Static",
    "StaticArray",
    "assert_same_structure",
    "axes",
    "budget",
    "captures",
    "combine",
    "debug",
    "diff",
    "digest",
    "distributed",
    "errors",
    "field",
    "freeze",
    "jit",
    "labels",
    "mask",
    "no_retrace",
    "partition",
    "pformat",
    "pytree",
    "register",
    "replace",
    "select",
    "shard",
    "shardings",
    "show",
    "signature",
    "stable_carry",
    "static_field",
    "storm_guard",
    "types",
    "update",
    "watch",
]
