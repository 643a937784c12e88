"""What a signature holds and keeps alive, and when two are equal, by an `==` of their own, too."""

import gc
import re
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import count_events
from tests.kit.specimens import Chex, Equinox, Flax, Jdc, Plain, Slotted
from tests.objects.samples import Pair

import leafwise as lw
from leafwise.types import LeafKind, Outcome

pytestmark = pytest.mark.oracle


def function(x: Any) -> Any:
    return x


@pytest.mark.parametrize("cls", [Slotted, Flax, Equinox, Plain, Jdc])
def test_classes_statics_and_leaves_by_path(cls: Any) -> None:
    """Class, static fields and leaves of an instance stand under its path, and deeper."""
    inner = cls(jnp.ones(2), "inner")
    signature = lw.signature({"model": cls([inner, 1.0], 7)})
    assert signature.statics == {"args[0]['model'].n": 7, "args[0]['model'].w[0].n": "inner"}
    assert list(signature.leaves) == ["args[0]['model'].w[0].w", "args[0]['model'].w[1]"]
    assert signature.classes == {
        "args[0]": dict,
        "args[0]['model']": cls,
        "args[0]['model'].w": list,
        "args[0]['model'].w[0]": cls,
    }


CONTAINERS: dict[str, tuple[Any, list[str], dict[str, Any]]] = {
    "chex": (Chex(w=1.0, b=2.0), ["args[0].b", "args[0].w"], {}),
    "dict": ({"b": 1.0, "a": 2.0}, ["args[0]['a']", "args[0]['b']"], {}),
    "OrderedDict": (OrderedDict(b=1.0, a=2.0), ["args[0]['b']", "args[0]['a']"], {}),
    "defaultdict": (defaultdict(list, a=1.0), ["args[0]['a']"], {"args[0].default_factory": list}),
    "namedtuple": (Pair(1.0, (2.0,)), ["args[0].a", "args[0].b[0]"], {}),
    "Partial": (
        jax.tree_util.Partial(function, 1.0, k=2.0),
        ["args[0].args[0]", "args[0].keywords['k']"],
        {"args[0].func": function},
    ),
    "None": ({"a": None, "b": 1.0}, ["args[0]['b']"], {}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(name: str) -> None:
    """Leaves and statics of containers are named as one would write them."""
    value, leaves, statics = CONTAINERS[name]
    signature = lw.signature(value)
    assert sorted(signature.leaves) == sorted(leaves)
    assert signature.statics == statics
    assert len(signature.leaves) == signature.treedef.num_leaves


LEAVES: dict[str, tuple[Callable[[], Any], LeafKind, tuple[int, ...], str, bool]] = {
    "jax array": (lambda: jnp.ones(3), LeafKind.JAX_ARRAY, (3,), "float32", False),
    "weak array": (lambda: jnp.asarray(1.0), LeafKind.JAX_ARRAY, (), "float32", True),
    "NumPy": (lambda: np.ones((2, 3)), LeafKind.NUMPY_ARRAY, (2, 3), "float32", False),
    "NumPy scalar": (lambda: np.int8(1), LeafKind.NUMPY_SCALAR, (), "int8", False),
    "float": (lambda: 1.0, LeafKind.PYTHON_SCALAR, (), "float32", True),
    "int": (lambda: 1, LeafKind.PYTHON_SCALAR, (), "int32", True),
    "bool": (lambda: True, LeafKind.PYTHON_SCALAR, (), "bool", False),
    "complex": (lambda: 1j, LeafKind.PYTHON_SCALAR, (), "complex64", True),
    "key": (lambda: jax.random.key(0), LeafKind.PRNG_KEY, (), "key<fry>", False),
    "shapes": (
        lambda: jax.ShapeDtypeStruct((4,), "int32"),
        LeafKind.SHAPE_DTYPE_STRUCT,
        (4,),
        "int32",
        False,
    ),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf(name: str) -> None:
    """Kind, shape, dtype and weak type are those that JAX sees; uncommitted as it comes."""
    make, kind, shape, dtype, weak = LEAVES[name]
    (leaf,) = lw.signature(make()).leaves.values()
    assert leaf.kind is kind
    assert leaf.shape == shape
    assert str(leaf.dtype) == dtype
    assert leaf.weak_type is weak
    assert leaf.committed is False
    assert str(kind) in str(leaf)


def test_the_configuration_is_recorded() -> None:
    """The dtype is that of the configuration of the call, and the option has a name."""
    with jax.enable_x64(True):
        signature = lw.signature(1.0, np.ones(2))
    assert {str(leaf.dtype) for leaf in signature.leaves.values()} == {"float64"}
    assert dict(signature.config)["jax_enable_x64"] is True
    assert dict(lw.signature(1.0).config)["jax_enable_x64"] is False


def test_static_arguments() -> None:
    """Static arguments are statics, by position and by name, and no leaves."""
    made = lw.signature(
        1.0, "relu", 2.0, mode="a", scale=3.0, static_argnums=(1,), static_argnames="mode"
    )
    assert made.statics == {"args[1]": "relu", "kwargs['mode']": "a"}
    assert list(made.leaves) == ["args[0]", "args[2]", "kwargs['scale']"]
    assert lw.signature(1.0, "a", static_argnums=-1).statics == {"args[1]": "a"}
    assert lw.signature(1.0, static_argnums=5, static_argnames="nobody").statics == {}


def test_filter_jit() -> None:
    """Under `filter_jit` a leaf that is no array is static."""
    model = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    value = {"act": jnp.sin, "model": model, "rate": 0.1, "np": np.ones(2)}
    made = lw.signature(value, filter_jit=True)
    kinds = {path: leaf.kind for path, leaf in made.leaves.items()}
    assert kinds["args[0]['act']"] is kinds["args[0]['rate']"] is LeafKind.STATIC
    assert kinds["args[0]['np']"] is LeafKind.NUMPY_ARRAY
    assert kinds["args[0]['model'].weight"] is LeafKind.JAX_ARRAY
    said = lw.signature({**value, "rate": 0.2}, filter_jit=True).explain(made)
    assert said.outcome is Outcome.RETRACE
    assert [reason.path for reason in said.reasons] == ["args[0]['rate']"]
    assert lw.signature(value) != made


def test_no_array_is_kept() -> None:
    """The arrays die with the caller's references, and so do those in classes."""
    array, other = jnp.arange(3.0) + 1, np.arange(3.0)
    refs = [weakref.ref(array), weakref.ref(other)]
    made = lw.signature(array, {"a": Slotted(array), "b": Equinox(array)}, other, k=(array,))
    text = repr(made)
    said = lw.signature(array).explain(made)
    del array, other
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert "args[1]['a'].w: " in text
    assert said.outcome is Outcome.RETRACE
    assert len(made.leaves) == 5


def test_nothing_is_traced_or_compiled() -> None:
    """Recording and explaining are free of JAX events."""
    value = {"a": Slotted(jnp.ones(3)), "b": np.ones(2), "k": jax.random.key(0)}
    with count_events() as counts:
        lw.signature(value, 1.0).explain(lw.signature(value))
    assert (counts.traces, counts.lowerings, counts.compiles) == (0, 0, 0)


CALLS: list[Callable[[], Any]] = [
    lambda: lw.signature(),
    lambda: lw.signature(1.0),
    lambda: lw.signature(jnp.float32(1)),
    lambda: lw.signature(np.float32(1)),
    lambda: lw.signature(jnp.asarray(1.0)),
    lambda: lw.signature(1),
    lambda: lw.signature(jax.device_put(jnp.ones(3), jax.devices()[0])),
    lambda: lw.signature(Slotted(1.0, 1)),
    lambda: lw.signature(Slotted(1.0, True)),
    lambda: lw.signature(Plain(1.0, 1)),
    lambda: lw.signature(Plain(1.0, True)),
    lambda: lw.signature(Flax(1.0, float("nan"))),
    lambda: lw.signature(1.0, 1.0, filter_jit=True),
    lambda: lw.signature("a string"),
]


def test_equality_is_an_equivalence_and_agrees_with_hash_and_explain() -> None:
    """Reflexive, symmetric, transitive; equal ones hash alike; equal is one program."""
    every = [make() for make in CALLS for _ in range(2)]
    shared = (Outcome.REUSE, Outcome.DISPATCH)
    for one in every:
        assert one == one  # noqa: PLR0124  # the law
        assert not one != one  # noqa: PLR0124, SIM202  # the law
        for other in every:
            assert (one == other) == (other == one)
            if one == other:
                assert hash(one) == hash(other)
                assert all((one == third) == (other == third) for third in every)
            said = other.explain(one)
            if said.outcome not in (Outcome.ERROR, Outcome.UNKNOWN):
                assert (one == other) == (said.outcome in shared), str(said)
    assert len({*every}) < len(every)
    assert every[0] != 1.0
    assert every[0] != "signature"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lw.signature(1, static_argnums="x"), "static_argnums takes integers, got 'x'"),
        (lambda: lw.signature(1, static_argnames=(1,)), "static_argnames takes names, got 1"),
        (
            lambda: lw.signature(1).explain([1]),
            "explain takes signatures from leafwise.signature(...), got 1",
        ),
        (lambda: lw.signature(1).explain(2), "got 2 (int)"),
    ],
    ids=["argnums", "argnames", "numbers", "earlier"],
)
def test_wrong_arguments(call: Callable[[], Any], words: str) -> None:
    """The error says what was expected, and what was given."""
    with pytest.raises(TypeError, match=re.escape(words)):
        call()


