"""What Python code consists of, what it reads outside itself, and what its names refer to."""

import contextlib
import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast

from leafwise._objects.classes import REDEFINED, is_a, module_of, per_class
from leafwise._objects.interrupts import or_default
from leafwise._objects.source.call_site import is_installed_file
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got

_F = TypeVar("_F", bound=Callable[..., Any])


class CodeFacts(NamedTuple):
    """The facts about a code object that leafwise uses."""

    form: types.CodeType  # equal for code that does the same, wherever it is defined
    rebinds: tuple[str, ...]  # the outer variables that it assigns; globals as `global x`
    sees_all: bool  # whether it can read globals without naming them
    installed: bool  # whether it is from an installed package or the standard library


class Block(contextlib.ContextDecorator):
    """A context manager that can also decorate functions, which then run inside it."""

    _code: ClassVar[str]  # as users write it

    def __call__(self, func: _F) -> _F:
        kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
        if any(is_kind(func) for is_kind in kinds):
            why, where = "it runs after its call has returned", "inside it"
        elif inspect.isclass(func):
            why, where = "it would be a function, not a class", "where it is used"
        else:
            return super().__call__(func)
        name = self._code.partition("(")[0].rpartition(".")[2]
        raise TypeError(
            f"{name}() cannot decorate {got(func)}: {why}\n"
            f"  fix: open the block {where}: with lw.{self._code}:"
        )


@per_class
def facts_of(code: types.CodeType) -> CodeFacts:
    consts = code.co_consts
    inner = [facts_of(const) for const in consts if isinstance(const, types.CodeType)]
    rebinds = {name for facts in inner for name in facts.rebinds if name not in code.co_cellvars}
    has_docstring = code.co_flags & getattr(inspect, "CO_HAS_DOCSTRING", 0)
    unused = sys.version_info >= (3, 14) and not has_docstring
    for instruction in dis.get_instructions(code):
        unused &= instruction.opcode not in dis.hasconst or instruction.arg != 0
        if instruction.opname in ("STORE_DEREF", "DELETE_DEREF"):
            rebinds |= {instruction.argval}.intersection(code.co_freevars)
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            rebinds.add(f"global {instruction.argval}")
    readers = {"globals", "eval", "exec", "vars", "locals"}
    sees_all = not readers.isdisjoint(code.co_names) or any(facts.sees_all for facts in inner)
    constants = [facts_of(const).form if is_a(const, types.CodeType) else const for const in consts]
    if unused:  # Python 3.14 keeps an unused first constant, as the "a" of `{"a", "b"}`
        constants[:1] = [None][: len(constants)]
    form = code.replace(
        co_filename="", co_firstlineno=1, co_linetable=b"", co_consts=tuple(constants)
    )
    return CodeFacts(form, tuple(sorted(rebinds)), sees_all, is_installed_file(code.co_filename))


def parameters(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of all parameters, ``*args`` and ``**kwargs`` at the end."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def function_in(member: Any) -> Any:
    """Return the function inside a property or an unbound method; any other value unchanged."""
    if is_a(member, staticmethod | classmethod):
        return member.__func__
    if is_a(member, functools.cached_property):
        return member.func
    return member.fget if is_a(member, property) else member


def computed_names(cls: type) -> frozenset[str]:
    """Return the names under which instances of a frozen class may cache computed values."""
    # These are the strings in methods that take only ``self`` and store past the freezing, unless
    # other methods store them, too, or the method stores them in another object.
    computed: set[Any] = set()
    stated: set[Any] = set()
    for name, member in [pair for base in cls.__mro__ for pair in vars(base).items()]:
        code = getattr(function_in(member), "__code__", None)
        if not is_a(code, types.CodeType) or STORING.isdisjoint(code.co_names):
            continue
        texts, taken = {const for const in code.co_consts if type(const) is str}, parameters(code)
        if name in _CONSTRUCTORS or len(taken) != 1:
            stated |= texts
            continue
        computed |= texts
        instructions = dis.get_instructions(code) if "__setattr__" in code.co_names else ()
        for holder, text in itertools.pairwise(instructions):
            if holder.opname.startswith("LOAD_FAST") and holder.argval != taken[0]:
                stated.add(text.argval)
    return frozenset(computed - stated)


STORING: Final = frozenset({"__setattr__", "setattr", "__dict__", "vars"})
_CONSTRUCTORS: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__attrs_post_init__", "__attrs_pre_init__"}
)


def own_bases(cls: type) -> list[type]:
    """Return a class, its metaclass and the bases of both, except those from packages."""
    bases = dict.fromkeys((*cls.__mro__, *cast("type", type(cls)).__mro__))
    return [base for base in bases if not is_installed_module(module_of(base))]


OF_EVERY_CLASS: Final = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"),
        # Created on demand, as are the combinations of an `enum.Flag`.
        *("__slotnames__", "__annotations_cache__", "__annotate_func__", "_value2member_map_"),
    }
)
"""The members of a class that say nothing about its instances."""


def int_as_float(value: Any) -> Any:
    """Return an `int` as the `float` that code makes of it when it rebinds it, as in optax."""
    is_exact = type(value) is int and abs(value) < 1 << 53  # exact as `float`
    return float(value) if is_exact else value


@or_default(default=False)  # the `__getattr__` of a lazy module
def is_importable(value: Any) -> bool:
    """Return whether the name of a function or class refers to it."""
    module, name = names_of(value)
    return bool(name) and find_by_name(module, name) is value


@or_default(("", ""))  # a user's `__getattr__`
def names_of(value: Any) -> tuple[str, str]:
    """Return the module and name that an object claims to have; empty strings without them."""
    # The ufuncs of NumPy 2.0 have no `__module__`.
    module: Any = getattr(value, "__module__", type(value).__module__)
    name: Any = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return (module, name) if isinstance(module, str) and isinstance(name, str) else ("", "")


def find_by_name(module: str, name: str) -> Any:
    """Return what a qualified name refers to in a loaded module, or None."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def is_redefinition(one: type, other: type) -> bool:
    """Return whether two classes have one name, which leads to a class, unlike a local one."""
    names = [cls.__qualname__.removesuffix(f" ({REDEFINED})") for cls in (one, other)]
    is_same_name = module_of(one) == module_of(other) and names[0] == names[1]
    return one is not other and is_same_name and is_a(find_by_name(module_of(one), names[0]), type)


def is_installed_module(name: object) -> bool:
    """Return whether a module is from an installed package or the standard library."""
    if not isinstance(name, str):
        return False
    root = name.partition(".")[0]
    if root in _CLOSED or root in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and is_installed_file(file)


_CLOSED: Final = frozenset({"builtins", "jax", "jaxlib", "numpy", "leafwise"})
