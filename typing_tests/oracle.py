"""The oracle: what a checker sees of functions under `lw.jit`, of watches and of answers."""

from collections.abc import Mapping
from typing import Any, assert_type

import jax

import leafwise as lw


@lw.jit
def double(x: jax.Array, times: int = 1) -> jax.Array:
    return x * 2 * times


@lw.jit(static_argnames="times")
def triple(x: jax.Array, times: int = 1) -> jax.Array:
    return x * 3 * times


@lw.jit(on_stale="retrace")
def fresh(x: jax.Array) -> jax.Array:
    return x


def checked(x: jax.Array) -> None:
    assert_type(fresh(x), jax.Array)
    assert_type(lw.jit(fresh, on_stale="raise")(x), jax.Array)
    with lw.debug.check_captures(on_stale="ignore") as found:
        assert_type(found.stale, list[lw.types.StaleCapture])
    lw.jit(fresh, on_stale="never")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


class Trainer:
    @lw.jit
    def step(self, x: jax.Array) -> jax.Array:
        return x


def bound(trainer: Trainer, x: jax.Array) -> None:
    assert_type(trainer.step(x), jax.Array)
    assert_type(Trainer.step(trainer, x), jax.Array)
    trainer.step("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def asked(x: jax.Array) -> None:
    assert_type(double(x), jax.Array)
    assert_type(triple(x, times=2), jax.Array)
    assert_type(double.traces[-1], lw.types.Program)
    assert_type(double.traces[1:], tuple[lw.types.Program, ...])
    assert_type(double.traces[0].explanation, lw.types.Explanation)
    assert_type(double.traces[0].first_compile(), lw.types.FirstCompile | None)
    assert_type(double.recompiles, lw.types.Programs)
    assert_type(double.explain(x), lw.types.Explanation)
    assert_type(double.signature(x, times=2), lw.types.Signature)
    assert_type(double.cache_size(), int)
    assert_type(double.stale_captures(x), tuple[lw.types.StaleCapture, ...])
    double("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    double.explain(x, rate=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def compared(x: jax.Array) -> None:
    before = lw.signature(x, 1.0, static_argnums=1, rate=2)
    assert_type(before, lw.types.Signature)
    assert_type(before.leaves, Mapping[str, lw.types.Leaf])
    assert_type(before.statics, Mapping[str, Any])
    answer = before.explain([before, before])
    assert_type(answer.outcome, lw.types.Outcome)
    assert_type(answer.reasons[0], lw.types.Reason)
    assert_type(answer.nearest, int | None)
    before.explain(x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@lw.storm_guard(20)
def swept(x: int) -> str:
    return str(x)


def watched() -> None:
    assert_type(swept(1), str)
    with lw.watch(eager=False) as log:
        assert_type(log, lw.types.Log)
        assert_type(log.traces, list[lw.types.Event])
        assert_type(log.events[0].site, lw.types.Site | None)
        assert_type(log.events[0].kind, lw.types.EventKind)
    with lw.budget(traces=1, compiles=1, of=double, raise_at_once=True) as within:
        assert_type(within, lw.types.Log)
    with lw.no_retrace(of="double"):
        pass
    lw.budget(traces="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with lw.storm_guard(None) as nothing:
        assert_type(nothing, None)
    lw.storm_guard("8")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
