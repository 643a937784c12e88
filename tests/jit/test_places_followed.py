"""Where a trace can read a value, a change there is seen; where it did not read, it is not."""

import enum
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import wrapt

import leafwise as lw

pytestmark = pytest.mark.hazard

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types


class Thing:
    """An object that holds what it is given."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


class Scaled:
    """A descriptor with a state of its own."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else instance.raw * self.factor


class Set(Scaled):
    """The same, which also decides what is assigned."""

    def __set__(self, instance: Any, value: Any) -> None:
        instance.raw = value


def caught_key() -> tuple[Any, Any, Any]:
    config: dict[str, float] = {}

    def function(x: Any) -> Any:
        try:
            rate = config["rate"]
        except KeyError:
            rate = 1.0
        return x * rate

    return function, lambda: config.update(rate=2.0), lambda: config.update(other=2.0)


def removed_key() -> tuple[Any, Any, Any]:
    config = {"rate": 2.0}

    def function(x: Any) -> Any:
        try:
            return x * config["rate"]
        except KeyError:
            return x

    return function, config.clear, lambda: config.update(other=2.0)


def caught_index() -> tuple[Any, Any, Any]:
    rates: list[float] = []

    def function(x: Any) -> Any:
        try:
            return x * rates[0]
        except IndexError:
            return x

    return function, lambda: rates.append(2.0), None


def caught_attribute() -> tuple[Any, Any, Any]:
    thing: Any = Thing()

    def function(x: Any) -> Any:
        try:
            return x * thing.rate
        except AttributeError:
            return x

    return function, lambda: setattr(thing, "rate", 2.0), lambda: setattr(thing, "other", 2.0)


def getattr_default() -> tuple[Any, Any, Any]:
    thing = Thing()
    return (
        lambda x: x * getattr(thing, "rate", 1.0),
        lambda: setattr(thing, "rate", 2.0),
        lambda: setattr(thing, "other", 2.0),
    )


def has_attribute() -> tuple[Any, Any, Any]:
    thing: Any = Thing(other=1.0)
    return (
        lambda x: x * (2 if hasattr(thing, "rate") else 1),
        lambda: setattr(thing, "rate", 2.0),
        lambda: setattr(thing, "other", 2.0),
    )


def lost_attribute() -> tuple[Any, Any, Any]:
    thing: Any = Thing(rate=1.0)

    def change() -> None:
        del thing.rate

    return lambda x: x * (2 if hasattr(thing, "rate") else 1), change, None


def attribute_of_a_class() -> tuple[Any, Any, Any]:
    class Config:
        other = 1.0

    change: Any = lambda: setattr(Config, "rate", 2.0)  # noqa: E731
    return lambda x: x * getattr(Config, "rate", 1.0), change, lambda: setattr(Config, "other", 2.0)


def attribute_of_a_module() -> tuple[Any, Any, Any]:
    module = types.ModuleType("settings")
    change: Any = lambda: setattr(module, "rate", 2.0)  # noqa: E731
    return lambda x: x * getattr(module, "rate", 1.0), change, lambda: setattr(module, "a", 2.0)


def key_in() -> tuple[Any, Any, Any]:
    config = {"rate": 1.0}
    return lambda x: x * (2 if "rate" in config else 1), config.clear, None


def is_none() -> tuple[Any, Any, Any]:
    thing: Any = Thing(inner=Thing(rate=1.0))

    def function(x: Any) -> Any:
        return x if thing.inner is None else x * 2

    change: Any = lambda: setattr(thing, "inner", None)  # noqa: E731
    return function, change, lambda: setattr(thing.inner, "rate", 2.0)


def code() -> tuple[Any, Any, Any]:
    def helper(x: Any) -> Any:
        return x

    def other(x: Any) -> Any:
        return x * 2

    return lambda x: helper(x), lambda: setattr(helper, "__code__", other.__code__), None


def code_of_an_inner_jit() -> tuple[Any, Any, Any]:
    function, change, _ = code()
    inner = jax.jit(function)
    return lambda x: inner(x) + 1, change, None


def code_of_a_method() -> tuple[Any, Any, Any]:
    class Model:
        def step(self, x: Any) -> Any:
            return x

    model = Model()
    change: Any = lambda: setattr(Model.step, "__code__", (lambda self, x: x * 2).__code__)  # noqa: E731
    return lambda x: model.step(x), change, None


