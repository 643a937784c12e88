"""What JAX compiles again outside jitted functions has a reason, as functions have."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import leafwise as lw
from leafwise.types import Explanation

# The shapes are those of no other test: JAX compiles each once in a process.
WIDTH = 83


def body(carry: Any, x: Any) -> Any:
    return carry + x, None


class Model:
    """Something with a method."""

    def step(self, carry: Any, x: Any) -> Any:
        return carry - x, None


MODEL = Model()
KEPT = MODEL.step


def mask(n: int) -> Any:
    x = jnp.arange(float(WIDTH))
    return x[x < n]


def part(n: int) -> Any:
    return jnp.arange(float(WIDTH))[:n]


def fresh_body(n: int) -> Any:
    return jax.lax.while_loop(lambda c: c < WIDTH, lambda c: c + n, jnp.float32(0))


def fresh_branch(n: int) -> Any:
    def more(x: Any) -> Any:
        return x * WIDTH

    def less(x: Any) -> Any:
        return x - WIDTH

    return jax.lax.cond(n > 1, more, less, 1.0)


def another_shape(n: int) -> Any:
    return jnp.cosh(jnp.ones((WIDTH, n)))


def unsized(n: int) -> Any:
    return jnp.flatnonzero(jnp.arange(WIDTH) < n)


def unique(n: int) -> Any:
    return jnp.unique(jnp.arange(WIDTH) % (3 * n))


def repeated(n: int) -> Any:
    return jnp.repeat(jnp.arange(2), jnp.array([WIDTH, n]))


def chosen(n: int) -> Any:
    x = jnp.ones((WIDTH, n, 3))
    return jnp.where(x > 0, x, 0)


def mask_of_another_shape(n: int) -> Any:
    x = jnp.arange(float(WIDTH + 10 * n))
    return x[x < n]


def kept_body(n: int) -> Any:
    return jax.lax.scan(body, float(n), jnp.ones(WIDTH))


def fresh_method(n: int) -> Any:
    return jax.lax.scan(MODEL.step, float(n), jnp.ones(WIDTH))


def kept_method(n: int) -> Any:
    return jax.lax.scan(KEPT, float(n), jnp.ones(WIDTH))


def sampled(n: int) -> Any:
    return jax.random.uniform(jax.random.key(0), (WIDTH, n))


def plain(n: int) -> Any:
    return jnp.tanh(jnp.ones((WIDTH, 7))) * n


def gradient(n: int) -> Any:
    return jax.grad(lambda x: jnp.sum(jnp.cosh(x) * x))(jnp.ones((WIDTH, n, 2)))


def fresh_and_wrapped(n: int) -> Any:
    return jax.lax.while_loop(lambda c: c < WIDTH, jax.checkpoint(lambda c: c + n), jnp.float32(0))


def explanations(run: Callable[[int], Any]) -> list[Explanation]:
    """Return why JAX compiled again in the third and fourth call of a line."""
    with lw.watch() as log:
        for n in (1, 2, 3):
            before = len(log.events)
            run(n)
    found = [each.explanation for each in log.events[before:] if each.explanation is not None]
    return [each for each in found if each.nearest is not None]


@pytest.mark.parametrize(
    ("run", "paths", "words"),
    [
        (mask, {"mask"}, "A boolean mask"),
        (part, {"slice_sizes"}, "Each shape"),
        (fresh_body, {"cond_fun", "body_fun"}, "fresh lambda each call"),
        (fresh_branch, {"true_fun", "false_fun"}, "fresh function each call"),
        (fresh_method, {"f"}, "fresh bound method each call"),
        (another_shape, {"shape", "x"}, "Each shape"),
        (chosen, {"shape", "x", "condition"}, "Each shape"),
        (mask_of_another_shape, {"shape", "x", "args[0]", "args[1]"}, "Each shape"),
        (fresh_and_wrapped, {"cond_fun", "body_fun"}, "fresh lambda each call"),
        (unique, {"unique"}, "`unique(..., size=n)`"),
        pytest.param(
            repeated,
            {"repeat"},
            "`repeat(..., total_repeat_length=n)`",
            marks=pytest.mark.slow,
        ),
        pytest.param(sampled, {"shape"}, "Each shape", marks=pytest.mark.nightly),
        pytest.param(unsized, {"flatnonzero"}, "(..., size=n)`", marks=pytest.mark.nightly),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_reason(run: Callable[[int], Any], paths: set[str], words: str) -> None:
    """What is compiled at one line again and again says what differs, and what to do."""
    found = [reason for each in explanations(run) for reason in each.reasons]
    assert {each.path for each in found} == paths
    assert all(words in each.fix for each in found)


def test_a_fresh_body_with_another_value() -> None:
    """A body that would go on with the first value, defined once, is told what it captures."""
    fixes = {reason.fix for each in explanations(fresh_body) for reason in each.reasons}
    assert len(fixes) == 2
    assert any("`n`, 2 -> 3. Pass that as an argument" in each for each in fixes)


@pytest.mark.parametrize("run", [kept_body, kept_method, plain])
def test_what_is_kept(run: Callable[[int], Any]) -> None:
    """A function that is defined once, and equal shapes, are compiled once."""
    assert explanations(run) == []


def test_another_line_is_no_repeat() -> None:
    """What one line compiled is no first call of another, and no log forgets its own."""
    with lw.watch() as log:
        first = jnp.sinh(jnp.ones((WIDTH, 11)))
        second = jnp.sinh(jnp.ones((WIDTH, 12)))
    assert first.shape != second.shape
    assert all(each.explanation is None or each.explanation.nearest is None for each in log)


def mapped(n: int) -> Any:
    tree = {"a": jnp.ones(WIDTH), "b": jnp.int32(n), "c": jnp.ones((WIDTH, 5))}
    ok = jnp.array(n > 1)
    return jax.tree.map(lambda x, y: jnp.where(ok, x, y * 2), tree, tree)


def updated(n: int) -> Any:
    tree = {"a": jnp.ones(WIDTH), "b": jnp.float32(n)}
    return OPTIMIZER.update(tree, OPTIMIZER.init(tree))


OPTIMIZER = optax.sgd(0.1, momentum=0.9)


def scanned(n: int) -> Any:
    return jax.lax.associative_scan(lambda x, y: x * y * n, jnp.ones(4))


@pytest.mark.parametrize("run", [mapped, updated, scanned])
def test_one_call_of_jax_has_several_shapes(run: Callable[[int], Any]) -> None:
    """What one line compiles for one leaf, or one level, is no repeat of what another needs."""
    with lw.watch() as log:
        run(1)
        run(2)
    found = [each.explanation for each in log.events if each.explanation is not None]
    assert found
    assert all(each.nearest is None for each in found)


def growing_tree(n: int) -> Any:
    return jax.tree.map(lambda x: x * n, [jnp.ones((WIDTH, n, 4)), 1.0])


def test_a_leaf_of_another_shape() -> None:
    """A leaf is compared with itself, and no argument of `jax.tree.map` is one of a program."""
    found = [reason for each in explanations(growing_tree) for reason in each.reasons]
    assert {each.kind for each in found} == {"shape"}
    assert not {"f", "is_leaf"} & {each.path for each in found}


@pytest.mark.slow
def test_a_gradient_of_another_shape() -> None:
    """The shapes are blamed, and not `jax.grad`, which makes another function each time."""
    found = [reason for each in explanations(gradient) for reason in each.reasons]
    assert {each.path.partition("[")[0] for each in found} == {"shape", "args"}
    assert all("Each shape" in each.fix for each in found)


def test_one_gradient_is_no_repeat() -> None:
    """Each step of a gradient is another one, though JAX takes all of them in one loop."""

    def function(x: Any) -> Any:
        wide = jnp.sinh(x) * jnp.ones((WIDTH, 3))
        return jnp.sum(jnp.sinh(wide) * 2.0) + jnp.sum(jnp.exp(wide * jnp.ones((2, WIDTH, 3))))

    with lw.watch() as log:
        jax.value_and_grad(function)(jnp.float32(2.0))
    explained = [each.explanation for each in log.events if each.explanation is not None]
    assert explained
    assert all(each.nearest is None for each in explained)


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
