"""`hoist` of the functions that the report on captures is tested with."""

from collections.abc import Callable
from typing import Any

import jax
from hypothesis import given

import leafwise as lw

from .closures import as_constant, functions


@given(functions())
def test_hoisted_functions_have_no_constants(drawn: tuple[Callable[..., Any], str]) -> None:
    """A hoisted function is the same function, and its jaxpr holds none of the arrays.

    What is refused is on a class, or read by a method of one. Other captures come out where the
    first ones did.
    """
    fn, source = drawn
    try:
        hoisted, captured = lw.hoist(fn)
    except lw.errors.HoistError as error:
        assert "class" in str(error), f"{source}\n{error}"  # noqa: PT017  # which is one outcome of two
        return
    before, after = fn(1.0), hoisted(captured, 1.0)
    assert list(map(as_constant, after)) == list(map(as_constant, before)), source
    closed = jax.make_jaxpr(hoisted)(captured, 1.0)
    assert not closed.consts, f"{source}\n{sorted(captured)}\n{closed}"
    old, structure = jax.tree.flatten(captured)
    new = [jax.random.key(9) if is_key(leaf) else leaf * 0 + 9 for leaf in old]
    exchanged = {id(leaf): other for leaf, other in zip(old, new, strict=True)}
    others = hoisted(structure.unflatten(new), 1.0)
    for one, other in zip(before, others, strict=True):
        if id(one) in exchanged:  # as no jitted function has copied it
            assert other is exchanged[id(one)], source


def is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
