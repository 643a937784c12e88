import functools
import inspect
import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

W = jnp.arange(3.0) + 1
ONES = np.ones(3)
TABLE = np.array([1.0, 2.0, 3.0])
RATE = np.array(2.0)
KEY = jax.random.key(0)
SHARED = jnp.ones(3) * 2
STATE = jnp.ones(3)
X = jnp.array([1.0, 2.0, 4.0])


@lw.pytree
class Layer:
    w: jax.Array
    rate: float = 0.5

    def apply(self, x: jax.Array) -> jax.Array:
        return self.w * x * self.rate

    def uses_global(self, x: jax.Array) -> jax.Array:
        return helper(self.apply(x))


class Model:
    def __init__(self) -> None:
        self.w = jnp.ones(3) * 2
        self.layers = [Layer(jnp.ones(3)), {"b": np.ones(3, np.float32)}]
        self.unused = jnp.ones(17)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[0].apply(x) * self.w + self.layers[1]["b"]


model, layer = Model(), Layer(W * 5)
params, box = {"w": W * 2, "n": 3}, types.SimpleNamespace(layer=Layer(W * 2))


def helper(x: jax.Array) -> jax.Array:
    return W * x


@jax.jit
def jitted(x: jax.Array, scale: float = 1.0) -> jax.Array:
    return W * x * scale


@functools.partial(jax.jit, static_argnums=1)
def with_static(x: jax.Array, n: int) -> jax.Array:
    return W * x * range(9)[n]


@jax.custom_vjp
def with_rule(x: jax.Array) -> jax.Array:
    return (x * W).sum()


with_rule.defvjp(lambda x: (with_rule(x), x), lambda x, g: (g * W * SHARED,))


@jax.custom_jvp
def with_tangent(x: jax.Array) -> jax.Array:
    return (x * W).sum()


with_tangent.defjvp(lambda x, t: (with_tangent(x[0]), (t[0] * W * SHARED).sum()))


def with_defaults(x: jax.Array, w: jax.Array = W * 4, *, b: Any = ONES) -> jax.Array:
    return w * x + b


def scanned(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, y: (c + jitted(y), jitted(c)), x, x, reverse=True)[1]


def looped(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda c: jitted(c).sum() < 50, lambda c: jitted(c) + 1, x)


def branched(x: jax.Array) -> jax.Array:
    x = jax.lax.cond(x.sum() > 0, jitted, lambda x: -x, x)
    return jax.lax.switch(1, [lambda x: x, lambda x: x + jitted(x)], x)


FUNCTIONS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "global": (helper, {"W"}),
    "defaults": (with_defaults, {"w", "b"}),
    "partial": (functools.partial(lambda a, x, c: a * x + c, W, c=SHARED), {"a", "c"}),
    "jit": (jax.jit(helper), {"W"}),
    "lw.jit": (lw.jit(lambda x: W * x), {"W"}),
    "jitted helpers": (lambda x: jitted(x, 2.0) + jitted(x, scale=3.0), {"W"}),
    "static arguments": (lambda x: with_static(x, 2) + with_static(x, n=3), {"W"}),
    "relu": (lambda x: jax.grad(lambda y: jax.nn.relu(W * y).sum())(x), {"W"}),
    "vmap": (jax.vmap(lambda x: jitted(x)[1]), {"W"}),
    "grad": (lambda x: jax.grad(lambda y: (jitted(y)).sum())(x), {"W"}),
    "checkpoint": (jax.checkpoint(lambda x: jitted(x)), {"W"}),
    "scan": (scanned, {"W"}),
    "while": (looped, {"W"}),
    "cond": (branched, {"W"}),
    "callable object": (model, {"self.w", "self.layers[0].w", "self.layers[1]['b']"}),
    "method of a pytree": (layer.uses_global, {"W", "self.w"}),
    "whole tree": (lambda x: jax.tree.leaves(params)[1] * x, {"params"}),
    "whole object": (lambda x: jax.tree.leaves(vars(box))[0] * x, {"box.layer.w"}),
    "key": (lambda x, key=KEY: x + jax.random.uniform(key, (3,)), {"key"}),
    "NumPy": (lambda x: jnp.dot(x, TABLE) + x * ONES, {"TABLE", "ONES"}),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_captured_arrays_become_arguments(kind: str) -> None:
    """The hoisted function is the same one, without constants, and follows what it is given."""
    fn, names = FUNCTIONS[kind]
    hoisted, captured = lw.hoist(fn)
    assert set(captured) == names
    before = fn(X)
    assert np.allclose(hoisted(captured, X), before)
    jit_of_it = jax.jit(hoisted)
    assert not jit_of_it.trace(captured, X).jaxpr.consts
    assert np.allclose(jit_of_it(captured, X), before, rtol=1e-5)
    others = jax.tree.map(other_value, captured)
    with lw.budget(traces=0, compiles=0, exact=True, of=jit_of_it):
        after = jit_of_it(others, X)
    assert np.allclose(after, hoisted(others, X), rtol=1e-5)
    assert not np.allclose(after, before)
    assert np.array_equal(fn(X), before)  # nothing of the user's own has changed


