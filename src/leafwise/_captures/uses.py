"""What in the code of a traced function needs the value of a static, or runs only in the trace.

Both are read from the code alone: what it does not show is not promised, and None is returned.
"""

import ast
import inspect
import itertools
import re
import types
from operator import attrgetter
from typing import Any, Final, NamedTuple

from leafwise._captures.reads import reachable
from leafwise._objects.classes import is_a
from leafwise._objects.interrupts import or_default
from leafwise._objects.source.call_site import Site, defined_by
from leafwise._objects.source.names import Root, value_of


class Use(NamedTuple):
    """A piece of code, as messages name it: "an `if`", "`np.random.rand`"; and its line."""

    what: str
    site: Site


@or_default(None)  # the user's own code
def host_call(function: Any) -> Use | None:
    """Return a call in user code whose result a trace keeps: of NumPy's randomness, the clock."""
    uses: list[Use] = []
    for run in reachable(function):
        for chain in run.chains(run.code):
            steps = [*itertools.takewhile(lambda step: is_a(step, str), chain.steps)]
            spelled = ".".join(map(str, (chain.name, *steps)))
            if spelled.endswith("callback"):
                return None  # what it calls runs in every call
            if chain.root in (Root.GLOBAL, Root.CELL):
                start: Any = value_of(chain._replace(steps=()), run.function)
                home = getattr(start, "__module__", None) or type(start).__module__
                home = "" if is_a(start, types.ModuleType) else f"{home}."
                names = f"{home}{getattr(start, '__name__', '')}", *map(str, steps)
                if _HOST.fullmatch(".".join(names)):
                    uses.append(Use(f"`{spelled}`", Site(run.code.co_filename, chain.line, "")))
    return uses[0] if uses else None


_HOST: Final = re.compile(
    r"numpy\.random\.(.*\.)?[a-z]\w*|random\.[a-z]\w*|_?io\.open|os\.(environ.*|getenv|urandom)"
    r"|time\.(time|perf_counter|monotonic|process_time)(_ns)?|datetime\.\w+\.(now|today|utcnow)"
)


@or_default(None)  # a source that cannot be read
def value_use(function: Any, path: str, seen: list[Any] | None = None) -> Use | None:
    """Return what needs the value of a parameter, or of an attribute of one: "an `if`"."""
    # The value is followed into the functions that are called with it by name.
    function, seen = inspect.unwrap(function), [] if seen is None else seen
    code: types.CodeType = function.__code__
    if (function, path) in seen:
        return None
    seen.append((function, path))
    _, definition = defined_by(code, code.co_filename)
    nodes: list[Any] = [node for node in ast.walk(definition) if hasattr(node, "lineno")]
    nodes.sort(key=attrgetter("lineno", "col_offset"))
    held, kept = {path}, set[Any](ast.walk(definition.args))
    for node in nodes:
        is_stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if (is_stored or isinstance(node, ast.arg)) and node not in kept:  # `n = 3`, `lambda n: 0`
            bound = getattr(node, "arg", None) or ast.unparse(node)
            held -= {each for each in held if f"{each}.".startswith(f"{bound}.")}
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        part = getattr(node, "test", node.value if isinstance(node, ast.Assign) else None)
        parts = ast.iter_child_nodes(node) if part is None else [part]
        if not any(_holds(each, held) for each in parts):
            continue
        if what := f"`{name}`" if _OF_VALUES.fullmatch(name) else _NEEDING.get(type(node), ""):
            return Use(what, Site(code.co_filename, node.lineno, ""))
        if isinstance(node, ast.Assign | ast.AugAssign):  # `m = n + 1`, `n -= 1`
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            kept.update(targets)
            held.update(map(ast.unparse, targets))
            continue
        inner = inspect.unwrap(function.__globals__.get(name, len))
        if inspect.isfunction(inner) and isinstance(node, ast.Call):  # `helper(x, n)`
            given = zip(inner.__code__.co_varnames, node.args, strict=False)
            for name, value in (*given, *((str(word.arg), word.value) for word in node.keywords)):
                if _holds(value, held) and (use := value_use(inner, name, seen)):
                    return use
    return None


_NEEDING: Final[dict[type, str]] = {
    ast.If: "an `if`",
    ast.IfExp: "an `if`",
    ast.While: "a `while`",
    ast.Slice: "a slice",
}
_OF_VALUES: Final = re.compile(
    r"range|int|float|bool|min|max|(np|numpy|math)\.\w+|.*\.reshape"
    r"|(jnp|jax\.numpy)\.(zeros|ones|empty|arange|eye|identity)|jax\.random\.split"
)
"""What needs numbers, and raises for a tracer."""


def _holds(node: ast.AST, held: set[str]) -> bool:
    """Return whether an expression is computed from the values that are held."""
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node) in held
    is_identity = isinstance(getattr(node, "ops", [0])[0], ast.Is | ast.IsNot)  # `n is None`
    parts = ast.iter_child_nodes(node) if isinstance(node, _COMPUTED) and not is_identity else ()
    return any(_holds(part, held) for part in parts)


_COMPUTED: Final = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.keyword)
