"""`leafwise.interop.equinox.Module` keeps what equinox gives, and adds what it lacks."""

import abc
import dataclasses
import io
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

from .modules import KEEPS, Layer, works

T = TypeVar("T")


class Net(Module):
    """A constructor by hand, layers of equinox and of ours."""

    first: eqx.nn.Linear
    second: Layer
    out: int = eqx.field(static=True)

    def __init__(self, key: jax.Array, out: int = 2) -> None:
        self.first = eqx.nn.Linear(3, out, key=key)
        self.second = Layer(jnp.ones(out), "tanh")
        self.out = out

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.first(x))


KEY = jax.random.key(0)


@works(f"{KEEPS} constructors, defaults, converters and keyword-only fields")
def test_construction() -> None:
    """Fields are where equinox puts them; the key is not a parameter and is not printed."""
    layer = Layer(jnp.ones(2), "tanh", "3", name="a")  # pyright: ignore[reportArgumentType]
    assert (layer.act, layer.depth, layer.name) == ("tanh", 3, "a")
    assert repr(layer) == "Layer(w=f32[2], act='tanh', depth=3, name='a')"
    assert len(jax.tree.leaves(layer)) == 1
    assert Net(KEY, 4).first.out_features == 4
    with pytest.raises(TypeError, match="unexpected keyword"):
        Layer(jnp.ones(2), __leafwise_key__=None)


@pytest.mark.slow
@works(f"{KEEPS} `filter_jit`, `filter_grad`, `filter_vmap`, `tree_at`, serialisation")
def test_transformations() -> None:
    """Filtered transformations give instances back, and equal statics are one trace."""
    net = Net(KEY)
    step = eqx.filter_jit(eqx.filter_value_and_grad(lambda net, x: (net(x) ** 2).sum()))
    with lw.budget(traces=1, exact=True, of="<lambda>", eager=False):
        for scale in (1.0, 2.0):
            _, gradient = step(Net(KEY), jnp.full(3, scale))
    assert type(gradient) is Net
    assert type(gradient.second) is Layer
    assert jax.tree.structure(gradient) == jax.tree.structure(net)
    many = eqx.filter_vmap(Net)(jax.random.split(KEY, 3))
    assert many.first.weight.shape == (3, 2, 3)
    changed = eqx.tree_at(lambda net: net.second.w, net, jnp.zeros(2))
    assert not changed(jnp.ones(3)).any()
    assert changed.second.act == "tanh"
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, net)
    file.seek(0)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(file, Net(jax.random.key(1))), net)


@works(f"{KEEPS} abstract classes and attributes, generics and inheritance")
def test_inheritance() -> None:
    """Abstract, final, generic: what equinox refuses is refused, and new statics count."""

    class Abstract(Module, Generic[T]):
        size: eqx.AbstractVar[int]

        @abc.abstractmethod
        def go(self) -> int: ...

    class Concrete(Abstract[T]):
        size: int = eqx.field(static=True)

        def go(self) -> int:
            return self.size

    class Below(Concrete[int]):
        extra: float = lw.static_field(default=0.0)

    assert Concrete[int](3).go() == 3
    assert jax.tree.structure(Concrete[int](3)) == jax.tree.structure(Concrete(3))
    assert jax.tree.structure(Below(3, 0.0)) != jax.tree.structure(Below(3, -0.0))
    assert jax.tree.structure(Below(3)) != jax.tree.structure(Concrete(3))


@works(f"{KEEPS} bases that are plain modules, and plain modules below")
def test_mixed_bases() -> None:
    """Statics that a plain module declares count, too."""

    class Plain(eqx.Module):
        kind: Any = eqx.field(static=True)

    class Keyed(Plain, Module):
        w: float = 1.0

    assert jax.tree.structure(Keyed(1)) != jax.tree.structure(Keyed(True))
    with pytest.raises(lw.errors.StaticFieldError, match=r"Keyed\.kind"):
        Keyed([1])


