"""Laws of what goes into a transformation and comes out of it."""

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise.testing._format import format_leaf, is_key
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.structure import checks_shapes
from leafwise.testing.strategies._edit_positions import path_of
from leafwise.testing.strategies._leaves import is_numeric, put, same_leaf

_TREE_MAP: Final[Callable[..., Any]] = jax.tree_util.tree_map

Function = Callable[[Any], Any]


def transformations(case: Case) -> None:
    """Send an instance through each transformation."""
    x = case.instance
    leaves, structure = case.flatten(x)
    if not all(map(is_numeric, leaves)):
        return  # a jitted function does not accept it
    for what, (run, keeps_leaves) in _TRANSFORMATIONS.items():
        if what == "jax.vmap" and (not leaves or checks_shapes(structure, leaves)):
            continue  # there is nothing to map over, or no batch of such an instance

        def inside(traced: Any, what: str = what) -> Any:
            case.check_same(traced, f"inside {what}", case.names.static)
            return traced

        made = case.attempt(what, run, inside, x, by_hand=Law.ANY_LEAF.fix)
        case.check_same(made, f"out of {what}", case.names.static)
        its = case.structure(made)
        if not case.same_structure(structure, its):
            case.fail("", f"{its} out of {what}", f"{structure}, as it went in")
        pairs = jax.tree_util.tree_leaves_with_path(made) if keeps_leaves else ()
        for (path, leaf), wanted in zip(pairs, leaves, strict=False):
            if not same_leaf(jnp.asarray(leaf), jnp.asarray(wanted)):
                where = path_of(made, path, leaf)
                got = f"{format_leaf(leaf)} out of {what}"
                case.fail(where, got, f"{format_leaf(wanted)}, as it went in")


def _jit(function: Function, x: Any) -> Any:
    jax.jit(function).trace(x)
    return x  # what comes out is looked at under `eval_shape`


def _checkpoint(function: Function, x: Any) -> Any:
    return jax.checkpoint(function)(x)


def _vmap(function: Function, x: Any) -> Any:
    mapped = jax.vmap(function)(_TREE_MAP(_twice, x))
    return _TREE_MAP(_first, mapped)


def _grad(function: Function, x: Any) -> Any:
    gradient: Any = jax.grad(_sum_of(function), allow_int=True)
    return jax.eval_shape(gradient, x)


def _scan(function: Function, x: Any) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, None]:
        return function(carry), None

    def run(x: Any) -> Any:
        return jax.lax.scan(step, x, None, length=2)[0]

    return jax.eval_shape(run, _TREE_MAP(_as_array, x))


_TRANSFORMATIONS: Final[dict[str, tuple[Callable[[Function, Any], Any], bool]]] = {
    "jax.jit": (_jit, False),
    "jax.vmap": (_vmap, True),
    "jax.eval_shape": (jax.eval_shape, False),
    "jax.grad": (_grad, False),
    "lax.scan": (_scan, False),
    "jax.checkpoint": (_checkpoint, True),
}
"""How each is called, and whether it returns the leaves that it was given.

Most are traced, and not compiled, which would say no more of a class.
"""


def _as_array(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) else put(leaf)


def _twice(leaf: Any) -> Any:
    if is_key(leaf):
        return jnp.stack([leaf] * 2)
    return put(np.stack([np.asarray(_as_array(leaf))] * 2))  # compiles nothing for each shape


def _first(leaf: Any) -> Any:
    return leaf[0] if is_key(leaf) else put(np.asarray(leaf)[0])


def _sum_of(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function to a real number that depends on each float and complex leaf."""

    def total(tree: Any) -> Any:
        leaves = jax.tree_util.tree_leaves(function(tree))
        numbers = [leaf for leaf in leaves if jnp.issubdtype(jax.typeof(leaf).dtype, jnp.inexact)]
        return sum((jnp.sum(jnp.real(leaf)).astype(float) for leaf in numbers), jnp.zeros(()))

    return total


_LINES: Final = 4
"""How many lines of JAX's report are shown: what leaked, and where it was created."""


def no_tracer_leaks(case: Case) -> None:
    """Flatten and unflatten inside a trace under `jax.checking_leaks`."""
    x = case.instance
    leaves = case.flatten(x)[0]
    if not all(map(is_numeric, leaves)):
        return

    def function(traced: Any) -> Any:
        parts, structure = case.flatten(traced)
        return structure.unflatten(parts)

    try:
        with jax.checking_leaks():
            jax.eval_shape(function, x)
    except Exception as error:  # noqa: BLE001  # JAX raises a plain Exception
        problem = " ".join(map(str.strip, str(error).splitlines()[:_LINES]))
        if "Leaked" in problem:  # other laws report anything else
            case.fail("", f"jax.checking_leaks found a leak: {problem}", "no tracer is kept")
