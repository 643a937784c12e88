"""Recording what JAX does, and why, in a process of a script: one record for each event.

A record is made during the event, and holds text and numbers only, so that no object of the
script is kept alive. `leafwise.cli.recorded` reads the records.
"""

import ast
import atexit
import contextlib
import dataclasses
import functools
import inspect
import os
import platform
import re
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from leafwise._captures.captures import captures
from leafwise._captures.reads import describe_changes
from leafwise._compare.changes import definition_of, owner_of
from leafwise._compare.fixes import Cause, once, recreated_function
from leafwise._findings.json import to_json
from leafwise._findings.reasons import Act, Advice, Explanation, Fix, Outcome, Reason, ReasonKind
from leafwise._findings.records import EventRecord, SiteRecord, StaleCaptureRecord, line_of
from leafwise._jax.compat import left_out, shows_no_reasons
from leafwise._jax.context import install_trace_context
from leafwise._jax.events import EventKind, ignore_events
from leafwise._jax.exchanges import watch_exchanges
from leafwise._jax.stack import outer_call
from leafwise._jit.audit import Audit
from leafwise._jit.blocks import (
    CaptureChecks,
    StaleAction,
    StaleCapture,
    current_block,
    switch_block,
)
from leafwise._jit.callee import code_id, definition
from leafwise._jit.jax_errors import section_for
from leafwise._jit.jit import AUDITS, jit_with_log
from leafwise._jit.jitted_call import jit_once_fix, name_in
from leafwise._jit.outside import SeenFunction
from leafwise._jit.programs import ProgramEntry
from leafwise._jit.recorder import Event, follow_functions, unwatch_events, watch_events
from leafwise._jit.watch import unwrapped
from leafwise._objects.interrupts import or_default
from leafwise._objects.source.call_site import (
    Site,
    defined_by,
    inner_frame,
    is_users_file,
    position_of,
    run_of,
    site_of,
    user_frame,
)
from leafwise._objects.source.loops import marked_line
from leafwise._objects.stand_ins import MISSING
from leafwise._statics.account import WeakId
from leafwise.cli.call_costs import CallCosts
from leafwise.cli.program_recorder import ProgramRecorder, writing_faults
from leafwise.cli.start_ups import CallCounts, levels_of
from leafwise.errors import message_of


def start(
    folder: str,
    write_in: Callable[..., None],
    options: Mapping[str, Any],
    runs_old_text: Callable[[str], bool],
) -> None:
    """Record everything JAX does in this process in a folder, with the command's options."""
    write = functools.partial(write_in, folder)
    command = " ".join(sys.orig_argv[1:])
    write(jax=jax.__version__, python=platform.python_version(), began=time.time(), command=command)
    recorder = Recorder(write, runs_old_text, **options)
    recorder.start()
    atexit.register(_note_end, write, recorder, os.getpid())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.forget)


def _note_end(write: Callable[..., None], recorder: "Recorder", process: int) -> None:
    """Record when the process ended, and with which error, from ``sys.last_exc``."""
    if os.getpid() != process:
        return
    recorder.note_end()
    write(ended=time.time())
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        write(error=first_line(error), docs=section_for(error))


def first_line(error: BaseException) -> str:
    """Return the class of an error and the first line of its message."""
    text = f"{type(error).__name__}: {message_of(error)}"
    lines = re.match(r"(?:.*[:;]\n\s*)*.*", text)  # also the line after "They differ:"
    return " ".join(lines[0].split()) if lines else text


