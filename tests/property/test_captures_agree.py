"""What `captures` reports is what JAX puts into the program, of generated functions."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.core import Literal
from tests.kit.trees import pytrees

import leafwise as lw

from .drawn_programs import PLACES, WAYS, Program, program_of

LITERALS = (3, -7, True, False, 0.5, 2 + 1j, np.float32(1.5), np.int8(3), np.bool_(True))
LITERALS += (np.array(2.5), np.array(4, np.int16), ml_dtypes.bfloat16(2), 2**31 - 1)
ARRAYS: tuple[Callable[[], Any], ...] = (
    lambda: np.arange(3.0),
    lambda: np.ones((1, 2), np.float32),
    lambda: np.zeros((0,), np.int32),
    lambda: np.ones(2, ml_dtypes.bfloat16),
    lambda: jnp.array(1.5),
    lambda: jnp.asarray(1.5, jnp.float16),
    lambda: jnp.arange(4),
    lambda: jax.random.key(3),
    lambda: jax.random.split(jax.random.key(1), 2),
)
leaf_values = st.sampled_from(LITERALS) | st.sampled_from(ARRAYS).map(lambda make: make())
values = pytrees(leaf_values, max_leaves=3)

READ = (
    *("global", "cell", "attribute", "slot", "chain", "class attribute", "property", "method"),
    *("callable", "item", "index", "default", "keyword default", "module", "name of a module"),
    "default that an inner function reads",
)
"""The kinds of places to which a report follows each way."""
AROUND = sorted(WAYS.keys() - {"vmap", "grad", "scan", "fori", "while", "cond"})
"""The ways to write a function that may return a list."""


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, dict[str, Any]]:
    """Draw a program that returns everything that it captures, and the values by name."""
    shared = draw(st.lists(values, min_size=1, max_size=2))
    kinds = draw(st.lists(st.sampled_from(READ), min_size=1, max_size=5))
    held = {f"v{number}": draw(values | st.sampled_from(shared)) for number in range(len(kinds))}
    places = [
        PLACES[kind].holding(name, f"p{name}") for kind, name in zip(kinds, held, strict=True)
    ]
    way = draw(st.sampled_from(AROUND))
    expression = f"[x, {', '.join(f'*leaves({place.use})' for place in places)}]"
    return program_of(places, WAYS[way], expression), held


def as_constant(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return what is equal for arrays of one dtype, shape and content."""
    array = value if isinstance(value, jax.Array) else jnp.asarray(np.asarray(value))
    dtype = str(array.dtype)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return dtype, array.shape, np.asarray(array).tobytes()


def _as_literal(value: Any) -> tuple[str, bool, complex]:
    aval = jax.typeof(value)
    weak = bool(getattr(aval, "weak_type", False))
    return str(aval.dtype), weak, complex(np.asarray(value, aval.dtype))


def _baked_in(closed: Any) -> tuple[dict[int, Any], list[Any]]:
    """Return the constants of a program and the literals that it puts out, inner ones as well."""
    jaxpr = getattr(closed, "jaxpr", closed)  # JAX 0.10 has jaxprs without constants in some places
    constants = {id(each): each for each in getattr(closed, "consts", ())}
    literals = [var.val for var in jaxpr.outvars if isinstance(var, Literal)]
    for equation in jaxpr.eqns:
        for inner in equation.params.values():
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                more = _baked_in(inner)
                constants |= more[0]
                literals += more[1]
    return constants, literals


def _reported(found: lw.types.Captures) -> tuple[list[Any], list[Any]]:
    """Return the constants, each object once, and the literals that a report speaks of."""
    constants: dict[int, Any] = {}
    literals: list[Any] = []
    for each in found:
        held, treated = {"": each.value}, {"": each.treatment}
        if each.treatment == "pytree":
            pairs = jax.tree.leaves_with_path(each.value)
            held = {jax.tree_util.keystr(path): leaf for path, leaf in pairs}
            treated = {leaf.path: leaf.treatment for leaf in each.leaves}
            assert held.keys() == treated.keys()
        for path, treatment in treated.items():
            if treatment == "constant":
                constants[id(held[path])] = held[path]
            elif treatment == "literal":
                literals.append(held[path])
    return list(constants.values()), literals


@pytest.mark.slow
@given(programs())
def test_reports_agree_with_jaxprs(drawn: tuple[Program, dict[str, Any]]) -> None:
    """The constants and literals of a jaxpr are those that the report names, and no others."""
    program, held = drawn
    with closing(program.build(leaves=jax.tree.leaves, **held)) as built:
        found = lw.captures(built.function)
        closed = jax.make_jaxpr(built.function)(1.0)
    constants, literals = _reported(found)
    baked, written = _baked_in(closed)
    told = f"{program.source}\n{found}\n{closed}"
    expected = Counter(map(as_constant, baked.values()))
    assert Counter(map(as_constant, constants)) == expected, told
    assert Counter(map(_as_literal, literals)) == Counter(map(_as_literal, written)), told
