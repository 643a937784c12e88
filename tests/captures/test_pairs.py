"""Two captures that agree in all but identity: neither is taken for the other, in either order."""

import functools
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import leafwise as lw

pytestmark = pytest.mark.hazard

jit: Any = lw.jit  # so that lambdas need no types


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


def scanned(function: Any) -> Any:
    return lambda x: jax.lax.scan(lambda c, _: (function(c), None), x, None, length=1)[0]


def of_modules() -> Any:
    one, other = twin(2.0), twin(2.0)
    return one.scale, other.scale, functools.partial(setattr, other, "rate")


def of_closures(wrap: Callable[[Any], Any] = lambda function: function) -> Any:
    (one, _), (other, turn) = knob(), knob()
    return wrap(one), wrap(other), turn


RUNS: dict[str, Callable[[], Any]] = {
    "helpers of two modules": of_modules,
    "closures": of_closures,
    "closures in scans": lambda: of_closures(scanned),
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


class Plus:
    def go(self, x: Any) -> Any:
        return x + 1.0


class Times:
    def go(self, x: Any) -> Any:
        return x * 3.0


def cells(factor: float, decorator: Any = lambda method: method) -> type:
    """Run two cells of a notebook, of which the second inherits from a class of the first."""
    space = NOTEBOOK
    space["decorator"] = decorator
    source = f"class B:\n    @decorator\n    def go(self, x): return x * {factor}"
    exec(source, space)  # noqa: S102
    exec("class M(B): pass", space)  # noqa: S102
    return space["M"]  # type: ignore[no-any-return]


NOTEBOOK: dict[str, Any] = {"__name__": "__main__"}


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
        ("base", lambda it, x: it().go(x), lambda k: layer(0, Plus if k == 2.0 else Times)),
        ("method of a class", lambda it, x: it.go(None, x), lambda k: layer(k)),
        (
            "custom_jvp",
            lambda it, x: jax.grad(lambda y: it(y))(x),
            lambda k: with_rule(jax.custom_jvp, k),
        ),
        ("custom_vjp", lambda it, x: jax.grad(lambda y: it(y))(x), with_backward),
        (
            "custom_jvp of equinox",
            lambda it, x: jax.grad(lambda y: it(y))(x),
            lambda k: with_rule(eqx.filter_custom_jvp, k),
        ),
        (
            "vmap of equinox",
            lambda it, x: it(SQUARE * x, SQUARE)[0, 0, 1],
            lambda k: eqx.filter_vmap(added, in_axes=(int(k) - 2, None)),
        ),
        ("tuple of 40", lambda it, x: x * sum(it), lambda k: (k,) * 40),
        ("tuple of arrays", lambda it, x: x * sum(it), lambda k: (np.float32(k),) * 40),
        ("tuple in a list", lambda it, x: x * sum(it[0]), lambda k: [(k,) * 40]),
        ("dict of 40", lambda it, x: x * sum(it.values()), lambda k: dict.fromkeys(range(40), k)),
        ("list of 40", lambda it, x: x * sum(it), lambda k: [k] * 40),
        (
            "namespace of 200",
            lambda it, x: x * sum(vars(it).values()),
            lambda k: types.SimpleNamespace(**{f"a{n}": k for n in range(200)}),
        ),
        (
            "proxy of 40",
            lambda it, x: x * sum(it.values()),
            lambda k: types.MappingProxyType(dict.fromkeys(range(40), k)),
        ),
        ("view of 40", lambda it, x: x * sum(it), lambda k: dict.fromkeys(range(40), k).values()),
        ("bytearray", lambda it, x: x * it[0], lambda k: bytearray([int(k)] * 2000)),
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
