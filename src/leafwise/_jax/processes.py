"""Texts exchanged between the processes of a program, and messages on how they differ.

JAX's coordination service has a key-value store, and barriers with a timeout; it has no public API,
and needs no device. Digests, which are short, are exchanged first; only if they differ does one
process of each group send more.
"""

import base64
import contextlib
import dataclasses
import itertools
import json
import math
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import jax

from leafwise._jax.compat import inside
from leafwise._objects.locks import new_lock
from leafwise.errors import DifferentProcessesError, ProcessTimeoutError, message_of

T = TypeVar("T")

_LONGEST: Final = 1e6
"""Seconds; the milliseconds of a longer time may overflow."""


class MissingError(Exception):
    """Not all processes responded in time."""

    def __init__(self, missing: tuple[int, ...] | None, detail: str) -> None:
        super().__init__(missing, detail)
        # `()`: this process itself was late. `None`: unknown which processes are missing.
        self.missing = missing
        self.detail = detail


@dataclasses.dataclass(frozen=True)
class Processes:
    index: int
    count: int
    client: Any


def processes() -> Processes | None:
    """Return the processes; None before `jax.distributed.initialize`. No backend is started."""
    if not jax.distributed.is_initialized():
        return _left
    state = inside("distributed").global_state
    return Processes(int(state.process_id), int(state.num_processes), state.client)


def exchange(
    here: Processes, name: str, text: str, timeout: float, start: int = 0
) -> dict[int, str]:
    """Return the texts of all processes by index, once all have called this with the same name.

    The n-th call with a name matches the n-th call of the others, counted from `start`.
    """
    if here is _left:
        raise MissingError(None, "its JAX client is shut down: it must be restarted")
    key, previous = _next_keys(here.client, name, start)
    try:
        here.client.key_value_set(f"{key}/{here.index}", text, allow_overwrite=True)
        here.client.wait_at_barrier(key, _milliseconds(timeout))
        texts = _read(here.client, key)
    except RuntimeError as error:  # JaxRuntimeError: the service has ended, or time is up
        missing: tuple[int, ...] | None = None
        with contextlib.suppress(RuntimeError):
            missing = tuple(sorted({*range(here.count)} - {*_read(here.client, key)}))
        raise MissingError(missing, str(error)) from error
    if previous is not None:  # all have read the previous texts, since they are here
        with contextlib.suppress(RuntimeError):
            here.client.key_value_delete(f"{previous}/{here.index}")
    return texts


def announce(here: Processes, name: str, text: str, timeout: float, start: int = 0) -> None:
    """Take part in an exchange without waiting for the others, which may not join it."""
    if here is _left:
        return
    key, _ = _next_keys(here.client, name, start)

    def wait() -> None:
        with contextlib.suppress(RuntimeError):
            here.client.wait_at_barrier(key, _milliseconds(timeout))

    with contextlib.suppress(RuntimeError):  # the coordination service has ended
        here.client.key_value_set(f"{key}/{here.index}", text, allow_overwrite=True)
        threading.Thread(target=wait, daemon=True, name="leafwise announces").start()


def count_of_exchanges(here: Processes, name: str) -> int:
    """Return how many exchanges with a name there have been since JAX was initialised."""
    with _LOCK:
        return _NUMBERS.get(name, -1) + 1 if here.client is _counted_for else 0


def _milliseconds(seconds: float) -> int:
    return max(1, round(min(seconds, _LONGEST) * 1000))


_left: Processes | None = None


def leave() -> None:
    """Shut down the JAX client of this process, so that JAX ends those that wait for it.

    They end once JAX's shutdown has waited for them, for `shutdown_timeout_seconds`; or, if this
    process ends first, when its heartbeat is missed. Neither this function nor the end of the
    process waits for them, as JAX forgets the client.
    """
    global _left  # noqa: PLW0603  # what `processes` returns from here on
    with _LOCK:
        here = processes()
        if here is None or here is _left:
            return
        _left = dataclasses.replace(here, client=None)
    inside("distributed").global_state.client = None

    def shut() -> None:
        with contextlib.suppress(RuntimeError):  # the others do not join
            here.client.shutdown()

    threading.Thread(target=shut, daemon=True, name="leafwise leaves").start()


