from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def result(load_example: Callable[[str], ModuleType]) -> Any:
    """Return the report."""
    return load_example("flags").main()


@pytest.mark.parametrize("name", ["field", "argument"])
def test_alternating_flag_compiles_twice(result: Any, name: str) -> None:
    """100 calls with True and False in turn keep two programs, whichever way it is static."""
    row = result.rows[name]
    assert (row.calls, row.traces, row.compiles) == (100, 2, 2)
    assert row.sizes == (1, *[2] * 99)


def test_one_program_per_int(result: Any) -> None:
    """Five values of a static int make five programs in 100 calls, beside what was there."""
    row = result.rows["depth"]
    assert (row.calls, row.traces, row.compiles) == (100, 5, 5)
    assert row.sizes == (3, 4, 5, 6, *[7] * 96)


def test_true_is_not_1(result: Any) -> None:
    """With leafwise True and 1 have a program each; JAX alone takes the bool one for both."""
    assert result.rows["Fill"].compiles == 2
    assert result.dtypes["Fill"] == ["bool", "int32"]
    assert result.rows["PlainFill"].compiles == 1
    assert result.dtypes["PlainFill"] == ["bool", "bool"]
