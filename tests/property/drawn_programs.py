"""Programs as source text: functions that read many kinds of places, and changes of what is there.

Of each place it is known what a trace reads there, so that it is known when a program is stale.
"""

import dataclasses
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import leafwise as lw

NUMBERS: Final = (
    *("2.0", "0.5", "2", "True", "1", "1.0", "0.0", "-0.0", "float('nan')"),
    *("np.float32(2)", "np.float32(0.5)", "np.int8(2)"),
)

OBJECT: Final = "NAME = Thing(a=VALUE, b=1.0)"
OTHER: Final = "NAME.b = object()"


@dataclasses.dataclass(frozen=True)
class State:
    """What can be done to a place."""

    code: str  # the statement that does it
    found: str | None  # what a trace reads there then; None if that stays what it was


@dataclasses.dataclass(frozen=True)
class Place:
    name: str
    setup: str
    use: str
    states: tuple[State, ...]  # the first one is how it is made
    is_coarse: bool = False  # may count as changed though what a trace reads there has not


@dataclasses.dataclass(frozen=True)
class Simple:
    """A strategy of places that hold one value, which is VALUE in the code."""

    setup: str
    use: str
    change: str
    noise: tuple[str, ...]

    def __call__(self, rng: Random, n: str) -> Place:
        first, *others = rng.sample(NUMBERS, 3)
        place = self.holding(first, n)
        change = self.change.replace("NAME", n)
        found = (first, *others, first)
        states = tuple(State(change.replace("VALUE", each), each) for each in found)
        quiet = tuple(State(each.replace("NAME", n), None) for each in self.noise)
        return dataclasses.replace(place, states=states + quiet)

    def holding(self, value: str, n: str) -> Place:
        setup = self.setup.replace("NAME", n).replace("VALUE", value)
        return Place(n, setup, self.use.replace("NAME", n), ())


def _simple(setup: str, use: str, change: str, *noise: str) -> Simple:
    return Simple(setup, use, change, noise)


def _held(setup: str, use: str, *noise: str) -> Simple:
    """Return a strategy of places in an attribute of an object that has another one."""
    return Simple(setup, use, "NAME.a = VALUE", (OTHER, *noise))


def _listed(
    setup: str, use: str, *states: tuple[str, str | None]
) -> Callable[[Random, str], Place]:
    """Return a strategy of places with these states, each with what is read then."""

    def place(_rng: Random, n: str) -> Place:
        fill: Callable[[str], str] = lambda text: text.replace("NAME", n)  # noqa: E731
        made = tuple(State(fill(code), found) for code, found in states)
        return Place(n, fill(setup), fill(use), made)

    return place


