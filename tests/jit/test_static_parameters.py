"""`lw.Static[...]` in the signature of a function: its arguments are static, and sound."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.things import Frozen, Thing

import leafwise as lw

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

    from leafwise import Static

Count: TypeAlias = lw.Static[int]


@lw.jit
def padded(n: lw.Static[int], x: Any) -> jax.Array:
    return jnp.zeros(n) + x


def by_text(n: "Count", x: Any, *, mode: "lw.Static[Unknown]" = None) -> Any:
    return (jnp.zeros(n) + x) if mode == "a" else None


def positional(n: Count, /, x: Any, m: lw.Static[int] = 2) -> jax.Array:
    return jnp.zeros((n, m)) + x


@lw.pytree
class Tagged:
    w: Any
    act: lw.Static[str] = "relu"


class Called:
    def __call__(self, n: lw.Static[int], x: Any) -> jax.Array:
        return jnp.zeros(n) + x


@lw.pytree
class Net:
    w: Any

    @lw.jit
    def wide(self, n: lw.Static[int], x: Any = 0.0) -> jax.Array:
        return jnp.zeros(n) + self.w + x

    def tall(self, n: lw.Static[int]) -> jax.Array:
        return jnp.zeros(n) + self.w


CALLS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "position": (lambda: padded(3, 1.0), (3,)),
    "text": (lambda: lw.jit(by_text)(3, 1.0, mode="a"), (3,)),
    "default": (lambda: lw.jit(positional)(3, 1.0), (3, 2)),
    "positional only": (lambda: lw.jit(positional)(3, 1.0, m=4), (3, 4)),
    "partial by name": (lambda: lw.jit(functools.partial(positional, m=3))(1, 1.0), (1, 3)),
    "object": (lambda: lw.jit(Called())(3, 1.0), (3,)),
    "class": (lambda: lw.jit(Tagged)(jnp.ones(3), act="tanh").w, (3,)),
    "method by name": (lambda: Net(1.0).wide(x=2.0, n=3), (3,)),
    "jitted method": (lambda: lw.jit(Net(1.0).tall)(3), (3,)),
    "with options": (lambda: lw.jit(positional, static_argnames="x")(3, 1.0), (3, 2)),
    "with numbers": (lambda: lw.jit(positional, static_argnums=(1,))(3, x=1.0, m=1), (3, 1)),
    "vmap": (lambda: jax.vmap(padded, in_axes=(None, 0))(3, jnp.ones(2)), (2, 3)),
    "jit": (lambda: jax.jit(lambda x: padded(3, x))(1.0), (3,)),
    "grad": (lambda: jax.grad(lambda x: (padded(3, x) * x).sum())(jnp.ones(3)), (3,)),
    "of a method": (lambda: Net(1.0).wide.lower(3).compile()(), (3,)),  # type: ignore[attr-defined]
    "shape": (lambda: padded.eval_shape(3, 1.0), (3,)),
    "trace": (lambda: padded.trace(n=3, x=1.0).out_info, (3,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_argument_is_static(name: str) -> None:
    """However it is given and whatever is jitted, its value shapes the program."""
    call, shape = CALLS[name]
    assert call().shape == shape


def test_other_markers() -> None:
    """The marker of jax_dataclasses is heeded, as its own `jit` does."""

    def zeros(n: Any) -> jax.Array:
        return jnp.zeros(n)

    theirs = Annotated[int, "__jax_dataclasses_static_field__"]
    zeros.__annotations__["n"] = Annotated[theirs, "documented"]
    assert lw.jit(zeros)(3).shape == (3,)


VALUES = [1, True, 1.0, np.int64(1), 0.0, -0.0, "a", None]


def test_values_are_distinct() -> None:
    """Values of another type or sign, here deep inside, are other programs; equal ones are one."""

    @lw.jit
    def kept(value: lw.Static[Any], x: Any) -> Any:
        seen.append(value)
        return x

    seen: list[Any] = []
    with lw.storm_guard(None):
        for value in [*VALUES, float("nan"), float("nan"), *VALUES]:
            kept(Frozen((value,)), 1.0)
    assert len(seen) == len(kept.traces) == kept.cache_size() == len(VALUES) + 1
    assert [str(each) for each in seen[:-1]] == [str(Frozen((each,))) for each in VALUES]


def test_what_is_said() -> None:
    """`explain`, the log and `signature` show the values, under the parameter's name."""

    @lw.jit
    def step(n: lw.Static[Any], x: Any) -> Any:
        return x

    step((1,), 2.0)
    step((True,), 2.0)
    (reason,) = step.traces[1].explanation.reasons
    assert (reason.path, reason.kind) == ("n", "static")
    assert step.explain((1,), 3.0).outcome == "reuse"
    assert step.explain((1.0,), 2.0).outcome == "retrace"
    assert dict(step.signature((1,), 2.0).statics) == {"n": (1,)}
    assert step.signature((1,), 2.0) != step.signature((True,), 2.0)
    with lw.no_retrace():
        step((1,), 5.0)
    with lw.watch() as seen:
        step(7, 1.0)
    assert "n (static): " in str(seen)


