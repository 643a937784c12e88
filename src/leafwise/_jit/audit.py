"""Comparing each call of a jitted function with the program that answers it, types and all.

JAX compares statics by ``==``, and as they are now: a program that was made for ``True`` answers
for ``1``, and that of a list for what it has become.
"""

import ast
import contextlib
import dataclasses
import dis
import functools
import inspect
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeGuard

import jax
from jax.tree_util import PyTreeDef

from leafwise._captures.fingerprint import Observation, describe_value
from leafwise._compare.diff import compare
from leafwise._compare.signature import Signature
from leafwise._display.reasons import ReasonKind
from leafwise._jax.events import ignore_events
from leafwise._jax.exchanges import Exchange
from leafwise._jax.frames import exclude_file
from leafwise._jit.blocks import StaleCapture
from leafwise._jit.callee import Callee
from leafwise._jit.jit import StaleCheckedFunction
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._objects.attributes import (
    compares_by_identity,
    is_frozen,
    record_fields,
    stored_attributes,
)
from leafwise._objects.call_site import Site, is_users_file, short_file, site_of, user_frame
from leafwise._objects.classes import ClassMap, distinct_names, module_of
from leafwise._objects.code import is_installed_module
from leafwise._objects.locks import new_lock
from leafwise._objects.names import MUTATORS
from leafwise._objects.parts import Part, kind_of
from leafwise._objects.stand_ins import MISSING, ById, Verbatim
from leafwise._objects.text import shorten
from leafwise._statics.key import StaticKey

exclude_file(__file__)  # an error shows the frames that it has without the audit

_MOST_KNOWN: Final = 1024


class _Here(threading.local):
    """The innermost call of one thread."""

    call: "_Call | None" = None


class Audit:
    """Compares the calls of all functions that it is given, and gives `note` what was answered."""

    def __init__(self, note: Callable[[str, Site | None], None]) -> None:
        self.note = note
        self.here = _Here()
        self.calls = 0
        self.seconds = 0.0
        self.lock = new_lock()

    def function(self, jitted: StaleCheckedFunction) -> "AuditedFunction":
        """Return a jitted function, each call of which is compared."""
        return AuditedFunction(jitted, self)

    def add_stale(self, captures: Iterable[StaleCapture]) -> None:
        """Add the captures whose old values answer the call that is being made."""
        call = self.here.call
        for capture in captures:
            text = f"{capture.function} answered for `{capture.name}={capture.before}`"
            text += f", which is {capture.after} now"
            if lines := assignments(capture.name, capture.line.rpartition(":")[0]):
                text += f" (assigned at {', '.join(lines)})"
            if call is not None and (frame := call.calls.previous):
                text += f"; the call before it was at {short_file(frame[0])}:{frame[1]}"
            if call is None:
                self.note(text, capture.call)
            else:
                call.found.append((text, capture.call))

    def add_exchange(self, exchange: Exchange) -> None:
        """Note classes and statics that `cond` or a loop has exchanged, if it has."""
        try:
            if content_of([exchange.before]) == content_of([exchange.after]):
                return
            with ignore_events():
                label = "out" if exchange.names else "carry"
                reasons = compare(label, exchange.make_before(), exchange.make_after())
        except Exception:  # noqa: BLE001  # code of the user's classes
            return
        site = site_of(inspect.currentframe())
        one, other = exchange.names or ("", "its body")
        of = f" of {one}" if one else ""
        for reason in reasons:
            if reason.kind in (ReasonKind.STATIC, ReasonKind.CLASS, ReasonKind.STRUCTURE):
                before, after = _words(reason.before, reason.after)
                answered = f"{exchange.operation} answered for `{reason.path}={before}`{of}"
                self.note(f"{answered}, but {other} returned {after}", site)