def defaults() -> tuple[Any, Any, Any]:
    def helper(x: Any, rate: float = 1.0) -> Any:
        return x * rate

    return lambda x: helper(x), lambda: setattr(helper, "__defaults__", (2.0,)), None


def keyword_defaults() -> tuple[Any, Any, Any]:
    def helper(x: Any, *, rate: float = 1.0) -> Any:
        return x * rate

    return lambda x: helper(x), lambda: setattr(helper, "__kwdefaults__", {"rate": 2.0}), None


def default_in_a_lambda() -> tuple[Any, Any, Any]:
    thing = Thing(rate=1.0)

    def helper(x: Any, it: Any = thing) -> Any:
        return jax.tree.map(lambda y: step(it, y), x)

    return lambda x: helper(x), lambda: setattr(thing, "rate", 2.0), None


def overridden_defaults() -> tuple[Any, Any, Any]:
    def helper(x: Any, rate: float = 1.0, *, more: float = 1.0) -> Any:
        return x * rate * more

    change: Any = lambda: setattr(helper, "__code__", (lambda x, r, *, more: x).__code__)  # noqa: E731
    return lambda x: helper(x, 2.0, more=1.5), change, None


def imported_module() -> tuple[Any, Any, Any]:
    module: Any = types.ModuleType("leafwise_test_settings")
    module.rate, module.other = 1.0, 1.0
    sys.modules[module.__name__] = module

    def function(x: Any) -> Any:
        import leafwise_test_settings as settings  # pyright: ignore[reportMissingImports]

        return x * settings.rate

    return function, lambda: setattr(module, "rate", 2.0), lambda: setattr(module, "other", 2.0)


def imported_name() -> tuple[Any, Any, Any]:
    _, change, same = imported_module()

    def function(x: Any) -> Any:
        from leafwise_test_settings import rate  # pyright: ignore[reportMissingImports]

        return x * rate

    return function, change, same


def imported_function() -> tuple[Any, Any, Any]:
    _, change, same = imported_module()
    module: Any = sys.modules["leafwise_test_settings"]
    code = compile("def scaled(x): return x * rate", "settings.py", "exec")
    exec(code, vars(module))  # noqa: S102

    def function(x: Any) -> Any:
        from leafwise_test_settings import scaled  # pyright: ignore[reportMissingImports]

        return scaled(x)

    return function, change, same


def imported_again() -> tuple[Any, Any, Any]:
    function, _, _ = imported_module()

    def change() -> None:
        module: Any = types.ModuleType("leafwise_test_settings")
        module.rate = 2.0
        sys.modules[module.__name__] = module

    return function, change, None


def of_a_descriptor(kind: Any) -> tuple[Any, Any, Any]:
    descriptor = kind(1.0)
    holder: Any = type("Holder", (Thing,), {"rate": descriptor})(raw=1.0, other=1.0)
    change: Any = lambda: setattr(descriptor, "factor", 2.0)  # noqa: E731
    return lambda x: x * holder.rate, change, lambda: setattr(holder, "other", 2.0)


def what_a_descriptor_reads() -> tuple[Any, Any, Any]:
    holder: Any = type("Holder", (Thing,), {"rate": Set(1.0)})(raw=1.0)
    return lambda x: x * holder.rate, lambda: setattr(holder, "raw", 2.0), None


def replaced_descriptor() -> tuple[Any, Any, Any]:
    cls: Any = type("Holder", (Thing,), {"rate": Set(1.0)})
    holder = cls(raw=1.0)
    return lambda x: x * holder.rate, lambda: setattr(cls, "rate", Set(2.0)), None


def property_of_a_class() -> tuple[Any, Any, Any]:
    cls: Any = type("Holder", (Thing,), {"rate": property(lambda self: self.raw)})
    holder = cls(raw=1.0)
    change: Any = lambda: setattr(cls, "rate", property(lambda self: self.raw * 2))  # noqa: E731
    return lambda x: x * holder.rate, change, lambda: setattr(cls, "other", 1)


def method_of_a_class() -> tuple[Any, Any, Any]:
    cls: Any = type("Model", (), {"step": lambda self, x: x})
    model = cls()
    change: Any = lambda: setattr(cls, "step", lambda self, x: x * 2)  # noqa: E731
    return lambda x: model.step(x), change, lambda: setattr(cls, "other", 1)


def method_of_a_base() -> tuple[Any, Any, Any]:
    base: Any = type("Base", (), {"step": lambda self, x: x})
    model: Any = type("Model", (base,), {})()
    change: Any = lambda: setattr(base, "step", lambda self, x: x * 2)  # noqa: E731
    return lambda x: model.step(x), change, None