class Recorder(CaptureChecks):
    """Records events, and for functions of `jax.jit` why they happened and what is stale."""

    def __init__(
        self,
        write: Callable[..., None],  # writes a record, given as keyword arguments
        runs_old_text: Callable[[str], bool] = lambda _: False,  # of a file that `--try` edited
        *,
        captures: bool = False,
        audit: bool = False,
        programs: bool = False,
        exact: bool = False,
        **_: object,  # those that only the command needs
    ) -> None:
        super().__init__(StaleAction.IGNORE, is_exact=exact)
        self.most = 2
        self._write, self._runs_old_text = write, runs_old_text
        self._programs = ProgramRecorder(write, is_whole=programs)
        self._costs = CallCosts(write)
        self._audit = Audit(self._note_wrong) if audit else None
        self._wrong: Counter[tuple[str, str]] = Counter()
        self._seen: dict[Any, tuple[tuple[SeenFunction, SeenFunction], dict[str, Any]]] = {}
        # By code and inputs: the first function, which may be gone, and where it was called.
        self._by_package: dict[Any, tuple[Callable[[], Any], Any]] = {}
        self._owners: dict[types.CodeType, str] = {}
        self._calls = CallCounts()
        self._without_jit: SiteRecord | None = None
        self._lists_captures = captures
        self._around: CaptureChecks | None = None  # `leafwise explain` of a notebook with magics
        self._written = set[Any]()
        self._left_out = dict[str, str]()
        self._original: Callable[..., Any] = jax.jit
        self._unwatch: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start: from now on each call of a jitted function is compared with earlier ones."""
        install_trace_context()  # before the script compiles anything
        follow_functions(on=True)
        if self._lists_captures or self._audit is not None:
            self._check_calls()
        if self._audit is not None:
            AUDITS.append(self._audit.calls_of)
            self._unwatch = watch_exchanges(self._audit.add_exchange)
        watch_events(self._record)

    def list_captures(self) -> bool:
        """List captures and check what is jitted from now on; return whether that is new."""
        if is_new := not self._lists_captures:
            self._check_calls()
        self._lists_captures = True
        return is_new

    def _check_calls(self) -> None:
        self._around = current_block()
        namespace: Any = jax
        namespace.jit = self._checked_jit()
        switch_block(self, is_on=True)

    def stop(self) -> None:
        """Stop, and restore `jax.jit`."""
        unwatch_events(self._record)
        self._programs.stop()
        switch_block(self, is_on=False)
        self._unwatch()
        AUDITS.clear()
        follow_functions(on=False)
        namespace: Any = jax
        namespace.jit = self._original

    def forget(self) -> None:
        """Forget what was recorded so far, as in a forked process."""
        self._left_out = {}

    def _note_wrong(self, text: str, site: Site | None) -> None:
        key = line_of(site), text
        self._wrong[key] += 1
        if self._wrong[key] == 1:  # not again for each iteration of a loop
            self._write(wrong={"call": key[0], "what": text, "times": 1})

    def note_end(self) -> None:
        """Record what was counted: calls, those compared, and how often each was wrong."""
        self._calls.write(self._write)
        if self._audit is None:
            return
        for (call, text), times in self._wrong.items():
            self._write(wrong={"call": call, "what": text, "times": times})
        totals = {"calls": self._audit.calls, "seconds": self._audit.seconds}
        self._write(audited=totals | {"found": []})

    def _checked_jit(self) -> Callable[..., Any]:
        original = self._original

        @functools.wraps(original)
        def checked(*args: Any, **options: Any) -> Any:
            if not args:
                return functools.partial(checked, **options)
            if len(args) == 1 and callable(args[0]):
                return jit_with_log(args[0], options, StaleAction.IGNORE)
            return original(*args, **options)

        return checked

    def _record(self, event: Event) -> None:
        """Record an event; an error in here never reaches the script."""
        if event.is_inner and event.kind is EventKind.TRACE and event.program is not None:
            return  # JAX does not report this trace, which is part of the enclosing one
        with writing_faults(self._write, event.name), ignore_events():
            if event.kind is EventKind.COMPILE:
                seconds = max(event.seconds - self._programs.spent(), 0.0)
                event = dataclasses.replace(event, seconds=seconds)
            if event.site is not None and self._runs_old_text(event.site.file):
                self._write(fault=f"{os.path.realpath(event.site.file)} ran without the edit")
            record = self._event(event)
            self._programs.note(event, record)
            if record.eager and event.kind is EventKind.COMPILE:
                self._calls.follow(record)
            self._write(event=to_json(record))
            is_trace = event.kind is EventKind.TRACE and not event.eager
            if is_trace and not event.is_inner:
                self._costs.note(event, user_frame(outer_call(inspect.currentframe())))
            if self._lists_captures and is_trace and event.fun is not None:
                captured = captures(event.fun).own().record()
                captured.function = event.name
                self._write(captures=to_json(captured), owner=code_id(event.fun))
            if (lost := left_out()) != self._left_out:
                self._left_out = lost
                self._write(left_out=lost)
            if event.kind is EventKind.COMPILE:
                self._programs.record(event)

    def _event(self, event: Event) -> EventRecord:
        """Return the record of an event; the first event of a program has its explanation."""
        site, why, program = event.site, event.explanation, event.program
        frame = user_frame(outer_call(inspect.currentframe()))
        # Without a call, the name shows what JAX was doing.
        is_eager = event.eager and (event.fun is not None or not shows_no_reasons())
        file, line = ("", 0) if is_eager else definition(event.fun)
        is_repeat = why is not None and why.nearest is not None
        culprit = self._culprit(why, site) if why is not None and is_repeat else None
        recreated, reasons = "", tuple[Reason, ...]()
        earlier = None if program is None or program.earlier == site else program.earlier
        if program is not None:
            if why is not None and file and not is_repeat:
                known = self._made_by_package(event, program, frame)
                recreated, reasons = known or self._recreated(event, program)
            if why is not None and not program.ran:  # it never ran before
                why = dataclasses.replace(why, nearest=None)
        return EventRecord(
            kind="cache hit" if event.cached else event.kind.value,
            name=event.name,
            eager=is_eager,
            start=event.time - event.seconds,
            seconds=event.seconds,
            process="",
            thread=event.thread,
            site=SiteRecord.of(site),
            explanation=Explanation(Outcome.RETRACE, reasons) if reasons else why,
            defined=f"{file}:{line}" if file else "",
            via=line_of(event.via),
            role="" if program is None else " ".join(program.role),
            run=event.run,
            recreated=recreated,
            inner=event.is_inner,
            miss=event.miss,
            call=position_of(frame) if frame and site and frame.f_lineno == site.line else None,
            levels=levels_of(inspect.currentframe()) if event.kind is EventKind.COMPILE else [],
            culprit=culprit,
            callers=list(_callers(frame)) if is_eager and is_repeat else [],
            earlier=line_of(earlier),
            expected=_expected(frame),
        )

    def _culprit(self, why: Explanation, site: Site | None) -> SiteRecord | None:
        """Return the line that caused a repeat, if it is not the line of the call."""
        causes = {reason.cause: reason for reason in why.reasons}
        if Cause.JIT_IS_OFF in causes:
            self._without_jit = self._without_jit or SiteRecord.of(site)
            return self._without_jit
        cleared = causes.get(Cause.CLEARED_BY_CALL)
        return None if cleared is None else SiteRecord.of(cleared.details)

    def _made_by_package(
        self, event: Event, program: ProgramEntry, frame: types.FrameType | None
    ) -> tuple[str, tuple[Reason, ...]] | None:
        """Return how a package jits a function again for equal arguments; None if the user does."""
        fun: Any = event.fun
        caller, code = inner_frame(inspect.currentframe()), getattr(fun, "__code__", None)
        if caller is None or code is None or hasattr(fun, "__self__"):  # it lives with its object
            return None
        if is_users_file(code.co_filename) or is_users_file(caller.f_code.co_filename):
            return None
        run = None if frame is None else run_of(frame)
        key: Any = _definition_of(fun), program.role, program.place
        first = WeakId(fun).find, (event.site, run)
        find, where = self._by_package.setdefault(key, first)
        # In one call, a package may jit a function for each layer.
        if find() is fun or (run is not None and where == first[1]):
            return "", ()
        package = str(caller.f_globals.get("__name__")).partition(".")[0]
        change = f"`{caller.f_code.co_name}` of {package} defines and jits it in each call"
        if is_users_file(unwrapped(fun).__code__.co_filename):  # wrapped by whomever
            change = f"jitted in {package}, under a new transformation in each call"
        facts = event.name, ReasonKind.FUNCTION, Outcome.RETRACE, MISSING, MISSING
        return "made by a package", (Reason(*facts, Advice(change, jit_once_fix(frame))),)

    def _recreated(self, event: Event, program: ProgramEntry) -> tuple[str, tuple[Reason, ...]]:
        """Return how a function was recreated, if one of its definition was called before."""
        fun: Any = event.fun
        plain = unwrapped(fun)
        owner, code = owner_of(plain).rpartition(".")[2], plain.__code__
        key: Any = _definition_of(fun), program.role
        of_line = *key, event.site
        with contextlib.suppress(TypeError):  # an unhashable static
            key = *key, program.place
        functions = SeenFunction(fun), SeenFunction(plain)
        leaves = {} if program.signature is None else program.signature.leaves
        shapes = {path: leaf.shape for path, leaf in leaves.items()}
        known, is_on_line = self._seen.get(key) or self._seen.get(of_line), of_line in self._seen
        self._seen[key] = self._seen[of_line] = functions, shapes
        facts = event.name, ReasonKind.FUNCTION, Outcome.RETRACE, MISSING, MISSING
        if known is None and owner and self._owners.setdefault(code, owner) != owner:  # no repeat
            return "", (Reason(*facts, Advice(f"a method of another class, {owner}")),)
        (before, plain_before), earlier = known or (functions, shapes)
        is_same, is_method = before.is_same(functions[0]), hasattr(fun, "__self__")
        if is_same and not (is_on_line and is_method):
            return "", ()  # JAX finds the programs of a method only while one object of it lives
        is_in_module = event.site is not None and event.site.function == "<module>"
        recreated, how = "new", once(is_in_module=is_in_module)
        changes = describe_changes(before.captured, functions[0].captured)
        function = fun if is_method else plain
        function = getattr(function, "__func__", function) if is_same else function
        advice = recreated_function(function, changes)
        if plain_before.is_same(functions[1]) and (is_same or not is_method):
            if not changes:
                recreated = "transformed again"
                change = f"`{_wrapper_of(code) or 'jax.jit'}(...)` creates a new function each time"
                advice = Advice(change, Fix(f"make it {how}", Act.DEFINE_ONCE))
        elif not (changes or "<" in code.co_qualname or owner or is_method):
            recreated = "defined again"
            change = f"defined again{' in this cell' * _is_in_cell(code)}, with the same code"
            advice = Advice(change, Fix("run its definition once", Act.DEFINE_ONCE))
        elif not changes and advice.fix.act is Act.DEFINE_ONCE:
            wrapper = _wrapper_of(code)
            words = f"define it, and call `{wrapper}`," if wrapper else "define and jit it"
            advice = advice._replace(fix=Fix(f"{words} {how}", Act.DEFINE_ONCE))
        if not (is_same or is_users_file(code.co_filename)):  # the user cannot change it
            advice = Advice(f"a method of another `{owner}`" if owner else advice.change)
        resized = [
            Reason(path, ReasonKind.SHAPE, Outcome.RETRACE, earlier[path], shape, Cause.SHAPE)
            for path, shape in shapes.items()
            if earlier.get(path, shape) != shape
        ]
        # It may be intended for two sizes.
        return "new" if resized else recreated, (Reason(*facts, advice), *resized)

    def note(self, owner: int, stale: list[StaleCapture]) -> None:
        """Record the stale captures that a call found, each once."""
        if self._around is not None:
            self._around.note(owner, stale)
        if self._audit is not None:
            self._audit.add_stale(stale)
        for capture in stale if self._lists_captures else ():
            line, call = capture.line, line_of(capture.call)
            texts = capture.name, capture.reader, line, capture.before, capture.after, call
            if (key := (owner, *texts)) not in self._written:
                self._written.add(key)
                self._write(stale=to_json(StaleCaptureRecord(*texts)), owner=owner)


@or_default("")  # a source that cannot be read
def _wrapper_of(code: types.CodeType) -> str:
    """Return the `jit` around a function, as its source spells it: ``nnx.jit``; "" if not seen."""
    tree, function = defined_by(code, code.co_filename)
    jits = set(map(ast.unparse, filter(_is_jit, getattr(function, "decorator_list", ()))))
    for call in ast.walk(tree) if not jits else ():
        if isinstance(call, ast.Call) and _is_jit(call.func):
            parts = [part for argument in call.args for part in ast.walk(argument)]
            if function in parts or code.co_name in (getattr(part, "id", "") for part in parts):
                jits.add(ast.unparse(call.func))
    return jits.pop() if len(jits) == 1 else ""


def _is_jit(node: Any) -> bool:
    if isinstance(node, ast.Call):  # `partial(jax.jit, static_argnums=1)`, `nnx.jit(donate=0)`
        inner = node.args[:1] if name_in(node.func) == "partial" else [node.func]
        return any(map(_is_jit, inner)) and (inner != [node.func] or not node.args)
    return name_in(node).endswith("jit")


def _callers(frame: types.FrameType | None) -> Iterator[SiteRecord]:
    while frame is not None and (frame := user_frame(frame.f_back)) is not None:
        if (record := SiteRecord.of(site_of(frame))) is not None:
            yield record


def _expected(frame: types.FrameType | None) -> str:
    """Return the line that marks what a call leads to as expected, or an empty string."""
    while frame is not None and (frame := user_frame(frame)) is not None:
        file = frame.f_code.co_filename
        start, _, end, _ = position_of(frame) or [frame.f_lineno] * 4
        if line := marked_line(file, start, end):
            return f"{file}:{line}"
        frame = frame.f_back
    return ""


def _is_in_cell(code: types.CodeType) -> bool:
    return str(Site(code.co_filename, code.co_firstlineno, "")).startswith("Cell In[")


def _definition_of(fun: Any) -> Any:
    """Return a key shared by all functions of a definition, also if its cell is run again."""
    code: types.CodeType | None = getattr(fun, "__code__", None)
    if code is None or "<" in code.co_qualname or not _is_in_cell(code):
        return definition_of(fun)
    return code.replace(co_firstlineno=1), owner_of(fun)
