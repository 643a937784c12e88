"""The edits that follow the fix of a finding, where its call is known exactly.

Each kind of edit is a class, and none of them guesses: where a name is bound twice, or taken, there
is no edit. Whether an edit helps is then tried.
"""

import ast
import re
import symtable
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._display.findings import Finding, Made, acted
from leafwise._display.shape import ReasonRecord
from leafwise.cli.patch import Code, Edit, code_of

_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Place(NamedTuple):
    """A finding, in the code of its line."""

    finding: Finding
    code: Code

    def reasons(self) -> Iterator[tuple[Made, ast.Call, ReasonRecord]]:
        """Yield each reason that JAX acted upon, with its program and the call of that."""
        for program in self.finding.programs:
            call = self.call(program)
            if call is not None:
                for reason in acted(program.explanation):
                    yield program, call, reason

    def call(self, program: Made) -> ast.Call | None:
        """Return the call that a program was made for; none in an f-string."""
        position = program.first.get("call")
        for each in self.code.nodes:
            if isinstance(each, ast.Call) and position == [
                *(each.lineno, each.col_offset, each.end_lineno, each.end_col_offset)
            ]:
                around = self.code.up(each)
                return None if any(isinstance(one, ast.JoinedStr) for one in around) else each
        return None

    def argument(self, program: Made, call: ast.Call, name: str) -> ast.expr | None:
        """Return what a call gives for a parameter of the program's function."""
        for each in call.keywords:
            if each.arg == name:
                return each.value
        file, _, line = program.first.get("defined", "").rpartition(":")
        code = code_of(file) if file else None
        for node in code.nodes if code is not None else ():
            first: Any = next(iter(getattr(node, "decorator_list", ())), node)
            if isinstance(node, _FUNCTIONS) and str(first.lineno) == line:
                names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                at = names.index(name) if name in names else len(call.args)
                at -= names[:1] == ["self"]
                if not any(isinstance(each, ast.Starred) for each in call.args[: at + 1]):
                    return call.args[at] if at < len(call.args) else None
        return None


class AsArray:
    """An argument made an array, or a number of another type: `step(jnp.asarray(x))`."""

    def edits(self, place: Place) -> Iterator[Edit]:
        """Yield the edits of this kind."""
        has_jnp = any(getattr(each, "asname", "") == "jnp" for each in place.code.nodes)
        for program, call, reason in place.reasons():
            for function in re.findall(_CONVERSION, reason["fix"]):
                argument = place.argument(program, call, reason["path"])
                if argument is not None and (has_jnp or "jnp" not in function):
                    text = f"{function}({place.code.text_of(argument)})"
                    yield place.code.replaced(argument, text)


_CONVERSION: Final = (
    r"`((?:jnp\.)?\w+)\([^`]*\)`(?: in (?:the earlier|this) call|: a Python number)"
)
"""The earlier call is the same line in a loop; else the trial says that it did not help."""


class Hoist:
    """A lambda, a partial or a `jax.jit` of a function, made before the loops around it."""

    def edits(self, place: Place) -> Iterator[Edit]:
        """Yield the edits of this kind."""
        code = place.code
        for program, call, reason in place.reasons():
            if not re.match(_RECREATED, reason["change"]) or "with another" in reason["change"]:
                continue
            name, target = reason["path"], place.argument(program, call, reason["path"])
            if reason["kind"] == "function":
                name, target = f"jitted_{name}" if name.isidentifier() else "jitted", call.func
            if target is None and sum(map(_makes_function, call.args)) == 1:
                target = next(filter(_makes_function, call.args))
            if isinstance(target, ast.Name):
                target = _only_value(code, target.id)
            if target is not None and _makes_function(target):
                text = code.text_of(target)
                text = f"({text})" if "\n" in text else text
                yield from _named_before(code, target, target, f"{name} = {text}", name)


_RECREATED: Final = (
    r"a new (lambda|partial|function) each call|`jax.jit\(...\)` is made again|defined again"
)


def _only_value(code: Code, name: str) -> ast.expr | None:
    """Return what the only assignment to a variable of that name gives it."""
    every = [each for each in code.nodes if isinstance(each, ast.Assign)]
    values = [each.value for each in every for one in each.targets if ast.unparse(one) == name]
    return values[0] if len(values) == 1 else None


def _makes_function(node: ast.AST) -> bool:
    """Return whether an expression makes a function, which may as well be made once."""
    return isinstance(node, ast.Lambda | ast.Call) and _is_plain(node)


def _is_plain(node: ast.AST) -> bool:
    """Return whether an expression is of names, constants and what makes functions of them."""
    if isinstance(node, ast.Lambda):
        return not (node.args.defaults or node.args.kw_defaults)
    if isinstance(node, ast.Call) and _last_name(node.func) not in _WRAPPERS:
        return False
    return isinstance(node, _PLAIN) and all(map(_is_plain, ast.iter_child_nodes(node)))


