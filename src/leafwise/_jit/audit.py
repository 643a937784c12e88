"""Comparing each call of a jitted function with the program that answers it, types and all.

JAX compares statics by ``==``: a program that was made for ``True`` answers for ``1``. What a call
is made of is looked up by the identity of its statics; it is recorded and compared as in a trace
only where that is new.
"""

import dis
import functools
import inspect
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
from jax.tree_util import PyTreeDef

from leafwise._compare.diff import diff
from leafwise._compare.reasons import Outcome, Reason
from leafwise._jax.events import ignore_events
from leafwise._jit.blocks import StaleCapture
from leafwise._jit.jit import JAX_JIT, StaleCheckedFunction
from leafwise._jit.programs import ProgramLog
from leafwise._objects.call_site import Site, short_file, site_of, user_frame
from leafwise._objects.code import is_users_file
from leafwise._objects.text import Verbatim, shorten

_ANSWERED: Final = (Outcome.REUSE, Outcome.DISPATCH, Outcome.RECOMPILE)
_PLAIN: Final = frozenset({int, str, bool, bytes, type(None)})
_MOST_KNOWN: Final = 4096


class WrongProgram(NamedTuple):
    """A call that was answered by a program made for another value.

    Attributes:
        text: What was called, and both values.
        site: The line that called.
        replayed: What a fresh trace of the call gave; empty if it was not made.
    """

    text: str
    site: Site | None
    replayed: str = ""

    def __str__(self) -> str:
        """Return ``step answered for `config.flag=True`, but got `1` (int)``."""
        return f"{self.text}{self.replayed}"


class Audit:
    """Compares the calls of all functions that it is given.

    Args:
        note: Takes what was answered by another program, in each such call.
        replays: Whether to trace such a call afresh, and to compare the results.

    Attributes:
        calls: How many calls were compared.
        seconds: How long that took.
    """

    def __init__(self, note: Callable[[WrongProgram], None], *, replays: bool = False) -> None:
        self.note = note
        self.replays = replays
        self.calls = 0
        self.seconds = 0.0
        self._here = threading.local()

    def function(self, jitted: StaleCheckedFunction) -> "AuditedFunction":
        """Return a jitted function, each call of which is compared."""
        return AuditedFunction(jitted, self)

    def call(self, calls: "_Calls", inner: Callable[[], Any]) -> Any:
        """Make a call; what it captured and finds stale is noted in `add_stale`."""
        before: _Calls | None = getattr(self._here, "calls", None)
        self._here.calls = calls
        try:
            return inner()
        finally:
            self._here.calls = before

    def add_stale(self, found: Iterable[StaleCapture]) -> None:
        """Add captures for whose old values the call that is being made is answered."""
        calls: _Calls | None = getattr(self._here, "calls", None)
        for each in found:
            changed = f", which is {each.after} now"
            if lines := assignments(each.name, each.line.rpartition(":")[0]):
                changed += f" (assigned at {', '.join(lines)})"
            if calls is not None and calls.previous is not None:
                changed += f"; the call before it was at {_format(calls.previous)}"
            text = f"{each.function} answered for `{each.name}={each.before}`{changed}"
            if calls is None:
                self.note(WrongProgram(text, each.call))
            else:
                calls.found.append(WrongProgram(text, each.call))


def _format(site: Site) -> str:
    return f"{short_file(site.file)}:{site.line}"


@functools.lru_cache(maxsize=256)
def assignments(name: str, reader: str) -> tuple[str, ...]:
    """Return the lines of the user's code that assign a name, an attribute, or a key.

    Args:
        name: As the code spells it: ``rate``, ``config.rate``, ``config['rate']``.
        reader: The file of the code that reads it: only there a name alone is the same variable.
    """
    last = name.rpartition(".")[2]
    start, bracket, rest = last.partition("[")
    key = rest.rstrip("]").strip("'\"") if bracket else None
    is_variable = not bracket and "." not in name
    found: list[str] = []
    for file in [reader] if is_variable else _users_files():
        try:
            todo = [compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)]
        except (OSError, SyntaxError, ValueError):
            continue
        while todo:
            code = todo.pop()
            todo += [each for each in code.co_consts if isinstance(each, types.CodeType)]
            stores = _stores(code, is_item=bool(bracket), is_variable=is_variable)
            before, line = None, 0
            for each in dis.get_instructions(code):
                if each.positions is not None and each.positions.lineno is not None:
                    line = each.positions.lineno
                wanted = str(before) == key if bracket else each.argval == start
                if each.opname in stores and wanted:
                    found.append(f"{short_file(file)}:{line}")
                before = each.argval
    return tuple(dict.fromkeys(sorted(found)))[:_MOST_LINES]


def _stores(code: types.CodeType, *, is_item: bool, is_variable: bool) -> tuple[str, ...]:
    """Return the instructions that assign what is looked for, in one piece of code."""
    if is_item:
        return ("STORE_SUBSCR",)
    is_module = code.co_name == "<module>"
    if is_variable:
        return ("STORE_GLOBAL", "STORE_DEREF", *(["STORE_NAME"] if is_module else []))
    # A class is filled by its body; `module.rate` by the module.
    return ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME")


