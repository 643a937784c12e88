"""`leafwise.interop.equinox.Module`: what is one program, refused, changed, or travels."""

import copy
import functools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import pytest
from hypothesis import settings
from tests.kit.processes import run_python
from tests.property.zoo import Config

import leafwise as lw
from leafwise.interop.equinox import Module
from leafwise.testing import check_pytree
from leafwise.testing.strategies import instances

from .modules import KEEPS, Layer, works

SOUND = "`leafwise.interop.equinox.Module`: statics compared by type and value"
REFUSED = "`leafwise.interop.equinox.Module`: lists, arrays and tracers in statics are refused"


class Net(Module):
    w: jax.Array
    static: Any = eqx.field(static=True, default=2)


class Marked(Module):
    w: jax.Array
    static: lw.Static[Any] = 2


class Declared(Module):
    w: jax.Array
    static: Any = lw.static_field(default=2)


class InPlain(eqx.Module):
    w: jax.Array
    static: Any = lw.static_field(default=2)


CLASSES = (Net, Marked, Declared)


@works(SOUND)
@works("tables of constants (`lw.StaticArray`, `freeze=True`) as statics without a warning")
@pytest.mark.parametrize("cls", CLASSES)
def test_keys(cls: Callable[..., Any]) -> None:
    """However a static is declared, the key is that of tests/statics: type and value count."""
    makers: list[Callable[[], object]] = [
        *(lambda: ((1,),), lambda: ((True,),), lambda: 0.0, lambda: -0.0, lambda: float("nan")),
        *(lambda: Config(1.0, 0), lambda: Config(1.0, 1), lambda: Config(0.5).__repr__),
        *(lambda: functools.partial(operator.add, 1), lambda: lw.StaticArray([1, 2])),
    ]
    first, again = ([cls(1.0, make()) for make in makers] for _ in range(2))
    assert len({*map(jax.tree.structure, first)}) == len(makers)
    assert [*map(jax.tree.structure, first)] == [*map(jax.tree.structure, again)]
    assert again[-2].static is first[-2].static


@works(
    "a plain `equinox.Module`: statics compared by type and value",
    cannot="it compares statics by `==`",
)
def test_plain_module_is_not_sound() -> None:
    """In a plain module `1` and `True` are one program, and NaN is a new one every time."""

    class Plain(eqx.Module):
        static: Any = eqx.field(static=True)

    assert jax.tree.structure(Plain(1)) == jax.tree.structure(Plain(True))
    assert jax.tree.structure(Plain(float("nan"))) != jax.tree.structure(Plain(float("nan")))


@works(REFUSED)
@works("a value that cannot be static in an `lw.static_field` of a module is refused by name")
@pytest.mark.parametrize("cls", [*CLASSES, InPlain])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1], "unhashable"),
        (functools.partial(operator.add, jnp.ones(2)), "array"),
        (Net(jnp.ones(2)), "array"),
    ],
    ids=["list", "in a partial", "module"],
)
def test_refused(cls: type, value: object, kind: str) -> None:
    """The error comes before any warning of equinox, and names class, field and fix."""
    with pytest.raises(lw.errors.StaticFieldError, match=rf"{cls.__name__}\.static") as caught:
        cls(1.0, value)
    assert caught.value.kind == kind
    assert "fix:" in str(caught.value)
    with pytest.raises(lw.errors.StaticFieldError, match=rf"{cls.__name__}\.static"):
        jax.jit(lambda x: cls(1.0, (x,)))(1.0)


@works("`lw.debug.check_statics` on `leafwise.interop.equinox.Module`")
def test_mutation_is_found() -> None:
    """A static that changes in place is found by name when flattened."""

    class Options:
        def __init__(self) -> None:
            self.rate = 1

    options = Options()
    net = Net(1.0, options)
    options.rate = 2
    jax.tree.leaves(net)  # outside the block nothing looks
    with lw.debug.check_statics():
        for flatten in (jax.tree.leaves, jax.jit(lambda trees: trees[0].w)):
            with pytest.raises(lw.errors.StaticMutatedError, match=r"Net\.static"):
                flatten([net])
        assert jax.tree.leaves(Net(1.0, 3)) == [1.0]
    jax.tree.leaves(net)


@pytest.mark.slow
@works("`leafwise.testing.check_pytree` with all laws on `leafwise.interop.equinox.Module`")
@works("tree definitions that can be pickled, also to another process")
@works("instances and tree definitions that travel to another process, key included")
def test_laws() -> None:
    """All laws of pytrees hold, for drawn instances, also when they come to another process."""
    statics = st.sampled_from([1, True, 1.0, "a", (1, 2.0), None])
    drawn = instances(Marked, static=statics)
    _, data = jax.tree_util.default_registry.flatten_one_level(Marked(jnp.ones(1))) or ((), ())
    # That of equinox 0.13.2 has no hash; JAX never asks for one.
    without = () if isinstance(data, tuple) else "aux-data-hash"
    check_pytree(drawn, without=without, settings=settings(max_examples=10))


def test_drawn_statics_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    """Equinox's warning about an array is for the user's own statics, not for those drawn."""

    class Plain(eqx.Module):
        w: jax.Array
        depth: int = eqx.field(static=True, default=2)

    check_pytree(Plain, laws="treedef-equality", settings=settings(max_examples=9))
    assert not [each for each in recwarn if "set as static" in str(each.message)]


