"""Reasons hold facts; what to do about them is worded when it is read."""

import gc
import io
import weakref
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.specimens import Plain

import leafwise as lw


@lw.pytree
class ByContent:
    x: Any
    f: Any = lw.static_field(compare_by="content")


class Loud:
    """A static that counts how often its text is asked for."""

    asked: "list[Loud]" = []  # noqa: RUF012  # for all instances

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud) and self.n == other.n

    def __hash__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        self.asked.append(self)
        return f"Loud({self.n})"


class Louder(Loud):
    """Another type, so that the reason has the text of both."""


@pytest.mark.hazard
def test_nothing_is_worded_that_nobody_reads() -> None:
    """Comparing with every earlier call asks no value for its text; reading one asks two."""
    Loud.asked.clear()
    earlier = [lw.signature(Plain(1.0, Loud(n))) for n in range(20)]
    found = lw.signature(Plain(1.0, Louder(30))).explain(earlier)
    assert not Loud.asked
    (reason,) = found.reasons
    assert reason.change == "Loud(19) (Loud) -> Loud(30) (Louder)"
    assert [each.n for each in Loud.asked] == [19, 30]


@pytest.mark.hazard
def test_a_reason_keeps_what_it_shows_alone() -> None:
    """Of functions by content it keeps the parts that differ, and of arrays no data."""

    def scaled(k: Any) -> Any:
        return lambda x: x * k

    outer, array = scaled(Loud(1)), jnp.ones(3)
    calls = [ByContent(array, outer), ByContent(np.ones(3, np.int8), scaled(Loud(2)))]
    one, two = map(lw.signature, calls)
    static, dtype = sorted(two.explain(one).reasons, key=lambda each: each.kind != "static")
    gone = weakref.ref(outer), weakref.ref(array)
    del calls, one, two, outer, array
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert "(at .__closure__['k'].n)" in static.change
    assert str(dtype.fix) == "`x.x.astype(jnp.float32)` in this call"


def test_explanations_under_rich() -> None:
    """They are their text, markup and all."""
    console = pytest.importorskip("rich.console")
    found = lw.signature({"[b]x": 1}).explain(lw.signature({"[b]x": 1.0}))
    out = io.StringIO()
    console.Console(file=out, width=100).print(found)
    assert out.getvalue().strip() == str(found)


@pytest.mark.parametrize("wrap", [str, str.encode, lambda text: (1, "a", text)])
def test_long_values_that_differ_at_the_end(wrap: Any) -> None:
    """Both sides show the difference, in an explanation, a diff and a changed static alike."""
    one, other = (wrap("x" * 10_000 + end) for end in "ab")
    by_static = lw.signature(1.0, other, static_argnums=1).explain(
        lw.signature(1.0, one, static_argnums=1)
    )
    by_field = lw.signature(Plain(1.0, other)).explain(lw.signature(Plain(1.0, one)))
    for reason in (*by_static.reasons, *by_field.reasons, *lw.diff(Plain(1, one), Plain(1, other))):
        before, after = reason.words
        assert before == after.replace("b", "a") != after
        assert len(after) < 100
        assert "xa" in reason.change
        assert "xb" in reason.change