def method_of_what_the_function_makes() -> tuple[Any, Any, Any]:
    cls: Any = type("Model", (), {"step": lambda self, x: x})
    change: Any = lambda: setattr(cls, "step", lambda self, x: x * 2)  # noqa: E731
    return lambda x: cls().step(x), change, None


def method_of_a_base_of_what_the_function_makes() -> tuple[Any, Any, Any]:
    base: Any = type("Base", (), {"step": lambda self, x: x})
    cls: Any = type("Model", (base,), {})
    change: Any = lambda: setattr(base, "step", lambda self, x: x * 2)  # noqa: E731
    return lambda x: cls().step(x), change, None


def overriding_method() -> tuple[Any, Any, Any]:
    base: Any = type("Base", (), {"step": lambda self, x: x})
    cls: Any = type("Model", (base,), {})
    model = cls()
    change: Any = lambda: setattr(cls, "step", lambda self, x: x * 2)  # noqa: E731
    return lambda x: model.step(x), change, None


def method_of_an_instance() -> tuple[Any, Any, Any]:
    model: Any = type("Model", (), {"step": lambda self, x: x})()
    return lambda x: model.step(x), lambda: setattr(model, "step", lambda x: x * 2), None


def shadowed_class_attribute() -> tuple[Any, Any, Any]:
    cls: Any = type("Model", (Thing,), {"rate": 1.0})
    model = cls()
    return lambda x: x * model.rate, lambda: setattr(model, "rate", 2.0), None


def unshadowed_class_attribute() -> tuple[Any, Any, Any]:
    cls: Any = type("Model", (Thing,), {"rate": 2.0})
    model = cls(rate=1.0)
    change: Any = lambda: delattr(model, "rate")  # noqa: E731
    return lambda x: x * model.rate, change, lambda: setattr(cls, "rate", 2.0)


def class_assignment() -> tuple[Any, Any, Any]:
    one: Any = type("One", (), {"step": lambda self, x: x})
    other: Any = type("Other", (), {"step": lambda self, x: x * 2})
    model = one()
    return lambda x: model.step(x), lambda: setattr(model, "__class__", other), None


def class_assignment_of_a_whole() -> tuple[Any, Any, Any]:
    one: Any = type("One", (), {"step": lambda self, x: x})
    other: Any = type("Other", (), {"step": lambda self, x: x * 2})
    models = [one()]
    change: Any = lambda: setattr(models[0], "__class__", other)  # noqa: E731
    return lambda x: sum(each.step(x) for each in models), change, None


def attribute_that_becomes_a_property() -> tuple[Any, Any, Any]:
    cls: Any = type("Model", (Thing,), {})
    model = cls(rate=1.0)
    change: Any = lambda: setattr(cls, "rate", property(lambda self: 2.0))  # noqa: E731
    return lambda x: x * model.rate, change, None


def attribute_of_another_object() -> tuple[Any, Any, Any]:
    model: Any = Thing(rate=1.0)

    def change() -> None:
        nonlocal model
        model = type("Other", (), {"rate": property(lambda self: 2.0)})()

    return lambda x: x * model.rate, change, None


def registered_later() -> tuple[Any, Any, Any]:
    @functools.singledispatch
    def scaled(x: Any) -> Any:
        return x

    change: Any = lambda: scaled.register(object, lambda x: x * 2)  # noqa: E731
    return lambda x: scaled(x), change, None


def registered_again() -> tuple[Any, Any, Any]:
    @functools.singledispatch
    def scaled(x: Any) -> Any:
        return x * 0

    scaled.register(object, lambda x: x)
    change: Any = lambda: scaled.register(object, lambda x: x * 2)  # noqa: E731
    return lambda x: scaled(x), change, None


class Slotted:
    """An object without a dict."""

    __slots__ = ("fn",)

    def __init__(self, fn: Any) -> None:
        self.fn = fn


class Chain:
    """Calls what its items hold."""

    def __init__(self, *layers: Any) -> None:
        self.layers = layers

    def __call__(self, x: Any) -> Any:
        for each in self.layers:
            x = each.fn(x)
        return x


class Act(enum.Enum):
    """Members with methods."""

    LINEAR = 1

    def scaled(self, x: Any) -> Any:
        return x * rate

    @property
    def rate(self) -> Any:
        return rate


rate = 1.0


