"""Known differences of arguments and of static values: predicted and observed."""

from typing import Any

import jax
import numpy as np
import optax
import pytest
from tests.kit.specimens import Equinox, Flax, Jdc, Plain, Slotted
from tests.statics.test_distinct import EQUAL

import leafwise as lw
from leafwise.types import Outcome, ReasonKind

from .pairs import Row, call, check_row, first_device, ones, rows, two_calls

pytestmark = pytest.mark.oracle

REUSE, DISPATCH = Outcome.REUSE, Outcome.DISPATCH
RECOMPILE, RETRACE, ERROR = Outcome.RECOMPILE, Outcome.RETRACE, Outcome.ERROR


PLAIN = [Plain, Flax, Equinox, Jdc]


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")  # Equinox says it
@pytest.mark.parametrize(
    ("cls", "one", "other"),
    [
        pytest.param(cls, *pair, id=f"{cls.__name__}-{name}")
        for cls in PLAIN
        for name, pair in EQUAL.items()
        if cls is Plain or name in ("int-bool", "not-compared-field")
    ],
)
def test_equal_statics_of_other_libraries_are_marked(cls: Any, one: Any, other: Any) -> None:
    """JAX shares one program for two values: predicted, and marked unsound, with the field."""
    jax.clear_caches()  # JAX compares with the statics of all programs: of an array it fails
    seen = two_calls(call(cls(ones(3), one)), call(cls(ones(3), other)))
    assert seen.outcome is REUSE, "the table is wrong about JAX"
    assert seen.predicted.outcome is REUSE, str(seen.predicted)
    assert seen.equal
    assert not seen.predicted.reasons
    assert [reason.path for reason in seen.predicted.unsound] == ["args[0].n"]


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_leafwise_statics_retrace(one: Any, other: Any) -> None:
    """A leafwise class gives each of two such values its own program, as predicted."""
    seen = two_calls(call(Slotted(ones(3), one)), call(Slotted(ones(3), other)))
    assert seen.outcome is RETRACE, "the table is wrong about leafwise"
    assert seen.predicted.outcome is RETRACE, str(seen.predicted)
    assert not seen.equal
    assert [reason.path for reason in seen.predicted.reasons] == ["args[0].n"]
    assert seen.predicted.reasons[0].kind is ReasonKind.STATIC
    assert not seen.predicted.unsound


# Of a static field the values in two calls, and what JAX does for the second one.
STATICS = """
a new lambda: lambda x: x | lambda x: x -> retrace, args[0].n: static
a new partial: partial(helper, 1) | partial(helper, 1) -> retrace, args[0].n: static
a new closure: closure() | closure() -> retrace, args[0].n: static
a new bound method: Machine().method | Machine().method -> retrace, args[0].n: static
a new object: Machine() | Machine() -> retrace, args[0].n: static
an optimizer built again: optax.adam(0.1) | optax.adam(0.1) -> retrace, args[0].n: static
a new NaN: float("nan") | float("nan") -> retrace, args[0].n: static
a new NaN in a tuple: (1, float("nan")) | (1, float("nan")) -> retrace, args[0].n: static
the same NaN: NAN | NAN -> reuse
the same NaN in a tuple: (1, NAN) | (1, NAN) -> reuse
an equal list, which has no hash: [1] | [1] -> reuse
another list: [1] | [2] -> retrace, args[0].n: static
"""