@works(f"{KEEPS} `__check_init__` and `__post_init__`, with the key made before")
def test_check_init() -> None:
    """Each check of the classes runs once, subclass first, on an instance that has its key."""
    seen: list[str] = []

    class Base(Module):
        x: jax.Array
        n: int = lw.static_field(default=1)

        def __check_init__(self) -> None:
            seen.append(f"Base {self.n}")

    class Below(Base):
        scale: float = 1.0

        def __post_init__(self) -> None:
            seen.append("post")

        def __check_init__(self) -> None:
            seen.append(f"Below {jax.jit(lambda me: me.x + me.n)(self)}")
            if self.n < 0:
                raise ValueError("negative")

    Below(jnp.asarray(1), n=True)
    assert seen == ["post", "Below 2", "Base True"]
    with pytest.raises(ValueError, match="negative"):
        Below(jnp.asarray(1), n=-1)


@works(f"{KEEPS} wrappers (`module_update_wrapper`) and `strict=True`")
def test_wrappers() -> None:
    """A wrapper has the name of what it wraps, and equal wrappers have equal structures."""

    class Wrapper(Module, strict=True):
        fn: Any
        times: int = lw.static_field(default=1)

        @property
        def __wrapped__(self) -> Any:
            return self.fn

        def __call__(self, x: Any) -> Any:
            return self.times * self.fn(x)

    one = eqx.module_update_wrapper(Wrapper(jnp.sin))
    other = eqx.module_update_wrapper(Wrapper(jnp.sin))
    assert (one.__name__, one.__doc__) == ("sin", jnp.sin.__doc__)
    assert jax.tree.structure(one) == jax.tree.structure(other)


@works("contradictory declarations of statics in a `leafwise.interop.equinox.Module` are refused")
def test_definition_errors() -> None:
    """The error names class and field, when the class is made."""
    with pytest.raises(
        lw.errors.DefinitionError, match=r"Below\.depth: overrides a static field of Layer"
    ):

        class Below(Layer):
            depth: int = 3

    with pytest.raises(lw.errors.DefinitionError, match=r"Torn\.n: the annotation says static"):

        class Torn(Module):
            n: lw.Static[int] = dataclasses.field(metadata={"static": False})

    class Fine(Layer):
        depth: int = lw.field(default=3)  # now dynamic, and it says so

    assert len(jax.tree.leaves(Fine(jnp.ones(1)))) == 2


@works(
    "`@lw.pytree` on an `equinox.Module`",
    cannot="it is already a pytree; the error names the base class",
)
def test_decorated_module() -> None:
    """The error points to the base class that gives a module a sound key."""
    with pytest.raises(lw.errors.DefinitionError, match=r"leafwise\.interop\.equinox\.Module"):
        lw.pytree(eqx.nn.Linear)


def doubled(value: float) -> float:
    return 2 * value


def make_class(base: Any) -> Any:
    class ByHand(base):
        w: jax.Array
        rate: float = eqx.field(converter=doubled, static=True)
        k: int = lw.static_field(default=1)

        def __init__(self, n: int, rate: float = 0.5) -> None:
            self.w = jnp.ones(n)
            self.rate = rate

        def __check_init__(self) -> None:
            if self.k < 0:
                raise ValueError("k is negative")

    return ByHand


@works("`lw.replace` of modules, those with a constructor by hand included")
@pytest.mark.parametrize("base", [eqx.Module, Module], ids=["plain", "keyed"])
def test_replace(base: Any) -> None:
    """Changed fields are converted, others are not again; all statics count; the check runs."""
    module = make_class(base)(2)
    changed = lw.replace(module, k=5)
    assert (changed.k, changed.rate, module.k) == (5, 1.0, 1)
    assert changed.w is module.w
    assert lw.replace(module, rate=3.0).rate == 6.0
    assert jax.tree.structure(changed) != jax.tree.structure(module)
    assert jax.tree.structure(lw.replace(changed, k=1)) == jax.tree.structure(module)
    with pytest.raises(lw.errors.StaticFieldError, match=r"\.k"):
        lw.replace(module, k=[1])
    with pytest.raises(TypeError, match="did you mean 'rate'"):
        lw.replace(module, rat=1)
    with pytest.raises(ValueError, match="k is negative"):
        lw.replace(module, k=-1)


