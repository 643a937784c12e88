"""Whether all processes of a program have the same tree: compared, before one waits for ever."""

import hashlib
from collections.abc import Callable
from typing import Any

from leafwise._compare.description import Record, differences, in_one_order, of_kind
from leafwise._compare.digest import describe, digest_of
from leafwise._jax.processes import (
    LONGEST,
    Pairs,
    Processes,
    Words,
    check_timeout,
    count_of,
    differences_between,
    exchange_in_groups,
    grouped_by_digest,
    processes,
)
from leafwise._statics.portable import dump
from leafwise.errors import DifferentProcessesError


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
    check_timeout(timeout, "assert_same(timeout")
    here = processes()
    if here is None or here.count == 1:
        describe(tree, in_order=True)
        return
    head = f"assert_same({name!r})"
    words = Words(head, type(tree).__name__, f"does not call {head} as often as the others")
    compare(here, name, lambda: describe(tree, in_order=True), timeout, words)


def compare(
    here: Processes, name: str, make: Callable[[], Record], timeout: float, words: Words
) -> None:
    """Compare a record with those of all other processes."""
    record, groups = grouped_by_digest(here, name, make, digest_of, timeout, words)
    if len(groups) == 1:
        return

    def send(turn: int) -> list[tuple[str, Any]]:
        longest = LONGEST >> 2 * turn  # a static that is too long to send is still named
        shown = dict(record)
        for path, each in (of_kind(record, "static") if turn else {}).items():
            if len(text := dump(each)) > longest:
                name = f"too long to show, {hashlib.sha256(text.encode()).hexdigest()}"
                shown[path] = {"static": {"name": name}}
        return [*shown.items()]

    texts = exchange_in_groups(here, name, groups, send)
    sent = [None if found is None else dict(found) for found in texts]
    lines, values = differences_between(
        groups, sent, lambda one, other: differing(one, other, words.root)
    )
    fix = "run one source in all processes, with the same values: from one file, or from process 0"
    if any(_differ_by_order(sent[0], other) for other in sent[1:]):
        fix += (
            ";\n  a loop over a set takes another order in each process: declare a sorted tuple,"
            "\n  or start all processes with one PYTHONHASHSEED"
        )
    head = f"{words.head}: {count_of(groups)} differ from the others"
    message = f"{head}{''.join(lines)}\n  fix: {fix}"
    raise DifferentProcessesError(message, values)


# ------------------------------------------------------------------------ what differs


def differing(one: Record, other: Record, root: str) -> Pairs:
    """Return the paths at which two records differ, and both texts."""
    if digest_of(one) == digest_of(other):
        return []
    found = differences(one, other, root)
    if found:
        return [(each.path, each.saved, each.target) for each in found]
    mine, its = (f"{', '.join(of_kind(each, 'array'))} in this order" for each in (one, other))
    return [(root, mine, its)]


def _differ_by_order(one: Record | None, other: Record | None) -> bool:
    """Return whether some static differs in the order of sets alone."""
    if one is None or other is None:
        return False
    pairs = [(each, other.get(path)) for path, each in one.items()]
    return any(
        dump(mine) != dump(its) and dump(in_one_order(mine)) == dump(in_one_order(its))
        for mine, its in pairs
    )
