"""`check_recompilation` and `recompiles_only_on`: predictions and claims against JAX."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

import leafwise as lw
from leafwise.errors import CannotBuildError, LawViolation, RetraceError
from leafwise.testing import check_pytree, check_recompilation, recompiles_only_on, strategies

from . import specimens
from .specimens import Flax, Params, params

FEW = settings(max_examples=12, derandomize=True, deadline=None)
FIRST = settings(FEW, phases=[Phase.generate])
flax = st.builds(Flax, w=specimens.arrays, n=st.integers(0, 4))


def named(*, x: jax.Array) -> jax.Array:
    return x


def scaled(p: Params) -> Any:
    return getattr(jax.nn, p.act)(p.w * p.lr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "path", "words", "found"),
    [
        ({"retrace_on": "lr"}, "Params.lr", "leaf value: 0.0 -> 1.0: JAX did a reuse", FEW),
        ({"reuse_on": ["n"]}, "Params.n", "static .*: JAX did a retrace", FIRST),
    ],
)
def test_false_claims_are_found(claims: Any, path: str, words: str, found: settings) -> None:
    """A false claim is a violation that names the path and what was seen."""
    with pytest.raises(LawViolation, match=words) as caught:
        check_recompilation(params, settings=found, **claims)
    assert (caught.value.path, caught.value.law) == (path, "recompilation")
    assert ", for another value" in str(caught.value)


def test_claims_are_about_other_values() -> None:
    """That ``1`` and ``True`` share a program of flax is no other value: a law tells of it."""
    check_recompilation(flax, retrace_on="n", reuse_on="w", settings=FEW)
    with pytest.raises(LawViolation):
        check_pytree(flax, laws="static-types", settings=FEW)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap",
    [pytest.param(lambda f: f, marks=pytest.mark.nightly), jax.jit, lw.jit, eqx.filter_jit],
    ids=["plain", "jax", "lw", "eqx"],
)
def test_of_a_function(wrap: Any) -> None:
    """The function may be jitted, in any way, or not; statics take values that are drawn."""
    fun = wrap(scaled)
    reuse = "w" if wrap is eqx.filter_jit else ["lr", "w"]  # which makes numbers static
    check_recompilation(params, fun, retrace_on="act", reuse_on=reuse, settings=FEW)


@pytest.mark.slow
def test_a_wrong_prediction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the oracle blind, the law would say so: it cannot pass by agreeing with itself."""
    explain = lw.types.Signature.explain
    monkeypatch.setattr(lw.types.Signature, "explain", lambda after, _: explain(after, after))
    with pytest.raises(LawViolation, match=r"as predicted, reuse"):
        check_pytree(params, laws=["recompilation"], settings=FEW)


@pytest.mark.slow
def test_the_longer_claim_counts() -> None:
    """Of two claims about a path, the one that names more of it counts."""

    @lw.pytree
    class Outer:
        inner: Params

    outer = st.builds(Outer, params)
    claims = {"reuse_on": "inner", "retrace_on": ["inner.n", "inner.act"]}
    check_recompilation(outer, settings=FEW, **claims)  # type: ignore[arg-type]


