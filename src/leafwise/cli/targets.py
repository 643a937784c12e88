"""From a command-line target to the pytree classes in it."""

import dataclasses
import importlib
import importlib.util
import inspect
import os
import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeGuard

import jax

from leafwise._classes.registry import registered_names
from leafwise._classes.spec import is_decorated
from leafwise.testing.strategies import _objects
from leafwise.testing.strategies._leaves import is_numeric


class TargetError(Exception):
    """A target cannot be loaded, or has nothing to check: a usage error."""


@dataclasses.dataclass(frozen=True)
class CheckTarget:
    """A class to check.

    Attributes:
        cls: The class.
        name: How to call it: ``module:Class`` or ``file.py:Class``.
        optional: Whether it may be left out, if no jitted function takes it.
    """

    cls: type
    name: str
    optional: bool = False


def find_targets(texts: list[str]) -> list[CheckTarget]:
    """Return the pytree classes of all targets, each once, in order of definition.

    Args:
        texts: Modules, ``module:Class``, files, or ``file.py:Class``.

    Raises:
        TargetError: A target cannot be imported, or there is no pytree class in it.
    """
    found: dict[int, CheckTarget] = {}  # by identity: a metaclass may compare classes as it likes
    for text in texts:
        place, colon, wanted = text.rpartition(":")
        # A colon in a path ("C:\\models.py") is no separator.
        if not place or (wanted and not wanted.replace(".", "_").isidentifier()):
            place, colon, wanted = text, "", ""
        if colon and not wanted:
            msg = f"{text}: name a class after the colon, or leave the colon out"
            raise TargetError(msg)
        module = _load(place)
        targets = [_one(module, place, wanted)] if wanted else list(_all(module, place))
        if not targets:
            msg = (
                f"{text}: no pytree class is defined in it: one that is decorated with "
                f"@lw.pytree, or that another library registered with JAX"
            )
            raise TargetError(msg)
        for target in targets:
            known = found.setdefault(id(target.cls), target)
            if known.optional and not target.optional:  # named as well
                found[id(target.cls)] = target
    return list(found.values())


def _one(module: types.ModuleType, place: str, wanted: str) -> CheckTarget:
    value: Any = module
    for part in wanted.split("."):
        value = getattr(value, part, None)
    if value is None:
        names = ", ".join(target.cls.__qualname__ for target in _all(module, place))
        msg = f"{place}: it has no {wanted}; its pytree classes: {names or 'none'}"
        raise TargetError(msg)
    if not is_node(value):
        msg = (
            f"{place}:{wanted}: not a pytree class: JAX treats its instances as leaves\n"
            f"  fix: decorate it with @lw.pytree, or register it with JAX"
        )
        raise TargetError(msg)
    return CheckTarget(value, f"{place}:{wanted}")


def _all(module: types.ModuleType, place: str) -> Iterator[CheckTarget]:
    """Yield the classes that a module defines or registers, nested ones included.

    A package defines what its own modules do, as far as it shows it.
    """
    is_package = hasattr(module, "__path__")
    for name, value in list(vars(module).items()):
        if not is_class(value):
            continue
        home = str(value.__module__)
        own = home == module.__name__ or (is_package and home.startswith(f"{module.__name__}."))
        if is_concrete(value) and (own or registered_names(value) is not None):
            yield CheckTarget(value, f"{place}:{name}", is_namedtuple(value))
        if own:
            yield from _nested(value, f"{place}:{name}")


def _nested(outer: type, name: str) -> Iterator[CheckTarget]:
    for inner_name, inner in list(vars(outer).items()):
        if not is_class(inner):
            continue
        if inner.__qualname__ == f"{outer.__qualname__}.{inner_name}":
            if is_concrete(inner):
                yield CheckTarget(inner, f"{name}.{inner_name}", is_namedtuple(inner))
            yield from _nested(inner, f"{name}.{inner_name}")


# ------------------------------------------------------------------------ loading


def _load(place: str) -> types.ModuleType:
    if not place:
        msg = "an empty target: name a module, module:Class or a file"
        raise TargetError(msg)
    is_file = place.endswith(".py") or os.sep in place or place in (os.curdir, os.pardir)
    try:
        return _load_file(Path(place)) if is_file else _load_module(place)
    except (TargetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        msg = f"{place}: importing it raised {type(error).__name__}: {error}"
        raise TargetError(msg) from error


def _load_module(name: str) -> types.ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # where `python -m` looks, too
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        msg = f"{name}: there is no such module (for a file, write {name}.py)"
        raise TargetError(msg) from error


def _load_file(path: Path) -> types.ModuleType:
    if path.is_dir():
        msg = f"{path}: this is a directory; name a file or a module in it"
        raise TargetError(msg)
    if not path.is_file():
        msg = f"{path}: there is no such file"
        raise TargetError(msg)
    path = path.resolve()
    name = path.stem
    known = getattr(sys.modules.get(name), "__file__", None) or ""
    if name in sys.modules and Path(known).resolve() != path:
        # Another module has the name. This one depends on the path alone, so that every process
        # gives the module, and so its classes, the same name.
        name = f"{name}_{zlib.crc32(os.fsencode(path)):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{path}: not a Python file"
        raise TargetError(msg)
    if str(path.parent) not in sys.path:  # where it looks for modules when it is run
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# ------------------------------------------------------------------------ pytree classes


def is_concrete(value: Any) -> bool:
    """Return whether a value is a pytree class that can have instances.

    Abstract classes and protocols are checked through their subclasses; named on the
    command line they are an error.
    """
    return is_node(value) and not is_abstract(value)


def is_own(cls: type) -> bool:
    """Return whether leafwise made a class a pytree class."""
    return is_decorated(cls) or registered_names(cls) is not None


def is_class(value: Any) -> TypeGuard[type]:
    """Return whether a value is a class; unlike `isinstance`, no code of the value's runs."""
    return issubclass(type(value), type)


def is_node(value: Any) -> bool:
    """Return whether a value is a class whose instances JAX flattens, and not one of Python's."""
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
    """Return the library that made a class a pytree class, for messages."""
    if is_own(cls):
        return "leafwise"
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


def source_location(cls: type) -> tuple[str, int]:
    """Return the file and the line where a class is defined; ``("", 0)`` if that is not known."""
    try:
        file = inspect.getsourcefile(cls)
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError, IndexError, SyntaxError):
        file, line = None, 0
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

    def is_module(node: Any) -> bool:
        return library_of(type(node)) == "equinox"

    def numeric_or_none(leaf: Any) -> Any:
        return leaf if is_numeric(leaf) else None

    def without_the_rest(node: Any) -> Any:
        if not is_module(node):
            return node
        return jax.tree_util.tree_map(numeric_or_none, node)

    if not any(map(is_module, jax.tree_util.tree_leaves(tree, is_leaf=is_module))):
        return tree
    return jax.tree_util.tree_map(without_the_rest, tree, is_leaf=is_module)
