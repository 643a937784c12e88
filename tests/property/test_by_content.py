"""Functions by content: equal content is one program and one result, anything else another."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from hypothesis import given
from hypothesis import strategies as st

import leafwise as lw


@lw.pytree
class Step:
    x: Any
    f: Any = lw.static_field(by="content")


numbers = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, -2.0]),
)
values = st.recursive(
    numbers, lambda inner: st.lists(inner, max_size=2) | st.tuples(inner, inner), max_leaves=3
)


class Recipe(NamedTuple):
    """How to make a function of one argument; all parts reach its result."""

    operator: str
    constant: Any
    inner: Any
    cell: Any
    default: Any
    keyword: Any
    rate: Any
    depth: int
    name: str


recipes = st.builds(
    Recipe,
    operator=st.sampled_from(["+", "-", "*"]),
    constant=numbers,
    inner=numbers,
    cell=values,
    default=values,
    keyword=numbers,
    rate=numbers,
    depth=st.integers(0, 2),
    name=st.sampled_from(["f", "g"]),
)

SOURCE = """
def make(cell, default, keyword):
    def {name}(x, y=default, *, z=keyword):
        def inner(w):
            return w {operator} {inner}
        return inner(x) {operator} {constant} + total((cell, y, z)) * rate
    return {name}

def total(value):
    if isinstance(value, (list, tuple)):
        return sum((i + 2) * total(item) for i, item in enumerate(value))
    return {{bool: 3, int: 5, float: 7}}[type(value)] * value + (1 if str(value) == "-0.0" else 0)

def nested(function):
    return lambda x: function(x)
"""


def build(recipe: Recipe) -> Callable[[Any], Any]:
    """Recreate the function, in a module of its own."""
    text = SOURCE.format(
        **recipe._replace(constant=repr(recipe.constant), inner=repr(recipe.inner))._asdict()
    )
    names: dict[str, Any] = {"__name__": "drawn", "rate": recipe.rate}
    exec(text, names)  # noqa: S102  # drawn sources
    made = names["make"](copied(recipe.cell), copied(recipe.default), recipe.keyword)
    for _ in range(recipe.depth):
        made = names["nested"](made)
    return made


def copied(value: Any) -> Any:
    """Return equal lists and tuples that are other objects."""
    if isinstance(value, list | tuple):
        return type(value)(map(copied, value))
    return value


def exact(value: Any) -> Any:
    """Return what tells a value from all others, types included."""
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(exact, value))
    return type(value).__name__, repr(value)


def same(one: Any, other: Any) -> bool:
    """Return whether two functions are one key."""
    return bool(jax.tree.structure(Step(1.0, one)) == jax.tree.structure(Step(1.0, other)))


@given(recipes, recipes)
def test_one_key_exactly_if_the_content_is_the_same(one: Recipe, other: Recipe) -> None:
    """Two functions are one key exactly if they were made from the same parts."""
    first, second = build(one), build(other)
    assert same(first, second) is (exact(tuple(one)) == exact(tuple(other)))
    assert same(first, build(one))
