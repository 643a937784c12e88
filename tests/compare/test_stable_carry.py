import contextlib
import pickle
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from tests.kit.inside import RawEvent, subscribe, unsubscribe

import leafwise as lw
from leafwise.errors import TreeError

Step = Callable[..., Any]


@lw.pytree
class State:
    w: jax.Array
    rate: Any
    count: Any = 0
    act: str = lw.static_field(default="relu")


def train(state: State, x: jax.Array) -> State:
    rate = state.rate * jnp.float32(0.5)
    return lw.replace(state, w=state.w * x.sum() * rate, rate=rate, count=state.count + 1)


def fresh(step: Step, **options: Any) -> Any:
    """Jit a function that JAX has not seen."""

    def looped(*args: Any) -> Any:
        return step(*args)

    return jax.jit(looped, **options)


def mesh() -> Any:
    return jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


@contextlib.contextmanager
def events_of_step() -> Generator[Counter[str], None, None]:
    """Count what JAX does with the functions that `fresh` makes."""
    counts: Counter[str] = Counter()

    def count(event: RawEvent) -> None:
        counts[str(event.kind)] += event.name == "looped"

    subscribe(count)
    try:
        yield counts
    finally:
        unsubscribe(count)


def rounds(step: Any, carry: Any, *args: Any) -> list[tuple[int, int]]:
    """Return how often JAX has traced and compiled after each round of a loop."""
    found = []
    with events_of_step() as counts:
        for _ in range(3):
            carry = step(carry, *args)
            found.append((counts["trace"], counts["compile"]))
    return found


def sharded(state: State, x: jax.Array) -> State:
    w = lax.with_sharding_constraint(state.w * x, NamedSharding(mesh(), PartitionSpec("x")))
    return lw.replace(state, w=w, rate=state.rate * 2)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[], State], Callable[[], Any]]] = {
    "weak type": (lambda: fresh(train), lambda: State(jnp.ones(8), 0.5), lambda: jnp.ones(8)),
    "commitment of an argument": (
        lambda: fresh(train),
        lambda: State(jnp.ones(8), jnp.float32(0.5), jnp.int32(0)),
        lambda: jax.device_put(jnp.ones(8), jax.devices()[3]),
    ),
    "a constraint inside": (
        lambda: fresh(sharded),
        lambda: State(jnp.ones(8), jnp.float32(0.5), jnp.int32(0)),
        lambda: jnp.ones(8),
    ),
    "a sharded argument": (
        lambda: fresh(train),
        lambda: State(jnp.ones(8), 0.5),
        lambda: jax.device_put(jnp.ones(8), NamedSharding(mesh(), PartitionSpec("x"))),
    ),
}


MOVES = {"a constraint inside", "a sharded argument"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_python_loop_finds_one_program(kind: str) -> None:
    """The second round makes a dispatch entry or more by itself; after stable_carry none does."""
    make_step, make_carry, make_x = KINDS[kind]
    step, x = make_step(), make_x()
    without = rounds(step, make_carry(), x)
    assert without[1] != without[0] or step._cache_size() > 1
    step = make_step()
    with events_of_step() as counts:
        carry, _ = lw.stable_carry(step, make_carry(), x)
        carry_again, _ = lw.stable_carry(step, carry, x)
    with_it = rounds(step, carry, x)
    assert with_it[0] == with_it[1] == with_it[2]
    assert step._cache_size() == 1
    # JAX takes the program that placement was read off: one is compiled, or two if it moves.
    assert counts["compile"] + with_it[0][1] == (2 if kind in MOVES else 1)
    assert counts["trace"] + with_it[0][0] <= without[1][0] + (kind in MOVES)
    assert jax.tree.all(jax.tree.map(lambda one, other: one is other, carry, carry_again))


def test_scan_and_while_take_what_they_refused() -> None:
    """A carry whose dtype the step changes is a TypeError in JAX, and none after stable_carry."""
    xs = jnp.ones(4)

    def step(carry: Any, x: Any) -> Any:
        return {"n": carry["n"] + x, "k": carry["k"]}, x

    start = {"n": jnp.int32(3), "k": jax.random.key(0)}
    with pytest.raises(TypeError, match="carry"):
        lax.scan(step, start, xs)
    carry, changes = lw.stable_carry(step, start, xs[0], has_aux=True)
    assert [each.path for each in changes] == ["carry['n']"]
    assert lax.scan(step, carry, xs)[0]["n"] == 7.0

    def body(carry: Any) -> Any:
        return carry * jnp.ones(2) + 1

    with pytest.raises(TypeError, match="body"):
        lax.while_loop(lambda carry: carry.sum() < 9, body, jnp.zeros(2, jnp.int32))
    start, _ = lw.stable_carry(body, jnp.zeros(2, jnp.int32))
    assert lax.while_loop(lambda carry: carry.sum() < 9, body, start).tolist() == [5, 5]
    start, _ = lw.stable_carry(lambda carry: body(carry), jnp.zeros(2, jnp.int32))
    assert lax.fori_loop(0, 3, lambda i, carry: body(carry), start).tolist() == [3, 3]


def test_nothing_is_run_and_nothing_traced_twice() -> None:
    """The step is traced for the carry that it got and for the one it gets, but never run."""
    seen = []

    def step(carry: Any, x: Any) -> Any:
        seen.append(type(carry))
        jax.debug.callback(lambda: seen.append("ran"))
        return carry + x

    jitted = jax.jit(step)
    carry, _ = lw.stable_carry(jitted, 0, jax.ShapeDtypeStruct((), jnp.float32))
    jax.effects_barrier()
    assert "ran" not in seen
    assert len(seen) == 2
    jitted(carry, jnp.ones(()))
    jax.effects_barrier()
    assert seen.count("ran") == 1
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("step", "start", "dtype", "weak"),
    [
        (lambda c: c * 1.0, 3, "float32", True),
        (lambda c: c * jnp.float32(1), True, "float32", False),
        (lambda c: 1.0, jnp.float32(2), "float32", True),
        (lambda c: c.astype(jnp.bfloat16), jnp.ones(3), "bfloat16", False),
        (lambda c: c * 1j, np.float32(2), "complex64", False),
        (lambda c: c, np.array([1, 2], np.int8), "int8", False),
    ],
)
def test_types_of_the_fixed_point(step: Step, start: Any, dtype: str, *, weak: bool) -> None:
    """The step gives the carry back with the dtype and weak type that it got; values are kept."""
    carry, _ = lw.stable_carry(step, start)
    out = jax.eval_shape(step, carry)
    assert (carry.dtype, carry.weak_type) == (out.dtype, bool(out.weak_type)) == (dtype, weak)
    assert np.array_equal(np.asarray(carry), np.asarray(start))


