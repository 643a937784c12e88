"""Construction: who may assign what, and when."""

import copy
import dataclasses
import functools
import re
import textwrap
import types
from dataclasses import InitVar
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("name", ["x", "a", "new", "__leafwise_key__", "__class__"])
def test_frozen_after_construction(name: str, slots: bool) -> None:
    """Neither fields nor anything else can be set or deleted afterwards."""

    @lw.pytree(slots=slots)
    class P:
        x: Any
        a: lw.Static[int] = 1

    p = P(1.0)
    for change in (lambda: setattr(p, name, 2), lambda: delattr(p, name)):
        with pytest.raises(lw.errors.FrozenInstanceError, match=rf"P\.{name}\b.*frozen") as error:
            change()
        assert isinstance(error.value, dataclasses.FrozenInstanceError)
    assert (p.x, p.a) == (1.0, 1)


def test_post_init_may_assign_and_use_jax_on_itself() -> None:
    """It may assign fields, and the key follows; before and after, an instance can be flattened."""
    seen: list[Any] = []

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

        def __post_init__(self) -> None:
            seen.append(jax.tree.leaves(self))
            seen.append(jax.jit(lambda p: p.x + p.a)(self))
            self.x = self.x + 1
            self.a = self.a * 10

    p = P(2.0, 2)
    assert seen == [[2.0], 4.0]
    assert (p.x, p.a) == (3.0, 20)
    assert jax.tree.structure(p) != jax.tree.structure(P(2.0, 3))
    assert jax.jit(lambda p: p.x + p.a)(p) == 23.0


@pytest.mark.hazard
@pytest.mark.parametrize(
    ("way", "words"),
    [
        (lambda self: self.twice, r"its own method twice, .*\n  fix: call self\.twice instead"),
        (lambda self: self, r"the instance itself, .*\n  fix: leave act out"),
        (lambda self: (1, self), "it contains the"),
        (lambda self: [self.twice], "it contains its"),
        (lambda self: {"a": self.twice}, "it contains its"),
    ],
    ids=["method", "itself", "tuple", "list", "dict"],
)
def test_a_field_that_leads_back(way: Any, words: str) -> None:
    """Nor can a tree contain itself: JAX would flatten until the process dies."""

    @lw.pytree
    class Model:
        act: Any = None

        def __post_init__(self) -> None:
            self.act = way(self)

        def twice(self) -> None: ...

    with pytest.raises(lw.errors.TreeError, match=rf"^Model\.act: {words}"):
        Model()


@lw.pytree
class Env:
    w: Any
    dt: lw.Static[float] = 0.1
    size: lw.Static[int] = 8


def test_vars_are_a_tree_of_the_fields() -> None:
    """`vars` of an instance is compared by leaves, as users of flax do; the key is not a leaf."""
    one, same, other = (vars(Env(jnp.ones(2), size=size)) for size in (1, 1, True))
    assert [path for path, _ in jax.tree.leaves_with_path(one)] == [(jax.tree_util.DictKey("w"),)]
    assert jax.tree.structure(one) == jax.tree.structure(same) != jax.tree.structure(other)
    chex.assert_trees_all_close(one, same)
    assert jax.jit(lambda tree: tree)(one)["w"].shape == (2,)


@pytest.mark.parametrize("slots", [False, True])
def test_a_wrapper_that_forwards(slots: bool) -> None:
    """While an instance is unfinished, its `__getattr__` gives no key of what it wraps."""

    class Forwards:
        env: Env

        def __getattr__(self, name: str) -> Any:
            return getattr(self.env, name)

    @lw.pytree(slots=slots)
    class Wrapper(Forwards):
        env: Env
        scale: lw.Static[int] = 2
        extra: lw.Static[int] = lw.static_field(init=False)

        def __post_init__(self) -> None:
            self.extra = self.scale * 10

    made = Wrapper(Env(1.0), 3)
    copies = [made, copy.copy(made), copy.deepcopy(made), lw.replace(made, env=Env(2.0))]
    assert [(each.scale, each.extra, each.dt) for each in copies] == [(3, 30, 0.1)] * 4

    @lw.pytree(slots=slots)
    class Own(Forwards):
        env: Env
        scale: lw.Static[int]

        def __init__(self, env: Env, scale: int) -> None:
            self.env = env
            self.scale = scale

    assert (Own(Env(1.0), 3).scale, Own(Env(1.0), 3).size) == (3, 8)


