"""Derivatives: cotangents and tangents are instances with the same class and statics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .specimens import CLASSES, Check, statics_of

pytestmark = pytest.mark.usefixtures("no_leaks")

X = jnp.float32(0.3)


def value(layer: Any) -> Any:
    return (jnp.tanh(layer.w * X + layer.b)) ** 2


def slope(layer: Any) -> tuple[float, float]:
    """Return the derivatives of `value`, by hand."""
    t = np.tanh(float(layer.w) * 0.3 + float(layer.b))
    inner = 2 * t * (1 - t**2)
    return inner * 0.3, inner


def near(gradient: Any, wanted: tuple[float, float]) -> None:
    np.testing.assert_allclose([float(gradient.w), float(gradient.b)], wanted, rtol=1e-4)


def test_grad(check: Check) -> None:
    """A gradient is an instance that holds the derivative by each leaf."""
    gradient = jax.grad(lambda p: check.seen(p)(X))(check.layer)
    near(gradient, slope(check.layer))
    assert check.traces == 1
    check.done(gradient)


def test_value_and_grad_in_jit(check: Check) -> None:
    """The same, compiled: one trace for three calls with equal statics."""
    program = jax.jit(jax.value_and_grad(lambda p: check.seen(p)(X)))
    for layer in (check.layer, check.again(), check.again()):
        result, gradient = program(layer)
        near(gradient, slope(check.layer))
        assert result == pytest.approx(float(value(check.layer)), rel=1e-5)
    assert check.traces == 1
    check.done(gradient)


def test_jvp(check: Check) -> None:
    """Tangents go in as an instance, and come out as one."""
    tangent = jax.tree.map(jnp.ones_like, check.layer)
    out, moved = jax.jvp(
        lambda p: jax.tree.map(lambda leaf: leaf * 2, check.seen(p)), (check.layer,), (tangent,)
    )
    assert [float(leaf) for leaf in jax.tree.leaves(moved)] == [2.0, 2.0]
    check.done(out, moved)


def test_vjp_and_linearize(check: Check) -> None:
    """Pullbacks take and give instances; so does a linearised function."""

    def double(p: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf * 2, check.seen(p))

    out, pull = jax.vjp(double, check.layer)
    (cotangent,) = pull(jax.tree.map(jnp.ones_like, out))
    linear_out, push = jax.linearize(double, check.layer)
    pushed = push(jax.tree.map(jnp.ones_like, check.layer))
    assert [float(leaf) for leaf in jax.tree.leaves((cotangent, pushed))] == [2.0] * 4
    check.done(out, cotangent, linear_out, pushed)


def test_hessian_and_jacobians(check: Check) -> None:
    """A Hessian is an instance of instances."""
    hessian = jax.hessian(lambda p: check.seen(p)(X))(check.layer)
    np.testing.assert_allclose(hessian.w.b, hessian.b.w, rtol=1e-5)
    check.done(hessian, hessian.w, hessian.b)
    forward = jax.jacfwd(lambda p: p(X))(check.layer)
    backward = jax.jacrev(lambda p: p(X))(check.layer)
    near(forward, slope(check.layer))
    near(backward, slope(check.layer))
    check.done(forward, backward)


def test_custom_jvp(check: Check) -> None:
    """A rule gets primal and tangent as instances."""

    @jax.custom_jvp
    def function(p: Any) -> Any:
        return check.seen(p)(X)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (p,), (t,) = primals, tangents
        check.intact(p)
        check.intact(t)
        return function(p), t.w * 3.0 + t.b * 5.0

    gradient = jax.grad(function)(check.layer)
    near(gradient, (3.0, 5.0))
    near(jax.jit(jax.grad(function))(check.again()), (3.0, 5.0))
    check.done(gradient)


def test_custom_vjp(check: Check) -> None:
    """Residuals and cotangents are instances."""

    @jax.custom_vjp
    def function(p: Any, x: Any) -> Any:
        return check.seen(p)(x)

    def forward(p: Any, x: Any) -> Any:
        return function(p, x), check.seen(p)

    def backward(residual: Any, g: Any) -> Any:
        check.intact(residual)
        return jax.tree.map(lambda leaf: leaf * 0 + g * 7.0, residual), None

    function.defvjp(forward, backward)
    gradient = jax.grad(function)(check.layer, X)
    near(gradient, (7.0, 7.0))
    near(jax.jit(jax.grad(function))(check.again(), X), (7.0, 7.0))
    check.done(gradient)


def test_checkpoint(check: Check) -> None:
    """`jax.checkpoint` replays the body with the same statics."""
    function = jax.checkpoint(lambda p: check.seen(p)(X))
    gradient = jax.jit(jax.grad(lambda p: function(p)))(check.layer)
    near(gradient, slope(check.layer))
    check.done(gradient)


def test_stop_gradient(check: Check) -> None:
    """`stop_gradient` keeps class and statics, and blocks derivatives."""
    stopped = jax.lax.stop_gradient(check.layer)
    gradient = jax.grad(lambda p: jax.lax.stop_gradient(p)(X))(check.layer)
    near(gradient, (0.0, 0.0))
    check.done(stopped, gradient)


def test_nested_instances() -> None:
    """Instances in fields of instances, and in containers, keep each its own statics."""

    @lw.pytree
    class Net:
        layers: Any
        scale: Any
        name: str = lw.static_field(default="net")

    first, second = Check(CLASSES[0]), Check(CLASSES[1])
    net = Net([first.layer, {"b": second.layer}], 2.0)

    def loss(n: Any) -> Any:
        return n.layers[0](X) * n.layers[1]["b"](X) * n.scale

    gradient = jax.jit(jax.grad(loss))(net)
    assert gradient.name == "net"
    assert statics_of(gradient.layers[0]) == statics_of(first.layer)
    assert statics_of(gradient.layers[1]["b"]) == statics_of(second.layer)
    assert jax.tree.structure(gradient) == jax.tree.structure(net)
    first.done()
    second.done()
