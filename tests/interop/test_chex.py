"""chex: its assertions of leafwise trees and as checks of fields, and nested dataclasses."""

import functools
import pickle
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise.interop.chex import ChexCheck, chex_check

works = pytest.mark.works


@lw.pytree
class Layer:
    w: Any
    b: Any
    act: lw.Static[object] = 1


@lw.pytree
class Net:
    layers: list[Any]
    scale: Any


def net(w: Any = None, **statics: Any) -> Net:
    given = jnp.ones((2, 3)) if w is None else w
    return Net([Layer(given, jnp.zeros(3), **statics)], jnp.float32(1))


PAIRS = {
    "equal": (chex.assert_trees_all_equal, jnp.zeros((2, 3))),
    "close": (chex.assert_trees_all_close, jnp.full((2, 3), 1.1)),
    "equal_shapes": (chex.assert_trees_all_equal_shapes, jnp.ones((2, 4))),
    "equal_shapes_and_dtypes": (
        chex.assert_trees_all_equal_shapes_and_dtypes,
        jnp.ones((2, 3), jnp.int32),
    ),
}
TWO_TREES = "`assert_trees_all_equal`, `_close`, `_equal_shapes` and the like: they name the field"


@works("chex", TWO_TREES)
@works("chex", "trees whose statics differ in value or type (`1`, `True`) are not equal")
@pytest.mark.parametrize(("assertion", "other"), PAIRS.values(), ids=PAIRS)
def test_two_trees(assertion: Callable[..., None], other: Any) -> None:
    """Two equal trees pass; another leaf fails, by its path, and another static, by its field."""
    assertion(net(), net())
    with pytest.raises(AssertionError, match=r"differ in leaves 'layers/0/w'"):
        assertion(net(), net(w=other))
    with pytest.raises(AssertionError, match=r"L?ayer\(act=1\).*[\s\S]*Layer\(act=True\)"):
        assertion(net(), net(act=True))


@works(
    "chex",
    "statics under `chexify`: `assert_trees_all_equal` of traced trees",
    cannot="chex compares no structures there, for any class; add `assert_trees_all_equal_structs`",
)
def test_chexified_comparison_sees_no_structure() -> None:
    """Traced trees of other statics pass in any library, and structures are compared beside."""
    checked = chex.chexify(jax.jit(chex.assert_trees_all_equal), async_check=False)
    checked(net(), net(act=True))
    with pytest.raises(AssertionError, match="act=True"):
        jax.jit(chex.assert_trees_all_equal_structs)(net(), net(act=True))


@works(
    "chex",
    "which leaf is not finite, of `assert_tree_all_finite(tree)` under `chexify`",
    cannot="chex prints the tree with numbers for its arrays, and leafwise's repr shows only "
    "shapes; assert field by field, or with `chex_check`",
)
def test_chexified_finite_names_no_leaf() -> None:
    """The message shows the fields, but not which of them it is about."""
    checked = chex.chexify(jax.jit(chex.assert_tree_all_finite), async_check=False)
    with pytest.raises(AssertionError, match=r"Layer\(w=f32\[\], b=f32\[\], act=1\)"):
        checked(net(w=jnp.full((2, 3), jnp.nan)))


AT_CONSTRUCTION = "`lw.field(validator=chex_check(chex.assert_rank, 2))`: checked at construction"
TRACED = "`chex_check` of shapes and dtypes under `jit`, `vmap`, `grad`, `scan` and `eval_shape`"
CHEXIFIED = "`chex_check` of values in a jitted function under `chexify`; the error names the field"
UNKNOWN = "`chex_check` of values under plain `jit`: left out until the value is known"

NAN = jnp.full((2, 3), jnp.nan)


@lw.pytree
class Params:
    w: Any = lw.field(
        validator=chex_check(chex.assert_rank, 2) & chex_check(chex.assert_tree_all_finite)
    )
    lr: Any = lw.field(default=0.1, validator=chex_check(chex.assert_scalar_positive))
    depth: int = lw.static_field(default=2, validator=chex_check(chex.assert_scalar_in, 1, 9))


def of_one_field(check: Callable[[Any], object]) -> Any:
    @lw.pytree
    class P:
        x: Any = lw.field(validator=check)

    return P