def _read(client: Any, key: str) -> dict[int, str]:
    pairs: list[tuple[str, str]] = client.key_value_dir_get(f"{key}/")
    return {int(key.rpartition("/")[2]): text for key, text in pairs}


_LOCK: Final = new_lock()
_NUMBERS: Final[dict[str, int]] = {}
"""The number of the last exchange with each name."""

_counted_for: Any = None


def _next_keys(client: Any, name: str, start: int) -> tuple[str, str | None]:
    """Return the key of the next exchange with a name, and that of the previous one, if any."""
    global _counted_for  # noqa: PLW0603  # the current client
    with _LOCK:
        if client is not _counted_for:
            _NUMBERS.clear()
            _counted_for = client
        last = _NUMBERS.get(name, -1)
        _NUMBERS[name] = number = max(last + 1, start)
    folder = f"leafwise/{quote(name, safe='')}"
    return f"{folder}/{number}", None if last < 0 else f"{folder}/{last}"


_REASONS_TIMEOUT: Final = 60.0
"""Seconds for the second exchange, which all processes join at once."""

_LONGEST_TEXT: Final = 3 << 20
"""The most characters in one message, which gRPC limits to 4 MiB."""


Pairs = Iterable[tuple[str, str, str]]
"""Paths, with the text of the largest group and that of another group."""


@dataclasses.dataclass(frozen=True)
class Words:
    """How messages name what is compared."""

    head: str  # what runs the comparison
    again: str  # why a process may not respond, other than having ended
    equal: str  # how all processes get equal values
    later: str = "or give a longer timeout="


def check_timeout(timeout: float, where: str) -> None:
    if not 0 < timeout < math.inf:
        raise ValueError(f"{where}={timeout!r}): the timeout must be a positive number of seconds")


def check_same(  # noqa: PLR0917
    here: Processes,
    name: str,
    make: Callable[[], T],
    digest: Callable[[T], str],
    differing: Callable[[T, T], Pairs],
    timeout: float,
    words: Words,
) -> None:
    """Raise in every process if the digests of their values differ."""
    try:
        own = make()
    except Exception as error:  # a user's tree
        exchange_json(here, name, error_answer(error), timeout, words)
        raise
    answers = exchange_json(here, name, {"digest": digest(own)}, timeout, words)
    raise_errors(words.head, "could not describe the tree", answers)
    groups = groups_of({index: answer["digest"] for index, answer in answers.items()})
    if len(groups) > 1:
        sent = exchange_in_groups(here, name, groups, lambda _: own)
        lines, values = differences_between(groups, sent, differing)
        head = f"{words.head}: {count_of(groups)} differ from the others"
        raise DifferentProcessesError(f"{head}{''.join(lines)}\n  fix: {words.equal}", values)


def error_answer(error: BaseException) -> dict[str, str]:
    """Return an error in the form that `exchange_json` sends in place of an answer."""
    return {"error": f"{type(error).__name__}: {message_of(error)}"[:4000]}


def raise_errors(
    head: str, what: str, answers: Mapping[int, Mapping[str, str]], fix: str = ""
) -> None:
    """Raise if any process has sent an error."""
    errors = {
        index: answer["error"] for index, answer in sorted(answers.items()) if "error" in answer
    }
    if errors:
        reasons = "".join(f"\n  process {index}: {why}" for index, why in errors.items())
        reasons += f"\n  fix: {fix}" if fix else ""
        raise DifferentProcessesError(f"{head}: {list_of([*errors])} {what}{reasons}")


def groups_of(by_process: Mapping[int, str]) -> list[list[int]]:
    """Return the processes grouped by equal digests, the largest group first."""
    groups: dict[str, list[int]] = {}
    for index, digest in sorted(by_process.items()):
        groups.setdefault(digest, []).append(index)
    return sorted(groups.values(), key=lambda group: (-len(group), group))


def count_of(groups: Sequence[Sequence[int]]) -> str:
    """Return how many processes are outside the largest group: ``2 of 8 processes``."""
    counts = [*map(len, groups)]
    return f"{sum(counts[1:])} of {sum(counts)} processes"