PLACES: Final[dict[str, Any]] = {  # which draw a place of a name
    "global": _simple("NAME = VALUE", "NAME", "NAME = VALUE"),
    "cell": _simple(
        "def make_NAME():\n"
        "    NAME = VALUE\n"
        "    def get():\n"
        "        return NAME\n"
        "    def put(value):\n"
        "        nonlocal NAME\n"
        "        NAME = value\n"
        "    return get, put\n"
        "get_NAME, put_NAME = make_NAME()",
        "get_NAME()",
        "put_NAME(VALUE)",
    ),
    "attribute": _held(OBJECT, "NAME.a"),
    "rebound object": _simple(OBJECT, "NAME.a", OBJECT, OTHER),
    "slot": _simple("NAME = Slotted(VALUE)", "NAME.a", "NAME.a = VALUE", "NAME.b = 3.0"),
    "chain": _simple(
        "NAME = Thing(t=Thing(a=VALUE))",
        "NAME.t.a",
        "NAME.t.a = VALUE",
        "NAME.b = 2",
        "NAME.t.b = 2",
    ),
    "class attribute": _held("class NAME:\n    a, b = VALUE, 1.0", "NAME.a"),
    "inherited": _simple(
        "class OfNAME(Thing):\n    a = VALUE\nNAME = OfNAME()",
        "NAME.a",
        "OfNAME.a = VALUE",
        OTHER,
        "OfNAME.b = 2",
    ),
    "shadowed": _held("class OfNAME(Thing):\n    a = VALUE\nNAME = OfNAME()", "NAME.a"),
    "property": _simple(
        "class OfNAME(Thing):\n    @property\n    def a(self):\n        return self.raw\n"
        "NAME = OfNAME(raw=VALUE)",
        "NAME.a",
        "NAME.raw = VALUE",
        OTHER,
        "OfNAME.b = 2",
    ),
    "descriptor": _simple(
        "class OfNAME(Thing):\n    a = Factor(VALUE)\nNAME = OfNAME(b=1)",
        "NAME.a",
        "vars(OfNAME)['a'].factor = VALUE",
        OTHER,
        "vars(OfNAME)['a'].other = 2",
    ),
    "method": _held(
        "class OfNAME(Thing):\n    def get(self, k=1):\n        return self.a\n"
        "NAME = OfNAME(a=VALUE)",
        "NAME.get()",
        "OfNAME.unused = lambda self: self.b",
    ),
    "super": _held(
        "class OfNAME(Thing):\n    def get(self):\n        return self.a\n"
        "class SubNAME(OfNAME):\n    def get(self):\n        return super().get()\n"
        "NAME = SubNAME(a=VALUE)",
        "NAME.get()",
    ),
    "callable": _held(
        "class OfNAME(Thing):\n    def __call__(self):\n        return self.a\n"
        "NAME = OfNAME(a=VALUE)",
        "NAME()",
    ),
    "argument": _simple(
        OBJECT + "\ndef of_NAME(it, k):\n    return it.a", "of_NAME(NAME, 1)", OBJECT, OTHER
    ),
    "keyword argument": _held(
        OBJECT + "\ndef of_NAME(k, *, it):\n    return it.a", "of_NAME(1, it=NAME)"
    ),
    "argument of an argument": _held(
        OBJECT
        + "\ndef inner_NAME(it):\n    return it.a\n"
        + "def of_NAME(it, k):\n    return inner_NAME(it)",
        "of_NAME(NAME, 1)",
    ),
    "argument of a method": _held(
        OBJECT + "\nclass OfNAME:\n    def get(self, it):\n        return it.a\nby_NAME = OfNAME()",
        "by_NAME.get(NAME)",
        "by_NAME.x = 2",
    ),
    "default that an inner function reads": _held(
        OBJECT + "\ndef get_NAME(it=NAME):\n    return (lambda: it.a)()", "get_NAME()"
    ),
    "wrapped function": _held(
        OBJECT
        + "\ndef around_NAME(fn):\n    @functools.wraps(fn)\n"
        + "    def wrapper(*args, **kwargs):\n        return fn(*args, **kwargs)\n"
        + "    return wrapper\n@around_NAME\ndef of_NAME(k, it):\n    return it.a",
        "of_NAME(1, it=NAME)",
    ),
    "item": _simple(
        "NAME = {'a': VALUE, 'b': 1}", "NAME['a']", "NAME['a'] = VALUE", "NAME['b'] = 2"
    ),
    "get": _simple(
        "NAME = {'a': VALUE, 'b': 1}", "NAME.get('a', 9.0)", "NAME['a'] = VALUE", "NAME['b'] = 2"
    ),
    "index": _simple("NAME = [1.0, VALUE]", "NAME[1]", "NAME[1] = VALUE", "NAME[0] = 2"),
    "whole list": _simple("NAME = [1.0, VALUE]", "sum(NAME)", "NAME[1] = VALUE"),
    "whole tuple": _simple("NAME = (1.0, VALUE)", "sum(NAME)", "NAME = (1.0, VALUE)"),
    "whole dict": _simple("NAME = {'a': VALUE}", "sum(NAME.values())", "NAME['a'] = VALUE"),
    "whole object": _simple(
        "NAME = Thing(a=VALUE)", "vars(NAME)['a']", "NAME.a = VALUE", "NAME = Thing(**vars(NAME))"
    ),
    "default": _simple(
        "def NAME(k=VALUE):\n    return k", "NAME()", "NAME.__defaults__ = (VALUE,)"
    ),
    "keyword default": _simple(
        "def NAME(*, k=VALUE):\n    return k", "NAME()", "NAME.__kwdefaults__ = dict(k=VALUE)"
    ),
    "partial": _simple(
        "NAME = functools.partial(second, 1, b=VALUE)", "NAME()", "NAME.keywords['b'] = VALUE"
    ),
    "partial of an object": _held(
        OBJECT + "\npart_NAME = functools.partial(lambda it: it.a, NAME)", "part_NAME()"
    ),
    "module": _simple(
        "MODULE.NAME = VALUE",
        "of_module_NAME()",
        "MODULE.NAME = VALUE",
        "MODULE.another_NAME = 2",
    ),
    "name of a module": _simple(
        "MODULE.NAME = VALUE",
        "from_module_NAME()",
        "MODULE.NAME = VALUE",
        "MODULE.another_NAME = 2",
    ),
    "getattr": _held(OBJECT, "getattr(NAME, 'a', 7.0)", "NAME.c = 3"),
    "numpy": _listed(
        "NAME = np.full(2, 2.0, np.float32)",
        "NAME[0]",
        ("NAME = np.full(2, 2.0, np.float32)", "2.0"),
        ("NAME = np.full(2, 2, np.int8)", "2"),
        ("NAME = np.full(2, float('nan'), np.float32)", "nan"),
    ),
    "numpy in place": _listed(
        "NAME = np.full(2, 2.0, np.float32)",
        "NAME.sum()",
        ("NAME[:] = 2.0", "2.0"),
        ("NAME[:] = 0.5", "0.5"),
        ("NAME[:] = -0.0", "-0.0"),
        ("NAME[:] = 0.0", "0.0"),
    ),
    "jax": _listed(
        "NAME = jnp.full((), 2.0)",
        "NAME",
        ("NAME = jnp.full((), 2.0)", "2.0"),
        ("NAME = jnp.full((), 0.5)", "0.5"),
        ("NAME = jnp.full((), 2.0, jnp.float32)", "2.0 and not weak"),
    ),
    "key that may be missing": _listed(
        "NAME = {}\ndef get_NAME():\n    try:\n        k = NAME['a']\n"
        "    except KeyError:\n        k = 1.0\n    return k",
        "get_NAME()",
        ("NAME.pop('a', None)", "nothing"),
        ("NAME['a'] = 2.0", "2.0"),
        ("NAME['a'] = 0.5", "0.5"),
        ("NAME['b'] = object()", None),
    ),
    "attribute that may be missing": _listed(
        "NAME = Thing()\ndef get_NAME():\n    try:\n        return NAME.a\n"
        "    except AttributeError:\n        return 1.0",
        "get_NAME()",
        ("vars(NAME).pop('a', None)", "nothing"),
        ("NAME.a = 2.0", "2.0"),
        ("NAME.a = 0.5", "0.5"),
        (OTHER, None),
    ),
    "global that may be missing": _listed(
        "def get_NAME():\n    try:\n        return NAME\n    except NameError:\n        return 1.0",
        "get_NAME()",
        ("globals().pop('NAME', None)", "nothing"),
        ("NAME = 2.0", "2.0"),
        ("NAME = 0.5", "0.5"),
    ),
    "hasattr": _listed(
        "NAME = Thing()",
        "(2.0 if hasattr(NAME, 'a') else 3.0)",
        ("vars(NAME).pop('a', None)", "no"),
        ("NAME.a = 2.0", "yes"),
        ("NAME.a = 3.0", "yes"),
        (OTHER, None),
    ),
    "in": _listed(
        "NAME = {}",
        "(2.0 if 'a' in NAME else 3.0)",
        ("NAME.pop('a', None)", "no"),
        ("NAME['a'] = 2.0", "yes"),
        ("NAME['a'] = 3.0", "yes"),
        ("NAME['b'] = 3.0", None),
    ),
    "is None": _listed(
        "NAME = Thing(a=None)",
        "(2.0 if NAME.a is None else 3.0)",
        ("NAME.a = None", "yes"),
        ("NAME.a = Thing(b=1)", "no"),
        ("NAME.a = 2.0", "no"),
        (OTHER, None),
    ),
    "is": _listed(
        "one_NAME = [1]\nNAME = one_NAME",
        "(2.0 if NAME is one_NAME else 3.0)",
        ("NAME = one_NAME", "yes"),
        ("NAME = list(one_NAME)", "no"),
        ("one_NAME.append(1)", None),
    ),
    "sharing": _listed(
        "shared_NAME = [1]\nNAME = [shared_NAME, shared_NAME]",
        "(2.0 if len({id(k) for k in NAME}) == 1 else 3.0)",
        ("NAME[1] = NAME[0]", "one"),
        ("NAME[1] = list(NAME[0])", "two"),
    ),
    "order of a dict": _listed(
        "NAME = {'a': 2.0, 'b': 3.0}",
        "functools.reduce(lambda k, v: k * 2 + v, NAME.values())",
        ("NAME['b'] = NAME.pop('b')", "a, b"),
        ("NAME['a'] = NAME.pop('a')", "b, a"),
    ),
    "order of an OrderedDict": _listed(
        "NAME = collections.OrderedDict(a=2.0, b=3.0)",
        "functools.reduce(lambda k, v: k * 2 + v, NAME.values())",
        ("NAME.move_to_end('b')", "a, b"),
        ("NAME.move_to_end('a')", "b, a"),
    ),
    "set": _listed(
        "NAME = {1}",
        "(2.0 if type(next(iter(NAME))) is int else 3.0)",
        ("NAME.clear(); NAME.add(1)", "1"),
        ("NAME.clear(); NAME.add(True)", "True"),
        ("NAME.clear(); NAME.add(1.0)", "1.0"),
    ),
    "function that is bound again": _listed(
        "def one_NAME(k):\n    return k * 2.0\ndef by_NAME(k):\n    return k * 3.0\n"
        "NAME = one_NAME",
        "NAME(1.5)",
        ("NAME = one_NAME", "2.0"),
        ("NAME = by_NAME", "3.0"),
    ),
    "method of a class": _listed(
        "class OfNAME:\n    def get(self):\n        return 2.0\nNAME = OfNAME()\n"
        "kept_NAME = OfNAME.get",
        "NAME.get()",
        ("OfNAME.get = kept_NAME", "2.0"),
        ("OfNAME.get = lambda self: 3.0", "3.0"),
        ("OfNAME.other = lambda self: 3.0", None),
    ),
    "property of a class": _listed(
        "class OfNAME:\n    @property\n    def a(self):\n        return 2.0\nNAME = OfNAME()\n"
        "kept_NAME = OfNAME.a",
        "NAME.a",
        ("OfNAME.a = kept_NAME", "2.0"),
        ("OfNAME.a = property(lambda self: 3.0)", "3.0"),
    ),
    "method of what is made": _listed(
        "class NAME:\n    def get(self):\n        return 2.0\nkept_NAME = NAME.get",
        "NAME().get()",
        ("NAME.get = kept_NAME", "2.0"),
        ("NAME.get = lambda self: 3.0", "3.0"),
    ),
    "class of an object": _listed(
        "class OneNAME(Thing):\n    def get(self):\n        return 2.0\n"
        "class TwoNAME(Thing):\n    def get(self):\n        return 3.0\nNAME = OneNAME()",
        "NAME.get()",
        ("NAME.__class__ = OneNAME", "2.0"),
        ("NAME.__class__ = TwoNAME", "3.0"),
        (OTHER, None),
    ),
    "singledispatch": _listed(
        "@functools.singledispatch\ndef NAME(k):\n    return 2.0\n"
        "kept_NAME = NAME.dispatch(object)",
        "NAME(1)",
        ("NAME.register(object, kept_NAME)", "2.0"),
        ("NAME.register(object, lambda k: 3.0)", "3.0"),
    ),
}