@pytest.mark.slow
def test_claims_that_cannot_be_tested() -> None:
    """A claim about nothing, or one for which no other value is found, is not passed."""
    names = r"reuse_on: nothing is at 'acct' \(did you mean 'act'\?\); choose from w, lr, n, act"
    with pytest.raises(ValueError, match=names) as caught:
        check_recompilation(params, reuse_on="acct", settings=FEW)
    assert len(caught.traceback.filter(caught)) == 1, "pytest shows the user's line alone"
    with pytest.raises(ValueError, match=r"'lr' is claimed both"):
        check_recompilation(params, reuse_on="lr", retrace_on="lr")

    def picky(p: Params) -> Any:
        if repr(p.n) != "2":
            raise ValueError("n must be 2")
        return p.w

    fixed = st.builds(Params, specimens.arrays, specimens.numbers)
    with pytest.raises(ValueError, match=r"'n' was not tested: no other value was found") as caught:
        check_recompilation(fixed, picky, retrace_on="n", settings=FEW)
    assert "the last one was refused: ValueError: n must be 2" in str(caught.value)
    assert "`instances(Params, n=st.sampled_from([2, 5]))`" in str(caught.value)
    assert len(caught.traceback.filter(caught)) == 1
    wider = strategies.instances(Params, n=st.sampled_from([2, 5]))
    check_recompilation(wider, retrace_on="n", settings=FEW)

    @lw.pytree
    class Fixed:
        x: float
        o: Any = lw.static_field(default_factory=object, init=False)

    with pytest.raises(ValueError, match=r"the constructor of Fixed take `o`, or drop the claim"):
        check_recompilation(st.just(Fixed(1.0)), retrace_on="o", settings=FEW)


def test_bad_input() -> None:
    """What is not a class, a function or a path is refused at once, and what cannot be drawn."""
    with pytest.raises(TypeError, match=r"check_recompilation takes a class or a strategy"):
        check_recompilation(Params(jnp.ones(3), 1.0))
    with pytest.raises(TypeError, match=r"takes a function of one instance, got 3 \(int\)"):
        check_recompilation(params, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'retrace_on takes paths such as "config.depth", got 3'):
        check_recompilation(params, retrace_on=[3])  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        check_recompilation(params, lambda _: 1 / 0, settings=FEW)
    for path in (3, scaled):
        with pytest.raises(TypeError, match=r"takes paths such as"):
            recompiles_only_on(path)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"decorates a function, got 3"):
        recompiles_only_on("x")(3)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"not name a parameter \(did you mean 'part'\?\); choose from part, n"
    ):
        recompiles_only_on("parts.a")(lambda part, n: part * n)
    with pytest.raises(CannotBuildError, match=r"\.p: it has no annotation\n  fix: write one"):
        recompiles_only_on("p")(lambda p, n: p * n).check()
    with pytest.raises(TypeError, match=r"required keyword-only argument: 'x'"):
        recompiles_only_on("x")(named).check()


@lw.pytree
class Config:
    lr: float
    depth: int = lw.static_field(default=2)
    act: str = lw.static_field(default="tanh")


@pytest.fixture
def plain() -> Any:
    """Return a function that JAX has not seen: programs are those of the plain function."""

    def plain(config: Config, x: jax.Array) -> jax.Array:
        return config.lr * x.sum() * config.depth

    return plain


X = jnp.ones(3)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, lw.jit], ids=["plain", "jax", "lw"])
def test_calls_are_held_to_it(wrap: Any, plain: Any) -> None:
    """A call that recompiles for another reason raises; it names the path and says why."""
    step = recompiles_only_on("config.depth")(wrap(plain))
    assert step(Config(0.5), X) == 3.0
    assert step(Config(1.0), X) == 6.0
    assert step(Config(1.0, depth=3), X) == 9.0
    with pytest.raises(RetraceError, match=r"only on config.depth; it did so on\n  x: shape "):
        step(Config(1.0), jnp.ones(4))
    with pytest.raises(RetraceError, match=r"config.act \(static\): 'tanh' -> 'relu'") as caught:
        step(Config(1.0, depth=3, act="relu"), X)
    (explanation,) = caught.value.explanations
    assert explanation.outcome == "retrace"
    step(Config(1.0, depth=3, act="relu"), X)  # now it is there
    with pytest.raises(RetraceError, match=r"x \(commitment\)"):
        step(Config(0.5), jax.device_put(X, jax.devices()[0]))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Settings:
    rate: float
    size: int = dataclasses.field(metadata={"static": True}, default=1)


@functools.partial(jax.jit, static_argnames="n")
def power(x: jax.Array, n: int = 2) -> jax.Array:
    return x**n


def scale(settings: Any, x: jax.Array) -> jax.Array:
    return settings.rate * x