def other_value(leaf: Any) -> Any:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(5)
    return leaf * 3 + 1


@functools.cache
def remembered() -> jax.Array:
    return W * 2


remembered()

NOT_TAKEN: dict[str, tuple[Callable[..., Any], str]] = {
    "float": (lambda x: x * float(TABLE[1]), "TABLE"),
    "if": (lambda x: x if TABLE[0] > 0 else -x, "TABLE"),
    "arithmetic of NumPy": (lambda x: x * (TABLE * 2), "TABLE"),
    "as NumPy": (lambda x: x * np.asarray(W), "W"),
    "only its shape": (lambda x: x * W.shape[0], "W"),
    "another branch": (lambda x: x if len(x) > 2 else W * x, "W"),
    "a stored result": (lambda x: remembered() * x, "W"),
}


@pytest.mark.parametrize("kind", NOT_TAKEN)
def test_what_is_no_constant_of_the_program_is_refused(kind: str) -> None:
    """A value that Python reads, or nothing reads, is named; the fix is code that leaves it out."""
    fn, name = NOT_TAKEN[kind]
    hoisted, captured = lw.hoist(fn)
    with pytest.raises(lw.errors.HoistError, match=rf"\['{name}'\]: cannot be made") as caught:
        hoisted(captured, X)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301  # our own
    fix = caught.value.message.partition("lw.hoist(fn, ")[2].partition(")`")[0]
    hoisted, captured = lw.hoist(fn, eval(fix))  # noqa: S307  # the code that the message shows
    assert not captured
    assert np.array_equal(hoisted(captured, X), fn(X))


def test_what_is_assigned_since_is_refused() -> None:
    """A name that has another array at a later trace is not the capture that was hoisted."""
    state = {"w": W}
    hoisted, captured = lw.hoist(lambda x: state["w"] * x)
    jit_of_it = jax.jit(hoisted)
    jit_of_it(captured, X)
    state["w"] = W + 1
    assert np.array_equal(jit_of_it(captured, X), W * X)
    with pytest.raises(lw.errors.HoistError, match="its name has another one by now"):
        jit_of_it(captured, X[:1])


@pytest.mark.parametrize(
    "fn",
    [with_rule, jax.jit(with_tangent), jax.grad(with_rule)],
    ids=["vjp", "jit", "grad"],
)
def test_what_a_rule_for_a_derivative_reads_is_refused(fn: Any) -> None:
    """JAX has no derivative by it; what else is captured becomes an argument next to it."""
    hoisted, captured = lw.hoist(fn)
    with pytest.raises(lw.errors.HoistError, match=r"SHARED.*a function inside custom_.* reads it"):
        hoisted(captured, X)
    hoisted, captured = lw.hoist(lambda x: fn(x).sum() * jax.nn.relu(STATE * x).sum(), "STATE")
    value, gradient = jax.value_and_grad(hoisted)(captured, X)
    assert np.array_equal(value, fn(X).sum() * X.sum())
    assert np.array_equal(gradient["STATE"], fn(X).sum() * X)


def test_an_earlier_trace_is_not_used_again() -> None:
    """A jitted helper is traced as it is now, whatever JAX has kept of it."""
    state = {"w": W}
    inner = jax.jit(lambda x: state["w"] * x)
    assert np.array_equal(jax.jit(lambda x: inner(x))(X), W * X)
    state["w"] = W + 1
    hoisted, captured = lw.hoist(lambda x: inner(x))
    assert np.array_equal(hoisted(captured, X), (W + 1) * X)


