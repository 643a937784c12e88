"""What a piece of code reads from outside itself, where, and whether the value counts.

The bytecode is followed with a stack of names in place of values: ``config.rate`` becomes one
read of two steps, and ``traces.append(x)`` does not read what is in the list. What is not
understood counts as read.
"""

import dis
import itertools
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from leafwise._objects.class_map import ClassMap
from leafwise._objects.code import Chain, parameters
from leafwise._objects.reads import Asked, Const, Given, Item, Read, Root, Step, Usage


class Ref(NamedTuple):
    """A value on the stack that was read from outside.

    Attributes:
        order: How many values were loaded before it.
        ended: Whether it is only a part of that, by a key that is not known.
        changed: Whether it is the outcome of ``+=``.
    """

    root: Root
    name: str
    steps: tuple[Step, ...]
    line: int
    order: int
    ended: bool = False
    changed: bool = False

    def then(self, step: Step | None) -> "Ref":
        """Return what is one step further on; None is a key that is not known."""
        if self.ended or step is None:
            return self._replace(ended=True)
        return self._replace(steps=(*self.steps, step))

    def is_place(self, other: object) -> bool:
        """Whether it is what another one reads."""
        mine = (self.root, self.name, self.steps)
        return isinstance(other, Ref) and mine == (other.root, other.name, other.steps)


def item(key: object, kind: type[Item] = Item) -> Item | None:
    """Return the step to what has a key, if that is known."""
    known = isinstance(key, Const) and isinstance(key.value, str | int)
    return kind(cast("Const", key).value) if known else None


def assigned_once(code: types.CodeType) -> set[str]:
    """Return the local variables that one instruction alone stores to."""
    stored: Counter[str] = Counter()
    for instruction in dis.get_instructions(code):
        names = instruction.argval
        if instruction.opname == "STORE_FAST_LOAD_FAST":
            names = names[0]
        if instruction.opname.startswith("STORE_FAST"):
            stored.update((names,) if isinstance(names, str) else names)
    return {name for name, times in stored.items() if times == 1} - {*parameters(code)}


def has_null(instruction: dis.Instruction) -> bool:
    if instruction.opname == "LOAD_GLOBAL":
        return bool((instruction.arg or 0) & 1)
    return bool(ATTR_HAS_BIT and (instruction.arg or 0) & 1)


ATTR_HAS_BIT: Final = sys.version_info >= (3, 12)
"""Whether a bit of LOAD_ATTR says that a method is loaded; before, LOAD_METHOD did."""

NULL_BEHIND: Final = sys.version_info >= (3, 13)
"""Whether the NULL of a call lies above the callable on the stack."""

JUMPS: Final = frozenset((*dis.hasjrel, *dis.hasjabs))
LOOPING: Final = frozenset({"FOR_ITER", "SEND"})
"""The jumps that keep their iterator on the stack until they are taken."""

