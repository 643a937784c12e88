"""Libraries with pytree classes: the laws each does not promise, and how it declares fields."""

import dataclasses
import re
from typing import Any, Final, NamedTuple

import jax

from leafwise._classes import refusals
from leafwise._classes.annotations import without_marks
from leafwise._classes.registry import registered_names
from leafwise._classes.spec import frozen_kind, is_decorated
from leafwise._jit.jax_errors import as_static
from leafwise._objects.source.code import is_installed_module
from leafwise._trees.roles import field_names_of
from leafwise.testing._laws.law import Law


class Library(NamedTuple):
    """A library that provides flatten and unflatten for its classes."""

    to_dynamic: str
    not_promised: tuple[Law, ...] = (Law.STATIC_TYPES, Law.AUX_DATA_HASH)


_DATACLASS: Final = (Law.STATIC_TYPES, Law.AUX_DATA_HASH, Law.POST_INIT, Law.DISTINCT_CLASSES)
LIBRARIES: Final = {
    "leafwise": Library("drop `lw.Static`", ()),
    "equinox": Library(
        "drop `static=True`", (Law.STATIC_TYPES, Law.AUX_DATA_HASH, Law.STABLE_TREEDEF)
    ),
    "flax.struct": Library("drop `pytree_node=False`", _DATACLASS),
    "flax.nnx": Library("wrap it in `nnx.data`"),
    "jax_dataclasses": Library(
        "drop `jdc.Static`", (Law.STATIC_TYPES, Law.AUX_DATA_HASH, Law.POST_INIT)
    ),
    "chex": Library("annotate it as `chex.Array`", _DATACLASS),
    "NamedTuple": Library("annotate it as `jax.Array`"),
    # Also for classes with their own flatten: JAX does not require these laws.
    "JAX": Library("name it among the `data_fields`, and drop `static`", _DATACLASS),
}


def is_unpromised(cls: type, law: Law, message: str) -> bool:
    """Return whether the library of a class does not promise a law that was broken this way."""
    if law is Law.AUX_DATA_HASH and not any(text in message for text in (UNHASHABLE, ONE_HASH)):
        return False
    if law in (Law.COPIES, Law.SAME_ARGUMENTS):
        return ANOTHER_TREEDEF in message
    return law in LIBRARIES[library_of(cls)].not_promised


UNHASHABLE: Final = "whose hash() raised"
"""In messages about unhashable aux_data, which some libraries allow and JAX never hashes."""
ANOTHER_TREEDEF: Final = "and so another treedef after"
"""In messages about a copy or a new instance with another static, which JAX allows."""
ONE_HASH: Final = "one hash for"
"""In messages about distinct aux_data with equal hashes."""


def library_of(cls: type) -> str:
    if is_own(cls):
        return "leafwise"
    return refusals.library_of(cls) or ("NamedTuple" if is_namedtuple(cls) else "JAX")


def is_own(cls: type) -> bool:
    return is_decorated(cls) or registered_names(cls) is not None


def is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and not is_own(cls)


def fix_of(law: Law, instance: Any, path: str) -> str:
    """Return the fix in a class whose flatten is its library's; empty for other classes."""
    cls: Any = type(instance)
    library = library_of(cls)
    if is_by_hand(cls):
        return ""
    if path and (fix := constructor_fix(law, instance, "what checks or converts")):
        return fix
    names = reversed(re.split(r"\W+", path))
    name = next((name for name in names if name and hasattr(instance, name)), "")
    parts = {each: getattr(instance, each, None) for each in field_names_of(instance).static}
    arrays = [
        each
        for each, part in parts.items()
        if any(hasattr(leaf, "dtype") for leaf in jax.tree_util.tree_leaves(part))
    ]
    if arrays and not name and law in _OF_UNFLATTEN:  # comparing treedefs raises
        name = arrays[0]
    if name in arrays:
        how = LIBRARIES[library].to_dynamic
        return f"make `{name}` a dynamic field: {how}; or hold it as `lw.StaticArray`"
    if law is Law.AUX_DATA_HASH and name:
        field = getattr(cls, "__dataclass_fields__", {}).get(name)
        kind = "" if field is None else without_marks(field.type)
        frozen = frozen_kind(kind)
        return f"give `{name}` {WITH_HASH}{f', and declare it `{frozen}`' * (frozen != kind)}"
    if law in LIBRARIES[library].not_promised:
        return _in_leafwise(instance, name)
    if law is Law.NO_HIDDEN_STATE and name in getattr(cls, "__dataclass_fields__", ()):
        return ""  # the field is declared
    return _FIXES.get(law, "")


def by_value_fix(kind: type) -> str:
    """Return how a static of a class that compares by identity can equal another."""
    if is_installed_module(kind.__module__):
        name = kind.__name__
        return f"store the arguments of {name}, and create it in a method: it compares by identity"
    return f"make {kind.__name__} a frozen dataclass: it compares by identity"


WITH_HASH: Final = "a value with a hash: a tuple for a list, `lw.freeze` for the rest"
_FIXES: Final = {
    Law.TREEDEF_EQUALITY: "let == of a static return one bool, whatever it is compared with",
    Law.STATIC_VALUES: "compare statics by value, and declare each as a field",
    Law.AUX_DATA_HASH: "give each static a hash that agrees with ==",
    Law.STABLE_TREEDEF: "keep caches out of the declared fields",
    Law.NO_HIDDEN_STATE: "declare it as a field",
}
_OF_UNFLATTEN: Final = (Law.ROUND_TRIP, Law.ANY_LEAF, Law.IDENTITY_MAP, Law.TRANSFORMATIONS)


def is_by_hand(cls: Any) -> bool:
    """Return whether the flatten of a class is its author's, and not that of a library."""
    is_jax = library_of(cls) == "JAX" and not dataclasses.is_dataclass(cls)
    return hasattr(cls, "tree_flatten") or is_jax


def constructor_fix(law: Law, instance: Any, code: str) -> str:
    """Return the fix where a library's unflatten runs `__post_init__`; empty if it does not."""
    cls, library = type(instance), library_of(type(instance))
    is_run = hasattr(cls, "__post_init__") and Law.POST_INIT in LIBRARIES[library].not_promised
    if law not in _OF_UNFLATTEN or is_by_hand(cls) or not is_run:
        return ""
    other = _in_leafwise(instance, "")
    if library == "flax.struct":
        other = "`from leafwise.interop.flax import struct` in place of flax's"
    return f"leave {code} out of `__post_init__`, or {other}"


def _in_leafwise(instance: Any, name: str) -> str:
    """Return how to declare a class of another library, and its static field, in leafwise."""
    cls = type(instance)
    is_module = library_of(cls) == "equinox"
    by = "as a `leafwise.interop.equinox.Module`" if is_module else "with `@lw.pytree`"
    is_field = name in getattr(cls, "__dataclass_fields__", ())
    field = f" and {as_static(cls, name, ours=True)}" if is_field else ""
    return f"declare {cls.__name__} {by}{field}"
