"""Optimizers of optax as statics by content, and over parameters of leafwise."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
import pytest
from flax import linen

import leafwise as lw

MASKS = "`lw.mask` for `masked`, `add_decayed_weights`, `freeze`; also by field metadata"
LABELS = "`lw.labels` for `multi_transform`"
TRAINING = "states, updates and `apply_updates` over leafwise parameters: one trace, statics kept"


@lw.pytree
class Layer:
    w: jax.Array
    b: jax.Array = lw.field(metadata={"decay": False})
    act: str = lw.static_field(default="tanh")


@lw.pytree
class Model:
    body: list[Layer]
    head: Layer = lw.field(metadata={"trainable": False})
    depth: int = lw.static_field(default=2)

    def apply(self, x: jax.Array) -> jax.Array:
        for layer in (*self.body[: self.depth], self.head):
            x = getattr(jnp, layer.act)(layer.w @ x + layer.b)
        return x


def layer(size: float) -> Layer:
    array = jnp.float32(size)  # not weakly typed, as a Python number would make it
    return Layer(jnp.full((2, 2), array), jnp.full(2, array))


def model() -> Model:
    return Model([layer(0.1), layer(0.2)], layer(0.3))


def loss(params: Model, x: jax.Array) -> jax.Array:
    return jnp.sum((params.apply(x) - 1.0) ** 2)


def train(optimizer: Any, params: Model, steps: int = 2) -> tuple[Model, Any]:
    """Train, and see that the step is traced once, and the statics stay."""

    @jax.jit
    def step(params: Model, state: Any, x: jax.Array) -> tuple[Model, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    structure = jax.tree.structure(params)
    with lw.budget(traces=1, exact=True, of=step):
        for _ in range(steps):
            params, state = step(params, state, jnp.ones(2))
    assert jax.tree.structure(params) == structure
    assert (params.depth, params.head.act) == (2, "tanh")
    return params, state


def changed(before: Model, after: Model) -> list[str]:
    flags = jax.tree.map(lambda one, other: bool((one != other).any()), before, after)
    found = jax.tree.leaves_with_path(flags)
    return [jax.tree_util.keystr(path).lstrip(".") for path, flag in found if flag]


BODY = ["body[0].w", "body[0].b", "body[1].w", "body[1].b"]


@pytest.mark.works("optax", MASKS)
@pytest.mark.parametrize(
    ("where", "names"),
    [
        (~lw.select(trainable=False), BODY),
        ("**.w", ["body[0].w", "body[1].w", "head.w"]),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_masked(where: Any, names: list[str], *, late: bool) -> None:
    """Only what is selected is trained; the mask is made at once, or by optax of what it has."""
    params = model()
    selected = functools.partial(lw.mask, where=where)
    others = functools.partial(lw.mask, where=~lw.select(where))
    optimizer = optax.chain(
        optax.masked(optax.adam(0.1), selected if late else selected(params)),
        optax.masked(optax.set_to_zero(), others if late else others(params)),
    )
    after, _ = train(optimizer, params)
    assert sorted(changed(params, after)) == sorted(names)


@pytest.mark.works("optax", MASKS)
def test_decayed_weights() -> None:
    """Weight decay spares the fields whose metadata says so."""
    params = model()
    mask = functools.partial(lw.mask, where=~lw.select(decay=False))
    optimizer = optax.add_decayed_weights(0.5, mask=mask)
    zeros = optax.tree.zeros_like(params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    assert changed(zeros, updates) == ["body[0].w", "body[1].w", "head.w"]
    train(optax.adamw(0.1, mask=mask), params)


@pytest.mark.works("optax", LABELS)
@pytest.mark.parametrize("late", [False, True])
def test_multi_transform(*, late: bool) -> None:
    """Each group has its own optimizer: by path, by metadata, and the rest."""
    params = model()
    groups = {"frozen": lw.select(trainable=False), "biases": lw.select("body[*].b")}
    labels = functools.partial(lw.labels, groups=groups, default="body")
    transforms = {"frozen": optax.set_to_zero(), "biases": optax.sgd(0.0), "body": optax.adam(0.1)}
    optimizer = optax.multi_transform(transforms, labels if late else labels(params))
    after, state = train(optimizer, params)
    assert changed(params, after) == ["body[0].w", "body[1].w"]
    assert set(state.inner_states) == set(transforms)


@pytest.mark.works(
    "optax",
    "trees of labels of a class that has `__call__`",
    cannot="`multi_transform` calls anything callable: pass it "
    "`functools.partial(lw.labels, groups=...)`",
)
def test_labels_that_can_be_called() -> None:
    """optax takes an instance with `__call__` for a function of the parameters, and calls it."""

    @lw.pytree
    class Linear:
        w: jax.Array

        def __call__(self, _: jax.Array) -> jax.Array:
            raise RuntimeError("called")

    params = Linear(jnp.ones(2))
    transforms = {"a": optax.sgd(0.1)}
    labels = functools.partial(lw.labels, groups={"a": "w"})
    assert optax.multi_transform(transforms, labels).init(params)
    with pytest.raises(RuntimeError, match="called"):
        optax.multi_transform(transforms, labels(params)).init(params)


@pytest.mark.works("optax", TRAINING)
def test_training_of_one_half() -> None:
    """The selected half has an optimizer state of its own, with None for the rest."""
    params = model()
    selected, rest = lw.partition(params, ~lw.select(trainable=False))
    optimizer = optax.adam(0.1)
    state = optimizer.init(selected)

    @jax.jit
    def step(part: Model, other: Model, state: Any) -> tuple[Model, Any]:
        gradient = jax.grad(lambda part: loss(lw.combine(part, other), jnp.ones(2)))(part)
        updates, state = optimizer.update(gradient, state, part)
        return optax.apply_updates(part, updates), state

    with lw.budget(traces=1, exact=True, of=step):
        for _ in range(3):
            selected, state = step(selected, rest, state)
    assert state[0].mu.head == Layer(None, None)
    assert sorted(changed(params, lw.combine(selected, rest))) == sorted(BODY)


pytestmark = [
    pytest.mark.filterwarnings("ignore:The function convex_kl_divergence:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Specifying a key will be required:UserWarning"),
]

REBUILT = "`static_field(compare_by='content')`: an optimizer built again is the same key"


@lw.pytree
class Train:
    w: jax.Array
    state: Any
    opt: optax.GradientTransformation = lw.static_field(compare_by="content")


def structure(opt: Any) -> Any:
    """Return the structure of training state with this optimizer."""
    return jax.tree.structure(Train(1.0, None, opt))


Factory = Callable[[float], Any]

FACTORIES: dict[str, Factory] = {
    "adamw with a mask": lambda lr: optax.adamw(lr, mask=lambda p: jax.tree.map(jnp.ndim, p)),
    "cosine schedule": lambda lr: optax.adam(optax.cosine_decay_schedule(lr, 100)),
    "joined": lambda lr: optax.sgd(optax.join_schedules([lambda _: lr, lambda _: 0.0], [10])),
    "lambda as schedule": lambda lr: optax.adam(lambda step: lr / (step + 1)),
    "multi transform": lambda lr: optax.multi_transform(
        {"a": optax.adam(lr), "b": optax.set_to_zero()}, {"w": "a", "b": "b"}
    ),
    "stateless": lambda lr: optax.stateless(lambda u, _: jax.tree.map(lambda g: lr * g, u)),
    "rate in an array": lambda lr: optax.adam(jnp.float32(lr)),
}


@pytest.mark.works("optax", REBUILT)
@pytest.mark.parametrize("name", FACTORIES)
def test_built_twice_is_one_key(name: str) -> None:
    """An optimizer built twice alike is one key, with another rate another key."""
    make = FACTORIES[name]
    assert structure(make(1e-3)) == structure(make(1e-3))
    assert structure(make(1e-3)) != structure(make(1e-4))


ARGUMENTS: list[tuple[Any, ...]] = [
    (1e-3,),
    (),
    (optax.sgd(0.1),),
    (optax.sgd(0.1), 2),
    (1e-3, 100),
    (1e-3, 100, 0.5),
]


def factories(module: Any) -> list[str]:
    """Return the public functions of a module that make an optimizer or a schedule."""
    found: list[str] = []
    for name in sorted(dir(module)):
        function = getattr(module, name)
        if name.startswith("_") or not callable(function) or inspect.isclass(function):
            continue
        if any(_is_made(function, arguments) for arguments in ARGUMENTS):
            found.append(name)
    return found


def _is_made(function: Any, arguments: tuple[Any, ...]) -> bool:
    try:
        made = function(*arguments)
    except Exception:  # noqa: BLE001  # it takes other arguments
        return False
    return isinstance(made, optax.GradientTransformation) or callable(made)


@pytest.mark.slow
@pytest.mark.works("optax", "every public factory of optimizers and schedules, by content")
@pytest.mark.parametrize("module", [optax, optax.contrib], ids=["optax", "contrib"])
def test_every_public_factory(module: Any) -> None:
    """Whatever optax makes from simple arguments can be compared, and equals its like."""
    names = factories(module)
    assert len(names) > (20 if module is optax.contrib else 80)
    wrong = []
    for name in names:
        function = getattr(module, name)
        arguments = next(each for each in ARGUMENTS if _is_made(function, each))
        if structure(function(*arguments)) != structure(function(*arguments)):
            wrong.append(name)
    assert not wrong


@pytest.mark.works("optax", "an optimizer in the carry of `scan`, built again in its body")
def test_a_scan_that_builds_its_optimizer_again() -> None:
    """The carry of a scan may hold an optimizer, also one whose schedule changes its own cell."""
    make = FACTORIES["cosine schedule"]

    def body(train: Train, _: None) -> tuple[Train, None]:
        updates, state = make(0.1).update(train.w, train.state, train.w)
        return Train(train.w + updates, state, make(0.1)), None

    start = Train(jnp.ones(3), make(0.1).init(jnp.ones(3)), make(0.1))
    end, _ = jax.lax.scan(body, start, None, length=3)
    assert end.w[0] < 1
    assert jax.tree.structure(end) == jax.tree.structure(start)


@pytest.mark.works("optax", "which argument of an optimizer differs, in an explanation")
def test_the_difference_is_explained() -> None:
    """The explanation leads to the number that differs."""
    before, after = (lw.signature(Train(1.0, None, optax.adam(1e-3, b1=b))) for b in (0.9, 0.8))
    (reason,) = after.explain(before).reasons
    assert reason.path == "args[0].opt"
    assert (reason.before, reason.after) == (0.9, 0.8)
    assert "__closure__['b1']" in reason.change


@pytest.mark.works(
    "optax",
    "a schedule under `jax.jit` of its own, by content",
    cannot="JAX does not show the options that a jitted function was made with",
)
def test_a_jitted_schedule_is_refused() -> None:
    """A jitted function inside an optimizer is refused by its path."""
    with pytest.raises(lw.errors.StaticFieldError, match=r"Train\.opt.*PjitFunction"):
        structure(optax.adam(jax.jit(lambda step: 0.1 / (step + 1))))


@pytest.mark.works(
    "optax",
    "`optax.MultiSteps` itself, by content",
    cannot="objects compare by identity: use its `.gradient_transformation()`",
)
def test_multi_steps_itself_is_an_object() -> None:
    """The object compares by identity, the optimizer that it makes by content."""
    one, other = (optax.MultiSteps(optax.adam(0.1), 4) for _ in range(2))
    assert structure(one) == structure(one)
    assert structure(one) != structure(other)
    assert structure(one.update) == structure(other.update)


@pytest.mark.works("flax", "linen modules and their functions, in a static field by content")
def test_linen_modules_by_content() -> None:
    """Equal linen modules, also in closures, are one key."""

    def closed(module: Any) -> Any:
        return lambda x: module.apply({}, x)

    assert structure(closed(linen.Dense(3))) == structure(closed(linen.Dense(3)))
    assert structure(closed(linen.Dense(3))) != structure(closed(linen.Dense(4)))
    assert structure(linen.Dense(3).apply) == structure(linen.Dense(3).apply)


def test_where_it_is_not_declared() -> None:
    """Class and note name the field of the user's class, and the declaration makes it work."""
    pair = {"w": jax.Array, "opt": optax.GradientTransformation}
    with pytest.warns(lw.errors.DynamicFunctionWarning, match=r"Net\.opt: its default holds"):
        net = lw.pytree(type("Net", (), {"__annotations__": pair, "opt": optax.sgd(0.1)}))
    bare = lw.pytree(type("Net", (), {"__annotations__": pair}))
    with pytest.raises(TypeError) as error, lw.debug.explain_errors():
        jax.jit(lambda state: state["net"].w)({"net": bare(1.0, optax.chain(optax.sgd(0.1)))})
    code = 'opt: optax.GradientTransformation = lw.static_field(compare_by="content")'
    assert f"`Net.opt` holds functions: make it `{code}`" in "".join(error.value.__notes__)
    with pytest.raises(TypeError) as error:
        lw.jit(lambda opt, w: w)(net(1.0).opt, 1.0)
    assert "`opt` holds functions: make the argument static" in "".join(error.value.__notes__)
    jax.jit(lambda net: net.w)(Train(1.0, None, net(1.0).opt))
