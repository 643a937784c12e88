"""What is known of Python's bytecode, version by version, to follow what code reads."""

import dis
import sys
import types
from collections import Counter
from typing import Final


def parameters(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of all parameters, ``*args`` and ``**kwargs`` at the end."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    return code.co_varnames[:count]


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


_VARARGS, _VARKEYWORDS = 0x04, 0x08


def has_null(instruction: dis.Instruction) -> bool:
    if instruction.opname == "LOAD_GLOBAL":
        return bool((instruction.arg or 0) & 1)
    return bool(ATTR_HAS_BIT and (instruction.arg or 0) & 1)


ATTR_HAS_BIT: Final = sys.version_info >= (3, 12)  # LOAD_METHOD before
NULL_BEHIND: Final = sys.version_info >= (3, 13)
JUMPS: Final = frozenset((*dis.hasjrel, *dis.hasjabs))
HOLDING: Final = frozenset({"FOR_ITER", "SEND"})
STILL: Final = frozenset(
    {
        *("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "PRECALL", "KW_NAMES", "COPY_FREE_VARS"),
        *("MAKE_CELL", "NOT_TAKEN", "SETUP_ANNOTATIONS", "DELETE_FAST", "DELETE_NAME"),
        *("DELETE_GLOBAL", "DELETE_DEREF", "RETURN_GENERATOR"),
    }
)
ENDS: Final = frozenset(
    {
        *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"),
    }
)
POPS: Final = frozenset(
    {
        *(
            "POP_TOP",
            "STORE_NAME",
            "RETURN_VALUE",
            "RAISE_VARARGS",
            "LIST_APPEND",
            "SET_ADD",
        ),
        *("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "MAP_ADD", "DELETE_ATTR"),
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


def code_of(function: object) -> types.CodeType | None:
    """Return the code of a function; None if it is no Python function."""
    return function.__code__ if isinstance(function, types.FunctionType) else None


def first_parameter(function: object) -> str:
    """Return the name that a method has for its object; ``self`` where it does not say."""
    code = getattr(function, "__code__", None)
    named = isinstance(code, types.CodeType) and code.co_argcount > 0
    return code.co_varnames[0] if named and code is not None else "self"
