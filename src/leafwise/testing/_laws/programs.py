"""Laws of what goes into a transformation and comes out of it."""

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._trees.roles import Names, names_of
from leafwise.testing._format import format_leaf, is_key
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.same import difference
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
    names = names_of(x)
    for what, (run, keeps_leaves) in _TRANSFORMATIONS.items():
        if what == "jax.vmap" and (not leaves or checks_shapes(structure, leaves)):
            continue  # there is nothing to map over, or no batch of such an instance
        inside = _checked_identity(case, what, names)
        made = case.attempt(what, run, inside, x, by_hand=Law.ANY_LEAF.fix)
        _check_result(case, what, made, names)
        if keeps_leaves:
            _check_leaves(case, what, made, leaves)


def _checked_identity(case: Case, what: str, names: Names) -> Function:
    """Return the identity function; it compares the statics of what it is traced with."""

    def identity(traced: Any) -> Any:
        found = difference(case.instance, traced, names, names.static)
        if found is not None:
            path, got, wanted = found
            case.fail(path, f"{got} inside {what}", wanted)
        return traced

    return identity


def _check_result(case: Case, what: str, made: Any, names: Names) -> None:
    """Compare class, statics and structure with those of the instance."""
    found = difference(case.instance, made, names, names.static)
    if found is not None:
        path, got, wanted = found
        case.fail(path, f"{got} out of {what}", wanted)
    mine, its = case.structure(case.instance), case.structure(made)
    if not case.same_structure(mine, its):
        case.fail("", f"{its} out of {what}", f"{mine}, as it went in")


def _check_leaves(case: Case, what: str, made: Any, expected: list[Any]) -> None:
    pairs = jax.tree_util.tree_leaves_with_path(made)
    for (path, leaf), wanted in zip(pairs, expected, strict=True):
        if not same_leaf(jnp.asarray(leaf), jnp.asarray(wanted)):
            where = path_of(made, path, leaf)
            case.fail(
                where, f"{format_leaf(leaf)} out of {what}", f"{format_leaf(wanted)}, as it went in"
            )


def _jit(function: Function, x: Any) -> Any:
    return jax.jit(function)(x)


def _vmap(function: Function, x: Any) -> Any:
    mapped = jax.vmap(function)(_TREE_MAP(_twice, x))
    return _TREE_MAP(_first, mapped)


def _grad(function: Function, x: Any) -> Any:
    gradient: Any = jax.grad(_sum_of(function), allow_int=True)
    return jax.jit(gradient)(x)


def _scan(function: Function, x: Any) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, None]:
        return function(carry), None

    last, _ = jax.lax.scan(step, _TREE_MAP(_as_array, x), None, length=2)
    return last


def _checkpoint(function: Function, x: Any) -> Any:
    return jax.checkpoint(function)(x)


_TRANSFORMATIONS: Final[dict[str, tuple[Callable[[Function, Any], Any], bool]]] = {
    "jax.jit": (_jit, True),
    "jax.vmap": (_vmap, True),
    "jax.grad": (_grad, False),
    "lax.scan": (_scan, True),
    "jax.eval_shape": (jax.eval_shape, False),
    "jax.checkpoint": (_checkpoint, True),
}
"""How each is called, and whether it returns the leaves that it was given."""


def _same(leaf: Any) -> Any:
    return leaf


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
        mapped = _TREE_MAP(_same, traced)
        parts, structure = case.flatten(mapped)
        return structure.unflatten(parts)

    def raised() -> Exception | None:
        try:
            jax.jit(function)(x)
        except Exception as error:  # noqa: BLE001  # JAX raises a plain Exception
            return error
        return None

    with jax.checking_leaks():
        error = raised()
    problem = " ".join(map(str.strip, str(error).splitlines()[:_LINES]))
    # After `gc.freeze()` JAX may find a leak, and fail when it looks for what keeps the tracer.
    # What is wrong without the check, too, other laws report.
    if error is not None and ("Leaked" in problem or raised() is None):
        case.fail("", f"jax.checking_leaks found a leak: {problem}", "no tracer is kept")
