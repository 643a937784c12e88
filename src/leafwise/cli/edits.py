"""Edits that apply the fixes of a finding whose call is known exactly, and their patch.

Each act of a fix is a function, and none of them guesses: if a name is bound twice, or already
taken, there is no edit. Whether an edit helps is tried afterwards.
"""

import ast
import builtins
import contextlib
import difflib
import functools
import io
import itertools
import os
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._findings.findings import Finding, ProgramEvents
from leafwise._findings.reasons import Act, Reason, ReasonKind
from leafwise._jit.jitted_call import free_names
from leafwise._objects.locks import cached_property
from leafwise._objects.source.call_site import is_users_file
from leafwise.cli.notebook import sources_of, with_source


class Code:
    """A Python file, or all cells of a notebook joined: its text in UTF-8, and its AST."""

    def __init__(self, path: str) -> None:
        self.path, self.data = path, Path(path).read_bytes()
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(self.data).readline)
        text = self.data.decode(self.encoding)
        self.is_notebook = path.endswith(".ipynb")
        self.sources = list(sources_of(text)) if self.is_notebook else []
        if self.is_notebook:
            sources = [source for _, _, source in self.sources]
            text = BETWEEN.decode().join(sources)
            if text.split(BETWEEN.decode()) != sources:
                raise ValueError(f"{path} has a cell with the separator of cells")
        self.text = text.encode()  # `ast` counts columns in UTF-8 bytes
        self.tree = ast.parse(re.sub(r"(?m)^[%!]", "#", text))  # magics become comments
        self.nodes = list(ast.walk(self.tree))
        self.starts = [0, *itertools.accumulate(map(len, self.text.splitlines(keepends=True)))]
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.defined: dict[str, str] = {}  # names that edits define

    @cached_property
    def functions(self) -> dict[str, list[Any]]:
        """The functions of the file by name: each `def`, lambda, and call that wraps one."""
        functions: dict[str, list[Any]] = {}
        for node in self.nodes:
            value: Any = getattr(node, "value", node)
            if isinstance(value, _FUNCTIONS) or (isinstance(value, ast.Call) and _wraps(value)):
                targets = [getattr(target, "id", "") for target in getattr(node, "targets", ())]
                for name in filter(None, (*targets, getattr(node, "name", ""))):
                    functions.setdefault(name, []).append(value)
        return functions

    @cached_property
    def constant(self) -> set[str]:
        """The names of its functions and modules: calls do not change these."""
        imports = (node for node in self.nodes if isinstance(node, ast.Import))
        names = (name.asname or name.name for node in imports for name in node.names)
        return {*self.functions, *(name.partition(".")[0] for name in names)}

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, the innermost first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def span(self, node: Any) -> tuple[int, int]:
        """Return the start and end of a node, as offsets into the text."""
        start, end = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset

    def text_of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end].decode()

    def replaced(self, node: ast.AST, text: str) -> "Replacement":
        return Replacement(self, *self.span(node), text)

    def file_with(self, text: bytes) -> str:
        """Return the file with a new text; in a notebook only the cells that differ change."""
        if not self.is_notebook:
            return text.decode()
        data = self.data.decode(self.encoding)
        cells = zip(self.sources, text.decode().split(BETWEEN.decode()), strict=True)
        for (start, end, old), new in reversed(list(cells)):
            data = with_source(data, start, end, new) if old != new else data
        return data


BETWEEN: Final = b"\n\f\n"  # the separator between two cells


class Replacement(NamedTuple):
    """A range of a file's text, and what replaces it, if the one that it needs is made as well."""

    code: Code
    start: int
    end: int
    text: str
    needed: "Replacement | None" = None


