"""Compares each call of a jitted function with the program that answers it, types included.

JAX compares statics by ``==`` and by their current content: a program traced for ``True`` answers
for ``1``, and one traced for a list answers for that list after it changed.
"""

import contextlib
import dataclasses
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from leafwise._captures.reads import Traced, differing, value_change
from leafwise._compare.diff import compare
from leafwise._compare.signature import Signature
from leafwise._findings.reasons import ReasonKind
from leafwise._jax.events import ignore_events
from leafwise._jax.exchanges import MakeTree
from leafwise._jax.frames import exclude_file
from leafwise._jit.blocks import StaleCapture
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._objects.describe import describe_value
from leafwise._objects.locks import new_lock
from leafwise._objects.source.call_site import Site, site_of
from leafwise._statics.account import Held, PartToken, Path, account_of

exclude_file(__file__)  # errors show the same frames as without the audit

_MOST_KNOWN: Final = 1024


class Audit:
    """Compares the calls of all functions that it is given, and reports wrong answers to `note`."""

    def __init__(self, note: Callable[[str, Site | None], None]) -> None:
        self.note = note
        self.calls = 0
        self.seconds = 0.0
        self.lock = new_lock()

    def calls_of(self, log: ProgramLog) -> "AuditedCalls":
        """Return an object that makes the calls of a jitted function, and compares each."""
        log.note_trace = note_statics
        return AuditedCalls(self, log)

    def add_stale(self, captures: Iterable[StaleCapture]) -> None:
        """Report the captures whose old values answer the current call."""
        for capture in captures:
            before = f"{capture.name}={capture.before}" if capture.name else capture.before
            answered = f"{capture.function} answered for `{before}`"
            self.note(f"{answered}, which is {capture.after} now", capture.call)

    def add_exchange(
        self, operation: str, branches: list[str], make_before: MakeTree, make_after: MakeTree
    ) -> None:
        """Report classes and statics of one branch that `cond` or a loop used for another."""
        try:
            with ignore_events():
                label = "out" if branches else "carry"
                reasons = compare(label, make_before(), make_after())
        except Exception:  # noqa: BLE001  # code of user classes
            return
        site = site_of(inspect.currentframe())
        of, other = (f" of {branches[0]}", branches[1]) if branches else ("", "its body")
        for reason in reasons:
            if reason.kind in (ReasonKind.STATIC, ReasonKind.CLASS, ReasonKind.STRUCTURE):
                before, after = reason.words
                answered = f"{operation} answered for `{reason.path}={before}`{of}"
                self.note(f"{answered}, but {other} returned `{after}`", site)


@dataclasses.dataclass(eq=False)
class AuditedCalls:
    """The calls of one function, with the findings for those with equal statics and avals."""

    audit: Audit
    log: ProgramLog
    inner: Any = None  # makes a call
    known: dict[Any, list[str]] = dataclasses.field(default_factory=dict)
    programs: int = 0  # how many there were when `known` was filled
    words: frozenset[str] = frozenset()  # in the code that they ran; all if empty

    def call(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        audit, start = self.audit, time.perf_counter()
        try:
            wrong = self._compare(args, kwargs)
        except Exception:  # noqa: BLE001  # user code: the call reports it better
            wrong = []
        with audit.lock:
            audit.calls += 1
            audit.seconds += time.perf_counter() - start
        for text in wrong:
            audit.note(text, site_of(inspect.currentframe()))
        try:
            return self.inner(*args, **kwargs)
        except BaseException as error:  # a user's function
            # In a printed traceback, the script's own line comes first, and then JAX.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Return a line for each static whose value differs in the program that answers a call."""
        log = self.log
        if len(log.programs) != self.programs or len(self.known) > _MOST_KNOWN:
            self.known.clear()  # another program may answer now
            self.programs = len(log.programs)
            words = [program.statics[0] for program in list(log.programs) if program.statics]
            self.words = frozenset[str]().union(*words) if all(words) else frozenset()
        signature = log.callee.record(args, kwargs)
        statics = _statics(signature, self.words)
        key = signature, *(tuple(each.account.items()) for each in statics.values())
        if key not in self.known:
            program = log.trace_for(signature)
            self.known[key] = list(_changes(log.name, program, statics))
        return self.known[key]


# The parts of statics, which are kept and compared like those of captures.

_READS_ANY: Final = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "fields"})


def note_statics(program: ProgramEntry) -> None:
    """Keep the statics of a program after its trace: of objects, the parts that it may read."""
    observation = program.observation
    words = frozenset[str]() if observation is None else observation.words
    words = frozenset() if observation is None or words & _READS_ANY else words | {""}
    if program.signature is not None:
        with contextlib.suppress(Exception):  # user code
            program.statics = words, _statics(program.signature, words)


def _statics(call: Signature, words: frozenset[str]) -> dict[str, Traced]:
    found = {
        path: Traced({(): PartToken(cls, cls)}, cls.__name__) for path, cls in call.classes.items()
    }
    for path, value in call.all_statics.items():
        found[path] = Traced(account_of(value, words), describe_value(value))
    return found


def _changes(
    name: str, program: ProgramEntry | None, statics: Mapping[str, Traced]
) -> Iterator[str]:
    """Yield a line for each static whose value differs between a program and a call."""
    traced = {} if program is None or program.statics is None else program.statics[1]
    for path in traced.keys() & statics.keys():
        was, now = traced[path], statics[path]
        if any(_is_compared(part, was, now) for part in differing(was.account, now.account)):
            step, before, after = value_change(was, now)
            way = "".join(map(str, (path, *step)))
            yield f"{name} answered for `{way}={before}`, but got `{after}`"


def _is_compared(part: Path, was: Traced, now: Traced) -> bool:
    """Return whether a part is compared by content: not what is large, or held by a function."""
    tokens = was.account.get(part), now.account.get(part)
    is_large = all(each is not None and each.is_by_identity for each in tokens)
    # The trace has read what a function holds.
    return not is_large and not any(isinstance(step, Held) for step in part)
