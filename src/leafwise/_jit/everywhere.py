"""Checks that all processes of a program agree, before one of them waits forever.

`assert_same` compares a tree, `lw.jit(same_everywhere=True)` every trace and compile: inputs at the
start of a trace, before the function runs; the lowered program just before XLA compiles it.
Captures and JAX's configuration may differ where the program does not (a process knows its own
index), so they only explain programs that differ. Where JAX does not show its programs, they are
compared with the inputs.
"""

import contextlib
import dataclasses
import functools
import inspect
import json
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Protocol

import jax

from leafwise._findings.json import from_json, to_json
from leafwise._findings.records import LoweredRecord
from leafwise._jax.compiles import Compile, listen_to_compiles, module_of
from leafwise._jax.context import UNNAMED_CONFIG, trace_config
from leafwise._jax.events import LOCK
from leafwise._jax.processes import Processes, announce, count_of_exchanges, leave, processes
from leafwise._jax.stack import current_work, shows_work
from leafwise._jit.checked_calls import trace_afresh
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._objects.source.code import names_of
from leafwise._processes.agreement import (
    Question,
    check_timeout,
    differences_between,
    error_answer,
    list_of,
    table_differences,
)
from leafwise._programs.description import Record, differences, of_kind
from leafwise._programs.digest import DigestReader, describe, describe_call, describe_captures
from leafwise._programs.program import (
    LoweredProgram,
    Operation,
    first_differences,
    packed,
    read_program,
    unpacked,
)
from leafwise.errors import Difference, DifferentProcessesError, ProcessTimeoutError, message_of

_WIDTH: Final = 200


class Body(Protocol):
    """The function that JAX traces: `TracedBody`."""

    program_log: ProgramLog

    @property
    def callee(self) -> Any: ...


def checked_timeout(option: float) -> float | None:
    """Return the seconds to wait for other processes; None if they are not compared."""
    if isinstance(option, bool):
        return 300.0 if option else None
    check_timeout(option, "leafwise.jit(same_everywhere")
    return float(option)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.depth = 0  # how many traces of such functions this thread is in
        # The functions traced in the last one, including all inside it.
        self.traced: weakref.WeakSet[Body] = weakref.WeakSet()


_thread: Final = _Thread()
_HOOKED: Final[weakref.WeakValueDictionary[int, Body]] = weakref.WeakValueDictionary()
"""The functions whose compiles are compared, by id, in the order of their first traces."""

_LOWERED: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()
"""For each result of `lower`: the function, the id of the module, and its number for that name."""

_COUNTS: Final[Counter[str]] = Counter()


def compare_inputs(body: Body, program: ProgramEntry) -> None:
    """Compare the inputs of a trace with those of the other processes."""
    here = processes()
    if here is None or here.count == 1:
        return
    hooked = shows_work() and listen_to_compiles(_on_compile)  # the program will be compared, too
    if hooked:
        with LOCK:
            _HOOKED.setdefault(id(body), body)

    def description() -> Record:
        if program.signature is None:
            return {"": {"class": "arguments that could not be read"}}
        record, _ = describe_call(program.signature)
        return record if hooked else record | _around(body)

    with _leaving(here, body, program, f"{_name(body)} inputs") as question:
        question.check_same(description, differing)
    jax.devices()  # started by all at once: else the others wait for one that fails first


@contextlib.contextmanager
def tracing(body: Body, *, runs: bool) -> Generator[None, None, None]:
    """Skip programs that are compiled while a function is traced: they are not its own."""
    if not _thread.depth:
        _thread.traced.clear()
    _thread.depth += 1
    _thread.traced.add(body)
    try:
        yield
    except BaseException as error:  # a user's function
        if runs and _thread.depth == 1:  # the others wait for the program
            _tell(body, "", error)
        raise
    finally:
        _thread.depth -= 1


@contextlib.contextmanager
def lowering(body: Body) -> Generator[Callable[[Any], None], None, None]:
    """Compare a program lowered ahead of time once it is compiled; yield a function to note it."""
    name = _name(body)
    with LOCK:
        _COUNTS[name] += 1  # in the order of lowerings: threads may compile them in another
        number = f" {_COUNTS[name]}"

    def note(lowered: Any) -> None:
        module = module_of(lowered)
        if module is not None:
            with LOCK:
                _LOWERED[lowered] = (weakref.ref(body), id(module), number)

    try:
        yield note
    except BaseException as error:  # of JAX, as it lowers or compiles
        _tell(body, number, error)
        raise