@functools.cache
def code_of(path: str) -> Code | None:
    """Return the code of a file by its absolute path; None if it is not to be edited."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        return Code(path) if is_users_file(path) else None
    return None


_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BINDING: Final = ("name", "asname", "rest")
_PARTS: Final = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.JoinedStr


class FindingCode(NamedTuple):
    """A finding, and the code of the file or notebook that it is in."""

    finding: Finding
    script: str
    code: Code
    above: int

    def calls(self, act: Act) -> Iterator[tuple[ProgramEvents, ast.Call, Reason]]:
        """Yield each program and its call with each reason whose fix has this act."""
        calls = (node for node in self.code.nodes if isinstance(node, ast.Call))
        for call, program in itertools.product(calls, self.finding.programs):
            start, end = call.lineno - self.above, (call.end_lineno or 0) - self.above
            if program.first.call == [start, call.col_offset, end, call.end_col_offset]:
                reasons = (reason for reason in program.reasons if reason.fix.act is act)
                yield from ((program, call, reason) for reason in reasons)

    def argument(self, program: ProgramEvents, call: ast.Call, name: str) -> ast.expr | None:
        """Return the argument that a call passes for a parameter of the program's function."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        for _, node in self.definitions(program):
            names = _parameters(node)
            at = names.index(name) if name in names else len(call.args)
            at -= names[:1] == ["self"]
            if not any(isinstance(value, ast.Starred) for value in call.args[: at + 1]):
                return call.args[at] if at < len(call.args) else None
        return None

    def definitions(self, program: ProgramEvents) -> Iterator[tuple[Code, Any]]:
        """Yield the definitions that begin at the line of the program's function."""
        for code, node, line in _nodes_of(program.first.defined, self.script):
            first: Any = next(iter(getattr(node, "decorator_list", ())), node)
            if isinstance(node, _FUNCTIONS) and first.lineno == line:
                yield code, node


def _nodes_of(where: str, script: str) -> Iterator[tuple[Code, Any, int]]:
    file, _, line = where.rpartition(":")
    code, above = _located(file, script)
    if code is not None:
        yield from ((code, node, int(line) + above) for node in code.nodes)


def _parameters(function: Any) -> list[str]:
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]


def _located(file: str, script: str) -> tuple[Code | None, int]:
    """Return the code of a file, or of a cell's notebook, and how many lines precede the cell."""
    name = re.fullmatch(r"Cell In\[(\d+)\]", file)
    code = code_of(os.path.abspath(script if name else file)) if file else None  # noqa: PTH100
    cells = code.text.split(BETWEEN)[: int(name[1]) - 1] if name and code is not None else ()
    return code, b"".join(cell + BETWEEN for cell in cells).count(b"\n")


def _convert(source: FindingCode) -> Iterator[Replacement]:
    """Make an argument an array, or a number of another type: `step(jnp.asarray(x))`."""
    for program, call, reason in source.calls(Act.CONVERT):
        before, after = reason.fix.code
        earlier = program.explained.earlier
        calls = [(source.code, call, after if earlier else before or after)]
        for code, node, line in _nodes_of(earlier, source.script):
            is_same = isinstance(node, ast.Call) and ast.dump(node.func) == ast.dump(call.func)
            if is_same and node.lineno <= line <= (node.end_lineno or 0):
                calls.append((code, node, before))
        for code, node, function in calls:
            argument = source.argument(program, node, reason.path)
            has_jnp = any(getattr(part, "asname", "") == "jnp" for part in code.nodes)
            # Before Python 3.12, nodes in an f-string have wrong columns.
            is_elsewhere = any(isinstance(holder, ast.JoinedStr) for holder in code.up(node))
            is_known = bool(function) and (has_jnp or "jnp" not in function)
            if is_known and argument is not None and not is_elsewhere:
                text = code.text_of(argument)
                is_method = function.startswith(".")
                text = text if is_method and isinstance(argument, _WHOLE) else f"({text})"
                yield code.replaced(argument, text + function if is_method else function + text)


_WHOLE: Final = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
"""Nodes that need no parentheses before ``.name``."""