def test_x64_is_another_fixed_point() -> None:
    """Under x64 a Python float is a float64, and the carry says so."""
    with jax.enable_x64(True):
        carry, changes = lw.stable_carry(lambda c, x: c + x, 0.5, np.float64(1))
        assert (str(carry.dtype), carry.weak_type) == ("float64", False)
        assert "float64[] (Python scalar, weakly typed) -> float64[] (jax array)" in str(changes)
        with pytest.raises(TreeError, match="9007199254740993 would become 9007"):
            lw.stable_carry(lambda c, x: c + x, 2**53 + 1, np.float64(1))
        with pytest.raises(TreeError, match=r"float64\[\] into float32(.|\n)*jnp.float32\(0.1\)"):
            lw.stable_carry(lambda c, x: c * x, 0.1, jnp.float32(1))


def grow(carry: Any) -> Any:
    return jnp.concatenate([carry, carry])


@lw.pytree
class Twin:
    w: jax.Array
    rate: Any
    count: Any = 0


REFUSED: dict[str, tuple[Step, Any, str]] = {
    "shape": (grow, jnp.ones(3), r"carry: the step changes it\n  carry: shape \(3,\) -> \(6,\)"),
    "dtype": (
        lambda c: c.astype("int32" if c.dtype == jnp.float32 else "float32"),
        jnp.ones(3),
        "c: its type never settles\n  c: dtype .*\n  fix: return it with one dtype",
    ),
    "value": (
        lambda c: {"n": c["n"] + jnp.float32(1)},
        {"n": jnp.int32(2**24 + 1)},
        r"c\['n'\]: the step turns int32\[\] into float32, and 16777217 would become 16777216.0",
    ),
    "rounded": (lambda c: c.astype(jnp.bfloat16), jnp.float32(0.1), "c: .* would become 0.1000"),
    "imaginary": (lambda c: c.real, jnp.complex64(1j), "c: .* 1j would become 0.0"),
    "act": (lambda s: lw.replace(s, act="tanh"), State(1.0, 1.0), r"s.act \(static\): 'relu' -> "),
    "class": (lambda s: Twin(s.w, s.rate), State(1.0, 1.0), r"s \(class\): State -> Twin"),
    "structure": (lambda s: [*s, 1.0], [1.0], r"s \(structure\): 1 element -> 2 elements"),
    "pair": (lambda s: (s, s), jnp.ones(2), "fix: .* pass has_aux=True"),
    "leaf": (lambda s: s, {"f": print, "w": 1}, r"s\['f'\]: expected an array or .* got <built-in"),
    "a shape": (lambda s: s, jax.ShapeDtypeStruct((), "f4"), "s: expected an array or a number"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_no_fixed_point_is_said_by_path(kind: str) -> None:
    """Where there is no carry, the error says where, what goes in, what comes out, and a fix."""
    step, start, message = REFUSED[kind]
    with pytest.raises(TreeError, match=message) as caught:
        lw.stable_carry(step, start)
    assert "fix: " in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert str(again) == str(caught.value)


def test_inside_of_a_trace_no_value_is_guessed() -> None:
    """A traced carry is converted where no value can be lost; a Python number is known."""

    def run(dtype: str) -> Any:
        @jax.jit
        def inside(start: jax.Array, xs: jax.Array) -> jax.Array:
            carry, _ = lw.stable_carry(lambda c, x: c + x, start, xs[0])
            return lax.scan(lambda c, x: (c + x, None), carry, xs)[0]

        return inside(jnp.zeros((), dtype), jnp.ones(3))

    assert run("int16") == 3.0
    with pytest.raises(TreeError, match=r"c: .* and its value is not known here"):
        run("int32")
    known = jax.jit(lambda x: lw.stable_carry(lambda c: c + x, 3)[0])
    assert known(jnp.float32(1)) == 3.0


SHARDED_CARRIES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "zeros": (lambda _: jnp.zeros(1), ["s.w (varying axes): () -> ('x',)"]),
    "varying": (lambda x: x, []),
    "NumPy": (lambda _: np.zeros(1, np.float32), ["s.w (varying axes): () -> ('x',)"]),
    "weak": (
        lambda _: jnp.broadcast_to(0.0, (1,)),
        [
            "s.w: weak type float32[1] (tracer, weakly typed) -> float32[1]{V:x} (tracer)",
            "s.w (varying axes): () -> ('x',)",
        ],
    ),
}


@pytest.mark.parametrize("kind", SHARDED_CARRIES)
def test_a_carry_that_becomes_varying(kind: str) -> None:
    """Inside `shard_map` a carry is cast to vary as what the step makes of it does."""
    make, lines = SHARDED_CARRIES[kind]

    def step(s: State, x: jax.Array) -> Any:
        return lw.replace(s, w=s.w * 0.5 + x), None

    def loop(x: jax.Array) -> Any:
        carry, changes = lw.stable_carry(step, State(make(x), 0.5), x, has_aux=True)
        text = str(changes).replace("1]{x}", "1]{V:x}")  # before JAX 0.8.2
        assert text == ("\n".join(lines) or "no differences")
        return lax.scan(step, carry, jnp.stack([x, x]))[0].w

    each = PartitionSpec("x")
    mapped = jax.shard_map(loop, mesh=mesh(), in_specs=each, out_specs=each)
    ends = [1.5 + 0.25 * (kind == "varying")] * 8
    assert jax.jit(mapped)(jnp.ones(8)).tolist() == ends
    assert mapped(jnp.ones(8)).tolist() == ends


def test_a_carry_that_varies_and_comes_back_as_one() -> None:
    """Values that differ from shard to shard are never taken for one; the fix keeps them."""

    def loop(x: jax.Array) -> Any:
        def step(c: jax.Array) -> jax.Array:
            return lax.psum(c + x, "x")

        with pytest.raises(TreeError, match=r"return `jax.lax.pcast\(x, \('x',\), to="):
            lw.stable_carry(step, x)
        before, after = lw.signature(jnp.zeros(1)), lw.signature(x)
        (reason,) = after.explain(before).reasons
        assert (reason.kind, reason.after) == (lw.types.ReasonKind.VARYING, ("x",))
        return x

    each = PartitionSpec("x")
    jax.jit(jax.shard_map(loop, mesh=mesh(), in_specs=each, out_specs=each))(jnp.ones(8))


def test_an_explicit_mesh_is_settled() -> None:
    """Under an explicit mesh the carry lies where the step leaves it."""
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    step = fresh(lambda carry, x: (carry[0] * x, carry[1] + 1))
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones(8), NamedSharding(mesh, PartitionSpec("x")))
        carry, _ = lw.stable_carry(step, (x, 0), x)
        found = rounds(step, carry, x)
    assert found[0] == found[2]
    assert step._cache_size() == 1


def test_static_arguments_stay_static() -> None:
    """Static arguments of a jitted step, and numbers that a step branches on, are not traced."""

    def step(carry: Any, n: int, mode: str = "up") -> Any:
        return carry + n if mode == "up" and n > 1 else carry * 1.0

    jitted = jax.jit(step, static_argnames=("n", "mode"))
    for each in (step, jitted, lw.jit(step, static_argnames=("n", "mode"))):
        assert lw.stable_carry(each, 0, 2, mode="up")[0].dtype == "int32"
        assert lw.stable_carry(each, 0, 2, mode="down")[0].dtype == "float32"


def test_a_weakly_typed_bool() -> None:
    """A comparison of weakly typed numbers is one; the step then finds its program."""

    def step(carry: Any) -> Any:
        return {"t": carry["t"] + 1, "done": carry["t"] >= 5}

    carry, _ = lw.stable_carry(step, {"t": 0, "done": False})
    assert jax.typeof(carry["done"]).weak_type
    jitted = fresh(step)
    for _ in range(3):
        carry = jitted(carry)
    assert jitted._cache_size() == 1
