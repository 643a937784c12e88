from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.nightly  # `nox -s demo` runs it, too


@pytest.fixture(scope="module")
def result(load_example: Callable[[str], ModuleType]) -> Any:
    """Return the report."""
    return load_example("captured").main()


def test_captured_change_is_not_seen(result: Any) -> None:
    """Plain Python answers for the new rate, `jax.jit` for the old one."""
    assert result.plain == pytest.approx((0.1, 0.5))
    assert result.jitted == pytest.approx((0.1, 0.1))


def test_leafwise_names_it(result: Any) -> None:
    """The captures and their treatment are listed; the stale one is named, with both values."""
    treatments = {capture.name: str(capture.treatment) for capture in result.captures}
    wanted = {"optimizer": "static", "scale": "constant", "rate": "literal"}
    assert {name: treatments[name] for name in wanted} == wanted
    for words in ("`rate`", "captured.py", "0.1", "0.5", "pass it as an argument"):
        assert words in result.warning


@pytest.mark.parametrize(
    ("fix", "programs"), [("an argument", 1), ("a dynamic field", 1), ("a static field", 100)]
)
def test_fixes(result: Any, fix: str, programs: int) -> None:
    """A hundred changes all count; only in a static field each of them is another program."""
    row = result.fixes[fix]
    assert (row.traces, row.compiles, row.right) == (programs, programs, 100)
