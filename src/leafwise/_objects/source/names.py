"""The chains by which code reads values outside it: ``config.rate``, ``self.w['a']``.

The instructions are scanned once, in order, without a stack. A chain is a name and the attributes
and items directly after it; anything else ends it, and the value there counts as a whole. Calls are
not followed.
"""

import builtins
import dis
import inspect
import itertools
import sys
import types
from collections import Counter
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._objects.classes import is_a, module_of, per_class
from leafwise._objects.source.code import contents, is_installed_module, parameters
from leafwise._objects.stand_ins import MISSING


class Root(Enum):
    """Where a name is looked up."""

    GLOBAL = "global"
    CELL = "cell"
    LOCAL = "local"  # a parameter
    IMPORT = "import"  # a module that the code imports: `.settings` is in its own package


class Item(NamedTuple):
    """The step in ``config['rate']``; that in ``config.rate`` is a `str`."""

    key: str | int


class Chain(NamedTuple):
    """The names by which code reads one value."""

    root: Root
    name: str
    steps: tuple[str | Item, ...]
    line: int


@per_class
def chains_of(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains of a code object, each once, except those that it only writes to."""
    return _Scan(code).chains()


def all_chains(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains of a code object and of the functions inside it, which may run."""
    found, given = list(chains_of(code)), parameters(code)
    for inner in code.co_consts:
        for each in all_chains(inner) if isinstance(inner, types.CodeType) else ():
            is_cell = each.root is Root.CELL and each.name in code.co_cellvars
            if is_cell and each.name in given:
                found.append(each._replace(root=Root.LOCAL))
            elif each.root is not Root.LOCAL and not is_cell:
                found.append(each)
    return tuple(dict.fromkeys(found))


def chains_within(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains of a code object and of the functions inside it, without parameters."""
    return tuple(each for each in all_chains(code) if each.root is not Root.LOCAL)


def names_stored(code: types.CodeType) -> set[str]:
    """Return the attributes and outer variables that code assigns, and ``[`` if also items."""
    stored = {"["} if MUTATORS.intersection(code.co_names) else set[str]()
    for each in dis.get_instructions(code):
        if each.opname.startswith(("STORE_", "DELETE_")) and "FAST" not in each.opname:
            stored.add(each.argval if isinstance(each.argval, str) else "[")
    return stored


def value_of(chain: Chain, function: types.FunctionType) -> Any:
    """Return the value of a chain, followed through the user's modules and classes only."""
    if chain.root is Root.CELL:
        place = function.__code__.co_freevars.index(chain.name)
        value = contents((function.__closure__ or ())[place])
    elif chain.root is Root.IMPORT:
        name = absolute(chain.name, function.__globals__)
        value = MISSING if is_installed_module(name) else sys.modules.get(name, MISSING)
    else:
        value = _named(function.__globals__, chain.name, vars(builtins).get(chain.name, MISSING))
    for step in chain.steps:
        if isinstance(step, Item):
            break
        if is_a(value, types.ModuleType) and not is_installed_module(value.__name__):
            value = _named(vars(value), step)
        elif is_a(value, type) and not is_installed_module(module_of(value)):
            member = inspect.getattr_static(value, step, MISSING)
            if hasattr(type(member), "__get__"):
                break
            value = member
        else:
            break
    return value


def _named(names: dict[str, Any], name: str, default: Any = MISSING) -> Any:
    """Return the value of a global name; a lazy import is resolved, as when code reads it."""
    value = names.get(name, default)
    return value.resolve() if is_a(value, LAZY_IMPORT) else value


LAZY_IMPORT: Final[Any] = getattr(types, "LazyImportType", ())
"""The type of a lazy import that has not run yet, since Python 3.15."""


def absolute(name: str, names: dict[str, Any]) -> str:
    """Return the absolute name of an imported module, which may be relative: ``..settings``."""
    path = name.lstrip(".")
    dots = len(name) - len(path)
    if not dots:
        return name
    package = (names.get("__package__") or "").rsplit(".", dots - 1)[0]
    return f"{package}.{path}" if path else package


MUTATORS: Final = frozenset(
    {
        *("append", "extend", "insert", "remove", "clear", "sort", "reverse", "appendleft"),
        *("extendleft", "rotate", "popleft", "pop", "popitem", "update", "setdefault", "add"),
        *("discard", "subtract", "move_to_end", "write"),
    }
)
"""The methods of containers and files that change them."""

_SILENT: Final = ("CACHE", "EXTENDED_ARG", "PUSH_NULL", "PRECALL", "NOP", "NOT_TAKEN")
_GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CELLS: Final = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_TYPE: Final = (Root.GLOBAL, "type", ())
_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT")
_TARGETS: Final = ("STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")

_Place: TypeAlias = tuple[int | None, int]
"""Line and column. All instructions that act on ``a``, ``a.b``, ``a.b[i]`` begin at the ``a``."""


class _Scan:
    """One scan, with the current chain and a constant after it, which may be a key."""

    def __init__(self, code: types.CodeType) -> None:
        instructions = dis.get_instructions(code)
        self._instructions = [step for step in instructions if step.opname not in _SILENT]
        self._found: dict[Chain, int] = {}
        self._free = frozenset(code.co_freevars)
        self._cells = self._free | {*code.co_cellvars}
        self._names = {name: Chain(Root.LOCAL, name, (), 0) for name in parameters(code)}
        stored = Counter(name for step in self._instructions for name in _names_stored(step))
        once = {name for name, times in stored.items() if times == 1}
        # The variables that only one instruction stores to, and no caller.
        self._once = once - self._names.keys() - self._cells
        self._written = self._only_written()
        self._line = code.co_firstlineno
        self._place: _Place | None = None
        self._top: Chain | None = None
        self._outer: Chain | None = None  # which ended where the current one began
        self._key: Item | None = None
        self._module: Chain | None = None

    def chains(self) -> tuple[Chain, ...]:
        for index, each in enumerate(self._instructions):
            self._line = (each.positions and each.positions.lineno) or self._line
            if each.opname == "IMPORT_NAME":
                level, names = (before.argval for before in self._instructions[index - 2 : index])
                name = "." * level + (each.argval if names else each.argval.partition(".")[0])
                self._top = self._module = Chain(Root.IMPORT, name, (), self._line)
            elif not self._go_on(each):
                self._outer = self._top
                self._end(each)
                self._begin(each)
        return tuple(chain._replace(line=line) for chain, line in self._found.items())

    def _go_on(self, each: dis.Instruction) -> bool:
        """Extend the current chain by an instruction, and return whether that was possible."""
        top, op, step = self._top, each.opname, each.argval
        if op == "IMPORT_FROM":
            top = top or self._module
        if top is None:
            return False
        if op in ("SWAP", "POP_TOP"):  # `import a.b.c as m` drops `a` and `a.b`
            return top.root is Root.IMPORT
        is_type = self._outer is not None and self._outer[:3] == _TYPE
        if op == "CALL" and each.arg == 1 and is_type and self._key is None:  # type(self)
            self._found.setdefault(top._replace(line=0), top.line)
            self._outer = None
            op, step = "LOAD_ATTR", "__class__"
        if op in _CONSTANTS and self._key is None and type(step) in (str, int):
            self._key = Item(step)
            return True
        if self._key is not None:
            if op != "BINARY_SUBSCR" and each.argrepr != "[]":
                return False
            step, self._key = self._key, None
        elif op not in _ATTRIBUTES:
            return False
        self._top = top._replace(steps=(*top.steps, step))
        self._place = self._place or _place_of(each)
        return True

    def _end(self, each: dis.Instruction) -> None:
        """Add the current chain, unless an instruction names it or only writes to it."""
        top, is_whole = self._top, self._key is None
        self._top = self._key = None
        is_target = each.opname in _TARGETS and each.opname.endswith("_ATTR") is is_whole
        stores = _names_stored(each)
        for name in stores:
            self._names.pop(name, None)
        if top and is_whole and self._once.intersection(stores[:1]):
            self._names[stores[0]] = top
        elif top and not is_target and self._place not in self._written:
            self._found.setdefault(top._replace(line=0), top.line)

    def _begin(self, each: dis.Instruction) -> None:
        op, name, self._place = each.opname, each.argval, _place_of(each)
        if op in _GLOBALS:
            self._top = Chain(Root.GLOBAL, name, (), self._line)
        elif op in _CELLS and name in self._free:
            self._top = Chain(Root.CELL, name, (), self._line)
        elif op in _CELLS:
            self._load(name)
        elif op == "STORE_FAST_LOAD_FAST":
            self._load(name[1])
        elif op.startswith("LOAD_FAST") and op != "LOAD_FAST_AND_CLEAR":
            for place, each_name in enumerate((name,) if isinstance(name, str) else name):
                if place:  # the second of two names, whose place is unknown
                    self._end(each)
                    self._place = None
                if each_name not in self._cells:  # a cell itself, for an inner function
                    self._load(each_name)

    def _load(self, name: str) -> None:
        found = self._names.get(name)
        self._top = found and found._replace(line=self._line)
        if found is None:
            self._once.discard(name)  # in a loop, this may read what is stored later

    def _only_written(self) -> set[_Place | None]:
        """Return the places of values that are only changed, with no part of them used."""
        targets: set[_Place | None] = set()
        mutating: set[_Place | None] = set()
        dropped: dict[_Place | None, bool] = {}  # whether the first call at each place is dropped
        for step, after in itertools.pairwise(self._instructions):
            place = _place_of(step)
            if step.opname.startswith("CALL"):
                dropped.setdefault(place, after.opname == "POP_TOP")
            elif step.opname in _ATTRIBUTES and step.argval in MUTATORS:
                mutating.add(place)
            elif step.opname in _TARGETS or (
                step.argrepr.endswith("=")
                and step.opname == "BINARY_OP"
                and (after.opname in ("STORE_GLOBAL", "STORE_NAME") or after.argval in self._free)
            ):
                targets.add(place)
        targets -= dropped.keys()
        return (targets | {place for place in mutating if dropped.get(place)}) - {None}


def _names_stored(each: dis.Instruction) -> tuple[str, ...]:
    """Return the local variables that an instruction stores to, the stack's top value first."""
    if each.opname == "STORE_FAST_LOAD_FAST":
        return (each.argval[0],)
    if each.opname.startswith("STORE_FAST") or each.opname == "STORE_DEREF":
        return (each.argval,) if isinstance(each.argval, str) else each.argval
    return ()


def _place_of(each: dis.Instruction) -> _Place | None:
    where = each.positions
    if where is None or where.col_offset is None:
        return None
    return where.lineno, where.col_offset
