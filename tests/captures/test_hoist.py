import enum
import functools
import inspect
import pickle
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._jax.events import count_events

W = jnp.arange(3.0) + 1
RATE = 0.5
BETAS = (0.9, 0.25)
ONES = np.ones(3)
KEY = jax.random.key(0)
SHARED = jnp.ones(3) * 2
COUNT = 0
STATE = jnp.ones(3)
X = jnp.array([1.0, 2.0, 4.0])

settings = types.ModuleType("settings")
vars(settings).update(table=jnp.ones(3) * 7, unused=jnp.ones(9), inner=types.SimpleNamespace(w=W))
exec("def use(x): return table * x", vars(settings))  # noqa: S102  # a function of that module


@lw.pytree
class Layer:
    w: jax.Array
    rate: float = 0.5
    act: Any = lw.static_field(default=None)

    def apply(self, x: jax.Array) -> jax.Array:
        return self.w * x * self.rate

    def uses_global(self, x: jax.Array) -> jax.Array:
        return helper(self.apply(x))


class Model:
    table = jnp.ones(3) * 3
    rows = {"a": jnp.ones(3) * 4}  # noqa: RUF012  # the specimen

    def __init__(self) -> None:
        self.w = jnp.ones(3) * 2
        self.size = 3
        self.layers = [Layer(jnp.ones(3)), {"b": np.ones(3, np.float32)}]
        self.unused = jnp.ones(17)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[0].apply(x) * self.w * self.size + self.layers[1]["b"]

    def step(self, x: jax.Array) -> jax.Array:
        return self(x) + W

    @functools.cached_property
    def double(self) -> jax.Array:
        return self.w * 2

    def lazy(self, x: jax.Array) -> jax.Array:
        return self.double * x

    def through_other(self, x: jax.Array) -> jax.Array:
        return self.reads_global(x)

    def reads_global(self, x: jax.Array) -> jax.Array:
        return W * x

    def reads_class(self, x: jax.Array) -> jax.Array:
        return self.table * x


class Slotted:
    __slots__ = ("size", "w")

    def __init__(self) -> None:
        self.w, self.size = W * 2, 3


class Mode(enum.Enum):
    PLAIN = "plain"
    TABLE = (W * 2,)

    def table(self) -> jax.Array:
        return W * 2


class Sized:
    def __init__(self) -> None:
        self.size = sizes["n"]

    def scale(self, x: jax.Array) -> jax.Array:
        return x * self.size


class Unflattened:
    def __init__(self, w: jax.Array) -> None:
        self.w = w


class Noted:
    """A pytree with an array in its aux_data."""

    def __init__(self, w: Any, table: jax.Array) -> None:
        self.w, self.table = w, table


def refuse_to_flatten(value: Unflattened) -> Any:
    raise ValueError(value)


jax.tree_util.register_pytree_node(Unflattened, refuse_to_flatten, lambda _, kept: kept[0])
jax.tree_util.register_pytree_node(
    Noted, lambda noted: ((noted.w,), noted.table), lambda table, kept: Noted(kept[0], table)
)
sizes = {"w": W * 5, "n": 3}
unflattened, noted = Unflattened(W * 6), Noted(1.0, W)

model, layer, slotted = Model(), Layer(jnp.ones(3) * 5), Slotted()
layers = [layer, {"b": np.ones(3, np.float32), "n": 3}]


def helper(x: jax.Array) -> jax.Array:
    return W * x


@jax.jit
def jitted(x: jax.Array, scale: float) -> jax.Array:
    return W * x * scale


@functools.partial(jax.jit, static_argnums=1, donate_argnums=())
def with_static(x: jax.Array, n: int) -> jax.Array:
    for _ in range(n):
        x = x * W
    return x


@functools.partial(jax.jit, static_argnums=-1)
def counted_from_the_end(x: jax.Array, n: int) -> jax.Array:
    return W * x * range(9)[n]


@jax.custom_vjp
def with_rule(x: jax.Array) -> jax.Array:
    return (x * W).sum()


with_rule.defvjp(lambda x: (with_rule(x), x), lambda x, g: (g * W * 10,))


@jax.custom_jvp
def with_tangent(x: jax.Array) -> jax.Array:
    return (x * W).sum()


