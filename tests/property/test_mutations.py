"""Every change in place that can be made to a static value is found, and named by its path.

Values are drawn as nested tuples of a kind and its parts. `changes` knows nothing of how leafwise
reads values: it walks through one by its type, and yields what can be changed where.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import leafwise as lw

from .zoo import Recipe

EXAMPLES = {"thorough": 20_000}
many = settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 60))

Change = tuple[str, Callable[[], object]]


@lw.pytree
class Params:
    x: Any
    s: lw.Static[Any]


class Plain:
    """An object that compares by identity."""

    def __init__(self, *parts: Any) -> None:
        self.first, self.second = parts

    def method(self) -> None:
        """Have a method to bind."""


class Slotted:
    __slots__ = ("__private", "first")

    def __init__(self, *parts: Any) -> None:
        self.first, self.__private = parts


class Own:
    """An object that compares by an attribute."""

    def __init__(self, *parts: Any) -> None:
        self.first, self.second = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self is other

    def __hash__(self) -> int:
        return 7


class Text(str):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Record:
    """One that keeps more than its fields; it is hashed by none, so that they may be lists."""

    first: Any = dataclasses.field(hash=False)
    given: dataclasses.InitVar[Any] = None

    def __post_init__(self, given: Any) -> None:
        object.__setattr__(self, "second", given)


def function(*parts: Any) -> Any:
    held, default = parts

    def inner(x: Any, y: Any = default, *, z: Any = 2) -> Any:
        return x, y, z, held

    inner.note = 1  # type: ignore[attr-defined]
    return inner


def text(*parts: Any) -> Text:
    made = Text("t")
    made.first, made.second = parts
    return made


OWNERS: dict[str, Callable[..., Any]] = {
    "plain": Plain,
    "slotted": Slotted,
    "own": Own,
    "function": function,
    "method": lambda *parts: Plain(*parts).method,
    "partial": lambda a, b: functools.partial(print, Plain(a, 0), key=Plain(b, 1)),
    "tuple": lambda a, b: (Plain(a, 0), 1, (Plain(b, 1),)),
    "text": lambda a, b: text(Plain(a, b), 1),
    "record": lambda a, b: Record(Plain(a, 1), Plain(b, 2)),
}
"""What may be static, and may hold anything; it is the user's to keep as it is."""

HELD: dict[str, Callable[..., Any]] = {
    **OWNERS,
    "list": lambda *parts: [*parts, 1],
    "deque": lambda *parts: collections.deque(parts, 5),
    "dict": lambda a, b: {"k": a, 1: b},
    "ordered": lambda a, b: collections.OrderedDict(k=a, j=b),
    "factory": lambda a, b: collections.defaultdict(list, k=a, j=b),
    "set": lambda *_: {1, "a", 0.0},
    "array": lambda *_: np.array([0.0, 1.0]),
    "objects": lambda a, b: _object_array(a, b),
    "bytes": lambda *_: bytearray(b"ab"),
}
LEAVES = (1, True, 1.0, 0.0, -0.0, 0j, "a", b"a", None, (1, 2), (True, 2), np.float32(1))


def _object_array(*parts: Any) -> Any:
    made = np.empty(len(parts), object)
    made[:] = [Plain(part, 0) for part in parts]
    return made


def build(recipe: Recipe) -> Any:
    kind, *parts = recipe
    return LEAVES[parts[0]] if kind == "leaf" else HELD[kind](*map(build, parts))


leaves = st.tuples(st.just("leaf"), st.integers(0, len(LEAVES) - 1))
held = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(sorted(HELD)), inner, inner), max_leaves=6
)
recipes = st.tuples(st.sampled_from(sorted(OWNERS)), held, held)


def other(value: Any) -> Any:
    """Return a value that differs from a plain one, by what looks equal where it can."""
    if type(value) is float and value == 0:
        return -math.copysign(0.0, value)
    twins = {int: bool, bool: int, complex: lambda each: -each, np.float32: np.float64}
    if type(value) is int and value not in (0, 1):
        return value + 1
    return twins[type(value)](value) if type(value) in twins else [value]


