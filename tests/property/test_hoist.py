"""`hoist` of the functions that the report on captures is tested with."""

from collections.abc import Callable
from typing import Any

import jax
import pytest
from hypothesis import given

import leafwise as lw

from .closures import as_constant, functions


@pytest.mark.slow
@given(functions())
def test_hoisted_functions_have_no_constants(drawn: tuple[Callable[..., Any], str]) -> None:
    """A hoisted function is the same function, and its jaxpr holds none of the arrays.

    What it is refused for is listed, and never read. Other captures come out where the first ones
    did.
    """
    fn, source = drawn
    before = fn(1.0)
    hoisted, captured = lw.hoist(fn)
    try:
        after = hoisted(captured, 1.0)
    except lw.errors.HoistError as error:
        fix = error.message.partition("lw.hoist(fn, ")[2].partition(")`")[0]
        hoisted, captured = lw.hoist(fn, eval(fix))  # noqa: S307  # the code that the message shows
        after = hoisted(captured, 1.0)
    assert list(map(as_constant, after)) == list(map(as_constant, before)), source
    closed = jax.make_jaxpr(hoisted)(captured, 1.0)
    assert not closed.consts, f"{source}\n{sorted(captured)}\n{closed}"
    old, structure = jax.tree.flatten(captured)
    new = [like(leaf) for leaf in old]
    exchanged = {id(leaf): other for leaf, other in zip(old, new, strict=True)}
    others = hoisted(structure.unflatten(new), 1.0)
    for one, other in zip(before, others, strict=True):
        if id(one) in exchanged:  # as no jitted function has copied it
            assert other is exchanged[id(one)], source


def like(leaf: Any) -> Any:
    """Return another array of the same shape and dtype."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(9), leaf.shape)
    return leaf * 0 + 9
