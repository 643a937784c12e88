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
from typing import Any

from leafwise._register import registered_names
from leafwise._spec import is_decorated


class TargetError(Exception):
    """A target cannot be loaded, or has nothing to check: a usage error."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A class to check.

    Attributes:
        cls: The class.
        name: How to call it: ``module:Class`` or ``file.py:Class``.
    """

    cls: type
    name: str


def find_targets(texts: list[str]) -> list[Target]:
    """Return the pytree classes of all targets, each once, in order of definition.

    Args:
        texts: Modules, ``module:Class``, files, or ``file.py:Class``.

    Raises:
        TargetError: A target cannot be imported, or there is no pytree class in it.
    """
    found: dict[type, Target] = {}
    for text in texts:
        place, colon, wanted = _split(text)
        if colon and not wanted:
            msg = f"{text}: name a class after the colon, or leave the colon out"
            raise TargetError(msg)
        module = _load(place)
        targets = [_one(module, place, wanted)] if wanted else list(_all(module, place))
        if not targets:
            msg = f"{text}: no pytree class is defined in it (decorated with @lw.pytree)"
            raise TargetError(msg)
        for target in targets:
            found.setdefault(target.cls, target)
    return list(found.values())


def is_target(value: Any) -> bool:
    """Return whether a value is a class that leafwise registered."""
    return inspect.isclass(value) and (is_decorated(value) or registered_names(value) is not None)


def is_concrete(value: Any) -> bool:
    """Return whether a value is a class to check that can have instances.

    Abstract classes and protocols are checked through their subclasses; named on the
    command line they are an error.
    """
    is_protocol = bool(getattr(value, "_is_protocol", False))
    return is_target(value) and not inspect.isabstract(value) and not is_protocol


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
    if not is_target(value):
        msg = (
            f"{place}:{wanted}: not a class that leafwise registered (decorate it with @lw.pytree)"
        )
        raise TargetError(msg)
    return Target(value, f"{place}:{wanted}")


def _all(module: types.ModuleType, place: str) -> Iterator[Target]:
    """Yield the classes that a module defines or registers, nested ones included."""
    for name, value in list(vars(module).items()):
        if not inspect.isclass(value):
            continue
        foreign = value.__module__ != module.__name__
        if is_concrete(value) and (not foreign or registered_names(value) is not None):
            yield Target(value, f"{place}:{name}")
        if not foreign:
            yield from _nested(value, f"{place}:{name}")


def _nested(outer: type, name: str) -> Iterator[Target]:
    for inner_name, inner in list(vars(outer).items()):
        if inspect.isclass(inner) and inner.__qualname__ == f"{outer.__qualname__}.{inner_name}":
            if is_concrete(inner):
                yield Target(inner, f"{name}.{inner_name}")
            yield from _nested(inner, f"{name}.{inner_name}")
