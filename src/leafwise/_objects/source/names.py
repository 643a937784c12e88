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
from collections.abc import Iterator
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
    instructions = [step for step in dis.get_instructions(code) if step.opname not in _SILENT]
    written, lines = _only_written(instructions, code.co_freevars), dict[Chain, int]()
    for chain, place, is_whole, end in _readings(code, instructions):
        is_target = end.opname in _TARGETS and end.opname.endswith("_ATTR") is is_whole
        if not is_target and place not in written:
            lines.setdefault(chain._replace(line=0), chain.line)
    return tuple(chain._replace(line=line) for chain, line in lines.items())


def all_chains(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains of a code object and of the functions inside it, which may run."""
    chains, taken = list(chains_of(code)), parameters(code)
    for inner in code.co_consts:
        for chain in all_chains(inner) if isinstance(inner, types.CodeType) else ():
            is_cell = chain.root is Root.CELL and chain.name in code.co_cellvars
            if is_cell and chain.name in taken:
                chains.append(chain._replace(root=Root.LOCAL))
            elif chain.root is not Root.LOCAL and not is_cell:
                chains.append(chain)
    return tuple(dict.fromkeys(chains))


def chains_within(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains of a code object and of the functions inside it, without parameters."""
    return tuple(chain for chain in all_chains(code) if chain.root is not Root.LOCAL)


def names_stored(code: types.CodeType) -> set[str]:
    """Return the attributes and outer variables that code assigns, and ``[`` if also items."""
    stored = {"["} if MUTATORS.intersection(code.co_names) else set[str]()
    for step in dis.get_instructions(code):
        if step.opname.startswith(("STORE_", "DELETE_")) and "FAST" not in step.opname:
            stored.add(step.argval if isinstance(step.argval, str) else "[")
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


def _readings(
    code: types.CodeType, instructions: list[dis.Instruction]
) -> Iterator[tuple[Chain, _Place | None, bool, dis.Instruction]]:
    """Yield each chain, where it begins, whether all of it is read, and what ends it."""
    # ``LOAD_GLOBAL settings``, ``LOAD_ATTR clip``, ``LOAD_CONST 'max'`` and ``BINARY_SUBSCR`` are
    # one chain, ``settings.clip['max']``; what stores or uses the value ends it.
    names: dict[str, Chain | None]
    names = {name: Chain(Root.LOCAL, name, (), 0) for name in parameters(code)}
    stored = Counter(name for step in instructions for name in _names_stored(step))
    # The variables that only one instruction stores to, and no caller.
    once = {name for name, times in stored.items() if times == 1} - names.keys()
    once -= {*code.co_freevars, *code.co_cellvars}
    top: Chain | None = None
    outer: Chain | None = None  # which ended where the current one began
    module: Chain | None = None
    key: Item | None = None
    line, place = code.co_firstlineno, None
    for index, step in enumerate(instructions):
        line = (step.positions and step.positions.lineno) or line
        if step.opname == "IMPORT_NAME":
            level, members = (before.argval for before in instructions[index - 2 : index])
            name = "." * level + (step.argval if members else step.argval.partition(".")[0])
            top = module = Chain(Root.IMPORT, name, (), line)
            continue
        top = top or (module if step.opname == "IMPORT_FROM" else None)
        longer = top and _extended(top, key, step, outer)
        if top and longer:
            if step.opname == "CALL":  # `type(self)` reads all of `self`
                yield top, None, True, step
                outer = None
            top, key = longer
            place = place or (None if key else _place_of(step))
            continue
        stores = _names_stored(step)
        names |= dict.fromkeys(stores)
        if top and key is None and once.intersection(stores[:1]):
            names[stores[0]] = top
        elif top:
            yield top, place, key is None, step
        outer, top, key, place = top, None, None, _place_of(step)
        for number, (name, chain) in enumerate(_begun(step, code, names)):
            once -= {name} - names.keys()  # in a loop, this may read what is stored later
            if number and top:
                yield top, place, True, step
            place = None if number else place  # that of the second of two names is unknown
            top = chain and chain._replace(line=line)


def _begun(
    step: dis.Instruction, code: types.CodeType, names: dict[str, Chain | None]
) -> list[tuple[str, Chain | None]]:
    """Return the names that an instruction loads, each with the chain that it begins."""
    op, loaded = step.opname, step.argval
    if op in _GLOBALS:
        return [(loaded, Chain(Root.GLOBAL, loaded, (), 0))]
    if op in _CELLS:
        is_free = loaded in code.co_freevars
        return [(loaded, Chain(Root.CELL, loaded, (), 0) if is_free else names.get(loaded))]
    if op == "STORE_FAST_LOAD_FAST":
        return [(loaded[1], names.get(loaded[1]))]
    if not op.startswith("LOAD_FAST") or op == "LOAD_FAST_AND_CLEAR":
        return []
    several = (loaded,) if isinstance(loaded, str) else loaded
    cells = {*code.co_freevars, *code.co_cellvars}  # a cell itself, for an inner function
    return [(name, None if name in cells else names.get(name)) for name in several]


def _extended(
    top: Chain, key: Item | None, step: dis.Instruction, outer: Chain | None
) -> tuple[Chain, Item | None] | None:
    """Return a chain, and a constant after it, with one more instruction; None if it ends."""
    op, member = step.opname, step.argval
    if op in ("SWAP", "POP_TOP"):  # `import a.b.c as m` drops `a` and `a.b`
        return (top, key) if top.root is Root.IMPORT else None
    if key is not None:
        if op != "BINARY_SUBSCR" and step.argrepr != "[]":
            return None
        member = key
    elif op == "CALL" and step.arg == 1 and outer is not None and outer[:3] == _TYPE:
        member = "__class__"
    elif op in _CONSTANTS and type(member) in (str, int):
        return top, Item(member)
    elif op not in _ATTRIBUTES:
        return None
    return top._replace(steps=(*top.steps, member)), None


def _only_written(instructions: list[dis.Instruction], free: tuple[str, ...]) -> set[_Place | None]:
    """Return the places of values that are only changed, with no part of them used."""
    targets: set[_Place | None] = set()
    mutating: set[_Place | None] = set()
    dropped: dict[_Place | None, bool] = {}  # whether the first call at each place is dropped
    for step, after in itertools.pairwise(instructions):
        place = _place_of(step)
        if step.opname.startswith("CALL"):
            dropped.setdefault(place, after.opname == "POP_TOP")
        elif step.opname in _ATTRIBUTES and step.argval in MUTATORS:
            mutating.add(place)
        elif step.opname in _TARGETS or (
            step.argrepr.endswith("=")
            and step.opname == "BINARY_OP"
            and (after.opname in ("STORE_GLOBAL", "STORE_NAME") or after.argval in free)
        ):
            targets.add(place)
    targets -= dropped.keys()
    return (targets | {place for place in mutating if dropped.get(place)}) - {None}


def _names_stored(step: dis.Instruction) -> tuple[str, ...]:
    """Return the local variables that an instruction stores to, the stack's top value first."""
    if step.opname == "STORE_FAST_LOAD_FAST":
        return (step.argval[0],)
    if step.opname.startswith("STORE_FAST") or step.opname == "STORE_DEREF":
        return (step.argval,) if isinstance(step.argval, str) else step.argval
    return ()


def _place_of(step: dis.Instruction) -> _Place | None:
    where = step.positions
    if where is None or where.col_offset is None:
        return None
    return where.lineno, where.col_offset
