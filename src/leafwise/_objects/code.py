"""What a piece of Python code is, and what it reads and writes outside itself.

Everything here depends on a code object alone, which cannot change: it is found once.
"""

import builtins
import dataclasses
import dis
import functools
import inspect
import os
import struct
import sys
import sysconfig
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from leafwise._objects.class_map import ClassMap
from leafwise._objects.stand_ins import MISSING

Chain = tuple[str, ...]
"""``config.rate`` as the code reads it: a name, and the attributes behind it."""


@dataclasses.dataclass(frozen=True, slots=True)
class CodeFacts:
    """What is known of one code object.

    Attributes:
        form: Equal for code that does the same: its bytecode, constants (type by type), names,
            parameters and flags, inner functions included; but not file and line. None if a
            constant is no value that source code can spell.
        reads: The globals that it names, with the attributes that it takes of them.
        takes: The same of its free variables, where an attribute is taken.
        rebinds: The variables of others that it assigns: free ones, or globals.
        sees_all: Whether it can read globals without naming them.
        installed: Whether it is of an installed package or the standard library.
    """

    form: tuple[Any, ...] | None
    reads: tuple[Chain, ...]
    takes: tuple[Chain, ...]
    rebinds: tuple[str, ...]
    sees_all: bool
    installed: bool


_FACTS: Final[ClassMap[CodeFacts]] = ClassMap()


def facts_of(code: types.CodeType) -> CodeFacts:
    """Return what is known of a code object."""
    return _FACTS.setdefault(cast("Any", code), lambda: _find_facts(code))


def runs_later(function: Callable[..., Any]) -> bool:
    """Return whether a function's body runs after its call has returned."""
    kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    return any(is_kind(function) for is_kind in kinds)


