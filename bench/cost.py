"""What an instance costs: construct, flatten, unflatten, map and jit, for 1 and for 50."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import rows
from libraries import EMPTY, OURS, READY, Library
from rows import Row
from timing import Effort, Group, Job, interleave, job

TABLE: Final = "cost"
CONSTRUCT: Final = "construct"
MEASURES: Final = (CONSTRUCT, "flatten", "unflatten", "tree.map", "jit in", "jit in+out")
COUNTS: Final = (1, 50)

_TARGETS: Final[Mapping[str, float]] = {
    "flatten": 1.0,
    "flatten, 50": 0.95,
    "unflatten": 0.55,
    "unflatten, 50": 0.45,
    "tree.map, 50": 0.50,
    "jit in, 50": 1.0,
    "jit in+out, 50": 0.85,
}
"""The most that leafwise should take, in multiples of the best peer."""

DYNAMIC: Final = ("weight", "bias", "mean", "var", "step")
STATIC: Final = ("depth", "act", "shape")
_STATIC_VALUES: Final = (4, "relu", (8, 16))


def target(name: str, python: tuple[int, int]) -> float | None:
    """Return the most that the ratio of a row should be, on this Python."""
    if name.startswith(CONSTRUCT):
        return 1.2 if python == (3, 12) else 1.0
    return _TARGETS.get(name)


def arguments(library: Library) -> dict[str, Any]:
    """Return values for the fields: five float32 scalars, an int, a str and a tuple."""
    values: dict[str, Any] = {name: jnp.float32(n) for n, name in enumerate(DYNAMIC)}
    if library.static is not None:
        values |= zip(STATIC, _STATIC_VALUES, strict=True)
    return values


def specimen(library: Library) -> Callable[..., Any]:
    """Return the class that all of this is about, as the library makes it."""
    return library.define("Params", DYNAMIC, STATIC)


def measure(libraries: Mapping[str, Library], effort: Effort, python: tuple[int, int]) -> list[Row]:
    """Measure the cost table."""
    groups: dict[str, Group] = {}
    classes = {name: specimen(library) for name, library in libraries.items()}
    values = {name: arguments(library) for name, library in libraries.items()}
    children = tuple(values[OURS][name] for name in DYNAMIC)
    floors = {EMPTY: _floor(EMPTY, ()), READY: _floor(READY, children)}
    for count in COUNTS:
        for what in MEASURES:
            jobs = {name: _job(cls, values[name], what, count) for name, cls in classes.items()}
            if what != CONSTRUCT:
                jobs |= {name: _job(make, {}, what, count) for name, make in floors.items()}
            groups[what if count == 1 else f"{what}, {count}"] = jobs
    taken = interleave(list(groups.values()), effort)
    return [
        rows.timed(TABLE, name, samples, target=target(name, python))
        for name, samples in zip(groups, taken, strict=True)
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


def _job(cls: Callable[..., Any], values: Mapping[str, Any], what: str, count: int) -> Job:
    """Return the job of one cell."""
    tree = cls(**values) if count == 1 else [cls(**values) for _ in range(count)]
    tree_util = jax.tree_util
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
