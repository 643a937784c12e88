"""leafwise classes and chex dataclasses in each other, and `from_chex` from one to the other."""

import collections.abc
import concurrent.futures
import copy
import dataclasses
import functools
import gc
import pickle
import subprocess
import sys
import types
import weakref
from typing import Any, ClassVar, Generic, TypeVar

import chex
import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import leafwise as lw
from leafwise.interop.chex import chex_check, from_chex
from leafwise.testing import check_pytree, check_recompilation

works = pytest.mark.works
T = TypeVar("T")
NESTED = "leafwise classes and chex dataclasses nested in each other, through `jit`, `vmap`, `grad`"
PATHS = "`lw.explain` and `lw.jit` name fields inside nested chex dataclasses, mappable or not"
KEPT = "`from_chex(cls)`: fields, defaults, methods, name, module and docstring stay"
MAPPING = "`from_chex` of a mappable dataclass: `p['w']`, `**p`, `in`, `len`, `.items()` stay"
BASES = "`from_chex` of a subclass: its chex bases are migrated with it"
PICKLES = "pickles of the chex dataclass load as what `from_chex` has made of it"


@chex.dataclass
class Moments:
    mean: Any
    var: Any = 1.0


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Plain:
    mean: Any
    var: Any = 1.0


@lw.pytree
class Norm:
    moments: Any
    scale: Any = 1.0
    act: lw.Static[object] = "relu"


@chex.dataclass
class State:
    norm: Norm
    step: Any = 0.0


def tree(inner: Any, n: int = 3, act: object = "relu") -> State:
    moments = inner(mean=jnp.ones(n), var=jnp.ones(2))
    return State(norm=Norm(moments, jnp.ones(()), act), step=jnp.ones(()))


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # our own


def paths(value: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(value)]


both = pytest.mark.parametrize("inner", [Moments, Plain], ids=["mappable", "plain"])


@works("chex", NESTED)
@both
def test_nested(inner: Any) -> None:
    """Leaves, statics and classes come through every transformation."""
    state = tree(inner)
    assert paths(state) == [".norm.moments.mean", ".norm.moments.var", ".norm.scale", ".step"]
    total = jax.jit(lambda s: s.norm.scale * s.norm.moments.mean.sum())
    with lw.budget(traces=1, exact=True, eager=False):
        total(state)
        total(jax.tree.map(lambda leaf: 2 * leaf, tree(inner)))
    with lw.budget(traces=1, exact=True, eager=False):
        total(tree(inner, act="tanh"))
    gradient = jax.grad(total)(state)
    assert type(gradient.norm.moments) is inner
    assert gradient.norm.act == "relu"
    np.testing.assert_array_equal(gradient.norm.moments.mean, jnp.ones(3))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    assert jax.vmap(total)(stacked).tolist() == [3, 3]
    out = jax.jit(lambda s: s.replace(norm=lw.replace(s.norm, scale=s.step)))(state)
    chex.assert_trees_all_equal(out, state)


@works("chex", NESTED)
@both
def test_sound_keys_inside(inner: Any) -> None:
    """In a chex dataclass too, 1, True and 1.0 are three programs."""
    kind = jax.jit(lambda s: jnp.asarray(s.norm.act).dtype.name and s.norm.act * s.step)
    with lw.budget(traces=3, exact=True, eager=False):
        results = [kind(tree(inner, act=act)) for act in (1, True, 1.0)]
    assert len(results) == 3
    with pytest.raises(AssertionError, match="act=True"):
        chex.assert_trees_all_equal(tree(inner, act=1), tree(inner, act=True))


@works("chex", PATHS)
@both
def test_paths(inner: Any) -> None:
    """A changed leaf, a changed static, and a changed dtype are told by their path."""
    total = lw.jit(lambda state: state.norm.moments.mean.sum())
    total(tree(inner))
    total(tree(inner, n=4))
    total(tree(inner, act="tanh"))
    said = [str(trace.explanation) for trace in total.traces]
    assert "state.norm.moments.mean: shape (3,) -> (4,)" in said[1]
    assert "state.norm.act (static): 'relu' -> 'tanh'" in said[2]
    explanation = lw.explain(lw.signature(tree(inner)), lw.signature(tree(inner, n=5)))
    assert "norm.moments.mean: shape (3,) -> (5,)" in str(explanation)


