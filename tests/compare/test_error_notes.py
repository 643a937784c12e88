"""What `explain_errors` and `lw.jit` add to errors of donated arrays, and of uses of tracers."""

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.specimens import Slotted

import leafwise as lw


def add(state: Any, x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + x, state)


JITS: dict[str, Any] = {
    "jax": partial(jax.jit, donate_argnums=0),
    "leafwise": partial(lw.jit, donate_argnames="state"),
}


def note_of(call: Callable[[], Any], errors: Any = (RuntimeError, ValueError)) -> str:
    """Return what is added to the error of a call."""
    with pytest.raises(errors) as error, lw.debug.explain_errors():
        call()
    (note,) = (each for each in error.value.__notes__ if each.startswith("leafwise: "))
    return note


@pytest.mark.parametrize("name", JITS)
def test_one_buffer_twice(name: str) -> None:
    """Both places are named, by the first call and by a later one; a copy is what it needs.

    `lw.jit` says it without a block.
    """
    step, w = JITS[name](add), jnp.ones(3)
    tree = {"params": [w], "opt": Slotted(jax.device_put(w))}
    words = "`state['opt'].w` and `state['params'][0]` are the same buffer, donated twice: donate "
    for _ in range(2):
        assert words + "`jnp.copy(state['params'][0])`" in note_of(lambda: step(tree, 1.0))
    step(tree | {"params": [jnp.copy(w)]}, 1.0)
    pair = [jnp.ones(3)] * 2
    words = "`state[0]` and `state[1]` are the same buffer"
    assert words in note_of(lambda: step(pair, 1.0))
    with pytest.raises(RuntimeError) as error:
        JITS["leafwise"](lambda state: add(state, 1.0))([jnp.ones(3)] * 2)
    assert words in "".join(error.value.__notes__)


class Trainer:
    def __init__(self, step: Any) -> None:
        self.step, self.state = step, {"w": jnp.ones(3)}

    def train(self) -> Any:
        self.step(self.state, 1.0)
        return self.state["w"] + 1


def in_a_loop(step: Any) -> Any:
    state = {"w": jnp.ones(3), "b": jnp.ones(3)}
    for _ in range(2):
        new = step(state=state, x=1.0)
    return new


def through_a_leaf(step: Any) -> Any:
    state = {"w": jnp.ones(3), "b": 1.0}
    kept = state["w"]
    step(state, 1.0)
    return jax.jit(jnp.sin)(kept)


def by_two_calls(step: Any) -> Any:
    state = {"w": jnp.ones(3)}
    if state:
        step(state, 1.0)
    else:
        step(state, 2.0)
    return float(state["w"][0])


def by_another_name(step: Any) -> Any:
    state = {"w": jnp.ones(3)}
    best = state["w"]
    state = step(state, 1.0)
    return jax.tree.map(lambda x: x[0], best)


def in_another_function(step: Any) -> Any:
    state = {"w": jnp.ones(3)}
    best = dict(state)
    state = by_parameter(step, state)
    return best["w"] + state["w"]


def by_parameter(step: Any, given: Any) -> Any:
    return step(given, 1.0)


DONATED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an attribute": (lambda step: Trainer(step).train(), "`self.state` was donated at {}:61"),
    "a loop": (in_a_loop, "`state` was donated at {}:68"),
    "a leaf": (through_a_leaf, "`state['w']` was donated at {}:75"),
    "two calls": (by_two_calls, "`state` was donated to an earlier call"),
}
USE = "use what that call returned"
COPIED = {
    "another name": (
        by_another_name,
        "`best` was donated under another name ({}:91 donates `state`)",
    ),
    "a function": (in_another_function, "`best` was donated under another name"),
}
COPY = "copy what you keep with `jnp.copy` before that call"


@pytest.mark.parametrize("name", JITS)
@pytest.mark.parametrize("use", DONATED | COPIED)
def test_a_donated_array_is_used_again(use: str, name: str) -> None:
    """The variable is named, not a parameter; and the line that donated it, if it is the only one.

    What was donated as part of another variable is to be copied.
    """
    call, words = (DONATED | COPIED)[use]
    note = note_of(lambda: call(JITS[name](add)))
    assert f"{words.format('test_error_notes.py')}: {USE if use in DONATED else COPY}" in note


