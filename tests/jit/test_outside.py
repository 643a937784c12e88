"""What JAX compiles outside jitted functions: whether a later run of the line does it again."""

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from tests.kit.inside import Act

import leafwise as lw
from leafwise.types import Explanation, Reason

# The shapes are those of no other test: JAX compiles each once in a process.
WIDTH = 83
Run = Callable[[int], Any]

counts_runs = pytest.mark.skipif(sys.version_info < (3, 12), reason="runs of lines are not counted")


def body(carry: Any, x: Any) -> Any:
    return carry + x, None


OPTIMIZER = optax.sgd(0.1, momentum=0.9)


# Each on a line of its own, by which runs are counted.
ANOTHER_SIZE: list[tuple[str, Run]] = [
    ("mask", lambda n: (x := jnp.arange(float(WIDTH)))[x < n]),
    ("size", lambda n: jnp.append(jnp.ones((n, 89)), 1.0)),
    ("xs", lambda n: jax.lax.scan(body, 0.0, jnp.ones(WIDTH + n))),
    ("size", lambda n: jnp.concatenate([jnp.ones((2, 103))] + [jnp.ones((1, 103))] * n)),
]


def fresh_body(n: int) -> Any:
    return jax.lax.while_loop(lambda c: c < WIDTH, lambda c: c + n, jnp.float32(0))


def fresh_branch(n: int) -> Any:
    more, less = (lambda x: x * WIDTH), (lambda x: x - WIDTH)
    return jax.lax.cond(n > 1, more, less, 1.0)


def explanations(run: Run) -> list[Explanation]:
    """Return why JAX compiled again in the fifth run of a line."""
    with lw.watch() as log:
        for n in range(1, 6):
            before = len(log.events)
            run(n)
    found = [each.explanation for each in log.events[before:] if each.explanation is not None]
    return [each for each in found if each.nearest is not None]


def reasons(run: Run) -> list[Reason]:
    return [reason for each in explanations(run) for reason in each.reasons]


@counts_runs
@pytest.mark.parametrize(("path", "run"), ANOTHER_SIZE, ids=range(4))
def test_another_size_in_each_run(path: str, run: Run) -> None:
    """The operation says what is of another size, and that it can be padded."""
    found = reasons(run)
    assert (path, Act.PAD) in {(each.path, each.fix.act) for each in found}
    assert {each.kind for each in found} == {"shape"}


@pytest.mark.parametrize(
    ("run", "paths"),
    [(fresh_body, {"cond_fun", "body_fun"}), (fresh_branch, {"true_fun", "false_fun"})],
)
def test_a_function_that_the_line_makes(run: Run, paths: set[str]) -> None:
    """It is named, and what it captures that differs: defined once, it would go on with that."""
    found = reasons(run)
    if jax.__version_info__ < (0, 8, 1) and "true_fun" in paths:  # of a wrapper around `cond`
        paths = {"args[1]", "args[2]"}
    assert {each.path for each in found} == paths
    if run is fresh_body:
        assert any("`n`, 4 -> 5" in each.change for each in found)
        assert not any(each.fix.act is Act.DEFINE_ONCE for each in found)


def test_the_shapes_of_a_function() -> None:
    """`eval_shape` traces a lambda of the line again in each run."""
    shapes_of: Run = lambda n: jax.eval_shape(lambda x: x * n, jnp.ones(WIDTH))  # noqa: E731
    assert [each.outcome for each in explanations(shapes_of)] == ["retrace"]


def updated(n: int) -> Any:
    tree = {"a": jnp.ones(WIDTH), "b": jnp.float32(n)}
    return OPTIMIZER.update(tree, OPTIMIZER.init(tree))


KEPT: dict[str, Run] = {
    "body": lambda n: jax.lax.scan(body, float(n), jnp.ones(WIDTH)),
    "operation": lambda n: jnp.tanh(jnp.ones((WIDTH, 7))) * n,
    "optimizer": updated,
}


@pytest.mark.parametrize("run", KEPT.values(), ids=KEPT)
def test_what_is_kept(run: Run) -> None:
    """A function that is defined once, and equal shapes, are compiled once."""
    assert explanations(run) == []


def leaves() -> Any:
    tree = {"a": jnp.ones(WIDTH), "b": jnp.int32(1), "c": jnp.ones((WIDTH, 5))}
    return jax.tree.map(lambda x, y: jnp.where(jnp.array(True), x, y * 2), tree, tree)


def gradient() -> Any:
    def function(x: Any) -> Any:
        wide = jnp.sinh(x) * jnp.ones((WIDTH, 3))
        return jnp.sum(jnp.sinh(wide) * 2.0) + jnp.sum(jnp.exp(wide * jnp.ones((2, WIDTH, 3))))

    return jax.value_and_grad(function)(jnp.float32(2.0))