class AuditedFunction(StaleCheckedFunction):
    """A jitted function whose calls are compared with the programs that answer them."""

    __slots__ = ()

    def __init__(self, jitted: StaleCheckedFunction, audit: Audit) -> None:
        own = vars(jitted)
        self._leafwise_calls = _Calls(audit, own["_leafwise_log"])
        guard = own["_leafwise_guard"]
        super().__init__(own["_leafwise_jax"], own["_leafwise_body"], guard.stale)

    @property
    def __call__(self) -> Any:
        """What a call runs."""
        return self._leafwise_calls.call

    @__call__.setter
    def __call__(self, call: Any) -> None:
        self._leafwise_calls.inner = call


@dataclasses.dataclass(eq=False)
class _Call:
    """One call that is being made, and what was found wrong with its answer."""

    calls: "_Calls"
    found: list[tuple[str, Site | None]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Calls:
    """The calls of one function: what is known of those with the same statics and avals."""

    audit: Audit
    log: ProgramLog
    inner: Any = None  # what makes a call
    previous: tuple[str, int] | None = None  # the file and the line of the last call
    known: dict[Any, list[str]] = dataclasses.field(default_factory=dict)
    programs: int = 0  # how many there were when that was found

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compare a call, and make it."""
        __tracebackhide__ = True
        audit = self.audit
        here = audit.here
        start = time.perf_counter()
        call = _Call(self)
        frame = user_frame(inspect.currentframe())
        try:
            wrong = self._compare(args, kwargs)
        except Exception:  # noqa: BLE001  # code of the values' own classes: the call says it better
            wrong = []
        around, here.call = here.call, call
        with audit.lock:
            audit.calls += 1
            audit.seconds += time.perf_counter() - start
        try:
            call.found += [(text, site_of(frame)) for text in wrong]
            result = self.inner(*args, **kwargs)
        except BaseException as error:
            # A script that prints the traceback finds its own line, and then JAX.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        finally:
            here.call = around
        if frame is not None:
            self.previous = frame.f_code.co_filename, frame.f_lineno
        for text, site in call.found:
            audit.note(text, site)
        return result

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Return a line for each static that has another value in the program of a call."""
        log = self.log
        if log.keys is None:
            log.keys = CallKeys(log.callee)
        if len(log.programs) != self.programs or len(self.known) > _MOST_KNOWN:
            self.known.clear()  # another program may answer now
            self.programs = len(log.programs)
        key = log.keys.key(args, kwargs)
        if key not in self.known:
            signature = log.callee.record(args, kwargs)
            program, now = log.trace_for(signature), log.keys.contents(signature)
            then = (program and program.contents) or {}
            self.known[key] = [
                "{} answered for `{}={}`, but got {}".format(
                    log.name, path, *_words(then[path][1], now[path][1])
                )
                for path in now
                if path in then and then[path][0] != now[path][0]
            ]
        return self.known[key]


def _words(before: Any, after: Any) -> tuple[str, str]:
    if isinstance(before, type) and isinstance(after, type):
        before, after = map(Verbatim, distinct_names(before, after))
    one, other = (
        str(each) if isinstance(each, Verbatim) else shorten(each, 60) for each in (before, after)
    )
    if isinstance(before, Verbatim) or isinstance(after, Verbatim):
        return one, f"`{other}`"
    kinds = type(before).__qualname__, type(after).__qualname__
    return one if one != other else f"{one} ({kinds[0]})", f"`{other}` ({kinds[1]})"


# What a call is made of.

_PLAIN: Final = frozenset({int, str, bool, bytes, type(None), StaticKey})
_UNCHANGING: Final = (type, types.ModuleType, types.FunctionType, Enum)
"""Types whose content cannot change, or is looked at elsewhere: what a function reads is that."""
_MOST_PARTS: Final = 1 << 15
_MOST_BYTES: Final = 1 << 20
_READS_ANY: Final = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "fields"})

Content: TypeAlias = tuple[Any, Any]
"""What is equal for statics that are the same but for their parts; and the value, or its text."""