def _define_once(source: FindingCode) -> Iterator[Replacement]:
    """Move a lambda, a partial or a `jax.jit` of a function in front of the enclosing loops."""
    code = source.code
    every = source.calls(Act.DEFINE_ONCE)
    calls = {(call, reason.path, reason.kind): program for program, call, reason in every}
    for (call, path, reason_kind), program in calls.items():
        name, target = path, source.argument(program, call, path)
        if reason_kind is ReasonKind.FUNCTION:
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
    """Yield the edits that move a function's only definition in front of the enclosing loops."""
    stored = (node for node in code.nodes if isinstance(getattr(node, "ctx", None), ast.Store))
    nodes = [next(code.up(target)) for target in stored if getattr(target, "id", "") == name]
    nodes += [node for node in code.nodes if name in map(vars(node).get, _BINDING)]
    node: Any = nodes[0] if len(nodes) == 1 and isinstance(nodes[0], ast.stmt) else None
    value = getattr(node, "value", node)  # a `def` has no value
    if not _makes_function(value) or len(getattr(node, "targets", "f")) > 1:
        return
    loop = _outermost(code, node, value)
    first = [*getattr(node, "decorator_list", []), node][0]
    start, end = code.starts[first.lineno - 1], code.starts[node.end_lineno]
    text = code.text[start:end].decode()
    # Neither two statements on a line, nor a multi-line string, which would lose its indent.
    if loop is not None and not re.search(r"""(?m);|\"{3}|'{3}|\\$""", text):
        before, width = code.starts[loop.lineno - 1], node.col_offset - loop.col_offset
        removal = Replacement(code, start, end, "")
        text = re.sub(rf"(?m)^[ \t]{{{width}}}", "", text)
        yield from (removal, Replacement(code, before, before, text, removal))


def _makes_function(node: ast.AST | None) -> bool:
    """Return whether a node creates a function that could as well be created once."""
    return isinstance(node, ast.Lambda | ast.Call | ast.FunctionDef) and _is_plain(node)


def _is_plain(node: ast.AST) -> bool:
    """Return whether a node has only names, constants, and calls that make functions of them."""
    if isinstance(node, ast.Lambda | ast.FunctionDef):
        decorators = getattr(node, "decorator_list", ())
        is_plain = all(map(_wraps, decorators)) and all(map(_is_plain, decorators))
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
"""Calls that only turn a function into another function."""


def _named_before(
    code: Code, node: ast.expr, value: ast.expr, definition: str, use: str
) -> Iterator[Replacement]:
    """Yield the edits that define a name in front of the loops, and use it instead of a node."""
    name = definition.partition(" = ")[0].removeprefix("import jax; ")
    loop = _outermost(code, node, value)
    functions = (holder for holder in code.up(node) if isinstance(holder, _FUNCTIONS))
    taken = free_names(code.tree).union(
        *(_changed_in(code, function, value) for function in functions)
    )
    if loop is None or not name.isidentifier() or name in taken:
        return
    if code.defined.setdefault(name, definition) == definition:  # or another edit has defined it
        start, _ = code.span(loop)
        indent = code.text[start - loop.col_offset : start].decode()
        newline = "\r\n" if b"\r\n" in code.text else "\n"
        used = code.replaced(node, use)
        yield from (used, Replacement(code, start, start, f"{definition}{newline}{indent}", used))


def _outermost(code: Code, node: ast.AST, value: ast.AST) -> _Loop | None:
    """Return the outermost enclosing loop that changes nothing that a function reads."""
    reads = set[str]().union(*map(free_names, _reached(code, value)))
    reads -= {getattr(value, "name", "")}
    for other in code.nodes:  # names bound in other scopes
        if isinstance(other, ast.Global | ast.Nonlocal) and not reads.isdisjoint(other.names):
            return None
    loop: _Loop | None = None
    for holder in code.up(node):
        if isinstance(holder, ast.ClassDef):
            return None
        is_scope = isinstance(holder, (*_FUNCTIONS, _PARTS))
        if is_scope or not reads.isdisjoint(_changed_in(code, holder, node)):
            break
        loop = holder if isinstance(holder, _Loop) else loop
    return loop


def _reached(code: Code, node: ast.AST) -> list[ast.AST]:
    """Return a node, and the functions of the file that it names or that these name."""
    reached = [node]
    for function in reached:
        for part in ast.walk(function):
            name = getattr(part, "id", getattr(part, "attr", ""))
            reached += [other for other in code.functions.get(name, ()) if other not in reached]
    return reached


def _changed_in(code: Code, holder: ast.AST, moved: ast.AST) -> set[str]:
    """Return the names that code binds, or whose values it may change, without what is moved."""
    # It follows the functions of the file. What others change is seen when the edit is tried: each
    # call is compared with what its function has captured.
    names: set[Any] = set()
    for function in _reached(code, holder):
        bound, changed = set[Any](), set[str]()
        for part in (parts := set(ast.walk(function)).difference(ast.walk(moved))):
            if isinstance(getattr(part, "ctx", None), ast.Store | ast.Del):
                (bound if isinstance(part, ast.Name) else changed).add(_root(part))
            elif isinstance(part, ast.Call) and not _is_pure(code, part):  # `update(cfg)`
                data = parts.intersection(ast.walk(part))
                changed |= {name.id for name in data if isinstance(name, ast.Name)} - code.constant
            else:  # parameters, imports, functions, classes, exceptions and patterns
                attributes = ("arg",) if isinstance(part, ast.arg) else _BINDING
                bound |= set(map(vars(part).get, attributes))
        names |= changed | bound if function is holder else changed - bound
    return names


