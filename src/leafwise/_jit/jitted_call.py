"""The call that a line of user code is making: its variables, and code that jits it."""

import ast
import builtins
import dis
import functools
import inspect
import itertools
import linecache
import re
import symtable
import types
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any, Final

import jax
import numpy as np

from leafwise._captures.places import defaults_of
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
from leafwise._objects.source.code import find_by_name, names_of
from leafwise._objects.source.names import chains_within, names_stored, value_of
from leafwise._objects.stand_ins import MISSING


def jit_once_fix(frame: types.FrameType | None) -> Fix:
    """Return the fix that compiles the call a frame is making once, with code if it is certain."""
    text, tree = ("", None) if frame is None else _call(frame)
    functions = [node.func for node in ast.walk(tree or ast.Pass()) if isinstance(node, ast.Call)]
    if is_jit_off() or _needs_values(frame) or not _VALUES.isdisjoint(map(name_in, functions)):
        return Fix()
    if frame is None or tree is None or not (arguments := _arguments(frame, tree)):
        watch = "no side effects, reads nothing that changes, and uses no array in `if` or `range`"
        return Fix(f"put this call into a function, and `jax.jit` that once, if it has {watch}")
    names = {id(value): name for name, value in (frame.f_globals | locals_of(frame)).items()}
    jit, before = "jax.jit", "import jax; "
    if id(jax) in names or id(jax.jit) in names:
        jit, before = names.get(id(jax.jit)) or f"{names[id(jax)]}.jit", ""
    jitted = _free_name(f"jitted_{name_in(tree.func) or 'call'}", frame)
    text = text if [*arguments] == [*arguments.values()] else ast.unparse(tree)
    code = f"{before}{jitted} = {jit}(lambda {', '.join(arguments)}: {text})"
    call = f"{jitted}({', '.join(arguments.values())})"
    how = once(is_in_module=frame.f_code.co_name == "<module>")
    words = f"`{code}` {how}, and `{call}` here, if it has no side effects"
    return Fix(words, Act.JIT_ONCE, (code, call))


def _free_name(name: str, frame: types.FrameType) -> str:
    """Return a name, with a number if the file has several calls like the one being made."""
    line, column, *_ = position_of(frame) or [0, 0]
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    call = re.compile(rf"\b(jitted_)?{name.removeprefix('jitted_')}\b(?=\(|\s*=)")
    before = "".join(lines[: line - 1]) + lines[line - 1].encode()[:column].decode()
    several = len(call.findall("".join(lines))) > 1
    return f"{name}_{len(call.findall(before)) + 1}" if several else name


def variable_given(frame: types.FrameType | None, function: Any, path: str) -> str:
    """Return the variable that the call of a frame passes as a parameter; "" for another value."""
    tree = None if frame is None else _call(frame)[1]
    parameters = inspect.unwrap(function).__code__.co_varnames
    name = re.split(r"\W", path)[0]
    if tree is None or name not in parameters:
        return ""
    values = [word.value for word in tree.keywords if word.arg == name]
    values += tree.args[parameters.index(name) :][:1]
    return values[0].id if values and isinstance(values[0], ast.Name) else ""


def _arguments(frame: types.FrameType, tree: ast.Call) -> dict[str, str]:
    """Return the arrays and floats in a call, by parameter; none if the code is not certain."""
    # It is if a function of JAX traces all functions in the call, so that they need no values, and
    # these only compute. A call of NumPy stays outside: ``jitted_scan(x, np.sort(y))``.
    variables, arguments = locals_of(frame), dict[str, str]()
    scope = vars(builtins) | frame.f_globals
    for at, node in enumerate(tree.args[:3]):  # of `_TRACING`, these are functions and operands
        if isinstance(node, ast.Call) and _package(_value(node.func, scope)) == "numpy":
            name = next((arg.id for arg in node.args if isinstance(arg, ast.Name)), "values")
            arguments[name], tree.args[at] = ast.unparse(node), ast.Name(name)
    names, file = _names(tree), frame.f_code.co_filename
    bound = _bindings("".join(linecache.getlines(file)))
    for name in names:
        if _is_dynamic((scope | variables).get(name)):
            arguments.setdefault(name, name)
    if frame.f_code.co_name != "<module>":  # code elsewhere does not see its variables
        scope = {name: value for name, value in scope.items() if name not in variables}
    parts = [part for node in ast.iter_child_nodes(tree) for part in ast.walk(node)]
    function, homes = _value(tree.func, scope), ("jax.lax", "jax.scipy.optimize")
    name = names_of(function)[1]  # `jax.tree.map` traces nothing
    is_certain = (
        frame.f_code.co_name != "<lambda>"
        and name in _TRACING
        and any(find_by_name(home, name) is function for home in homes)
        and all(names.count(name) == 1 for name, text in arguments.items() if name != text)
        and all(_is_traceable(part, scope, arguments) for part in parts)
        and all(
            _stays(name, scope.get(name, MISSING), file, bound) for name in {*names} - {*arguments}
        )
    )
    return arguments if is_certain else {}


