import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

DOCS = Path(__file__).parents[2] / "docs"
LOOPS = [
    "Python loop",
    "scan",
    "fori_loop, bound an int",
    "fori_loop, bound traced",
    "while_loop",
]
COUNTED = LOOPS[:3]


pytestmark = pytest.mark.nightly  # each loop is compiled forwards and backwards


@pytest.fixture(scope="module")
def report(load_example: Callable[[str], ModuleType]) -> Any:
    """Return what `examples/loops.py` reports."""
    return load_example("loops").main()


@pytest.fixture(scope="module")
def branches(load_example: Callable[[str], ModuleType]) -> Any:
    """Return what `examples/branches.py` reports."""
    return load_example("branches").main()


@pytest.fixture(scope="module")
def measured() -> Iterator[ModuleType]:
    """Return the script that writes the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("measured")
        for name in ("measured", "drawing"):
            patch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", LOOPS)
def test_derivatives(report: Any, name: str) -> None:
    """Every loop has a forward derivative; those whose steps are counted a reverse one."""
    row = report.loops[name]
    assert not row.forward
    assert ("Reverse-mode differentiation does not work" in row.reverse) is (name not in COUNTED)
    assert bool(row.reverse) is (row.back is None)


@pytest.mark.parametrize("name", LOOPS)
def test_traces(report: Any, name: str) -> None:
    """A body is traced once, by Python once a step; a traced bound may change without a trace."""
    row = report.loops[name]
    assert row.traced == (8 if name == "Python loop" else 1)
    assert row.again is (name in COUNTED)
    assert (row.growth > 1.5) is (name == "Python loop")


def test_only_while_stops_early(report: Any) -> None:
    """Three of eight steps: `while_loop` asks four times, others eight, Python cannot ask."""
    rounds = {name: row.rounds for name, row in report.loops.items()}
    refused = rounds.pop("Python loop")
    assert refused.startswith("Attempted boolean conversion of traced array")
    assert rounds == {
        "scan": 8,
        "fori_loop, bound an int": 8,
        "fori_loop, bound traced": 8,
        "while_loop": 4,
    }
    assert [name for name, row in report.loops.items() if row.stops] == ["while_loop"]


def test_memory_forward_is_constant(report: Any) -> None:
    """More steps take no more scratch memory, in any loop."""
    assert [row.ahead for row in report.loops.values()] == pytest.approx([0] * 5, abs=0.3)


@pytest.mark.parametrize("name", COUNTED)
def test_gradient_keeps_what_a_step_computed(report: Any, name: str) -> None:
    """A gradient keeps more than a carry of each step, of a scan two for each product at most."""
    assert 1.5 < report.loops[name].back < 6
    assert report.kept("scan") == pytest.approx(report.loops["scan"].back, rel=0.1)


def test_checkpoint_keeps_less(report: Any) -> None:
    """Kept of each step: all, products and carry, the carry; or the weights too, if carried."""
    carries = {name: report.kept(name) for name in report.backward}
    assert carries["checkpoint"] == pytest.approx(1, abs=0.1)
    assert carries["checkpoint, dots_saveable"] == pytest.approx(3, abs=0.3)
    assert carries["scan"] > carries["checkpoint, dots_saveable"] + 0.5
    assert carries["checkpoint, weights in the carry"] == pytest.approx(65, abs=1)


def test_segments_grow_with_the_square_root(report: Any) -> None:
    """Four times the steps: twice the growth, not four times."""
    sizes = report.backward["checkpoint, segments"]
    growth = (sizes[256] - sizes[64]) / (sizes[64] - sizes[16])
    assert growth == pytest.approx(2, rel=0.2)
    assert sizes[256] < report.backward["checkpoint"][256] < report.backward["scan"][256]


def test_less_memory_is_more_work(report: Any) -> None:
    """A checkpoint takes each step twice, one within another three times."""
    assert list(report.times.values()) == [1, 2, 2, 3, 2]


def test_loops_agree(load_example: Callable[[str], ModuleType], report: Any) -> None:
    """All loops take the same steps, and all ways to keep less give the same gradient."""
    example = load_example("loops")
    expected = example.State()
    for _ in range(3):
        expected = example.Net().step(expected)
    for name in LOOPS[1:]:
        last = report.loops[name].last
        assert int(last.steps) == 3, name
        assert jax.numpy.allclose(last.x, expected.x), name

    def four(net: Any) -> Any:
        return net.step(net.step(net.step(net.step(example.State())))).x.sum()

    wanted = jax.jit(jax.grad(four))(example.Net()).w
    for name, gradient in report.gradients.items():
        assert type(gradient).__name__ == "Noting", name
        assert jax.numpy.allclose(gradient.w, wanted), name


@pytest.mark.parametrize("name", ["cond", "switch"])
def test_one_side_runs(branches: Any, name: str) -> None:
    """`cond` and `switch` run one side, under `vmap` both; the gradient of the other stays out."""
    row = branches.branches[name]
    assert (row.sides, row.mapped) == (("zero",), ("root", "zero"))
    assert (row.slope, row.mapped_slope) == (0, 0)


def test_where_runs_both(branches: Any) -> None:
    """`where` runs both sides, and its gradient is NaN unless the other side is made safe."""
    row, safe = branches.branches["where, select"], branches.branches["where, safe inside"]
    assert row.sides == safe.sides == row.mapped == ("root", "zero")
    assert row.slope != row.slope
    assert row.mapped_slope != row.mapped_slope
    assert (safe.slope, safe.mapped_slope) == (0, 0)
    assert branches.branches["Python if"].refused.startswith("Attempted boolean conversion")


def test_memory_of_a_batch(branches: Any) -> None:
    """`vmap` takes memory for all examples, `lax.map` for one, or for its `batch_size`."""
    growth = {name: many / few for name, (few, many) in branches.batches.items()}
    assert growth["vmap"] == pytest.approx(2, rel=0.2)
    assert growth["lax.map"] == growth["lax.map, batch_size=8"] == pytest.approx(1, rel=0.1)
    few = {name: sizes[0] for name, sizes in branches.batches.items()}
    assert few["lax.map"] < few["lax.map, batch_size=8"] < few["vmap"]


def test_page_says_what_was_measured(measured: ModuleType, report: Any, branches: Any) -> None:
    """The tables of the page are those that would be written now."""
    text = measured.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- measured: ") == 5
    assert measured.filled(text, report, branches) == text, "run python docs/measured.py"


def test_figure_shows_what_was_measured(measured: ModuleType, report: Any) -> None:
    """The curves are drawn from numbers like those of today: they move between versions of XLA."""
    kept = measured.FIGURE.read_text(encoding="utf-8")
    shown = measured.read(kept)
    assert measured.draw(shown) == kept, "run python docs/measured.py"
    now = measured.kib(report)
    assert {name: list(each) for name, each in shown.items()} == {
        name: list(each) for name, each in now.items()
    }
    for name, each in shown.items():
        assert list(each.values()) == pytest.approx(list(now[name].values()), rel=0.4), name