def _is_pure(code: Code, call: ast.Call) -> bool:
    """Return whether a call only computes: of JAX, of a jitted function, of most builtins."""
    name = ast.unparse(call.func)
    functions = code.functions.get(name.rpartition(".")[2], ())
    wrappers = [part for node in functions for part in getattr(node, "decorator_list", [node])]
    return _root(call.func) in _MATH or name in _BUILTINS or any(map(_wraps, (call, *wrappers)))


_MATH: Final = frozenset({"jax", "jnp", "lax", "np", "numpy", "math"})
_BUILTINS: Final = frozenset(dir(builtins)) - {"delattr", "eval", "exec", "next", "setattr"}


def _root(node: ast.AST) -> str:
    return re.sub(r"\W.*", "", ast.unparse(node), flags=re.DOTALL)


def _jit_once(source: FindingCode) -> Iterator[Replacement]:
    """Wrap a call into a package in `jax.jit`, defined in front of the enclosing loops."""
    for _, call, reason in source.calls(Act.JIT_ONCE):
        definition, use = reason.fix.code
        jit: Any = ast.parse(definition.partition(" = ")[2], mode="eval").body
        if ast.dump(jit.args[0].body.func) == ast.dump(call.func):
            yield from _named_before(source.code, call, jit, definition, use)


def _make_dynamic(source: FindingCode) -> Iterator[Replacement]:
    """Make a static field of a user's class dynamic, if no other field has its name."""
    for reason in (reason for program in source.finding.programs for reason in program.reasons):
        holder, _, name = reason.path.rpartition(".")
        if holder and reason.fix.act is Act.MAKE_DYNAMIC:
            edits: set[Replacement] = set()
            every = ((code, node) for code in _near(source.code) for node in code.nodes)
            for code, node in every:
                if isinstance(node, ast.AnnAssign) and code.text_of(node.target) == name:
                    text = code.text_of(node)
                    for mark, rest in _DYNAMIC:
                        text = re.sub(mark, rest, text)
                    edits |= {code.replaced(node, text)} if text != code.text_of(node) else set()
            yield from edits if len(edits) == 1 else ()


def _drop_static(source: FindingCode) -> Iterator[Replacement]:
    """Remove an argument from ``static_argnames=`` and ``static_argnums=``."""
    for program in source.finding.programs:
        names = {reason.path for reason in program.reasons if reason.fix.act is Act.MAKE_DYNAMIC}
        for home, function in source.definitions(program):
            parameters = _parameters(function)
            dropped = names.union(map(parameters.index, names.intersection(parameters)))
            codes = dict.fromkeys((home, *_near(source.code)))
            for code, node in ((file, node) for file in codes for node in file.nodes):
                is_static = isinstance(node, ast.keyword) and str(node.arg).startswith("static_arg")
                if is_static and _is_jit_of(function, next(code.up(node))):
                    yield from _elements_left_out(code, node, dropped)


def _is_jit_of(function: Any, call: Any) -> bool:
    first = next(iter(call.args), None)
    is_named = getattr(first, "id", "") == getattr(function, "name", None)
    return is_named or first is function or call in getattr(function, "decorator_list", ())


def _elements_left_out(code: Code, keyword: Any, dropped: set[Any]) -> Iterator[Replacement]:
    elements = getattr(keyword.value, "elts", [keyword.value])
    chosen = [element for element in elements if getattr(element, "value", None) in dropped]
    if len(chosen) == len(elements):
        yield _left_out(code, keyword)
        return
    for element in chosen:
        start, end = code.span(element)
        later = [code.span(other)[0] for other in elements if code.span(other)[0] > start]
        yield Replacement(code, start, min(later, default=end), "")


