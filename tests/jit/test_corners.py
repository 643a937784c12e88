import dataclasses
import functools
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._jax.events import count_events

pytestmark = pytest.mark.oracle

x = jnp.ones(3)


def seen(function: Callable[[], object]) -> tuple[int, int, int]:
    with count_events() as counts:
        function()
    return counts.traces, counts.lowerings, counts.compiles


@pytest.mark.parametrize("jit", [jax.jit, lw.jit], ids=["jax", "leafwise"])
@pytest.mark.parametrize("limits", [{"lowerings": 0}, {"compiles": 0}, {"traces": 0}])
def test_strict_budget_leaves_jax_whole(jit: Any, limits: dict[str, int]) -> None:
    """After an error at once, the function compiles one time more, and then never again."""
    function = jit(lambda x: x * 2)
    with pytest.raises(lw.errors.RetraceError), lw.budget(strict=True, **limits):
        function(x)
    function(x)
    assert seen(lambda: function(x)) == (0, 0, 0)


def tripled(q: Any) -> Any:
    return q * 3


@pytest.mark.parametrize(
    ("make", "of"),
    [
        (lambda: (f := eqx.filter_jit(lambda q: q * 3), f), "itself"),
        (lambda: (eqx.filter_jit(tripled), tripled), "function"),
        (lambda: (eqx.filter_jit(tripled), "tripled"), "name"),
        (lambda: (lw.jit(functools.partial(tripled)), "tripled"), "name of a partial"),
        (lambda: (jax.jit(functools.partial(tripled)), tripled), "function of a partial"),
        (lambda: (lw.jit(functools.partial(tripled)), tripled), "the same under lw.jit"),
    ],
)
def test_budget_of_a_wrapped_function(make: Callable[[], tuple[Any, Any]], of: str) -> None:
    """A budget of a function sees it behind `filter_jit`, and behind a partial."""
    function, wanted = make()
    with pytest.raises(lw.errors.RetraceError), lw.no_retrace(of=wanted):
        function(jnp.ones(np.random.default_rng().integers(4, 10_000)))


def test_names_are_those_of_jax() -> None:
    """A partial has the name of its function, a callable object the one that JAX gives it."""

    class Doubler:
        def __call__(self, x: Any) -> Any:
            return x

    for fun in (functools.partial(tripled), Doubler(), tripled, lambda x: x):
        ours, its = lw.jit(fun).trace(x), jax.jit(fun).trace(x)
        assert ours.fun_name == its.fun_name


def test_budget_inside_of_itself() -> None:
    """A budget that is used again in its own block counts for each block."""
    one = lw.budget(traces=1)

    def nested() -> None:
        with one:
            jax.jit(lambda x: x + 31)(1.0)
            with one:
                pass
            jax.jit(lambda x: x + 32)(1.0)

    with pytest.raises(lw.errors.RetraceError):
        nested()


def test_shardings_of_the_function_decide() -> None:
    """With `in_shardings`, where an argument lies is not decided by the arguments."""
    there = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    function = lw.jit(lambda x: x + 1, in_shardings=there)
    function(x)
    answer = function.explain(jax.device_put(x, jax.devices()[-1]))
    assert answer.outcome is lw.types.Outcome.UNKNOWN
    assert function.explain(jnp.ones(4)).outcome is lw.types.Outcome.RETRACE
    assert function.explain(x).outcome is lw.types.Outcome.REUSE


def test_ahead_of_time() -> None:
    """A function that was lowered ahead of time may be compiled, or not."""
    function = lw.jit(lambda x: x * 7)
    function.lower(x).compile()
    assert function.explain(x).outcome is lw.types.Outcome.UNKNOWN
    assert function.explain(jnp.ones(4)).outcome is lw.types.Outcome.RETRACE
    assert seen(lambda: function(x)) == (0, 0, 0)


def test_cloudpickle() -> None:
    """A function that was pickled by value runs when it is loaded."""
    loaded = cloudpickle.loads(cloudpickle.dumps(lw.jit(lambda x: x + 1)))
    assert loaded(1.0) == 2.0
    assert loaded(2.0) == 3.0


