"""What methods of the arguments read: the class is known once a call is traced."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = [pytest.mark.hazard, pytest.mark.slow]  # all of them together: each compiles

X = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types
scale = 2.0
shift = 1.0


@pytest.fixture(autouse=True)
def _as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "scale", 2.0)
    monkeypatch.setitem(globals(), "shift", 1.0)


@lw.pytree
class Net:
    w: Any
    base = 2.0

    def __call__(self, x: Any) -> Any:
        return self.w * x * scale

    def scaled(self, x: Any) -> Any:
        return self.w * x * scale

    @property
    def weight(self) -> Any:
        return self.w * scale

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * scale

    @functools.cached_property
    def unused(self) -> Any:
        return shift


@lw.pytree
class Forward:
    w: Any

    def forward(self, x: Any) -> Any:
        return self.w * x * scale


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
        return x * scale


@lw.pytree
class WithRule:
    w: Any
    rule: lw.Static[Any]


def helper(net: Any, x: Any) -> Any:
    return net.scaled(x)


def scanned(net: Any, x: Any) -> Any:
    return jax.lax.scan(lambda carry, _: (net.scaled(carry), None), x, None, length=1)[0]


def by_scale(x: Any) -> Any:
    return x * scale


@dataclasses.dataclass(frozen=True)
class Settings:
    """A static value that holds functions, at any depth."""

    act: Any


NET = Net(X)
WAYS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "call": (lambda net, x: net(x), NET),
    "method": (lambda net, x: net.scaled(x), NET),
    "property": (lambda net, x: net.weight * x, NET),
    "classmethod": (lambda net, x: net.w * net.of_class(x), NET),
    "of a child": (lambda net, x: net(x), Outer(NET)),
    "in a dict": (lambda nets, x: nets["a"](x), {"a": NET}),
    "in a list": (lambda nets, x: sum(net(x) for net in nets), [NET]),
    "helper": (helper, NET),
    "scan": (scanned, NET),
    "jitted inside": (lambda net, x: jax.jit(helper)(net, x), NET),
    "vmap": (lambda net, x: jax.vmap(net.scaled)(x), Net(jnp.float32(1))),
    "static field": (lambda net, x: net.rule(net.w * x), WithRule(X, Rule())),
    "of the class": (Net.scaled, NET),
    "function in a static field": (lambda net, x: net.rule(x), WithRule(X, by_scale)),
    "function deep in a static field": (
        lambda net, x: net.rule[0].act["f"](x),
        WithRule(X, (Settings(lw.FrozenMapping(f=functools.partial(by_scale))),)),
    ),
    "bound method": (lambda f, x: f(x), Forward(X).forward),
    "bound method in a field": (lambda it, x: it.inner(x), Outer(Forward(X).forward)),
    "function in a pytree": (lambda f, x: f(x), jax.tree_util.Partial(by_scale)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_method_of_an_argument_reads(way: str) -> None:
    """A change of it is a change of what the function captures, whatever leads to the method."""
    function, net = WAYS[way]
    strict = jit(lambda net, x: function(net, x), stale="raise")
    retraced = jit(lambda net, x: function(net, x), stale="retrace")
    assert way == "of the class" or "scale" not in [each.name for each in strict.captures]
    for each in (strict, retraced):
        assert [each(net, X).tolist(), each(net, X).tolist()] == [[2, 2]] * 2
        assert len(each.traces) == 1
        assert "scale" in [each.name for each in each.captures]
    globals()["scale"] = 3.0
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `scale`"):
        strict(net, X)
    assert retraced(net, X).tolist() == [3, 3]
    globals()["shift"] = 7.0  # which only code reads that nothing names
    assert retraced(net, X).tolist() == [3, 3]
    assert len(retraced.traces) == 2


@pytest.mark.parametrize(
    "given", [by_scale, functools.partial(by_scale), Settings(by_scale), Rule()]
)
def test_what_a_static_argument_reads(given: Any) -> None:
    """A function that is handed over reads what it read when it was traced."""
    call = lambda f, x: getattr(f, "act", f)(x)  # noqa: E731
    strict = jit(lambda f, x: call(f, x), static_argnums=0, stale="raise")
    retraced = jit(lambda x, *, f: call(f, x), static_argnames="f", stale="retrace")
    assert (strict(given, X).tolist(), retraced(X, f=given).tolist()) == ([2, 2], [2, 2])
    assert strict(lambda x: x, X).tolist() == [1, 1]
    globals()["scale"] = 3.0
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `scale`"):
        strict(given, X)
    assert retraced(X, f=given).tolist() == [3, 3]


def test_each_call_has_its_own_classes() -> None:
    """What a method of another class reads says nothing of this call; but it stays watched."""
    jitted = jit(lambda net, x: net(x), stale="raise")
    assert (jitted(Net(X), X).tolist(), jitted(Other(X), X).tolist()) == ([2, 2], [2, 2])
    globals()["shift"] = 5.0
    assert jitted(Net(X), X).tolist() == [2, 2]
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `shift`"):
        jitted(Other(X), X)
    globals().update(shift=1.0, scale=9.0)
    assert jitted(Other(X), X).tolist() == [2, 2]
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `scale`"):
        jitted(Net(X), X)


def test_a_value_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is an attribute of the class that a method reads, and a method that is replaced."""
    based = jit(Net.__call__, stale="retrace")
    assert based(NET, X).tolist() == [2, 2]
    monkeypatch.setattr(Net, "scaled", lambda self, x: self.base * x)
    jitted = jit(lambda net, x: net.scaled(x), stale="retrace")
    assert jitted(NET, X).tolist() == [2, 2]
    monkeypatch.setattr(Net, "base", 5.0)
    assert jitted(NET, X).tolist() == [5, 5]
    monkeypatch.setattr(Net, "scaled", lambda _, x: x * 7)
    assert jitted(NET, X).tolist() == [7, 7]