@pytest.mark.slow
def test_the_first_hoisted_function_is_traced_once() -> None:
    """What makes the traces of this process distinct is there before the function is traced."""
    code = """if True:
        import jax, jax.numpy as jnp, leafwise as lw
        w, traces = jnp.ones(3), []
        fn2, captured = lw.hoist(lambda x: traces.append(x) or w * x)
        jitted = jax.jit(fn2)
        jitted(captured, w), jitted({"w": 2 * w}, w)
        assert len(traces) == jitted._cache_size() == 1
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("W", {"W"}),
        ("layers[0].w", {"layers[0].w"}),
        ("layer.w", {"layer"}),
        (~lw.where("['W']"), {"layers[0].w", "layer"}),
        (lw.where(jax.Array), {"W", "layers[0].w", "layer"}),
        (lambda leaf: leaf.shape == (3,), {"W", "layers[0].w", "layer"}),
    ],
)
def test_captures_are_selected_as_leaves_are(where: Any, names: set[str]) -> None:
    """A name, a path or a selection says which captures become arguments; the rest is baked in."""
    layer, layers = Layer(W * 5), [Layer(W * 2)]

    def fn(x: jax.Array) -> jax.Array:
        return W * x + layers[0].w * jax.tree.leaves(layer)[0]

    hoisted, captured = lw.hoist(fn, where)
    assert set(captured) == names
    assert np.array_equal(hoisted(captured, X), fn(X))
    assert len(jax.make_jaxpr(hoisted)(captured, X).consts) == 3 - len(names)


def test_no_such_capture() -> None:
    """A name that nothing has is an error, with the nearest one; so is what is no function."""
    with pytest.raises(lw.errors.PathError, match="'V' leads nowhere"):
        lw.hoist(helper, "V")
    with pytest.raises(TypeError, match=r"hoist takes a function, got 3 \(int\)"):
        lw.hoist(3)  # type: ignore[arg-type]


def test_the_first_argument_must_be_the_captures() -> None:
    """Another structure, shape or dtype is an error; a forgotten one names what is missing."""
    hoisted, _ = lw.hoist(lambda x: W * layer.w * x)
    with pytest.raises(TypeError, match=r"captures first, a dict of W, layer.w: got float32"):
        hoisted(X, X)
    with pytest.raises(
        lw.errors.TreeError, match=r"captured has another structure: .* wanted, got"
    ):
        hoisted({"W": W}, X)
    for other in (W[:1], W.astype(jnp.float16), 2.0):
        with pytest.raises(
            lw.errors.TreeError, match=r"captured\['W'\] is .* float32\[3\] is wanted"
        ):
            hoisted({"W": other, "layer.w": W}, X)
    with pytest.raises(TypeError, match="captured"):
        hoisted()


def test_a_shared_array_is_captured_once() -> None:
    """An array that stands in several places is one capture, and all places follow it."""
    first = jnp.ones(3)
    pair = [first, {"a": first, "b": W}]
    hoisted, captured = lw.hoist(lambda x: pair[0] * x + pair[1]["a"] + pair[1]["b"] + first)
    assert len(jax.tree.leaves(captured)) == 2
    assert hoisted(jax.tree.map(jnp.zeros_like, captured), X).tolist() == [0, 0, 0]


def test_names_are_unique() -> None:
    """Variables of one name are captures of their own, named by their functions, then by number."""

    def make(w: jax.Array) -> Callable[..., Any]:
        def inner(x: jax.Array) -> jax.Array:
            return w * x

        return inner

    one, two, three = make(W), make(W * 2), make(W * 3)
    hoisted, captured = lw.hoist(lambda x: one(x) + two(x) + three(x))
    assert list(captured) == ["w", "inner: w", "inner: w (2)"]
    assert np.array_equal(hoisted(captured, X), 6 * W * X)


def test_what_is_no_array_is_passed_on() -> None:
    """Python values go in and come out as they are; what is appended to is no capture."""
    calls: list[Any] = [W]

    def fn(x: Any, n: int, *, mode: str = "a") -> Any:
        calls.append(n)
        return {"y": W * x * range(9)[n], "mode": mode, "n": n, "none": None}

    hoisted, captured = lw.hoist(fn)
    found = hoisted(captured, 2.0, 3, mode="b")
    assert set(captured) == {"W"}
    assert (found["mode"], found["n"], found["none"]) == ("b", 3, None)
    assert np.array_equal(found["y"], W * 6)
    assert calls[1:] == [3]


def test_every_transformation_takes_it() -> None:
    """grad and vmap by the captures, donation of them, and lw.jit."""
    hoisted, captured = lw.hoist(lambda x: (jitted(x, 2.0) * jax.tree.leaves(layer)[0]).sum())
    gradient = jax.grad(hoisted)(captured, X)
    assert np.array_equal(gradient["W"], 2 * X * layer.w)
    assert isinstance(gradient["layer"], Layer)
    assert gradient["layer"].rate is None
    rows = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), captured)
    one = hoisted(captured, X)
    assert np.array_equal(jax.vmap(hoisted, (0, None))(rows, X), [one, 4 * one])
    assert np.array_equal(lw.jit(hoisted)(captured, X), one)
    mine = jax.tree.map(jnp.copy, captured)

    def update(captured: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, captured, jax.grad(hoisted)(captured, x))

    jax.jit(update, donate_argnums=0)(mine, X)
    assert mine["W"].is_deleted()
    assert not W.is_deleted()


def test_the_signature_has_one_more_parameter() -> None:
    """Static arguments are found by name, and a parameter called captured is no obstacle."""

    def fn(x: jax.Array, n: int, captured: float = 2.0) -> jax.Array:
        return W * x * range(9)[n] * captured

    hoisted, captured = lw.hoist(fn)
    assert list(inspect.signature(hoisted).parameters) == ["captured_", "x", "n", "captured"]
    assert hoisted.__name__ == "fn"
    static = jax.jit(hoisted, static_argnames="n")
    assert np.array_equal(static(captured, X, 2, captured=3.0), fn(X, 2, 3.0))
    assert np.array_equal(static(captured, X, n=3), fn(X, 3))