def test_options_of_jit() -> None:
    """Those on which no key depends are no arguments of the call."""
    plain = lw.signature(jnp.ones(2))
    assert plain == lw.signature(jnp.ones(2), donate_argnums=0, keep_unused=True, device=None)
    assert plain != lw.signature(jnp.ones(2), scale=1.0)
    on = [lw.signature(1.0, device=each, static_argnames="device") for each in ("cpu", "gpu")]
    assert on[0] != on[1], "an argument of that name"


def nested(depth: int, static: int = 1) -> Any:
    tree: Any = 1.0
    for level in range(depth):
        tree = Slotted(tree, static if level == 0 else 1)
    return tree


def test_a_deep_tree() -> None:
    """Whatever depth JAX takes is recorded, explained and digested: 2,000 levels."""
    depth = 2_000 if sys.version_info >= (3, 12) else 800  # Python 3.11 counts calls of C, too
    jax.jit(lambda tree: tree)(nested(depth))
    one, same, other = (lw.signature(nested(depth, n)) for n in (1, 1, 2))
    assert one == same
    assert one.explain(same).outcome is Outcome.REUSE
    (reason,) = other.explain(one).reasons
    assert (reason.path, reason.change) == ("args[0]" + ".w" * (depth - 1) + ".n", "1 -> 2")
    digests = [lw.digest(nested(depth, n)) for n in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


class Scale:
    """It compares by number alone, so that `Scale(1)` and `Scale(True)` are equal."""

    def __init__(self, by: Any, cache: Any = None) -> None:
        self.by = by
        self.cache = cache

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scale) and bool(self.by == other.by)

    def __hash__(self) -> int:
        return hash(self.by)


