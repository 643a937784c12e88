"""Programs that are compiled ahead: what the first call finds, and what is said of failures."""

import io
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise._jax.events import count_events
from leafwise.errors import PrecompileError, RetraceStormWarning


@lw.pytree
class Params:
    w: jax.Array
    act: str = lw.static_field(default="relu")


def scale(params: Any, x: Any) -> Any:
    return params.w * x if params.act == "relu" else params.w - x


VECTOR = jax.ShapeDtypeStruct((3,), jnp.float32)


def calls() -> tuple[Any, Any]:
    return Params(jnp.ones(3)), jnp.ones(3)


@pytest.mark.parametrize(
    "wrap", [lw.jit, jax.jit, eqx.filter_jit], ids=["leafwise", "jax", "equinox"]
)
@pytest.mark.parametrize("how", ["arrays", "structs", "abstract instance", "signature"])
def test_the_first_call_after_it_traces_lowers_and_compiles_nothing(wrap: Any, how: str) -> None:
    """JAX finds the program, however the call was given."""
    fun = wrap(lambda params, x: scale(params, x) + 1)
    params, x = calls()
    filtered = wrap is eqx.filter_jit
    given = {
        "arrays": ((params, x), {}),
        "structs": ((Params(VECTOR), VECTOR), {}),
        "abstract instance": (jax.eval_shape(calls), {}),
        "signature": lw.signature(params, x, filter_jit=filtered),
    }[how]
    (program,) = lw.precompile([(fun, given)])
    assert program.outcome == "compiled"
    assert program.compiled is not None
    with count_events() as counts:
        fun(params, x)
    assert (counts.traces, counts.lowerings, counts.compiles) == (0, 0, 0)


def test_a_sharding_stands_for_committed_arrays() -> None:
    """With a sharding the committed call finds its program, and without it the other one."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    struct = jax.ShapeDtypeStruct((3,), jnp.float32, sharding=device)
    x, committed = jnp.ones(3), jax.device_put(jnp.ones(3), device)
    one, two = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)
    lw.precompile([(one, ((struct,), {})), (two, ((VECTOR,), {}))])
    with count_events() as counts:
        one(committed), two(x)
    assert counts.compiles == 0
    with count_events() as counts:
        one(x), two(committed)
    assert (counts.lowerings, counts.compiles) == (2, 2)
    three = jax.jit(lambda x: x + 3)
    lw.precompile([(three, lw.signature(committed))])
    with count_events() as counts:
        three(committed)
    assert counts.compiles == 0


def test_methods_of_an_abstract_instance_are_compiled_ahead() -> None:
    """`jax.eval_shape` of a constructor gives an instance whose method can be given."""

    @lw.pytree
    class Model:
        w: jax.Array

        @lw.jit
        def __call__(self, x: Any) -> Any:
            return self.w * x

        @lw.jit
        def back(self, x: Any) -> Any:
            return self.w - x

    model = jax.eval_shape(lambda: Model(jnp.ones(3)))
    lw.precompile([(model.back, ((VECTOR,), {})), (Model.back, ((model, VECTOR), {}))])
    real = Model(jnp.ones(3))
    with count_events("back") as counts:
        real.back(jnp.ones(3))
    assert counts.compiles == 0
    recorded = real.back.signature(jnp.ones(1)), lw.signature(jnp.ones(1))  # with self, without
    done = lw.precompile([(real.back, each) for each in recorded])
    assert [each.outcome for each in done] == ["compiled", "known"]


@pytest.mark.parametrize("wrap", [lw.jit, jax.jit], ids=["leafwise", "jax"])
def test_methods_of_other_classes_are_given_bound(wrap: Any) -> None:
    """JAX's own `lower` of such a method forgets the instance."""

    class Trainer:
        def step(self, x: Any) -> Any:
            return x * 3

    Trainer.step = wrap(Trainer.step, static_argnums=0)  # type: ignore[method-assign]
    trainer = Trainer()
    lw.precompile([(trainer.step, ((VECTOR,), {}))])
    with count_events("step") as counts:
        trainer.step(jnp.ones(3))
    assert counts.compiles == counts.traces == 0


def test_a_recorded_call_without_its_values_says_so() -> None:
    """`lw.signature` does not know what is static; the arguments themselves do."""
    fun = jax.jit(lambda x, mode: x, static_argnames="mode")
    with pytest.raises(
        PrecompileError, match=r"kwargs\['mode'\]: without its value.*which JAX refuses"
    ):
        lw.precompile([(fun, lw.signature(jnp.ones(3), mode="a"))])
    lw.precompile([(fun, ((VECTOR,), {"mode": "a"}))])


