"""The law of interning: keys live as long as they are used, and are never taken for others."""

import functools
import gc
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest

import leafwise as lw
from leafwise._statics import key

from .oracle import same
from .zoo import Config, Own, Params


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Walk, hundreds of times, through what is created here alone."""
    gc.collect()
    gc.freeze()


def living() -> Counter[str]:
    """Return how many objects of leafwise's own are alive, but for the kept key of each class."""
    for table in key._TABLES.values():
        table.kept = None
    gc.collect()
    with key.LOCK:  # as the next key does
        key._forget_dead()
    modules = ("leafwise._statics.key", "leafwise._statics.form")
    found = [type(item) for item in gc.get_objects()]
    return Counter(kind.__name__ for kind in found if kind.__module__ in modules)


MAKERS: dict[str, Callable[[int], Any]] = {
    "int": lambda i: 10**9 + i,
    "tuple": lambda i: ("layers", (10**9 + i, 2.0)),
    "float": lambda i: i + 0.5,
    "function": lambda i: lambda: i,
    "config": lambda i: Config((i, "a")),
    "own": lambda i: Own((i,)),
    "partial": lambda i: functools.partial(min, i),
    "frozenset": lambda i: frozenset([i, "a"]),
    "mapping": lambda i: lw.FrozenMapping(i=i),
    "array": lambda i: lw.StaticArray([i]),
    "method": lambda i: Config(i).method,
    "class": lambda i: type("C", (), {"i": i}),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_outlives_its_instances(kind: str) -> None:
    """300 keys, made and dropped, leave nothing behind once the next key is made."""
    make = MAKERS[kind]

    @lw.pytree
    class Local:
        x: Any
        s: Any = lw.static_field()

    before = living()
    table = key.table_of(Local)
    instances = [Local(1.0, make(i)) for i in range(300)]
    trees = [jax.tree.structure(instance) for instance in instances]
    assert len(set(map(repr, trees))) > 1
    assert sum(living().values()) > sum(before.values()) + 300
    del instances, trees
    after = living()
    assert after - before == Counter()
    assert len(table.known) == 0
    assert len(table.plain) == 0
    assert len(table.tokens) == 0


@pytest.mark.parametrize("kind", ["int", "config", "own", "function"])
def test_programs_let_go_of_keys(kind: str) -> None:
    """After `jax.clear_caches` a key that only compiled programs knew is gone, with its statics."""
    before = living()
    program = jax.jit(lambda p: jax.tree.map(lambda x: x + 1, p))
    for i in range(3):
        program(Params(1.0, MAKERS[kind](i)))
    static = Own(("watched",))
    watched = weakref.ref(static)
    program(Params(1.0, static))
    del static
    gc.collect()
    assert watched() is not None, "the program holds its output's treedef"
    del program
    jax.clear_caches()
    gc.collect()
    assert watched() is None
    assert living() - before == Counter()


def test_a_cycle_through_a_static_is_collected() -> None:
    """A static function that reaches its own instance does not keep it alive."""

    def make() -> weakref.ref[Any]:
        holder: list[Any] = []

        def function() -> Any:
            return holder

        holder.append(Params(1.0, function))
        return weakref.ref(function)

    watched = [make() for _ in range(20)]
    gc.collect()
    assert [ref() for ref in watched] == [None] * 20


@pytest.mark.parametrize("kind", ["tuple", "float", "own", "config", "function", "method"])
def test_recurring_ids_are_never_confused(kind: str) -> None:
    """A key found by the ids of dead objects would answer for others: it must not be found."""
    ids: set[int] = set()
    recurred = 0
    for i in range(3000):
        static = MAKERS[kind](i)
        recurred += id(static) in ids
        ids.add(id(static))
        params = Params(1.0, static)
        (_, structure) = jax.tree.flatten(params)
        again = jax.tree.unflatten(structure, [1.0])
        assert same(params.s, static)
        assert same(again.s, static)
    assert recurred > 100, "ids do not recur here, so that this shows nothing"


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run work in threads that start at once; return its results, or raise its error."""
    barrier = threading.Barrier(count)

    def run(index: int) -> Any:
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Let threads take turns as often as Python can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind not in ("function", "class")])
def test_threads_agree_on_treedefs(kind: str) -> None:
    """Eight threads that make equal statics at once get one treedef for each value."""
    make = MAKERS[kind]

    def work(_index: int) -> list[Any]:
        return [jax.tree.structure(Params(1.0, make(i))) for i in range(60)]

    results = in_threads(8, work)
    for of_value in zip(*results, strict=True):
        assert all(structure == of_value[0] for structure in of_value)
    distinct = results[0]
    assert all(a != b for i, a in enumerate(distinct) for b in distinct[:i])


@pytest.mark.slow
@pytest.mark.usefixtures("eager_switching")
def test_threads_that_make_and_drop() -> None:
    """Keys that die in one thread while another makes them again never mix values up."""

    def work(index: int) -> int:
        for i in range(150):
            static = (i % 5, "a") if index % 2 else Config((i % 5, "a"))
            params = Params(float(index), static)
            leaves, structure = jax.tree.flatten(params)
            assert jax.tree.unflatten(structure, leaves).s == static
            assert leaves == [float(index)]
            if i % 50 == 0:
                gc.collect()
        return index

    before = living()
    assert in_threads(8, work) == list(range(8))
    assert living() - before == Counter()