@pytest.mark.parametrize("cls", PLAIN, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("row", rows(STATICS))
def test_a_static(cls: type, row: Row) -> None:
    """What JAX does with a static of any library's class is predicted; the field is named."""
    before, after = (f"{cls.__name__}(1.0, {value})" for value in (row.before, row.after))
    check_row(row._replace(before=before, after=after))


@pytest.mark.parametrize("cls", [Plain, Flax, Jdc], ids=lambda cls: cls.__name__)
def test_an_array_as_a_static_raises_on_the_second_call(cls: Any) -> None:
    """JAX cannot compare two arrays: the second call raises, as predicted."""
    jax.clear_caches()
    seen = two_calls(call(cls(1.0, np.ones(2))), call(cls(1.0, np.ones(2))))
    jax.clear_caches()
    assert seen.outcome is ERROR, "the table is wrong about JAX"
    assert seen.predicted.outcome is ERROR
    (reason,) = seen.predicted.reasons
    assert (reason.path, reason.kind) == ("args[0].n", ReasonKind.COMPARISON)
    assert not seen.equal


def test_an_optimizer_of_filter_jit_is_one_line() -> None:
    """Its functions are leaves there: they are reasons of their own, and shown as one."""
    one, two = (lw.signature({"opt": optax.adam(0.1)}, filter_jit=True) for _ in range(2))
    found = two.explain(one)
    assert len(found.reasons) == 2
    (shown,) = found.as_dict()["reasons"]
    name = "optax.GradientTransformationExtraArgs"
    assert shown["path"] == "args[0]['opt']"
    assert (shown["before"], shown["after"]) == (name, "a new one")
    assert len(str(found).splitlines()) == 3


def test_a_class_defined_again() -> None:
    """Two definitions of one class are two structures: predicted, and said."""

    def define() -> Any:
        global Again  # noqa: PLW0603  # as a notebook's cell, it binds the name again

        @lw.pytree
        class Again:
            x: Any

        return Again

    seen = two_calls(call(define()(1.0)), call(define()(1.0)))
    assert seen.outcome is seen.predicted.outcome is RETRACE
    (reason,) = seen.predicted.reasons
    assert (reason.path, reason.kind) == ("args[0]", ReasonKind.CLASS)


def test_all_reasons_are_given_and_ranked() -> None:
    """A change of four things gives four reasons, the gravest first."""
    before = call(Slotted({"a": ones(3), "b": 1.0}, "x"), ones(2))
    after = call(Slotted({"a": np.ones(3, "f4"), "b": np.float32(1)}, "y"), first_device(ones(2)))
    seen = two_calls(before, after)
    assert seen.outcome is seen.predicted.outcome is RETRACE
    found = [(reason.path, reason.outcome) for reason in seen.predicted.reasons]
    assert found == [
        ("args[0].n", RETRACE),
        ("args[0].w['b']", RETRACE),
        ("args[1]", RECOMPILE),
        ("args[0].w['a']", DISPATCH),
    ]


# Of each situation the arguments of two calls, what JAX does for the second one, and the path and
# the kind of the reason.
KNOWN = """
same avals: ones(3) | jnp.zeros(3) -> reuse
NumPy after JAX: ones(3) | np.ones(3, np.float32) -> dispatch, args[0]: kind
another Python number: 2.0 | 1.0 -> reuse
NumPy scalar after a Python number: 1.0 | np.float32(1) -> retrace, args[0]: weak type
weak array after a strong one: jnp.float32(1) | jnp.asarray(1.0) -> retrace, args[0]: weak type
a new NaN of leafwise: Slotted(1.0, float("nan")) | Slotted(1.0, float("nan")) -> reuse
int after float: 1.0 | 1 -> retrace, args[0]: dtype
committed after uncommitted: ones(3) | first_device(ones(3)) -> recompile, args[0]: commitment
x64: 1.0 | 1.0 -> retrace, config.jax_enable_x64: config
matmul precision: ones(3) | ones(3) -> retrace, config.jax_default_matmul_precision: config
shape: {"w": ones(3)} | {"w": ones(4)} -> retrace, args[0]['w']: shape
dtype: ones(3) | ones(3).astype(jnp.int32) -> retrace, args[0]: dtype
deleted array: ones(3) | deleted() -> error, args[0]: invalid
string: ones(3) | "relu" -> error, args[0]: invalid
ShapeDtypeStruct: ones(3) | jax.ShapeDtypeStruct((3,), jnp.float32) -> error, args[0]: invalid
old key after a new one: jax.random.key(0) | jax.random.PRNGKey(0) -> retrace, args[0]: dtype
another key: jax.random.key(0) | jax.random.key(1) -> reuse
dict key missing: {"a": 1.0, "b": 1.0} | {"a": 1.0} -> retrace, args[0]['b']: structure
dict order: {"a": 1.0, "b": 1} | {"b": 1, "a": 1.0} -> reuse
OrderedDict order: OrderedDict(a=1, b=1) | OrderedDict(b=1, a=1) -> retrace, args[0]: structure
None became an array: {"b": None} | {"b": ones(3)} -> retrace, args[0]['b']: structure
an array became None: (1.0, ones(3)) | (1.0, None) -> retrace, args[0][1]: structure
list length: [1.0, 2.0] | [1.0, 2.0, 3.0] -> retrace, args[0]: structure
namedtuple after tuple: (1.0, 2.0) | Pair(1.0, 2.0) -> retrace, args[0]: structure
keyword after position: 1.0, 2.0 | 1.0, y=2.0 -> retrace, args[1]: arguments
one more argument: 1.0 | 1.0, 2.0 -> retrace, args[1]: arguments
another state: optax.sgd(0.1).init(1) | optax.adam(0.1).init(1) -> retrace, args[0][0]: structure
an optimizer built again: optax.adam(0.1).init(1) | optax.adam(0.2).init(1) -> reuse
another Partial: Partial(helper, 1.0) | Partial(jnp.sin, 1.0) -> retrace, args[0].func: static
static_argnums 1 and True: 1.0, 1 | 1.0, True -> retrace, args[1]: static
static_argnums 1 and 2: 1.0, 1 | 1.0, 2 -> retrace, args[1]: static
static_argnames, another text: 1.0, mode="a" | 1.0, mode="b" -> retrace, kwargs['mode']: static
static argument without a hash: 1.0, (1,) | 1.0, [1] -> error, args[1]: invalid
fresh lambda as a static: 1.0, lambda x: x | 1.0, lambda x: x -> retrace, args[1]: static
"""

OPTIONS: dict[str, Any] = {
    "x64": {"context": lambda: jax.enable_x64(True)},
    "matmul precision": {"context": lambda: jax.default_matmul_precision("highest")},
    "static_argnums 1 and True": {"static_argnums": (1,)},
    "static_argnums 1 and 2": {"static_argnums": (1,)},
    "static_argnames, another text": {"static_argnames": ("mode",)},
    "static argument without a hash": {"static_argnums": (1,)},
    "fresh lambda as a static": {"static_argnums": (1,)},
}


@pytest.mark.parametrize("row", rows(KNOWN))
def test_a_known_situation(row: Row) -> None:
    """JAX does what the table says, and leafwise predicts it, with path and kind."""
    check_row(row, **OPTIONS.get(row.name, {}))
