"""`leafwise explain --audit` names each call that was answered by a program of another value."""

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tests.kit.specimens import Equinox

import leafwise as lw

from .conftest import Explained


def declared(name: str) -> Any:
    """Return a class of JAX's own, whose statics are compared by `==`."""
    static = {"metadata": {"static": True}}
    flag, shift = (dataclasses.field(default=value, **static) for value in (True, 0.0))
    fields: list[Any] = [("w", Any), ("flag", Any, flag), ("shift", Any, shift)]
    return jax.tree_util.register_dataclass(dataclasses.make_dataclass(name, fields))


Config: Any = declared("Config")
Other: Any = declared("Other")  # which treedefs take for the first one


class Mode(enum.IntEnum):
    """Equal to its value."""

    A = 0


class Setting:
    """An object that is its attributes, and is compared by identity."""

    def __init__(self, k: Any) -> None:
        self.k = k
        self.unread: Any = 0


class Loose(Setting):
    """All are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Loose

    def __hash__(self) -> int:
        return 1


def audited(explained: Explained, script: Callable[[], Any]) -> Any:
    report = explained(script, audit=True)
    assert "captures" not in report
    return report["audit"]


def said(explained: Explained, script: Callable[[], Any]) -> list[str]:
    """Return what the audit says of a script, in order."""
    return [each["what"] for each in audited(explained, script)["found"]]


def of(name: str, before: str, after: str) -> str:
    return f"{name} answered for `{before}`, but got {after}"


def test_the_audit_names_both_values(explained: Explained) -> None:
    """Each call that a program of another value answered is named, with its line, each time."""

    def script() -> None:
        @jax.jit
        def step(config: Config, x: Any, *, mode: Any = 1) -> Any:
            return config.w + config.shift

        w = jnp.ones(2)
        step(Config(w), 1.0)
        for _ in range(3):
            step(Config(w, flag=1), 1.0)
            step(Config(w), 2.0)
        step(Config(w, shift=-0.0), 1.0)
        step(Config(w, flag=1.0), w)

    audit = audited(explained, script)
    found = {each["what"]: each for each in audit["found"]}
    assert list(found) == [
        of("step", "config.flag=True", "`1`"),
        of("step", "config.shift=0.0", "`-0.0`"),
    ]
    assert [each["times"] for each in found.values()] == [3, 1]
    assert all("test_audit.py:" in each["call"] for each in found.values())
    assert audit["calls"] == 9
    assert audit["seconds"] > 0


rate = 0.5


def test_a_value_that_an_inner_function_read_before(explained: Explained) -> None:
    """It is part of each program that takes the earlier trace up, with its value at that trace."""

    def script() -> None:
        global rate  # noqa: PLW0603  # what the audit is to find

        class Net:
            def __init__(self, rate: float) -> None:
                self.rate = rate

            @functools.partial(jax.jit, static_argnums=0)
            def inner(self, x: Any) -> Any:
                return x * self.rate

            @functools.partial(jax.jit, static_argnums=0)
            def plus(self, x: Any) -> Any:
                return self.inner(x) + 1.0

            @functools.partial(jax.jit, static_argnums=0)
            def slope(self, x: Any) -> Any:
                return jax.jacfwd(self.inner)(x)

        helper = jax.jit(lambda x: x * rate)
        step = jax.jit(lambda x: helper(x) + 1.0)
        late = jax.jit(lambda x: helper(x) + 2.0)
        one, other = Net(2.0), Net(3.0)
        for net in (one, other):
            _ = net.inner(1.0), net.plus(1.0), net.slope(1.0)
        outer = jax.jit(lambda x: other.inner(x))
        _ = helper(1.0), step(1.0), outer(1.0)
        rate, other.rate = 0.25, 4.0
        try:
            assert (float(step(1.0)), float(late(1.0))) == (1.5, 2.5)
            late(1.0)
        finally:
            rate = 0.5
        for net in (other, one):
            _ = net.slope(1.0), net.plus(1.0)
        _ = outer(1.0)

    assert said(explained, script) == [
        "<lambda> answered for `rate=0.5`, which is 0.25 now",
        "<lambda> answered for `rate=0.5`, which is 0.25 now",
        of("slope", "self.rate=3.0", "`4.0`"),
        of("plus", "self.rate=3.0", "`4.0`"),
        "<lambda> answered for `self.rate=3.0`, which is 4.0 now",
    ]


def test_statics_that_are_changed_in_place(explained: Explained) -> None:
    """What a program was made for is what its statics were then, whatever they are now."""

    def script() -> None:
        for value, change in (
            ([1, 2], lambda value: value.append(3)),
            ({"k": 1}, lambda value: value.update(k=5)),
            ((1, [2]), lambda value: value[1].append(3)),
            ({"a": 1, "b": 2}, lambda value: value.update(a=value.pop("a"))),
        ):
            config = Config(1.0, value)
            read = jax.jit(lambda config: config.w)
            read(config)
            read(config)
            change(value)
            read(config)

    assert said(explained, script) == [
        of("<lambda>", "config.flag=[1, 2]", "`[1, 2, 3]`"),
        of("<lambda>", "config.flag=dict{'k': 1}", "`dict{'k': 5}`"),
        of("<lambda>", "config.flag=(1, [2])", "`(1, [2, 3])`"),
        of("<lambda>", "config.flag=dict{'a': 1, 'b': 2}", "`dict{'b': 2, 'a': 1}`"),
    ]


def test_objects_that_are_changed(explained: Explained) -> None:
    """An object counts as it was, and only in what the function reads of it."""

    def script() -> None:
        @functools.partial(jax.jit, static_argnums=0)
        def scaled(setting: Any, x: Any) -> Any:
            return x * setting.k

        for kind in (Setting, Loose):
            setting = kind(1)
            for _ in range(2):
                scaled(setting, 1.0)
                setting.unread += 1
            setting.k = 2
            scaled(setting, 1.0)
        scaled(Loose(3), 1.0)
        scaled(Loose(1), 1.0)
        setting = Setting(np.ones(2))
        scaled(setting, 1.0)
        setting.k[0] = 7
        scaled(setting, 1.0)

    assert said(explained, script) == [
        of("scaled", "setting.k=1", "`2`"),
        of("scaled", "setting.k=1", "`3`"),
        of("scaled", "setting.k=float64[2] [1.0, 1.0]", "`float64[2] [7.0, 1.0]`"),
    ]


def test_what_branches_and_loops_exchange(explained: Explained) -> None:
    """Classes and statics that JAX takes for one another are named, and the result is JAX's."""
    results: list[Any] = []
    other: Any = Other if jax.__version_info__ >= (0, 10) else Config  # before, JAX refuses it

    def script() -> None:
        one, lax = Config(1.0, 1), jax.lax
        results.append(lax.cond(False, lambda: one, lambda: other(2.0, 1)))
        lax.cond(True, lambda: one, lambda: Config(1.0, True))
        lax.switch(1, [lambda: one, lambda: one, lambda: Config(1.0, 1.0)])
        lax.cond(True, lambda: Config(1.0, Mode.A), lambda: Config(1.0, 0))
        lax.scan(lambda c, x: (other(c.w + x, 1), None), one, jnp.ones(2))
        lax.while_loop(lambda c: c.w < 1, lambda c: Config(c.w, True), one)
        lax.fori_loop(0, 2, lambda _, c: Config(c.w, 1.0), one)
        jax.jit(lambda x: lax.cond(x > 0, lambda: one, lambda: Config(1.0, True)))(1.0)

    found = said(explained, script)
    wanted = [
        "cond answered for `out=Config`, but false_fun returned `Other`",
        "cond answered for `out.flag=1`, but false_fun returned `True`",
        "switch answered for `out.flag=1` of branch 0, but branch2 returned `1.0`",
        "cond answered for `out.flag=Mode.A`, but false_fun returned `0`",
        "scan answered for `carry=Config`, but its body returned `Other`",
        "while_loop answered for `carry.flag=1`, but its body returned `True`",
        "fori_loop answered for `carry.flag=1`, but its body returned `1.0`",
        "cond answered for `out.flag=1`, but false_fun returned `True`",
    ]
    assert [each.replace(" of true_fun", "") for each in found] == [
        each
        for each in wanted
        if jax.__version_info__ >= (0, 8, 1)  # which has the trees of both
        if other is Other or "`Other`" not in each
    ]
    assert type(results[0]) is Config  # of JAX's own