def _tell(body: Body, lowered: str, error: BaseException) -> None:
    here = processes()
    if here is not None and here.count > 1:
        name, start = _exchange_of(here, body, lowered)
        announce(here, name, json.dumps(error_answer(error)), body.callee.timeout, start)
        _forget(body)


def _forget(body: Body) -> None:
    """Drop the programs of a function and of those traced inside it: all will trace again."""
    trace_afresh()
    for traced in {*_thread.traced, body}:
        traced.program_log.clear_caches()


def _exchange_of(here: Processes, body: Body, lowered: str) -> tuple[str, int]:
    """Return the name of the exchange of a program, and its lowest number."""
    name = _name(body)
    # A process that sent an error may reach it less often, so each trace restarts the numbers.
    count = 0 if lowered else count_of_exchanges(here, f"{name} inputs")
    return f"{name} program{lowered}", count << 20


def _name(body: Body) -> str:
    module, name = names_of(body.callee.find())
    return f"{module}:{name or body.callee.name}"


@contextlib.contextmanager
def _leaving(
    here: Processes, body: Body, program: ProgramEntry | None, name: str, start: int = 0
) -> Generator[Question, None, None]:
    """Yield a question to all; leave on a timeout, as the others may wait elsewhere."""
    head = f"{body.callee.name} (same_everywhere=True)"
    again = "has the program in its cache, or calls the function less often"
    later = "or give a longer same_everywhere=<seconds>"
    try:
        yield Question(
            here, head, name, body.callee.timeout, again, _SAME_VALUES, later=later, start=start
        )
    except ProcessTimeoutError as error:
        leave()
        why = "" if program is None else f"\n  process {here.index} traced it: {_reason(program)}"
        end = "the JAX client of this process is shut down: JAX ends the processes that wait for it"
        message = f"{message_of(error)}{why}\n  {end}"
        raise ProcessTimeoutError(message, error.missing) from error


def _reason(program: ProgramEntry) -> str:
    where = "" if program.site is None else f"{program.site}\n"
    return f"{where}{program.explanation}".replace("\n", "\n    ")


def _on_compile(compiled: Compile) -> None:
    if _thread.depth:
        return
    here = processes()
    if here is None or here.count == 1:
        return
    body, lowered = _body_of(compiled)
    if body is not None:
        program = read_program(compiled, compiled.options())
        traced = body.program_log.programs[-1] if body.program_log.programs else None
        with _leaving(here, body, traced, *_exchange_of(here, body, lowered)) as question:
            try:
                _compare_program(question, body, program)
            except DifferentProcessesError:
                _forget(body)
                raise


def _body_of(compiled: Compile) -> tuple[Body | None, str]:
    """Return the function being compiled, if it is compared, and the number of its lowering."""
    work = current_work(inspect.currentframe(), lowers=True)
    call, source = work.call, "" if work.call is not None else work.source
    fun: Any = None if call is None else call.fun
    lowered = ""
    if source:  # of a gradient, once the call has ended
        with LOCK:
            bodies = list(_HOOKED.values())
        fun = next((body for body in reversed(bodies) if _source(body) == source), None)
    elif call is None:
        with LOCK:
            known = list(_LOWERED.values())
        for body, module, number in known:
            if module == id(compiled.module):
                fun, lowered = body(), number
    timeout = getattr(getattr(fun, "callee", None), "timeout", None)
    return (None if timeout is None else fun), lowered


def _source(body: Body) -> str:
    code = getattr(inspect.unwrap(body.callee.find()), "__code__", None)
    return "" if code is None else f"{body.callee.name} at {code.co_filename}:{code.co_firstlineno}"