@works("explanations of `leafwise.interop.equinox.Module`: the static is named")
def test_explanation() -> None:
    """A retrace is explained by the field's path, and by type where only that differs."""

    @lw.jit
    def step(net: Net) -> jax.Array:
        return net.w * 2

    step(Net(jnp.ones(2), 1))
    step(Net(jnp.ones(2), True))
    explanation = str(step.traces[-1].explanation)
    assert "net.static (static): 1 (int) -> True (bool)" in explanation
    assert "leafwise_key" not in explanation
    assert "unsound" not in explanation


@works("JAX's messages about two `leafwise.interop.equinox.Module`s name their statics")
def test_messages_of_jax() -> None:
    """Where structures differ, class and statics stand in JAX's message."""
    with pytest.raises(ValueError, match=r"Net\(static=1\)"):
        jax.tree.map(lambda a, _: a, Net(1.0, 1), Net(1.0, True))


LOOKS = "a function by content in a `leafwise.interop.equinox.Module` is checked at each flatten"


def scaled_by(rates: list[float]) -> Any:
    """Return a function over a list."""
    return lambda x: rates[0] * x


class M(Module):
    x: Any
    f: Any = lw.static_field(compare_by="content")


USES: dict[str, Callable[[Any], Any]] = {
    "leaves": jax.tree.leaves,
    "jit": jax.jit(lambda m: m.f(m.x)),
    "filter_jit": eqx.filter_jit(lambda m: m.f(m.x)),
    "tree_at": lambda m: eqx.tree_at(lambda m: m.x, m, 2.0),
}


@works(LOOKS)
@pytest.mark.parametrize("use", USES)
def test_a_change_in_place(use: str) -> None:
    """A module whose function changed is refused wherever it is flattened; a new one is not."""
    rates = [7.0]
    changed = M(1.0, scaled_by(rates))
    USES[use](changed)
    rates[0] = 8.0
    with pytest.raises(lw.errors.StaticMutatedError, match=r"\.f.*changed in place"):
        USES[use](changed)
    fresh = M(1.0, changed.f)
    USES[use](fresh)
    assert jax.jit(lambda m: m.f(m.x))(fresh) == 8


@works(LOOKS)
@works('`lw.static_field(compare_by="content")` in `leafwise.interop.equinox.Module`')
def test_no_program_answers_for_another() -> None:
    """Equal modules hold the first one's function: where it changes, none of them is traced."""
    rates = [7.5]
    first, other = M(1.0, scaled_by(rates)), M(1.0, scaled_by([7.5]))
    assert other.f is first.f
    rates[0] = 8.0
    program = jax.jit(lambda m: m.f(m.x))
    for module in (first, other):
        with pytest.raises(lw.errors.StaticMutatedError, match=r"M\.f"):
            program(module)
    assert program(M(1.0, scaled_by(rates))) == 8
    rates[0] = 7.5
    assert program(first) == program(other) == 7.5


MODULE = """
import jax
import leafwise as lw
from leafwise.interop.equinox import Module
class Layer(Module):
    w: jax.Array
    zero: float = lw.static_field(default=0.0)
"""


@pytest.mark.slow
@works(
    "a class that cloudpickle pickles by value",
    cannot="rejected, because equinox looks for the fields too early",
)
def test_class_by_value_is_refused() -> None:
    """Instead of instances that lose their leaves silently there is an error."""
    script = f"{MODULE}\nimport cloudpickle, sys\nlayer = Layer(1.0)\n"
    send = f"{script}sys.stdout.buffer.write(cloudpickle.dumps(layer))"
    sent = run_python(send)
    load = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    refused = r"DefinitionError: Layer: equinox does not see its fields \(w\)"
    with pytest.raises(AssertionError, match=refused):
        run_python(load, given=sent)


@works(f"{KEEPS} `copy`, `deepcopy` and `pickle`")
def test_copies() -> None:
    """Copies have the same key; statics are shared, children copied, once each."""
    plain = object()
    layer = Layer(jnp.ones(2), name="a")
    holder = Holder([layer, layer], plain)
    for made in (copy.copy(holder), copy.deepcopy(holder)):
        assert jax.tree.structure(made) == jax.tree.structure(holder)
        assert made.static is plain
    deep = copy.deepcopy(holder)
    assert deep.items is not holder.items
    assert deep.items[0] is deep.items[1]
    again = pickle.loads(pickle.dumps(layer))  # noqa: S301  # our own
    assert jax.tree.structure(again) == jax.tree.structure(layer)
    assert eqx.tree_equal(again, layer)


class Holder(Module):
    items: list[Layer]
    static: object = lw.static_field()


@works(f"{KEEPS} classes with a pickling of their own")
def test_own_pickling() -> None:
    """A state that the class wrote itself is filled in, and has a sound key."""
    slim = pickle.loads(pickle.dumps(Slim(1.0, True)))  # noqa: S301  # our own
    assert (slim.x, slim.n) == (1.0, True)
    assert jax.tree.structure(slim) == jax.tree.structure(Slim(2.0, True))
    assert jax.tree.structure(slim) != jax.tree.structure(Slim(2.0, 1))


class Slim(Module):
    x: float
    n: int = lw.static_field()

    def __getstate__(self) -> dict[str, object]:
        return {"x": self.x, "n": self.n}
