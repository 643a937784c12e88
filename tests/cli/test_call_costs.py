"""What each call costs: flattening in Python, and NumPy arrays that are copied each time."""

import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.explained import recorded, report_on
from tests.kit.inside import annotations_of, call_costs, html_page, to_json

import leafwise as lw

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="runs of lines are not counted before Python 3.12"
)

LARGE = 1 << 18  # float32: a mebibyte
TABLE = np.ones(2 * LARGE, np.float32)


@jax.tree_util.register_pytree_node_class
class Sorted:
    """A node whose children are sorted each time."""

    def __init__(self, **children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> tuple[list[Any], tuple[str, ...]]:
        names = tuple(sorted(self.children))
        return [self.children[name] for name in names], names

    @classmethod
    def tree_unflatten(cls, names: Any, children: Any) -> "Sorted":
        return cls(**dict(zip(names, children, strict=True)))


def _flatten_bag(bag: "Bag") -> tuple[tuple[Any, ...], None]:
    return tuple(item for item in bag.items), None


class Bag:
    def __init__(self, *items: float) -> None:
        self.items = items


jax.tree_util.register_pytree_node(Bag, _flatten_bag, lambda _, items: Bag(*items))


def first(tree: Any, x: Any) -> Any:
    return x + jax.tree.leaves(tree)[0].ravel()[0]


def costs(script: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return the records of what calls cost."""
    return [record["call"] for record in recorded(script) if "call" in record]


@pytest.fixture
def every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flattening is measured however fast it is."""
    monkeypatch.setattr(call_costs, "_LEAST_SECONDS", 0.0)


def in_loop(jit: Any, tree: Any) -> Any:
    step, x = jit(lambda tree, x: first(tree, x)), jnp.float32(0)
    for _ in range(3):
        x = step(tree, x)
    return x


def on_one_line(jit: Any, tree: Any) -> Any:
    step, x = jit(lambda tree, x: first(tree, x)), jnp.float32(0)
    return [step(tree, x) for _ in range(3)][-1]


def over_lines(jit: Any, tree: Any) -> Any:
    step, x = jit(lambda tree, x: first(tree, x)), jnp.float32(0)
    for _ in range(3):
        x = step(
            x=x,
            tree=tree,
        )
    return x


def in_function(jit: Any, tree: Any) -> Any:
    step = jit(lambda tree, x: first(tree, x))

    def call(x: Any) -> Any:
        return step(tree, x)

    return call(call(jnp.float32(0)))


LOOPS = (in_loop, on_one_line, over_lines, in_function)


@pytest.mark.usefixtures("every_node")
@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit], ids=["jax", "equinox"])
@pytest.mark.parametrize("loop", LOOPS)
def test_the_class_that_takes_most(loop: Any, jit: Any) -> None:
    """Its method or function is named with the line, and with its share of the time."""
    for tree, by in (
        ([Sorted(b=1.0, a=jnp.ones(2)) for _ in range(40)], "Sorted.tree_flatten"),
        ([jnp.ones(2), *(Bag(3.0, 1.0, 2.0) for _ in range(40))], "_flatten_bag"),
    ):
        (cost,) = costs(lambda tree=tree: loop(jit, tree))
        assert cost["by"] == by
        assert cost["where"].rpartition(":")[0] == __file__
        assert cost["nodes"] == jax.tree.structure([tree, 0.0]).num_nodes
        assert 0.0 < cost["share"] <= 1.0
        assert cost["seconds"] > 0.0


def test_flattening_that_is_fast() -> None:
    """It is not a finding from less than a millisecond, nor for a single call."""
    assert costs(lambda: in_loop(jax.jit, [Sorted(a=jnp.ones(2))])) == []


@pytest.mark.usefixtures("every_node")
def test_a_single_call() -> None:
    """It costs once what it costs, also if its line is entered twice in one run."""

    def script() -> None:
        step, x = jax.jit(lambda tree, x: first(tree, x)), jnp.float32(0)
        again = jax.jit(lambda tree, x: first(tree, x))
        x += step(TABLE, x)
        (
            again(TABLE, x),
            jnp.sin(
                x,
            ),
        )

    assert costs(script) == []


