"""From a command-line target to the pytree classes in it."""

import dataclasses
import importlib
import importlib.util
import os
import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leafwise._classes.register import registered_names
from leafwise.cli.library import is_abstract, is_class, is_namedtuple, is_node


class TargetError(Exception):
    """A target cannot be loaded, or has nothing to check: a usage error."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A class to check.

    Attributes:
        cls: The class.
        name: How to call it: ``module:Class`` or ``file.py:Class``.
        optional: Whether it may be left out, if no jitted function takes it.
    """

    cls: type
    name: str
    optional: bool = False


def find_targets(texts: list[str]) -> list[Target]:
    """Return the pytree classes of all targets, each once, in order of definition.

    Args:
        texts: Modules, ``module:Class``, files, or ``file.py:Class``.

    Raises:
        TargetError: A target cannot be imported, or there is no pytree class in it.
    """
    found: dict[int, Target] = {}  # by identity: a metaclass may compare classes as it likes
    for text in texts:
        place, colon, wanted = _split(text)
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


def is_concrete(value: Any) -> bool:
    """Return whether a value is a pytree class that can have instances.

    Abstract classes and protocols are checked through their subclasses; named on the
    command line they are an error.
    """
    return is_node(value) and not is_abstract(value)


def _split(text: str) -> tuple[str, str, str]:
    head, colon, tail = text.rpartition(":")
    # A colon in a path ("C:\\models.py") is no separator.
    is_name = not tail or tail.replace(".", "_").isidentifier()
    return (head, colon, tail) if head and is_name else (text, "", "")


def _load(place: str) -> types.ModuleType:
    if not place:
        msg = "an empty target: name a module, module:Class or a file"
        raise TargetError(msg)
    is_file = place.endswith(".py") or os.sep in place or place in (os.curdir, os.pardir)
    try:
        return _load_file(Path(place)) if is_file else _load_module(place)
    except TargetError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        msg = f"{place}: importing it raised {type(error).__name__}: {error}"
        raise TargetError(msg) from error


def _load_module(name: str) -> types.ModuleType:
    if os.getcwd() not in sys.path:  # noqa: PTH109  # as `python -m` does
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
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
    if name in sys.modules and _file_of(name) != path:
        # Another module has the name; this one is the same in every process.
        name = f"{name}_{zlib.crc32(os.fsencode(path)):08x}"
    if name in sys.modules and _file_of(name) == path:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{path}: not a Python file"
        raise TargetError(msg)
    if str(path.parent) not in sys.path:  # as when the file is run
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _file_of(name: str) -> Path:
    return Path(getattr(sys.modules[name], "__file__", None) or "").resolve()


def _one(module: types.ModuleType, place: str, wanted: str) -> Target:
    value: Any = module
    for part in wanted.split("."):
        value = getattr(value, part, None)
    if value is None:
        names = ", ".join(target.cls.__qualname__ for target in _all(module, place))
        msg = f"{place}: it has no {wanted}; its pytree classes: {names or 'none'}"
        raise TargetError(msg)
    if not is_node(value):
        msg = (
            f"{place}:{wanted}: not a pytree class: JAX takes its instances for leaves\n"
            f"  fix: decorate it with @lw.pytree, or register it with JAX"
        )
        raise TargetError(msg)
    return Target(value, f"{place}:{wanted}")


def _all(module: types.ModuleType, place: str) -> Iterator[Target]:
    """Yield the classes that a module defines or registers, nested ones included.

    A package defines what its own modules do, as far as it shows it.
    """
    for name, value in list(vars(module).items()):
        if not is_class(value):
            continue
        own = _is_defined_in(value, module)
        if is_concrete(value) and (own or registered_names(value) is not None):
            yield Target(value, f"{place}:{name}", is_namedtuple(value))
        if own:
            yield from _nested(value, f"{place}:{name}")


def _is_defined_in(cls: type, module: types.ModuleType) -> bool:
    home = str(cls.__module__)
    is_package = hasattr(module, "__path__")
    return home == module.__name__ or (is_package and home.startswith(f"{module.__name__}."))


def _nested(outer: type, name: str) -> Iterator[Target]:
    for inner_name, inner in list(vars(outer).items()):
        if not is_class(inner):
            continue
        if inner.__qualname__ == f"{outer.__qualname__}.{inner_name}":
            if is_concrete(inner):
                yield Target(inner, f"{name}.{inner_name}", is_namedtuple(inner))
            yield from _nested(inner, f"{name}.{inner_name}")
