"""Ways in which a function reads what it captures, and how that changes: a row for each.

The usual ways are those of `tests/property/drawn_programs.py`; here are those of libraries, of
classes and of arguments.
"""

import enum
import functools
import sys
import textwrap
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import wrapt
from tests.kit.things import Frozen, Model, Thing  # noqa: F401  # the rows name them

import leafwise as lw

ONES = jnp.ones(2)
rate, shift = 1.0, 0.0


class Row(NamedTuple):
    """The text of a kind: what a function reads, what it returns, and what changes then."""

    setup: str
    returned: str  # by a function of `x`; or its body; nothing where `setup` has `function`
    change: str
    other: str = ""  # a change of what it does not read
    name: str = ""  # what a report calls what it reads
    args: str = "ONES,"


class Below(Model):
    own = 1.0

    def of_cell(self) -> Any:
        return __class__.own


class Rates(NamedTuple):
    first: Any
    second: float = 1.0

    def scaled(self, x: Any) -> Any:
        return x * self.first * rate


class Dense(nn.Module):
    by: float

    def __call__(self, x: Any) -> Any:
        return x * self.by


@wrapt.decorator
def logged(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


def by_rate(x: Any) -> Any:
    return x * rate


def inside(it: Any, name: str) -> Any:
    """Read an attribute in a way that shows nobody which one it is."""
    return next(getattr(it, each) for each in dir(it) if each == name)


def settings() -> Any:
    """Make a module that can be imported."""
    module: Any = types.ModuleType("leafwise_test_settings")
    exec(compile("def scaled(x): return x * rate", "settings.py", "exec"), vars(module))  # noqa: S102
    sys.modules[module.__name__], module.rate = module, 1.0
    return module


RATE = "global rate; rate = 1.0"
NAMES = {
    "global": Row(RATE, "x * rate", "rate = 2.0", name="rate"),
    "cell": Row("own = 1.0", "x * own", "own = 2.0", name="own"),
    "helper by another name": Row("act = jnp.square", "act(x)", "act = jnp.exp2", name="act"),
    "partial": Row(
        "function = functools.partial(lambda x, own: x * own, own=1.0)",
        "",
        "function.keywords.update(own=2.0)",
        name="own",
    ),
    **{
        f"partial in {wrapper}": Row(
            "own = {'rate': 1.0}\n"
            "inner = functools.partial(lambda own, x: x * own['rate'], own)\n"
            f"held = {wrapper}(inner)",
            "held(x)",
            "own['rate'] = 2.0",
        )
        for wrapper in ("jax.vmap", "jax.checkpoint", "functools.wraps(by_rate)", "eqx.filter_vmap")
    },
    "wrapt": Row(f"{RATE}; held = logged(by_rate)", "held(x)", "rate = 2.0"),
    "module, imported again": Row(
        "settings()",
        "import leafwise_test_settings as it; return x * it.rate",
        "settings().rate = 2",
    ),
    "attribute that a module gets": Row(
        "get = lambda it: getattr(it, 'a', 1.0); it = types.ModuleType('it')",
        "x * get(it)",
        "it.a = 2.0",
        "it.b = 2.0",
        "it",
    ),
    "function of a module": Row(
        "module = settings()",
        "from leafwise_test_settings import scaled; return scaled(x)",
        "module.rate = 2.0",
        "module.other = 2.0",
    ),
}
IT = "it = Model(rate=1.0)"
OBJECTS = {
    "self": Row(f"{IT}; function = it.step", "", "it.rate = 2.0", name="self.rate"),
    "callable": Row(f"{IT}; function = it", "", "it.rate = 2.0", name="self.rate"),
    "static of ours": Row(
        "it = WithRule(1.0, (3, Model(rate=1.0)))",
        "x * inside(inside(it, 'rule')[1], 'rate')",
        "it.rule[1].rate = 2.0",
    ),
    "attribute of a module that may be missing": Row(
        "it = types.ModuleType('it')",
        "try: return x * it.a\nexcept AttributeError: return x",
        "it.a = 2.0",
        "it.b = 2.0",
    ),
}
CONTAINERS = {
    "frozen dataclass": Row(
        "held = [Frozen([1.0])]", "x * sum(held[0].act)", "held[0].act.append(1.0)"
    ),
    "named tuple": Row(
        "it = Rates(1.0)", "x * it.first", "it = Rates(2.0)", "it = Rates(1.0, 3.0)", "it.first"
    ),
    "method of a named tuple": Row(f"{RATE}; it = Rates(1.0)", "it.scaled(x)", "rate = 2.0"),
    "schedule of optax": Row(
        "import optax; make = optax.cosine_decay_schedule; it = make(0.1, 9)",
        "x * it(3)",
        "it = make(0.2, 9)",
        "it = make(0.1, 9)",
    ),
    "optimizer of optax": Row(
        "import optax\n"
        "make = lambda rate: optax.masked(optax.chain(optax.clip(1.0), optax.sgd(rate)), True)\n"
        "it = make(0.1)",
        "it.update(x, it.init(x), x)[0]",
        "it = make(0.2)",
        "it = make(0.1)",
    ),
    "linen": Row("it = Dense(1.0)", "it.apply({}, x)", "it = Dense(2.0)", "it = Dense(1.0)"),
    "equinox": Row(
        "it = eqx.nn.Linear(2, 2, key=jax.random.key(0))\n"
        "add = lambda n: eqx.tree_at(lambda it: it.bias, it, it.bias + n)",
        "it(x)",
        "it = add(1.0)",
        "it = add(0.0)",
    ),
}
STEPPING = "cls = type('Net', (Thing,), {'step': lambda self, x: x}); it = cls()"
INHERITED = "base = type('Base', (), {'step': lambda self, x: x}); cls = type('Net', (base,), {})"
CLASSES = {
    "item of a class attribute": Row(
        "cls = type('Net', (Thing,), {'rates': {'a': 1.0, 'b': 1.0}}); its = [cls()]",
        "x * its[0].rates['a']",
        "cls.rates = {'a': 2.0, 'b': 5.0}",
        "cls.other = 1",
    ),
    "method of an instance": Row(STEPPING, "it.step(x)", "it.step = lambda x: x * 2"),
    "method of a base": Row(
        f"{INHERITED}; it = cls()", "it.step(x)", "base.step = lambda self, x: x * 2"
    ),
    "method, overridden": Row(
        f"{INHERITED}; it = cls()", "it.step(x)", "cls.step = lambda self, x: x * 2"
    ),
    "cell of a class": Row("Below.own = 1.0; it = Below()", "x * it.of_cell()", "Below.own = 2.0"),
}
CLASSES |= {
    f"method of an argument, then {change}": Row(
        "@lw.pytree\nclass Cls:\n    base = 1.0\n    def step(self, x): return x * self.base",
        "it.step(x)",
        change,
        args="Cls(), ONES",
    )
    for change in ("Cls.base = 2.0", "Cls.step = lambda self, x: x * 2")
}

CLASSES |= {
    f"{body}, by {it or 'an argument'}": Row(
        f"{decorator}class Cls:\n"
        "    rate = other = 1.0\n"
        "    @staticmethod\n    def helper(x): return x\n"
        "    @classmethod\n    def of_class(cls, x): return x * cls.rate\n"
        f"    def step(self, x): {body}\n"
        f"{it}",
        "it.step(x)",
        "Cls.rate = 2.0; Cls.helper = lambda x: x * 2",
        "Cls.other = 3.0",
        args="ONES," if it else "Cls(), ONES",
    )
    for decorator, it in (("", "it = Cls()"), ("@lw.pytree\n", ""))
    for body in (
        "return x * type(self).rate",
        "cls = type(self); return x * cls.rate",
        "return sum(x * type(self).rate for _ in x)",
        "return type(self).helper(x)",
        "return type(self).of_class(x)",
        "cls = self.__class__; return x * cls.rate",
    )
}


class ByItem(dict[str, Any]):
    """A dict whose items are attributes, and which raises the wrong error."""

    __getattr__ = dict.__getitem__


class ItsOwnAttributes(dict[str, Any]):
    """A dict that is its own ``__dict__``."""

    def __init__(self, **held: Any) -> None:
        super().__init__(**held)
        self.__dict__ = self


OF_DICTS = {
    f"{returned} of {cls.__name__}": Row(
        f"it = {cls.__name__}(rate=1.0, inner={cls.__name__}(rate=1.0))",
        f"x * {returned}",
        "it['inner']['rate'] = 0.5" if "inner" in returned else "it['rate'] = 0.5",
    )
    for cls in (ByItem, ItsOwnAttributes, OrderedDict)
    for returned in ("it['rate']", "it['inner']['rate']", "it.rate", "it.inner.rate")
    if cls is not OrderedDict or "[" in returned
}


def scanned(function: Any) -> Any:
    return lambda x: jax.lax.scan(lambda c, _: (function(c), None), x, None, length=1)[0]


class Act(enum.Enum):
    LINEAR = 1

    def scaled(self, x: Any) -> Any:
        return x * rate

    @property
    def rate(self) -> Any:
        return rate


HELD = {
    f"held, {returned}": Row(
        "global rate; rate = 1.0; its = [Thing(fn=by_rate, nested=[Thing(fn=by_rate)])]\n"
        f"held = {made}",
        returned,
        "rate = 2.0",
    )
    for made, returned in (
        ("its", "next(each.fn(x) for each in held)"),
        ("eqx.nn.Sequential([eqx.nn.Lambda(by_rate)])", "held(x)"),
        ("None", "Act.LINEAR.scaled(x)"),
        ("None", "x * Act.LINEAR.rate"),
    )
}


def step(it: Any, x: Any, *, k: float = 1.0) -> Any:
    """Read one attribute of what it is given."""
    return x * it.rate * k


def norm(it: Any, x: Any) -> Any:
    """Call itself, as functions of trees do."""
    return x if it is None else norm(it.inner, x) * it.rate


PASSED = {
    f"passed, {returned}": Row(
        "it = Thing(rate=1.0, inner=Thing(rate=1.0, inner=None))",
        returned,
        "it.rate = 2.0",
        other="it.other = it.inner.other = object()",
    )
    for returned in (
        "jax.jit(lambda x: step(it, x))(x)",
        "sum(step(it, y) for y in (x,))",
        "norm(it, x)",
        "scanned(lambda x: step(it, x))(x)",
    )
}
CLASSES["object of another class, in its place"] = Row(
    "cls = type('Times', (Thing,), {'__call__': lambda self, x: self.rate * x})\n"
    "plus = type('Plus', (cls,), {'__call__': lambda self, x: self.rate + x})\n"
    "its = {'it': cls(rate=3.0)}",
    "its['it'](x)",
    "its['it'] = plus(rate=3.0)",
    "its['it'] = cls(rate=3.0)",  # an equal one
)


class Annotated:
    rate: float = 1.0
    unread: float = 1.0


@lw.pytree
class Params:
    w: Any
    unread: float = 1.0  # the default of a field
    rate: ClassVar[float] = 1.0


class Module(eqx.Module):
    w: Any
    unread: float = 1.0
    rate: ClassVar[float] = 1.0


def of_a_class(cls: str, it: str, returned: str, args: str = "ONES,") -> Row:
    setup = f"{cls}.rate = {cls}.unread = 1.0; it = {it}"
    return Row(setup, returned, f"{cls}.rate = 2.0", other=f"{cls}.unread = 3.0", args=args)


OF_CLASSES = {
    f"{cls} of {args}, {returned}": of_a_class(cls, f"{cls}(1.0)", returned, args)
    for args in ("ONES,", "it, ONES")
    for cls, returned in (
        ("Params", "x * it.rate"),
        ("Module", "x * it.rate"),
        ("Params", "jax.lax.map(lambda y: y * it.rate, x)"),
    )
} | {
    "items of a list": of_a_class(
        "Annotated", "[Annotated()]", "x * sum(each.rate for each in it)"
    ),
}


@lw.pytree
class Net:
    w: Any
    base = 2.0

    def __call__(self, x: Any) -> Any:
        return self.w * x * rate

    @property
    def weight(self) -> Any:
        return self.w * rate

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * rate

    @functools.cached_property
    def unused(self) -> Any:
        return shift

    def scaled(self, x: Any) -> Any:
        return self.w * x * rate


@lw.pytree
class Outer:
    inner: Any

    def __call__(self, x: Any) -> Any:
        return self.inner.scaled(x)


@lw.pytree
class Other:
    w: Any

    def __call__(self, x: Any) -> Any:
        return self.w * x + shift


class Rule:
    def __call__(self, x: Any) -> Any:
        return x * rate


@lw.pytree
class WithRule:
    w: Any
    rule: lw.Static[Any]


def helper(net: Any, x: Any) -> Any:
    return net.scaled(x)


ARGUMENTS = {
    f"{returned} of {it}": Row(
        f"global rate, shift; rate, shift = 2.0, 1.0; it = {it}",
        returned,
        "rate = 3.0",
        "shift = 7.0",  # which only code reads that nothing names
        "rate",
        "it, ONES",
    )
    for returned, it in (
        ("it(x)", "Net(ONES)"),
        ("it.weight * x", "Net(ONES)"),
        ("it.w * it.of_class(x)", "Net(ONES)"),
        ("it(x)", "Outer(Net(ONES))"),
        ("it['a'](x)", "{'a': Net(ONES)}"),
        ("sum(net(x) for net in it)", "[Net(ONES)]"),
        ("helper(it, x)", "Net(ONES)"),
        ("jax.vmap(it.scaled)(x)", "Net(jnp.float32(1))"),
        ("it.rule[0].act['f'](x)", "WithRule(ONES, (Frozen(lw.FrozenMapping(f=by_rate)),))"),
        ("it(x)", "Net(ONES).scaled"),
        ("it(x)", "jax.tree_util.Partial(by_rate)"),
    )
}
ROWS = NAMES | OBJECTS | CONTAINERS | CLASSES | OF_DICTS | HELD | PASSED
ROWS |= OF_CLASSES | ARGUMENTS
AT_NIGHT = {*ARGUMENTS, *CLASSES, *OF_CLASSES, *HELD}
"""The rows that take a third of the time, of libraries, classes and arguments."""


def run(row: Row) -> Iterator[Any]:
    """Yield the function and its arguments; once more after `other`; and end with the change."""
    body = row.returned if "return " in row.returned else f"return {row.returned}"
    parameters = "x" if row.args == "ONES," else "it, x"
    lines = [
        row.setup,
        f"def function({parameters}):\n{textwrap.indent(body, '    ')}" if row.returned else "",
        f"yield function, ({row.args})",
        f"{row.other}\nyield" if row.other else "",
        row.change,
    ]
    source = "def kind():\n" + textwrap.indent("\n".join(lines), "    ")
    made: dict[str, Any] = {}
    exec(compile(source, "kinds.py", "exec"), globals(), made)  # noqa: S102  # ours
    return made["kind"]()  # type: ignore[no-any-return]
