"""One fault is one finding, in words of the class's library."""

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
    laws = ("--law", "treedef-equality", "--law", "transformations")
    outcome = check_all(write(TABLE), *laws, "--examples", "5")
    assert outcome.code == 1
    fix = "make `table` a dynamic field: drop `static=True`; or hold it as `lw.StaticArray`\n"
    assert f"fix: {fix}" in outcome.out
    assert "Traceback" not in outcome.out
    assert "site-packages" not in outcome.out