# The body of a class `P`, an expression, and its value.
ROWS: dict[str, tuple[str, str, Any]] = {
    "a static's default, read in an own constructor": (
        "x: Any\na: lw.Static[int] = 3\ndef __init__(self): self.x = self.a * 2.0",
        "P().x, P().a, jax.tree.leaves(P())",
        (6.0, 3, [6.0]),
    ),
    "InitVar of a text": (
        "mode: InitVar[str]\nx: Any = 1.0\ndef __post_init__(self, mode): self.x = len(mode)",
        "P('abc').x",
        3,
    ),
    "ClassVar of a text": (
        "x: Any\nk: ClassVar[str] = 'k'",
        "P(1).k, jax.tree.leaves(P(1))",
        ("k", [1]),
    ),
    "InitVars in replace": (
        "x: Any\nby: InitVar[int]\na: lw.Static[int] = 1\nplus: InitVar[int] = 0\n"
        "def __post_init__(self, by, plus): self.x = self.x * by + plus",
        "lw.replace(P(2, 3, plus=1), by=1, plus=0).x, jax.tree.leaves(P(2, 3))",
        (7, [6]),
    ),
    "cached_property": (
        "x: Any\n@functools.cached_property\ndef twice(self): return [self.x] * 2",
        "(p := P(2)).twice is p.twice, jax.tree.leaves(p), lw.replace(p, x=5).twice, p == P(2)",
        (True, [2], [5, 5], True),
    ),
    "converted defaults": (
        "x: Any = lw.field(default=1, converter=float)\n"
        "y: Any = lw.static_field(default_factory=lambda: 2, converter=str)\n"
        "z: Any = lw.field(default=3, init=False, converter=float)",
        "repr(P())",
        "P(x=1.0, y='2', z=3.0)",
    ),
    "a converter runs once in a subclass": (
        "x: Any = lw.field(converter=lambda v: [v])\n@classmethod\n"
        "def below(cls, **body): return lw.pytree(type('Q', (cls,), body))",
        "P(1).x, P.below()(1).x, P.below(__init__=lambda self: P.__init__(self, 1))().x",
        ([1], [1], [1]),
    ),
    "user code runs at construction alone": (
        "runs: ClassVar = []\nx: Any = lw.field(converter=lambda v: P.runs.append('c') or v)\n"
        "def __post_init__(self): self.runs.append('p')",
        "jax.tree.map(abs, jax.jit(lambda p: p)(P(1.0))).x, P.runs",
        (1.0, ["c", "p"]),
    ),
    "a verdict that is traced": (
        "x: Any = lw.field(validator=lambda x: x > 0)",
        "jax.jit(lambda v: P(v).x)(-1.0)",
        -1.0,
    ),
    "defaults are frozen": (
        "a: Any = lw.static_field(default_factory=lambda: {'k': [1]}, freeze=True)\n"
        "b: Any = lw.static_field(init=False, default_factory=list, freeze=True)",
        "P().a == lw.FrozenMapping(k=(1,)), P().b",
        (True, ()),
    ),
    "a plain class in between": (
        "x: Any\n@classmethod\ndef below(cls):\n"
        "    between = type('Between', (cls,), {'twice': lambda self: self.x * 2})\n"
        "    return lw.pytree(type('Q', (between,), {'__annotations__': {'y': Any}}))",
        "P.below()(1.0, 3.0).twice(), jax.tree.leaves(P.below()(1.0, 3.0))",
        (2.0, [1.0, 3.0]),
    ),
    "the repr of an unfinished instance": (
        "x: Any\ny: Any = lw.field(init=False)\ndef __post_init__(self): self.y = repr(self)",
        "P(0.5).y",
        "P(x=0.5, y=<uninitialised>)",
    ),
    "asdict": (
        "x: Any\na: lw.Static[int] = 1",
        "dataclasses.asdict(P([P(0.5)])), dataclasses.astuple(P(P(0.5)))",
        ({"x": [{"x": 0.5, "a": 1}], "a": 1}, ((0.5, 1), 1)),
    ),
    "what the class itself has": (
        "x: Any = 1.0\nz: Any = lw.field(default_factory=list)\na: lw.Static[int] = 3",
        "P.x, hasattr(P, 'z'), type(P.a), P(z=5).z",
        (1.0, False, property, 5),
    ),
    "one field by keyword": ("a: int = lw.static_field(kw_only=True)\nx: Any", "P(1.0, a=2).a", 2),
    "a field that is not shown": (
        "x: Any\ny: Any = lw.field(default=1, repr=False)",
        "repr(P(0.5))",
        "P(x=0.5)",
    ),
    "a static that is not compared counts in the key": (
        "a: int = lw.static_field(compare=False)",
        "jax.tree.structure(P(1)) == jax.tree.structure(P(2))",
        False,
    ),
    "no fields": (
        "pass",
        "jax.tree.leaves(P()), P() == P(), type(jax.tree.map(abs, P())) is P",
        ([], True, True),
    ),
    "a converter makes a static hashable": (
        "a: Any = lw.static_field(converter=tuple)",
        "P([1, 2]).a",
        (1, 2),
    ),
    "a converter under an own constructor": (
        "x: Any = lw.field(converter=float)\ndef __init__(self): self.x = 1",
        "repr(P().x)",
        "1.0",
    ),
    "a converter of what __post_init__ sets": (
        "y: Any = lw.field(init=False, converter=float)\ndef __post_init__(self): self.y = 10",
        "repr(P().y)",
        "10.0",
    ),
    "super in __post_init__": (
        "x: Any\ndef __post_init__(self): self.x = self.x + 1\n"
        "@classmethod\ndef below(cls):\n    @lw.pytree\n    class Sub(cls):\n        y: Any\n"
        "        def __post_init__(self):\n            super().__post_init__()\n"
        "            self.y = self.y + self.x\n    return Sub(1, 1)",
        "P.below().x, P.below().y",
        (2, 3),
    ),
    "__init_subclass__": (
        "x: Any\ndef __init_subclass__(cls, tag=''): cls.tag = tag\n"
        "@classmethod\ndef below(cls):\n"
        "    return lw.pytree(types.new_class('Q', (cls,), {'tag': 't'}))",
        "P.below().tag, jax.tree.leaves(P.below()(1.0))",
        ("t", [1.0]),
    ),
    "own methods": (
        "x: Any\ndef __repr__(self): return 'mine'\ndef __eq__(self, other): return True\n"
        "def __hash__(self): return 7",
        "repr(P(1)), P(1) == P(2), hash(P(1))",
        ("mine", True, 7),
    ),
    "methods of a container": (
        "x: Any\ndef __len__(self): return 0\ndef __iter__(self): return iter(())\n"
        "def __bool__(self): raise TypeError",
        "P(1.0) == P(1.0), jax.tree.leaves(P(1.0)), repr(P(1.0))",
        (True, [1.0], "P(x=1.0)"),
    ),
    "own __new__": (
        "x: Any\nmade: ClassVar = []\ndef __new__(cls, *args):\n    cls.made.append(args)\n"
        "    return super().__new__(cls)",
        "jax.tree.map(abs, copy.copy(P(-1.0))).x, P.made",
        (1.0, [(-1.0,)]),
    ),
    "private names": (
        "__x: Any\n__a: lw.Static[int] = 1\ndef both(self): return self.__x, self.__a",
        "P(2.0).both(), jax.tree.map(lambda v: v + 1, P(2.0)).both()",
        ((2.0, 1), (3.0, 1)),
    ),
    "made in a program": ("x: Any\na: lw.Static[int] = 1", "jax.jit(lambda v: P(v, 3))(1.0).a", 3),
}


