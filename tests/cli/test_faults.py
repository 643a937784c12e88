"""One fault is one finding, in words of the class's library, and no value that was refused."""

import pytest

from .conftest import Check, Write

SWAPPED = """
@jax.tree_util.register_pytree_node_class
class Swapped:
    def __init__(self, a: float, b: float):
        self.a, self.b = a, b
    def tree_flatten(self): return (self.a, self.b), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(children[1], children[0])
"""


def test_one_fault_is_shown_once(write: Write, check_all: Check) -> None:
    """Of a swapped pair the first law is shown in full, the others in one line."""
    laws = [word for law in ("any-leaf", "round-trip", "identity-map") for word in ("--law", law)]
    outcome = check_all(write(SWAPPED), *laws, "--examples", "5")
    assert outcome.code == 1
    assert "3 laws broken" in outcome.out
    assert outcome.out.count("got: ") == 1
    assert "broken: law round-trip\n  Swapped.a: breaks the law round-trip" in outcome.out
    assert "\n  also breaks: identity-map, any-leaf\n" in outcome.out
    alone = check_all(write(SWAPPED), "--law", "any-leaf", "--examples", "5").out
    assert "fix: convert nothing in flatten, and restore in unflatten" in alone


TABLE = """
import equinox as eqx

class Table(eqx.Module):
    w: jax.Array
    table: jax.Array = eqx.field(static=True)
"""


@pytest.mark.slow
def test_words_of_the_library(write: Write, check_all: Check) -> None:
    """An array in a static field of equinox: it is to be dynamic, and nobody speaks of aux_data."""
    pytest.importorskip("equinox")
    laws = ("--law", "treedef-equality", "--law", "transformations")
    outcome = check_all(write(TABLE), *laws, "--examples", "5")
    assert outcome.code == 1
    fix = "make `table` a dynamic field: drop `static=True`; or hold it as `lw.StaticArray`\n"
    assert f"fix: {fix}" in outcome.out
    assert "Traceback" not in outcome.out
    assert "site-packages" not in outcome.out


REFUSING = """
import dataclasses

@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Irrep:
    l: int
    def __post_init__(self): assert isinstance(self.l, int) and self.l >= 0, self.l
    def __eq__(self, other): return self.l == Irrep(other.l).l
    def __hash__(self): return hash(self.l)
"""


def test_refused_values_are_discarded(write: Write, check_all: Check) -> None:
    """An `assert` that fails for a value that a law has exchanged breaks no law."""
    names = ("treedef-equality", "static-values", "aux-data-hash")
    laws = [word for law in names for word in ("--law", law)]
    outcome = check_all(write(REFUSING), *laws)
    assert outcome.code == 0, outcome.out


ALIKE = """
class Inner:
    def __init__(self, factor: float = 1.0): self.factor = factor
    def __repr__(self): return "<Inner>"
    def __eq__(self, other): return self.factor == other.factor
    def __hash__(self): return hash(self.factor)

@jax.tree_util.register_pytree_node_class
class Holder:
    def __init__(self, x: float, inner: Inner): self.x, self.inner = x, inner
    def tree_flatten(self): return (self.x,), self.inner
    @classmethod
    def tree_unflatten(cls, inner, children): return cls(*children, Inner(inner.factor + 1))
"""


def test_texts_that_are_alike(write: Write, check_all: Check) -> None:
    """Of two statics that print alike, the attribute is named that differs."""
    outcome = check_all(write(ALIKE), "--law", "round-trip", "--examples", "5")
    assert outcome.code == 1
    assert "Holder.inner.factor: breaks the law round-trip" in outcome.out