@works("chex", "a chex dataclass as a static field: frozen ones only")
def test_as_a_static() -> None:
    """A frozen dataclass without arrays is a key; a mutable one is refused by name."""
    run = jax.jit(lambda norm: norm.scale)
    with lw.budget(traces=1, exact=True, eager=False):
        run(Norm(1.0, act=Plain(mean=1)))
        run(Norm(2.0, act=Plain(mean=1)))
    with lw.budget(traces=1, exact=True, eager=False):
        run(Norm(1.0, act=Plain(mean=True)))
    with pytest.raises(lw.errors.UnhashableStaticError, match=r"Norm\.act: .*not frozen"):
        Norm(1.0, act=Moments(mean=1))


ACTS = st.sampled_from(["relu", "tanh"])
FEW = settings(max_examples=10)
LAWS = [
    "round-trip",
    "key-paths",
    "static-types",
    "aux-data-hash",
    "distinct-classes",
    "transformations",
]


@works("chex", "leafwise's property tests check chex dataclasses with leafwise classes in them")
def test_the_kit() -> None:
    """A chex dataclass keeps the laws of its kind, with a pytree class in it and in one."""
    arrays = st.sampled_from([np.ones(3, np.float32), np.zeros(3, np.float32)])
    states = st.builds(lambda leaf, act: State(norm=Norm(Plain(mean=leaf), 1.0, act)), arrays, ACTS)
    check_pytree(states, laws=LAWS, settings=FEW)
    claims = {"retrace_on": {"norm.act"}, "reuse_on": {"norm.moments.mean", "norm.scale"}}
    check_recompilation(states, settings=FEW, **claims)


@chex.dataclass
class Params:
    """What is learned."""

    w: Any
    b: Any = 0.5
    history: Any = dataclasses.field(default_factory=tuple)
    act: str = dataclasses.field(default="relu", metadata={"doc": "of the layer"})
    limit: ClassVar[int] = 3

    def total(self, times: int = 1) -> Any:
        """Add up."""
        return times * (self.w.sum() + self.b)

    @property
    def size(self) -> int:
        return self.w.size

    @classmethod
    def zeros(cls, n: int) -> "Params":
        return cls(w=jnp.zeros(n))

    @staticmethod
    def double(x: Any) -> Any:
        return 2 * x

    @functools.cached_property
    def name(self) -> str:
        return "cached"


@works("chex", KEPT)
def test_kept() -> None:
    """All that the body of the class says stays, and the class of chex stays as it was."""
    before = dict(vars(Params))
    made = from_chex(Params, static=["act"])
    assert dict(vars(Params)) == before
    assert made is not Params
    assert (made.__name__, made.__qualname__, made.__module__) == ("Params", "Params", __name__)
    assert made.__doc__ == "What is learned."
    fields = {each.name: each for each in dataclasses.fields(made)}
    assert list(fields) == ["w", "b", "history", "act"]
    assert fields["act"].metadata["doc"] == "of the layer"
    assert (made.limit, made.double(2)) == (3, 4)
    params = made.zeros(3)
    assert isinstance(params, made)
    assert (params.b, params.history, params.act, params.size) == (0.5, (), "relu", 3)
    assert params.total() == 0.5
    assert jax.jit(made.total, static_argnames="times")(params, times=2) == 1.0
    assert made.total.__doc__ == "Add up."
    assert paths(params) == [".w", ".b"]
    assert isinstance(Params.zeros(3), Params)


@pytest.mark.slow
@works("chex", KEPT)
def test_statics_are_keys() -> None:
    """What was made static is in the key, by type and value."""
    made = from_chex(Params, static=["act"])
    total = jax.jit(lambda params: params.w.sum())
    with lw.budget(traces=1, exact=True, eager=False):
        total(made(w=jnp.ones(3)))
        total(made(w=jnp.zeros(3), act="re" + "lu"))
    with lw.budget(traces=1, exact=True, eager=False):
        total(made(w=jnp.ones(3), act="tanh"))
    with pytest.raises(lw.errors.UnhashableStaticError, match=r"Params\.act"):
        made(w=1.0, act=["relu"])
    arrays = st.sampled_from([np.ones(3, np.float32), np.zeros(3, np.float32)])
    drawn = st.builds(made, w=arrays, act=ACTS)
    check_pytree(drawn, settings=FEW)
    check_recompilation(drawn, retrace_on={"act"}, reuse_on={"w", "b"}, settings=FEW)