_PLAIN: Final = (ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Tuple, ast.Constant, ast.Load)
_WRAPPERS: Final = (
    *("jit", "partial", "grad", "value_and_grad", "vmap", "checkpoint", "remat", "hessian"),
    *("jacfwd", "jacrev", "filter_jit", "filter_grad", "filter_value_and_grad", "filter_vmap"),
)
"""What makes a function of a function, and does nothing else."""


def _last_name(node: Any) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _named_before(
    code: Code, node: ast.expr, value: ast.expr, definition: str, use: str
) -> Iterator[Edit]:
    """Yield the edits that name a value before the loops, and use it in the place of a node."""
    name = definition.partition(" = ")[0]
    loop = _outermost(code, node, value) if _is_evaluated_once(code, node) else None
    functions = (each for each in code.up(node) if isinstance(each, _FUNCTIONS))
    taken = _names_in(code.text, "exec").union(*map(_bound_in, functions))
    if loop is None or not name.isidentifier() or name in taken:
        return
    if code.defined.setdefault(name, definition) == definition:  # else by another edit
        start, _ = code.span(loop)
        indent = code.text[start - loop.col_offset : start]
        newline = "\r\n" if "\r\n" in code.text else "\n"
        yield Edit(code, start, start, f"{definition}{newline}{indent}")
        yield code.replaced(node, use)


def _is_evaluated_once(code: Code, node: ast.AST) -> bool:
    """Return whether an expression is a part of a simple statement, and of no loop within it."""
    around = next(each for each in code.up(node) if isinstance(each, (ast.stmt, *_MANY_TIMES)))
    return isinstance(around, ast.stmt) and not hasattr(around, "body")


_MANY_TIMES: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def _outermost(code: Code, node: ast.AST, value: ast.expr) -> _Loop | None:
    """Return the outermost loop around a node in which nothing is bound that a value reads."""
    found: _Loop | None = None
    reads = _names_in(ast.unparse(value), "eval")
    for each in code.nodes:  # what is bound elsewhere
        if isinstance(each, ast.Global | ast.Nonlocal) and not reads.isdisjoint(each.names):
            return None
    for each in code.up(node):
        if isinstance(each, ast.ClassDef):
            return None
        if isinstance(each, _FUNCTIONS) or not reads.isdisjoint(_bound_in(each)):
            break
        found = each if isinstance(each, _Loop) else found
    return found


def _names_in(text: str, mode: str) -> set[str]:
    """Return the names that a code reads or binds, but for the variables of its functions."""
    todo = [symtable.symtable(text, "<leafwise>", mode)]
    found: set[str] = set()
    while todo:
        table = todo.pop()
        is_function = table.get_type() == "function"
        symbols = [each for each in table.get_symbols() if not (is_function and each.is_local())]
        found.update(each.get_name() for each in symbols)
        todo += table.get_children()
    return found


def _bound_in(node: ast.AST) -> set[str]:
    """Return the names that are bound in a node, or whose values it changes in place."""
    found: set[Any] = set()
    for each in ast.walk(node):
        if isinstance(getattr(each, "ctx", None), ast.Store | ast.Del):
            found.add(_root(each))
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            found |= {_root(each.value.func)} - {"jax", "jnp"}  # `rates.append(rate)`
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        else:  # imports, functions, classes, exceptions and patterns
            found |= {getattr(each, field, None) for field in ("name", "asname", "rest")}
    return found


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return _last_name(node)


class JitBefore:
    """The `jax.jit` of a call of a package, before the loops around the call."""

    def edits(self, place: Place) -> Iterator[Edit]:
        """Yield the edits of this kind."""
        call = place.call(place.finding.programs[0])
        for found in filter(None, map(_DEFINITION.match, place.finding.fixes())):
            jit: Any = ast.parse(found[2], mode="eval").body
            if call is not None and ast.dump(jit.args[0].body) == ast.dump(call):
                yield from _named_before(place.code, call, jit, found[1], found[3])


_DEFINITION: Final = re.compile(
    r"`(jitted_\w+ = ([\w.]+\(lambda .*\)))` once(?:, before the loop)?, and `(.*?)` here"
)
KINDS: Final = (AsArray(), Hoist(), JitBefore())


def edits_for(finding: Finding) -> list[Edit]:
    """Return the edits that follow the fixes of a finding; none where nothing is certain."""
    code = code_of(finding.site["file"]) if finding.site is not None else None
    if code is None:
        return []
    return [edit for kind in KINDS for edit in kind.edits(Place(finding, code))]
