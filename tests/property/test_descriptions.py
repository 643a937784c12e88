"""The law of descriptions: statics have one description exactly if the oracle calls them the same.

But for what no name leads to, which is noted, and objects with their own ``==``.
"""

from typing import Any

from hypothesis import given

from leafwise._statics.portable import PortableReader, dump

from . import zoo
from .oracle import same
from .zoo import Recipe, build, edits, spots


def described(recipe: Recipe) -> str | None:
    """Return the description of what a recipe makes; None if none is promised."""
    own = [zoo.at(recipe, spot) for spot in spots(recipe)]
    if any("own" in str(part[1]) for part in own if part[0] == "number"):
        return None
    reader = PortableReader()
    found = dump(reader.read(build(recipe), "P.a"))
    return None if reader.opaque else found


def check_law(one: Any, other: Any) -> None:
    texts = described(one), described(other)
    if None not in texts:
        assert (texts[0] == texts[1]) is same(build(one), build(other))


def test_all_pairs_of_leaves() -> None:
    """Every leaf of the zoo against every other."""
    leaves = [leaf for leaf in zoo.all_leaves() if described(leaf) is not None]
    texts = [described(leaf) for leaf in leaves]
    values = [build(leaf) for leaf in leaves]
    for one, text in zip(leaves, texts, strict=True):
        value = build(one)
        for other, its in zip(values, texts, strict=True):
            assert (text == its) is same(value, other)
    assert len(leaves) > 150


@given(edits())
def test_edited_values(pair: tuple[Recipe, Recipe]) -> None:
    """Random statics, and the same with one place changed."""
    one, other = pair
    check_law(one, one)
    check_law(one, other)