@works("chex", AT_CONSTRUCTION)
@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"w": jnp.ones(3)}, "w", r"Assertion assert_rank failed: .* has rank 1"),
        ({"w": NAN}, "w", r"Assertion assert_tree_all_finite failed"),
        ({"lr": -1.0}, "lr", r"must be positive, got -1\.0"),
        ({"depth": 10}, "depth", r"must be in \[1, 9\], got 10"),
        ({"w": 3.5}, "w", r"has rank 0"),
        ({"lr": "fast"}, "lr", r"must be a scalar, got <class 'str'>"),
    ],
    ids=["shape", "value", "number", "static", "no array", "text"],
)
def test_refuses(arguments: dict[str, Any], field: str, said: str) -> None:
    """The error names class and field, keeps chex's message and error, and says what it got."""
    given = {"w": jnp.ones((2, 3)), **arguments}
    with pytest.raises(
        lw.errors.FieldCheckError, match=rf"^Params\.{field}: \[Chex\].*{said}"
    ) as error:
        Params(**given)
    assert isinstance(error.value.__cause__, AssertionError)
    assert "\n  got: " in str(error.value)
    with pytest.raises(lw.errors.FieldCheckError, match=rf"Params\.{field}: "):
        lw.replace(Params(jnp.ones((2, 3))), **arguments)


@works("chex", TRACED)
@pytest.mark.parametrize(
    "transform",
    [
        jax.jit,
        lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
        lambda f: jax.grad(lambda x: f(x).sum()),
        lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, length=2),
        lw.jit,
    ],
    ids=["jit", "vmap", "grad", "scan", "lw.jit"],
)
def test_traced(transform: Callable[[Any], Any]) -> None:
    """A shape is checked under a transformation; the error comes out of it by field."""
    run = transform(lambda x: Params(x).w)
    run(jnp.ones((2, 3)))
    run = transform(lambda x: Params(x).w)
    with pytest.raises(
        lw.errors.FieldCheckError, match=r"^Params\.w: .* has rank 1.*expected 2\.\n"
    ):
        run(jnp.ones(3))


@works("chex", UNKNOWN)
def test_unknown_values() -> None:
    """Elements of traced values are not known: the value passes, and is checked once it is."""
    made = jax.jit(lambda w, lr: Params(w, lr))(NAN, -1.0)
    assert bool(jnp.isnan(made.w).all())
    assert made.lr == -1.0
    with pytest.raises(lw.errors.FieldCheckError, match=r"Params\.w: .*non-finite"):
        lw.replace(made, lr=1.0)
    # What is known while tracing is checked while tracing.
    with pytest.raises(lw.errors.FieldCheckError, match=r"Params\.depth: "):
        jax.jit(lambda w: Params(w, depth=10))(jnp.ones((2, 3)))


@works("chex", CHEXIFIED)
def test_chexified() -> None:
    """Under chexify the program checks values, and the error says whose they are."""

    @chex.chexify
    @jax.jit
    def total(w: Any, lr: Any) -> Any:
        return lr * Params(w, lr).w.sum()

    assert total(jnp.ones((2, 3)), 2.0) == 12
    total.wait_checks()

    def run(*values: Any) -> None:
        total(*values)
        total.wait_checks()

    with pytest.raises(AssertionError, match=r"non-finite.*Custom message: Params\.w\."):
        run(NAN, 2.0)
    run(jnp.ones((2, 3)), -2.0)  # chex has no program for an assertion about one number
    with pytest.raises(lw.errors.FieldCheckError, match=r"^Params\.w: .* rank 1"):
        total(jnp.ones(3), 2.0)


@works("chex", "`chex_check` of devices: left out of traced values")
def test_devices() -> None:
    """Where a traced value will lie is not known."""
    cls = of_one_field(chex_check(chex.assert_tree_is_on_device, platform="gpu"))
    assert jax.jit(lambda x: cls(x).x)(1.0) == 1.0
    with pytest.raises(lw.errors.FieldCheckError, match=r"P\.x: "):
        cls(jnp.ones(3))


@works("chex", "`chex_check` of a `jax.ShapeDtypeStruct`, as of a traced value")
def test_abstract_values() -> None:
    """An abstract instance is checked for shapes and dtypes."""
    struct = jax.ShapeDtypeStruct
    abstract = Params(struct((2, 3), jnp.float32), struct((), jnp.float32))
    assert abstract.w.shape == (2, 3)
    with pytest.raises(
        lw.errors.FieldCheckError, match=r"Params\.w: .*rank 1.*\n  got: ShapeDtypeStruct"
    ):
        Params(struct((3,), jnp.float32))
    checked = chex.chexify(jax.jit(lambda _: Params(struct((2, 3), jnp.float32)).depth), False)
    assert checked(1.0) == 2


# chex 0.1.91 has numpy ask an array for its dtype.
@pytest.mark.filterwarnings("ignore:Implicit conversion of an array:DeprecationWarning")
@works("chex", "several checks of one field: `chex_check(...) & chex_check(...)`")
def test_both() -> None:
    """Checks run in order; a value assertion that is left out leaves out no other."""
    finite, rank = chex_check(chex.assert_tree_all_finite), chex_check(chex.assert_rank, 2)
    kind = chex_check(chex.assert_type, jnp.float32)
    cls = of_one_field(finite & rank & kind)
    cls(jnp.ones((2, 3)))
    with pytest.raises(lw.errors.FieldCheckError, match="has rank 1"):
        jax.jit(cls)(jnp.ones(3))
    with pytest.raises(lw.errors.FieldCheckError, match="assert_type"):
        cls(np.ones((2, 3), np.int32))
    assert isinstance(finite & rank, ChexCheck)