with_tangent.defjvp(lambda x, t: (with_tangent(x[0]), (t[0] * W * 10).sum()))


def even(n: int, x: jax.Array) -> jax.Array:
    return x if n == 0 else odd(n - 1, x * W)


def odd(n: int, x: jax.Array) -> jax.Array:
    return even(n - 1, x + 1)


def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args) + W

    return wrapper


@decorate
def decorated(x: jax.Array) -> jax.Array:
    return x * SHARED


@functools.lru_cache
def remembered(n: int) -> jax.Array:
    return W * n


def nested() -> Callable[..., Any]:
    w, b = jnp.ones(3) * 7, np.ones(3, np.float32)

    def inner(x: jax.Array) -> jax.Array:
        return w * x + b

    def itself(n: int, x: jax.Array) -> jax.Array:
        return inner(x) if n == 0 else itself(n - 1, x) + w

    return functools.partial(itself, 2)


def with_defaults(x: jax.Array, w: jax.Array = W * 4, *, b: Any = ONES) -> jax.Array:
    return w * x + b


def scanned(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, y: (carry + W * y, None), x, x)[0]


def helper_of(x: jax.Array, a: jax.Array) -> jax.Array:
    return helper(x) * a


def shared(x: jax.Array, again: jax.Array = SHARED) -> jax.Array:
    return SHARED * x + again


FUNCTIONS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "global": (helper, {"W"}),
    "lambda": (lambda x: helper(x) * slotted.w, {"W", "slotted.w"}),
    "closures": (nested(), {"w", "b"}),
    "defaults": (with_defaults, {"w", "b"}),
    "partial": (functools.partial(lambda a, x, c: a * x + c, W, c=SHARED), {"args[0]", "c"}),
    "Partial": (jax.tree_util.Partial(functools.partial(helper_of, a=SHARED)), {"W", "a"}),
    "decorated": (decorated, {"W", "SHARED"}),
    "mutual recursion": (functools.partial(even, 4), {"W"}),
    "jit": (jax.jit(helper), {"W"}),
    "lw.jit": (lw.jit(lambda x: W * x), {"W"}),
    "jitted helpers": (lambda x: jitted(x, 2.0) + jitted(x, scale=3.0), {"W"}),
    "static arguments": (lambda x: with_static(x, 2) + with_static(x, n=3), {"W"}),
    "counted from the end": (lambda x: counted_from_the_end(x, 3), {"W"}),
    "custom_vjp": (lambda x: jax.grad(with_rule)(x), {"W"}),
    "custom_jvp": (lambda x: jax.grad(with_tangent)(x), {"W"}),
    "vmap": (jax.vmap(lambda x: W * x), {"W"}),
    "grad": (lambda x: jax.grad(lambda y: (y * W).sum())(x), {"W"}),
    "checkpoint": (jax.checkpoint(helper), {"W"}),
    "scan": (scanned, {"W"}),
    "lru_cache": (lambda x: remembered(2) * x, {"W"}),
    "callable object": (model, {"self.w", "self.layers"}),
    "bound method": (model.step, {"W", "self.w", "self.layers"}),
    "cached property": (model.lazy, {"self.w"}),
    "method of a pytree": (layer.uses_global, {"W", "self"}),
    "pytree": (lambda x: layer.apply(x), {"layer"}),
    "containers": (lambda x: layers[0].w * x + layers[1]["b"] * layers[1]["n"], {"layers"}),
    "module": (lambda x: settings.table * x + settings.use(x), {"settings.table"}),
    "module in an argument": (functools.partial(lambda m, x: m.inner.w * x, settings), {"W"}),
    "eval": (lambda x: eval("W") * x, None),  # noqa: S307  # the specimen
    "functions in a tuple": (lambda x, fs=(helper, jnp.sin): fs[0](x) + fs[1](x), {"W"}),
    "shared": (shared, {"SHARED"}),
    "enum with arrays": (lambda x: W * x if Mode.PLAIN is Mode.PLAIN else x, {"W"}),
    "item that a class reads": (lambda x: Sized().scale(x) * sizes["w"], {"sizes"}),
    "flatten that fails": (lambda x: unflattened.w * x, {"unflattened.w"}),
    "key": (lambda x, key=KEY: x + jax.random.uniform(key, (3,)), {"key"}),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_captured_arrays_become_arguments(kind: str) -> None:
    """The hoisted function is the same one, without constants, and follows what it is given."""
    fn, names = FUNCTIONS[kind]
    hoisted, captured = lw.hoist(fn)
    if names is not None and kind != "module in an argument":
        assert set(captured) == names
    before = fn(X)
    assert np.array_equal(hoisted(captured, X), before)
    arrays = [const for const in jax.make_jaxpr(hoisted)(captured, X).consts if np.size(const) > 1]
    assert not arrays
    jit_of_it = jax.jit(hoisted)
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