def defined(body: str) -> dict[str, Any]:
    """Return the names that a class `P` with this body, and expressions over it, need."""
    names = {module.__name__: module for module in (copy, dataclasses, functools, jax, types)}
    names |= {"__name__": __name__, "lw": lw, "Any": Any, "ClassVar": ClassVar, "InitVar": InitVar}
    exec(f"@lw.pytree\nclass P:\n{textwrap.indent(body, '    ')}", names)  # noqa: S102  # the rows
    return names


@pytest.mark.parametrize("name", ROWS)
def test_body_and_result(name: str) -> None:
    """What a class with this body does."""
    body, expression, expected = ROWS[name]
    assert eval(expression, defined(body)) == expected  # noqa: S307


# The body of a class `P`, an expression that is refused, and the words of the error.
REFUSED: dict[str, tuple[str, str, str]] = {
    "what is not a field": (
        "x: Any\ndef __post_init__(self): self.cache = {}",
        "P(1.0)",
        r"FrozenInstanceError: P\.cache is not a field.*`cache: Any = lw.field\(init=False\)`",
    ),
    "what is not a field, in a constructor": (
        "x: Any\ndef __init__(self): self.x = self.cache = 1.0",
        "P()",
        r"FrozenInstanceError: P\.cache is not a field.*P has x.*declare it: `cache: Any` in",
    ),
    "fields without a value": (
        "x: Any = lw.field(init=False)\ny: Any = lw.field(init=False)\n"
        "a: Any = lw.static_field(init=False)",
        "P()",
        r"DefinitionError: P\.x: the field has no value.*y, a",
    ),
    "a constructor that forgets its base": (
        "x: Any\n@classmethod\ndef below(cls):\n"
        "    return lw.pytree(type('Q', (cls,), {'__init__': lambda self: None}))",
        "P.below()()",
        r"DefinitionError: Q\.x.*fix: call super\(\).__init__\(\.\.\.\)",
    ),
    "a validator that says why": (
        "n: int = lw.static_field(default=1, validator=lambda n: n > 0 or 'must be positive')",
        "P(2).n, P(0)",
        r"FieldCheckError: P\.n: its validator <lambda> refused 0 \(int\): must be positive",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_body_and_error(name: str) -> None:
    """What a class with this body refuses, and what the error says."""
    body, expression, words = REFUSED[name]
    with pytest.raises(lw.errors.LeafwiseError) as error:
        eval(expression, defined(body))  # noqa: S307
    assert re.match(f"(?s){words}", f"{type(error.value).__name__}: {error.value}")