@works("chex", KEPT)
def test_declared_statics() -> None:
    """What annotation or metadata call static is static without being named."""

    @from_chex
    @chex.dataclass
    class Layer:
        w: Any
        act: lw.Static[str] = "relu"
        depth: int = lw.static_field(default=2, check=lambda depth: depth > 0)
        lr: Any = lw.field(default=1.0, check=chex_check(chex.assert_scalar_positive))

    assert len(jax.tree.leaves(Layer(w=1.0))) == 2
    with pytest.raises(lw.errors.FieldCheckError, match=r"Layer\.depth"):
        Layer(w=1.0, depth=0)
    with pytest.raises(lw.errors.FieldCheckError, match=r"Layer\.lr"):
        Layer(w=1.0, lr=0.0)


@works("chex", "`from_chex` above `@chex.dataclass`, or in its place")
def test_as_a_decorator() -> None:
    """Both spellings make the same class."""

    @from_chex(static=["act"])
    @chex.dataclass
    class Above:
        w: Any
        act: str = "relu"

    @from_chex(static=["act"])
    class InPlace:
        w: Any
        act: str = "relu"

    for cls in (Above, InPlace):
        instance = cls(w=jnp.ones(3))
        assert dict(**instance)["act"] == "relu"
        assert instance.replace(act="x")["act"] == "x"
        assert len(jax.tree.leaves(instance)) == 1
        with pytest.raises(TypeError, match="positional"):
            cls(jnp.ones(3))
    assert "<locals>.Above" in Above.__qualname__
    assert from_chex(Above) is Above


@works("chex", MAPPING)
def test_mapping() -> None:
    """A mapping of all fields, static ones included, in the order of the fields."""
    made = from_chex(Params, static=["act"])
    params = made(w=jnp.ones(2))
    assert isinstance(params, collections.abc.Mapping)
    assert list(params) == list(params.keys()) == ["w", "b", "history", "act"]
    assert len(params) == 4
    assert params["act"] == "relu"
    assert params["w"] is params.w
    assert ("b" in params, "limit" in params, "total" in params) == (True, False, False)
    assert params.get("nothing", 3) == 3
    assert list(params.values())[1:] == [0.5, (), "relu"]
    assert dict(params.items())["b"] == 0.5
    assert repr(params.keys()) == "dict_keys(['w', 'b', 'history', 'act'])"
    assert made(**params) == params
    with pytest.raises(KeyError, match="nothing"):
        params["nothing"]
    traced = jax.jit(lambda p: p["w"] + p["b"])(params)
    assert traced.tolist() == [1.5, 1.5]


@works(
    "chex",
    "`from_chex` of a mappable dataclass: `C(mapping)`",
    cannot="its constructor has parameters, which type checkers see: write `C(**mapping)`",
)
def test_no_mapping_as_the_argument() -> None:
    """A positional argument is refused, and does not become the first field."""
    made = from_chex(Params, static=["act"])
    assert Params({"w": 1.0}).w == 1.0
    with pytest.raises(TypeError, match="positional"):
        made({"w": 1.0})
    given = {"w": 1.0}
    assert made(**given).w == 1.0


INSTANCES = "`from_chex(C)(**old)` converts an instance; `**vars(old)` one of no mapping"


@works("chex", INSTANCES)
def test_instances() -> None:
    """An instance is converted by its fields."""
    made = from_chex(Params, static=["act"])
    old = Params(w=jnp.ones(2), act="tanh")
    assert made(**old).to_tuple()[1:] == (0.5, (), "tanh")
    assert from_chex(Plain)(**vars(Plain(mean=2.0))) == from_chex(Plain)(2.0)