@pytest.mark.parametrize("cls", [Slotted, Plain])
@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: (0, each)], ids=["bare", "deep"])
def test_a_shared_program_is_called_unsound(cls: Any, wrap: Any) -> None:
    """The program of the first object answers, and `explain` says by which attribute."""
    one, other = (cls(jnp.ones(2, int), wrap(Scale(by))) for by in (1, True))
    traces: list[Any] = []

    @lw.jit
    def step(params: Any) -> Any:
        traces.append(params)
        return params.w

    step(one)
    found = step.explain(other)
    step(other)
    assert len(traces) == 1
    assert found.outcome is lw.types.Outcome.REUSE
    (reason,) = found.unsound
    inner = "[1].by" if isinstance(one.n, tuple) else ".by"
    assert reason.path == f"params.n{inner}"
    assert (reason.before, reason.after) == (1, True)
    assert reason.change.startswith("equal by its own `==`, though `True` is not `1`")


@pytest.mark.parametrize("cls", [Slotted, Plain])
@pytest.mark.parametrize("caches", [(None, 3), ([], [1]), (object(), object())])
def test_a_cache_is_no_difference(cls: Any, caches: tuple[Any, Any]) -> None:
    """What one object has computed so far, or compares by identity, is passed over."""
    one, other = (cls(1.0, Scale(1, cache)) for cache in caches)
    assert not lw.signature(other).explain(lw.signature(one)).unsound


@pytest.mark.hazard
def test_keys_that_are_equal_to_jax_answer_for_their_values() -> None:
    """A static that changes later is no cause of a retrace: JAX compares the keys."""
    one, other = (Slotted(leaves, Scale(1)) for leaves in ((1.0,), (1.0, 2.0)))
    other.n.by = 2
    assert jax.tree.structure(lw.replace(one, w=0)) == jax.tree.structure(
        jax.tree.map(lambda _: 0, other, is_leaf=lambda each: isinstance(each, tuple))
    )
    found = lw.signature(other).explain(lw.signature(one))
    assert [each.path for each in found.reasons] == ["args[0].w"]
    assert [each.path for each in found.unsound] == ["args[0].n.by"]


def loose(base: type, rounded: Any) -> Any:
    """Return a subclass of a builtin whose instances are equal if they are once rounded."""

    def equal(self: Any, other: object) -> bool:
        return type(other) is type(self) and bool(rounded(base(self)) == rounded(base(other)))

    body = {"__eq__": equal, "__hash__": lambda self: hash(rounded(base(self)))}
    return type("Loose", (base,), body)


NEAR, CASELESS, MODULO = loose(float, round), loose(str, str.lower), loose(int, lambda n: n % 7)


@pytest.mark.parametrize(
    "values", [(NEAR(1.0), NEAR(1.05)), (CASELESS("a"), CASELESS("A")), (MODULO(1), MODULO(8))]
)
@pytest.mark.parametrize("is_argument", [False, True])
def test_a_subclass_of_a_builtin(values: tuple[Any, Any], is_argument: bool) -> None:
    """A tolerance or the like makes two values share a program, whose answer is the first one's."""
    jitted = jax.jit(lambda x, _: x, static_argnums=1 if is_argument else ())
    one, other = values if is_argument else (Slotted(1.0, value) for value in values)
    jitted(1.0, one)
    jitted(1.0, other)
    assert jitted._cache_size() == 1  # type: ignore[attr-defined]
    numbers = 1 if is_argument else ()
    found = lw.signature(1.0, other, static_argnums=numbers).explain(
        lw.signature(1.0, one, static_argnums=numbers)
    )
    assert found.outcome is lw.types.Outcome.REUSE
    assert [(each.before, each.after) for each in found.unsound] == [values]
    assert found.unsound[0].change.startswith("equal by its own `==`, though")