def two_functions() -> Any:
    def run(fun: Any) -> Any:
        shape = jax.eval_shape(lambda x: fun(x), jnp.ones(WIDTH))
        return shape, jax.lax.scan(lambda c, _: (fun(c), None), jnp.ones(WIDTH), length=3)

    return run(jnp.sin), run(lambda x: x * 2), run(lambda x: x * 3)


FIRST_RUNS: dict[str, Callable[[], Any]] = {
    "leaves": leaves,
    "levels": lambda: jax.lax.associative_scan(lambda x, y: x * y, jnp.ones(11)),
    "gradient": gradient,
    "powers": lambda: [jnp.ones(WIDTH) ** 5, jnp.ones(WIDTH) ** 6, jnp.ones(WIDTH) ** 7],
    "two functions": two_functions,
}


@pytest.mark.parametrize("run", FIRST_RUNS.values(), ids=FIRST_RUNS)
def test_the_first_run_of_a_line_is_no_repeat(run: Callable[[], Any]) -> None:
    """What is compiled for one leaf, dtype, constant, function or line repeats no other one."""
    with lw.watch() as log:
        run()
    found = [each.explanation for each in log.events if each.explanation is not None]
    assert found
    assert all(each.nearest is None for each in found)


@counts_runs
def test_each_run_is_counted() -> None:
    """A property traces again in each run but the first, once Python specialises it, too."""
    source = (
        "import jax\nclass Sampled:\n    def sample(self, x): return x * 2\n    @property\n"
        "    def dtype(self): return jax.eval_shape(self.sample, 1.0).dtype\n"
        "def check(sampled):\n    if sampled.dtype == 'int32': raise TypeError\n"
    )
    package: dict[str, Any] = {"__name__": "solver"}
    exec(compile(source, "/env/site-packages/solver.py", "exec"), package)  # noqa: S102  # a file of a package
    sampled = package["Sampled"]()
    with lw.watch() as log:
        for _ in range(6):
            package["check"](sampled)
    found = [each.explanation for each in log.events if each.explanation is not None]
    # JAX 0.8 has the trace of an equal method, as long as that lives: the log holds it.
    times = 5 if jax.__version_info__ >= (0, 9) else 0
    assert sum(each.nearest is not None for each in found) == times


ONE_LINE = {
    "for": "for k in ks: run(k)",
    "while": "while ks: run(ks.pop())",
    "comprehension": "[run(k) for k in ks]",
    "generator": "list(run(k) for k in ks)",
    "after another": "[k for k in ks], [run(k) for k in ks], [k for k in ks]",
    "nested": "for j in ks[:2]: [run(k + j) for k in ks[:2]]",
}
RUN = "jax.lax.scan(lambda c, _: (c * k, None), jnp.ones(WIDTH), length=3)"


@counts_runs
@pytest.mark.parametrize("loop", ONE_LINE.values(), ids=ONE_LINE)
def test_a_loop_on_one_line(loop: str) -> None:
    """Each round is a run of its line, in a module and in a function; what it repeats is found."""
    line = loop.replace("run(ks.pop())", "run(k)").replace("while ks:", "while ks: k = ks.pop();")
    line = line.replace("run(k + j)", RUN.replace("* k", "* k * j")).replace("run(k)", RUN)
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "WIDTH": WIDTH}
    for code in (f"ks = [1, 2, 3, 4]\n{line}\n", f"def f():\n ks = [1, 2, 3, 4]\n {line}\nf()\n"):
        with lw.watch() as log:
            exec(compile(code, "one_line.py", "exec"), names)  # noqa: S102  # ours
        found = [each.explanation for each in log.events if each.name == "scan"]
        assert [why.nearest for why in found if why is not None] == [None, 0, 0, 0]


@counts_runs
def test_no_line_is_counted_after_the_block() -> None:
    """The tool is free again, and a line that was counted costs nothing more."""
    with lw.watch():
        for n in (1, 2):
            jnp.sinh(jnp.ones(97)) * n
        used = [sys.monitoring.get_tool(each) for each in range(6)]
    assert "leafwise" in used
    assert "leafwise" not in [sys.monitoring.get_tool(each) for each in range(6)]


def test_operations_inside_a_trace_are_its_own() -> None:
    """What a jitted function does while it is traced has no explanation of its own."""

    @lw.jit
    def step(x: Any) -> jax.Array:
        return jnp.sum(jnp.arctan(x[: x.shape[0] - 1]))

    with lw.watch() as log:
        for n in (3, 4, 5):
            step.trace(jax.ShapeDtypeStruct((WIDTH + n,), jnp.float32))
    assert [each.name for each in log if each.explanation is not None] == ["step"] * 3


def test_the_functions_are_not_kept() -> None:
    """What is remembered of a call keeps none of its functions."""

    def make() -> Any:
        big = jnp.ones(WIDTH)

        def inside(c: Any) -> Any:
            return c + big.shape[0]

        jax.lax.while_loop(lambda c: c < 1, inside, 0)
        return weakref.ref(inside)

    with lw.watch():
        found = make()
        jax.clear_caches()  # type: ignore[no-untyped-call]
        gc.collect()
        assert found() is None
