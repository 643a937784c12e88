"""Edits: each changes one field, in the way it says, and nothing else."""

import jax
import jax.numpy as jnp

import leafwise as lw

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