def by_rate(x: Any) -> Any:
    return x * rate


ITEMS = [Thing(fn=by_rate, nested=[Thing(fn=by_rate)])]
SLOTTED, CHAINS = [Slotted(by_rate)], (Chain(*ITEMS),)
HELD: dict[str, Callable[[Any], Any]] = {
    "item of a list": lambda x: next(each.fn(x) for each in ITEMS),
    "item of a dict": lambda x: next(each.fn(x) for each in {"a": ITEMS[0]}.values()),
    "reduced": lambda x: functools.reduce(lambda y, each: each.fn(y), ITEMS, x),
    "by a name that is made up": lambda x: getattr(ITEMS[0], "f" + "n")(x),
    "deep in an item": lambda x: next(each.fn(x) for item in ITEMS for each in item.nested),
    "slot": lambda x: next(each.fn(x) for each in SLOTTED),
    "in an item that is called": lambda x: next(f(x) for f in CHAINS),
    "in a sequence of equinox": eqx.nn.Sequential([eqx.nn.Lambda(by_rate)]),
    "method of a member of an enum": Act.LINEAR.scaled,
    "method of a member by name": lambda x: Act.LINEAR.scaled(x),
    "property of a member": lambda x: x * Act.LINEAR.rate,
}


def held(kind: str) -> tuple[Any, Any, Any]:
    globals()["rate"] = 1.0
    return HELD[kind], lambda: globals().update(rate=2.0), None


DISPATCHED: dict[str, Callable[[Any, Any], Any]] = {
    "an instance": lambda held, x: held.scaled(x),
    "a class method": lambda held, x: held.of_class(x),
    "the class": lambda held, x: type(held).of_class(x),
    "the class, given an instance": lambda held, x: type(held).scaled(held, x),
    "an instance made inside": lambda held, x: type(held)().scaled(x),
}


def dispatched(kind: str, how: str) -> tuple[Any, Any, Any]:
    factor = 1.0

    class Held:
        rate = 1.0

        @functools.singledispatchmethod
        def scaled(self, x: Any) -> Any:
            return x * self.rate * factor

        @scaled.register
        def _(self, x: int) -> Any:
            return ONES * x

        @functools.singledispatchmethod
        @classmethod
        def of_class(cls, x: Any) -> Any:
            return x * cls.rate * factor

    def change() -> None:
        nonlocal factor
        if how == "a name":
            factor = 2.0
        else:
            Held.rate = 2.0

    held, call = Held(), DISPATCHED[kind]
    return lambda x: call(held, x) + 1, change, lambda: setattr(held, "other", object())


def step(it: Any, x: Any, *, k: float = 1.0) -> Any:
    """Read one attribute of what it is given."""
    return x * it.rate * k


class Stepper:
    """Steps in ways of its own."""

    def __call__(self, it: Any, x: Any) -> Any:
        return step(it, x)

    def method(self, it: Any, x: Any) -> Any:
        return self.deeper(x, it=it.inner)

    def deeper(self, x: Any, *, it: Any) -> Any:
        return x * it.rate

    @staticmethod
    def static(it: Any, x: Any) -> Any:
        return x * it.rate

    @classmethod
    def of_class(cls, it: Any, x: Any) -> Any:
        return x * it.rate


