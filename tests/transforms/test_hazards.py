"""What plain JAX takes for the same inside a transformation; and beside the rows, what it needs.

Each hazard runs on `jax.tree_util.register_dataclass` too, which shows that it can fail.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.flatten_util import ravel_pytree
from tests.statics.judge import OtherPlain, OtherSound, Plain, Sound

import leafwise as lw

from .row import same, step
from .specimens import KINDS, RUNS, Kind

Make = Callable[[Any], Any]
"""Returns an instance that holds this leaf."""


def custom_vjp(a: Make, b: Make) -> Any:
    function = jax.custom_vjp(lambda p: p.x)
    function.defvjp(lambda p: (p.x, None), lambda _, g: (b(g * 2),))
    return jax.grad(function)(a(1.0))


PLACES: dict[str, Callable[[Make, Make], Any]] = {
    "scan": lambda a, b: lax.scan(lambda p, _: (b(p.x + 1), None), a(0.0), None, length=2)[0],
    "while_loop": lambda a, b: lax.while_loop(lambda p: p.x < 2, lambda p: b(p.x + 1), a(0.0)),
    "fori_loop": lambda a, b: lax.fori_loop(0, 2, lambda _, p: b(p.x + 1), a(0.0)),
    "cond": lambda a, b: lax.cond(False, a, b, 2.0),
    "switch": lambda a, b: lax.switch(1, [a, b], 2.0),
    "jvp": lambda a, b: jax.jvp(lambda p: p, (a(2.0),), (b(1.0),))[0],
    "vjp": lambda a, b: jax.vjp(lambda p: p, a(2.0))[1](b(2.0))[0],
    "custom_vjp": custom_vjp,
    "in_axes": lambda a, b: jax.vmap(lambda p: p, in_axes=(b(0),))(a(jnp.full(2, 2.0))),
    "out_axes": lambda a, b: jax.vmap(lambda x: a(x), out_axes=b(0))(jnp.full(2, 2.0)),
    "compiled": lambda a, b: jax.jit(lambda p: a(p.x)).lower(a(1.0)).compile()(b(2.0)),
    "exported": lambda a, b: export.export(jax.jit(lambda p: a(p.x)))(a(1.0)).call(b(2.0)),
    "tree_map": lambda a, b: jax.tree.map(lambda x, y: x + y, a(1.0), b(1.0)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_static_of_another_type(place: str) -> None:
    """Where 1 stood, True is refused, by name; plain JAX takes it for 1."""
    result = PLACES[place](lambda x: Plain(x, 1), lambda x: Plain(x, True))
    np.testing.assert_array_equal(result.x, np.full(np.shape(result.x), 2.0))
    with pytest.raises((TypeError, ValueError)) as caught:
        PLACES[place](lambda x: Sound(x, 1), lambda x: Sound(x, True))
    caught.match(r"Sound\(s=1\)")
    caught.match(r"Sound\((x=0, )?s=True\)")


# Here JAX compares the two trees level by level, and so sees the classes; before 0.10 anywhere.
LOOK_AT_CLASSES = (
    PLACES if jax.__version_info__ < (0, 10) else ("custom_vjp", "in_axes", "out_axes", "tree_map")
)


@pytest.mark.parametrize("place", PLACES)
def test_another_class(place: str) -> None:
    """Where one class stood, another is refused, by name; plain JAX takes it for the first."""
    if place not in LOOK_AT_CLASSES:
        result = PLACES[place](Plain, OtherPlain)
        np.testing.assert_array_equal(result.x, np.full(np.shape(result.x), 2.0))
    with pytest.raises((TypeError, ValueError), match="OtherSound"):
        PLACES[place](Sound, OtherSound)


each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each_kind
def test_placed_and_ravelled(kind: Kind) -> None:
    """`device_put`, `device_get`, `ravel_pytree` and `tree.reduce` keep class and statics."""
    p = kind.make("tanh")
    RUNS.clear()
    same(jax.device_put(p, jax.devices()[0]), p)
    same(jax.device_put(p, jax.tree.map(lambda _: jax.devices()[0], p)), p)
    same(jax.device_get(p), p)
    same(jax.block_until_ready(p), p)
    numbers = jax.tree.map(lambda x: x.astype(jnp.float32), p)
    flat, unravel = ravel_pytree(numbers)
    same(unravel(flat), numbers)
    assert jax.tree.reduce(jnp.add, numbers) == pytest.approx(float(flat.sum()))
    assert RUNS == []


@lw.pytree
class State:
    x: Any
    n: Any = lw.static_field(default=1)


def test_a_donated_instance_is_used_up() -> None:
    """Its buffers are gone, its class and statics are there, and what is made of it is refused."""
    program = jax.jit(step, donate_argnums=0)
    given = State(jnp.float32(1) + 0, "kept")
    assert program(given).x == 1.75
    assert (given.x.is_deleted(), given.n) == (True, "kept")
    for used in (given, lw.replace(given, n="other")):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            program(used)
