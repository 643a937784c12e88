# /// script
# requires-python = ">=3.12"
# dependencies = ["flax==0.12.12", "optax==0.2.8"]
# ///
"""Train a ResNet18 of four filters for three steps, in the way of flax's imagenet example."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

CONV = partial(nn.Conv, use_bias=False)


class Block(nn.Module):
    filters: int
    strides: tuple[int, int]

    @nn.compact
    def __call__(self, x, train):
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        y = nn.relu(norm()(CONV(self.filters, (3, 3), self.strides)(x)))
        y = norm(scale_init=nn.initializers.zeros_init())(CONV(self.filters, (3, 3))(y))
        if x.shape != y.shape:
            x = norm()(CONV(self.filters, (1, 1), self.strides)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    stages: tuple[int, ...] = (2, 2, 2, 2)

    @nn.compact
    def __call__(self, x, train):
        x = CONV(4, (7, 7), (2, 2))(x)
        x = nn.max_pool(nn.relu(nn.BatchNorm(not train)(x)), (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                strides = (2, 2) if stage and not block else (1, 1)
                x = Block(4 * 2**stage, strides)(x, train)
        return nn.Dense(10)(x.mean((1, 2)))


model = ResNet()
optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)
images = jax.random.normal(jax.random.key(0), (4, 32, 32, 3))
labels = jnp.arange(4)


@jax.jit
def train_step(params, stats, state):
    def loss_of(params):
        variables = {"params": params, "batch_stats": stats}
        logits, changed = model.apply(variables, images, train=True, mutable=["batch_stats"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, changed["batch_stats"]

    (loss, changed), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), changed, state, loss


variables = jax.jit(partial(model.init, train=False))(jax.random.key(1), images)
params, stats = variables["params"], variables["batch_stats"]
state = optimizer.init(params)
for _ in range(3):
    params, stats, state, loss = train_step(params, stats, state)
print(loss)
