"""Whether all processes of a program have the same tree: compared, before one waits for ever."""

import base64
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

from leafwise._compare.description import Description, differences
from leafwise._compare.digest import describe, digest_of
from leafwise._jax.processes import MissingError, Processes, exchange, processes
from leafwise._statics.portable import Json, dump
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
    and the order in which each process meets the members of a set.

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
    try:
        description = describe(tree, in_order=True)
    except Exception as error:
        if here is not None and here.count > 1:
            _exchange(
                here, name, {"error": f"{type(error).__name__}: {message_of(error)}"}, timeout
            )
        raise
    if here is None or here.count == 1:
        return
    digest = digest_of(description)
    found = _exchange(here, name, {"digest": digest}, timeout)
    refused = {index: each["error"] for index, each in found.items() if "error" in each}
    if refused:
        lines = "".join(f"\n  process {index}: {text}" for index, text in sorted(refused.items()))
        msg = f"assert_same({name!r}): {_list(sorted(refused))} could not describe the tree{lines}"
        raise DifferentProcessesError(msg)
    groups: dict[str, list[int]] = {}
    for index, each in sorted(found.items()):
        groups.setdefault(each["digest"], []).append(index)
    if len(groups) == 1:
        return
    sends = here.index == groups[digest][0]
    text = _packed(description) if sends else ""
    try:
        texts = exchange(here, f"{name}\0described", text, _REASONS_TIMEOUT)
    except MissingError:  # it has ended since
        texts = {}
    sorted_groups = sorted(groups.values(), key=lambda each: (-len(each), each))
    described = [(each, _unpacked(texts.get(each[0], ""))) for each in sorted_groups]
    raise _error(name, type(tree).__name__, described)


def _exchange(
    here: Processes, name: str, value: dict[str, str], timeout: float
) -> dict[int, dict[str, str]]:
    try:
        found = exchange(here, name, json.dumps(value), timeout)
    except MissingError as error:
        message = _late(here, name, error, timeout)
        raise ProcessTimeoutError(message, error.missing or ()) from error
    return {index: json.loads(text) for index, text in found.items()}


def _late(here: Processes, name: str, error: MissingError, timeout: float) -> str:
    head = f"assert_same({name!r}) in process {here.index} of {here.count}"
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
        f"{head}: {_list(error.missing)} did not come within {timeout:g} s\n"
        f"  fix: see whether it has ended, or does not call assert_same({name!r}) as often as the "
        f"others; or give a longer timeout="
    )


def _list(indices: Sequence[int]) -> str:
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


def _packed(description: Description) -> str:
    parts = [[*part.items()] for part in vars(description).values()]
    text = base64.b85encode(zlib.compress(json.dumps(parts).encode())).decode()
    return text if len(text) < _LONGEST else ""


def _unpacked(text: str) -> Description | None:
    if not text:
        return None
    return Description(*map(dict, json.loads(zlib.decompress(base64.b85decode(text)))))


def _error(
    name: str, root: str, described: Sequence[tuple[list[int], Description | None]]
) -> DifferentProcessesError:
    """Return the error that all processes raise: the largest group is what others differ from."""
    (most, usual), *others = described
    every = sorted(index for group, _ in described for index in group)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    is_order = False
    for group, other in others:
        if usual is None or other is None:
            found.setdefault(root, {})["a tree that was not sent, or is too large"] = tuple(group)
            continue
        is_order = is_order or _differ_by_order(usual, other)
        for path, mine, its in _differences(usual, other, root):
            texts = found.setdefault(path, {})
            texts[its] = (*texts.get(its, ()), *group)
            texts.setdefault(mine, ())
    lines: list[str] = []
    for path, texts in found.items():
        differing = {index for group in texts.values() for index in group}
        rest = tuple(index for index in every if index not in differing)
        by_process = {text: tuple(sorted(group)) or rest for text, group in texts.items()}
        found[path] = dict(sorted(by_process.items(), key=lambda pair: pair[1]))
        lines += [f"\n  {path}:"]
        lines += [f"\n    {_list(group)}: {text}" for text, group in found[path].items()]
    fix = "run one source in all processes, with the same values: from one file, or from process 0"
    if is_order:
        fix += (
            ";\n  a loop over a set takes another order in each process: declare a sorted tuple,"
            "\n  or start all processes with one PYTHONHASHSEED"
        )
    count = len(every) - len(most)
    head = f"assert_same({name!r}): {count} of {len(every)} processes differ from the others"
    return DifferentProcessesError(f"{head}{''.join(lines)}\n  fix: {fix}", found)


def _differences(one: Description, other: Description, root: str) -> list[tuple[str, str, str]]:
    found = differences(one, other, root, lambda mine, its: dump(mine) == dump(its))
    if found:
        return [(each.path, each.saved, each.target) for each in found]
    mine, its = (f"{', '.join(each.leaves)} in this order" for each in (one, other))
    return [(root, mine, its)]


def _differ_by_order(one: Description, other: Description) -> bool:
    """Return whether some static differs in the order of sets alone."""
    pairs = [(each, other.statics.get(path)) for path, each in one.statics.items()]
    return any(
        dump(mine) != dump(its) and dump(_sorted(mine)) == dump(_sorted(its)) for mine, its in pairs
    )


def _sorted(value: Json) -> Json:
    """Return JSON in which the members of sets have one order."""
    if isinstance(value, dict):
        made = {key: _sorted(each) for key, each in value.items()}
        return made | ({"members": sorted(made["members"], key=dump)} if "members" in made else {})
    return [_sorted(each) for each in value] if isinstance(value, list) else value