HELD: dict[str, tuple[Any, tuple[str, ...], list[tuple[Any, ...]], str]] = {
    "a number under filter_jit": (
        eqx.filter_jit(scale),
        ("settings.size",),
        [(Settings(0.5), X), (Settings(0.5, 3), X), (Settings(1.0), X)],
        r"settings\.rate \(static\): ",
    ),
    "a static argument": (power, ("n",), [(2.0,), (3.0, 3), (3.0, 4), (2,)], "x: dtype"),
    "no path at all": (lambda x: x + 1, (), [(X,), (2 * X,), (jnp.ones(4),)], "nothing at all"),
    "a dataclass of JAX": (
        scale,
        ("settings.size",),
        [(Settings(1.0), X), (Settings(1.0, 2), X), (Settings(jnp.float32(1)), X)],  # type: ignore[arg-type]
        r"settings.rate: weak type",
    ),
}


@pytest.mark.parametrize("what", HELD)
def test_only_the_last_call_raises(what: str) -> None:
    """All calls but the last one recompile on the paths alone."""
    fun, paths, calls, words = HELD[what]
    step = recompiles_only_on(*paths)(fun)
    for call in calls[:-1]:
        step(*call)
    with pytest.raises(RetraceError, match=words):
        step(*calls[-1])


def test_a_function_in_a_trace(plain: Any) -> None:
    """Called inside another jitted function, it is a part of that."""
    step = recompiles_only_on("config.depth")(plain)
    outer = jax.jit(lambda config, x: step(config, x))
    for size in (3, 4, 5):
        outer(Config(1.0), jnp.ones(size))
    assert jax.grad(lambda x: step(Config(1.0), x))(X).shape == (3,)


def test_as_a_method() -> None:
    """A method can be decorated."""

    @lw.pytree
    class Scale:
        w: Any

        @recompiles_only_on("x")
        def run(self, x: Any) -> Any:
            return self.w * x

    assert Scale(2.0).run(X)[0] == 2.0
    assert Scale(3.0).run(X)[0] == 3.0


@pytest.mark.nightly
@pytest.mark.slow
def test_check_draws_the_arguments(plain: Any) -> None:
    """`check` tests drawn arguments, by annotations; every other value is reused."""
    recompiles_only_on("config.depth", "config.act")(plain).check(settings=FEW)
    with pytest.raises(LawViolation) as caught:
        recompiles_only_on("config.depth")(plain).check(settings=FEW)
    assert caught.value.path == "plain.config.act"


@pytest.mark.slow
def test_check_takes_strategies() -> None:
    """A parameter without an annotation takes a strategy; a wrong name is refused."""

    def step(config, x, n=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return config.lr * x.sum() * n

    guarded = recompiles_only_on("config")(step)
    configs = st.builds(Config, specimens.numbers, st.integers(1, 3))
    guarded.check(config=configs, x=specimens.arrays, settings=FEW)
    with pytest.raises(TypeError, match=r"no 'y'"):
        guarded.check(config=configs, x=specimens.arrays, y=specimens.arrays)
    with pytest.raises(ValueError, match=r"recompiles_only_on: nothing is at 'config.a' \("):
        recompiles_only_on("config.a")(step).check(
            config=configs, x=specimens.arrays, settings=FIRST
        )


@pytest.mark.nightly
def test_check_knows_static_arguments() -> None:
    """A static argument of any type is one that retraces, unless it is among the paths."""

    def f(x: jax.Array, mode: str, n: int) -> jax.Array:
        return x * n if mode else x

    jitted = jax.jit(f, static_argnums=(1, 2))
    recompiles_only_on("mode", "n")(jitted).check(settings=FEW)
    for paths, wrong in ((("mode",), "f.n"), (("n",), "f.mode")):
        with pytest.raises(LawViolation) as caught:
            recompiles_only_on(*paths)(jitted).check(settings=FEW)
        assert caught.value.path == wrong