NO_EFFECT: Final = frozenset(
    {
        *("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "PRECALL", "COPY_FREE_VARS"),
        *("MAKE_CELL", "NOT_TAKEN", "SETUP_ANNOTATIONS", "DELETE_FAST", "DELETE_NAME"),
        *("DELETE_GLOBAL", "DELETE_DEREF", "RETURN_GENERATOR"),
    }
)
ENDS: Final = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"}
)
POPS: Final = frozenset(
    {
        *("STORE_NAME", "RAISE_VARARGS", "LIST_APPEND", "SET_ADD"),
        *("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "MAP_ADD", "DELETE_ATTR"),
        *("DELETE_SUBSCR", "END_FOR", "END_SEND", "POP_EXCEPT", "POP_ITER", "STORE_SLICE"),
        *("IMPORT_STAR", "PRINT_EXPR", "RERAISE"),
    }
)
MUTATORS: Final = frozenset(
    {
        *("append", "extend", "insert", "remove", "clear", "sort", "reverse", "appendleft"),
        *("extendleft", "rotate", "popleft", "pop", "popitem", "update", "setdefault", "add"),
        *("discard", "subtract", "move_to_end"),
    }
)
"""The methods of builtin containers that change them."""


_READS: Final[ClassMap[tuple[Read, ...]]] = ClassMap()


def reads_of(code: types.CodeType) -> tuple[Read, ...]:
    """Return what code reads, inner functions included, in order; each use is one entry."""
    return _READS.setdefault(cast("Any", code), lambda: _find_reads(code))


class Chains(NamedTuple):
    """The names that code reads from outside itself, each with attributes.

    Attributes:
        of_globals: The globals, with the attributes that it reads of them.
        of_cells: The free variables of which it reads attributes, with these.
    """

    of_globals: tuple[Chain, ...]
    of_cells: tuple[Chain, ...]


_CHAINS: Final[ClassMap[Chains]] = ClassMap()


def chains_of(code: types.CodeType) -> Chains:
    """Return what `reads_of` does, each way as far as it leads through attributes."""
    return _CHAINS.setdefault(cast("Any", code), lambda: _find_chains(code))


def _find_chains(code: types.CodeType) -> Chains:
    found: dict[Root, dict[Chain, None]] = {Root.GLOBAL: {}, Root.FREE: {}}
    every = reads_of(code)
    passed = [each for read in every if read.given for each in read.given.reads()]
    for read in (*every, *passed):
        steps = read.steps[:-1] if read.usage is Usage.WRITTEN else read.steps
        names = itertools.takewhile(lambda step: isinstance(step, str), steps)
        found.get(read.root, {})[read.name, *cast("Chain", tuple(names))] = None
    cells = [chain for chain in found[Root.FREE] if len(chain) > 1]
    return Chains(tuple(found[Root.GLOBAL]), tuple(cells))


def _find_reads(code: types.CodeType) -> tuple[Read, ...]:
    follower = _BytecodeFollower(code)
    for instruction in dis.get_instructions(code):
        follower.step(instruction)
    follower.drop_all()
    return tuple(read for _, read in sorted(follower.found, key=lambda pair: pair[0]))


_Stack = list[Ref | Const | None]

_BY_NAME: Final = frozenset({"getattr", "hasattr"})


def _mutates(callee: Ref) -> bool:
    return not callee.ended and bool(callee.steps) and callee.steps[-1] in MUTATORS


class _BytecodeFollower:
    """Follows the instructions of one piece of code, in order."""

    def __init__(self, code: types.CodeType) -> None:
        self.found: list[tuple[int, Read]] = []
        self._code = code
        self._parameters = frozenset(parameters(code))
        self._once = assigned_once(code)
        self._locals: dict[str, Ref | Const] = {}
        self._stack: _Stack | None = []
        self._waiting: dict[int, _Stack] = {}
        self._line = code.co_firstlineno
        self._order = 0
        self._pending: Ref | None = None
        self._keywords: tuple[str, ...] = ()

    def step(self, instruction: dis.Instruction) -> None:
        """Follow one instruction."""
        line = instruction.positions.lineno if instruction.positions else None
        self._line = line or self._line
        arrived = self._waiting.pop(instruction.offset, None)
        if arrived is not None:
            returned = instruction.opname == "RETURN_VALUE"
            self._merge(arrived, Usage.RETURNED if returned else Usage.READ)
        self._use_pending(instruction)
        name = instruction.opname
        if name == "RETURN_VALUE":
            self.use(self.pop(), Usage.RETURNED)
        if name in NO_EFFECT:
            return
        if instruction.opcode in JUMPS:
            self._jump(instruction)
        elif (handle := _HANDLERS.get(name)) is not None:
            handle(self, instruction)
        else:
            self._other(instruction)
        if name in ENDS:
            self.drop_all()
            self._stack = None

    def push(self, *values: Ref | Const | None) -> None:
        self._stack = [*(self._stack or ()), *values]

    def pop(self) -> Ref | Const | None:
        return self._stack.pop() if self._stack else None

    def use(self, value: object, usage: Usage = Usage.READ, given: Given | None = None) -> None:
        """Add a read of a value."""
        if isinstance(value, Ref):
            read = Read(value.root, value.name, value.steps, value.line, usage, given)
            self.found.append((value.order, read))

    def _passed(self, value: Ref | Const | None) -> Read | Const | None:
        """Return what a call is given; what cannot be followed there counts as read."""
        if not isinstance(value, Ref):
            return value
        if value.ended or value.changed:
            self.use(value)
            return None
        usage = Usage.SPREAD if self._is_rest(value) else Usage.READ
        return Read(value.root, value.name, value.steps, value.line, usage)

    def _is_rest(self, value: Ref | Const | None) -> bool:
        """Return whether it is ``*args`` or ``**kwargs`` of this function."""
        names = parameters(self._code)[self._code.co_argcount + self._code.co_kwonlyargcount :]
        is_own = isinstance(value, Ref) and value.root is Root.PARAMETER and value.name in names
        return is_own and not cast("Ref", value).steps

    def merge(self, instruction: dis.Instruction) -> None:
        """Follow how ``**kwargs`` gets into a call."""
        value, stack, place = self.pop(), self._stack or [], instruction.arg or 1
        if self._is_rest(value) and place <= len(stack) and stack[-place] is None:
            stack[-place] = value
        else:
            self.use(value)

    def use_top(self, count: int) -> None:
        for value in reversed([self.pop() for _ in range(count)]):
            self.use(value)

    def drop_all(self) -> None:
        """Count as read what is left on the stack: it may be used where this does not follow."""
        self.use_top(len(self._stack or ()))

    def _merge(self, arrived: _Stack, usage: Usage) -> None:
        """Go on where a jump arrives: what differs between the two ways is used there."""
        if self._stack is None:
            self._stack = arrived
            return
        here = self._stack
        for place, (mine, its) in enumerate(zip(reversed(here), reversed(arrived), strict=False)):
            if mine != its:
                self.use(mine, usage)
                self.use(its, usage)
                here[-1 - place] = None

    def _jump(self, instruction: dis.Instruction) -> None:
        name = instruction.opname
        if name in LOOPING:
            effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=True)
            ended = [*(self._stack or ()), *[None] * effect]
            self._waiting[instruction.argval] = ended[:effect] if effect < 0 else ended
            self.push(None)  # what comes next
            return
        keeps, always = "OR_POP" in name, name.startswith("JUMP") and "_IF_" not in name
        if name.endswith("_NONE"):
            self.use(self.pop(), Usage.IS, Given((Const(None),)))
        elif not always and not keeps:
            self.use_top(1)
        if instruction.argval > instruction.offset:  # a jump back arrives where this was already
            self._waiting[instruction.argval] = list(self._stack or ())
        if keeps:
            self.use_top(1)
        elif always:
            self._stack = None

    def _other(self, instruction: dis.Instruction) -> None:
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if instruction.opname in POPS:
            self.use_top(-effect)
            return
        if effect > 0 and not instruction.opname.startswith("UNPACK"):
            self.push(*[None] * effect)
            return
        self.use_top(max(1 - effect, 1))
        self.push(*[None] * max(effect + 1, 1))

    def _use_pending(self, instruction: dis.Instruction) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        dropped = instruction.opname == "POP_TOP"
        self.use(pending, Usage.MUTATED if dropped else Usage.CALLED)

    def load(self, root: Root | None, name: str) -> None:
        self.push(None if root is None else self._ref(root, name))

    def _ref(self, root: Root, name: str, *steps: Step) -> Ref:
        self._order += 1
        return Ref(root, name, steps, self._line, self._order)

    def load_global(self, instruction: dis.Instruction) -> None:
        null = has_null(instruction)
        if null and not NULL_BEHIND:
            self.push(None)
        self.load(Root.GLOBAL, instruction.argval)
        if null and NULL_BEHIND:
            self.push(None)

    def load_deref(self, instruction: dis.Instruction) -> None:
        self.load(self._root_of_cell(instruction.argval), instruction.argval)

    def load_from_dict(self, instruction: dis.Instruction) -> None:
        self.pop()
        if instruction.opname.endswith("DEREF"):
            self.load_deref(instruction)
        else:
            self.load(Root.GLOBAL, instruction.argval)

    def _root_of_cell(self, name: str) -> Root | None:
        if name in self._code.co_freevars:
            return Root.FREE
        return Root.PARAMETER if name in self._parameters else None

    def load_fast(self, instruction: dis.Instruction) -> None:
        names = instruction.argval
        for name in (names,) if isinstance(names, str) else names:
            self.load_local(name)

    def load_local(self, name: str) -> None:
        # Since Python 3.13, what an inner function closes over is loaded by LOAD_FAST, too.
        if name in self._locals:
            self.push(self._locals[name])
            return
        self._once.discard(name)  # a loop may come back to this with what is stored later
        is_cell = name in self._code.co_freevars or name in self._code.co_cellvars
        self.load(Root.PARAMETER if name in self._parameters and not is_cell else None, name)

    def store_fast(self, instruction: dis.Instruction) -> None:
        names = instruction.argval
        for name in (names,) if isinstance(names, str) else names:
            self._store_local(name)

    def _store_local(self, name: str) -> None:
        value = self.pop()
        if name in self._once and value is not None and not getattr(value, "changed", False):
            self._locals[name] = value
        else:
            self.use(value)

    def store_and_load(self, instruction: dis.Instruction) -> None:
        self._store_local(instruction.argval[0])
        self.load_local(instruction.argval[1])

    def load_const(self, instruction: dis.Instruction) -> None:
        if isinstance(instruction.argval, types.CodeType):
            for read in reads_of(instruction.argval):
                outer, given = self._outside(read), read.given or Given()
                inner = [outer] if outer else map(self._outside, given.reads())
                code = instruction.argval
                within = [each._replace(within=code) for each in inner if each]
                self.found += [(self._order, each) for each in within]
        self.push(Const(instruction.argval))

    def make_function(self, instruction: dis.Instruction) -> None:
        made = self.pop()
        self.use_top(-dis.stack_effect(instruction.opcode, instruction.arg))
        self.push(made)

    def _outside(self, read: Read | Const | None) -> Any:
        """Return what an inner function reads as this one reads it; None for its own variables."""
        if not isinstance(read, Read):
            return read
        roots = {each: each for each in (Root.GLOBAL, Root.IMPORT)}
        root = self._root_of_cell(read.name) if read.root is Root.FREE else roots.get(read.root)
        given = read.given and Given(
            tuple(map(self._outside, read.given.args)),
            tuple((name, self._outside(each)) for name, each in read.given.kwargs),
        )
        return root and read._replace(root=root, given=given)

    def load_attr(self, instruction: dis.Instruction) -> None:
        value = self.pop()
        self.push(value.then(instruction.argval) if isinstance(value, Ref) else None)
        if instruction.opname == "LOAD_METHOD" or has_null(instruction):
            self.push(None)

    def load_super_attr(self, instruction: dis.Instruction) -> None:
        instance, _, _ = self.pop(), self.pop(), self.pop()
        if isinstance(instance, Ref) and not instance.steps:
            self.push(self._ref(Root.SUPER, instance.name, instruction.argval))
        else:
            self.use(instance)
            self.push(None)
        if instruction.arg is not None and instruction.arg & 1:
            self.push(None)

    def load_item(self, _instruction: dis.Instruction) -> None:
        key, value = self.pop(), self.pop()
        self.use(key)
        self.push(value.then(item(key)) if isinstance(value, Ref) else None)

    def _follow_query(self, count: int) -> bool:
        """Follow ``type(x)``, ``x.get(key)`` and ``getattr(x, name)``: places that can be read."""
        stack = self._stack or []
        callees = [each for each in stack[-count - 2 : -count] if isinstance(each, Ref)]
        if not (0 < count < len(stack) and len(callees) == 1):
            return False
        callee, first, *others = callees[0], *stack[-count:]
        builtin = callee.name if callee.root is Root.GLOBAL and not callee.steps else ""
        name = others[0].value if others and isinstance(others[0], Const) else None
        found: Ref | None = None
        if callee.steps[-1:] == ("get",) and not callee.ended and item(first):
            found = callee.then(item(first, Asked))
        elif builtin == "type" and count == 1 and isinstance(first, Ref):
            found = first.then("__class__")
        elif builtin in _BY_NAME and isinstance(first, Ref) and type(name) is str:
            found = first.then(name)
        else:
            return False
        for each in others:
            self.use(each)
        del stack[-count - 2 :]
        if builtin == "hasattr":
            self.use(found, Usage.READ if found.ended else Usage.PRESENT)
            found = None
        self.push(found)
        return True

    def contains(self, _instruction: dis.Instruction) -> None:
        container, key = self.pop(), self.pop()
        self.use(key)
        asked = item(key, Asked)
        if isinstance(container, Ref) and asked and not container.ended:
            self.use(container.then(asked), Usage.PRESENT)
        else:
            self.use(container)
        self.push(None)

    def compare_identity(self, _instruction: dis.Instruction) -> None:
        right, left = self.pop(), self.pop()
        if not isinstance(left, Ref):
            left, right = right, left
        is_made = isinstance(right, Const) and isinstance(right.value, types.CodeType)
        its = None if is_made else self._passed(right)
        if isinstance(left, Ref) and not left.ended and its is not None:
            self.use(left, Usage.IS, Given((its,)))
        else:
            self.use(left)
            self.use(right)
        self.push(None)

    def load_module(self, instruction: dis.Instruction) -> None:
        names, level = self.pop(), self.pop()
        name: str = instruction.argval
        if not (isinstance(names, Const) and names.value):  # `import a.b` binds `a`
            name = name.partition(".")[0]
        dots = level.value if isinstance(level, Const) and type(level.value) is int else 0
        self.push(self._ref(Root.IMPORT, "." * dots + name))

    def load_from_module(self, instruction: dis.Instruction) -> None:
        module = self._stack[-1] if self._stack else None
        self.push(module.then(instruction.argval) if isinstance(module, Ref) else None)

    def drop(self, _instruction: dis.Instruction) -> None:
        value = self.pop()
        if not (isinstance(value, Ref) and value.root is Root.IMPORT):
            self.use(value)

    def name_keywords(self, instruction: dis.Instruction) -> None:
        self._keywords = self._code.co_consts[instruction.arg or 0]

    def call(self, instruction: dis.Instruction) -> None:
        count = instruction.arg or 0
        if instruction.opname == "CALL" and not self._keywords and self._follow_query(count):
            return
        keywords, self._keywords = self._keywords, ()
        spread = instruction.opname == "CALL_FUNCTION_EX"
        if spread:  # which is followed where all that a wrapper was given is handed on
            count = -dis.stack_effect(instruction.opcode, instruction.arg) - 1
        elif instruction.opname == "CALL_KW":
            named = self.pop()
            keywords = named.value if isinstance(named, Const) else ()
        values = [self.pop() for _ in range(count)][::-1]
        spread = spread and not all(map(self._is_rest, values))
        callees = [self.pop(), self.pop()]
        found = [each for each in callees if isinstance(each, Ref)]
        is_super = not count and any(each.name == "super" for each in found)
        first = self._code.co_varnames[:1] if is_super else ()  # Python 3.11 has no other sign
        self.push(self._ref(Root.SUPER, first[0]) if first else None)
        given = None
        if len(found) == 1 and not (spread or found[0].ended or _mutates(found[0])):
            passed = [self._passed(each) for each in values]
            plain = count - len(keywords)
            given = Given(tuple(passed[:plain]), tuple(zip(keywords, passed[plain:], strict=True)))
        else:
            for each in values:
                self.use(each)
        for ref in found:
            if _mutates(ref):
                self._pending = ref
            else:
                self.use(ref, Usage.READ if ref.ended else Usage.CALLED, given)

    def binary(self, instruction: dis.Instruction) -> None:
        if instruction.argrepr == "[]":  # since Python 3.14
            self.load_item(instruction)
            return
        right, left = self.pop(), self.pop()
        self.use(right)
        if instruction.argrepr.endswith("=") and isinstance(left, Ref):
            self.push(left._replace(changed=True))
        else:
            self.use(left)
            self.push(None)

    def store_name(self, instruction: dis.Instruction) -> None:
        root = Root.GLOBAL
        if instruction.opname == "STORE_DEREF":
            root = self._root_of_cell(instruction.argval) or Root.PARAMETER
        self._store(self._ref(root, instruction.argval), note=False)

    def store_attr(self, instruction: dis.Instruction) -> None:
        owner = self.pop()
        self._store(owner.then(instruction.argval) if isinstance(owner, Ref) else None)

    def store_item(self, _instruction: dis.Instruction) -> None:
        key, owner = self.pop(), self.pop()
        self.use(key)
        self._store(owner.then(item(key)) if isinstance(owner, Ref) else None)

    def _store(self, place: Ref | None, *, note: bool = True) -> None:
        value = self.pop()
        adds = isinstance(value, Ref) and value.changed and value.is_place(place)
        if not adds:
            self.use(value)
        if place is not None and (note or adds):
            self.use(place, Usage.WRITTEN)

    def copy(self, instruction: dis.Instruction) -> None:
        stack, place = self._stack or [], instruction.arg or 1
        self.push(stack[-place] if place <= len(stack) else None)

    def swap(self, instruction: dis.Instruction) -> None:
        place, stack = instruction.arg or 1, self._stack or []
        self._stack = stack = [*[None] * (place - len(stack)), *stack]
        stack[-1], stack[-place] = stack[-place], stack[-1]