@lw.pytree
class WithFunction:
    w: jax.Array
    act: Any = lw.static_field(default=None)


def assigns(x: jax.Array) -> jax.Array:
    global STATE  # noqa: PLW0603  # the specimen
    STATE = STATE * 2
    return STATE * x


def rebinding() -> Callable[..., Any]:
    w = jnp.ones(3)

    def step(x: jax.Array) -> jax.Array:
        nonlocal w
        w = w * 2
        return w * x

    return step


class Items(list[Any]):
    pass


class Config(dict[str, Any]):
    """A dict with attributes; for one that it has not, it raises what no `hasattr` expects."""

    __getattr__ = dict.__getitem__


class Guarded:
    """Looks at a global array whenever an attribute is asked for."""

    def __getattribute__(self, name: str) -> Any:
        return W if name == "table" else object.__getattribute__(self, name)


class Decorator:
    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)

    def __call__(self, x: jax.Array) -> Any:
        return self.__wrapped__(x)  # type: ignore[attr-defined]


@Decorator
def by_class(x: jax.Array) -> jax.Array:
    return W * x


guarded = Guarded()
boxed = np.empty(1, object)
boxed[0] = W
items, mixed, config = Items([W]), {1: W, "a": 2}, Config(w=W)
with_function = WithFunction(jnp.ones(3), lambda x: x * W)
placed = jax.jit(helper, out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0]))

REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "class attribute": (lambda x: Model.table * x, r"Model.table: .* attribute of the class Model"),
    "class attribute of self": (model.reads_class, "Model.table: .* attribute of the class Model"),
    "tree on a class": (
        lambda x: Model.rows["a"] * x,
        r"Model.rows\['a'\]: .* Model.rows holds it",
    ),
    "another method": (model.through_other, "W: .* Model.reads_global reads it, and a class stays"),
    "a class that is called": (lambda x: Model().reads_global(x), "W: .* Model.reads_global reads"),
    "static field": (
        lambda x: with_function.act(x),
        "W: .* the static with_function.act",
    ),
    "assigned global": (assigns, "STATE: .* the function assigns STATE"),
    "assigned closure": (rebinding(), "w: .* the function assigns w"),
    "unsorted dict": (lambda x: mixed[1] * x, r"mixed\[1\]: .* inside a dict"),
    "subclass of list": (lambda x: items[0] * x, r"items\[0\]: .* inside a Items"),
    "every attribute": (lambda x: guarded.table * x, "W: .* Guarded.__getattribute__ reads it"),
    "dict with attributes": (lambda x: config.w * x, r"config\['w'\]: .* inside a Config"),
    "out_shardings": (lambda x: placed(x), "W: .* jitted with out_shardings"),
    "aux_data": (lambda x: noted.table * W * x, "W: .* not a leaf of the Noted, whose aux_data"),
    "array of objects": (lambda x: boxed[0] * x, r"boxed\[0\]: .* inside a ndarray"),
    "decorator": (lambda x: by_class(x) * W, "W: .* by_class reads it, and it stays as it is"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_hoisted_is_refused_by_name(kind: str) -> None:
    """Nothing stays behind silently: an error names it, and can be told to leave it."""
    fn, message = REFUSED[kind]
    with pytest.raises(lw.errors.HoistError, match=message) as caught:
        lw.hoist(fn)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301  # our own
    fix = caught.value.message.rpartition("lw.hoist(fn, ")[2].removesuffix(")`")
    hoisted, captured = lw.hoist(fn, eval(fix))  # noqa: S307  # the code that the message shows
    assert not jax.tree.leaves(captured) or kind == "static field"
    if not kind.startswith("assigned"):
        assert np.array_equal(hoisted(captured, X), fn(X))


def on_a_class(v: jax.Array) -> dict[str, Callable[..., Any]]:
    """Functions that each read an array by way of a class."""

    class Meta(type):
        def of_meta(cls) -> Any:
            return v

    class Base(metaclass=Meta):
        table = v
        rows = (v,)

        def __init__(self) -> None:
            self.made = v

        @classmethod
        def of_class(cls) -> Any:
            return cls.table

        def __invert__(self) -> Any:
            return v

    class Holder(Base):
        pass

    class Rows(list[Any]):
        def first(self) -> Any:
            return v

    class Point(typing.NamedTuple):
        n: int = 1

        def table(self) -> Any:
            return v

    @lw.pytree
    class Tree:
        n: int = 1

        def table(self) -> Any:
            return v

    class Reads:
        def __init__(self) -> None:
            self.table = v

        def __get__(self, instance: Any, owner: Any) -> Any:
            return self.table

    class Described:
        table = Reads()

    class Flag(enum.Enum):
        ONE = (v,)

        def table(self) -> Any:
            return v

    instance, rows, point, tree = Holder(), Rows([1]), Point(), Tree()
    classes, one, bound, described = [Holder], Flag.ONE, Holder.of_class, Described()
    return {
        "inherited": lambda cls=Holder: cls.table,
        "inherited in a tuple": lambda cls=Holder: cls.rows[0],
        "inherited class method": lambda cls=Holder: cls.of_class(),
        "in a list": lambda: classes[0].of_class(),
        "bound to a class": lambda: bound(),
        "checkpoint": jax.checkpoint(bound),
        "instance": lambda: instance.table,
        "getattr": lambda: getattr(instance, "table"),  # noqa: B009  # the specimen
        "of the metaclass": lambda: Holder.of_meta(),
        "constructor": lambda: Holder().made,
        "operator": lambda: ~instance,
        "list": lambda: rows.first(),
        "named tuple": lambda: point.table(),
        "pytree class": lambda: tree.table(),
        "descriptor": lambda: described.table,
        "enum method": lambda: one.table(),
        "enum value": lambda: one.value[0],
        "enum item": lambda: Flag["ONE"].value[0],
        "enum loop": lambda: [each.value[0] for each in Flag][0],  # noqa: RUF015  # the specimen
    }


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "alone"])
@pytest.mark.parametrize("kind", on_a_class(W))
def test_what_is_on_a_class_is_never_a_constant(kind: str, shared: bool) -> None:
    """An array on a class is refused, also where the function itself captures it, too."""
    v = jnp.arange(3.0) + 1
    read = on_a_class(v)[kind]
    fn = (lambda x: v * x + read()) if shared else (lambda x: x + read())
    with pytest.raises(lw.errors.HoistError, match=r"be made an argument: .*\bclass\b") as caught:
        lw.hoist(fn)
    fix = caught.value.message.rpartition("lw.hoist(fn, ")[2].removesuffix(")`")
    hoisted, captured = lw.hoist(fn, eval(fix))  # noqa: S307  # the code that the message shows
    assert not jax.tree.leaves(captured)
    assert np.array_equal(hoisted(captured, X), fn(X))


def test_what_an_array_on_a_class_is_called() -> None:
    """A refusal names the capture by its variable, and the attribute that cannot change."""
    v = jnp.arange(3.0)

    class Base:
        table = v

        @classmethod
        def read(cls) -> Any:
            return cls.table

    class Holder(Base):
        pass

    again = jax.checkpoint(lambda: v)
    message = r"v: cannot be made an argument: .* of the class Base \(Base.table\), which stays"
    with pytest.raises(lw.errors.HoistError, match=message):
        lw.hoist(lambda x, holder=Holder: [x, holder.read(), again()])


def test_a_stored_cached_property_is_computed_again() -> None:
    """What a cached property has stored before is no capture: what it is computed from is."""
    asked = Model()
    asked.double  # noqa: B018  # which stores it
    for fn, name in ((asked.lazy, "self.w"), (lambda x: asked.double * x, "asked.w")):
        hoisted, captured = lw.hoist(fn)
        assert set(captured) == {name}
        assert np.array_equal(hoisted({name: W}, X), W * 2 * X)