MISSED: Final = frozenset({"class of an object", "is", "sharing"})
"""The kinds of places that only an exact check sees change: `docs/how-to/captures.md` has them."""
COARSE: Final = frozenset({"get", "hasattr", "in", "is None"})
"""The kinds of which more counts than what a trace reads there."""

# How a function is written, of an expression that reads, and of `x`.
WAYS: Final[dict[str, str]] = {
    "plain": "def NAME(x):\n    return EXPR",
    "jit": "@jax.jit\ndef NAME(x):\n    return EXPR",
    "jit of a lambda": "NAME = jax.jit(lambda x: EXPR)",
    "lw.jit": "@lw.jit(on_stale='retrace')\ndef NAME(x):\n    return EXPR",
    "checkpoint": "@jax.checkpoint\ndef NAME(x):\n    return EXPR",
    "checkpoint of jit": "@jax.checkpoint\n@jax.jit\ndef NAME(x):\n    return EXPR",
    "named_call": "@functools.partial(jax.named_call, name='k')\ndef NAME(x):\n    return EXPR",
    "scan": (
        "def body_NAME(x, _):\n    return EXPR, None\n"
        "def NAME(x):\n    return jax.lax.scan(body_NAME, x, None, length=1)[0]"
    ),
    "fori": (
        "def body_NAME(i, x):\n    return EXPR\n"
        "def NAME(x):\n    return jax.lax.fori_loop(0, 1, body_NAME, x)"
    ),
    "while": (
        "def body_NAME(pair):\n    x, n = pair\n    return EXPR, n + 1\n"
        "def NAME(x):\n"
        "    return jax.lax.while_loop(lambda pair: pair[1] < 1, body_NAME, (x, 0))[0]"
    ),
    "cond": (
        "def yes_NAME(x):\n    return EXPR\n"
        "def NAME(x):\n    return jax.lax.cond(x[0] < 99, yes_NAME, lambda x: x, x)"
    ),
    "inner": (
        "def NAME(x):\n    def inner(y):\n        x = y\n        return EXPR\n    return inner(x)"
    ),
    "inner jit": "def NAME(x):\n    return jax.jit(lambda x: EXPR)(x)",
    "comprehension": "def NAME(x):\n    return [EXPR for _ in range(1)][0]",
    "method": (
        "class OfNAME:\n    def run(self, x):\n        return EXPR\n"
        "made_NAME = OfNAME()\ndef NAME(x):\n    return made_NAME.run(x)"
    ),
    "jitted method": (
        "class OfNAME:\n    def run(self, x):\n        return EXPR\nNAME = jax.jit(OfNAME().run)"
    ),
    "object": ("class OfNAME:\n    def __call__(self, x):\n        return EXPR\nNAME = OfNAME()"),
    "partial": "NAME = jax.jit(functools.partial(lambda k, x: EXPR, 1.0))",
    "in a list": (
        "every_NAME = [jax.jit(lambda x: EXPR)]\ndef NAME(x):\n    return every_NAME[0](x)"
    ),
    "in a dict": (
        "every_NAME = {'f': (jax.jit(lambda x: EXPR),)}\n"
        "def NAME(x):\n    for f in every_NAME['f']:\n        x = f(x)\n    return x"
    ),
    "attribute": (
        "holder_NAME = Thing(f=jax.jit(lambda x: EXPR))\ndef NAME(x):\n    return holder_NAME.f(x)"
    ),
    "vmap": "NAME = jax.vmap(jax.jit(lambda x: EXPR))",
    "grad": (
        "grad_NAME = jax.jit(lambda x: EXPR)\n"
        "def NAME(x):\n    return x + jax.grad(lambda y: grad_NAME(y).sum())(x)"
    ),
    "custom_jvp": (
        "@jax.custom_jvp\ndef NAME(x):\n    return EXPR\n"
        "NAME.defjvp(lambda p, t: (NAME(p[0]), t[0]))"
    ),
    "custom_vjp": (
        "@jax.custom_vjp\ndef NAME(x):\n    return EXPR\n"
        "NAME.defvjp(lambda x: (NAME(x), None), lambda _, g: (g,))"
    ),
}