_HANDLERS: Final[dict[str, Callable[[_BytecodeFollower, dis.Instruction], None]]] = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), _BytecodeFollower.load_global),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF"), _BytecodeFollower.load_deref),
    **dict.fromkeys(
        ("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"), _BytecodeFollower.load_from_dict
    ),
    "LOAD_CLOSURE": lambda follower, _: follower.push(None),
    **dict.fromkeys(
        (name for name in dis.opmap if name.startswith("LOAD_FAST")), _BytecodeFollower.load_fast
    ),
    **dict.fromkeys(("STORE_FAST", "STORE_FAST_STORE_FAST"), _BytecodeFollower.store_fast),
    "STORE_FAST_LOAD_FAST": _BytecodeFollower.store_and_load,
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT"), _BytecodeFollower.load_const),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _BytecodeFollower.load_attr),
    **dict.fromkeys(("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"), _BytecodeFollower.make_function),
    "LOAD_SUPER_ATTR": _BytecodeFollower.load_super_attr,
    "BINARY_SUBSCR": _BytecodeFollower.load_item,
    "CONTAINS_OP": _BytecodeFollower.contains,
    "IS_OP": _BytecodeFollower.compare_identity,
    "IMPORT_NAME": _BytecodeFollower.load_module,
    "IMPORT_FROM": _BytecodeFollower.load_from_module,
    "POP_TOP": _BytecodeFollower.drop,
    "KW_NAMES": _BytecodeFollower.name_keywords,
    "DICT_MERGE": _BytecodeFollower.merge,
    "BINARY_OP": _BytecodeFollower.binary,
    **dict.fromkeys(("CALL", "CALL_KW", "CALL_FUNCTION_EX"), _BytecodeFollower.call),
    **dict.fromkeys(("STORE_GLOBAL", "STORE_DEREF"), _BytecodeFollower.store_name),
    "STORE_ATTR": _BytecodeFollower.store_attr,
    "STORE_SUBSCR": _BytecodeFollower.store_item,
    "PUSH_NULL": lambda follower, _: follower.push(None),
    "COPY": _BytecodeFollower.copy,
    "SWAP": _BytecodeFollower.swap,
}
