"""The classes that leafwise knows: their specs, and their functions held by JAX."""

import dataclasses
import functools
import os
import threading
import weakref
from typing import Any, Final, Protocol

import jax

from leafwise._classes import construct
from leafwise._classes.codegen import Functions
from leafwise._classes.converting import convert
from leafwise._classes.fields import OPTIONS, FieldOptions, convert_with
from leafwise._classes.spec import MARK, REDEFINED, ClassSpec, FieldSpec, is_static_metadata
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import announce
from leafwise._statics.key import KEY, find_owners_with, key_of, verify, verify_content

_SPECS: Final[ClassMap[ClassSpec]] = ClassMap()
_LATEST: Final[dict[tuple[str, str], weakref.ref[type]]] = {}
_FUNCTIONS: Final[ClassMap["Checked"]] = ClassMap()


def install(spec: ClassSpec) -> None:
    """Generate the class's functions and register it with JAX."""
    _SPECS[spec.cls] = spec
    _register(spec)
    _note_redefinition(spec)
    announce(spec.cls)


def _register(spec: ClassSpec) -> None:
    cls = spec.cls
    if not spec.static_names:
        spec.empty_key = key_of(spec.table, ())  # kept alive, to be found again
    functions = Functions(spec, functools.partial(construct.unfinished, spec), _verify, _check)
    jax.tree_util.register_pytree_with_keys(
        cls, functions.flatten_with_keys, functions.unflatten, functions.flatten
    )
    follow_checking(cls, functions)


def _verify(self: Any) -> None:
    key = getattr(self, KEY, None)
    if key is not None:
        verify(key)


def _check(self: Any) -> None:
    key = getattr(self, KEY, None)
    if key is not None:
        verify_content(key)


def _note_redefinition(spec: ClassSpec) -> None:
    """Let two classes of one name tell themselves apart in JAX's messages."""
    cls = spec.cls
    name = (cls.__module__, cls.__qualname__)
    older_ref = _LATEST.get(name)
    older = older_ref() if older_ref is not None else None
    if older is not None and older is not cls:
        spec_of(older).is_redefined = True
        # JAX prints the type itself where two types differ. The name no longer leads to
        # the older class (a local one's never did), so nothing that worked stops working.
        older.__qualname__ = f"{cls.__qualname__} ({REDEFINED})"
    _LATEST[name] = weakref.ref(cls)


def spec_of(cls: type) -> ClassSpec:
    """Return the spec of a decorated class.

    A class that was pickled by value (cloudpickle, ``__main__``) arrives decorated but
    unknown to this process's JAX; it is registered here, before its first instance.
    """
    spec = _SPECS.get(cls)
    if spec is None:
        construct.check_decorated(cls)
        _, many_statics = cls.__dict__[MARK]
        own_init = not _is_generated(cls)
        spec = ClassSpec(cls, _fields_again(cls), has_own_init=own_init, many_statics=many_statics)
        install(spec)
    return spec


find_owners_with(spec_of)
convert_with(convert)


def _is_generated(cls: Any) -> bool:
    filename: str = cls.__init__.__code__.co_filename
    return filename.startswith("<leafwise")


def _fields_again(cls: Any) -> tuple[FieldSpec, ...]:
    """Resolve the fields of a class that was decorated in another process."""
    missing = dataclasses.MISSING
    specs: list[FieldSpec] = []
    for definition in dataclasses.fields(cls):
        for name in ("default", "default_factory"):
            if isinstance(getattr(definition, name), type(missing)):
                setattr(definition, name, missing)  # it travelled as another object
        static = is_static_metadata(definition.metadata) is True
        options = definition.metadata.get(OPTIONS, FieldOptions())
        specs.append(FieldSpec(cls.__name__, definition.name, static, options, definition))
    return tuple(specs)


class Checked(Protocol):
    """What can look at statics whenever an instance is flattened."""

    def set_checked(self, *, checked: bool) -> None:
        """Look from now on, or no longer."""
        ...


def follow_checking(cls: type, follower: Checked) -> None:
    """Let what stands for a class be told of `leafwise.debug.check_statics`."""
    with _CHECKING_LOCK:
        _FUNCTIONS[cls] = follower
        if _checking:
            follower.set_checked(checked=True)


_CHECKING_LOCK: Final = threading.Lock()
_checking: int = 0


def is_checking() -> bool:
    """Return whether `leafwise.debug.check_statics` is on."""
    return _checking > 0


def set_checking(*, on: bool) -> None:
    """Turn `leafwise.debug.check_statics` on or off, counting how often."""
    global _checking  # noqa: PLW0603  # one switch for the process, as documented
    with _CHECKING_LOCK:
        _checking += 1 if on else -1
        if _checking == (1 if on else 0):
            for functions in _FUNCTIONS.values():
                functions.set_checked(checked=on)


if os.environ.get("LEAFWISE_CHECK_STATICS", "") not in ("", "0"):
    set_checking(on=True)