class CallKeys:
    """Returns the keys of the calls of one function."""

    def __init__(self, callee: Callee) -> None:
        self._callee = callee
        # The attributes that the function reads; None if that is not known.
        self._names: frozenset[str] | None = frozenset()

    def note(self, program: ProgramEntry, current: Observation | None) -> None:
        """Keep what the statics of a program are, after its trace."""
        names = self._names
        if names is not None and current is not None:
            names = names.union(current.words)
        self._names = None if current is None or names is None or names & _READS_ANY else names
        if program.signature is not None:
            with contextlib.suppress(Exception):  # code of the values' own classes
                program.contents = self.contents(program.signature)

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what a call is made of: its statics, and the abstract values of its leaves."""
        statics = self._callee.statics
        numbers, names = statics.resolved(len(args)), statics.names
        arguments: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        places = [place for place in arguments if place in numbers or place in names]
        static = [(place, arguments.pop(place)) for place in places]
        leaves, treedef = jax.tree_util.tree_flatten(list(arguments.values()))
        avals = [
            getattr(leaf, "aval", None)
            or (type(leaf), getattr(leaf, "dtype", None), getattr(leaf, "shape", None))
            for leaf in leaves
        ]
        return (*content_of([static, [*arguments], treedef], self._reads), *avals)

    def contents(self, call: Signature) -> dict[str, Content]:
        """Return the classes and the statics of a call, and all that is inside them, by path."""
        contents: dict[str, Content] = {path: (cls, cls) for path, cls in call.classes.items()}
        found: list[_Read] = []
        for path, value in call.all_statics.items():
            _read(value, path, self._reads, found)
        for path, content, value in found:
            is_kept = type(value) in _PLAIN or isinstance(value, (float, *_UNCHANGING))
            text = value if is_kept else Verbatim(describe_value(value))
            if value is not MISSING:
                contents[path] = content, text
        return contents

    def _reads(self, name: str) -> bool:
        """Return whether the function may read an attribute of a static object."""
        return _is_public(name) if self._names is None else name in self._names


def _is_public(name: str) -> bool:
    return not name.startswith("__")


def content_of(values: Iterable[Any], reads: Callable[[str], bool] = _is_public) -> tuple[Any, ...]:
    """Return what is equal for values of the same types and contents, all the way down."""
    found: list[_Read] = []
    for each in values:
        _read(each, "", reads, found)
    return tuple([content for _, content, _ in found])


_Read: TypeAlias = tuple[str, Any, Any]
"""The path to a part, what it is but for its own parts, and itself; `MISSING` if only these say."""


def _read(
    value: Any,
    path: str,
    reads: Callable[[str], bool],
    found: list[_Read],
    above: tuple[int, ...] = (),
) -> None:
    """Add what a static is made of, and its parts."""
    cls: Any = type(value)
    if cls in _PLAIN or cls is float:
        content = value.hex() if cls is float else value  # 0.0 is not -0.0
        found.append((path, (cls, content), value))
    elif id(value) not in above and len(found) <= _MOST_PARTS:
        way = _WAYS.get(cls) or _WAYS.setdefault(cls, lambda: _find_way(value))
        content, below = _apart(value, way, reads)
        is_shown = way == "identity" or not (way in _OBJECTS or isinstance(content, ById))
        found.append((path, (cls, content), value if is_shown else MISSING))
        for step, each in below:
            _read(each, path + step, reads, found, (*above, id(value)))


def _apart(value: Any, way: str, reads: Callable[[str], bool]) -> tuple[Any, list[Part]]:
    """Return what a value is but for its parts, and the parts."""
    cls: Any = type(value)
    if way in ("identity", "opaque") or (way == "array" and value.nbytes > _MOST_BYTES):
        return ById(value), []
    if cls is tuple or cls is list:
        kinds = tuple(map(type, value))
        if _PLAIN.issuperset(kinds):
            return (kinds, *value), []
        return kinds, [(f"[{place}]", each) for place, each in enumerate(value)]
    if way == "treedef":  # JAX compares neither classes of dataclasses nor types of statics
        nodes = [node for node in value.__getstate__()[1] if node[3] is not None]
        below = [(".node_data()", node[2]) for node in nodes]
        return (value, *[node[3] for node in nodes]), below
    if way in _OBJECTS:
        fields, pairs = record_fields(cls), list(stored_attributes(value).items())
        if fields is not None:
            pairs = [(name, getattr(value, name, MISSING)) for name in fields]
        below = [(f".{name}", each) for name, each in pairs if way == "record" or reads(name)]
        itself = compares_by_identity(cls) and ById(value)
        return (itself, *[step for step, _ in below]), below
    kind = kind_of(value)
    content, below = (kind.attributes[0] if kind.attributes else kind).read(value)
    if not kind.is_ordered:
        return (*content, frozenset(content_of([each], reads) for _, each in below)), []
    keys = [each for step, each in below if step.startswith(" key ")]  # they have no path
    return (*content, *content_of(keys, reads)), below[len(keys) :]


_WAYS: Final[ClassMap[str]] = ClassMap()
_OBJECTS: Final = ("object", "record")


def _find_way(value: Any) -> str:
    """Return how values of a class are read."""
    cls: Any = type(value)
    name = kind_of(value).name
    if issubclass(cls, (*_UNCHANGING, jax.Array)):
        return "identity"
    if name not in _OBJECTS:
        return name
    if cls is PyTreeDef:
        return "treedef"
    if is_installed_module(module_of(cls)) and compares_by_identity(cls):
        return "opaque"
    return "record" if is_frozen(cls) else "object"


# Where a capture is assigned: a variable is looked for in the bytecode, which knows its scope,
# attributes and items in the source.

_MOST_LINES: Final = 8


@functools.lru_cache(maxsize=256)
def assignments(name: str, reader: str) -> tuple[str, ...]:
    """Return the lines of user code that assign something, or change it in place."""
    text, files = name.partition(" (")[0], [reader]
    *owner, own = _names(text)
    if not own.isidentifier():
        return ()
    if owner:
        modules = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
        files += [each for each in modules if isinstance(each, str) and is_users_file(each)]
    found: list[str] = []
    for file in dict.fromkeys(files):
        try:
            source = Path(file).read_bytes()
            if own.encode() not in source:
                continue
            tree, code = ast.parse(source), compile(source, file, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            continue
        lines = {node.lineno for node in ast.walk(tree) if _changes(node, owner, own)}
        if text == own or [Path(file).stem] == owner:
            lines.update(_variable_stores(code, own))
        found += [f"{short_file(file)}:{line}" for line in sorted(lines)]
    return tuple(found[:_MOST_LINES])


def _names(text: str) -> list[str]:
    """Return the last two names of an expression: ``self.layers[0]`` has ``self, layers``."""
    return re.sub(r"\[.*?\]", "", text).split(".")[-2:]


def _changes(node: ast.AST, owner: list[str], own: str) -> TypeGuard[ast.expr]:
    """Return whether code assigns an attribute or an item, or changes it in place."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            names = _names(ast.unparse(node))
        case ast.Subscript(value, ctx=ast.Store() | ast.Del()):
            names = _names(ast.unparse(value))
        case ast.Call(ast.Attribute(value, method)) if method in MUTATORS:
            names = _names(ast.unparse(value))
        case _:
            return False
    is_near = names[:-1] == owner or {"self", "cls"} & {*names[:-1], *owner}
    return names[-1:] == [own] and len(names) == 1 + len(owner) and bool(is_near)


def _variable_stores(code: types.CodeType, name: str) -> Iterator[int]:
    """Yield the lines that assign a variable of a module, or one that inner functions read."""
    stores = {"STORE_GLOBAL", "STORE_DEREF", *(["STORE_NAME"] * (code.co_name == "<module>"))}
    for each in dis.get_instructions(code):
        if each.opname in stores and each.argval == name and each.positions is not None:
            yield each.positions.lineno or 0
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _variable_stores(inner, name)