def _is_traceable(node: ast.AST, scope: Mapping[str, Any], dynamic: Collection[str]) -> bool:
    """Return whether a node of a call takes tracers: ``x[0] * 2``, not ``x[mask]`` or ``if``."""
    if isinstance(node, ast.Call):
        value, name = _value(node.func, scope), name_in(node.func)
        is_method = value is MISSING and isinstance(node.func, ast.Attribute) and name in _METHODS
        # Traced so far with the values of the variables around it.
        is_own = isinstance(value, types.FunctionType) and free_names(node).isdisjoint(dynamic)
        return is_method or is_own or (_package(value) in _JAX and name not in _SIZING)
    if isinstance(node, ast.Subscript):
        return not any(isinstance(part, ast.Name) for part in ast.walk(node.slice))
    is_test = isinstance(node, _TESTS) or (isinstance(node, ast.Compare) and len(node.ops) > 1)
    return not is_test and (isinstance(node, _TRACEABLE) or not isinstance(node, ast.expr))


def _stays(
    name: str, value: Any, file: str, bound: Mapping[str, int], seen: tuple[Any, ...] = ()
) -> bool:
    """Return whether a name stays what it is, and only computes if it is a function."""
    if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in _JAX:
        return True
    is_builtin = vars(builtins).get(name, MISSING) is value
    if bound[name] != (not is_builtin) or f"{name}." in bound:
        return False
    if not isinstance(value, types.FunctionType) or value.__code__.co_filename != file:
        is_known = isinstance(value, jax.Array) or any(value is known for known in _COMPUTING)
        return is_known or _package(value) in _JAX or _is_plain(value)
    if value in seen or not _is_plain((*defaults_of(value).values(),)):
        return value in seen
    codes = [value.__code__]
    for code in codes:  # with the functions inside it
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    chains = {chain.name: chain._replace(steps=()) for chain in chains_within(codes[0])}
    reads = ((name, value_of(chain, value)) for name, chain in chains.items())
    is_pure = not any(map(names_stored, codes))
    return is_pure and all(_stays(*pair, file, bound, (*seen, value)) for pair in reads)


@functools.lru_cache(maxsize=16)
def _bindings(source: str) -> Mapping[str, int]:
    """Return how often a file binds each name, more than once in a loop; ``x.`` if it changes x."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with a magic
        return Counter()
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    bound = Counter[str]()
    for node in itertools.chain.from_iterable(map(ast.walk, (tree, *loops))):
        fields = vars(node)
        if isinstance(fields.get("ctx"), ast.Store | ast.Del):
            root = re.sub(r"\W.*", "", ast.unparse(node), flags=re.DOTALL)
            bound[root if isinstance(node, ast.Name) else f"{root}."] += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            bound.update(f"{name}." for name in node.names)
        elif not isinstance(node, ast.keyword):  # imports, functions, parameters, patterns
            names = filter(None, map(fields.get, ("asname", "name", "arg", "rest")))
            bound.update(str(name).partition(".")[0] for name in itertools.islice(names, 1))
    return bound


def _value(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    """Return the value of a name, or of a name in a module, without running code."""
    if isinstance(node, ast.Name):
        return scope.get(node.id, MISSING)
    module = _value(node.value, scope) if isinstance(node, ast.Attribute) else MISSING
    is_module = isinstance(module, types.ModuleType)
    return vars(module).get(getattr(node, "attr", ""), MISSING) if is_module else MISSING


def _package(value: Any) -> str:
    return names_of(value)[0].partition(".")[0]


_JAX: Final = ("jax", "jaxlib")
_TRACING: Final = frozenset(
    {"scan", "while_loop", "fori_loop", "cond", "switch", "map", "minimize"}
)
"""The functions of JAX that trace those they are given, all before their fourth argument."""
_TRACEABLE: Final = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Slice),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Lambda),
)
_TESTS: Final = (ast.Not, ast.In, ast.NotIn)
_METHODS: Final = frozenset({"astype", "reshape", "ravel", "sum", "mean", "max", "min", "dot"})
_SIZING: Final = frozenset({"arange", "nonzero", "repeat", "split", "unique"})
"""Functions of `jax.numpy` that need the value of an argument."""
_COMPUTING: Final = (len, zip, enumerate, range, tuple, list, dict, isinstance, abs, sum)


def name_in(function: ast.AST) -> str:
    """Return the last name of an expression: ``jit`` for ``jax.jit``; empty if it has none."""
    return getattr(function, "attr", getattr(function, "id", ""))


_VALUES: Final = frozenset({"float", "item", "tolist", "device_get", "tqdm", "trange"})
"""Names of functions that need the value of an array, which a tracer lacks; and progress bars."""


def _needs_values(user: types.FrameType | None) -> bool:
    """Return whether code between JAX and the user reads values, or sets attributes of `self`."""
    frame = inner_frame(inspect.currentframe())
    while frame is not None and frame is not user:
        if takes_values(frame.f_code):
            return True
        frame = inner_frame(frame.f_back)
    return False


@functools.lru_cache(maxsize=1024)
def takes_values(code: types.CodeType, *, built: bool = False) -> bool:
    """Return whether code reads values of arrays, or sets attributes of `self`, to be seen.

    The attributes of objects that are `built` in a `jit` are their own.
    """
    if built:
        return not _VALUES.isdisjoint(code.co_names)
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
