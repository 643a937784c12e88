"""Questions to all processes of a program, and messages on how their answers differ.

Digests, which are short, are exchanged first; only if they differ does one process of each group
send more.
"""

import base64
import dataclasses
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from leafwise._jax.processes import MissingError, Processes, exchange
from leafwise._objects.text import sha256_of
from leafwise.errors import Difference, DifferentProcessesError, ProcessTimeoutError, message_of

T = TypeVar("T")

Disagreement: TypeAlias = tuple[list[str], dict[str, dict[str, tuple[int, ...]]]]
"""Lines for a message; and, by path, each value as text, with the processes that have it."""

_GROUPS_TIMEOUT: Final = 60.0
"""Seconds for the second exchange, which all processes join at once."""

_LONGEST_TEXT: Final = 3 << 20
"""The most characters in one message, which gRPC limits to 4 MiB."""

_MOST_SHOWN: Final = 20


def check_timeout(timeout: float, where: str) -> None:
    if not 0 < timeout < math.inf:
        raise ValueError(f"{where}={timeout!r}): the timeout must be a positive number of seconds")


def table_differences(
    one: Mapping[str, Any], other: Mapping[str, Any], absent: str
) -> Iterator[Difference]:
    """Yield the entries that differ between two tables, as text."""
    for name in {**one, **other}:
        texts = str(one.get(name, absent)), str(other.get(name, absent))
        if texts[0] != texts[1]:
            yield Difference(name, *texts)


@dataclasses.dataclass(frozen=True)
class Question:
    """What all processes are asked at once, and the words of messages about it."""

    here: Processes
    head: str  # what asks
    name: str  # under which the answers are exchanged
    timeout: float
    again: str  # why a process may not respond, other than having ended
    equal: str  # how all processes get equal values
    later: str = "or give a longer timeout="
    start: int = 0  # the lowest number of the exchange

    def check_same(
        self,
        describe: Callable[[], Mapping[str, Any]],
        differing: Callable[[Any, Any], Iterable[Difference]],
    ) -> None:
        """Raise in every process if their descriptions, which are JSON, differ."""
        try:
            own = describe()
        except Exception as error:  # a user's tree
            self._answers(error_answer(error))
            raise
        text = json.JSONEncoder(sort_keys=True).encode([*own.items()])
        groups = self.groups(sha256_of(text.encode()), "could not describe the tree")
        if len(groups) > 1:
            sent = self.sent(groups, lambda _: own)
            disagreement = differences_between(groups, sent, differing)
            raise self.error(groups, "differ from the others", self.equal, disagreement)

    def groups(self, digest: str, failed: str, fix: str = "") -> list[list[int]]:
        """Return the processes grouped by equal digests, the largest group first."""
        answers = self._answers({"digest": digest})
        errors = {index: answer["error"] for index, answer in answers.items() if "error" in answer}
        if errors:  # raised in all of them, with what `failed`
            whys = "".join(f"\n  process {index}: {why}" for index, why in errors.items())
            whys += f"\n  fix: {fix}" if fix else ""
            raise DifferentProcessesError(f"{self.head}: {list_of([*errors])} {failed}{whys}")
        groups: dict[str, list[int]] = {}
        for index, answer in answers.items():
            groups.setdefault(answer["digest"], []).append(index)
        return sorted(groups.values(), key=lambda group: (-len(group), group))

    def sent(self, groups: Sequence[Sequence[int]], make: Callable[[int], Any]) -> list[Any]:
        """Return the JSON that the first process of each group has sent; None if it could not."""
        text, limit = "", _LONGEST_TEXT // len(groups)
        if any(self.here.index == group[0] for group in groups):
            # It returns less each time, until the message is small.
            records = (json.dumps(make(turn)).encode() for turn in range(12))
            packed = (base64.b85encode(zlib.compress(record)).decode() for record in records)
            text = next((record for record in packed if len(record) <= limit), "")
        try:
            texts = exchange(self.here, f"{self.name}\0described", text, _GROUPS_TIMEOUT)
        except MissingError:  # a process has ended since
            texts = {}
        chosen = [texts.get(group[0], "") for group in groups]
        return [
            json.loads(zlib.decompress(base64.b85decode(text))) if text else None for text in chosen
        ]

    def error(
        self, groups: Sequence[Sequence[int]], differ: str, fix: str, disagreement: Disagreement
    ) -> DifferentProcessesError:
        """Return the error that says how many processes `differ` from the largest group."""
        counts, (lines, values) = [*map(len, groups)], disagreement
        head = f"{self.head}: {sum(counts[1:])} of {sum(counts)} processes {differ}"
        return DifferentProcessesError(f"{head}{''.join(lines)}\n  fix: {fix}", values)

    def _answers(self, answer: dict[str, str]) -> dict[int, dict[str, str]]:
        try:
            texts = exchange(self.here, self.name, json.dumps(answer), self.timeout, self.start)
        except MissingError as error:
            raise ProcessTimeoutError(self._late(error), error.missing or ()) from error
        return {index: json.loads(text) for index, text in sorted(texts.items())}

    def _late(self, error: MissingError) -> str:
        within = f"within {self.timeout:g} s"
        if error.missing is None:
            what = f"not all processes answered {within}: {error.detail.splitlines()[0][:200]}"
            fix = "see whether process 0, which runs JAX's coordination service, has ended"
        elif not error.missing:
            what = "the others have given up waiting"
            fix = "give them a longer timeout=, or see why this process was late or failed"
        else:
            what = f"{list_of(error.missing)} did not respond {within}"
            fix = f"see whether it has ended, or {self.again}; {self.later}"
        where = f"{self.head} in process {self.here.index} of {self.here.count}"
        return f"{where}: {what}\n  fix: {fix}"


def error_answer(error: BaseException) -> dict[str, str]:
    """Return what a process sends in place of an answer."""
    return {"error": f"{type(error).__name__}: {message_of(error)}"[:4000]}


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
    differing: Callable[[T, T], Iterable[Difference]],
    *,
    is_shared: bool = True,
) -> Disagreement:
    """Return how the groups differ from the largest one, as lines and as values."""
    values: dict[str, dict[str, tuple[int, ...]]] = {}
    known = [pair for pair in zip(groups, sent, strict=True) if pair[1] is not None]
    largest = sent[0] if sent else None
    for group, record in zip(groups[1:], sent[1:], strict=True):
        pairs = () if largest is None or record is None else differing(largest, record)
        for path, usual, text in pairs:
            texts = values.setdefault(path, {})
            texts[text] = (*texts.get(text, ()), *group)
            texts.setdefault(usual, ())
    # Unless paths are shared, a path means something else in each group.
    having = {index for group, _ in known for index in group} if is_shared else {*groups[0]}
    lines: list[str] = []
    for place, (path, texts) in enumerate(values.items()):
        rest = tuple(sorted(having.difference(*texts.values())))
        by_process = {text: tuple(sorted(group)) or rest for text, group in texts.items()}
        values[path] = dict(sorted(by_process.items(), key=lambda pair: pair[1]))
        if place < _MOST_SHOWN:
            lines += [f"\n  {path}:"]
            lines += [f"\n    {list_of(group)}: {text}" for text, group in values[path].items()]
    if (more := len(values) - _MOST_SHOWN) > 0:
        lines += [f"\n  and {more} more: see `differences` of this error"]
    missing = [group for group, record in zip(groups, sent, strict=True) if record is None]
    lines += [f"\n  values of {list_of(group)} were not sent or are too large" for group in missing]
    return lines, values