def decorated(fn: Any) -> Any:
    """Wrap a function as users do."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def norm(it: Any, x: Any) -> Any:
    """Call itself, as functions of trees do."""
    return x if it is None else norm(it.inner, x) * it.rate


STEPPER, PARTIAL, DECORATED = Stepper(), functools.partial(step, k=1.0), decorated(step)
PASSED: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "position": lambda tr: lambda x: step(tr, x),
    "name": lambda tr: lambda x: step(x=x, it=tr),
    "part": lambda tr: lambda x: step(tr.inner, x) * tr.rate,
    "jitted": lambda tr: jax.jit(lambda x: step(tr, x)),
    "local": lambda tr: lambda x: sum(step(tr, y) for y in (x,)),
    "object": lambda tr: lambda x: STEPPER(tr, x),
    "method": lambda tr: lambda x: STEPPER.method(tr, x) * tr.rate,
    "static method": lambda tr: lambda x: STEPPER.static(tr, x),
    "class method": lambda tr: lambda x: STEPPER.of_class(tr, x),
    "partial": lambda tr: lambda x: PARTIAL(tr, x),
    "partial of it": lambda tr: functools.partial(step, tr),
    "decorated": lambda tr: lambda x: DECORATED(tr, x, k=2.0),
    "itself": lambda tr: lambda x: norm(tr, x),
    "scan": lambda tr: lambda x: jax.lax.scan(lambda c, _: (step(tr, c), 0), x, None, 1)[0],
}


def passed(kind: str) -> tuple[Any, Any, Any]:
    tr: Any = Thing(rate=1.0, other=1.0, inner=Thing(rate=1.0, other=2.0, inner=None))

    def unread() -> None:
        tr.other = tr.inner.other = object()

    return PASSED[kind](tr), lambda: setattr(tr, "rate", 2.0), unread


def of_builtin(base: Any, given: Any) -> tuple[Any, Any, Any]:
    """Read by an operator and a method of a class that derives from a builtin."""
    rates = [1.0]

    class Derived(base):
        def __matmul__(self, x: Any) -> Any:
            return rates[0] * x

        def scaled(self, x: Any) -> Any:
            return self @ x

    one, two = Derived(given), Thing(it=Derived(given))
    function = lambda x: (one @ x) * min([two], key=id).it.scaled(x)  # noqa: E731
    return function, lambda: rates.__setitem__(0, 2.0), lambda: rates.append(3.0)


BUILTINS: dict[Any, Any] = {float: 1.5, str: "a", tuple: (1.0,), np.ndarray: 2, np.float32: 1.0}


class Weakly(Thing):
    rates = (1.0,)

    def scaled(self, x: Any) -> Any:
        return self.rate * self.rates[0] * x


WEAK: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "method of a proxy": (weakref.proxy, lambda weak, x: weak.scaled(x)),
    "referent": (weakref.ref, lambda weak, x: weak().scaled(x)),
    "weak method": (lambda it: weakref.WeakMethod(it.scaled), lambda weak, x: weak()(x)),
}


def weakly(kind: str, *, by_class: bool) -> tuple[Any, Any, Any]:
    it = Weakly(rate=1.0)
    make, call = WEAK[kind]
    weak = make(it)
    Weakly.rates = (1.0,)

    def change() -> None:
        setattr(*(Weakly, "rates", (2.0,)) if by_class else (it, "rate", 2.0))

    return lambda x: call(weak, x), change, None


def test_what_a_weak_proxy_leads_to_may_die() -> None:
    """It is not kept alive, and that it is dead is a change."""
    it = Thing(rate=2.0)
    weak = weakref.proxy(it)

    def function(x: Any) -> Any:
        try:
            return weak.rate * x
        except ReferenceError:
            return -x

    fresh = jit(function, stale="retrace")
    assert fresh(1.0) == 2.0
    del it
    gc.collect()
    assert fresh(1.0) == -1.0


CASES: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(caught_key, removed_key, caught_index, caught_attribute, getattr_default, has_attribute),
        *(lost_attribute, attribute_of_a_class, attribute_of_a_module, key_in, is_none),
        *(code, code_of_an_inner_jit, code_of_a_method, defaults),
        *(
            keyword_defaults,
            overridden_defaults,
            default_in_a_lambda,
            imported_module,
            imported_name,
        ),
        *(imported_function, imported_again, what_a_descriptor_reads, replaced_descriptor),
        *(property_of_a_class, method_of_a_class, method_of_a_base),
        *(method_of_what_the_function_makes, method_of_a_base_of_what_the_function_makes),
        *(overriding_method, method_of_an_instance, shadowed_class_attribute),
        *(unshadowed_class_attribute, class_assignment, class_assignment_of_a_whole),
        *(attribute_that_becomes_a_property, attribute_of_another_object, registered_later),
        registered_again,
    )
}
CASES.update({f"passed by {kind}": functools.partial(passed, kind) for kind in PASSED})
CASES |= {
    f"{how} of {kind}, dispatched": functools.partial(dispatched, kind, how)
    for kind in DISPATCHED
    for how in ("a name", "an attribute")
}
CASES |= {f"{kind}, held": functools.partial(held, kind) for kind in HELD}
CASES |= {
    f"methods of a {base.__name__}": functools.partial(of_builtin, base, given)
    for base, given in BUILTINS.items()
}
CASES |= {
    f"{kind}, {by_class}": functools.partial(weakly, kind, by_class=by_class)
    for kind in WEAK
    for by_class in (False, True)
}
CASES["descriptor"] = lambda: of_a_descriptor(Scaled)
CASES["data descriptor"] = lambda: of_a_descriptor(Set)


@pytest.fixture(autouse=True)
def modules_as_they_were() -> Iterator[None]:
    """Remove what tests put among the modules."""
    yield
    sys.modules.pop("leafwise_test_settings", None)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_a_change_is_seen(make: Callable[[], Any]) -> None:
    """What the trace did not read may change; what it did is stale, and a retrace takes it."""
    function, change, unread = make()
    strict = jit(function, stale="raise")
    old = strict(ONES)
    for _ in range(2):
        if unread is not None:
            unread()
        assert np.array_equal(strict(ONES), old)
    change()
    with pytest.raises(lw.errors.StaleCaptureError):
        strict(ONES)
    function, change, _ = make()
    fresh = jit(function, stale="retrace")
    fresh(ONES)
    change()
    with jax.disable_jit():
        wanted = function(ONES)
    assert not np.array_equal(wanted, old)
    for _ in range(2):
        assert np.array_equal(fresh(ONES), wanted)
    assert len(fresh.traces) == 2


class Times:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return self.by * x


class Plus(Times):
    def __call__(self, x: Any) -> Any:
        return self.by + x


def _set(held: Any, value: Any) -> None:
    held["it"] = held["ns"].it = value


def _by_another_name(held: Any) -> Any:
    def call(x: Any) -> Any:
        other = held["it"]
        return other(x)

    return call


CALLS: dict[str, Callable[[Any], Any]] = {
    "an item": lambda held: lambda x: held["it"](x),
    "an attribute": lambda held: lambda x: held["ns"].it(x),
    "another name": _by_another_name,
    "an inner function": lambda held: lambda x: jax.lax.map(lambda y: held["it"](y), x),
}
SWAPS: dict[str, Callable[[Any, pytest.MonkeyPatch], None]] = {
    "another class": lambda held, _: _set(held, Plus(3.0)),
    "a function": lambda held, _: _set(held, jnp.tanh),
    "its method": lambda _, patch: patch.setattr(Times, "__call__", lambda self, x: self.by - x),
    "the code": lambda _, patch: patch.setattr(
        Times.__call__, "__code__", Plus.__call__.__code__
    ),
}  # fmt: skip


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("way", CALLS)
def test_what_is_called_is_of_another_class(
    way: str, swap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is called is another one if its class has another ``__call__``."""
    held: Any = {"it": Times(3.0), "ns": types.SimpleNamespace()}
    held["ns"].it = held["it"]
    call = CALLS[way](held)
    step, stale = lw.jit(call, stale="retrace"), jax.jit(call)
    x = jnp.ones(2)
    assert [*step(x)] == [*stale(x)] == [3.0, 3.0]
    _set(held, Times(3.0))  # an equal one
    assert [*step(x)] == [3.0, 3.0]
    assert len(step.traces) == 1
    SWAPS[swap](held, monkeypatch)
    assert [*step(x)] == [*call(x)] != [*stale(x)]


