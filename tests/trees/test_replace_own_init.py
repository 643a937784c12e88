"""`lw.replace` of a class whose constructor was written by hand."""

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw


@lw.pytree
class Layer:
    w: jax.Array
    n: int = lw.static_field(converter=int, validator=lambda n: n > 0)
    runs: int = lw.static_field(default=0)

    def __init__(self, key: jax.Array, n: int) -> None:
        self.w = jax.random.normal(key, (n,))
        self.n = n
        self.runs = 1


LAYER = Layer(jax.random.key(0), 3)


def test_fields_are_exchanged() -> None:
    """Fields change although the constructor takes other arguments, which does not run."""
    changed = lw.replace(LAYER, w=jnp.ones(2), runs=5)
    assert (changed.w.shape, changed.n, changed.runs) == ((2,), 3, 5)
    assert (LAYER.n, LAYER.runs) == (3, 1)
    assert jax.tree.structure(changed) != jax.tree.structure(LAYER)
    assert jax.tree.structure(lw.replace(changed, runs=1)) == jax.tree.structure(LAYER)
    assert lw.replace(LAYER) == LAYER


def test_changed_fields_are_converted_checked_and_validated() -> None:
    """What changes is treated as in construction; errors name the field."""
    assert lw.replace(LAYER, n=4.0).n == 4
    with pytest.raises(lw.errors.FieldCheckError, match=r"Layer\.n"):
        lw.replace(LAYER, n=-1)
    with pytest.raises(lw.errors.StaticFieldError, match=r"Layer\.runs"):
        lw.replace(LAYER, runs=[1])
    with pytest.raises(TypeError, match=r"no field 'rusn' \(did you mean 'runs'\?\)"):
        lw.replace(LAYER, rusn=1)
