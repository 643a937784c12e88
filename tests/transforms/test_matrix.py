"""Every transformation meets every kind of class: see `rows_*.py` for the rows.

What is only traced costs no compile: so every kind meets every row, some of them in turn, and
at night all. One kind compares numbers too, and one runs as a user writes it, outside any program.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import pytest

from .row import NO_QUESTION, Function, Row, Seen, ones, same, total
from .specimens import DIFFERENTIATED, EAGER, KINDS, RUNS, VALUES, Kind
from .table import PAGE, ROWS, made

How = Callable[[Function], Function]


def cells(*, derivatives: bool) -> Any:
    """Return the cells: a row that cannot be traced meets those kinds that run."""
    return pytest.mark.parametrize(
        ("row", "kind"),
        [
            pytest.param(
                *(row, kind),
                id=f"{row.key}-{kind.name}",
                marks=[pytest.mark.nightly] * (kind not in DIFFERENTIATED and (place - turn) % 3),
            )
            for turn, row in enumerate(ROWS)
            for place, kind in enumerate(DIFFERENTIATED if derivatives else KINDS)
            if kind is VALUES or (kind is EAGER and not derivatives) or not row.concrete
            if not derivatives or row.forward != NO_QUESTION
        ],
    )


def eager(function: Function) -> Function:
    return function


def shapes(function: Function) -> Function:
    """Return a function that is traced, and gives the shapes of the results."""
    return lambda p: jax.eval_shape(lambda q: function(q), p)  # a new one, which JAX has not met


@functools.cache
def wanted(plain: Function, kind: Kind, act: str, how: How, way: How = eager) -> Any:
    """Return what the plain function gives: several rows have the same one."""
    return how(way(plain))(kind.make(act))


@cells(derivatives=False)
def test_result(row: Row, kind: Kind) -> None:
    """Class and statics stay, no constructor runs, and it is traced as often as predicted."""
    seen = Seen()
    function = row.build(seen)
    counts: list[str] = []
    for act in ("tanh", "tanh", "sin"):
        runs = row.concrete or (kind is EAGER and act == "tanh")
        how: How = eager if runs else shapes
        instance = kind.make(act)
        seen.next(instance)
        RUNS.clear()
        result = how(function)(instance)
        counts.append(str(seen))
        assert RUNS == []
        same(result, wanted(row.plain, kind, act, how))
    assert tuple(counts) == row.traces_here()


def forward(function: Function) -> Function:
    return lambda p: jax.jvp(function, (p,), (ones(p),))


def reverse(function: Function) -> Function:
    return jax.grad(lambda p: total(function(p)), allow_int=True)


@cells(derivatives=True)
def test_derivatives(row: Row, kind: Kind) -> None:
    """Tangents and gradients are those of the plain function, or refused; no tracer leaks."""
    if row.key == "psum" and jax.__version_info__ < (0, 8, 2):
        pytest.skip("JAX cannot differentiate it where a leaf holds integers")
    instance, seen = kind.make("tanh"), Seen()
    seen.next(instance)
    function = row.build(seen)
    refusals = {reverse: row.reverse, forward: row.forward}
    ways = [way for way, refused in refusals.items() if not refused]
    hows: list[How] = [jax.jit, shapes] if kind is VALUES else [shapes, shapes]
    RUNS.clear()
    with jax.checking_leaks():
        results = [how(way(function))(instance) for way, how in zip(ways, hows, strict=False)]
        for way, refused in refusals.items():
            if refused and kind is VALUES:
                with pytest.raises((TypeError, ValueError), match=re.escape(refused)):
                    jax.jit(way(function))(instance)
    assert RUNS == []
    for result, way, how in zip(results, ways, hows, strict=False):
        same(result, wanted(row.plain, kind, "tanh", how, way))


def test_the_page_is_that_of_the_rows() -> None:
    """The tables are those that the rows make: `python -m tests.transforms.table` writes them."""
    page = PAGE.read_text()
    assert page == made(page)
