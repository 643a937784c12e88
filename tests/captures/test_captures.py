"""`lw.captures`: what is found, how it is treated, and what is refused."""

import functools
import gc
import io
import json
import operator
import pickle
import sys
import types
import weakref
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.processes import run_python

import leafwise as lw

RATE = 0.1
TABLE = np.ones((2, 3), np.float32)
SETTINGS: dict[str, Any] = {
    "rate": 0.5,
    "act": "tanh",
    "layers": [np.ones(4), 3.0],
    "sub": {"z": 1.0},
}
TEXT = "rate"
RAN: list[str] = []


class Config:
    CLIP = 1.5

    def __init__(self, rate: float = 0.25) -> None:
        self.rate = rate
        self._hidden = TABLE

    @property
    def scaled(self) -> Any:
        RAN.append("property")
        return self._hidden * RATE

    @functools.cached_property
    def cached(self) -> Any:
        RAN.append("cached property")
        return self._hidden

    @staticmethod
    def plain() -> float:
        return RATE

    @classmethod
    def made(cls) -> float:
        return cls.CLIP

    def method(self, x: Any) -> Any:
        return x * self.rate


CONFIG = Config()


@lw.pytree
class Params:
    w: Any
    depth: int = lw.static_field(default=2)

    def apply(self, x: Any) -> Any:
        return self.w * x * self.depth

    @jax.jit
    def jitted(self, x: Any) -> Any:
        return self.w * x


class Module(eqx.Module):
    w: Any
    depth: int = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        return self.w * x * self.depth


def rated(x: Any) -> Any:
    return RATE * x


def named(fn: Any) -> dict[str, str]:
    """Return the treatments of the captures, by name."""
    found = lw.captures(fn)
    return {each.name: each.treatment.value for each in found}


def outer(x: Any) -> Any:
    return rated(x) * CONFIG.rate