@pytest.mark.nightly
@pytest.mark.slow
def test_many_programs() -> None:
    """With hundreds of programs, all of them are still known, and the nearest is a late one."""
    function = lw.jit(lambda x, n: x, static_argnames="n")
    with lw.storm_guard(None):
        for n in range(300):
            function(1.0, n=n)
    assert function.explain(1.0, n=3).outcome is lw.types.Outcome.REUSE
    assert function.explain(np.float32(1.0), n=3).outcome is lw.types.Outcome.RETRACE
    answer = function.explain(1.0, n=300)
    assert (answer.outcome, answer.nearest) == (lw.types.Outcome.RETRACE, 299)


@pytest.mark.parametrize(("before", "after"), [(8, 3), (3, 20)])
def test_storm_guard_with_another_number(before: int, after: int) -> None:
    """Another threshold counts what was counted, and never warns of one field twice."""
    function = lw.jit(lambda x, n: x, static_argnames="n")

    def call() -> None:
        with lw.storm_guard(before):
            for n in range(5):
                function(1.0, n=n)
        with lw.storm_guard(after):
            for n in range(5, 40):
                function(1.0, n=n)

    with pytest.warns(lw.errors.RetraceStormWarning) as caught:
        call()
    assert len(caught) == 1


def run(script: Path, *options: str, read: bool = True) -> tuple[int, str, str]:
    """Run `leafwise explain`; return exit code, standard output and standard error."""
    command = [sys.executable, "-m", "leafwise", "explain", *options, script.name]
    process = subprocess.Popen(
        command, cwd=script.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    if not read:
        process.stdout.close()
        process.stdout = None
    printed, errors = process.communicate()
    return process.returncode, printed or "", errors


@pytest.mark.slow
def test_reader_that_leaves(tmp_path: Path) -> None:
    """The files are written and the exit code is the script's, though nobody reads the report."""
    script = tmp_path / "piped.py"
    script.write_text("import jax\njax.jit(lambda x: x)(1.0)\nraise SystemExit(3)")
    code, _, errors = run(script, "--json", "report.json", read=False)
    assert "Traceback" not in errors
    assert code == 3
    assert (tmp_path / "report.json").exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_script_that_goes_elsewhere(tmp_path: Path) -> None:
    """A script may change the directory: files stay where they were asked for, and so it is."""
    script = tmp_path / "goes.py"
    (tmp_path / "away").mkdir()
    script.write_text(
        "import os, sys\nos.chdir('away')\nprint(os.path.isabs(__file__), sys.argv[0])"
    )
    code, printed, errors = run(script, "--json", "report.json")
    assert code == 0, errors
    assert printed.splitlines()[0] == "True goes.py"
    assert (tmp_path / "report.json").exists()


def test_function_named_like_one_of_jax() -> None:
    """A user's function is not eager, whatever its name."""

    def mean(q: Any) -> Any:
        return q * 2

    with pytest.raises(lw.errors.RetraceError), lw.budget(compiles=0, eager=False):
        jax.jit(mean).lower(x).compile()


def test_metadata() -> None:
    """A jitted function has the annotations and attributes of the function, and no others."""

    def annotated(x: int) -> int:
        return x

    annotated.custom = 5  # type: ignore[attr-defined]
    ours: Any = lw.jit(annotated)
    assert typing.get_type_hints(ours) == {"x": int, "return": int}
    assert ours.custom == 5
    assert not hasattr(ours, "program_log")


def test_static_arguments_have_one_form() -> None:
    """The last argument by number and by name is one, as for `jax.jit`."""

    def times(x: Any, n: int) -> Any:
        return x * n

    lw.jit(times, static_argnums=-1)(x, 2)
    assert seen(lambda: lw.jit(times, static_argnames="n")(x, 2)) == (0, 0, 0)


def test_nan_inside_of_a_static() -> None:
    """The fix finds a NaN inside a tuple."""
    signatures = [lw.signature(x, (1, float("nan")), static_argnums=1) for _ in range(2)]
    (reason,) = lw.explain(*signatures).reasons
    assert "NaN" in reason.fix
    assert reason.change.endswith("(at [1])")


def test_abstract_argument_is_no_array() -> None:
    """A ShapeDtypeStruct is no array to a call, and so they are not equal."""
    abstract = lw.signature(jax.ShapeDtypeStruct((3,), "float32"))
    assert lw.signature(x) != abstract
    assert abstract == lw.signature(jax.ShapeDtypeStruct((3,), "float32"))


@pytest.mark.parametrize("odd", [np.ones(3, ">f4"), np.ma.ones(3, dtype="float32")])
def test_odd_arrays_are_unknown(odd: Any) -> None:
    """JAX takes such an array only where a plain one has paved the way."""
    answer = lw.explain(lw.signature(np.ones(3, "float32")), lw.signature(odd))
    assert answer.outcome is lw.types.Outcome.UNKNOWN


def test_generator_functions_are_refused() -> None:
    """What `jax.jit` refuses at once is refused at once."""
    with pytest.raises(TypeError, match="generator"):
        lw.jit(lambda x: (yield x))


def test_uncommitted_array_elsewhere() -> None:
    """An array on another device that is not committed to it shares the program."""
    if len(jax.devices()) == 1:
        pytest.skip("there is one device only")
    with jax.default_device(jax.devices()[1]):
        there = jnp.ones(3)
    function = jax.jit(lambda x: x + 1)
    function(x)
    answer = lw.explain(lw.signature(x), lw.signature(there))
    assert answer.outcome is lw.types.Outcome.DISPATCH
    assert [reason.kind for reason in answer.reasons] == [lw.types.ReasonKind.SHARDING]
    entries = function._cache_size()
    assert seen(lambda: function(there)) == (0, 0, 0)
    assert function._cache_size() == entries + 1


def test_numpy_scalar_beside_a_tuple() -> None:
    """A NumPy scalar and a tuple cannot be compared: the call raises, where JAX comes to it."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Plain:
        x: Any
        n: Any = dataclasses.field(metadata={"static": True})

    @lw.pytree
    class Ours:
        x: Any
        n: Any = lw.static_field()

    for cls, expected in ((Plain, lw.types.Outcome.ERROR), (Ours, lw.types.Outcome.RETRACE)):
        function = jax.jit(lambda tree: tree.x)
        first, second = cls(x, np.int64(1)), cls(x, (1, 2))
        function(first)
        assert lw.explain(lw.signature(first), lw.signature(second)).outcome is expected
        if expected is lw.types.Outcome.ERROR:
            with pytest.raises(ValueError, match="equality"):
                function(second)
        else:
            assert seen(functools.partial(function, second)) == (1, 1, 1)


def test_cheapest_earlier_call_is_the_nearest() -> None:
    """A call that needs no trace is compared with the program it takes up, not with another."""
    there = jax.device_put(x, jax.devices()[0])
    function = jax.jit(lambda x, y: (x, y))
    function(jnp.ones(4), there)
    function(x, x)
    earlier = [lw.signature(jnp.ones(4), there), lw.signature(x, x)]
    answer = lw.explain(earlier, lw.signature(there, there))
    # One shape, and one commitment, from the first call; two commitments from the second one.
    assert (answer.outcome, answer.nearest) == (lw.types.Outcome.RECOMPILE, 1)
    assert [reason.path for reason in answer.reasons] == ["args[0]", "args[1]"]
    assert seen(lambda: function(there, there)) == (0, 1, 1)
    earlier = [lw.signature(jnp.ones(4), x), lw.signature(x, x)]
    # One reason to trace against two to compile.
    answer = lw.explain(earlier, lw.signature(jax.device_put(x, jax.devices()[0]), there))
    assert (answer.outcome, answer.nearest) == (lw.types.Outcome.RECOMPILE, 1)
    three = [lw.signature(jnp.ones(4), x, 1.0), lw.signature(there, there, 1.0)]
    answer = lw.explain(three, lw.signature(x, x, 1.0))
    assert (answer.outcome, answer.nearest) == (lw.types.Outcome.RECOMPILE, 1)
    assert len(answer.reasons) == 2
    assert len(lw.explain(three[0], lw.signature(x, x, 1.0)).reasons) == 1


def test_trace_inside_of_another() -> None:
    """A function that is traced inside another one counts, though JAX says nothing of it."""

    def inner(x: Any) -> Any:
        return x * 2

    traced = lw.jit(inner)
    with lw.watch(eager=False) as log:
        jax.jit(lambda x: traced(x) + 1)(x)
    assert [event.name for event in log.traces] == ["inner", "<lambda>"]
    (event,) = log.of(inner)
    assert event.site is not None
    assert event.site.file == __file__
    with pytest.raises(lw.errors.RetraceError), lw.budget(traces=0, of=inner):
        jax.vmap(traced)(jnp.ones((2, 5)))


@pytest.mark.nightly
@pytest.mark.slow
def test_keyword_only_under_filter_jit(tmp_path: Path) -> None:
    """A script with an argument that goes by keyword alone runs, and the argument is named."""
    script = tmp_path / "named.py"
    script.write_text(
        "import equinox as eqx, jax.numpy as jnp\n"
        "@eqx.filter_jit\n"
        "def scaled(x, *, by):\n"
        "    return x * by\n"
        "scaled(jnp.ones(3), by=1)\n"
        "scaled(jnp.ones(3), by=2)\n"
    )
    code, _, errors = run(script)
    assert code == 0, errors
    assert "named.py:6" in errors
    assert "  by (static): 1 -> 2" in errors


def test_functions_whose_truth_raises() -> None:
    """Nobody asks a callable for its truth."""

    class Odd:
        def __call__(self, x: Any) -> Any:
            return x * 5

        def __bool__(self) -> bool:
            raise RuntimeError

    odd = Odd()
    with lw.watch(eager=False) as log:
        jax.jit(odd)(x)
    assert len(log.of(odd)) == 3
    assert log.of(Odd()) == []
    with pytest.raises(lw.errors.RetraceError), lw.no_retrace(of=odd):
        jax.jit(odd)(jnp.ones(7))


def test_what_cannot_be_read_is_called_all_the_same() -> None:
    """Arguments whose own code raises when they are read do not stop the call; it is logged."""

    @dataclasses.dataclass
    class Odd:
        n: int = dataclasses.field(init=False)

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    jax.tree_util.register_pytree_node(Odd, lambda _: ((), 1), lambda *_: Odd())
    function = lw.jit(lambda x, _: x * 2)
    assert function(2.0, Odd()) == 4.0
    (only,) = function.traces
    assert only.explanation.outcome is lw.types.Outcome.UNKNOWN
    assert "the arguments could not be read: RuntimeError: n" in str(only.explanation)
    assert only.trace_seconds > 0


class Hostile:
    """It compares by identity, and raises whatever else it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> None: ...


def wrapped_by_itself() -> Any:
    def function() -> None: ...

    function.__wrapped__ = function  # type: ignore[attr-defined]
    return function


@pytest.mark.parametrize("make", [Hostile, wrapped_by_itself])
def test_statics_that_raise_while_a_fix_is_worded(make: Any) -> None:
    """The call is made and explained by name, and the storm guard warns of the static."""
    function = lw.jit(lambda x, act: x * 2, static_argnames="act")
    assert function(2.0, act=make()) == 4.0
    with lw.storm_guard(1), pytest.warns(lw.errors.RetraceStormWarning, match="act of <lambda>"):
        assert function(2.0, act=make()) == 4.0
    (reason,) = function.traces[1].explanation.reasons
    assert str(reason).startswith("act (static): ")
    assert reason.change.startswith("values whose own" if make is Hostile else "a new function")


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """A frozen class whose instances take no weak references."""

    rate: float


@pytest.mark.hazard
def test_a_config_at_the_address_of_the_one_before() -> None:
    """Another object is another one, wherever Python puts it."""
    held: list[Any] = []
    step: Any = lw.jit(lambda x: x * dataclasses.astuple(held[0])[0], stale="retrace")
    for rate in (1.0, 2.0, 3.0):
        held.clear()
        held.append(Config(rate))
        assert step(1.0) == step(1.0) == rate


def test_a_cache_that_is_filled_while_the_function_is_traced() -> None:
    """It has another entry after the trace of each shape, and none of these is stale for it."""
    cache: dict[int, Any] = {}

    def function(x: Any) -> Any:
        if len(x) not in cache:
            cache[len(x)] = np.arange(len(x))
        return x + cache[len(x)]

    jitted: Any = lw.jit(function, stale="raise")
    for size in (3, 4, 3, 4):
        assert jitted(jnp.ones(size)).tolist() == [*range(1, size + 1)]
    assert len(jitted.traces) == 2
    cache[3] = np.ones(3)
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(jnp.ones(3))