ONES = jnp.ones(3)
FILE = "test_error_notes.py"
BOOL = jax.errors.TracerBoolConversionError


@lw.pytree
class Inner:
    n: int = 3
    flag: bool = True
    act: Callable[..., Any] = lw.field(default=jax.nn.relu)


@lw.pytree
class Outer:
    w: jax.Array
    inner: Inner
    several: list[Inner]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    n: int = 3


class Base(NamedTuple):
    n: int = 3


class Derived(Base):
    """Has the fields of its base, and no annotation of its own."""


def no_act(**values: Any) -> Inner:
    return Inner(act=jax.tree_util.Partial(jnp.sin), **values)


TREE = Outer(ONES, no_act(), [no_act(n=1), no_act(n=2)])
# A function, its arguments, and below what is said of its error.
TABLE = """
if: lambda p: 1 if p.inner.flag else 2 | TREE
    `Inner.flag` is dynamic: make it `flag: lw.Static[bool] = True`
range: lambda p: list(range(p.several[1].n)) | TREE
    `Inner.n` is dynamic: make it `n: lw.Static[int] = 3`
zeros: lambda p: jnp.zeros(p.inner.n) | TREE
    `Inner.n` is dynamic: make it `n: lw.Static[int] = 3`
in a scan: lambda p: jax.lax.scan(lambda c, _: (c, jnp.zeros(p.inner.n)), 0.0, p.w) | TREE
    `Inner.n` is dynamic: make it `n: lw.Static[int] = 3`
of a plain dataclass: lambda p: jnp.zeros(p.n) | Plain()
    `Plain.n` is dynamic: make it
    `n: int = dataclasses.field(metadata={"static": True}, default=3)`
inherited from a named tuple: lambda p: jnp.zeros(p.n) | Derived()
    `Derived.n` is dynamic: make it `n: lw.Static[int] = 3`, in a class with `@lw.pytree`
an argument: lambda n: jnp.zeros(n) | 3
    `n` is traced: make the argument static
an item: lambda d: jnp.zeros(d["n"]) | {"n": 3}
    `d['n']` is dynamic: keep it in a static field
an array: lambda p: 1 if p.w.sum() > 0 else 2 | TREE
    `Outer.w` is an array, whose values are not known during tracing: `jnp.where`
NumPy: lambda p: np.asarray(p.w) | TREE
    `Outer.w` is traced, so NumPy cannot read it: call `jax.numpy` instead
a function: lambda p, x: p.act(x) | Inner(), ONES
    `Inner.act` is dynamic, but a function: make it
    `act: lw.Static[Callable[..., Any]] = jax.nn.relu`, or wrap it in `jax.tree_util.Partial`
an enum as an argument: lambda kind, x: x | lw.types.ReasonKind.SHAPE, 1.0
    `kind` is dynamic, but a ReasonKind: make the argument static
a function as an argument: lambda f, x: f(x) | jnp.sin, 1.0
    `f` is dynamic, but a function: make the argument static
"""
NAMES = {**globals(), "np": np}
USES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    name: (*eval(f"{fun}, ({args},)", NAMES), " ".join(words.split()))  # noqa: S307  # ours
    for name, fun, args, words in re.findall(r"(.*?): (.*) \| (.*)\n((?: {4}.*\n)+)", TABLE)
}


@pytest.mark.parametrize("jit", [jax.jit, lw.jit], ids=["jax", "leafwise"])
@pytest.mark.parametrize("name", USES)
def test_field_and_fix_are_named(name: str, jit: Any) -> None:
    """The note names class and field, or the argument, and what to write."""
    fun, args, words = USES[name]
    note = note_of(lambda: jit(fun)(*args), (TypeError, jax.errors.JAXTypeError))
    assert words in note
    assert "\n" not in note, "one line"


