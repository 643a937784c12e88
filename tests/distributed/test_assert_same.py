"""`lw.distributed.assert_same` between real processes on this machine."""

from typing import Any

import pytest

import leafwise as lw
from leafwise._processes.agreement import differences_between, list_of

from .processes import run

PLANTED = """
import functools, threading
initialize()
x = np.ones((2, 3), np.float32)
by_index = lambda *values: values[min(index, len(values) - 1)]
nan = np.array([0x7FF8000000000000 + index], np.uint64).view(np.float64)[0].item()
rate = 0.1 + index

def a_class():
    if index == 0:
        @lw.pytree
        class Q:
            x: Any
    else:
        @lw.pytree
        class Q:
            x: Any
            more: Any = lw.static_field(default=1)
    return Q(x)

cases = {
    "same": lambda: P(x, (1, "a", frozenset({1, 2}))),
    "value": lambda: P(x, ("a", by_index(1, 2))),
    "type": lambda: P(x, by_index(1, True)),
    "zero": lambda: P(x, by_index(0.0, -0.0)),
    "nan": lambda: P(x, nan),
    "order of a mapping": lambda: P(x, lw.FrozenMapping(by_index({1: 1, 2: 2}, {2: 2, 1: 1}))),
    "order of a set": lambda: P(x, frozenset(map(str, range(30)))),
    "class": a_class,
    "dtype": lambda: P(by_index(x, x.astype(np.int32))),
    "weak type": lambda: P(by_index(1.0, np.float32(1))),
    "structure": lambda: P(by_index(x, (x, x))),
    "function": lambda: P(x, by_index(np.sin, np.cos)),
    "closure": lambda: P(x, f=lambda v, rate=rate: v * rate),
    "refused in one": lambda: P(x, by_index(1, object())),
    "refused in all": lambda: P(x, object()),
}
for name, make in cases.items():
    report(name=name, **outcome(make(), name=name, timeout=20))

for turn in range(3):
    report(name="again", **outcome(P(x, turn), name="again", timeout=20))

found = {}

def compare(n):
    found[n] = outcome(P(x, (n, index * (n % 2))), name=f"thread {n}", timeout=20)

threads = [threading.Thread(target=compare, args=(n,)) for n in range(6)]
for thread in threads if index == 0 else threads[::-1]:
    thread.start()
for thread in threads:
    thread.join()
report(name="threads", errors=[found[n]["error"] for n in range(6)])

if index == 1:
    time.sleep(1.5)
report(name="late", **outcome(P(x), name="late", timeout=0.5))
report(name="after", **outcome(P(x), name="after", timeout=20))
folder = "leafwise/again/"
from jax._src import distributed
report(name="left", keys=[k for k, _ in distributed.global_state.client.key_value_dir_get(folder)])
"""

OF_ALL = {
    "value": (".n[1]", {"1", "2"}),
    "type": (".n", {"1", "True"}),
    "zero": (".n", {"0.0", "-0.0"}),
    "nan": (".n", None),
    "order of a mapping": (".n", None),
    "order of a set": (".n", None),
    "class": ("", None),
    "dtype": (".x", {"float32[2,3]", "int32[2,3]"}),
    "weak type": (".x", None),
    "structure": (".x", None),
    "function": (".n", {"numpy:sin", "numpy:cos"}),
    "closure": (".f", {"0.1", "1.1"}),
}