@pytest.mark.slow
def test_every_library_is_audited(explained: Explained) -> None:
    """Functions of `filter_jit`, `nnx.jit` and `lw.jit` are compared, too."""

    class Net(nnx.Module):
        def __init__(self) -> None:
            self.n: Any = 2

    def script() -> None:
        filtered = eqx.filter_jit(lambda module, by: module.w * by)
        listed = [1]
        for n, by in ((1, 2), (True, 2), (1, 2.0), (listed, 2), (listed, 2)):
            filtered(Equinox(1.0, n), by)
            listed.append(2) if n is listed else None
        net, called = Net(), nnx.jit(lambda net, x: x * net.n)
        called(net, 1.0)
        net.n = 2.0
        called(net, 1.0)
        ours = lw.jit(lambda s: s.w)
        for n in (1, True):
            ours(Equinox(1.0, n))

    assert said(explained, script) == [
        of("<lambda>", "module.n=1", "`True`"),
        of("<lambda>", "by=2", "`2.0`"),
        of("<lambda>", "module.n=[1]", "`[1, 2]`"),
        of("<lambda>", "net._graphdef.attributes[2][1].value=2", "`2.0`"),
        of("<lambda>", "s.n=1", "`True`"),
    ]


@pytest.mark.slow
def test_clean_programs_are_silent(explained: Explained) -> None:
    """Nothing is found where each value has a program, nor in a training loop of a library."""

    class Net(nnx.Module):
        def __init__(self) -> None:
            self.lin, self.act = nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.relu
            self.norm = nnx.BatchNorm(2, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return self.norm(self.act(self.lin(x)))

    class Agent:
        def __init__(self) -> None:
            self.count, self.log, self.w, self.opt = 0, [0.0], jnp.ones(2), optax.adam(0.1)

        @functools.cached_property
        def scale(self) -> float:
            return 2.0

        @functools.partial(jax.jit, static_argnums=0)
        def step(self, w: Any, state: Any) -> Any:
            return self.opt.update(w * self.scale, state, w)

    def script() -> None:
        @functools.partial(jax.jit, static_argnames=("mode", "act"))
        def step(config: Any, x: Any, mode: Any = None, act: Any = None) -> Any:
            return config.w

        net, x = Net(), jnp.ones((3, 2))
        optimizer = nnx.Optimizer(net, optax.sgd(0.1), wrt=nnx.Param)

        @nnx.jit
        def train(net: Any, optimizer: Any) -> Any:
            loss, grads = nnx.value_and_grad(lambda net: net(x).sum())(net)
            optimizer.update(net, grads)
            return loss

        agent, filtered = Agent(), eqx.filter_jit(lambda module, x: module.w * x)
        state, config = agent.opt.init(agent.w), Config(jnp.ones(3), flag=(1, "a"))
        for n in range(3):
            for mode in (1, None, True, (1, 2)):
                step(config, {"a": [1.0, None]}, mode=mode)
            step(config, {"a": [jnp.ones(2), 3]}, act=jnp.sin)
            step(dataclasses.replace(config, flag=(1, "b")), {"b": 1})
            step(dataclasses.replace(config, flag=tuple(map(str, range(5_000)))), 1.0)
            train(net, optimizer)
            agent.step(agent.w, state)
            agent.count += 1
            agent.log.append(float(agent.scale))
            filtered(Equinox(jnp.ones(2), ("a", n % 2)), 1.0)
        jax.lax.scan(lambda c, t: ((c[0] + t, c[1]), None), (0.0, {"a": x}), jnp.ones(2))
        jax.lax.cond(True, lambda: (optax.EmptyState(), x), lambda: (optax.EmptyState(), x))

    assert said(explained, script) == []
