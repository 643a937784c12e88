"""In a block of `lw.debug.check_captures` each program is compared with that of a fresh trace."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.things import Model

import leafwise as lw

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "action"),
    [
        *(("array", action) for action in ("raise", "warn", "retrace", "ignore")),
        *((kind, "raise") for kind in ("items", "object", "name that is made up")),
    ],
)
def test_a_block_is_exact(kind: str, action: Any) -> None:
    """Where names do not show it, or it is large, the program of a fresh trace does."""
    array, made_up = np.zeros(1 << 20, np.float32), Model(rate=0.0)
    items = [0.0] * 10_000
    deep = Model(rate=[Model(rate=[Model(rate=0.0) for _ in range(30)]) for _ in range(30)])
    function, change = {
        "array": (lambda x: x + array[0] + array[1:3], lambda: array.__setitem__(1, 1)),
        "items": (lambda x: x + sum(items), lambda: items.__setitem__(1, 1)),
        "object": (
            lambda x: x + sum(b.rate for a in deep.rate for b in a.rate),
            lambda: setattr(deep.rate[3].rate[4], "rate", 1.0),
        ),
        "name that is made up": (
            lambda x: x + getattr(made_up, "ra" + "te"),
            lambda: setattr(made_up, "rate", 1.0),
        ),
    }[kind]
    jitted = jit(function, on_stale="ignore" if action == "raise" else "raise")
    with lw.debug.check_captures(on_stale=action) as found:
        old = jitted(ONES)
        jitted(ONES)
        change()
        if action == "raise":
            with pytest.raises(lw.errors.StaleCaptureError):
                jitted(ONES)
        elif action == "warn":
            with pytest.warns(lw.errors.StaleCaptureWarning):
                assert not np.array_equal(jitted(ONES), old)
        else:
            assert np.array_equal(jitted(ONES), old) == (action == "ignore")
        if action in ("warn", "retrace"):
            jitted(ONES)
    assert len(found.stale) == (action != "retrace")
    assert all(f"{__file__}:" in each.line for each in found.stale) or kind == "array"


@pytest.mark.parametrize("donates", [False, True])
def test_a_block_runs_the_body_once_more(donates: bool) -> None:
    """It traces each call once more, before that takes its arguments; no trace is counted."""
    ran: list[int] = []

    def function(x: Any) -> Any:
        ran.append(1)
        return x + 1

    jitted = jit(function, donate_argnums=0 if donates else ())
    with lw.debug.check_captures() as found:
        for _ in range(3):
            assert jitted(jnp.ones(2)).tolist() == [2, 2]
    assert len(ran) == 3
    assert len(jitted.traces) == 1
    assert found.not_compared == {}


def test_a_block_takes_up_nothing_of_an_earlier_trace() -> None:
    """What JAX keeps of a loop's body may be of the old value."""
    one = [1]
    same = one

    def body(_: Any, x: Any) -> Any:
        return x * (1.0 if same is one else 2.0)

    jitted = jit(lambda x: jax.lax.fori_loop(0, 1, body, x) * (1.0 if same is one else 2.0))
    with lw.debug.check_captures(on_stale="retrace"):
        assert jitted(ONES).tolist() == [1, 1]
        same = list(one)
        assert jitted(jnp.ones(3)).tolist() == [4, 4, 4]
        assert jitted(ONES).tolist() == [4, 4]


def test_blocks_nest_and_end() -> None:
    """The innermost block counts, an error ends it, and functions made inside are covered."""
    value = [1.0]
    with pytest.raises(KeyError), lw.debug.check_captures():
        raise KeyError
    jitted = jit(lambda x: x * value[0], on_stale="ignore")
    with lw.debug.check_captures():
        jitted(ONES)
        with lw.debug.check_captures("ignore") as inner:
            value[0] = 2.0
            jitted(ONES)
        assert [each.after for each in inner.stale] == ["2.0"]
        value[0] = 3.0
        with pytest.raises(lw.errors.StaleCaptureError):
            jitted(ONES)
    jitted(ONES)
    with pytest.raises(ValueError, match="one of 'warn', 'raise', 'retrace', 'ignore', got 'no'"):
        lw.debug.check_captures("no").__enter__()
    with pytest.raises(ValueError, match=r"leafwise\.jit takes on_stale="):
        jit(abs, on_stale=True)


def test_what_cannot_be_traced_again_is_named() -> None:
    """A function that refuses a second trace is answered as it was."""
    ran: list[int] = []

    def function(x: Any) -> Any:
        ran.append(1)
        return x * {1: 2.0}[len(ran)]

    jitted = jit(function, on_stale="ignore")
    with lw.debug.check_captures() as found:
        assert jitted(ONES).tolist() == jitted(ONES).tolist() == [2, 2]
    assert found.not_compared == {"function": "its trace raised KeyError"}