@pytest.mark.parametrize("jit", [jax.jit, lw.jit, eqx.filter_jit], ids=["jax", "lw", "equinox"])
@pytest.mark.parametrize("loop", LOOPS)
def test_an_array_that_is_copied_each_time(loop: Any, jit: Any) -> None:
    """The same NumPy array in a second call is one; on the device it is not, with equal results."""
    for tree in (TABLE, {"w": TABLE[:LARGE], "b": np.ones(3)}):
        (cost,) = costs(lambda tree=tree: loop(jit, tree))
        assert cost["copied"] == {"tree": sum(array.nbytes for array in jax.tree.leaves(tree))}
        on_device = jax.device_put(tree)
        assert costs(lambda tree=on_device: loop(jit, tree)) == []
        assert loop(jit, tree) == loop(jit, on_device)


def test_two_arrays() -> None:
    """Each has its name, in the order of the call; a fresh one beside them has none."""
    other = TABLE.copy()
    step = jax.jit(lambda x, one, two: x + one[0] * two[0])
    again = jax.jit(lambda x, one, two: x - one[0] * two[0])

    def script() -> None:
        x = jnp.float32(0)
        for _ in range(2):
            x = step(x, other, TABLE)
        for _ in range(2):
            fresh = other * 2
            x = again(x, TABLE, fresh)

    both, one = costs(script)
    assert (*both["copied"], *one["copied"]) == ("other", "TABLE", "TABLE")


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit], ids=["jax", "equinox"])
def test_an_attribute(jit: Any) -> None:
    """What a method passes of its object has a name, unless it is set again."""

    class Trainer:
        def __init__(self, *, is_fresh: bool) -> None:
            self.table, self.is_fresh = TABLE + 1, is_fresh

        def run(self) -> None:
            step, x = jit(lambda table, x: first(table, x)), jnp.float32(0)
            for _ in range(3):
                self.table = self.table + 1 if self.is_fresh else self.table
                x = step(self.table, x)

    for is_fresh in (True, False):
        every = costs(Trainer(is_fresh=is_fresh).run)
        assert [cost["copied"] for cost in every] == [{"self.table": TABLE.nbytes}] * (not is_fresh)


def fresh(x: Any, step: Any) -> None:
    for n in range(3):
        batch = np.full(LARGE, n, np.float32)
        x = step(batch, x)


def loaded(x: Any, step: Any) -> None:
    for batch in (np.full(LARGE, n, np.float32) for n in range(3)):
        x = step(batch, x)


def alternating(x: Any, step: Any) -> None:
    for n in range(4):
        batch = (TABLE, TABLE[::-1])[n % 2]
        x = step(batch, x)


def filled(x: Any, step: Any) -> None:
    batch = np.zeros(LARGE, np.float32)
    for n in range(3):
        batch[:] = n
        x = step(batch, x)


def small(x: Any, step: Any) -> None:
    batch = np.zeros(LARGE - 1, np.float32)
    for _ in range(3):
        x = step(batch, x)


def without_a_name(x: Any, step: Any) -> None:
    for _ in range(3):
        x = step(np.ones(LARGE, np.float32), x)


@pytest.mark.parametrize("script", [fresh, loaded, alternating, filled, small, without_a_name])
def test_batches(script: Any) -> None:
    """A new array each time is none, nor is a buffer that is filled, nor a small array."""
    step = jax.jit(lambda batch, x: first(batch, x))
    assert costs(lambda: script(jnp.float32(0), step)) == []


def test_in_reports() -> None:
    """Text, page, JSON and annotations have it; nothing is kept alive."""

    def script() -> None:
        in_loop(jax.jit, TABLE)

    report = report_on(script)
    words = "each call of &lt;lambda&gt; copies `tree`, 2 MiB of NumPy arrays, to the device"
    assert words in html_page(report)
    assert "title=cost of each call::each call of <lambda> copies" in annotations_of(report)
    (record,) = to_json(report)["calls"]
    assert record["copied"] == {"tree": TABLE.nbytes}
    assert record["site"]["text"] == "x = step(tree, x)"