@pytest.mark.nightly
def test_planted_differences_between_two_processes() -> None:
    """Each process names every difference, with both values and processes; nothing hangs."""
    done = run(PLANTED, 2)
    assert [status for status, _, _ in done] == [0, 0], done
    first, second = ({line["name"]: line for line in lines} for _, lines, _ in done)
    for name in ("same", "again", "after"):
        assert first[name]["error"] is second[name]["error"] is None, (first[name], second[name])
    for name, (path, values) in OF_ALL.items():
        for each in (first[name], second[name]):
            assert each["error"] == "DifferentProcessesError", (name, each)
            assert each["seconds"] < 15
            places = {
                where: texts
                for where, texts in each["differences"].items()
                if where.partition(",")[0].removeprefix("P").removeprefix("Q").startswith(path)
            }
            assert places, (name, each)
            for texts in places.values():
                assert sorted(texts.values()) == [[0], [1]]
                assert values is None or {*texts} == {*values}
            assert "process 0: " in each["message"]
            assert "process 1: " in each["message"]
        assert first[name]["message"] == second[name]["message"]
    assert "sorted tuple" in first["order of a set"]["message"]
    assert "more" in first["class"]["message"]
    assert first["refused in one"]["error"] == "DifferentProcessesError"
    assert (
        "process 1: PortableError: P.n: object compares by identity"
        in first["refused in one"]["message"]
    )
    assert second["refused in one"]["error"] == "PortableError"
    assert first["refused in all"]["error"] == second["refused in all"]["error"] == "PortableError"
    other = "DifferentProcessesError"
    assert first["threads"]["errors"] == [None, other] * 3 == second["threads"]["errors"]
    assert first["late"]["error"] == second["late"]["error"] == "ProcessTimeoutError"
    assert first["late"]["missing"] == [1]
    assert "process 1 did not respond within" in first["late"]["message"]
    assert "the others have given up" in second["late"]["message"]
    assert len(first["left"]["keys"]) <= 2  # those of the last call alone


def test_differences_of_three_groups() -> None:
    """Nothing was sent; and a path that means something else for each group."""
    lines, found = differences_between([[0, 1], [2]], [None, None], lambda *_: ())
    assert found == {}
    words = "were not sent or are too large"
    assert lines == [f"\n  values of {who} {words}" for who in ("processes 0-1", "process 2")]
    assert differences_between([], [], lambda *_: ()) == ([], {})  # nobody's was known

    def compare(one: str, other: str) -> Any:
        return [("operation 1", one, other)] if one != other else []

    groups, sent = [[0, 1], [2], [3]], ["a", "b", "a"]
    _, shared = differences_between(groups, sent, compare)
    assert shared["operation 1"] == {"a": (0, 1, 3), "b": (2,)}
    _, alone = differences_between(groups, sent, compare, is_shared=False)
    assert alone["operation 1"] == {"a": (0, 1), "b": (2,)}


def test_one_process_compares_with_nobody() -> None:
    """Before `jax.distributed.initialize` nothing is exchanged; what has no digest is refused."""
    lw.distributed.assert_same({"a": 1.0}, name="alone")
    with pytest.raises(lw.errors.PortableError):
        lw.distributed.assert_same(object())
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive"):
            lw.distributed.assert_same(1, timeout=timeout)


def test_processes_are_listed_in_spans() -> None:
    """A thousand processes need no line each."""
    assert list_of([3]) == "process 3"
    assert list_of([0, 1, 2, 5, 7, 8]) == "processes 0-2, 5, 7-8"


KILLED = """
import signal
initialize(heartbeat_timeout_seconds=10, shutdown_timeout_seconds=10)
lw.distributed.assert_same(P(1.0), name="first", timeout=30)
if index == count - 1:
    os.kill(os.getpid(), signal.SIGKILL)
report(**outcome(P(1.0), name="second", timeout=4))
time.sleep(0.5)
"""


@pytest.mark.nightly
def test_a_killed_process_does_not_hang_the_rest() -> None:
    """The others are told which one is missing within the timeout, and end."""
    done = run(KILLED, 3, limit=90)
    assert done[-1][0] == -9
    for _, (found,), errors in done[:-1]:
        assert found["error"] == "ProcessTimeoutError", errors
        assert found["missing"] == [2]
        assert found["seconds"] < 15


WIDE = """
initialize()
from jax.sharding import NamedSharding, PartitionSpec

mesh = jax.make_mesh((count,), ("d",))

def sharded(*spec):
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.make_array_from_callback((4,), sharding, lambda at: np.ones(4, np.float32)[at])

mine = jax.device_put(1.0, jax.local_devices()[0])
report(**outcome([mine, sharded("d")]))
report(**outcome(sharded(*("d",) * index)))
report(**outcome({f"k{i}": np.ones(1 + index) for i in range(100)}))
"""


@pytest.mark.nightly
def test_shardings_and_many_fields() -> None:
    """Shardings count, and places of devices; few of many are shown."""
    for status, (same, sharding, many), errors in run(WIDE, 2):
        assert status == 0, errors
        assert same["error"] is None, same
        assert "'d'" in sharding["message"]
        assert len(many["differences"]) == 100
        assert many["message"].count("process 1:") == 20
        assert "and 80 more" in many["message"]
