"""Which library made a class a pytree class."""

import dataclasses
import inspect
import os
import sys
from typing import Any, TypeGuard

import jax

from leafwise._classes.register import registered_names
from leafwise._classes.spec import is_decorated
from leafwise.testing.strategies import _objects
from leafwise.testing.strategies._leaves import is_numeric

OWN = "leafwise"

_BASES = {
    ("equinox", "Module"): "equinox",
    ("flax", "Pytree"): "flax.nnx",
    ("flax", "Module"): "flax.nnx",
}
_MARKS = {
    "_flax_dataclass": "flax.struct",
    "__mutability__": "jax_dataclasses",
    "from_tuple": "chex",
}


def is_own(cls: type) -> bool:
    """Return whether leafwise made a class a pytree class."""
    return is_decorated(cls) or registered_names(cls) is not None


def is_class(value: Any) -> TypeGuard[type]:
    """Return whether a value is a class; unlike `isinstance`, no code of the value's runs."""
    return issubclass(type(value), type)


def is_node(value: Any) -> bool:
    """Return whether a value is a class whose instances JAX flattens.

    The containers of Python itself are no classes of anybody's.
    """
    try:
        if not is_class(value) or value.__module__ in ("builtins", "collections"):
            return False
        return is_own(value) or bool(jax.tree_util.is_tree_node(value))
    except Exception:  # noqa: BLE001  # a metaclass may do anything
        return False


def is_abstract(cls: Any) -> bool:
    """Return whether a class has no instances of its own; equinox has marks of its own for it."""
    return _objects.is_abstract(cls) or bool(getattr(cls, "__abstractclassvars__", ()))


def is_namedtuple(cls: type) -> bool:
    """Return whether JAX flattens a class because it is a named tuple."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and not is_own(cls)


def library_of(cls: type) -> str:
    """Return the library that made a class a pytree class, for messages."""
    if is_own(cls):
        return OWN
    for base in cls.__mro__:
        package = str(base.__module__).partition(".")[0]
        if (package, base.__name__) in _BASES:
            return _BASES[package, base.__name__]
    for mark, library in _MARKS.items():
        if mark in vars(cls) and dataclasses.is_dataclass(cls):
            return library
    if is_namedtuple(cls):
        return "NamedTuple"
    return "JAX"


def public_name(cls: type) -> str:
    """Return the name by which a class is imported: ``equinox.nn.Linear``."""
    parts = cls.__module__.split(".")
    public = ".".join(part for part in parts if not part.startswith("_"))
    module = public if getattr(sys.modules.get(public), cls.__name__, None) is cls else None
    name = f"{module or cls.__module__}.{cls.__qualname__}"
    return name.replace(".<locals>", "")


def place_of(cls: type) -> tuple[str, int]:
    """Return the file and the line where a class is defined, as far as it is known."""
    try:
        file = inspect.getsourcefile(cls)
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError, IndexError, SyntaxError):
        return "", 0
    if file is None:
        return "", 0
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        relative = os.pardir
    return (file if relative.startswith(os.pardir) else relative), line


def for_jit(tree: Any) -> Any:
    """Return what a jitted function is given: of equinox's modules, the leaves it can take.

    Their functions and names are leaves, which `equinox.filter_jit` keeps away from JAX. A
    tree without modules is returned as it is.
    """
    if not any(map(_is_module, jax.tree_util.tree_leaves(tree, is_leaf=_is_module))):
        return tree

    def taken(leaf: Any) -> Any:
        return leaf if is_numeric(leaf) else None

    def filtered(node: Any) -> Any:
        return jax.tree_util.tree_map(taken, node) if _is_module(node) else node

    return jax.tree_util.tree_map(filtered, tree, is_leaf=_is_module)


def _is_module(node: Any) -> bool:
    return library_of(type(node)) == "equinox"
