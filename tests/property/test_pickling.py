"""The law of travel: what is pickled is equal where it arrives, in any process."""

import copy
import os
import pickle
from typing import Any

import jax
import pytest
from tests.kit.processes import run_python

from . import zoo
from .zoo import Many, Params, Recipe, build

UNPICKLABLE = ("math", "types", "jnp.sin")

FAR = """
import pickle, sys
import jax
from tests.property.oracle import same
from tests.property.zoo import build

received = pickle.load(sys.stdin.buffer)
found = []
for recipe, value, params, structure in received:
    own = build(recipe)
    mine = type(params)(1.0, own)
    facts = [
        same(value, own),
        same(params.s, own),
        jax.tree.structure(params) == jax.tree.structure(mine) == structure,
        hash(params) == hash(mine),
        params == mine,
        jax.tree.structure(jax.tree.unflatten(structure, [1.0])) == structure,
        hash(jax.tree.structure(mine)) == hash(structure),
    ]
    found.append(facts)
count = len({jax.tree.structure(params) for _, _, params, _ in received})
sent = [type(params)(1.0, build(recipe)) for recipe, _, params, _ in received]
sent = [(params, jax.tree.structure(params)) for params in sent]
pickle.dump((found, count, sent), sys.stdout.buffer)
"""


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))],  # noqa: S301
    ids=["deepcopy", "pickle"],
)
def test_cycles_and_shared_parts_stay_as_they_are(duplicate: Any) -> None:
    """A copy of a graph has the shape of the graph."""
    inner = Params([1.0], "inner")
    around: list[Any] = [inner, inner]
    outer = Params(around, "outer")
    around.append(outer)
    twin = duplicate(outer)
    assert twin is not outer
    assert twin.x[2] is twin
    assert twin.x[0] is twin.x[1]
    assert twin.x[0].x is not inner.x
    assert (twin.s, twin.x[0].s) == ("outer", "inner")


def far(sent: list[Any]) -> Any:
    """Send to a fresh process with another hash seed, and return its answer."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    printed = run_python(FAR, given=pickle.dumps(sent), PYTHONHASHSEED=seed)
    return pickle.loads(printed)  # noqa: S301


def many_recipes() -> list[Recipe]:
    """Return recipes of all kinds, each kind also inside the containers."""
    leaves: list[Recipe] = [("value", code) for code in zoo.VALUES if code not in UNPICKLABLE]
    leaves += [("number", code, number) for code in zoo.NUMBERS for number in (1, -1)]
    one = ("number", "str(n)", 1)
    inner = ("tuple", one, ("value", "float('nan')"))
    parts = [one, inner, ("number", "np.float32(n)", 2)], [("number", "Own(abs(n), n)", 1), inner]
    for name, (count, _) in zoo.BUILDERS.items():
        leaves += [(name, *few[:count]) for few in parts if name != "mapping"]
    return [*leaves, ("mapping", one, inner)]


@pytest.mark.nightly
@pytest.mark.parametrize("cls", [Params, Many])
def test_other_process_other_hashes(cls: type[Params]) -> None:
    """In a process with other string hashes, what arrives equals what is made there."""
    drawn = many_recipes()
    sent = []
    for recipe in drawn:
        params = cls(1.0, build(recipe))
        hash(params)
        hash(params.s) if not isinstance(params.s, slice) else None
        sent.append((recipe, params.s, params, jax.tree.structure(params)))
    mine = len({structure for *_, structure in sent})
    found, count, returned = far(sent)
    wrong = {str(r): facts for r, facts in zip(drawn, found, strict=True) if not all(facts)}
    assert wrong == {}
    assert count == mine
    for (_, _, params, structure), (back, structure_back) in zip(sent, returned, strict=True):
        assert back == params
        assert hash(back) == hash(params)
        assert structure_back == structure