def _find_facts(code: types.CodeType) -> CodeFacts:
    inner = [facts_of(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    try:
        form = _form(code)
    except TypeError:
        form = None
    reads, takes = _chains(code)
    written: set[str] = set()
    global_names: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_DEREF", "DELETE_DEREF"):
            written.add(instruction.argval)
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            global_names.add(instruction.argval)
    for each in inner:
        reads |= dict.fromkeys(each.reads)
        takes |= dict.fromkeys(chain for chain in each.takes if chain[0] in code.co_freevars)
        written |= {name for name in each.rebinds if not name.startswith(_GLOBAL)}
        global_names |= {name[len(_GLOBAL) :] for name in each.rebinds if name.startswith(_GLOBAL)}
    free = sorted(written & set(code.co_freevars))
    rebinds = (*free, *(f"{_GLOBAL}{name}" for name in sorted(global_names)))
    sees_all = any(each.sees_all for each in inner) or any(c[0] in _SEE_ALL for c in reads)
    installed = _is_installed_file(code.co_filename)
    return CodeFacts(form, tuple(reads), tuple(takes), rebinds, sees_all, installed)


_GLOBAL: Final = "global "
_SEE_ALL: Final = frozenset({"globals", "eval", "exec", "vars", "locals"})


def _form(code: types.CodeType) -> tuple[Any, ...]:
    return (
        code.co_name,
        code.co_qualname,
        code.co_code,
        tuple(map(_constant, code.co_consts)),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        code.co_flags,
        code.co_exceptiontable,
    )


def _constant(value: Any) -> tuple[Any, ...]:
    """Return a constant so that equal ones are the same: `1`, `True` and `1.0` are not."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind is float:
        return kind, struct.pack("d", value)
    if kind is complex:
        return kind, struct.pack("dd", value.real, value.imag)
    if kind is tuple:
        return kind, *map(_constant, value)
    if kind is frozenset:
        return kind, frozenset(Counter(map(_constant, value)).items())
    if kind is slice:  # since Python 3.14
        return kind, *map(_constant, (value.start, value.stop, value.step))
    if kind is types.CodeType:
        return kind, _form(value)
    raise TypeError(kind)


_EXACT: Final = frozenset({int, str, bytes, bool, type(None), type(...)})


def _chains(code: types.CodeType) -> tuple[dict[Chain, None], dict[Chain, None]]:
    """Return the globals and the free variables that code reads, with attributes, in order."""
    found: tuple[dict[Chain, None], dict[Chain, None]] = {}, {}
    chain: list[str] = []
    into = 0
    for name, kind in _steps(code):
        if kind == _ATTRIBUTE and chain:
            chain.append(name)
            continue
        if chain and (into == 0 or len(chain) > 1):
            found[into][tuple(chain)] = None
        chain, into = ([], 0) if kind in (_ATTRIBUTE, _OTHER) else ([name], kind)
    return found


_OTHER, _ATTRIBUTE = 2, 3


def _steps(code: types.CodeType) -> Iterator[tuple[str, int]]:
    for instruction in dis.get_instructions(code):
        yield instruction.argval, _KINDS.get(instruction.opname, _OTHER)
    yield "", _OTHER


_KINDS: Final = {
    "LOAD_GLOBAL": 0,
    "LOAD_NAME": 0,
    "LOAD_FROM_DICT_OR_GLOBALS": 0,
    "LOAD_DEREF": 1,
    "LOAD_ATTR": _ATTRIBUTE,
    "LOAD_METHOD": _ATTRIBUTE,
}


def is_installed_module(name: object) -> bool:
    """Return whether a module is of an installed package or the standard library."""
    if not isinstance(name, str):
        return False
    root = name.partition(".")[0]
    if root in _CLOSED or root in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and _is_installed_file(file)


@functools.lru_cache(maxsize=4096)
def _is_installed_file(file: str) -> bool:
    return file.startswith(_INSTALLED) or not _PACKAGES.isdisjoint(Path(file).parts)


_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})
_CLOSED: Final = frozenset({"builtins", "jax", "jaxlib", "numpy", "leafwise"})

_INSTALLED: Final = (
    "<frozen ",
    "<leafwise ",
    *{
        f"{sysconfig.get_path(name)}{os.sep}"
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    },
)
"""Where the files of installed packages lie, and the names of code that has no file."""


def is_importable(value: Any) -> bool:
    """Return whether the name of a function or class leads to it."""
    try:
        module = getattr(value, "__module__", None)
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if not (isinstance(module, str) and isinstance(name, str)):
            return False
        return find_by_name(module, name) is value
    except Exception:  # noqa: BLE001  # a `__getattr__` of the user's may raise anything
        return False


def find_by_name(module: str, name: str) -> Any:
    """Return what a qualified name leads to in a module that is loaded, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def contents(cell: types.CellType) -> Any:
    """Return what a cell holds."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def find_all(chains: tuple[Chain, ...], names: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what code finds under each of these names."""
    return tuple([resolve(names, chain) for chain in chains])


def resolve(names: Mapping[str, Any], chain: Chain) -> Any:
    """Follow a name, and its attributes as far as they lead through modules and classes."""
    value = names.get(chain[0], MISSING)
    if value is MISSING:
        value = vars(builtins).get(chain[0], MISSING)
    for name in chain[1:]:
        if isinstance(value, types.ModuleType) and not is_installed_module(value.__name__):
            value = vars(value).get(name, MISSING)
        elif isinstance(value, type) and not is_installed_module(value.__module__):
            member = inspect.getattr_static(value, name, MISSING)
            if isinstance(member, classmethod):  # it sees all of the class
                break
            value = function_in(member)
        else:
            break
    return value


def function_in(member: Any) -> Any:
    """Return the function of a property or a method that is not bound."""
    if isinstance(member, staticmethod | classmethod):
        return cast("Any", member).__func__
    if isinstance(member, functools.cached_property):
        return cast("Any", member).func
    return member.fget if isinstance(member, property) else member


def own_bases(cls: type) -> list[type]:
    """Return a class and its bases, also those of its metaclass, but not those of packages."""
    bases = dict.fromkeys((*cls.__mro__, *cast("type", type(cls)).__mro__))
    return [base for base in bases if not is_installed_module(base.__module__)]
