"""Nothing is kept alive by leafwise, and threads may construct at once."""

import gc
import sys
import threading
import time
import weakref
from typing import Any

import jax
import pytest

import leafwise as lw
from leafwise._statics import key


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = None


class Value:
    def __init__(self, v: Any) -> None:
        self.v = v

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.v == other.v

    def __hash__(self) -> int:
        return hash(self.v)


class Thing:
    pass


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("make", "rounds", "at_once"),
    [
        pytest.param(lambda i: i, 10, 100_000, id="a-million-plain", marks=pytest.mark.nightly),
        pytest.param(lambda i: ("a", (i, 0.5)), 2, 10_000, id="nested"),
        pytest.param(Value, 2, 10_000, id="own"),
    ],
)
def test_keys_created_and_dropped_leave_nothing(make: Any, rounds: int, at_once: int) -> None:
    """When a million keys have come and gone, the tables are as empty as they were."""

    @lw.pytree
    class Local:
        x: Any
        s: Any = lw.static_field()

    def sizes() -> list[int]:
        return [len(each) for each in (table.known, table.plain, table.tokens)]

    table = key.table_of(Local)
    Local(0.0, make(-1))
    gc.collect()
    before, blocks = sizes(), sys.getallocatedblocks()
    for _ in range(rounds):
        kept = [Local(0.0, make(number)) for number in range(at_once)]
        assert len(table.known) == at_once
        assert sum(sizes()) > 10 * sum(before)
        del kept
    gc.collect()
    assert sizes() == before
    assert sys.getallocatedblocks() - blocks < 1000


def test_treedef_keeps_what_it_needs() -> None:
    """A treedef alone keeps its statics, and equals that of a later equal instance."""
    structure = jax.tree.structure(P(1.0, (1, "a", Value(3))))
    gc.collect()
    assert structure == jax.tree.structure(P(2.0, (1, "a", Value(3))))
    assert jax.tree.unflatten(structure, [5.0]).a[:2] == (1, "a")


def test_instances_can_be_weakly_referenced() -> None:
    """A weak reference to an instance dies with it: no cycle holds it."""
    p = P(1.0, "a")
    reference = weakref.ref(p)
    gc.disable()
    try:
        del p
        assert reference() is None
    finally:
        gc.enable()


def test_threads_construct_and_flatten_different_statics() -> None:
    """Eight threads at once, with eight statics in turn, and no lock where a key is known."""
    values = [(number, "a", number / 2) for number in range(8)]
    keep = [P(0.0, value) for value in values]
    expected = [jax.tree.structure(each) for each in keep]
    assert len(set(expected)) == 8
    barrier = threading.Barrier(8)
    wrong: list[int] = []

    def work(index: int) -> None:
        barrier.wait()
        for number in range(3000):
            place = (index + number) % 8
            leaves, structure = jax.tree.flatten(P(number, values[place]))
            if leaves != [number] or structure != expected[place]:
                wrong.append(number)
            if jax.tree.unflatten(structure, leaves).a is not values[place]:
                wrong.append(number)

    # Held, it would stop whoever asks for it: known keys are found without.
    with key.LOCK:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        [thread.start() for thread in threads]
        end = time.monotonic() + 60
        [thread.join(timeout=max(0.0, end - time.monotonic())) for thread in threads]
        assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_the_latest_key_of_plain_values_is_kept() -> None:
    """Instances that live for a moment find the key of the one before; older keys die."""
    made = weakref.ref(getattr(P(1.0, (1, "a")), key.KEY))
    gc.collect()
    assert getattr(P(2.0, (1, "a")), key.KEY) is made()
    for other in ((1, "b"), (True, "a"), (1.0, "a")):
        assert getattr(P(2.0, other), key.KEY) is not made()
    gc.collect()
    assert made() is None
    for value in (Thing(), "long" * 1000, (b"long" * 1000,), tuple(range(100))):
        unkept = weakref.ref(getattr(P(1.0, (value,)), key.KEY))
        gc.collect()
        assert unkept() is None
