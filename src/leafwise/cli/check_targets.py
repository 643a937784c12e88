"""Finding the pytree classes in command-line targets."""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leafwise._classes.registry import registered_names
from leafwise._objects.classes import is_a, is_tree_node
from leafwise._objects.source.call_site import short_file
from leafwise.errors import message_of
from leafwise.testing._format import users_frames
from leafwise.testing._laws.libraries import is_namedtuple, is_own
from leafwise.testing.strategies._constructor import is_abstract


class UsageError(Exception):
    """The command line names something that does not exist, or is invalid."""


@dataclasses.dataclass(frozen=True)
class CheckTarget:
    cls: type
    name: str
    optional: bool = False


@dataclasses.dataclass
class FoundTargets:
    """The classes of the targets, and what could not be imported."""

    targets: list[CheckTarget]
    unloaded: dict[str, str]
    notes: list[str]


def find_targets(texts: list[str]) -> FoundTargets:
    """Find the pytree classes of all targets."""
    # A package has the classes that it exports from its own modules, and those of all modules below
    # it; a directory has those of all Python files in and below it. Tests, ``__main__`` and files
    # that only install or configure a project are left out.
    by_class: dict[type, CheckTarget] = {}
    unloaded: dict[str, str] = {}
    notes: list[str] = []
    for text in texts:
        place, wanted = _split(text)
        failed: dict[str, BaseException] = {}
        with contextlib.chdir(os.curdir):  # a module may change the directory
            if wanted:
                targets = [_one(load_module(place), place, wanted)]
            else:
                modules = _modules(place, failed)
                targets = [target for module, name in modules for target in _all(module, name)]
        for name, error in failed.items():
            reason = _raised(error)
            if _is_note(error, place):
                notes.append(f"{name}: {reason}")
            else:
                unloaded[name] = reason
        if not targets:
            notes.append(f"{text}: no pytree class is defined in it")
        for target in targets:
            known = by_class.setdefault(target.cls, target)
            if known.optional and not target.optional:  # also named by a target
                by_class[target.cls] = target
    if not by_class and not unloaded:
        fix = ": one that is decorated with @lw.pytree, or that another library registered with JAX"
        raise UsageError("\n  ".join(notes) + fix)
    return FoundTargets(list(by_class.values()), unloaded, notes)


def _split(text: str) -> tuple[str, str]:
    """Split a target into its place and the class that it names, or an empty text."""
    place, colon, wanted = text.replace("::", ":").rpartition(":")  # pytest writes two
    # The colon in "C:\\models.py" is part of the path.
    if not place or (wanted and not wanted.replace(".", "_").isidentifier()):
        return text, ""
    if colon and not wanted:
        raise UsageError(f"{text}: name a class after the colon, or leave the colon out")
    return place, wanted


def _one(module: types.ModuleType, place: str, wanted: str) -> CheckTarget:
    value: Any = module
    for part in wanted.split("."):
        value = getattr(value, part, None)
    if value is None:
        names = ", ".join(target.cls.__qualname__ for target in _all(module, place))
        raise UsageError(f"{place}: it has no {wanted}; its pytree classes: {names or 'none'}")
    if not is_node(value):
        raise UsageError(
            f"{place}:{wanted}: not a pytree class: JAX treats its instances as leaves\n"
            f"  fix: decorate it with @lw.pytree, or register it with JAX"
        )
    return CheckTarget(value, f"{place}:{wanted}")


def _all(module: types.ModuleType, place: str) -> Iterator[CheckTarget]:
    """Yield the classes that a module defines, nested ones too, or registers, or a package has."""
    is_package = hasattr(module, "__path__")

    def classes_in(holder: Any, start: str) -> Iterator[CheckTarget]:
        for name, value in list(vars(holder).items()):
            if not is_a(value, type):
                continue
            home = str(value.__module__)
            if holder is not module:
                own = value.__qualname__ == f"{holder.__qualname__}.{name}"
            else:
                below = is_package and home.startswith(f"{module.__name__}.")
                own = below or home == module.__name__
            # Abstract classes and protocols are checked through their subclasses.
            is_wanted = own or (holder is module and registered_names(value) is not None)
            if is_wanted and is_node(value) and not is_abstract(value):
                yield CheckTarget(value, f"{start}{name}", is_namedtuple(value))
            if own:
                yield from classes_in(value, f"{start}{name}.")

    yield from classes_in(module, f"{place}:")


def _modules(
    place: str, failed: dict[str, BaseException]
) -> Iterator[tuple[types.ModuleType, str]]:
    """Yield the modules of a place, each with its display name; add import errors to `failed`."""
    folder = Path(place)
    if place and folder.is_dir() and (_is_path(place) or not _is_package(place)):
        paths = list(_files_below(folder))
        loads = {str(path): functools.partial(_load_file, path.resolve()) for path in paths}
    else:
        module = load_module(place)
        yield module, place
        inner = [] if place.endswith(".py") else _names_below(module)
        names = [f"{place}.{name}" for name in inner]
        loads = {name: functools.partial(importlib.import_module, name) for name in names}
    for name, load in loads.items():
        if any(name.startswith(f"{package}.") for package in failed):  # its submodules fail, too
            continue
        try:
            module = load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # user code
            failed[name] = error
        else:
            yield module, name


