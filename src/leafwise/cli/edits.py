"""The edits that carry out the fixes of a finding, where its call is known exactly.

Each act of a fix is a function, and none of them guesses: where a name is bound twice, or taken,
there is no edit. Whether an edit helps is then tried.
"""

import ast
import itertools
import os
import re
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._display.findings import Finding, ProgramEvents
from leafwise._display.reasons import Act, Reason, ReasonKind
from leafwise.cli.patch import BETWEEN, Code, Replacement, code_of

_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BINDING: Final = ("name", "asname", "rest")
_PARTS: Final = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.JoinedStr


class FindingCode(NamedTuple):
    """A finding, in the code of its line: of a notebook, in that of all cells."""

    finding: Finding
    script: str
    code: Code
    above: int

    def calls(self, act: Act) -> Iterator[tuple[ProgramEvents, ast.Call, Reason]]:
        """Yield programs and their calls, with each reason whose fix does this."""
        calls = (node for node in self.code.nodes if isinstance(node, ast.Call))
        for call, program in itertools.product(calls, self.finding.programs):
            start, end = call.lineno - self.above, (call.end_lineno or 0) - self.above
            if program.first.call == [start, call.col_offset, end, call.end_col_offset]:
                reasons = (reason for reason in program.reasons if reason.fix.act is act)
                yield from ((program, call, reason) for reason in reasons)

    def argument(self, program: ProgramEvents, call: ast.Call, name: str) -> ast.expr | None:
        """Return what a call gives for a parameter of the program's function."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        file, _, line = program.first.defined.rpartition(":")
        code, above = _located(file, self.script)
        for node in code.nodes if code is not None else ():
            first: Any = next(iter(getattr(node, "decorator_list", ())), node)
            if isinstance(node, _FUNCTIONS) and str(first.lineno - above) == line:
                names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                at = names.index(name) if name in names else len(call.args)
                at -= names[:1] == ["self"]
                if not any(isinstance(each, ast.Starred) for each in call.args[: at + 1]):
                    return call.args[at] if at < len(call.args) else None
        return None


def _located(file: str, script: str) -> tuple[Code | None, int]:
    """Return the code of a file, or of the notebook of a cell, and how many lines are above."""
    cell = re.fullmatch(r"Cell In\[(\d+)\]", file)
    code = code_of(os.path.abspath(script if cell else file)) if file else None  # noqa: PTH100
    cells = code.text.split(BETWEEN)[: int(cell[1]) - 1] if cell and code is not None else ()
    return code, b"".join(each + BETWEEN for each in cells).count(b"\n")


def _convert(place: FindingCode) -> Iterator[Replacement]:
    """Make an argument an array, or a number of another type: `step(jnp.asarray(x))`.

    The earlier call is the same line in a loop; else the trial says that it did not help.
    """
    has_jnp = any(getattr(node, "asname", "") == "jnp" for node in place.code.nodes)
    for program, call, reason in place.calls(Act.CONVERT):
        if any(isinstance(node, ast.JoinedStr) for node in place.code.up(call)):
            continue  # before Python 3.12 it is elsewhere
        for function in reason.fix.code:
            argument = place.argument(program, call, reason.path)
            if argument is not None and (has_jnp or "jnp" not in function):
                text = f"{function}({place.code.text_of(argument)})"
                yield place.code.replaced(argument, text)


def _define_once(place: FindingCode) -> Iterator[Replacement]:
    """Make a lambda, a partial or a `jax.jit` of a function before the loops around it."""
    code = place.code
    for program, call, reason in place.calls(Act.DEFINE_ONCE):
        name, target = reason.path, place.argument(program, call, reason.path)
        if reason.kind is ReasonKind.FUNCTION:
            name, target = f"jitted_{name}" if name.isidentifier() else "jitted", call.func
        if target is None and sum(map(_makes_function, call.args)) == 1:
            target = next(filter(_makes_function, call.args))
        if isinstance(target, ast.Name):
            yield from _moved(code, target.id)
        elif target is not None and _makes_function(target):
            text = code.text_of(target)
            text = f"({text})" if "\n" in text else text
            yield from _named_before(code, target, target, f"{name} = {text}", name)


def _moved(code: Code, name: str) -> Iterator[Replacement]:
    """Yield the edits that move the only definition of a function before the loops around it."""
    stored = (each for each in code.nodes if isinstance(getattr(each, "ctx", None), ast.Store))
    found = [next(code.up(each)) for each in stored if getattr(each, "id", "") == name]
    found += [each for each in code.nodes if name in map(vars(each).get, _BINDING)]
    node: Any = found[0] if len(found) == 1 and isinstance(found[0], ast.stmt) else None
    value = getattr(node, "value", node)  # else it is a `def`
    if not _makes_function(value) or len(getattr(node, "targets", "f")) > 1:
        return
    loop = _outermost(code, node, _names_in(value) - {getattr(value, "name", "")})
    first = [*getattr(node, "decorator_list", []), node][0]
    start, end = code.starts[first.lineno - 1], code.starts[node.end_lineno]
    text = code.text[start:end].decode()
    # Not two statements in a line, nor a text of several lines, which is not to lose an indent.
    if loop is not None and not re.search(r"""(?m);|\"{3}|'{3}|\\$""", text):
        before, width = code.starts[loop.lineno - 1], node.col_offset - loop.col_offset
        yield Replacement(code, before, before, re.sub(rf"(?m)^[ \t]{{{width}}}", "", text))
        yield Replacement(code, start, end, "")


