"""The rows about derivatives. A tangent, cotangent or gradient is an instance too."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

import leafwise as lw

from .row import NO_QUESTION, Function, Rows, Seen, floats, ones, slope, step, steps, total
from .specimens import inexact

ROWS = Rows("Derivatives")

EACH_CALL = ("1", "1", "1")
ONCE = ("1", "0", "1")
NO_FORWARD = "can't apply forward-mode autodiff (jvp) to a custom_vjp function"


def _times(tree: Any, factor: float) -> Any:
    return jax.tree.map(lambda x: x if x.dtype == jax.dtypes.float0 else x * factor, tree)


def _scaled_slope(p: Any) -> Any:
    """Return the gradient of ``total(step(p))``, by hand."""
    return _times(slope(step(p)), 1.5)


@ROWS.add("`jax.grad`", _scaled_slope, EACH_CALL)
def grad(seen: Seen) -> Function:
    return jax.grad(lambda p: total(seen.step(p)), allow_int=True)


@ROWS.add(
    "`jax.value_and_grad(has_aux=True)`",
    lambda p: ((total(step(p)), step(p)), _scaled_slope(p)),
    EACH_CALL,
)
def value_and_grad(seen: Seen) -> Function:
    def loss(p: Any) -> Any:
        moved = seen.step(p)
        return total(moved), moved

    return jax.value_and_grad(loss, has_aux=True, allow_int=True)


def _moved(p: Any) -> Any:
    return _times(ones(p), 1.5)


@ROWS.add("`jax.jvp`", lambda p: (step(p), _moved(p)), EACH_CALL)
def jvp(seen: Seen) -> Function:
    return lambda p: jax.jvp(seen.step, (p,), (ones(p),))


@ROWS.add("`jax.vjp`", lambda p: (step(p), _moved(p)), EACH_CALL)
def vjp(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        out, pull = jax.vjp(seen.step, p)
        return out, pull(ones(out))[0]

    return run


@ROWS.add("`jax.linearize`", lambda p: (step(p), _moved(p)), EACH_CALL)
def linearize(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        out, push = jax.linearize(seen.step, p)
        return out, push(ones(p))

    return run


@ROWS.add(
    "`jax.linear_transpose`",
    lambda p: jax.tree.map(lambda leaf: leaf * 2, floats(p)[0]),
    EACH_CALL,
    note="of the leaves that have derivatives: `lw.partition`",
)
def linear_transpose(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        numbers, rest = floats(p)

        def double(q: Any) -> Any:
            seen(lw.combine(q, rest))
            return jax.tree.map(lambda leaf: leaf * 2, q)

        return jax.linear_transpose(double, numbers)(numbers)[0]

    return run


@ROWS.add(
    "`jax.jacfwd`, `jax.jacrev`",
    lambda p: (floats(_scaled_slope(p))[0],) * 2,
    ("jacfwd 1, jacrev 1",) * 3,
    forward=NO_QUESTION,
    reverse=NO_QUESTION,
    note="`jacfwd` never accepts integers in JAX: use `lw.partition` first",
)
def jacobians(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        numbers, rest = floats(p)

        def loss(q: Any, part: str) -> Any:
            return total(seen.step(lw.combine(q, rest), part))

        return tuple(
            way(functools.partial(loss, part=way.__name__))(numbers)
            for way in (jax.jacfwd, jax.jacrev)
        )

    return run


def _curvature(p: Any) -> Any:
    numbers, _ = floats(p)
    leaves, treedef = jax.tree.flatten(numbers)
    rows = [
        treedef.unflatten([-2.25 * jnp.sin(x * 1.5 + 0.25) * (i == j) for j in range(len(leaves))])
        for i, x in enumerate(leaves)
    ]
    return treedef.unflatten(rows)


@ROWS.add("`jax.hessian`", _curvature, EACH_CALL, forward=NO_QUESTION, reverse=NO_QUESTION)
def hessian(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        numbers, rest = floats(p)
        return jax.hessian(lambda q: total(seen.step(lw.combine(q, rest))))(numbers)

    return run


def _bent(p: Any) -> Any:
    """Return what `step` does, with the slope that the rules below have: twice its own."""

    def bend(x: Any, moved: Any) -> Any:
        return moved + 1.5 * (x - jax.lax.stop_gradient(x)) if inexact(x) else moved

    return jax.tree.map(bend, p, step(p))


@ROWS.add(
    "`jax.custom_jvp`", _bent, EACH_CALL, note="the rule runs when the function is differentiated"
)
def custom_jvp(seen: Seen) -> Function:
    function = jax.custom_jvp(lambda p: seen.step(p))  # without the default

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (p,), (t,) = primals, tangents
        seen.check(t)
        out = step(seen.check(p))
        return out, _times(t, 3.0)

    return function


@lw.pytree
class Settings:
    """An instance without leaves: all of it is static."""

    factor: float = lw.static_field()


@ROWS.add(
    "`jax.custom_vjp(nondiff_argnums=)`",
    _bent,
    EACH_CALL,
    forward=NO_FORWARD,
    note="`fwd` and `bwd` run when the function is differentiated",
)
def custom_vjp(seen: Seen) -> Function:
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def function(settings: Settings, p: Any) -> Any:
        return seen.step(p)

    def forward(settings: Settings, p: Any) -> Any:
        return step(seen.check(p)), p

    def backward(settings: Settings, residual: Any, cotangent: Any) -> Any:
        seen.check(residual)
        seen.check(cotangent)
        return (_times(cotangent, settings.factor),)

    function.defvjp(forward, backward)
    return lambda p: function(Settings(3.0), p)


@ROWS.add("`jax.checkpoint`", step, ONCE)
def checkpoint(seen: Seen) -> Function:
    return jax.checkpoint(seen.step)


@ROWS.add(
    "`jax.checkpoint(policy=...)`",
    steps(3),
    ("3", "0", "3"),
    note="`everything_saveable`, `nothing_saveable`, `save_only_these_names`: one body each",
)
def checkpoint_policies(seen: Seen) -> Function:
    from jax.ad_checkpoint import checkpoint_name

    policies = jax.checkpoint_policies

    def body(p: Any) -> Any:
        return jax.tree.map(lambda x: checkpoint_name(x, "kept"), seen.step(p))

    everything, nothing, named = (
        jax.checkpoint(lambda p: body(p), policy=policy)
        for policy in (
            policies.everything_saveable,
            policies.nothing_saveable,
            policies.save_only_these_names("kept"),
        )
    )
    return lambda p: named(nothing(everything(p)))


def _flat(leaf: Any) -> Any:
    """Return (nearly) a leaf, by a function whose derivative is zero everywhere."""
    return jnp.round(leaf * 2**20) / 2**20 if inexact(leaf) else leaf


@ROWS.add("`jax.lax.stop_gradient`", lambda p: (step(p), jax.tree.map(_flat, p)), EACH_CALL)
def stop_gradient(seen: Seen) -> Function:
    return lambda p: (step(p), seen(jax.lax.stop_gradient(p)))


@ROWS.add(
    "`jax.closure_convert`", lambda p: jax.tree.map(lambda a, b: a + b, p, step(p)), EACH_CALL
)
def closure_convert(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        moved = step(p)

        def add(q: Any) -> Any:
            return jax.tree.map(lambda a, b: a + b, seen(q), moved)

        converted, constants = jax.closure_convert(add, p)
        return converted(p, *constants)

    return run
