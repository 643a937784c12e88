"""A captured value is what it was only if types, bits, order, sharing and identity are."""

import dataclasses
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.things import Thing

import leafwise as lw

pytestmark = pytest.mark.hazard

jit: Any = lw.jit  # so that lambdas need no types


def shared(value: Any) -> list[Any]:
    return [value, value]


def sharding(*axes: str) -> Any:
    return jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P(*axes))


OTHERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "weak type": (lambda: jnp.array(1.0), lambda: jnp.float32(1.0)),
    "path": (lambda: Path("/a") / "b", lambda: Path("/a/c")),
    "sharding": (lambda: sharding("x"), lambda: sharding()),
    "sharing of lists": (lambda: shared([1]), lambda: [[1], [1]]),
    "sharing of objects": (lambda: shared(Thing(a=1)), lambda: [Thing(a=1), Thing(a=1)]),
    "sharing of arrays": (lambda: shared(np.ones(2)), lambda: [np.ones(2), np.ones(2)]),
}
# A class that is defined again, as by a cell of a notebook, and one of another name.
for name in ("One", "Other"):
    one, other = type("One", (), {}), type(name, (), {})
    OTHERS[f"class {name}"] = one, other
    OTHERS[f"class {name} in a list"] = (lambda one=one: [one()], lambda other=other: [other()])


@pytest.mark.parametrize("kind", OTHERS)
def test_what_differs_is_stale(kind: str) -> None:
    """Though `==` says that both are equal; a value that is made in the same way is no change."""
    first, second = OTHERS[kind]
    value = first()
    jitted = jit(lambda x: (x, repr(value))[0], on_stale="raise")
    jitted(1.0)
    value = first()
    jitted(1.0)
    value = second()
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)
    value = first()
    jitted(1.0)