KINDS: dict[str, tuple[Any, str]] = {
    "int": (3, "literal"),
    "float": (0.5, "literal"),
    "numpy scalar": (np.float64(1e300), "literal"),
    "int of more than 32 bits": (2**40, "static"),
    "numpy array": (np.ones(1), "constant"),
    "jax array": (jnp.ones(2), "constant"),
    "key": (jax.random.key(0), "constant"),
    "ref": (jax.new_ref(jnp.ones(2)), "constant"),
    "array of objects": (np.array([None]), "static"),
    "dict": ({"a": 1, "b": "x"}, "pytree"),
    "dict that JAX cannot sort": ({"a": 1.0, 1: 2.0}, "pytree"),
    "shape": (jax.ShapeDtypeStruct((2,), "float32"), "static"),
    "object": (CONFIG, "static"),
    "jitted": (jax.jit(rated), "function"),
    "partial": (functools.partial(rated, 1.0), "function"),
    "pytree with statics": (Params(1.0), "pytree"),
    "module": (sys.modules[__name__], "module"),
    "dtype": (np.dtype("f4"), "static"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_values(kind: str) -> None:
    """Each kind of value is treated as JAX treats it."""
    value, wanted = KINDS[kind]
    found = lw.captures(lambda: value)
    assert [each.treatment.value for each in found if each.name == "value"] == [wanted]
    assert str(found)


def aliased(x: Any) -> Any:
    settings = SETTINGS
    sub = settings["sub"]
    return x * sub["z"]


def aliased_late(x: Any) -> Any:
    settings: Any = None
    for _ in (1, 2):
        if settings:
            x *= settings["rate"]
        settings = SETTINGS
    return x


W = jnp.ones(3)
OF_SELF = {"self.w": "constant", "self.depth": "literal"}
HELPER = lw.jit(rated)
HELPER(1.0)  # from now on it is checked
READS: dict[str, tuple[Any, dict[str, str]]] = {
    "attribute": (lambda x: x * CONFIG.rate, {"CONFIG.rate": "literal"}),
    "item": (lambda x: x * SETTINGS["rate"], {"SETTINGS['rate']": "literal"}),
    "unknown item": (lambda x: SETTINGS[x], {"SETTINGS": "pytree"}),
    "attribute of an array": (lambda x: x * TABLE.T, {"TABLE": "constant"}),
    "function": (outer, {"rated": "function", "CONFIG.rate": "literal", "RATE": "literal"}),
    "class method": (lambda: CONFIG.made(), {"CONFIG.made": "function", "Config.CLIP": "literal"}),
    "property": (lambda: CONFIG.scaled, {"CONFIG._hidden": "constant", "RATE": "literal"}),
    "cached property": (lambda: CONFIG.cached, {"CONFIG._hidden": "constant"}),
    "bound method": (CONFIG.method, {"self.rate": "literal"}),
    "partial": (functools.partial(outer, 2.0), {"x": "literal"}),
    "inner function": (lambda x: jax.vmap(lambda y: y * RATE)(x), {"RATE": "literal"}),
    "default": (lambda x, rate=0.5: x * rate, {"rate": "literal"}),
    "default that is not read": (lambda x, rate=0.5: x, {}),
    "get of a name": (lambda x: SETTINGS.get(x), {"SETTINGS": "pytree"}),
    "in a text": (lambda x: x if "r" in TEXT else 0, {"TEXT": "static"}),
    "local": (aliased, {"SETTINGS['sub']['z']": "literal"}),
    "local of a loop": (aliased_late, {"SETTINGS": "pytree"}),
    "lw.jit": (lambda x: HELPER(x), {"HELPER": "function", "RATE": "literal"}),
    "vmap of lw.jit": (jax.vmap(HELPER), {"RATE": "literal"}),
    "method of ours": (Params(W).apply, OF_SELF),
    "lw.jit of a method": (lw.jit(Params(W).apply), OF_SELF),
    "jitted method": (Params(W).jitted, {"self.w": "constant"}),
    "equinox": (Module(W, 2), OF_SELF),
    "method of equinox": (Module(W, 2).__call__, OF_SELF),
    "no attribute": (lambda: CONFIG.missing, {"CONFIG.missing": "static"}),
}


@pytest.mark.parametrize("kind", READS)
def test_ways_to_read(kind: str) -> None:
    """A place is named as the code spells the way to it, and no code of the user's runs."""
    fn, wanted = READS[kind]
    found = named(fn)
    assert str(lw.captures(fn))
    assert not RAN
    assert {name: found.get(name) for name in wanted} == wanted
    assert all(each.is_bound for each in lw.captures(fn)) == (kind != "no attribute")
    extra = found.keys() - wanted.keys() - {"RAN"}
    assert not extra or kind in ("partial", "class method")


def _wrapped(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


@jax.custom_vjp
def custom(x: Any) -> Any:
    return x


custom.defvjp(lambda x: (outer(x), None), lambda _, g: (g * SETTINGS["rate"],))


@functools.singledispatch
def dispatched(x: Any) -> Any:
    return x


dispatched.register(int, outer)

WRAPPERS: dict[str, Any] = {
    "jit": jax.jit(outer),
    "lw.jit": lw.jit(outer),
    "filter_jit": eqx.filter_jit(outer),
    "wraps": _wrapped(_wrapped(outer)),
    "partial": functools.partial(functools.partial(outer)),
    "custom_vjp": custom,
    "singledispatch": dispatched,
    "handed on": lambda xs: jax.lax.map(outer, xs),
    "in a list": lambda x, fs=[outer]: fs[0](x),
}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_wrappers_are_looked_through(kind: str) -> None:
    """What a wrapper leads to is found, once, and the wrapper's own parts are not."""
    found = named(WRAPPERS[kind])
    assert {"CONFIG.rate": "literal", "RATE": "literal"}.items() <= found.items()
    between = {"rated", "outer", "fn", "fs", "fs[0]", "SETTINGS['rate']"}
    assert found.keys() <= {"CONFIG.rate", "RATE", *between}


def test_where() -> None:
    """The place says what binds a value and where it is read, as text and as fields."""
    first = test_where.__code__.co_firstlineno
    local = 2.0

    def step(x: Any, scale: float = 3.0) -> Any:
        return local * scale * RATE * x

    found = {each.name: each.where for each in lw.captures(step)}
    file = step.__code__.co_filename
    assert found["local"][2:] == (file, first + 6, "step")
    assert str(found["local"]).startswith("closure of test_where, ")
    assert str(found["local"]).endswith(f"test_captures.py:{first + 6} by step")
    assert str(found["scale"]).startswith("default of step, ")
    given = {each.name: each.where for each in lw.captures(functools.partial(rated, 2.0))}
    assert str(given["x"]).startswith("argument of partial(rated), read at ")


def test_large_arrays() -> None:
    """Bytes are those of all arrays, each once, and from a size on there is a warning."""
    big = np.ones(300_000, np.float32)
    held = {"a": big, "b": [big, np.ones(2)]}
    owner = types.SimpleNamespace(deep=types.SimpleNamespace(w=big))

    def fn(x: Any) -> Any:
        return x, big, held, owner

    found = lw.captures(fn)
    assert [each.nbytes for each in found] == [1_200_000, 1_200_016, 1_200_000]
    assert found.total_nbytes == 1_200_016
    assert "warning: 1.14 MiB of captured arrays" in str(found)
    assert found[2].leaves == ((".deep.w", "constant"),)


def test_forms() -> None:
    """The table is aligned text, HTML that is escaped, a table for rich, and plain values."""
    from rich.console import Console

    markup = "<b>"

    def fn(x: Any) -> Any:
        return x, markup, TABLE, jnp.sin(x), len(x)

    found = lw.captures(fn)
    head, *rows = str(found).splitlines()
    assert {row.index(" static") for row in rows[:1]} == {head.index(" treatment")}
    assert "&lt;b&gt;" in found._repr_html_()
    assert "<b>" not in found._repr_html_()
    out = io.StringIO()
    Console(width=200, file=out).print(found)
    assert "TABLE" in out.getvalue()
    assert json.loads(json.dumps(found.as_dict()))["captures"][0]["treatment"] == "static"
    again = pickle.loads(pickle.dumps(lw.captures(rated)))  # noqa: S301
    assert str(again) == str(lw.captures(rated))


def test_what_is_not_callable_is_refused() -> None:
    """The message says what was wanted, and what it got."""
    for wrong in (3, None, (i for i in "ab"), Config()):
        with pytest.raises(TypeError, match=r"captures takes a function.*got"):
            lw.captures(wrong)  # type: ignore[arg-type]  # what is refused


def test_odd_callables() -> None:
    """Builtins, classes, recursion, generators and code without a source give answers."""
    assert not lw.captures(len)
    assert not lw.captures(dict(a=1).get)  # noqa: C408
    assert not lw.captures(operator.itemgetter(1))
    assert not named(jnp.sin)

    def again(x: Any) -> Any:
        return again(x - RATE) if x else other(x)

    def other(x: Any) -> Any:
        yield again(x)

    assert named(again) == {"again": "function", "RATE": "literal", "other": "function"}
    scope: dict[str, Any] = {"rate": 0.5}
    exec("def fn(x): return x * rate", scope)  # noqa: S102
    assert "global of <string>, read at <string>:1 by fn" in str(lw.captures(scope["fn"]))


def test_nothing_is_heard_or_kept() -> None:
    """Asking JAX is no trace for those who count, and the records keep nothing else alive."""
    array, key = jnp.ones(3), jax.random.key(1)

    def fn(x: Any) -> Any:
        return x * array, key

    with lw.watch() as log:
        found = lw.captures(fn)
    assert not log.events
    alive = weakref.ref(fn)
    del fn, found
    gc.collect()
    assert alive() is None


def test_inside_of_a_trace() -> None:
    """A tracer that is captured is a hidden argument of the inner program."""
    found: list[Any] = []

    @jax.jit
    def fn(x: Any) -> Any:
        found.append(lw.captures(lambda y: x * y)[0])
        return x

    fn(jnp.ones(3))
    assert found[0].treatment == "constant"
    assert found[0].nbytes == 12


def test_after_a_change() -> None:
    """What an `lw.jit` function has read in earlier traces it reads again, inside another, too."""
    own = {"rate": 1.0}

    @functools.partial(lw.jit, on_stale="retrace")
    def step(x: Any) -> Any:
        return x * own["rate"]

    for own["rate"] in (1.0, 2.0, 3.0):
        step(1.0)
        for fn in (step, jax.jit(lambda x: step(x))):
            values = {capture.name: capture.value for capture in lw.captures(fn, 1.0)}
            assert values["own['rate']"] == own["rate"]
    assert len(step.traces) == 3


@pytest.mark.nightly
def test_nothing_that_is_loaded_makes_jax_trace_again() -> None:
    """No module of leafwise changes JAX's configuration, as `jax.extend.core` does."""
    code = """
import importlib, pkgutil
import jax, leafwise as lw
traces = []
step = jax.jit(lambda p: [traces.append(1), p][1])
step(1.0)
names = [module.name for module in pkgutil.iter_modules(lw.__path__, "leafwise.")]
for name in names:  # not `walk_packages`, which imports packages of interop
    if name not in ("leafwise.interop", "leafwise.__main__"):
        names += [
            module.name
            for module in pkgutil.iter_modules(
                getattr(importlib.import_module(name), "__path__", []), f"{name}."
            )
        ]
print(lw.captures(lambda x: x * step))
step(1.0)
assert len(traces) == 1
"""
    run_python(code)