SPECIFIERS = "`lw.field` and `lw.static_field` in an `equinox.Module`"


def positive(value: Any) -> bool:
    return value > 0


class Declared(eqx.Module):
    w: jax.Array = lw.field(converter=jnp.asarray)
    depth: int = lw.static_field(default=2, validator=positive)
    table: Any = lw.static_field(default_factory=list, freeze=True)
    name: str = lw.static_field(default="net", kw_only=True, converter=str)
    rate: float = lw.field(default=0.1, validator=positive)


@works(SPECIFIERS)
def test_defaults_and_conversion() -> None:
    """Defaults, factories, keyword-only, converters and freezing do what they say."""
    net = Declared(1.0)
    assert isinstance(net.w, jax.Array)
    assert jax.tree.leaves(net) == [1.0, 0.1]
    assert jax.tree.structure(net) != jax.tree.structure(Declared(1.0, 3))
    assert (net.depth, net.table, net.name, net.rate) == (2, (), "net", 0.1)
    other = Declared(2.0, 3, [[1, 2]], 0.2, name=7)
    assert (other.depth, other.table, other.name, other.rate) == (3, ((1, 2),), "7", 0.2)


@works(SPECIFIERS)
def test_checks_and_converters_that_fail() -> None:
    """A refused or failing value names class and field, and where the field is inherited."""

    class Below(Declared):
        extra: int = lw.static_field(default=1, converter=int)

    with pytest.raises(
        lw.errors.FieldCheckError, match=r"Declared\.depth: its validator positive refused 0"
    ):
        Declared(1.0, depth=0)
    with pytest.raises(ValueError, match="invalid literal") as info:
        Below(1.0, extra="x")
    assert "in the converter of field Below.extra" in info.value.__notes__[0]


@works(SPECIFIERS)
def test_written_constructor() -> None:
    """Converters and checks run at the end of a constructor that is written by hand, once."""
    calls: list[object] = []

    def count(value: object) -> object:
        calls.append(value)
        return value

    class Own(eqx.Module):
        w: jax.Array = lw.field(converter=count)
        depth: int = lw.static_field(converter=count)

        def __init__(self, depth: int) -> None:
            self.w = jnp.ones(2)
            self.depth = depth

    own = Own(3)
    assert len(calls) == 2
    jax.tree.map(lambda x: x, own)
    jax.jit(lambda own: own)(own)
    assert len(calls) == 2
    with pytest.raises(lw.errors.StaticFieldError, match=r"Own\.depth"):
        Own(jnp.ones(1))  # pyright: ignore[reportArgumentType]


@works("`lw.Static[...]` in a plain `equinox.Module`", cannot="equinox ignores annotations")
def test_static_annotation_in_plain_module() -> None:
    """The annotation alone leaves the field dynamic: `leafwise.interop.equinox.Module` reads it."""

    class Plain(eqx.Module):
        name: lw.Static[str] = "a"

    assert jax.tree.leaves(Plain()) == ["a"]


@works(
    '`lw.static_field(compare_by="content")` in a plain `equinox.Module`', cannot="it has no key"
)
def test_by_content_in_plain_module() -> None:
    """It is refused, with the base class that can do it."""

    class Plain(eqx.Module):
        optimizer: Any = lw.static_field(compare_by="content")

    with pytest.raises(lw.errors.DefinitionError, match=r"Plain\.optimizer") as info:
        Plain(optax.sgd(0.1))
    assert "leafwise.interop.equinox.Module" in str(info.value)


@lw.pytree
class Params:
    w: jax.Array
    power: int = lw.static_field(default=1)

    def apply(self, x: jax.Array) -> jax.Array:
        """Return ``w * x ** power``."""
        return self.w * x**self.power


