"""What `captures` reports is what JAX puts into the program, of generated functions."""

import functools
import types
from collections import Counter, namedtuple
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.core import Literal

import leafwise as lw
from leafwise._captures.captures import Captures, captures

Pair = namedtuple("Pair", ["one", "other"])  # noqa: PYI024  # as users write it


@lw.pytree
class Node:
    w: Any
    tag: str = lw.static_field(default="relu")

    def get(self) -> Any:
        return self.w


class Box:
    K: Any = None

    def __init__(self, v: Any) -> None:
        self.v = v
        self.decoy = np.full(7, 7.0)

    def get(self) -> Any:
        return self.v

    def __call__(self) -> Any:
        return self.get()

    @classmethod
    def made(cls) -> Any:
        return cls.K

    @property
    def seen(self) -> Any:
        return self.v


class _Module(eqx.Module):
    w: Any
    static: int = eqx.field(static=True, default=5)

    def __call__(self) -> Any:
        return self.w


class Slotted:
    __slots__ = ("decoy", "v")

    def __init__(self, v: Any) -> None:
        self.v = v
        self.decoy = 99.0


def _with_class_attribute(v: Any) -> type:
    return type("Holder", (Box,), {"K": v, "decoy": jnp.zeros(9)})


def _module(v: Any) -> types.ModuleType:
    module = types.ModuleType("settings")
    vars(module).update(v=v, decoy=5.0, box=Box(v))
    return module


LITERALS = (3, -7, True, False, 0.5, 2 + 1j, np.float32(1.5), np.int8(3), np.bool_(True))
LITERALS += (np.array(2.5), np.array(4, np.int16), ml_dtypes.bfloat16(2), 2**31 - 1)
ARRAYS: tuple[Callable[[], Any], ...] = (
    lambda: np.arange(3.0),
    lambda: np.ones((1, 2), np.float32),
    lambda: np.zeros((0,), np.int32),
    lambda: np.ones(2, ml_dtypes.bfloat16),
    lambda: jnp.array(1.5),
    lambda: jnp.asarray(1.5, jnp.float16),
    lambda: jnp.arange(4),
    lambda: jax.random.key(3),
    lambda: jax.random.split(jax.random.key(1), 2),
)
leaf_values = st.sampled_from(LITERALS) | st.sampled_from(ARRAYS).map(lambda make: make())
values = st.recursive(
    leaf_values,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, min_size=1)
        | st.tuples(inner, st.none())
        | st.builds(Pair, inner, inner)
        | st.builds(Node, inner)
    ),
    max_leaves=3,
)

# How a place is made and spelled: what is put under its name, and the expression that reads it.
HELD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "plain": (lambda v: v, "{n}"),
    "attribute": (Box, "{n}.v"),
    "slot": (Slotted, "{n}.v"),
    "chain": (lambda v: Box(Slotted(v)), "{n}.v.v"),
    "item": (lambda v: {"v": v, "decoy": 9.0}, "{n}['v']"),
    "index": (lambda v: Box([np.ones(8), v]), "{n}.v[1]"),
    "namedtuple": (lambda v: Pair(v, np.ones(6)), "{n}.one"),
    "method": (Box, "{n}.get()"),
    "call": (Box, "{n}()"),
    "property": (Box, "{n}.seen"),
    "class": (_with_class_attribute, "{n}.K"),
    "module": (_module, "{n}.v"),
    "module chain": (_module, "{n}.box.get()"),
    "node": (Node, "{n}.w"),
    "node method": (Node, "{n}.get()"),
    "node whole": (Node, "{n}"),
    "bound": (lambda v: Box(v).get, "{n}()"),
    "closure": (lambda v: lambda: v, "{n}()"),
    "in a container": (lambda v: {"fs": [lambda: v]}, "{n}['fs'][0]()"),
    "in a container of a container": (
        lambda v: {"fs": [(lambda: v,)]},
        "[f() for f in {n}['fs'][0]][0]",
    ),
    "class method": (_with_class_attribute, "{n}.made()"),
    "equinox": (_Module, "{n}()"),
    "checkpoint": (lambda v: jax.checkpoint(lambda: v), "{n}()"),
    "jitted": (lambda v: jax.jit(lambda: v), "{n}()"),
}
AROUND = (
    "{e}",
    "(lambda: {e})()",
    "[{e} for _ in range(1)][0]",
    "helper({e})",
    "({e} if x is x else 0)",
)
WHERE = ("global", "cell", "default", "keyword", "positional", "self")


