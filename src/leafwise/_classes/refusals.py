"""Classes that cannot be pytree classes: how they are recognised, and the fix."""

import copy
import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from leafwise._classes.annotations import annotations_of, has_mark, resolve
from leafwise._classes.spec import declaration, is_decorated, written_default
from leafwise._objects.classes import is_tree_node
from leafwise._objects.text import got
from leafwise.errors import DefinitionError


def check_class(cls: Any) -> None:
    """Raise if `cls` is not a class, or is a dataclass or pytree already."""
    if not inspect.isclass(cls):
        raise DefinitionError(f"pytree decorates a class, got {cls!r} ({type(cls).__name__})")
    if library_of(cls) == "equinox":
        raise DefinitionError(
            f"{cls.__name__}: a subclass of equinox.Module is a dataclass and a pytree already\n"
            f"  fix: derive it from leafwise.interop.equinox.Module, which gives its statics a "
            f"sound key, and remove @lw.pytree; or keep @lw.pytree and drop the module base class"
        )
    marks = {"__attrs_attrs__": "an attrs class", "__dataclass_params__": "a dataclass"}
    kinds = [kind for mark, kind in marks.items() if mark in vars(cls)]
    kinds += ["a pytree"] * is_tree_node(cls)
    if kinds:
        raise DefinitionError(
            f"{cls.__name__}: {' and '.join(kinds)} already, by another decorator or a base class\n"
            f"  fix: remove that one, as @lw.pytree makes it both; or leave @lw.pytree out and, "
            f"if the class is not a pytree yet, register it: "
            f"lw.register({cls.__name__}, dynamic=[...], static=[...])"
        )
    if (base := native_base(cls)) is not object:
        raise DefinitionError(
            f"{cls.__name__}: a subclass of {base.__name__} cannot be a pytree class, since "
            f"its contents are not in fields\n  fix: keep a {base.__name__} in a field"
        )


def native_base(cls: type) -> type:
    """Return the nearest class in its MRO that is not written in Python."""
    made_by_python = 1 << 9  # a flag
    return next(base for base in cls.__mro__ if not base.__flags__ & made_by_python)


_BASES: Final = {
    ("equinox", "Module"): "equinox",
    ("flax", "Pytree"): "flax.nnx",
    ("flax", "Module"): "flax.nnx",
}
_MARKS: Final = {
    "_flax_dataclass": "flax.struct",
    "__mutability__": "jax_dataclasses",
    "from_tuple": "chex",
}
"""Attributes that only the decorator of that library sets."""


def library_of(cls: type) -> str:
    """Return the library whose base or decorator made a class a pytree, or an empty string."""
    for base in cls.__mro__:
        if known := _BASES.get((_library(base), base.__name__)):
            return known
    marks = vars(cls).keys() if dataclasses.is_dataclass(cls) else ()
    return next((library for mark, library in _MARKS.items() if mark in marks), "")


def has_maker(cls: Any) -> bool:
    """Return whether a base class from another library has an ``__init_subclass__``."""
    own = ("builtins", "typing", _library(cls))
    makers = (base for base in cls.__mro__[1:] if "__init_subclass__" in vars(base))
    return any(_library(base) not in own and not is_decorated(base) for base in makers)


def _library(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def check_defaults(cls: type, own: Mapping[str, Any]) -> None:
    """Raise, with the fix, for a default in a class's body that `dataclasses` refuses."""
    for name, kind in annotations_of(cls).items():
        value: Any = own.get(name)
        is_declared = isinstance(value, dataclasses.Field)
        definition: Any = copy.copy(value) if is_declared else dataclasses.field(default=value)
        default = definition.default
        if type(default).__hash__ is not None or re.search(r"\b(ClassVar|InitVar)\b", str(kind)):
            continue
        definition.name, definition.default = name, dataclasses.MISSING
        code = written_default(cls, name, default)
        factory = f"lambda: {code}" if code and "..." not in code else "..."
        if type(default) in (list, dict, set) and not default:
            factory = type(default).__name__
        static = has_mark(resolve(cls, name, kind, [])) or bool(definition.metadata.get("static"))
        more = f"default_factory={factory}{', freeze=True' * static}"
        raise DefinitionError(
            f"{cls.__name__}.{name}: an array, a list or a dict cannot be a default, since all "
            f"instances would share it\n  got: {got(default)}\n"
            f"  fix: `{declaration(definition, kind, more, static=static)}`"
        )


def check_bases(cls: type) -> None:
    """Raise if a base class declares fields that would be lost."""
    for base in cls.__mro__[1:]:
        if is_decorated(base) or not any(map(is_decorated, base.__mro__[1:])):
            continue
        declared = annotations_of(base).items()
        if lost := [name for name, kind in declared if "ClassVar" not in str(kind)]:
            raise DefinitionError(
                f"{cls.__name__}: its base {base.__name__} is a subclass of a pytree class "
                f"and declares {', '.join(lost)}, but is not decorated, so these would be lost\n"
                f"  fix: decorate {base.__name__} with @lw.pytree too"
            )