IN_PLACE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "key": (lambda: {1: "a"}, lambda value: value.__setitem__(True, value.pop(1))),
    "sharing": (lambda: shared([1]), lambda value: value.__setitem__(1, [1])),
    "code": (
        lambda: [lambda x: x],
        lambda value: setattr(value[0], "__code__", (lambda x: x * 2).__code__),
    ),
    "bytearray": (lambda: bytearray(b"a"), lambda value: value.extend(b"b")),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_change_in_place_is_stale(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both values are equal, and the object is the same one."""
    if kind == "code":  # as by `%autoreload`
        monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    make, change = IN_PLACE[kind]
    value = make()
    jitted = jit(lambda x: (x, repr(value))[0], on_stale="raise")
    for _ in range(2):
        jitted(1.0)
    change(value)
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(1.0)


def twin(rate: float, name: str = "twin") -> Any:
    """Return a module with the same file and the same helper on the same line as any other."""
    module: Any = types.ModuleType(name)
    source = f"rate = {rate}\ndef scale(x): return x * rate"
    exec(compile(source, "twin.py", "exec"), vars(module))  # noqa: S102
    return module


def knob(k: float = 2.0) -> tuple[Any, Any]:
    """Return a function, and another one that changes what it holds."""

    def turn(value: float) -> None:
        nonlocal k
        k = value

    return lambda x: x * k, turn


def of_modules() -> Any:
    one, other = twin(2.0), twin(2.0)
    return one.scale, other.scale, functools.partial(setattr, other, "rate")


def of_closures(wrap: Callable[[Any], Any] = lambda function: function) -> Any:
    (one, _), (other, turn) = knob(), knob()
    return wrap(one), wrap(other), turn


RUNS: dict[str, Callable[[], Any]] = {
    "helpers of two modules": of_modules,
    "closures": of_closures,
    "closures in loops": lambda: of_closures(
        lambda f: lambda x: jax.lax.fori_loop(0, 1, lambda _, y: f(y), x)
    ),
    "closures behind a decorator": lambda: of_closures(
        lambda f: functools.wraps(f)(lambda x: f(x))
    ),
    "inner jitted functions": lambda: of_closures(jax.jit),
    "inner lw.jit functions": lambda: of_closures(jit),
}


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("kind", RUNS)
def test_a_run_is_not_taken_for_that_of_its_twin(kind: str, is_swapped: bool) -> None:
    """What the second one reads is captured, too, whichever of the two runs first."""
    one, other, turn = RUNS[kind]()
    first, then = (other, one) if is_swapped else (one, other)

    def both(x: Any) -> Any:
        return first(x) + 10 * then(x)

    plain, jitted = jax.jit(both), jit(both, on_stale="retrace")
    assert plain(1.0) == jitted(1.0) == jitted(1.0) == 22.0
    turn(5.0)
    with jax.disable_jit():
        right = both(1.0)
    assert plain(1.0) == 22.0 != right  # the hazard
    assert jitted(1.0) == right


def layer(k: float, *bases: type) -> type:
    return type("Layer", bases, {"go": lambda _, x: x * k} if k else {})


NOTEBOOK: dict[str, Any] = {"__name__": "__main__"}


def cells(factor: float, decorator: Any = lambda method: method) -> Any:
    """Run two cells of a notebook, of which the second inherits from a class of the first."""
    NOTEBOOK["decorator"] = decorator
    source = f"class B:\n    @decorator\n    def go(self, x): return x * {factor}"
    for cell in (source, "class M(B): pass"):
        exec(cell, NOTEBOOK)  # noqa: S102
    return NOTEBOOK["M"]


def with_rule(make: Any, slope: float) -> Any:
    """Return a function with a rule of its own for its derivative."""
    act = make(lambda x: x)
    define = act.defjvp if make is jax.custom_jvp else act.def_jvp
    define(lambda primals, tangents: (primals[0], tangents[0] * slope))
    return act


def with_backward(slope: float) -> Any:
    act = jax.custom_vjp(lambda x: x)
    act.defvjp(lambda x: (x, None), lambda _, cotangent: (cotangent * slope,))
    return act


@dataclasses.dataclass(slots=True)
class Slotted:
    k: float

    def go(self, x: Any) -> Any:
        return x * self.k


def gradient(function: Any, x: Any) -> Any:
    return jax.grad(lambda y: function(y))(x)


def tagged(k: float) -> Any:
    function: Any = functools.wraps(abs)(lambda x: x * function.k)
    function.k = k
    return function


def added(x: Any, y: Any) -> Any:
    return x.sum() * y


SQUARE = np.arange(4.0, dtype=np.float32).reshape(2, 2)
REBOUND: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any], Callable[[], Any]]] = {
    name: (call, functools.partial(make, 2.0), functools.partial(make, 3.0))
    for name, call, make in (
        ("function of a module", lambda it, x: it(x), lambda k: twin(k).scale),
        ("module", lambda it, x: it.scale(x), twin),
        ("class", lambda it, x: it().go(x), lambda k: layer(k)),
        ("class, cell run again", lambda it, x: it().go(x), cells),
        (
            "class with a jitted method",
            lambda it, x: it().go(x),
            functools.partial(cells, decorator=functools.partial(jax.jit, static_argnums=0)),
        ),
        ("base", lambda it, x: it().go(x), lambda k: layer(0, layer(k))),
        ("method of a class", lambda it, x: it.go(None, x), lambda k: layer(k)),
        ("custom_jvp", gradient, lambda k: with_rule(jax.custom_jvp, k)),
        ("attribute of a function", lambda it, x: it(x), tagged),
        ("custom_vjp", gradient, with_backward),
        ("custom_jvp of equinox", gradient, lambda k: with_rule(eqx.filter_custom_jvp, k)),
        (
            "vmap of equinox",
            lambda it, x: it(SQUARE * x, SQUARE)[0, 0, 1],
            lambda k: eqx.filter_vmap(added, in_axes=(int(k) - 2, None)),
        ),
        ("without weak references", lambda it, x: it.go(x), Slotted),
        ("dict of 40", lambda it, x: x * sum(it.values()), lambda k: dict.fromkeys(range(40), k)),
        (
            "namespace of 200",
            lambda it, x: x * sum(vars(it).values()),
            lambda k: types.SimpleNamespace(**{f"a{n}": k for n in range(200)}),
        ),
    )
}


@pytest.mark.parametrize("is_freed", [False, True])
@pytest.mark.parametrize("kind", REBOUND)
def test_another_one_in_its_place_is_seen(kind: str, is_freed: bool) -> None:
    """The old program does not answer, alive or freed: its address may be given again."""
    call, make, make_other = REBOUND[kind]
    it: Any = None
    plain, jitted = (wrap(lambda x: call(it, x)) for wrap in (jax.jit, RETRACING))
    kept, right, answers = list[Any](), list[Any](), list[Any]()
    for each in (make, make_other, make, make_other):
        it = None
        it = each()
        kept += [] if is_freed else [it]
        right.append(call(it, 1.0))
        answers.append((plain(1.0), jitted(1.0)))
    assert right[0] != right[1]
    assert [answer for answer, _ in answers] == [right[0]] * 4  # the hazard
    assert [answer for _, answer in answers] == right


RETRACING: Any = functools.partial(lw.jit, on_stale="retrace")
HELD: Any = (
    *(lambda n: (n,) * 40, lambda n: [n] * 40, lambda n: np.full(3, n), lambda n: [(n,) * 40]),
    *(lambda n: dict.fromkeys(range(40), n).values(), lambda n: bytearray([int(n)] * 2000)),
    lambda n: types.MappingProxyType(dict.fromkeys(range(40), n)).values(),
)


@pytest.mark.slow  # a program for each value
@given(st.lists(st.tuples(st.sampled_from(HELD), st.integers(1, 3)), max_size=6))
def test_captures_freed_and_made_again(values: list[Any]) -> None:
    """The answer is that for the value that is there now, whose address an old one may have had."""
    held: Any = None
    function = RETRACING(lambda x: x * np.sum([*held]))
    for make, n in values:
        held = None
        held = make(float(n))
        assert function(1.0) == np.sum([*held])


DEFINITIONS = {
    "pytree": "@lw.pytree\nclass P:\n    w: Any\n    k: float = {}\n",
    "attrs": "@attrs.define\nclass P:\n    w: Any\n    k: float = attrs.Factory(lambda: {})\n",
    "dataclass": "@dataclasses.dataclass\nclass P:\n    w: Any\n    k: float = {}\n",
    "namedtuple": "class P(NamedTuple):\n    w: Any\n    k: float = {}\n",
}


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_an_unchanged_cell_run_again_costs_no_trace(definition: str) -> None:
    """A class of which a library generates code is the same, unless a default of it changed."""
    source = definition + "    def go(self): return self.w * self.k\n"
    space: dict[str, Any] = {"__name__": "__main__", "Any": Any, "NamedTuple": NamedTuple}
    space |= {"lw": lw, "attrs": attrs, "dataclasses": dataclasses}
    jitted = RETRACING(lambda x: space["P"](x).go())
    for default in (2.0, 2.0, 3.0, 3.0):
        exec(compile(source.format(default), "cell.py", "exec"), space)  # noqa: S102
        assert jitted(1.0) == default
    assert len(jitted.traces) == 2


@pytest.mark.parametrize("is_method", [False, True])
def test_two_objects_without_weak_references(is_method: bool) -> None:
    """An attribute of each is seen, in a method that is jitted or called."""
    one, other = Slotted(2.0), Slotted(2.0)
    by_call: Any = [lambda x: one.go(x), lambda x: other.go(x)]
    calls = [*map(RETRACING, (one.go, other.go) if is_method else by_call)]
    assert [call(1.0) for call in calls] == [2.0, 2.0]
    other.k = 3.0
    assert [call(1.0) for call in reversed(calls)] == [3.0, 2.0]


def test_an_array_in_a_tuple_is_changed_in_place() -> None:
    """A tuple that holds an array is not taken as a whole."""
    pairs = [(np.ones(1, np.float32), 2.0) for _ in range(2)]
    calls = [RETRACING(lambda x, it=it: x * sum(np.sum(each) for each in it)) for it in pairs]
    assert [call(1.0) for call in calls] == [3.0, 3.0]
    pairs[1][0][0] = 5.0
    assert [call(1.0) for call in reversed(calls)] == [7.0, 3.0]


def test_what_is_known_by_its_address_dies_with_its_function() -> None:
    """A dict of 40 arrays is kept alive by the function that captures it, and by nothing else."""

    def train() -> Any:
        weights = {n: jnp.ones(9) for n in range(40)}
        jit(lambda x: x * sum(map(sum, weights.values())))(1.0)
        return weakref.ref(weights[0])

    found = [train(), train()]
    clear: Any = jax.clear_caches
    clear()
    gc.collect()
    assert [find() for find in found] == [None, None]
