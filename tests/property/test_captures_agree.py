"""What `captures` reports is what JAX puts into the program, of generated functions."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from jax.extend.core import Literal

from leafwise._captures.captures import Captures, captures

from .closures import as_constant, functions


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


def _reported(found: Captures) -> tuple[list[Any], list[Any]]:
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
@given(functions())
def test_reports_agree_with_jaxprs(drawn: tuple[Callable[..., Any], str]) -> None:
    """The constants and literals of a jaxpr are those that the report names, and no others."""
    fn, source = drawn
    found = captures(fn)
    constants, literals = _reported(found)
    closed = jax.make_jaxpr(fn)(1.0)
    baked, written = _baked_in(closed)
    told = f"{source}\n{found}\n{closed}"
    expected = Counter(map(as_constant, baked.values()))
    assert Counter(map(as_constant, constants)) == expected, told
    assert Counter(map(_as_literal, literals)) == Counter(map(_as_literal, written)), told
