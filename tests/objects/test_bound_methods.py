"""``p.method`` is a pytree: the instance is its child, the function its aux_data."""

import abc
import copy
import functools
import inspect
import pickle
import types
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import cloudpickle
import jax
import jax.numpy as jnp
import pytest
from tests.kit.processes import run_python

import leafwise as lw

T = TypeVar("T")
X = jnp.arange(3.0)


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return 2 * function(*args, **kwargs)

    return wrapper


@lw.pytree
class Scale:
    w: jax.Array
    act: str = lw.static_field(default="relu")

    def by(self, x: jax.Array, *, times: int = 1) -> jax.Array:
        """Scale an array."""
        return self.w * x * times

    @doubled
    def twice(self, x: jax.Array) -> jax.Array:
        return self.by(x)

    @jax.jit
    def jitted(self, x: jax.Array) -> jax.Array:
        return self.by(x)

    @lw.jit
    def remembered(self, x: jax.Array) -> jax.Array:
        return self.by(x)

    @staticmethod
    def plain(x: jax.Array) -> jax.Array:
        return x

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.by(x)


def make(w: float = 2.0, act: str = "relu") -> Scale:
    return Scale(jnp.full(3, w), act)


def apply() -> Callable[[Callable[..., Any], jax.Array], Any]:
    """Return a fresh jitted function of a function: jit shares programs of the same one."""
    return jax.jit(lambda function, x: function(x))


@pytest.mark.parametrize("name", ["by", "twice", "jitted", "remembered", "__call__"])
def test_as_an_argument(name: str) -> None:
    """It retraces where the key or the avals of the instance change, and nowhere else."""
    call = apply()
    with lw.budget(traces=1, exact=True, of=call):
        first = call(getattr(make(2.0), name), X)
        again = call(getattr(make(3.0), name), X)
        call(getattr(copy.copy(make(3.0)), name), X)
    assert jnp.array_equal(3 * first, 2 * again)
    with lw.budget(traces=1, exact=True, of=call):
        call(getattr(make(act="gelu"), name), X)
    with lw.budget(traces=1, exact=True, of=call):
        call(getattr(Scale(jnp.float32(1)), name), X)


def test_under_jit() -> None:
    """`lw.jit` of it takes the instance as an argument; `jax.jit` bakes it in, and is right."""
    with lw.watch(eager=False) as log:
        for w in (1.0, 2.0, 3.0):
            assert jnp.array_equal(lw.jit(make(w).by)(X), w * X)
    assert [event.name for event in log.traces] == ["by"]
    with lw.watch(eager=False) as log:
        for w in (1.0, 2.0, 3.0):
            assert jnp.array_equal(jax.jit(make(w).by)(X), w * X)
    assert len(log.traces) == 3


@pytest.mark.parametrize("number", [1, -1, (1,), [1]])
def test_options_of_jit(number: Any) -> None:
    """Numbers of arguments do not count the instance."""

    @lw.pytree
    class Power:
        w: jax.Array

        def of(self, x: jax.Array, n: int) -> jax.Array:
            assert type(n) is int
            return self.w * x**n

    power = Power(jnp.float32(2))
    assert jnp.array_equal(lw.jit(power.of, static_argnums=number)(X, 2), 2 * X**2)
    assert jnp.array_equal(lw.jit(power.of, static_argnames="n")(X, n=3), 2 * X**3)


def test_donation_and_shardings() -> None:
    """What is donated or placed is the argument that was meant."""
    p, x = make(), jnp.arange(3.0)
    lw.jit(p.by, donate_argnums=0)(x)
    assert x.is_deleted()
    assert not p.w.is_deleted()
    there = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert jnp.array_equal(lw.jit(p.by, in_shardings=(there,))(X), 2 * X)


def test_jitted_methods_keep_what_jit_gives() -> None:
    """Counts belong to the function; what takes arguments is bound."""
    p = make()
    p.remembered(X)
    assert len(p.remembered.traces) == len(Scale.remembered.traces) > 0
    assert p.remembered.explain(X).outcome == "reuse"
    assert p.remembered.explain(jnp.ones(1)).outcome == "retrace"
    assert p.remembered.stale_captures(X) == ()
    assert p.jitted.eval_shape(X).shape == (3,)


@pytest.mark.parametrize("name", ["by", "jitted", "remembered"])
def test_ahead_of_time(name: str) -> None:
    """What is compiled ahead of time takes what the method takes; the instance goes with it."""
    p = make()
    jitted = lw.jit(getattr(p, name)) if name == "by" else getattr(p, name)
    lowered = jitted.lower(X)
    assert "stablehlo" in lowered.as_text()
    for compiled in (lowered.compile(), jitted.trace(X).lower().compile()):
        assert jnp.array_equal(compiled(X), 2 * X)
        assert compiled.cost_analysis() is not None
    assert jnp.array_equal(jitted.__wrapped__(X), 2 * X)
    assert jitted.__wrapped__.__self__ is p


def test_what_has_no_hash() -> None:
    """A callable that JAX cannot file programs under is refused as by JAX, with the way out."""

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: jax.Array) -> jax.Array:
            return x

    with pytest.raises(TypeError, match="unhashable type: 'Unhashable'") as caught:
        lw.jit(Unhashable())
    assert "fix: use equinox.filter_jit" in "".join(caught.value.__notes__)