def _compare_program(question: Question, body: Body, program: LoweredProgram) -> None:
    """Raise in every process if they lower different programs for a function."""
    failed = "failed while tracing, so that the others do not compile"
    fix = "fix that error: the next call is traced by all"
    groups = question.groups(program.fingerprint, failed, fix)
    if len(groups) == 1:
        return

    def send(turn: int) -> dict[str, Any]:
        first = program.operations[: len(program.operations) >> turn]
        record = to_json(packed(dataclasses.replace(program, operations=first)))
        why = "".join(map(_reason, body.program_log.programs[-1:]))
        return {"program": record, "around": _around(body), "why": why}

    sent = question.sent(groups, send)
    programs = [record and unpacked(from_json(LoweredRecord, record["program"])) for record in sent]
    lines, changes = differences_between(groups, programs, _program_differences, is_shared=False)
    known = [(group, record) for group, record in zip(groups, sent, strict=True) if record]
    around, values = differences_between(
        [group for group, _ in known], [record["around"] for _, record in known], differing
    )
    if around:
        lines += ["\n  what may have caused the difference:", *around]
    if len({record["why"] for _, record in known}) > 1:
        lines += [f"\n  {list_of(group)} traced it: {record['why']}" for group, record in known]
    fix = (
        "give all processes the same values, and trace the same functions in the same order;"
        "\n  check these lines for what is not an argument: the order of a set, a clock,"
        "\n  an environment variable, a choice based on timings"
    )
    if any(path.startswith("option ") for path in changes):
        flags = "start all processes with the same versions and flags"
        fix = f"{flags}, and list devices in the same order"
    differ = "lower a different program than the others"
    raise question.error(groups, differ, fix, (lines, {**changes, **values}))


def _program_differences(one: LoweredProgram, other: LoweredProgram) -> Iterator[Difference]:
    tables = [{k: text for k, text in run.options.items() if text} for run in (one, other)]
    for name, *texts in table_differences(tables[0], tables[1], "nothing"):
        yield Difference(f"option {name}", *texts)
    for number, pair in enumerate(first_differences(one, other), 1):
        yield Difference(f"operation {number}", *map(_text, pair))


def _text(operation: Operation | None) -> str:
    text = "nothing here" if operation is None else str(operation)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH // 2]} ... {text[-_WIDTH // 2 :]}"


def _around(body: Body) -> Record:
    """Return a function's captures and JAX's configuration, as far as others can read them."""
    reader = DigestReader(in_order=True)
    record: Record = {
        f"config {name}": {"static": reader.read(value, "")}
        for name, value in trace_config()
        if name != UNNAMED_CONFIG
    }
    with contextlib.suppress(Exception):  # the user's own code
        captured, _ = describe_captures(body.callee.fun)
        record |= {f"captured {path}": entry for path, entry in captured.items()}
    return record


def assert_same(tree: Any, *, name: str = "tree", timeout: float = 300.0) -> None:
    """Check that all processes of a program have the same tree, before they compile for it.

    Call it in every process after `jax.distributed.initialize`, before the first step. Each process
    compiles for itself: if a static differs in one of them, or a loop iterates over a set in
    another order, the processes run different programs, and wait for each other until XLA gives up.

    Digests are exchanged through JAX's coordination service, without a device: classes, statics
    by type and bits, and shape, dtype and weak type of each leaf, as `leafwise.digest` has them;
    the shardings that arrays are committed to; and the iteration order of sets.

    With one process, or before `jax.distributed.initialize`, nothing is exchanged. Values without a
    digest are refused all the same.

    Args:
        tree: Any pytree: the arguments of a jitted function, or a configuration.
        name: A name for the comparison. The n-th call with a name is compared with the n-th calls
            of the others, so threads that call at the same time need different names.
        timeout: How many seconds to wait for the other processes.

    Raises:
        DifferentProcessesError: (in every process) The trees differ; it names the fields, and each
            value with the processes that have it.
        ProcessTimeoutError: Some processes did not call it in time; it names them.
        PortableError: A static means nothing to another process. The others raise a
            `DifferentProcessesError` that says so, instead of waiting.
        ValueError: The timeout is not positive.

    Examples:
        >>> jax.distributed.initialize()  # doctest: +SKIP
        >>> assert_same((params, batch), name="first step")  # doctest: +SKIP
    """
    check_timeout(timeout, "assert_same(timeout")
    here = processes()
    if here is None or here.count == 1:
        describe(tree, in_order=True)
        return
    head, root = f"assert_same({name!r})", type(tree).__name__
    again = f"does not call {head} as often as the others"
    question = Question(here, head, name, timeout, again, _SAME_VALUES)
    question.check_same(
        functools.partial(describe, tree, in_order=True), functools.partial(differing, root=root)
    )


_SAME_VALUES: Final = (
    "run the same source in all processes, with the same values: from one file, or from process 0;"
    "\n  use a sorted tuple instead of a set, whose order differs between processes"
)


def differing(one: Record, other: Record, root: str = "") -> Sequence[Difference]:
    """Return the paths where two records differ, with the text of each."""
    changes = differences(one, other, root)
    if changes or [*one] == [*other]:
        return changes
    orders = (f"{', '.join(of_kind(record, 'array'))} in this order" for record in (one, other))
    return (Difference(root, *orders),)
