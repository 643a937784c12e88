"""optax over parameters of leafwise: masks, labels, states, updates, one trace for all."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import leafwise as lw

MASKS = "`lw.mask` for `masked`, `add_decayed_weights`, `freeze`; also by field metadata"
LABELS = "`lw.labels` for `multi_transform`"
TRAINING = "states, updates and `apply_updates` over leafwise parameters: one trace, statics kept"
TREES = "`optax.tree` functions on leafwise trees"


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
HEAD = ["head.w", "head.b"]


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
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1)),
        optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
        optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
    ],
    ids=["chain", "inject_hyperparams", "MultiSteps"],
)
def test_training(optimizer: Any) -> None:
    """Optimizers of every make train leafwise parameters in one trace, and keep statics."""
    params = model()
    after, _ = train(optimizer, params)
    assert sorted(changed(params, after)) == sorted(BODY + HEAD)


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


@pytest.mark.works("optax", TREES)
def test_tree_functions() -> None:
    """Sums, norms, scalings, casts and searches in trees keep class and statics."""
    params = model()
    tree = optax.tree
    doubled = tree.add(params, params)
    assert doubled == tree.scale(2.0, params)
    state = optax.adam(0.1).init(params)
    assert tree.get(state, "count") == 0
    assert tree.set(state, count=jnp.int32(3))[0].count == 3
    assert tree.map_params(optax.adam(0.1), lambda leaf: leaf + 1, state)[0].mu.depth == 2