X = jnp.array([0.5, -1.0, 2.0])


@works("`filter_jit(p.method)`: one program for equal keys")
@works("a bound method of a leafwise class, under `filter_jit`")
def test_bound_method_in_filter_jit() -> None:
    """A method of a leafwise class is a pytree for equinox, too: one trace for equal keys."""
    given = eqx.filter_jit(lambda method: method(X))
    for run in (given, lambda method: eqx.filter_jit(method)(X)):
        with lw.budget(traces=2, exact=True, eager=False):
            for w, power in ((1.0, 2), (2.0, 2), (2.0, 3)):
                assert jnp.allclose(run(Params(jnp.full(3, w), power).apply), w * X**power)


@works("`p.method` as a field of a module, and as an argument")
def test_bound_method_in_a_module() -> None:
    """A module holds one as a dynamic field; it is updated with the module."""

    class Holder(eqx.Module):
        call: Any

    apply = eqx.filter_jit(lambda module, x: module.call(x))
    holders = [Holder(Params(jnp.full(3, w)).apply) for w in (1.0, 2.0)]
    with lw.budget(traces=1, exact=True, of=apply):
        for each in holders:
            apply(each, X)
    other = eqx.tree_at(lambda module: module.call.__self__.w, holders[0], jnp.zeros(3))
    assert other.call(X).tolist() == [0.0, 0.0, 0.0]


@works(
    "`tree_at` on a static field", cannot="a static is not a leaf: use `lw.replace` or `lw.update`"
)
def test_tree_at_static() -> None:
    """Equinox says that a static is not a leaf."""
    with pytest.raises((TypeError, ValueError), match=r"leaf|node|PyTree"):
        eqx.tree_at(lambda params: params.power, Params(X), 3)


@works("`tree_serialise_leaves` and `tree_deserialise_leaves`")
@works(
    "`tree_deserialise_leaves` into another static configuration",
    cannot="equinox stores leaves only: `leafwise.interop.orbax` stores statics, too",
)
def test_serialise_leaves() -> None:
    """Leaves come back; statics are not stored or compared: those of the filled instance win."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, Params(X, 2))
    file.seek(0)
    assert eqx.tree_deserialise_leaves(file, Params(jnp.zeros(3), 3)) == Params(X, 3)


@pytest.mark.parametrize("is_wrapper", [True, False])
def test_a_filter_jit_helper_that_two_functions_share(is_wrapper: bool) -> None:
    """A change of what it captures is seen by both, though JAX traced it in the first one alone."""
    held = [0.5]
    helper: Any = eqx.filter_jit(lambda x: x * held[0])
    first: Any = lw.jit(helper if is_wrapper else lambda x: helper(x), on_stale="retrace")
    second: Any = lw.jit(lambda x: helper(x) + 1, on_stale="retrace")
    assert (first(X)[0], second(X)[0]) == (X[0] * 0.5, X[0] * 0.5 + 1)
    held[0] = 2.0
    assert (second(X)[0], first(X)[0]) == (X[0] * 2 + 1, X[0] * 2)


def test_filter_jit_helpers_are_distinct() -> None:
    """A change of what one of two helpers reads is stale for those that call that one alone."""
    low, high = [2.0], [3.0]
    clipped: Any = eqx.filter_jit(lambda x: jnp.minimum(x, low[0]))
    scaled: Any = eqx.filter_jit(lambda x: x * high[0])
    train: Any = lw.jit(lambda x: clipped(x) + scaled(x), on_stale="raise")
    evaluate: Any = lw.jit(lambda x: clipped(x) * 2, on_stale="raise")
    first = train(X), evaluate(X)
    high[0] = 9.0
    assert (evaluate(X) == first[1]).all()
    with pytest.raises(lw.errors.StaleCaptureError):
        train(X)
    low[0] = 1.0
    with pytest.raises(lw.errors.StaleCaptureError):
        evaluate(X)