@works("chex", INSTANCES)
def test_instances_with_computed_fields() -> None:
    """What a constructor does not take is computed again; `from_tuple` leaves it out."""

    @chex.dataclass(frozen=True)
    class Layer:
        w: Any
        twice: Any = dataclasses.field(default=None, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.w)

    made, old = from_chex(Layer), Layer(w=3.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'twice'"):
        made(**old)
    assert made.from_tuple(old.to_tuple()).to_tuple() == (3.0, 6.0)


@works("chex", "`from_chex`: `replace`, `to_tuple` and `from_tuple` stay")
@pytest.mark.parametrize("cls", [Moments, Plain])
def test_methods_of_chex(cls: Any) -> None:
    """They do what they did; `from_tuple` works where chex's own does not."""
    made = from_chex(cls)
    instance = made(mean=2.0)
    assert instance.replace(var=3.0) == made(mean=2.0, var=3.0)
    assert instance.to_tuple() == (2.0, 1.0)
    assert made.from_tuple(instance.to_tuple()) == instance
    with pytest.raises(ValueError, match=r"longer|shorter"):
        made.from_tuple((1.0,))
    with pytest.raises(TypeError, match="no field 'mena'"):
        instance.replace(mena=1.0)


@works("chex", "`from_chex` of a class that is not a mapping: positional arguments, patterns")
def test_no_mapping() -> None:
    """What was no mapping is none, and takes its fields by position."""
    made = from_chex(Plain)
    assert not issubclass(made, collections.abc.Mapping)
    match made(1.0, 2.0):
        case made(mean, var):
            assert (mean, var) == (1.0, 2.0)
        case _:
            pytest.fail("positional patterns are gone")
    assert from_chex(Moments).__match_args__ == ("mean", "var")


@works("chex", "assignment in place, after `from_chex`", cannot="pytree classes are frozen")
def test_frozen() -> None:
    """A mutable class is not mutable any more; the error says what to write."""
    old, new = Moments(mean=1.0), from_chex(Moments)(mean=1.0)
    old.mean = 2.0
    with pytest.raises(lw.errors.FrozenInstanceError, match=r"lw\.replace\(obj, mean=\.\.\.\)"):
        new.mean = 2.0


@works("chex", "`from_chex` and the order of leaves", cannot="chex sorts them, leafwise does not")
def test_order_of_leaves() -> None:
    """Leaves come in the order of the fields; chex has them by name."""

    @chex.dataclass
    class Layer:
        w: Any
        b: Any

    assert paths(Layer(w=1.0, b=2.0)) == [".b", ".w"]
    assert paths(from_chex(Layer)(w=1.0, b=2.0)) == [".w", ".b"]


@works("chex", "`from_chex`: `__post_init__` runs once, not whenever JAX rebuilds")
def test_post_init() -> None:
    """It may assign fields; chex runs it with tracers and with whatever JAX puts there."""
    seen: list[str] = []

    @chex.dataclass
    class Layer:
        w: Any
        size: int = dataclasses.field(default=0, init=False)
        scale: dataclasses.InitVar[float] = 2.0

        def __post_init__(self, scale: float = 1.0) -> None:
            seen.append(type(self.w).__name__)
            self.size = int(scale * self.w.shape[0])

    made = from_chex(Layer, static=["size"])
    layer = made(w=jnp.ones(3))
    assert layer.size == 6
    assert made(w=jnp.ones(3), scale=3.0).size == 9
    assert len(seen) == 2
    assert jax.tree.map(lambda leaf: None, layer).size == 6
    assert jax.jit(lambda p: p)(layer).size == 6
    assert len(seen) == 2


@works("chex", "`from_chex` of a class with its own `__init__`, `__repr__` or `__eq__`")
def test_own_methods() -> None:
    """What is written by hand is kept, what decorators made is not."""

    @chex.dataclass(mappable_dataclass=False)
    class Own:
        w: Any

        def __init__(self, n: int) -> None:
            self.w = jnp.ones(n)

        def __repr__(self) -> str:
            return f"Own of {self.w.shape}"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    made = from_chex(Own)
    assert repr(made(3)) == "Own of (3,)"
    assert made(3) == made(4)
    assert repr(made(2).replace(w=jnp.ones(5))) == "Own of (5,)"
    assert len(jax.tree.leaves(jax.tree.map(jnp.negative, made(3)))) == 1


@works("chex", KEPT)
@pytest.mark.parametrize("option", ["order", "eq", "repr", "kw_only"])
def test_options(option: str) -> None:
    """The options of `chex.dataclass` go with the class."""
    values = {"order": True, "eq": False, "repr": False, "kw_only": True}

    @chex.dataclass(mappable_dataclass=False, **{option: values[option]})
    class Point:
        x: Any

    made = from_chex(Point)
    match option:
        case "order":
            assert made(x=1) < made(x=2)
        case "eq":
            assert made(x=1) != made(x=1)
        case "repr":
            assert "object at" in repr(made(x=1))
        case _:
            with pytest.raises(TypeError, match="positional"):
                made(1)


@chex.dataclass
class Base:
    w: Any
    act: str = "relu"

    def total(self) -> Any:
        return self.w.sum()


@chex.dataclass
class Child(Base):
    b: Any = 1.0

    def total(self) -> Any:
        return super().total() + self.b


class Between(Base):
    def total(self) -> Any:
        return 10 * super().total()


@chex.dataclass
class Grandchild(Between):
    b: Any = 1.0

    @property
    def five(self) -> Any:
        return 5 * super().total()


@works("chex", BASES)
def test_bases() -> None:
    """The bases are migrated once, and `super()` leads to them: it does not in chex's mappings."""
    child, base = from_chex(Child, static=["act"]), from_chex(Base, static=["act"])
    assert issubclass(child, base)
    assert not issubclass(child, Base)
    assert child(w=jnp.ones(3)).total() == 4
    with pytest.raises(TypeError):
        Child(w=jnp.ones(3)).total()
    grandchild = from_chex(Grandchild, static=["act"])
    assert issubclass(grandchild, base)
    instance = grandchild(w=jnp.ones(3), act="tanh")
    assert (instance.total(), instance.five, instance["act"]) == (30, 150, "tanh")
    assert list(instance) == ["w", "act", "b"]
    assert paths(instance) == [".w", ".b"]


@works("chex", BASES)
def test_base_migrated_before() -> None:
    """A base keeps what it was told when it was migrated itself."""

    @chex.dataclass
    class First:
        act: str
        w: Any = 0.0

    @chex.dataclass
    class Second(First):
        depth: int = 2

    first = from_chex(First, static=["act"])
    second = from_chex(Second, static=["depth"])
    assert issubclass(second, first)
    assert paths(second(act="relu")) == [".w"]


@works("chex", BASES)
def test_field_of_a_frozen_base() -> None:
    """A base that is a frozen dataclass of no library stays; its fields can be made static."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        act: str = "relu"
        depth: int = 2

    @chex.dataclass(frozen=True)
    class Layer(Config):
        w: Any

    made = from_chex(Layer, static=["act"])
    assert issubclass(made, Config)
    assert paths(made(w=1.0)) == [".depth", ".w"]
    assert made(w=1.0, act="tanh").act == "tanh"


@works("chex", "`from_chex` of a generic class")
def test_generic() -> None:
    """Parameters stay, in subclasses too."""

    @chex.dataclass
    class Box(Generic[T]):
        value: T

    @chex.dataclass
    class Pair(Box[T]):
        other: Any = 1.0

    pair, box = from_chex(Pair), from_chex(Box)
    assert pair[int](value=1).value == 1
    assert pair.__orig_bases__ == (box[T],)
    assert pair.__parameters__ == (T,)


@works("chex", "`from_chex`: methods with `super()` and `__class__`, decorated ones too")
def test_methods_find_their_class() -> None:
    """A method finds the new class, and the old one's methods still find the old one."""

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(self: Any) -> Any:
            return function(self)

        return wrapper

    @chex.dataclass(mappable_dataclass=False)
    class Layer:
        w: Any

        def kind(self) -> Any:
            return __class__

        @decorated
        def logged(self) -> Any:
            return __class__

        @classmethod
        def of(cls) -> Any:
            return __class__

        @property
        def prop(self) -> Any:
            """Say."""
            return __class__

        @functools.cached_property
        def cached(self) -> Any:
            return __class__

    made = from_chex(Layer)
    for cls in (made, Layer):
        instance = cls(w=1.0)
        found = [instance.kind(), instance.logged(), cls.of(), instance.prop]
        assert found == [cls] * 4
    assert Layer(w=1.0).cached is Layer
    assert made.prop.__doc__ == "Say."
    assert made.logged.__wrapped__.__name__ == "logged"


class Outside:
    @chex.dataclass
    class Inside:
        """A specimen."""

        x: Any


@works("chex", "`from_chex` repairs the qualified name that a mappable dataclass has lost")
def test_qualified_name() -> None:
    """A class in a class is found again by pickle; chex's is not."""
    inside = Outside.Inside
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(inside(x=1.0))
    made = from_chex(inside)
    assert made.__qualname__ == "Outside.Inside"
    Outside.Inside = made  # type: ignore[misc]
    try:
        assert through_pickle(made(x=1.0)) == made(x=1.0)
    finally:
        Outside.Inside = inside  # type: ignore[misc]


@works("chex", PICKLES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_old_pickles(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the new class has taken the name of the old, it takes its pickles."""
    old = Base(w=np.ones(3), act="tanh")
    sent = pickle.dumps([old, Plain(mean=old)], protocol)
    made, plain = from_chex(Base, static=["act"]), from_chex(Plain)
    monkeypatch.setitem(globals(), "Base", made)
    monkeypatch.setitem(globals(), "Plain", plain)
    loaded, outer = pickle.loads(sent)  # noqa: S301  # our own
    assert loaded == made(w=np.ones(3), act="tanh")
    assert outer == plain(loaded)
    with lw.budget(traces=1, exact=True, eager=False):
        jax.jit(lambda x: x.w)(loaded)
    for again in (through_pickle(loaded), copy.copy(loaded), copy.deepcopy(loaded)):
        assert again == loaded


PROGRAM = """
import pickle, sys
cls, value = pickle.load(sys.stdin.buffer)
import jax
made = cls(w=1.0, act="tanh")
print(value["act"], len(jax.tree.leaves(made)), made.total())
"""


@pytest.mark.slow
@works("chex", "a class of `from_chex` in `__main__` through cloudpickle")
def test_cloudpickle() -> None:
    """A class made in a function works in another process."""

    @from_chex(static=["act"])
    class Local:
        w: Any
        act: str = "relu"

        def total(self) -> Any:
            return 2 * self.w

    sent = cloudpickle.dumps((Local, Local(w=np.ones(2))))
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert done.stdout.split() == [b"relu", b"1", b"2.0"], done.stderr


def test_the_same_class_again() -> None:
    """One call more with the same names gives the same class; other names give another."""
    assert from_chex(Params, static=["act"]) is from_chex(Params, static=("act",))
    assert from_chex(Params, static=["act"]) is not from_chex(Params, static=["act", "b"])


def test_classes_are_let_go() -> None:
    """A class that was migrated is not kept alive: neither by the new one, nor by a table."""

    def migrate() -> tuple[Any, Any]:
        class Layer:
            w: Any

            def kind(self) -> Any:
                return __class__

        return from_chex(Layer), weakref.ref(Layer)

    made, old = migrate()
    gc.collect()
    assert old() is None
    assert made(w=1.0).kind() is made


class Registered:
    pass


jax.tree_util.register_pytree_node(Registered, lambda _: ((), None), lambda *_: Registered())


@dataclasses.dataclass
class NotOfChex:
    x: Any


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (3, r"takes a class written for chex.dataclass, got 3"),
        (None, r"takes a class written for chex.dataclass"),
        (int, r"takes a class written for chex.dataclass, got <class 'int'>"),
        (NotOfChex, r"from_chex\(NotOfChex\): a dataclass, but not one of chex\n  fix: "),
        (Registered, r"from_chex\(Registered\): registered as a pytree, but not by chex"),
        (Moments(mean=1.0), r"takes a class.*\n  fix: .*from_chex\(Moments\)\(\*\*vars\("),
    ],
    ids=["int", "None", "builtin", "dataclass", "registered", "instance"],
)
def test_refused(cls: Any, said: str) -> None:
    """What is not a class of chex is refused, with what to do instead."""
    if cls is None:
        cls = ()
    with pytest.raises(lw.errors.DefinitionError, match=said):
        from_chex(cls)


def test_refused_names() -> None:
    """Names are checked, and text that is left dynamic is refused with the way out."""
    with pytest.raises(lw.errors.DefinitionError, match=r"no field 'atc' \(did you mean 'act'\?\)"):
        from_chex(Params, static=["atc"])
    with pytest.raises(lw.errors.DefinitionError, match=r"name fields in a list: \['act'\]"):
        from_chex(Params, static="act")
    with pytest.raises(
        lw.errors.DefinitionError, match=r"Params\.act: JAX cannot trace a str"
    ) as error:
        from_chex(Params)
    assert "from_chex(Params, static=[...])" in error.value.__notes__[0]
    with pytest.raises(lw.errors.DefinitionError, match="'scale' is dynamic"):
        from_chex(Norm, static=["scale"])
    assert from_chex(Norm, static=["act"]) is Norm
    with pytest.raises(lw.errors.DefinitionError, match="name fields in a list"):
        from_chex(Params, static=[3])  # type: ignore[list-item]


def test_refused_field_names() -> None:
    """Written in the place of chex.dataclass, a field cannot have the name of a method."""
    for name in ("items", "replace", "to_tuple"):
        with pytest.raises(
            lw.errors.DefinitionError, match=rf"a field '{name}' would hide the method"
        ):
            from_chex(type("P", (), {"__annotations__": {name: Any}}))

    @chex.dataclass
    class WithItems:
        items: Any

    assert from_chex(WithItems)(items=3)["items"] == WithItems(items=3)["items"] == 3


STRINGS = """
from __future__ import annotations
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar
import chex, jax
import leafwise as lw

@chex.dataclass
class Layer:
    w: jax.Array
    _: KW_ONLY
    limit: ClassVar[int] = 3
    scale: InitVar[int] = 2
    act: lw.Static[str] = "relu"

    def __post_init__(self, scale=2):
        self.w = self.w * scale
"""


@works("chex", KEPT)
def test_string_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotations may be strings, those that mean something to dataclasses too."""
    module = types.ModuleType("strings_of_chex")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(STRINGS, vars(module))  # noqa: S102  # our own
    made = from_chex(module.Layer)
    layer = made(w=1.0, scale=5)
    assert (layer.w, layer.act, made.limit, len(jax.tree.leaves(layer))) == (5.0, "relu", 3, 1)


def test_threads() -> None:
    """Threads that migrate one class get one class."""

    @chex.dataclass
    class Layer(Moments):
        w: Any = 0.0

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: from_chex(Layer), range(8)))
    assert len(made) == 1


@works("chex", "a leafwise subclass of what `from_chex` has made")
def test_subclass() -> None:
    """It is a pytree class as any other, and can be subclassed as one."""

    @lw.pytree(kw_only=True)
    class Sub(from_chex(Moments)):  # type: ignore[misc]
        act: lw.Static[str] = "relu"

    sub = Sub(mean=1.0, act="tanh")
    assert dict(**sub) == {"mean": 1.0, "var": 1.0, "act": "tanh"}
    assert len(jax.tree.leaves(sub)) == 2


def test_refused_bodies() -> None:
    """What cannot be in a pytree class is refused as there."""

    @chex.dataclass(mappable_dataclass=False)
    class Mutable:
        x: Any

        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, value)

    with pytest.raises(lw.errors.DefinitionError, match=r"Mutable\.__setattr__"):
        from_chex(Mutable)

    @chex.dataclass
    class OfMutable(NotOfChex):
        y: Any = 1.0

    with pytest.raises(
        lw.errors.DefinitionError, match="NotOfChex is a dataclass that is not frozen"
    ):
        from_chex(OfMutable)

    @from_chex
    @chex.dataclass
    class Sets:
        x: Any

        def __post_init__(self) -> None:
            self.cache = 1

    with pytest.raises(
        lw.errors.FrozenInstanceError, match=r"Sets\.cache is not a field, so JAX would"
    ):
        Sets(x=1.0)