PRELUDE: Final = """
class Thing:
    def __init__(self, **held):
        vars(self).update(held)

class Slotted:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a

class Factor:
    def __init__(self, factor):
        self.factor = factor
    def __get__(self, instance, owner):
        return self if instance is None else self.factor

def second(a, b):
    return b
"""


@dataclasses.dataclass(frozen=True)
class Program:
    source: str
    places: dict[str, Place]
    read: frozenset[str]  # the names of places that the main function reads

    def build(self, **names: Any) -> "Built":
        """Run the text, with names of its own, and these."""
        name = f"drawn_settings_{next(_COUNT)}"
        module = types.ModuleType(name)
        space: dict[str, Any] = {
            "__name__": "drawn_program",
            "MODULE": module,
            "jax": jax,
            "jnp": jnp,
            "np": np,
            "lw": lw,
            "functools": functools,
            "collections": __import__("collections"),
            **names,
        }
        sys.modules[name] = module
        exec(_compiled(self.source.replace("SETTINGS", name)), space)  # noqa: S102  # ours
        return Built(self, space, name)


_COUNT: Final = itertools.count()


def _compiled(source: str) -> types.CodeType:
    return compile(source, "<drawn program>", "exec")


@dataclasses.dataclass(frozen=True)
class Built:
    program: Program
    space: dict[str, Any]
    module: str

    @property
    def function(self) -> Any:
        return self.space["function"]

    def change(self, code: str) -> None:
        exec(_compiled(code), self.space)  # noqa: S102  # ours

    def close(self) -> None:
        del sys.modules[self.module]


