"""What plain JAX takes for the same inside a transformation, and what it runs again.

Each test runs on `jax.tree_util.register_dataclass` too, which shows that it can fail.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import leafwise as lw


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain:
    x: Any
    s: Any = dataclasses.field(default=1, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OtherPlain:
    x: Any
    s: Any = dataclasses.field(default=1, metadata={"static": True})


@lw.pytree
class Sound:
    x: Any
    s: Any = lw.static_field(default=1)


@lw.pytree
class OtherSound:
    x: Any
    s: Any = lw.static_field(default=1)


Make = Callable[[Any], Any]
"""Returns an instance that holds this leaf."""


def scan(a: Make, b: Make) -> Any:
    return lax.scan(lambda p, _: (b(p.x + 1), None), a(0.0), None, length=2)[0]


def while_loop(a: Make, b: Make) -> Any:
    return lax.while_loop(lambda p: p.x < 2, lambda p: b(p.x + 1), a(0.0))


def fori_loop(a: Make, b: Make) -> Any:
    return lax.fori_loop(0, 2, lambda _, p: b(p.x + 1), a(0.0))


def cond(a: Make, b: Make) -> Any:
    return lax.cond(False, a, b, 2.0)


def switch(a: Make, b: Make) -> Any:
    return lax.switch(1, [a, b], 2.0)


def jvp(a: Make, b: Make) -> Any:
    return jax.jvp(lambda p: p, (a(2.0),), (b(1.0),))[0]


def vjp(a: Make, b: Make) -> Any:
    return jax.vjp(lambda p: p, a(2.0))[1](b(2.0))[0]


def custom_vjp(a: Make, b: Make) -> Any:
    function = jax.custom_vjp(lambda p: p.x)
    function.defvjp(lambda p: (p.x, None), lambda _, g: (b(g * 2),))
    return jax.grad(function)(a(1.0))


def in_axes(a: Make, b: Make) -> Any:
    return jax.vmap(lambda p: p, in_axes=(b(0),))(a(jnp.full(2, 2.0)))


def out_axes(a: Make, b: Make) -> Any:
    return jax.vmap(lambda x: a(x), out_axes=b(0))(jnp.full(2, 2.0))


def compiled(a: Make, b: Make) -> Any:
    return jax.jit(lambda p: a(p.x)).lower(a(1.0)).compile()(b(2.0))


def exported(a: Make, b: Make) -> Any:
    return export.export(jax.jit(lambda p: a(p.x)))(a(1.0)).call(b(2.0))


def tree_map(a: Make, b: Make) -> Any:
    return jax.tree.map(lambda x, y: x + y, a(1.0), b(1.0))


PLACES = [
    *(scan, while_loop, fori_loop, cond, switch, jvp, vjp, custom_vjp),
    *(in_axes, out_axes, compiled, exported, tree_map),
]


@pytest.mark.parametrize("place", PLACES)
def test_a_static_of_another_type(place: Any) -> None:
    """Where 1 stood, True is refused, by name; plain JAX takes it for 1."""
    result = place(lambda x: Plain(x, 1), lambda x: Plain(x, True))
    np.testing.assert_array_equal(result.x, np.full(np.shape(result.x), 2.0))
    with pytest.raises((TypeError, ValueError)) as caught:
        place(lambda x: Sound(x, 1), lambda x: Sound(x, True))
    caught.match(r"Sound\(s=1\)")
    caught.match(r"Sound\((x=0, )?s=True\)")


# Here JAX compares the two trees level by level, and so sees the classes; before 0.10 anywhere.
LOOK_AT_CLASSES = (
    PLACES if jax.__version_info__ < (0, 10) else (custom_vjp, in_axes, out_axes, tree_map)
)


@pytest.mark.parametrize("place", PLACES)
def test_another_class(place: Any) -> None:
    """Where one class stood, another is refused, by name; plain JAX takes it for the first."""
    if place not in LOOK_AT_CLASSES:
        result = place(Plain, OtherPlain)
        np.testing.assert_array_equal(result.x, np.full(np.shape(result.x), 2.0))
    with pytest.raises((TypeError, ValueError), match="OtherSound"):
        place(Sound, OtherSound)
