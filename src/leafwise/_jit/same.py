"""Whether all processes of a program have the same tree: compared, before one waits for ever."""

import base64
import dataclasses
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from leafwise._compare.description import Description, differences, in_one_order
from leafwise._compare.digest import describe, digest_of
from leafwise._jax.processes import MissingError, Processes, exchange, processes
from leafwise._statics.portable import dump
from leafwise.errors import DifferentProcessesError, ProcessTimeoutError, message_of

_REASONS_TIMEOUT: Final = 60.0
"""Seconds for the second exchange, to which all come at once."""

_LONGEST: Final = 3 << 20
"""What is sent in one message, which gRPC limits to 4 MiB."""


def assert_same(tree: Any, *, name: str = "tree", timeout: float = 300.0) -> None:
    """Check that all processes of a program have the same tree, before they compile for it.

    To be called by every process after `jax.distributed.initialize`, before the first step. JAX
    compiles in each process for itself: with a static that differs in one of them, or with a set
    that a loop meets in another order, the processes run different programs, and wait for each
    other until XLA gives up.

    Digests are exchanged through JAX's coordination service, without a device: classes, statics
    by type and bits, and shape, dtype and weak type of each leaf, as `leafwise.digest` has them;
    the shardings that arrays are committed to; and the order in which each process meets the
    members of a set.

    With one process, or before `jax.distributed.initialize`, nothing is exchanged. What has no
    digest is refused all the same.

    Args:
        tree: Any pytree: what a jitted function is called with, or a configuration.
        name: What is compared. The n-th call with a name meets the n-th call of the others, so
            threads that call at the same time need names of their own.
        timeout: How many seconds to wait for the other processes.

    Raises:
        DifferentProcessesError: (in every process) the trees differ; it names the fields, and the
            values with the processes that have them.
        ProcessTimeoutError: Some process did not come in time; it names which.
        DigestError: A static means nothing to another process. Those raise a
            `DifferentProcessesError` which says so, instead of waiting.
        ValueError: The timeout is not positive.

    Examples:
        >>> jax.distributed.initialize()  # doctest: +SKIP
        >>> assert_same((params, batch), name="first step")  # doctest: +SKIP
    """
    if not 0 < timeout < math.inf:
        msg = f"assert_same(timeout={timeout!r}): the timeout is a positive number of seconds"
        raise ValueError(msg)
    here = processes()
    if here is None or here.count == 1:
        describe(tree, in_order=True)
        return
    compare(here, name, lambda: describe(tree, in_order=True), timeout, Words.of(name, tree))


@dataclasses.dataclass(frozen=True)
class Words:
    """How messages name what is compared.

    Attributes:
        head: What compares.
        root: What paths begin with.
        again: What a process that did not come may do less often than the others.
        fix: What else is to be done about a process that is missing.
    """

    head: str
    root: str
    again: str
    fix: str = "or give a longer timeout="

    @classmethod
    def of(cls, name: str, tree: Any) -> "Words":
        head = f"assert_same({name!r})"
        return cls(head, type(tree).__name__, f"does not call {head} as often as the others")


def compare(
    here: Processes, name: str, make: Callable[[], Description], timeout: float, words: Words
) -> None:
    """Compare a description with those of all other processes.

    Raises:
        DifferentProcessesError: They differ.
        ProcessTimeoutError: Some process did not come.
        Exception: What `make` raises; the others are told of it.
    """
    try:
        description = make()
    except Exception as error:
        exchange_json(here, name, as_told(error), timeout, words)
        raise
    found = exchange_json(here, name, {"digest": digest_of(description)}, timeout, words)
    raise_what_is_told(words.head, "could not describe the tree", found)
    groups = groups_of({index: each["digest"] for index, each in found.items()})
    if len(groups) == 1:
        return

    def send(turn: int) -> list[list[tuple[str, Any]]]:
        longest = _LONGEST >> 2 * turn  # a static that is too long to send is still named
        statics = {
            path: {"name": f"too long to show, {hashlib.sha256(text.encode()).hexdigest()}"}
            for path, each in (description.statics if turn else {}).items()
            if len(text := dump(each)) > longest
        }
        found = dataclasses.replace(description, statics=description.statics | statics)
        return [[*part.items()] for part in vars(found).values()]

    texts = exchange_in_groups(here, name, groups, send)
    described = [
        (group, None if found is None else Description(*map(dict, found)))
        for group, found in zip(groups, texts, strict=True)
    ]
    lines, values = differing_lines(words.root, described)
    fix = "run one source in all processes, with the same values: from one file, or from process 0"
    orders = [_differ_by_order(one, other) for (_, one), (_, other) in pairs_of(described)]
    if any(orders):
        fix += (
            ";\n  a loop over a set takes another order in each process: declare a sorted tuple,"
            "\n  or start all processes with one PYTHONHASHSEED"
        )
    head = f"{words.head}: {count_of(groups)} differ from the others"
    message = f"{head}{''.join(lines)}\n  fix: {fix}"
    raise DifferentProcessesError(message, values)


def as_told(error: BaseException) -> dict[str, str]:
    """Return an error as what `exchange_json` tells the others."""
    return {"error": f"{type(error).__name__}: {message_of(error)}"[:_LONGEST_ERROR]}


_LONGEST_ERROR: Final = 4000


