"""Edits: each changes one field, in the way it says, and nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._trees.roles import names_of

from .asked import changes, report_of


def test_words() -> None:
    """The words of an edit show both values; what the constructor computes is not edited."""

    @lw.pytree
    class P:
        x: jax.Array = lw.field(default_factory=lambda: jnp.zeros(3))
        y: float = 2.0
        k: jax.Array = lw.field(default_factory=lambda: jax.random.key(0))
        o: jax.Array | None = None
        n: lw.Static[int] = 2
        m: lw.Static[str] = "a"
        twice: int = lw.static_field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.n * 2

    words = changes(report_of(P))
    assert list(words)[:2] == [("x", "value"), ("x", "shape")]
    assert words["x", "value"] == "float32[3], other elements"
    assert words["x", "shape"] == "float32[3] -> float32[4]"
    assert list(dict.fromkeys(field for field, _ in words)) == [*"xykonm", "twice"]
    assert words["y", "value"].startswith("2.0 -> ")
    assert words["k", "shape"] == "key<fry>[] -> key<fry>[2]"
    assert words["o", "structure"] == "None -> 1.0"
    assert words["n", "value"] == "2 -> 0"
    assert words["n", "type"] == "2 -> 2.0 (float)"
    assert words["m", "type"] == "'a' -> 'a' (StrSubclass)"


@pytest.mark.parametrize("value", [0.5, np.ones(2, "int32"), (0.5, 1)])
def test_a_leaf_that_flatten_converts(value: Any) -> None:
    """It is dynamic, though no object in its place becomes a leaf; aux_data is static."""

    @jax.tree_util.register_pytree_node_class
    class Converts:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

        def tree_flatten(self) -> Any:
            leaves = jax.tree.map(lambda leaf: np.asarray(leaf).astype("float32"), self.x)
            return (leaves, np.ones(self.n)), self.n

        @classmethod
        def tree_unflatten(cls, n: Any, children: Any) -> Any:
            return cls(children[0], n)

    assert names_of(Converts(value, 3)) == (("n",), ("x",))