def _wrapping(fn: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


WRAPPERS: tuple[Callable[..., Any], ...] = (
    lambda fn: fn,
    jax.jit,
    functools.partial(jax.named_call, name="step"),
    _wrapping,
    lambda fn: functools.partial(jax.jit(lambda f, x: f(x), static_argnums=0), fn),
    jax.tree_util.Partial,
)


@st.composite
def functions(draw: Any) -> Any:
    """Draw a function that uses everything that it captures, once."""
    names: dict[str, dict[str, Any]] = {where: {} for where in WHERE}
    uses: list[str] = []
    shared = draw(st.lists(values, min_size=1, max_size=2))
    for number in range(draw(st.integers(1, 5))):
        where = draw(st.sampled_from(WHERE))
        hold, spelled = HELD[draw(st.sampled_from(sorted(HELD)))]
        value = draw(values | st.sampled_from(shared))
        name = f"n{number}"
        names[where][name] = hold(value)
        expression = spelled.format(n=f"self.{name}" if where == "self" else name)
        uses.append(draw(st.sampled_from(AROUND)).format(e=expression))
    positional = ["self"] * bool(names["self"]) + list(names["positional"])
    defaults = [f"{name}={name}" for name in names["default"]]
    keywords = ["*", *names["keyword"]] if names["keyword"] else []
    parameters = ", ".join([*positional, "x", *defaults, *keywords])
    source = (
        f"def make({', '.join(names['cell'])}):\n"
        f"  def step({parameters}):\n"
        f"    return [x, {', '.join(f'*leaves({use})' for use in uses)}]\n"
        f"  return step\n"
    )
    scope = {"leaves": jax.tree.leaves, "helper": lambda value: value, "decoy": jnp.ones(5)}
    scope |= {"__name__": "generated", **names["global"], **names["default"]}
    exec(compile(source, "<generated>", "exec"), scope)  # noqa: S102  # the source is ours
    step = scope["make"](*names["cell"].values())
    for name in names["default"]:
        del scope[name]
    if names["self"]:
        receiver = type("Model", (), {"step": step, "decoy": 1.0})()
        vars(receiver).update(names["self"])
        step = receiver.step
    if names["positional"] or names["keyword"]:
        step = functools.partial(step, *names["positional"].values(), **names["keyword"])
    return draw(st.sampled_from(WRAPPERS))(step), source


def as_constant(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return what is equal for arrays of one dtype, shape and content."""
    array = value if isinstance(value, jax.Array) else jnp.asarray(np.asarray(value))
    dtype = str(array.dtype)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return dtype, array.shape, np.asarray(array).tobytes()


def _as_literal(value: Any) -> tuple[str, bool, complex]:
    aval = jax.typeof(value)
    weak = bool(getattr(aval, "weak_type", False))
    return str(aval.dtype), weak, complex(np.asarray(value, aval.dtype))


def _baked_in(closed: Any) -> tuple[dict[int, Any], list[Any]]:
    """Return the constants of a program and the literals that it puts out, inner ones as well."""
    jaxpr = getattr(closed, "jaxpr", closed)  # JAX 0.10 has jaxprs without constants in some places
    constants = {id(each): each for each in getattr(closed, "consts", ())}
    literals = [var.val for var in jaxpr.outvars if isinstance(var, Literal)]
    for equation in jaxpr.eqns:
        for inner in equation.params.values():
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                more = _baked_in(inner)
                constants |= more[0]
                literals += more[1]
    return constants, literals


def _reported(found: Captures) -> tuple[list[Any], list[Any]]:
    """Return the constants, each object once, and the literals that a report speaks of."""
    constants: dict[int, Any] = {}
    literals: list[Any] = []
    for each in found:
        held, treated = {"": each.value}, {"": each.treatment}
        if each.treatment == "pytree":
            pairs = jax.tree.leaves_with_path(each.value)
            held = {jax.tree_util.keystr(path): leaf for path, leaf in pairs}
            treated = {leaf.path: leaf.treatment for leaf in each.leaves}
            assert held.keys() == treated.keys()
        for path, treatment in treated.items():
            if treatment == "constant":
                constants[id(held[path])] = held[path]
            elif treatment == "literal":
                literals.append(held[path])
    return list(constants.values()), literals


@pytest.mark.slow
@given(functions())
def test_reports_agree_with_jaxprs(drawn: tuple[Callable[..., Any], str]) -> None:
    """The constants and literals of a jaxpr are those that the report names, and no others."""
    fn, source = drawn
    found = captures(fn)
    constants, literals = _reported(found)
    closed = jax.make_jaxpr(fn)(1.0)
    baked, written = _baked_in(closed)
    told = f"{source}\n{found}\n{closed}"
    expected = Counter(map(as_constant, baked.values()))
    assert Counter(map(as_constant, constants)) == expected, told
    assert Counter(map(_as_literal, literals)) == Counter(map(_as_literal, written)), told