pace = 1.0


@wrapt.decorator
def _logged(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


@_logged
def _scaled(x: Any) -> Any:
    return x * pace


class Own:
    rate = 1.0

    def scaled(self, x: Any) -> Any:
        return x * __class__.rate  # type: ignore[name-defined]  # its cell


def test_behind_a_wrapper_of_c_and_the_cell_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `wrapt` wraps is followed, and so is what ``__class__`` names in a method."""
    own = Own()
    for call in (lambda x: _scaled(x), lambda x: own.scaled(x)):
        step, stale = jit(call, stale="retrace"), jax.jit(call)
        assert step(1.0) == stale(1.0) == 1.0
        with monkeypatch.context() as patch:
            patch.setattr(Own, "rate", 2.0)
            patch.setitem(globals(), "pace", 2.0)
            assert (step(1.0), stale(1.0)) == (2.0, 1.0)


@pytest.mark.parametrize("name", ["__name__", "__qualname__"])
def test_the_name_of_a_class(name: str) -> None:
    """An object is of another class if its class is named otherwise, however that is asked."""
    held = [Times(1.0)]
    for read in (lambda it: getattr(type(it), name), lambda it: it.__class__.__name__):
        call = lambda x, read=read: x if read(held[0]) == "Times" else -x  # noqa: E731
        step, stale = jit(call, stale="retrace"), jax.jit(call)
        assert step(1.0) == stale(1.0) == 1.0
        held[0] = Plus(1.0)
        assert (step(1.0), stale(1.0)) == (-1.0, 1.0)
        held[0] = Times(1.0)