def test_custom_rules_have_no_derivative_by_what_they_capture() -> None:
    """JAX refuses to differentiate a custom rule by what it closes over; hoisted, it still does."""
    hoisted, captured = lw.hoist(lambda x: with_rule(x))
    by_argument = jax.grad(hoisted, argnums=1)(captured, X)
    assert np.array_equal(by_argument, jax.grad(with_rule)(X))
    with pytest.raises(jax.errors.UnexpectedTracerError):
        jax.grad(hoisted)(captured, X)


def scaled(x: jax.Array, eps: float = 1e-3) -> jax.Array:
    return x * RATE * BETAS[0] + W * eps * COUNT


def test_scalars_are_an_option() -> None:
    """Floats are hoisted where that is said, each by itself and weakly typed; integers never."""
    assert set(lw.hoist(scaled)[1]) == {"W"}
    hoisted, captured = lw.hoist(scaled, scalars=True)
    assert {**captured, "W": 0} == {"W": 0, "RATE": 0.5, "BETAS": (0.9, 0.25), "eps": 1e-3}
    jit_of_it = jax.jit(hoisted)
    assert np.allclose(jit_of_it(captured, X), scaled(X))
    with lw.budget(traces=0, exact=True, of=jit_of_it):
        halved = jit_of_it({**captured, "RATE": 0.25}, X)
    assert np.allclose(halved, scaled(X) / 2)
    assert jax.eval_shape(hoisted, captured, jnp.ones(3, jnp.bfloat16)).dtype == "float32"
    rates, only = lw.hoist(lambda x: x * RATE, scalars=True)
    assert jax.eval_shape(rates, only, jnp.ones(3, jnp.bfloat16)).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("W", {"W"}),
        ("layers[0].w", {"layers"}),
        (~lw.where("['W']"), {"layers"}),
        (lw.where(jax.Array), {"W", "layers"}),
        (lambda leaf: leaf.shape == (3,), {"W", "layers"}),
        (False, set()),
    ],
)
def test_captures_are_selected_as_leaves_are(where: Any, names: set[str]) -> None:
    """A name, a path or a selection says which captures become arguments; the rest is baked in."""

    def fn(x: jax.Array) -> jax.Array:
        return W * x + layers[0].w * layers[1]["b"]

    hoisted, captured = lw.hoist(fn, where)
    assert set(captured) == names
    assert np.array_equal(hoisted(captured, X), fn(X))
    consts = [each for each in jax.make_jaxpr(hoisted)(captured, X).consts if np.size(each) > 1]
    assert len(consts) == 3 - len(jax.tree.leaves(captured))


def test_no_such_capture() -> None:
    """A name that nothing has is an error, with the nearest one; so is what is no function."""
    with pytest.raises(lw.errors.PathError, match="'V' leads nowhere"):
        lw.hoist(helper, "V")
    with pytest.raises(TypeError, match=r"hoist takes a function, got 3 \(int\)"):
        lw.hoist(3)  # type: ignore[arg-type]


def test_the_first_argument_must_be_the_captures() -> None:
    """Another structure is an error that shows both; a forgotten one names what is missing."""
    hoisted, _ = lw.hoist(lambda x: W * layer.w * x)
    with pytest.raises(TypeError, match="captures first, a dict of W, layer: got float32"):
        hoisted(X, X)
    with pytest.raises(
        lw.errors.TreeError, match=r"captured has another structure: .* is wanted, got"
    ):
        hoisted({"W": W}, X)
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
    """Two variables of one name are two captures, named by their functions."""

    def make(w: jax.Array) -> Callable[..., Any]:
        def inner(x: jax.Array) -> jax.Array:
            return w * x

        return inner

    one, other = make(jnp.ones(3)), make(jnp.ones(3) * 2)
    hoisted, captured = lw.hoist(lambda x: one(x) + other(x))
    assert len(captured) == 2
    assert np.array_equal(hoisted(captured, X), 3 * X)


def counts_calls(x: jax.Array) -> jax.Array:
    global COUNT  # noqa: PLW0603  # the specimen
    COUNT += 1
    HISTORY.append(x)
    return W * x


HISTORY: list[Any] = [jnp.ones(3)]


