"""What cannot be a pytree class, and what to do instead."""

import dataclasses
import enum
import inspect
from typing import Any, Final

from leafwise._classes.annotations import annotations_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.classes import is_tree_node
from leafwise.errors import DefinitionError


def check_class(cls: Any) -> None:
    """Refuse what cannot be decorated at all.

    Raises:
        DefinitionError: It is not a class, or one that something else has made already.
    """
    if not inspect.isclass(cls):
        raise DefinitionError(f"pytree decorates a class, got {cls!r} ({type(cls).__name__})")
    found = _made_otherwise(cls)
    if found is not None:
        what, fix = found
        raise DefinitionError(f"{cls.__name__}: {what}\n  fix: {fix}")
    for base in cls.__mro__:
        is_python = bool(base.__flags__ & (1 << 9))  # Py_TPFLAGS_HEAPTYPE
        if base is not object and not is_python:
            raise DefinitionError(
                f"{cls.__name__}: a subclass of {base.__name__} cannot be a pytree class, since "
                f"its content is not in fields\n  fix: keep a {base.__name__} in a field"
            )


def _made_otherwise(cls: Any) -> tuple[str, str] | None:
    """Return what a class is already, and what to do, if it is not a plain class."""
    name = cls.__name__
    if library_of(cls) == "equinox":
        return (
            "a subclass of equinox.Module is a dataclass and a pytree already",
            "let it derive from leafwise.interop.equinox.Module, which gives its statics a "
            "sound key, and remove @lw.pytree; or keep @lw.pytree and have no module as base",
        )
    if issubclass(cls, enum.Enum):
        return "the members of an Enum are constants", "keep a member in a static field"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return (
            "a NamedTuple is a tuple, so its content is not in fields, and a pytree already, "
            "all of whose items are leaves",
            f"`class {name}:` without NamedTuple; `obj._replace(x=1)` becomes "
            f"`lw.replace(obj, x=1)`, and `a, b = obj` reads fields; for a class that is not "
            f"yours: lw.register({name}, dynamic=[...], static=[...])",
        )
    if "__attrs_attrs__" in vars(cls):
        return (
            "a class of attrs already",
            f"remove the decorator of attrs; or keep it and leave @lw.pytree out: "
            f"lw.register({name}, dynamic=[...], static=[...])",
        )
    is_node = is_tree_node(cls)
    is_dataclass = "__dataclass_params__" in vars(cls)
    if not is_node and not is_dataclass:
        return None
    by = _DECORATORS.get(library_of(cls))
    maker = maker_of(cls)
    # A decorator's mark, on a class whose base has an `__init_subclass__` of somebody else.
    if maker is not None and (by is None or by[0].startswith(f"@{_library(maker)}.")):
        kinds = ["a dataclass"] * is_dataclass + ["a pytree"] * is_node
        return _made_by_base(cls, maker, " and ".join(kinds))
    if by is not None:
        return f"{by[0]} has made it a dataclass and a pytree already", by[1]
    if is_dataclass and not is_node:
        return (
            "already a dataclass; its field() declarations are gone by now",
            f"remove @dataclass, as @lw.pytree makes it one; for a class that is not yours: "
            f"lw.register({name}, dynamic=[...], static=[...])",
        )
    return (
        "already registered as a pytree, by another library or by hand",
        "remove what registers it, such as @jax.tree_util.register_dataclass"
        + (" over @dataclass" if is_dataclass else " or register_pytree_node_class"),
    )


_STRUCT: Final = "`from leafwise.interop.flax import struct` in the place of flax's module"

_DECORATORS: Final = {
    "flax.struct": ("@flax.struct.dataclass", f"@lw.pytree in its place, or {_STRUCT}"),
    "chex": ("@chex.dataclass", "@lw.pytree in its place"),
    "jax_dataclasses": (
        "@jax_dataclasses.pytree_dataclass",
        "@lw.pytree in its place, which understands jdc.Static",
    ),
}
"""What the decorator of a library is called, and what to do."""

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
"""Attributes that only the decorator of a library sets."""


def library_of(cls: type) -> str:
    """Return the library that made a class what it is; an empty text if none is known."""
    for base in cls.__mro__:
        if known := _BASES.get((_library(base), base.__name__)):
            return known
    marks = vars(cls).keys() if dataclasses.is_dataclass(cls) else ()
    return next((library for mark, library in _MARKS.items() if mark in marks), "")


def maker_of(cls: Any) -> Any:
    """Return the base class of a library that makes each subclass what it is, or None."""
    own = ("builtins", "typing", _library(cls))
    for base in cls.__mro__[1:]:
        makes = "__init_subclass__" in vars(base) and not is_decorated(base)
        if makes and _library(base) not in own:
            return base
    return None


def _library(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _made_by_base(cls: type, maker: type, kind: str) -> tuple[str, str]:
    base = next(each for each in cls.__bases__ if issubclass(each, maker)).__name__
    library = _library(maker)
    through = "" if base == maker.__name__ else f"{maker.__name__} of "
    what = f"each subclass of {base} is {kind} already, by {through}{library}"
    if maker.__module__ == "flax.struct":
        return what, _COPY.format(base) if through else _STRUCT
    if kind == "a dataclass":  # a module of flax.linen, say
        return what, f"keep a {base} in a static field, or have no such base"
    return what, (
        f"keep a {base} in a field, or have no such base; without @lw.pytree the class stays one "
        f"of {library}"
    )


_COPY: Final = (
    "write the fields and methods of {} that you use into a class of your own, with "
    "@lw.pytree(replace=True); without @lw.pytree the class stays one of flax"
)


def check_bases(cls: type) -> None:
    """Refuse bases whose fields would be lost or could change.

    Raises:
        DefinitionError: There is one.
    """
    for base in cls.__mro__[1:]:
        params = base.__dict__.get("__dataclass_params__")
        if params is not None and not params.frozen:
            raise DefinitionError(
                f"{cls.__name__}: its base {base.__name__} is a dataclass that is not frozen\n"
                f"  fix: decorate {base.__name__} with @lw.pytree or @dataclass(frozen=True)"
            )
        if is_decorated(base) or not any(map(is_decorated, base.__mro__[1:])):
            continue
        declared = annotations_of(base).items()
        if lost := [name for name, kind in declared if "ClassVar" not in str(kind)]:
            raise DefinitionError(
                f"{cls.__name__}: its base {base.__name__} is a subclass of a pytree class "
                f"and declares {', '.join(lost)}, but is not decorated, so these would be lost\n"
                f"  fix: decorate {base.__name__} with @lw.pytree too"
            )
