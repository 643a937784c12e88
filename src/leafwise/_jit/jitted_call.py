"""The call that a line of user code is making: its variables, and code that jits it."""

import ast
import builtins
import dis
import functools
import inspect
import linecache
import symtable
import types
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import jax
import numpy as np

from leafwise._compare.fixes import once
from leafwise._findings.reasons import Act, Fix
from leafwise._findings.records import shortened
from leafwise._jax.stack import is_jit_off
from leafwise._objects.source.call_site import (
    inner_frame,
    is_users_file,
    locals_of,
    position_of,
    user_frame,
)


def jit_once_fix(frame: types.FrameType | None) -> Fix:
    """Return the fix that compiles the call a frame is making once, with code if possible."""
    text, tree = ("", None) if frame is None else _call(frame)
    functions = [node.func for node in ast.walk(tree or ast.Pass()) if isinstance(node, ast.Call)]
    if is_jit_off() or _needs_values(frame) or not _VALUES.isdisjoint(map(_name, functions)):
        return Fix()
    if frame is None or tree is None or not (parameters := ", ".join(_arguments(frame, tree))):
        how = "if it has no side effects"
        return Fix(f"put this call into a function, and `jax.jit` that once, {how}")
    names = {id(value): name for name, value in (frame.f_globals | locals_of(frame)).items()}
    jit, before = "jax.jit", "import jax; "
    if id(jax) in names or id(jax.jit) in names:
        jit, before = names.get(id(jax.jit)) or f"{names[id(jax)]}.jit", ""
    jitted = f"jitted_{_name(tree.func) or 'call'}"
    code, call = f"{before}{jitted} = {jit}(lambda {parameters}: {text})", f"{jitted}({parameters})"
    how = once(is_in_module=frame.f_code.co_name == "<module>")
    words = f"`{code}` {how}, and `{call}` here, if it has no side effects"
    return Fix(words, Act.JIT_ONCE, (code, call))


def _arguments(frame: types.FrameType, tree: ast.Call) -> list[str]:
    """Return the arrays and floats in a call, if code elsewhere sees all other names in it."""
    scope = frame.f_globals | locals_of(frame)
    arguments: list[str] = []
    for name in dict.fromkeys(_names(tree)):
        value = scope.get(name, vars(builtins).get(name))
        if _is_dynamic(value):
            arguments.append(name)
        elif not isinstance(value, types.ModuleType):
            is_local = name not in frame.f_globals and not hasattr(builtins, name)
            is_own = getattr(value, "__module__", None) == frame.f_globals.get("__name__")
            is_hidden = is_local and (is_own or not hasattr(value, "__qualname__"))
            if is_hidden or not callable(value):
                return []  # it may change
    return [] if frame.f_code.co_name == "<lambda>" else arguments


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


_VALUES: Final = frozenset({"float", "item", "tolist", "device_get", "tqdm", "trange"})
"""Names of functions that need the value of an array, which a tracer lacks; and progress bars."""


def _needs_values(user: types.FrameType | None) -> bool:
    """Return whether code between JAX and the user reads values, or sets attributes of `self`."""
    frame = inner_frame(inspect.currentframe())
    while frame is not None and frame is not user:
        if _takes_values(frame.f_code):
            return True
        frame = inner_frame(frame.f_back)
    return False


@functools.lru_cache(maxsize=1024)
def _takes_values(code: types.CodeType) -> bool:
    is_range = "range" in code.co_names and not is_users_file(code.co_filename)
    if is_range or not _VALUES.isdisjoint(code.co_names):  # of a package, perhaps of an array
        return True
    pairs = pairwise(dis.get_instructions(code))
    stored = [one.argrepr.split(", ")[-1] for one, other in pairs if other.opname == "STORE_ATTR"]
    return code.co_name != "__init__" and code.co_varnames[:1] in [(name,) for name in stored]


def given_in(frame: types.FrameType | None) -> Mapping[str, Any]:
    """Return the plain values, and the shapes, of the variables in a call in user code, by name."""
    if frame is None or (tree := _call(frame)[1]) is None:
        return {}
    scope = frame.f_globals | locals_of(frame)
    values = {name: scope[name] for name in _names(tree) if name in scope}
    shapes = {name: getattr(value, "shape", value) for name, value in values.items()}
    return {name: value for name, value in shapes.items() if _is_plain(value)}


def made_at(value: Any, frame: types.FrameType | None) -> str:
    """Return the line where a variable got a value from a call: ``train.py:71``, or ""."""
    while (frame := user_frame(frame)) is not None:
        scope = frame.f_globals | locals_of(frame)
        names = {name for name, item in scope.items() if item is value}
        for call, store in pairwise(dis.get_instructions(frame.f_code)):
            stored = store.argval if isinstance(store.argval, tuple) else (store.argval,)
            is_made = "CALL" in call.opname and store.opname.startswith("STORE_")
            if is_made and stored[0] in names and store.positions is not None:
                return shortened(f"{frame.f_code.co_filename}:{store.positions.lineno}")
        frame = frame.f_back
    return ""


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _call(frame: types.FrameType) -> tuple[str, ast.Call | None]:
    """Return the source of the call that a frame is making, and its AST, None if not a call."""
    position = position_of(frame)
    if position is None:
        return "", None
    start, column, end, end_column = position
    file, names = frame.f_code.co_filename, frame.f_globals
    lines = [linecache.getline(file, line, names).encode() for line in range(start, end + 1)]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    text = b"".join(lines).decode(errors="replace")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text, None
    text = ast.unparse(tree) if "\n" in text else text
    return text, tree if isinstance(tree, ast.Call) else None


def _names(tree: ast.expr) -> list[str]:
    names = free_names(ast.parse(f"lambda: {ast.unparse(tree)}"))  # with its comprehensions
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names]


def free_names(node: ast.AST) -> set[str]:
    """Return the names that code reads or binds, except the variables of functions in it."""
    names: set[str] = set()
    todo = [symtable.symtable(ast.unparse(node), "<leafwise>", "exec")]
    for table in todo:
        is_function = table.get_type() == "function"
        symbols = (name for name in table.get_symbols() if name.is_global() or not is_function)
        names.update(name.get_name() for name in symbols)
        todo += table.get_children()
    return names


def _is_dynamic(value: Any) -> bool:
    """Return whether a value consists of arrays, floats and complex numbers, for JAX to trace."""
    leaves = jax.tree.leaves(value)
    kinds = (float, complex, jax.Array, np.ndarray, np.generic)
    return bool(leaves) and all(isinstance(leaf, kinds) for leaf in leaves)