@works("chex", "`chex_check` of a function of one's own, with several assertions")
def test_own_function() -> None:
    """A function that asserts is an assertion."""

    def is_square(value: Any, size: int) -> None:
        chex.assert_shape(value, (size, size))
        assert value.dtype == jnp.float32, "a float32, please"

    cls = of_one_field(chex_check(is_square, size=2))
    cls(jnp.ones((2, 2)))
    with pytest.raises(lw.errors.FieldCheckError, match=r"P\.x: a float32, please"):
        cls(jnp.ones((2, 2), int))
    with pytest.raises(lw.errors.FieldCheckError, match=r"P\.x: \[Chex\] Assertion assert_shape"):
        jax.jit(cls)(jnp.ones((2, 3)))


def test_own_mistakes_come_out() -> None:
    """What is wrong with the assertion, and not with the value, does not refuse the value."""

    def broken(_value: Any) -> None:
        raise KeyError("oh")  # specimen

    cls = of_one_field(chex_check(broken))
    with pytest.raises(KeyError, match="oh") as error:
        cls(1)
    assert "P.x" in error.value.__notes__[0]
    with pytest.raises(TypeError, match="expected_ranks") as error:
        of_one_field(chex_check(chex.assert_rank))(1)
    assert "P.x" in error.value.__notes__[0]
    answers = of_one_field(chex_check(lambda value: value > 0))
    with pytest.raises(TypeError, match=r"not an assertion.*it returned False\n  fix: `validator="):
        answers(-1)


def test_custom_message() -> None:
    """chex's own options go through; chexify's message has field and words."""
    message = {"custom_message": "of {}", "custom_message_format_vars": ("us",)}
    cls = of_one_field(chex_check(chex.assert_rank, 1, include_default_message=False, **message))
    with pytest.raises(lw.errors.FieldCheckError, match=r"P\.x: \[Chex\] Error in rank.*\[of us\]"):
        cls(1.0)
    cls = of_one_field(chex_check(chex.assert_tree_all_finite, custom_message="mine"))
    checked = chex.chexify(jax.jit(lambda x: cls(x).x), async_check=False)
    with pytest.raises(AssertionError, match=r"Custom message: P\.x: mine\."):
        checked(jnp.inf)


@works("chex", "`disable_asserts`")
def test_disabled() -> None:
    """`chex.disable_asserts` turns the checks off, under chexify too."""
    chex.disable_asserts()
    try:
        Params(jnp.ones(3), lr=-1.0)
        chex.chexify(jax.jit(lambda lr: Params(NAN, lr).lr), async_check=False)(-1.0)
    finally:
        chex.enable_asserts()
    with pytest.raises(lw.errors.FieldCheckError):
        Params(jnp.ones(3))


@works("chex", "`chex_check` of a field that may be None: `chex.if_args_not_none`")
def test_optional() -> None:
    """None passes, an array is checked, also under jit."""
    check = chex_check(functools.partial(chex.if_args_not_none, chex.assert_rank), 2)
    cls = of_one_field(check)
    assert cls(None).x is None
    jax.jit(cls)(jnp.ones((2, 2)))
    with pytest.raises(lw.errors.FieldCheckError, match=r"P\.x: .*rank 1"):
        jax.jit(cls)(jnp.ones(2))


def test_a_check_travels() -> None:
    """A check that was pickled, as cloudpickle does with a class, checks the same."""
    both = chex_check(chex.assert_rank, 2) & chex_check(chex.assert_tree_all_finite)
    again = pickle.loads(pickle.dumps(both))  # noqa: S301  # our own
    with pytest.raises(lw.errors.FieldCheckError, match="has rank 1"):
        again(jnp.ones(3))


NESTED = "leafwise classes and chex dataclasses nested in each other, through `jit`, `vmap`, `grad`"
PATHS = "Explanations name fields inside nested chex dataclasses, mappable or not"


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
    assert (type(gradient.norm.moments), gradient.norm.act) == (inner, "relu")
    out = jax.jit(lambda s: s.replace(norm=lw.replace(s.norm, scale=s.step)))(state)
    chex.assert_trees_all_equal(out, state)


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


@works("chex", "a chex dataclass as a static field: frozen ones only")
def test_as_a_static() -> None:
    """A frozen dataclass without arrays is a key; a mutable one is refused by name."""
    run = jax.jit(lambda norm: norm.scale)
    with lw.budget(traces=1, exact=True, eager=False):
        run(Norm(1.0, act=Plain(mean=1)))
        run(Norm(2.0, act=Plain(mean=1)))
    with pytest.raises(lw.errors.StaticFieldError, match=r"Norm\.act: .*not frozen"):
        Norm(1.0, act=Moments(mean=1))
