"""A row of the matrix: one transformation, and what is expected of it."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import leafwise as lw

from .specimens import inexact, statics_of

Function = Callable[[Any], Any]

NO_QUESTION = "-"
"""Where no derivative is tried: of shapes, which are no numbers, or of a Hessian."""


class Seen:
    """What the bodies of a row call with their instance: it counts how often each part runs."""

    def __init__(self) -> None:
        self.expected: Any = None
        self.parts: Counter[str] = Counter()

    def __call__(self, instance: Any, part: str = "") -> Any:
        """Check class and statics of an instance inside a body, count, and return it."""
        self.parts[part] += 1
        return self.check(instance)

    def step(self, instance: Any, part: str = "") -> Any:
        """Check an instance inside a body, count, and change each leaf."""
        return step(self(instance, part))

    def check(self, instance: Any) -> Any:
        """Check class and statics of another instance in the same body, and return it."""
        assert statics_of(instance) == self.expected
        return instance

    def next(self, instance: Any) -> None:
        """Count from nothing, for a call with this instance."""
        self.expected = statics_of(instance)
        self.parts.clear()

    def __str__(self) -> str:
        """Return the counts as a row states them: ``2``, or ``cond_fun 1, body_fun 1``."""
        if set(self.parts) <= {""}:
            return str(self.parts[""])
        return ", ".join(f"{name} {count}" for name, count in self.parts.items())


@dataclasses.dataclass(frozen=True)
class Row:
    """One transformation: `build` makes the function, and `plain` gives the same result without.

    What it closes over is built once, so that JAX may know its bodies again at the next call. The
    counts are those of the first call, of one with equal statics, and of one with another static;
    `forward` and `reverse` are a part of JAX's message where there is no derivative.
    """

    key: str
    group: str
    name: str
    build: Callable[[Seen], Function]
    plain: Function
    traces: tuple[str, str, str]
    oldest_traces: tuple[str, str, str] | None = None
    forward: str = ""
    reverse: str = ""
    concrete: bool = False
    note: str = ""

    def traces_here(self) -> tuple[str, str, str]:
        if self.oldest_traces is not None and jax.__version_info__ < (0, 11):
            return self.oldest_traces
        return self.traces


class Rows(list[Row]):
    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def add(
        self, name: str, plain: Function, traces: tuple[str, str, str], **more: Any
    ) -> Callable[[Callable[[Seen], Function]], Callable[[Seen], Function]]:
        """Make a row of the function below, which builds the transformed one."""

        def note(build: Callable[[Seen], Function]) -> Callable[[Seen], Function]:
            key = build.__name__.strip("_")
            self.append(Row(key, self.group, name, build, plain, traces, **more))
            return build

        return note


def step(tree: Any) -> Any:
    """Change each leaf, by its dtype."""

    def change(leaf: Any) -> Any:
        if inexact(leaf):
            return leaf * 1.5 + 0.25
        return ~leaf if leaf.dtype == jnp.bool_ else leaf + 1

    return jax.tree.map(change, tree)


@functools.cache
def steps(times: int) -> Function:
    """Return a function that does several steps."""

    def function(tree: Any) -> Any:
        for _ in range(times):
            tree = step(tree)
        return tree

    return function


def total(tree: Any) -> Any:
    """Return one number that depends on each leaf with a derivative."""
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(tree) if inexact(leaf))


def slope(tree: Any) -> Any:
    """Return the gradient of `total` by hand, `float0` for a leaf that has none."""
    return jax.tree.map(lambda leaf: jnp.cos(leaf) if inexact(leaf) else _float0(leaf), tree)


def _float0(leaf: Any) -> Any:
    return np.zeros(leaf.shape, jax.dtypes.float0)


def ones(tree: Any) -> Any:
    """Return a tangent or cotangent of a tree: `float0` where there is none."""
    return jax.tree.map(lambda x: jnp.ones_like(x) if inexact(x) else _float0(x), tree)


def floats(tree: Any) -> tuple[Any, Any]:
    """Split a tree: the part with derivatives, and the rest. `lw.combine` is the inverse."""
    return lw.partition(tree, inexact)


def stack(tree: Any, size: int = 2) -> Any:
    """Give each leaf a leading axis: the tree, a step further, and so on."""
    trees = [steps(i)(tree) for i in range(size)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def same(result: Any, wanted: Any) -> None:
    """Check that two trees agree: classes, statics, structure, shapes, dtypes and values."""
    assert statics_of(result) == statics_of(wanted)
    assert jax.tree.structure(result) == jax.tree.structure(wanted)
    for leaf, other in zip(jax.tree.leaves(result), jax.tree.leaves(wanted), strict=True):
        assert (leaf.shape, leaf.dtype) == (other.shape, other.dtype)
        if isinstance(other, jax.ShapeDtypeStruct) or other.dtype == jax.dtypes.float0:
            continue
        np.testing.assert_allclose(leaf, other, rtol=1e-4)