_MOST_LINES: Final = 8


def _users_files() -> list[str]:
    files = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    return [each for each in files if isinstance(each, str) and is_users_file(each)]


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


class _Calls:
    """The calls of one function: what is known of those with the same statics and avals."""

    def __init__(self, audit: Audit, log: ProgramLog) -> None:
        self.inner: Any = None
        self.found: list[WrongProgram] = []
        self.previous: Site | None = None
        self._audit = audit
        self._log = log
        self._known: dict[Any, tuple[Any, tuple[Reason, ...]]] = {}
        self._programs = 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compare a call, and make it."""
        __tracebackhide__ = True
        audit, start, self.found = self._audit, time.perf_counter(), []
        frame = user_frame(inspect.currentframe())
        try:
            self._compare(args, kwargs, frame)
        except Exception:  # noqa: BLE001  # code of the values' own classes: the call says it better
            self._known.clear()
        audit.calls += 1
        audit.seconds += time.perf_counter() - start
        result = audit.call(self, functools.partial(self.inner, *args, **kwargs))
        self.previous = site_of(frame)
        found, self.found = self.found, []
        if found:
            replayed = self._replay(args, kwargs, result) if audit.replays else ""
            for each in found:
                audit.note(each._replace(replayed=replayed))
        return result

    def _replay(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> str:
        """Return what a fresh trace of a call says of its result."""
        callee = self._log.callee

        def fresh(*args: Any, **kwargs: Any) -> Any:
            return callee.fun(*args, **kwargs)

        statics = callee.statics
        try:
            with ignore_events():
                jitted: Any = JAX_JIT(
                    fresh, static_argnums=statics.numbers, static_argnames=statics.names
                )
                different = diff(result, jitted(*args, **kwargs), values=True)
        except Exception as error:  # noqa: BLE001  # donated arguments, or the user's own code
            return f"; not replayed: {type(error).__name__}"
        if not different:
            return "; the answer is right"
        return f"; wrong answer: {shorten(Verbatim(different[0]), 120)}"

    def _compare(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], frame: types.FrameType | None
    ) -> None:
        log = self._log
        if len(log.programs) != self._programs or len(self._known) > _MOST_KNOWN:
            self._known.clear()  # another program may answer now
            self._programs = len(log.programs)
        statics = log.callee.statics
        key = _Key()
        numbers = statics.resolved(len(args))
        key.add_call(args, kwargs, numbers, statics.names)
        found = self._known.get(parts := tuple(key.parts))
        if found is None:
            explained = log.explain(log.callee.record(args, kwargs))
            answered = explained.nearest is not None and explained.outcome in _ANSWERED
            found = key.kept, explained.unsound if answered else ()
            self._known[parts] = found
        for reason in found[1]:
            before, after = _words(reason)
            text = f"{log.name} answered for `{reason.path}={before}`, but got {after}"
            self.found.append(WrongProgram(text, site_of(frame)))


def _words(reason: Reason) -> tuple[str, str]:
    before, after = (
        str(each) if isinstance(each, Verbatim) else shorten(each, 60)
        for each in (reason.before, reason.after)
    )
    one, other = type(reason.before).__qualname__, type(reason.after).__qualname__
    return before if before != after else f"{before} ({one})", f"`{after}` ({other})"


class _Key:
    """What a call is made of, by identity where values are not plain: fast to make and to compare.

    Attributes:
        parts: Types, avals and identities.
        kept: The objects whose identities are among them, which must live as long.
    """

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.kept: list[Any] = []

    def add_call(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        numbers: frozenset[int],
        names: Sequence[str],
    ) -> None:
        """Add the arguments of a call."""
        dynamic: list[Any] = []
        for place, each in enumerate(args):
            if place in numbers:
                self._add_value(each)
            else:
                dynamic.append(each)
        for name in sorted(kwargs):
            self.parts.append(name)
            if name in names:
                self._add_value(kwargs[name])
            else:
                dynamic.append(kwargs[name])
        leaves, treedef = jax.tree.flatten(dynamic)
        self._add_treedef(treedef)
        for leaf in leaves:
            aval = getattr(leaf, "aval", None)
            if aval is None:
                dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
                aval = type(leaf), dtype, shape
            self.parts.append(aval)

    def _add_treedef(self, treedef: Any) -> None:
        todo = [treedef]
        while todo:
            node = todo.pop()
            data = node.node_data()
            if data is not None:
                self.parts.append(data[0])
                self._add_value(data[1])
                todo += node.children()

    def _add_value(self, value: Any) -> None:
        kind = type(value)
        self.parts.append(kind)
        if kind in _PLAIN:
            self.parts.append(value)
        elif kind is float:
            self.parts.append(value.hex())  # 0.0 is not -0.0
        elif kind in (tuple, list):
            self.parts.append(len(value))
            for each in value:
                self._add_value(each)
        elif kind is PyTreeDef:
            self._add_treedef(value)
        else:
            self.parts.append(id(value))
            self.kept.append(value)