def test_as_a_tree() -> None:
    """Leaves have paths, holes are kept, and the structure tells instance and function."""
    p = make()
    ((path, leaf),) = jax.tree_util.tree_flatten_with_path(p.by)[0]
    assert jax.tree_util.keystr(path) == ".__self__.w"
    assert leaf is p.w
    assert jax.tree.map(lambda w: w + 1, p.by)(X).tolist() == (3 * X).tolist()
    structure = jax.tree.structure(p.by)
    hollow = jax.tree.unflatten(structure, [None])
    assert hollow.__self__.w is None
    assert structure == jax.tree.structure(make(9.0).by)
    assert structure != jax.tree.structure(p.twice)
    assert structure != jax.tree.structure(make(act="gelu").by)


def test_as_python_has_it() -> None:
    """It looks, compares, hashes and is inspected like a bound method of Python's."""
    p = make()
    method = p.by
    assert repr(method) == "<bound method Scale.by of Scale(w=f32[3], act='relu')>"
    assert method == p.by
    assert method != copy.copy(p).by
    assert method != p.twice
    assert len({method, p.by}) == 1
    assert (method.__self__, method.__func__) == (p, Scale.by)
    assert (method.__name__, method.__qualname__) == ("by", "Scale.by")
    assert method.__doc__ == "Scale an array."
    assert str(inspect.signature(method)).startswith("(x: ")
    assert list(inspect.signature(method).parameters) == ["x", "times"]
    assert str(inspect.signature(p.twice)).startswith("(x: ")
    assert jnp.array_equal(method(X, times=3), 6 * X)
    assert type(Scale.by) is types.FunctionType
    assert type(p.plain) is types.FunctionType
    assert p.named() == "Scale"
    with pytest.raises(AttributeError, match="nothing"):
        _ = method.nothing


class Mixin:
    def mixed(self: Any, x: jax.Array) -> jax.Array:
        return self.w + x

    def overridden(self) -> str:
        return "mixin"


class Api(Protocol):
    def declared(self) -> str:
        return "declared"


@lw.pytree
class Base(Mixin, abc.ABC):
    w: jax.Array

    @abc.abstractmethod
    def must(self) -> str: ...

    def above(self) -> str:
        return "base"


@lw.pytree
class Derived(Base, Api, Generic[T]):
    def must(self) -> str:
        return "must"

    def above(self) -> str:
        return "derived, " + super().above()

    def overridden(self) -> str:
        return "derived, " + super().overridden()


@lw.pytree(slots=True)
class Slotted(Base):
    def must(self) -> str:
        return super().above()


@pytest.mark.parametrize("cls", [Derived, Slotted])
@pytest.mark.parametrize("name", ["mixed", "must", "above", "overridden"])
def test_inherited(cls: Any, name: str) -> None:
    """Methods of any base are pytrees, those of classes that are not decorated included."""
    p = cls(jnp.ones(3))
    method = getattr(p, name)
    assert jax.tree.leaves(method) == [p.w]
    assert jax.tree.map(lambda leaf: leaf, method).__self__ == p
    result = method(X) if name == "mixed" else method()
    assert isinstance(result, jax.Array | str)


def test_inherited_results() -> None:
    """`super`, protocols and abstract methods work as ever."""
    p = Derived(jnp.ones(3))
    assert p.above() == "derived, base"
    assert p.overridden() == "derived, mixin"
    assert p.declared() == "declared"
    assert Slotted(jnp.ones(3)).must() == "base"
    assert Derived.mixed is Mixin.mixed
    with pytest.raises(TypeError, match="abstract"):
        Base(jnp.ones(3))


def test_as_a_static() -> None:
    """A method as a static value is known by its function and the key of its instance."""

    @lw.pytree
    class Rule:
        power: int = lw.static_field()

        def apply(self, x: jax.Array) -> jax.Array:
            return x**self.power

    @lw.pytree
    class Uses:
        rule: Any = lw.static_field()

    structures = [jax.tree.structure(Uses(Rule(n).apply)) for n in (2, 2, 3)]
    assert structures[0] == structures[1] != structures[2]
    with pytest.raises(lw.errors.StaticFieldError, match=r"Uses\.rule\.__self__\.w"):
        Uses(make().by)


@pytest.mark.nightly
def test_travels() -> None:
    """Copied, pickled, or sent to a new process, it does what it did."""
    p = make()
    for there in (copy.copy(p.by), copy.deepcopy(p.by), pickle.loads(pickle.dumps(p.by))):  # noqa: S301
        assert jnp.array_equal(there(X), p.by(X))
        assert there.__self__ == p
    assert copy.deepcopy(p.by).__self__ is not p
    script = (
        "import pickle, sys, jax\n"
        "method = pickle.loads(sys.stdin.buffer.read())\n"
        "print(jax.jit(lambda f, x: f(x))(method, 2.0).tolist())"
    )

    class Plain:
        def times(self: Any, x: jax.Array) -> jax.Array:
            return self.scaled(x)

    @lw.pytree
    class Local(Plain):
        w: jax.Array

        def scaled(self, x: jax.Array) -> jax.Array:
            return self.w * x

    sent = cloudpickle.dumps(Local(jnp.float32(4)).times)
    assert run_python(script, given=sent).strip() == b"8.0"