def test_the_configuration_of_the_block_counts() -> None:
    """Tracing takes the precision and the mesh of the block around it."""
    fun = jax.jit(lambda x: x @ x)
    with jax.default_matmul_precision("float32"):
        lw.precompile([(fun, ((jax.ShapeDtypeStruct((2, 2), jnp.float32),), {}))])
        x = jnp.ones((2, 2))
        with count_events() as counts:
            fun(x)
    assert counts.compiles == 0
    with count_events() as counts:
        fun(x)
    assert counts.compiles == 1


def test_one_failure_does_not_lose_the_others() -> None:
    """The error names each function and call that failed; the rest is compiled."""

    def bad(x: Any) -> Any:
        raise ZeroDivisionError(x.shape)

    fine = jax.jit(lambda x: x * 5)
    call = (VECTOR,), {}
    with pytest.raises(PrecompileError) as caught:
        lw.precompile([(jax.jit(bad), call), (fine, call), (lw.jit(scale), ((VECTOR,), {}))])
    error = caught.value
    assert "2 of 3 programs could not be compiled" in error.message
    assert "bad(f32[3](struct))\n    ZeroDivisionError: (3,)" in error.message
    assert "scale(f32[3](struct))\n    TypeError" in error.message
    assert [type(each) for each in error.exceptions] == [ZeroDivisionError, TypeError]
    assert [str(each.outcome) for each in error.programs] == ["failed", "compiled", "failed"]
    with count_events() as counts:
        fine(jnp.ones(3))
    assert counts.compiles == 0
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (str(again), len(again.exceptions)) == (str(error), 2)


def plain(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ((plain, ((1,), {})), "fix: plain = jax.jit(plain)"),
        (("abc", ((1,), {})), "got 'abc' (str) at 0"),
        ((jax.jit(plain), (1,)), "pairs of a jitted function and a call"),
        (jax.jit(plain), "pairs of a jitted function and a call"),
    ],
)
def test_what_is_not_a_jitted_function_and_a_call_is_refused(entry: Any, words: str) -> None:
    """Before anything is compiled, with the fix."""
    with pytest.raises(TypeError) as caught:
        lw.precompile([entry])
    assert words in str(caught.value)


def test_traces_made_ahead_are_no_storm() -> None:
    """They are in the log; they are not counted as retraces that one argument caused."""
    fun = lw.jit(lambda x: x * 2)
    shapes = [((jax.ShapeDtypeStruct((n,), jnp.float32),), {}) for n in range(1, 11)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RetraceStormWarning)
        lw.precompile([(fun, call) for call in shapes])
    assert len(fun.traces) == len(shapes)


def test_progress_is_a_line_for_each_program_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Standard error has nothing where it is not a terminal."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    pairs = [(lw.jit(scale), ((Params(VECTOR), VECTOR), {})), (jax.jit(plain), ((VECTOR,), {}))]
    lw.precompile(pairs)
    assert not stream.getvalue()
    lw.precompile(pairs, progress=True, threads=1)
    lines = stream.getvalue().splitlines()
    assert [line[:5] for line in lines] == ["[1/2]", "[2/2]"]
    assert "scale(Params(w=f32[3](struct), act='relu'), f32[3](struct)): lowered in" in lines[0]


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same lines."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    lw.precompile([(jax.jit(plain), ((VECTOR,), {}))])
    assert "[1/1] plain" in stream.getvalue()


def test_ctrl_c_ends_it() -> None:
    """What waits is not compiled."""
    made: list[int] = []

    def bad(x: Any) -> Any:
        made.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lw.precompile([(jax.jit(bad), ((VECTOR,), {})), (jax.jit(bad), ((VECTOR,), {}))])
    assert made == [1]


def test_filter_jit_takes_no_struct_that_numpy_has_not() -> None:
    """The error says what to give instead."""
    fun = eqx.filter_jit(lambda x: x)
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    struct = jax.ShapeDtypeStruct((3,), jnp.float32, sharding=device)
    with pytest.raises(PrecompileError, match="give an array"):
        lw.precompile([(fun, ((struct,), {}))])


SCRIPT = """
import jax, jax.numpy as jnp, leafwise as lw, sys
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

@lw.pytree
class P:
    w: jax.Array
    n: int = lw.static_field(default=3)

@lw.jit
def step(p, x):
    return p.w * x + p.n

x = jnp.ones(3)
if sys.argv[2] == "ahead":
    struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    print(lw.precompile([(step, ((P(struct), struct), {}))])[0].outcome)
else:
    with lw.watch() as log:
        step(P(x), x)
    print([each.cached for each in log.events if each.kind == "compile" and each.name == "step"])
"""


def run(*arguments: str, seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


@pytest.mark.nightly
def test_the_first_call_of_the_next_process_is_a_hit_of_the_persistent_cache(
    tmp_path: Path,
) -> None:
    """What one process compiles ahead, another one need not compile, whatever its hash seed."""
    assert run(str(tmp_path), "ahead", seed="1") == "compiled"
    assert run(str(tmp_path), "call", seed="2") == "[True]"
    assert run(str(tmp_path), "ahead", seed="3") == "cached"
