"""`chex_check`: an assertion of chex as the check of a field."""

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