def _makes_function(node: ast.AST | None) -> bool:
    """Return whether a node makes a function, which may as well be made once."""
    return isinstance(node, ast.Lambda | ast.Call | ast.FunctionDef) and _is_plain(node)


def _is_plain(node: ast.AST) -> bool:
    """Return whether a node is of names, constants and what makes functions of them."""
    if isinstance(node, ast.Lambda | ast.FunctionDef):
        decorators = getattr(node, "decorator_list", ())
        is_plain = all(_wraps(each) and _is_plain(each) for each in decorators)
        return is_plain and not (node.args.defaults or node.args.kw_defaults)
    if isinstance(node, ast.Call) and not _wraps(node):
        return False
    return isinstance(node, _PLAIN) and all(map(_is_plain, ast.iter_child_nodes(node)))


def _wraps(node: Any) -> bool:
    return ast.unparse(getattr(node, "func", node)).rpartition(".")[2] in _WRAPPERS


_PLAIN: Final = (ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Tuple, ast.Constant, ast.Load)
_WRAPPERS: Final = (
    *("jit", "partial", "grad", "value_and_grad", "vmap", "checkpoint", "remat", "hessian"),
    *("jacfwd", "jacrev", "filter_jit", "filter_grad", "filter_value_and_grad", "filter_vmap"),
)
"""What makes a function of a function, and does nothing else."""


def _named_before(
    code: Code, node: ast.expr, value: ast.expr, definition: str, use: str
) -> Iterator[Replacement]:
    """Yield the edits that name a value before the loops, and use it in the place of a node."""
    name = definition.partition(" = ")[0]
    loop = _outermost(code, node, _names_in(value))
    functions = (each for each in code.up(node) if isinstance(each, _FUNCTIONS))
    taken = _names_in(code.tree).union(*map(_bound_in, functions))
    if loop is None or not name.isidentifier() or name in taken:
        return
    if code.defined.setdefault(name, definition) == definition:  # else by another edit
        start, _ = code.span(loop)
        indent = code.text[start - loop.col_offset : start].decode()
        newline = "\r\n" if b"\r\n" in code.text else "\n"
        yield Replacement(code, start, start, f"{definition}{newline}{indent}")
        yield code.replaced(node, use)


def _outermost(code: Code, node: ast.AST, reads: set[str]) -> _Loop | None:
    """Return the outermost loop around a node in which no name is bound that it reads."""
    found: _Loop | None = None
    for each in code.nodes:  # what is bound elsewhere
        if isinstance(each, ast.Global | ast.Nonlocal) and not reads.isdisjoint(each.names):
            return None
    for each in code.up(node):
        if isinstance(each, ast.ClassDef):
            return None
        if isinstance(each, (*_FUNCTIONS, _PARTS)) or not reads.isdisjoint(_bound_in(each)):
            break
        found = each if isinstance(each, _Loop) else found
    return found