def built_of(place: Place, way: str) -> Built:
    """Return a program whose main function reads one place, and is written in this way."""
    return program_of([place], way, f"x + x * {place.use}").build()


def program_of(places: Iterable[Place], way: str, expression: str) -> Program:
    """Return a program whose main function has this expression, and is written in this way."""
    named = {place.name: place for place in places}
    function = way.replace("EXPR", expression).replace("NAME", "function")
    return Program("\n".join([*_setup(named), function]), named, frozenset(named))


def _setup(places: dict[str, Place]) -> Iterator[str]:
    yield PRELUDE
    for name, place in places.items():
        yield place.setup
        if "MODULE" in place.setup:
            yield _OF_MODULE.replace("NAME", name)


def draw_program(rng: Random, without: frozenset[str] = frozenset()) -> Program:
    places: dict[str, Place] = {}
    for number in range(rng.randint(1, 5)):
        name, kind = f"p{number}", rng.choice(sorted(PLACES.keys() - without))
        place = PLACES[kind](rng, name)
        places[name] = dataclasses.replace(place, is_coarse=kind in COARSE)
    source = [*_setup(places)]
    reads: dict[str, set[str]] = {}
    loops: set[str] = set()  # the helpers that JAX cannot differentiate in reverse
    count = rng.randint(0, 4)
    for number in range(count + 1):
        name, way = "function", "plain"
        if number < count:
            name, way = f"h{number}", rng.choice(sorted(WAYS))
        chosen = set(rng.choices(sorted(places), k=rng.randint(0, 2)))
        called = set(rng.choices(sorted(reads), k=rng.randint(0, 2))) if reads else set()
        if way == "vmap":  # where `x` has no axis
            called = set()
        if way == "grad":
            called -= loops
        if way == "while" or called & loops:
            loops.add(name)
        terms = ["x", *[f"x * {places[each].use}" for each in sorted(chosen)]]
        terms += [f"{helper}(x)" for helper in sorted(called)]
        source.append(WAYS[way].replace("EXPR", " + ".join(terms)).replace("NAME", name))
        reads[name] = chosen.union(*(reads[helper] for helper in called))
    return Program("\n".join(source), places, frozenset(reads["function"]))


_OF_MODULE: Final = """
def of_module_NAME():
    import SETTINGS
    return SETTINGS.NAME

def from_module_NAME():
    from SETTINGS import NAME as k
    return k
"""


def outcomes(value: Any) -> tuple[Any, ...]:
    """Return what is equal for results of one type and the same bits."""
    found = np.asarray(value)
    return found.dtype, found.shape, found.tobytes()


def draw_change(rng: Random, program: Program) -> tuple[str, State]:
    name = rng.choice(sorted(program.places))
    return name, rng.choice(program.places[name].states)