def raise_what_is_told(
    head: str, what: str, found: Mapping[int, Mapping[str, str]], fix: str = ""
) -> None:
    """Raise if some process has told an error.

    Raises:
        DifferentProcessesError: It names each of them.
    """
    errors = {index: each["error"] for index, each in sorted(found.items()) if "error" in each}
    if errors:
        reasons = "".join(f"\n  process {index}: {why}" for index, why in errors.items())
        reasons += f"\n  fix: {fix}" if fix else ""
        msg = f"{head}: {list_of([*errors])} {what}{reasons}"
        raise DifferentProcessesError(msg)


def groups_of(by_process: Mapping[int, str]) -> list[list[int]]:
    """Return the processes that have the same, the largest group first."""
    groups: dict[str, list[int]] = {}
    for index, each in sorted(by_process.items()):
        groups.setdefault(each, []).append(index)
    return sorted(groups.values(), key=lambda each: (-len(each), each))


def count_of(groups: Sequence[Sequence[int]]) -> str:
    """Return how many processes are not in the largest group."""
    counts = [*map(len, groups)]
    return f"{sum(counts[1:])} of {sum(counts)} processes"


def exchange_in_groups(
    here: Processes, name: str, groups: Sequence[Sequence[int]], make: Callable[[int], Any]
) -> list[Any]:
    """Return what the first process of each group has sent as JSON; None if it could not.

    Args:
        here: This process.
        name: What was compared.
        groups: Those that had the same.
        make: Returns the JSON: less of it for a larger number, which begins with 0.
    """
    text, limit = "", _LONGEST // len(groups)  # all come in one message
    if any(here.index == group[0] for group in groups):
        texts = (_packed(make(turn)) for turn in range(_TURNS))
        text = next((each for each in texts if len(each) < limit), "")
    try:
        found = exchange(here, f"{name}\0described", text, _REASONS_TIMEOUT)
    except MissingError:  # it has ended since
        found = {}
    return [_unpacked(found.get(group[0], "")) for group in groups]


_TURNS: Final = 12

_MOST: Final = 20
"""How many paths a message shows."""


def exchange_json(  # noqa: PLR0917
    here: Processes,
    name: str,
    value: dict[str, str],
    timeout: float,
    words: Words,
    start: int = 0,
) -> dict[int, dict[str, str]]:
    """Return what all processes have sent under a name.

    Raises:
        ProcessTimeoutError: Some process did not come.
    """
    try:
        found = exchange(here, name, json.dumps(value), timeout, start)
    except MissingError as error:
        message = _late(here, words, error, timeout)
        raise ProcessTimeoutError(message, error.missing or ()) from error
    return {index: json.loads(text) for index, text in found.items()}


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
            f"  fix: give them a longer timeout=, or see why this process came late or failed"
        )
    return (
        f"{head}: {list_of(error.missing)} did not come within {timeout:g} s\n"
        f"  fix: see whether it has ended, or {words.again}; {words.fix}"
    )


def list_of(indices: Sequence[int]) -> str:
    """Return ``process 3`` or ``processes 0-2, 5``."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and index == spans[-1][-1] + 1:
            spans[-1][1:] = [index]
        else:
            spans.append([index])
    text = ", ".join("-".join(map(str, each)) for each in spans)
    return f"process{'es' if len(indices) > 1 else ''} {text}"


# ------------------------------------------------------------------------ what differs


def _packed(made: Any) -> str:
    return base64.b85encode(zlib.compress(json.dumps(made).encode())).decode()


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else None


Described = tuple[list[int], Description | None]


def pairs_of(described: Sequence[Described]) -> Iterator[tuple[Described, Described]]:
    """Yield the largest group with each of the others."""
    return ((described[0], each) for each in described[1:])


def differing_lines(
    root: str, described: Sequence[Described]
) -> tuple[list[str], dict[str, dict[str, tuple[int, ...]]]]:
    """Return what differs as lines, and by path: each value with the processes that have it."""
    every = sorted(index for group, _ in described for index in group)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for (_, usual), (group, other) in pairs_of(described):
        if usual is None or other is None:
            found.setdefault(root, {})["a tree that was not sent, or is too large"] = tuple(group)
            continue
        if digest_of(usual) == digest_of(other):
            continue
        for path, mine, its in _differences(usual, other, root):
            texts = found.setdefault(path, {})
            texts[its] = (*texts.get(its, ()), *group)
            texts.setdefault(mine, ())
    lines: list[str] = []
    for number, (path, texts) in enumerate(found.items()):
        differing = {index for group in texts.values() for index in group}
        rest = tuple(index for index in every if index not in differing)
        by_process = {text: tuple(sorted(group)) or rest for text, group in texts.items()}
        found[path] = dict(sorted(by_process.items(), key=lambda pair: pair[1]))
        if number < _MOST:
            lines += [f"\n  {path}:"]
            lines += [f"\n    {list_of(group)}: {text}" for text, group in found[path].items()]
    if len(found) > _MOST:
        lines += [f"\n  and {len(found) - _MOST} more, which `differences` of this error has"]
    return lines, found


def _differences(one: Description, other: Description, root: str) -> list[tuple[str, str, str]]:
    found = differences(one, other, root, lambda mine, its: dump(mine) == dump(its))
    if found:
        return [(each.path, each.saved, each.target) for each in found]
    mine, its = (f"{', '.join(each.leaves)} in this order" for each in (one, other))
    return [(root, mine, its)]


def _differ_by_order(one: Description | None, other: Description | None) -> bool:
    """Return whether some static differs in the order of sets alone."""
    if one is None or other is None:
        return False
    pairs = [(each, other.statics.get(path)) for path, each in one.statics.items()]
    return any(
        dump(mine) != dump(its) and dump(in_one_order(mine)) == dump(in_one_order(its))
        for mine, its in pairs
    )
