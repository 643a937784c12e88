"""What an instance costs: construct, flatten, unflatten, map and jit, for 1 and for 50."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import rows
from libraries import AGAIN, BASELINE, EMPTY, OURS, READY, Library
from rows import Row
from timing import Effort, Group, Job, interleave, job

TABLE: Final = "cost"
CONSTRUCT: Final = "construct"
MEASURES: Final = (CONSTRUCT, "flatten", "unflatten", "tree.map", "jit in", "jit in+out")
COUNTS: Final = (1, 50)

REBUILT: Final = "rebuilt"
TARGETS: Final[Mapping[str, float]] = {
    "construct": 0.80,
    "flatten": 1.12,
    "construct, 50": 0.80,
    "flatten, 50": 1.15,
    "unflatten, 50": 0.25,
    "tree.map, 50": 0.45,
    "jit in, 50": 1.05,
    "jit in+out, 50": 0.85,
}
"""The most that leafwise should take, in multiples of jax's own."""

DYNAMIC: Final = ("weight", "bias", "mean", "var", "step")
STATIC: Final = ("depth", "act", "shape")
_STATIC_VALUES: Final = (4, "relu", (8, 16))


def arguments(library: Library) -> dict[str, Any]:
    """Return values for the fields: five float32 scalars, an int, a str and a tuple."""
    values: dict[str, Any] = {name: jnp.float32(n) for n, name in enumerate(DYNAMIC)}
    if library.static is not None:
        values |= zip(STATIC, _STATIC_VALUES, strict=True)
    return values


def specimen(library: Library) -> Callable[..., Any]:
    """Return the class that all of this is about, as the library makes it."""
    return library.define("Params", DYNAMIC, STATIC)


def measure(libraries: Mapping[str, Library], effort: Effort) -> list[Row]:
    """Measure the cost table."""
    groups: dict[str, Group] = {}
    sides = {**libraries, AGAIN: libraries[BASELINE]}
    classes = {name: specimen(library) for name, library in sides.items()}
    values = {name: arguments(library) for name, library in sides.items()}
    children = tuple(values[OURS][name] for name in DYNAMIC)
    floors = {EMPTY: _floor(EMPTY, ()), READY: _floor(READY, children)}
    for count in COUNTS:
        for what in MEASURES:
            jobs = {name: _job(cls, values[name], what, count) for name, cls in classes.items()}
            if what != CONSTRUCT:
                jobs |= {name: _job(make, {}, what, count) for name, make in floors.items()}
            groups[what if count == 1 else f"{what}, {count}"] = jobs
    for what in ("flatten", "jit in"):
        groups[f"{what}, {COUNTS[-1]} {REBUILT}"] = {
            name: _job(cls, values[name], what, COUNTS[-1], rebuilt=True)
            for name, cls in classes.items()
        }
    taken = interleave(list(groups.values()), effort)
    return [
        rows.timed(TABLE, name, times, target=TARGETS.get(name), against=BASELINE)
        for name, times in zip(groups, taken, strict=True)
    ]


def _floor(name: str, children: tuple[Any, ...]) -> Callable[[], Any]:
    """Return what makes an instance whose functions only return what is there beforehand."""
    made = type(name, (), {})()
    flat = children, None
    jax.tree_util.register_pytree_node(type(made), lambda _: flat, lambda _, __: made)
    return lambda: made


def _same(value: Any) -> Any:
    return value


def _first_leaf(tree: Any) -> Any:
    return jax.tree.leaves((tree, 0))[0]  # 0: the empty floor has no leaf


def _job(
    cls: Callable[..., Any],
    values: Mapping[str, Any],
    what: str,
    count: int,
    *,
    rebuilt: bool = False,
) -> Job:
    """Return the job of one cell, with instances as the class makes them or as JAX does."""
    tree_util = jax.tree_util
    tree = cls(**values) if count == 1 else [cls(**values) for _ in range(count)]
    tree = tree_util.tree_map(_same, tree) if rebuilt else tree
    if what == CONSTRUCT:
        # `live`: as in a program's loop, an instance with the same statics is still there.
        call = f"cls({', '.join(f'{name}={name}' for name in values)})"
        statement = call if count == 1 else f"for _ in range({count}): {call}"
        return job(statement, {"cls": cls, "live": tree, **values})
    if what == "flatten":
        return job("flatten(tree)", {"flatten": tree_util.tree_flatten, "tree": tree})
    if what == "unflatten":
        leaves, treedef = tree_util.tree_flatten(tree)
        names = {"unflatten": tree_util.tree_unflatten, "treedef": treedef, "leaves": leaves}
        return job("unflatten(treedef, leaves)", names)
    if what == "tree.map":
        return job("map_(same, tree)", {"map_": jax.tree.map, "same": _same, "tree": tree})
    body: Callable[[Any], Any] = _first_leaf if what == "jit in" else _same
    # A function of its own: all programs of one function share a cache.
    compiled = jax.jit(lambda tree: body(tree))  # noqa: PLW0108
    return job("compiled(tree)", {"compiled": compiled, "tree": tree})