def test_of_other_libraries() -> None:
    """The fix is in the words of the library of the class."""
    eqx = pytest.importorskip("equinox")
    struct = pytest.importorskip("flax.struct")

    class Module(eqx.Module):  # type: ignore[misc]
        n: int = 3

    @struct.dataclass
    class Struct:
        n: int = 3

    for value, words in (
        (Module(), "`Module.n` is dynamic: make it `n: int = eqx.field(static=True, default=3)`"),
        (Struct(), "make it `n: int = struct.field(pytree_node=False, default=3)`"),
    ):
        jitted = jax.jit(lambda p: jnp.zeros(p.n))
        assert words in note_of(lambda jitted=jitted, value=value: jitted(value), TypeError)


class Checked:
    """Its constructor reads a value."""

    is_bad: Any = staticmethod(lambda self: self.rate < 0)

    def __post_init__(self) -> None:
        if type(self).is_bad(self):
            raise ValueError("the rate is negative")

    __check_init__ = __post_init__


@lw.pytree
class Ours(Checked):
    rate: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered(Checked):
    rate: Any


@jax.tree_util.register_pytree_node_class
class ByHand(Checked):
    def __init__(self, rate: Any) -> None:
        self.rate = rate
        self.__post_init__()

    def tree_flatten(self) -> Any:
        return (self.rate,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> "ByHand":
        return cls(*children)


def test_a_constructor_that_reads_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the argument that has to change: each fix is applied, and there is one program."""
    eqx = pytest.importorskip("equinox")
    struct = pytest.importorskip("flax.struct")
    module = type("Module", (eqx.Module, Checked), {"__annotations__": {"rate": Any}})
    record = struct.dataclass(type("Record", (Checked,), {"__annotations__": {"rate": Any}}))
    for jit in (jax.jit, lw.jit):
        for cls in (Registered, record):
            fix = f"__` reads `m.rate` when JAX unflattens: make {cls.__name__} an `@lw.pytree`"
            assert fix in note_of(lambda cls=cls, jit=jit: jit(lambda m: m.rate)(cls(0.5)), BOOL)
        fix = "__` reads `m[0]` when JAX unflattens: construct it with `object.__new__(ByHand)` "
        assert fix in note_of(lambda jit=jit: jit(lambda m: m.rate)(ByHand(0.5)), BOOL)
        for cls in (Ours, module):
            step = jit(lambda m, x: type(m)(m.rate * x).rate)
            note = note_of(lambda cls=cls, step=step: step(cls(0.5), 2.0), BOOL)
            assert "__` reads `m.rate` and `x` while JAX traces: check it only `if not " in note
    (test,) = re.findall("check it only `if (.*?)`; make it static only if", note)
    guarded = eval(f"lambda self: {test} and self.rate < 0", {"jax": jax})  # noqa: S307  # ours
    monkeypatch.setattr(Checked, "is_bad", staticmethod(guarded))
    with pytest.raises(ValueError, match="negative"):
        Ours(-1.0)
    step = jax.jit(lambda m, x: lw.replace(m, rate=m.rate * x).rate)
    assert [step(Ours(0.5), x) for x in (2.0, 4.0)] == [1.0, 2.0]
    assert step._cache_size() == 1


def test_a_constructor_that_converts_a_value() -> None:
    """It is not the argument that has to change, which is traced on purpose."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Scaled:
        rate: Any

        def __post_init__(self) -> None:
            self.rate = float(self.rate)

    first = Scaled(0.5)
    line = Scaled.__post_init__.__code__.co_firstlineno + 1
    for jit in (jax.jit, lw.jit):
        step = jit(lambda x: dataclasses.replace(first, rate=x).rate)
        note = note_of(lambda step=step: step(2.0), jax.errors.ConcretizationTypeError)
        assert f"`Scaled.__post_init__` reads `x` while JAX traces, at {FILE}:{line}" in note
        assert "leave `float()` out of `__post_init__`" in note
        assert "argument" not in note
    Scaled.__post_init__ = lambda self: None  # type: ignore[method-assign]
    assert step(2.0) == 2.0


def test_a_place_that_jax_does_not_name() -> None:
    """The leaf is named: two are alike but for it, in the other order as well."""
    opaque, ones = Model(), jnp.ones((3, 2))
    is_opaque = "is a Model, which is not a pytree: make the class an `@lw.pytree`"
    whole = (
        "has shape (), so it has no axis 0: to pass it whole, set its entry of `in_axes` to None"
    )
    for name, other in ("vw", "wv"):
        s: dict[str, Any] = {name: 1.0, other: ones}
        words = f"`s['{name}']` {whole}"
        assert words in note_of(
            lambda s=s: jax.vmap(lambda s, t: s["v"] + s["w"])(s, ones), (ValueError, IndexError)
        )
        s[name] = opaque
        for call in (
            lambda s: jax.vjp(lambda s: s["v"], s),
            lambda s: jax.linearize(lambda s: s["v"], s),
            lambda s: jax.grad(lambda s: s["v"])(s),
            lambda s: jax.jvp(lambda s: s["v"], (s,), (s,)),
        ):
            assert f"`s['{name}']` {is_opaque}" in note_of(
                lambda call=call, s=s: call(s), Exception
            )
    # Without a jit, nothing is a static argument.
    for arguments, place in ((({"act": "relu"},), "p['act']"), (("relu",), "p")):
        note = note_of(lambda arguments=arguments: jax.vjp(lambda p: p, *arguments), Exception)
        assert (
            f"`{place}` is dynamic, but a str: keep it in a static field, or close over it" in note
        )
    assert jax.vmap(lambda s: s["v"] * s["w"], in_axes=({"v": 0, "w": None},))(
        {"v": ones, "w": 2.0}
    ).shape == (3, 2)


def test_a_constructor_around_the_call() -> None:
    """Nor is a constructor to blame that calls a jitted function, or that needs a shape."""

    class Trainer:
        def __init__(self, jit: Any) -> None:
            self.out = jit(lambda x: 1 if x > 0 else 2)(1.0)

    class Zeros:
        def __init__(self, n: int) -> None:
            self.w = jnp.zeros(n)

    for call in (
        *(lambda: Trainer(jax.jit), lambda: Trainer(lw.jit)),
        lambda: jax.jit(lambda n: Zeros(n).w)(3),
    ):
        assert "is traced: make the argument static" in note_of(call, TypeError)


@pytest.mark.parametrize("jit", [jax.jit, lw.jit], ids=["jax", "leafwise"])
def test_cond_is_for_a_branch(jit: Any) -> None:
    """A shape, or the length of a loop, is no branch."""
    for fun, is_branch in (
        (lambda n: 1 if n else 2, True),
        (lambda n: list(range(n)), False),
        (lambda n: jnp.zeros(n), False),
    ):
        note = note_of(lambda fun=fun: jit(fun)(3), TypeError)
        assert ("jax.lax.cond" in note) is is_branch


def test_jit_adds_the_notes() -> None:
    """Without a block as well, once, to the error that `jax.jit` raises; until a call succeeds."""
    for name in ("an argument", "a function as an argument"):
        fun, args, words = USES[name]
        with pytest.raises(Exception, match=r".") as theirs:
            jax.jit(fun)(*args)
        step = lw.jit(fun)
        for _ in range(2):
            with pytest.raises(type(theirs.value)) as error:
                step(*args)
            assert error.value.args == theirs.value.args
            assert sum(words in each for each in error.value.__notes__) == 1
    step = lw.jit(lambda x: x)
    step(1.0)
    assert step.__call__ is step._leafwise_jax


class Model:
    """A class that JAX knows nothing of."""

    @lw.jit
    def step(self, x: Any) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return x


def test_an_instance_of_a_plain_class() -> None:
    """A method's `self`, or an object that is called, is to be a pytree and never static."""
    with lw.debug.check_captures():
        called = lw.jit(lambda f: f(1.0))
    for call in (lambda: Model().step(1.0), lambda: called(Model())):
        with pytest.raises(TypeError) as error:
            call()
        (note,) = [each for each in error.value.__notes__ if each.startswith("leafwise: ")]
        assert "is a Model, which is not a pytree: make the class an `@lw.pytree`" in note
        assert "static" not in note