def exchange_in_groups(
    here: Processes, name: str, groups: Sequence[Sequence[int]], make: Callable[[int], Any]
) -> list[Any]:
    """Return the JSON that the first process of each group has sent; None if it could not.

    `make` is called with rising numbers, to return less each time, until the message is small.
    """
    text, limit = "", _LONGEST_TEXT // len(groups)
    if any(here.index == group[0] for group in groups):
        records = (json.dumps(make(turn)).encode() for turn in range(12))
        packed = (base64.b85encode(zlib.compress(record)).decode() for record in records)
        text = next((record for record in packed if len(record) <= limit), "")
    try:
        answers = exchange(here, f"{name}\0described", text, _REASONS_TIMEOUT)
    except MissingError:  # a process has ended since
        answers = {}
    texts = [answers.get(group[0], "") for group in groups]
    return [json.loads(zlib.decompress(base64.b85decode(text))) if text else None for text in texts]


def exchange_json(  # noqa: PLR0917
    here: Processes, name: str, value: dict[str, str], timeout: float, words: Words, start: int = 0
) -> dict[int, dict[str, str]]:
    """Return the JSON that all processes have sent under a name, by index."""
    try:
        answers = exchange(here, name, json.dumps(value), timeout, start)
    except MissingError as error:
        message = _late(here, words, error, timeout)
        raise ProcessTimeoutError(message, error.missing or ()) from error
    return {index: json.loads(text) for index, text in answers.items()}


def _late(here: Processes, words: Words, error: MissingError, timeout: float) -> str:
    head = f"{words.head} in process {here.index} of {here.count}"
    if error.missing is None:
        detail = error.detail.splitlines()[0][:200]
        return (
            f"{head}: not all processes answered within {timeout:g} s: {detail}\n"
            f"  fix: see whether process 0, which runs JAX's coordination service, has ended"
        )
    if not error.missing:
        return (
            f"{head}: the others have given up waiting\n"
            f"  fix: give them a longer timeout=, or see why this process was late or failed"
        )
    return (
        f"{head}: {list_of(error.missing)} did not respond within {timeout:g} s\n"
        f"  fix: see whether it has ended, or {words.again}; {words.later}"
    )


def list_of(indices: Sequence[int]) -> str:
    """Return ``process 3`` or ``processes 0-2, 5``."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and index == spans[-1][-1] + 1:
            spans[-1][1:] = [index]
        else:
            spans.append([index])
    text = ", ".join("-".join(map(str, span)) for span in spans)
    return f"process{'es' if len(indices) > 1 else ''} {text}"


def differences_between(
    groups: Sequence[list[int]],
    sent: Sequence[T | None],
    differing: Callable[[T, T], Pairs],
    *,
    is_shared: bool = True,
) -> tuple[list[str], dict[str, dict[str, tuple[int, ...]]]]:
    """Return the differences as lines, and by path: each value with the processes that have it.

    Unless paths are shared, a path means something else in each group.
    """
    differences: dict[str, dict[str, tuple[int, ...]]] = {}
    largest = sent[0] if sent else None
    for group, other in zip(groups[1:], sent[1:], strict=True):
        pairs = differing(largest, other) if largest is not None and other is not None else ()
        for path, usual, its in pairs:
            texts = differences.setdefault(path, {})
            texts[its] = (*texts.get(its, ()), *group)
            texts.setdefault(usual, ())
    known = [group for group, record in zip(groups, sent, strict=True) if record is not None]
    for path, texts in differences.items():
        apart = {index for group in texts.values() for index in group}
        having = itertools.chain(*known) if is_shared else groups[0]
        rest = tuple(sorted({*having} - apart))
        by_process = {text: tuple(sorted(group)) or rest for text, group in texts.items()}
        differences[path] = dict(sorted(by_process.items(), key=lambda pair: pair[1]))
    lines: list[str] = []
    for path, texts in list(differences.items())[:_MOST_SHOWN]:
        lines += [f"\n  {path}:"]
        lines += [f"\n    {list_of(group)}: {text}" for text, group in texts.items()]
    if (more := len(differences) - _MOST_SHOWN) > 0:
        lines += [f"\n  and {more} more: see `differences` of this error"]
    missing = [group for group, record in zip(groups, sent, strict=True) if record is None]
    lines += [f"\n  values of {list_of(group)} were not sent or are too large" for group in missing]
    return lines, differences


_MOST_SHOWN: Final = 20