def _names_in(node: ast.AST) -> set[str]:
    """Return the names that a code reads or binds, but for the variables of its functions."""
    found: set[str] = set()
    todo = [symtable.symtable(ast.unparse(node), "<leafwise>", "exec")]
    for table in todo:
        is_function = table.get_type() == "function"
        symbols = (each for each in table.get_symbols() if not (is_function and each.is_local()))
        found.update(each.get_name() for each in symbols)
        todo += table.get_children()
    return found


def _bound_in(node: ast.AST) -> set[str]:
    """Return the names that are bound in a node, or whose values it changes in place."""
    found: set[Any] = set()
    for each in ast.walk(node):
        if isinstance(getattr(each, "ctx", None), ast.Store | ast.Del):
            found.add(_root(each))
        elif isinstance(each, ast.Expr):
            found |= {_root(each.value)} - {"jax", "jnp"}  # `rates.append(rate)`
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        else:  # imports, functions, classes, exceptions and patterns
            found |= set(map(vars(each).get, _BINDING))
    return found


def _root(node: ast.AST) -> str:
    return re.sub(r"\W.*", "", ast.unparse(node), flags=re.DOTALL)


def _jit_once(place: FindingCode) -> Iterator[Replacement]:
    """Define the `jax.jit` of a call of a package before the loops around the call."""
    for _, call, reason in place.calls(Act.JIT_ONCE):
        definition, use = reason.fix.code
        jit: Any = ast.parse(definition.partition(" = ")[2], mode="eval").body
        if ast.dump(jit.args[0].body) == ast.dump(call):
            yield from _named_before(place.code, call, jit, definition, use)


def _make_dynamic(place: FindingCode) -> Iterator[Replacement]:
    """Make a static field of a class of the user's dynamic, if no other has its name."""
    for reason in (reason for program in place.finding.programs for reason in program.reasons):
        holder, _, name = reason.path.rpartition(".")
        if holder and reason.fix.act is Act.MAKE_DYNAMIC:
            edits: set[Replacement] = set()
            every = ((code, node) for code in _near(place.code) for node in code.nodes)
            for code, node in every:
                if isinstance(node, ast.AnnAssign) and code.text_of(node.target) == name:
                    text = code.text_of(node)
                    for mark, rest in _DYNAMIC:
                        text = re.sub(mark, rest, text)
                    edits |= {code.replaced(node, text)} if text != code.text_of(node) else set()
            yield from edits if len(edits) == 1 else ()


def _near(code: Code) -> Iterator[Code]:
    """Return a code and those of the user's modules that it imports from."""
    imports = (each for each in code.nodes if isinstance(each, ast.ImportFrom) and each.module)
    names = {str(each.module).replace(".", "/") for each in imports}
    files = (f"{folder}/{name}.py" for folder in Path(code.path).parents[:2] for name in names)
    return filter(None, (code, *map(code_of, files)))


_MARK: Final = (
    r"""(?:static=True|pytree_node=False|metadata=(dict\(static=T|{.static.: T)rue[)}])"""
)
_DYNAMIC: Final = (
    (rf"\s*=\s*[\w.]+(\(\s*{_MARK},?\s*|\bstatic_field\()\)$", ""),
    (rf"(?<=\(){_MARK},\s*|,\s*{_MARK}(?=[,)])", ""),
    (r"\bstatic_field\(", "field("),
    (r"^(\w+\s*:\s*)[\w.]*\bStatic\[([^=]*)\]", r"\1\2"),
)
"""How fields are marked static in leafwise, equinox, flax and JAX, and what they are without."""

_ACTS: Final = (_convert, _define_once, _jit_once, _make_dynamic)


def edits_for(finding: Finding, script: str) -> list[Replacement]:
    """Return the edits that carry out the fixes of a finding; none where nothing is certain."""
    code, above = _located(finding.site.file if finding.site is not None else "", script)
    if code is None:
        return []
    place = FindingCode(finding, script, code, above)
    return [edit for act in _ACTS for edit in act(place)]