def _names_below(package: types.ModuleType) -> Iterator[str]:
    """Yield the names of the modules below a package, also in folders without ``__init__``."""
    for root in map(Path, getattr(package, "__path__", ())):
        for path in _files_below(root):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            if name.replace(".", "_").isidentifier():
                yield name


_ASIDE: Final = {"__main__", "conftest", "noxfile", "setup", "test", "tests", "__pycache__"}
_NO_SOURCE: Final = {"build", "dist", "node_modules", "site-packages"}


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the Python files in and below a folder that can be imported."""
    entries = folder.iterdir() if folder.is_dir() else ()
    for path in sorted(entries, key=lambda path: (path.is_dir(), path.name)):
        name = path.stem  # tests, or files that run a program when imported
        if name in _ASIDE or name.startswith(("test_", ".")) or name.endswith("_test"):
            continue
        if path.is_dir():
            is_source = path.name not in _NO_SOURCE or (path / "__init__.py").exists()
            if is_source and not (path / "pyvenv.cfg").exists():
                yield from _files_below(path)
        elif path.suffix == ".py" and path.stem.isidentifier():
            yield path


def _is_note(error: BaseException, place: str) -> bool:
    """Return whether a module only exits, redefines flags, or lacks an optional dependency."""
    if isinstance(error, SystemExit) or type(error).__name__ == "DuplicateFlagError":
        return True
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    behind = error.__cause__ or error.__context__
    if name is None and isinstance(error, ImportError) and behind:
        return _is_note(behind, place)  # a package may word it itself
    top = (name or "").partition(".")[0]
    known = getattr(sys.modules.get(top), "__file__", None)  # also None, as for `google.colab`
    if not top or known or top == place.partition(".")[0]:
        return False
    return not any(Path(place, f"{top}{end}").exists() for end in ("", ".py"))


def _is_path(place: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    return place in (os.curdir, os.pardir) or not separators.isdisjoint(place)


def _is_package(name: str) -> bool:
    """Return whether a name is that of a package with an ``__init__``, and not just a folder."""
    if not name.isidentifier() or name in sys.stdlib_module_names:
        return False  # `code` or `types` means the user's folder, not Python's module
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def load_module(place: str) -> types.ModuleType:
    if not place:
        raise UsageError("an empty target: name a module, module:Class, a file or a directory")
    try:
        if place.endswith(".py") or _is_path(place):
            return _load_file(Path(place))
        return importlib.import_module(place)
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of the user's module, which may call sys.exit
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        is_missing = name is not None and f"{place}.".startswith(f"{name}.")
        hint = f"there is no such module (for a file, write {place}.py)"
        raise UsageError(f"{place}: {hint if is_missing else _raised(error)}") from error


def _raised(error: BaseException) -> str:
    """Return the error of an import, and the user's line that raised it, if known."""
    text = f"importing it raised {type(error).__name__}: {message_of(error)}"
    if isinstance(error, SyntaxError):  # its message has the place
        return text
    frames = users_frames(error)
    own = [frame for frame in frames if "-packages" not in frame.filename]
    for frame in (own or frames)[-1:]:
        text += f", at {short_file(frame.filename)}:{frame.lineno}"
    return text


def _load_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    path = path.resolve()
    top = path
    while (top.parent / "__init__.py").is_file() and top.parent.name.isidentifier():
        top = top.parent
    parts = path.with_suffix("").relative_to(top.with_suffix("")).parts
    first = _load_first(top / "__init__.py" if parts else path, top)
    return importlib.import_module(".".join([first, *(p for p in parts if p != "__init__")]))


def _load_first(path: Path, top: Path) -> str:
    """Import a module, or the package that holds one, and return its name."""
    name = top.stem
    known = getattr(sys.modules.get(name), "__file__", None) or ""
    if name in sys.modules and Path(known).resolve() != path:
        # Another module already has the name.
        name = f"{name}_{zlib.crc32(os.fsencode(path)):08x}"
    if name in sys.modules:
        return name
    folders = [str(top)] if top.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    if str(top.parent) not in sys.path:  # as when the file is run
        sys.path.insert(0, str(top.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # of the user's module
        del sys.modules[name]
        raise
    return name


def is_node(value: Any) -> bool:
    """Return whether a value is a class that JAX flattens, other than Python's containers."""
    if not is_a(value, type) or value.__module__ in ("builtins", "collections"):
        return False
    return is_own(value) or bool(is_tree_node(value))


def flattened_by(cls: type) -> str:
    """Return the base that a class inherits ``tree_flatten`` from, or an empty text."""
    for base in cls.__mro__:
        if "tree_flatten" in vars(base):
            return "" if base is cls else base.__qualname__
    return ""


def source_location(cls: type) -> tuple[str, int]:
    """Return the file and the line where a class is defined; ``("", 0)`` if unknown."""
    try:
        file = inspect.getsourcefile(cls)
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError, IndexError, SyntaxError):
        file, line = None, 0
    if file is None:
        return "", 0
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path), line
