import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

DOCS = Path(__file__).parents[2] / "docs"
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


def test_loops_agree(load_example: Callable[[str], ModuleType], report: Any) -> None:
    """All loops take the same steps, and all ways to keep less give the same gradient."""
    example = load_example("loops")
    expected = example.State()
    for _ in range(3):
        expected = example.Net().step(expected)
    for name in list(report.loops)[1:]:
        last = report.loops[name].last
        assert int(last.steps) == 3, name
        assert jax.numpy.allclose(last.x, expected.x), name

    def four(net: Any) -> Any:
        return net.step(net.step(net.step(net.step(example.State())))).x.sum()

    wanted = jax.jit(jax.grad(four))(example.Net()).w
    for name, gradient in report.gradients.items():
        assert type(gradient).__name__ == "Noting", name
        assert jax.numpy.allclose(gradient.w, wanted), name


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