def _left_out(code: Code, keyword: ast.keyword) -> Replacement:
    """Return the edit that removes a keyword argument from a call."""
    call: Any = next(code.up(keyword))
    parts = sorted(map(code.span, (call.func, *call.args, *call.keywords)))
    start, end = code.span(keyword)
    before = max(part_end for _, part_end in parts if part_end <= start)
    if before == code.span(call.func)[1]:  # it is the first argument
        before, end = start, min((other for other, _ in parts if other > start), default=end)
    return Replacement(code, before, end, "")


def _leave_out_unroll(source: FindingCode) -> Iterator[Replacement]:
    """Remove ``unroll=`` from the only call on the line that has it."""
    code, line = source.code, source.finding.site.line if source.finding.site is not None else 0
    if not any(fix.act is Act.ROLL for fix in source.finding.fixes()):
        return
    every = (node for node in code.nodes if isinstance(node, ast.keyword) and node.arg == "unroll")
    lines = {keyword: getattr(next(code.up(keyword)), "lineno", 0) for keyword in every}
    keywords = [keyword for keyword, at in lines.items() if at == line + source.above]
    if len(keywords) == 1:
        yield _left_out(code, keywords[0])


def _near(code: Code) -> Iterator[Code]:
    imports = (node for node in code.nodes if isinstance(node, ast.ImportFrom) and node.module)
    names = {str(node.module).replace(".", "/") for node in imports}
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
"""How leafwise, equinox, flax and JAX mark static fields, and the replacements."""

_ACTS: Final = (_convert, _define_once, _jit_once, _make_dynamic, _drop_static, _leave_out_unroll)


def edits_for(finding: Finding, script: str) -> list[Replacement]:
    """Return the edits that apply the fixes of a finding; empty unless they are certain."""
    code, above = _located(finding.site.file if finding.site is not None else "", script)
    if code is None:
        return []
    source = FindingCode(finding, script, code, above)
    return [edit for act in _ACTS for edit in act(source)]


def applied(edits: Iterable[Replacement]) -> dict[Code, bytes]:
    """Return the text of each file after the edits, except those that overlap a later one."""
    files: dict[Code, bytes] = {}
    reached: dict[Code, int] = {}
    done: set[Replacement | None] = {None}
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        code, start, end, new, needed = edit
        alone = Replacement(code, start, end, new)  # one definition may have several uses
        if alone not in done and needed in done and end <= reached.get(code, end):
            text = files.get(code, code.text)
            files[code] = text[:start] + new.encode() + text[end:]
            reached[code] = start
            done.add(alone)
    return files


def diff(files: Mapping[Code, bytes]) -> bytes:
    """Return a unified diff of files for `git apply`."""
    lines: list[bytes] = []
    for code, text in files.items():
        path = os.path.relpath(os.path.realpath(code.path))  # git changes no symbolic links
        name = Path(path).as_posix().encode()
        data = code.file_with(text).encode(code.encoding)
        old, new = (io.BytesIO(content).readlines() for content in (code.data, data))
        lines += difflib.diff_bytes(difflib.unified_diff, old, new, b"a/" + name, b"b/" + name)
    last = b"\n\\ No newline at end of file\n"
    return b"".join(line if line.endswith(b"\n") else line + last for line in lines)


def shown(files: Mapping[Code, bytes], before: Mapping[Code, bytes]) -> list[str]:
    """Return the changed lines of files since other edits, with the lines between them."""
    lines: list[str] = []
    for code, text in files.items():
        texts = before.get(code, code.text), text
        old, new = (data.decode().replace("\r", "").split("\n") for data in texts)
        changes = list(difflib.unified_diff(old, new, n=1))[2:]
        lines += [f"{line[0]} {line[1:]}" for line in changes if not line.startswith("@@")]
    changed = [number for number, line in enumerate(lines) if line[0] != " "]
    return lines[changed[0] : changed[-1] + 1] if changed else []


def uncommitted(files: Iterable[str]) -> str:
    """Return why files must not be written: one has changes that git could not restore."""
    for path in files:
        folder, name = os.path.split(os.path.realpath(path))
        git = functools.partial(subprocess.check_output, cwd=folder, stderr=subprocess.DEVNULL)
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # no git, or no commit
            committed = git(["git", "rev-parse", "--verify", f"HEAD:./{name}"])
            if committed == git(["git", "hash-object", "--", name]):
                continue
        return f"{os.path.relpath(path)} has uncommitted changes: commit them, or use --force"
    return ""