def test_side_effects_reach_the_users_own_objects() -> None:
    """A counter and a list that the function only writes to are not copied, and not captured."""
    hoisted, captured = lw.hoist(counts_calls)
    before = COUNT, len(HISTORY)
    hoisted(captured, X)
    hoisted(captured, X)
    assert set(captured) == {"W"}
    assert before == (COUNT - 2, len(HISTORY) - 2)


def test_every_transformation_takes_it() -> None:
    """grad and vmap by the captures, donation of them, and lw.jit."""
    hoisted, captured = lw.hoist(lambda x: (jitted(x, 2.0) * layer.w).sum())
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


def test_inner_jitted_functions_stay_jitted() -> None:
    """An inner jitted function is compiled once, also where the hoisted one is not jitted."""
    hoisted, captured = lw.hoist(lambda x: jitted(x, 2.0))
    hoisted(captured, X)
    other = {"W": W + 1}
    with count_events() as counts:
        answer = hoisted(other, X)
    assert (counts.traces, counts.compiles) == (0, 0)
    assert np.array_equal(answer, (W + 1) * X * 2)


def test_threads_do_not_meet() -> None:
    """Each call has its own copies: threads with other captures get other answers."""
    hoisted, _ = lw.hoist(functools.partial(even, 2))
    answers: dict[int, Any] = {}

    def call(number: int) -> None:
        for _ in range(20):
            answers[number] = hoisted({"W": np.full(3, number)}, X)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(answers[n], (X * n + 1)) for n in range(4))


def test_what_captures_nothing_is_itself() -> None:
    """A builtin, a jitted function of JAX and a function without captures have no captures."""
    for fn in (jnp.sin, jnp.cumsum, np.abs, abs, lambda x: x * 2):
        hoisted, captured = lw.hoist(fn)
        assert captured == {}
        assert np.array_equal(hoisted(captured, X), fn(X))


def test_the_signature_has_one_more_parameter() -> None:
    """Static arguments are found by name, and a parameter called captured is no obstacle."""

    def fn(x: jax.Array, n: int, captured: float = 2.0) -> jax.Array:
        return W * x * n * captured if n > 1 else x

    hoisted, captured = lw.hoist(fn)
    assert list(inspect.signature(hoisted).parameters) == ["captured_", "x", "n", "captured"]
    assert hoisted.__name__ == "fn"
    static = jax.jit(hoisted, static_argnames="n")
    assert np.array_equal(static(captured, X, 2, captured=3.0), fn(X, 2, 3.0))
    assert np.array_equal(static(captured, X, n=3), fn(X, 3))


def test_captures_travel() -> None:
    """The captures are plain data: they are pickled, and shown."""
    _, captured = lw.hoist(lambda x: W * x * layer.w)
    again = pickle.loads(pickle.dumps(captured))  # noqa: S301  # our own
    assert jax.tree.structure(again) == jax.tree.structure(captured)
    assert "['W']: float32[3]" in str(lw.show(captured))


def test_generators_are_made_again() -> None:
    """A generator function yields what it would, of other captures."""

    def rows(x: jax.Array) -> Iterator[jax.Array]:
        for n in range(2):
            yield W * x * n

    hoisted, captured = lw.hoist(rows)
    assert [row.tolist() for row in hoisted(captured, X)] == [row.tolist() for row in rows(X)]


TABLE = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * float(TABLE[1]),
        lambda x: x if TABLE[0] > 0 else -x,
        lambda x: np.asarray(TABLE) * x,
        lambda x: x * range(9)[TABLE.astype(int)[0]],
    ],
    ids=["float", "if", "array", "index"],
)
def test_what_python_reads_is_named(fn: Any) -> None:
    """Where a value is needed that is traced now, JAX's error says so, and how to leave it out."""
    hoisted, captured = lw.hoist(fn)
    assert np.array_equal(hoisted(captured, X), fn(X))
    with pytest.raises(TypeError, match=r"concrete|Tracer|__index__") as caught:
        jax.jit(hoisted)(captured, X)
    (note,) = (each for each in caught.value.__notes__ if "lw.hoist" in each)
    assert "arguments now: TABLE. " in note
    assert """lw.hoist(fn, ~lw.where("['TABLE']"))""" in note
    left, none = lw.hoist(fn, ~lw.where("['TABLE']"))
    assert np.array_equal(jax.jit(left)(none, X), fn(X))
