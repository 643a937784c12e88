"""Nothing is kept alive by leafwise, and threads may construct at once."""

import gc
import sys
import threading
import time
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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


def test_statics_die_with_their_instances() -> None:
    """After the instances, the programs and `jax.clear_caches()`, statics are gone."""
    things = {
        "plain": Thing(),
        "value": Value(1),
        "function": lambda: None,
        "table": lw.StaticArray([1, 2]),
        "mapping": lw.FrozenMapping(a=1),
    }
    references = {name: weakref.ref(thing) for name, thing in things.items()}
    instances = [P(jnp.ones(2), (thing, "tail")) for thing in things.values()]
    run = jax.jit(lambda p: jax.tree.map(lambda v: v * 2, p))
    outputs = [run(p) for p in instances]
    structures = [jax.tree.structure(p) for p in instances]
    with lw.debug.check_statics():
        [jax.tree.leaves(p) for p in instances]
    del things, instances, run, outputs, structures
    gc.collect()
    jax.clear_caches()
    gc.collect()
    assert [name for name, reference in references.items() if reference() is not None] == []


def test_no_growth_over_many_keys() -> None:
    """Making and dropping thousands of keys leaves no table behind."""

    @lw.pytree
    class Q:
        a: lw.Static[Any]

    def live() -> int:
        gc.collect()
        names = ("Record", "OwnStaticKey")
        return sum(1 for each in gc.get_objects() if type(each).__name__ in names)

    keep = Q(-1)
    before = live()  # those of other tests, which JAX still holds
    for n in range(2_000):
        Q((n, str(n)))
        Q(Value(n))
    assert live() < before + 100
    assert keep.a == -1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "rounds", "at_once"),
    [
        pytest.param(lambda i: i, 10, 100_000, id="a-million-plain", marks=pytest.mark.nightly),
        pytest.param(lambda i: ("a", (i, 0.5)), 2, 10_000, id="nested"),
        pytest.param(Value, 2, 10_000, id="own"),
    ],
)
def test_keys_created_and_dropped_leave_nothing(make: Any, rounds: int, at_once: int) -> None:
    """When a million keys have come and gone, the tables are as small as they were."""

    @lw.pytree
    class Local:
        x: Any
        s: Any = lw.static_field()

    def sizes() -> list[int]:
        return [sys.getsizeof(each) for each in (table.known, table.plain, table.tokens)]

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


def test_failed_constructions_keep_nothing() -> None:
    """An instance whose construction raised is not kept, nor are its values."""
    thing = Thing()
    reference = weakref.ref(thing)
    for bad in ([], np.ones(2)):
        with pytest.raises(lw.errors.StaticFieldError):
            P(1.0, (thing, bad))
    del thing
    gc.collect()
    assert reference() is None


def test_treedef_keeps_what_it_needs() -> None:
    """A treedef alone keeps its statics, and equals that of a later equal instance."""
    structure = jax.tree.structure(P(1.0, (1, "a", Value(3))))
    gc.collect()
    assert structure == jax.tree.structure(P(2.0, (1, "a", Value(3))))
    assert jax.tree.unflatten(structure, [5.0]).a[:2] == (1, "a")


def test_address_of_a_dead_static_means_nothing() -> None:
    """Another object at the address of a dead one never gets the dead one's key."""
    seen: set[int] = set()
    for n in range(200):
        value = (n, [str(n)][0])
        p = P(1.0, Value(value))
        assert p.a.v == value
        assert jax.tree.map(lambda v: v, p).a.v == value
        seen.add(id(p.a))
        del p, value
    for n in range(200):
        p = P(1.0, (float(n), n))
        assert jax.tree.map(lambda v: v, p).a == (float(n), n)


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


@pytest.mark.slow
def test_many_threads_construct_the_same() -> None:
    """Threads that construct equal statics at once get one treedef and no error."""
    errors: list[BaseException] = []
    structures: list[Any] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        try:
            start.wait()
            for n in range(300):
                p = P(float(n), (n % 7, str(n % 5), Value(n % 3)))
                again = jax.tree.map(lambda v: v + 1, p)
                assert again.a is p.a
                if n < 21:
                    structures.append((n, jax.tree.structure(p)))
        except BaseException as error:  # noqa: BLE001  # reported below
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    by_number: dict[int, Any] = {}
    for n, structure in structures:
        assert by_number.setdefault(n, structure) == structure


def test_threads_share_one_key_object() -> None:
    """Plain statics made in two threads at once are one interned key."""
    start = threading.Barrier(4)
    keep: list[Any] = []

    def work() -> None:
        start.wait()
        keep.extend(P(1.0, ("shared", n)) for n in range(200))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [id(jax.tree.structure(p).node_data()[1]) for p in keep]
    assert len(set(found)) == 200


def test_interning_shares_only_what_cannot_be_told_apart() -> None:
    """Equal tuples may be one object afterwards; equal objects with `==` never are."""
    one, two = P(1.0, Value(1)), P(1.0, Value(1))
    assert one.a is not two.a
    part = P(1.0, (Value(1),))
    other = P(1.0, (Value(1),))
    assert part.a[0] is not other.a[0]
    assert jax.tree.map(lambda v: v, other).a[0] is other.a[0]


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