def changes(value: Any, path: str, above: tuple[int, ...] = ()) -> Iterator[Change]:
    """Yield every change of a value that can be made in place, with the path to it."""
    if id(value) in above:
        return
    places = list(_places(value))
    for step, item, assign in places:
        yield path + step, functools.partial(assign, other(item))
        yield from changes(item, path + step, (*above, id(value)))
    yield from ((path, change) for change in _growth(value))


def _places(value: Any) -> Iterator[tuple[str, Any, Callable[[Any], object]]]:
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            if not isinstance(item, int | float | complex | str | bytes | None | np.generic):
                for step, part, assign in _places(item):
                    yield f"[{index}]{step}", part, assign
    elif isinstance(value, functools.partial):
        yield from _inside(".args[0]", value.args[0])
        yield from _items(value.keywords, ".keywords")
    elif callable(getattr(value, "__func__", None)):
        yield from _inside(".__self__", value.__self__)
    elif hasattr(value, "__code__"):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
            assign = functools.partial(setattr, cell, "cell_contents")
            yield f".__closure__[{name!r}]", cell.cell_contents, assign
        yield (
            ".__defaults__[0]",
            value.__defaults__[0],
            lambda new: setattr(value, "__defaults__", (new,)),
        )
        yield from _items(value.__kwdefaults__, ".__kwdefaults__")
        yield ".note", value.note, functools.partial(setattr, value, "note")
    elif isinstance(value, Plain | Own | Text | Record | Slotted):
        names = ["first", "_Slotted__private"] if isinstance(value, Slotted) else vars(value)
        for name in names:
            assign = functools.partial(object.__setattr__, value, name)
            yield f".{name}", getattr(value, name), assign
    elif isinstance(value, dict):
        yield from _items(value, "")
    elif isinstance(value, list | collections.deque) or _is_objects(value):
        for index, item in enumerate(value):
            yield f"[{index}]", item, functools.partial(value.__setitem__, index)


def _inside(step: str, value: Any) -> Iterator[tuple[str, Any, Callable[[Any], object]]]:
    for more, part, assign in _places(value):
        yield step + more, part, assign


def _items(named: dict[Any, Any], step: str) -> Iterator[tuple[str, Any, Callable[[Any], object]]]:
    for key, item in named.items():
        yield f"{step}[{key!r}]", item, functools.partial(named.__setitem__, key)


def _is_objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _growth(value: Any) -> Iterator[Callable[[], object]]:
    """Yield what changes a container itself: its length, its order, its keys and its bytes."""
    if isinstance(value, Plain):
        yield lambda: setattr(value, "third", 3)
        yield lambda: delattr(value, "first")
    elif isinstance(value, list | collections.deque | bytearray):
        yield lambda: value.append(3)
        yield value.clear
    elif isinstance(value, dict):
        yield lambda: value.update(new=1)
        yield value.clear
        yield lambda: value.update({key: value.pop(key) for key in list(value)[:1]})
        if 1 in value:
            yield lambda: value.update({True: value.pop(1)})
    elif isinstance(value, set):
        yield lambda: value.add(3)
        yield lambda: value.discard(1)
        yield lambda: (value.discard(1), value.add(True))
        yield lambda: (value.discard(0.0), value.add(-0.0))
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield lambda: value.__setitem__(0, -0.0)


@many
@given(recipes, st.randoms(use_true_random=False))
def test_every_change_is_named_with_its_path(recipe: Recipe, random: Any) -> None:
    """Nothing is found before the change, and the path to it stands in the message after it."""
    value = build(recipe)
    params = Params(1.0, value)
    path, change = random.choice(list(changes(value, "Params.s")))
    event(f"top: {recipe[0]}")
    with lw.debug.check_statics():
        jax.tree.structure(params)
        change()
        with pytest.raises(lw.errors.StaticMutatedError) as caught:
            jax.tree.structure(params)
    assert f"({path}" in str(caught.value)