def test_refused_values() -> None:
    """What cannot be static is refused at the call, by function and parameter, with a fix."""
    with pytest.raises(lw.errors.StaticFieldError) as caught:
        padded([1], 1.0)  # type: ignore[arg-type]
    assert caught.value.message == (
        "padded.n: a list can change in place and has no hash\n"
        "  got: [1] (list)\n"
        "  fix: pass a tuple: `(1,)`"
    )
    with pytest.raises(lw.errors.StaticFieldError, match="a list can change in place"):
        padded.explain([1], 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="too many positional arguments"):
        padded.explain(1, 1.0, 2.0)  # type: ignore[call-arg]
    fix = "fix: remove lw.Static, so that n is traced"
    with pytest.raises(lw.errors.StaticFieldError, match=rf"padded\.n: (.|\n)*{fix}") as raised:
        padded(jnp.ones(2), 1.0)  # type: ignore[arg-type]
    assert raised.value.message.endswith("as a constant table: `n=lw.StaticArray(value)`")
    with pytest.raises(lw.errors.StaticFieldError, match=rf"padded\.n: (.|\n)*{fix}"):
        jax.jit(padded)(3, 1.0)


def test_refused_signatures() -> None:
    """Where the mark has no effect, or cannot be found, the decorator says so."""

    def rest(*sizes: lw.Static[int]) -> None: ...
    def named(**sizes: lw.Static[int]) -> None: ...
    def buried(n: lw.Static[int] | None) -> None: ...
    def unfound(n: "Static[int]") -> None: ...

    for function, text in (
        (rest, r"rest\(\*sizes: .*by its own position or name"),
        (named, r"named\(\*\*sizes: .*by its own position or name"),
        (buried, r"buried\(n\): Static inside another type(.|\n)*`n: lw\.Static\[int \| None\]`"),
        (unfound, r"unfound\(n\): .*'Static' in its annotation(.|\n)*static_argnames='n'"),
    ):
        with pytest.raises(lw.errors.DefinitionError, match=text):
            lw.jit(function)
    assert lw.jit(unfound, static_argnames="n")("text") is None


def local(Size: Any) -> Any:  # noqa: N803
    @lw.jit
    def zeros(n: "Size") -> jax.Array:
        return jnp.zeros(n)

    return zeros


def test_local_alias() -> None:
    """An annotation as text finds the names that the function statement sees."""
    assert local(lw.Static[int])(3).shape == (3,)


def test_mutation_is_found() -> None:
    """Inside `check_statics` a value that changed in place raises, as in a field."""

    @lw.jit
    def sized(options: lw.Static[Thing], x: Any) -> Any:
        return x + options.size

    options: Any = Thing(size=1)
    sized(options, 1.0)
    options.size = 2
    with lw.debug.check_statics(), pytest.raises(lw.errors.StaticMutatedError, match="sized"):
        sized(options, 1.0)


rate = 1.0


@lw.jit(on_stale="raise")
def scaled(n: lw.Static[tuple[int, ...]], x: Any) -> Any:
    return x * rate * len(n)


def test_captures_are_checked() -> None:
    """The check of captures sees the program that answers, for equal values of other objects."""
    global rate  # noqa: PLW0603  # what the test is about
    assert scaled((1, 2), 1.0) == 2
    assert "rate" in str(scaled.captures)
    rate = 3.0
    assert len(scaled.stale_captures((1, 2), 1.0)) == 1
    assert not scaled.stale_captures((True, 2), 1.0)
    with pytest.raises(lw.errors.StaleCaptureError):
        scaled((1, 2), 1.0)
    assert scaled((True, 2), 1.0) == 6
    rate = 1.0


def test_pickle() -> None:
    """A jitted function that is not a decorated one pickles, with its static parameters."""
    made = cloudpickle.loads(cloudpickle.dumps(lw.jit(positional)))
    assert made(3, 1.0).shape == (3, 2)
    assert made.explain(3, 1.0).outcome == "reuse"
