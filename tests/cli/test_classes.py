"""Classes of every make and of any library are found, built by their annotations, and changed."""

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import CheckOptions, field_names_of, is_node, library_of
from tests.kit.specimens import Chex, Equinox, Flax, Jdc, Plain
from tests.objects.samples import Color
from tests.testing.strategies import test_instances

import leafwise as lw
from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree

from .conftest import Check, Write, kinds, laws_of, report_of, verdicts, with_field


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int
    name: str = "x"


def _label(value: Any) -> str | None:
    """Return the name of a test: sets would be in another order in each process."""
    return None if isinstance(value, set) else str(value)


NUMERIC = {"value", "shape", "dtype", "weak type"}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, NUMERIC - {"weak type"}),
        (int, NUMERIC),
        (Optional[jax.Array], NUMERIC | {"structure"}),  # noqa: UP045  # the old spelling
        (Mapping[str, jax.Array] | None, NUMERIC | {"structure"}),
    ],
    ids=_label,
)
def test_dynamic(annotation: Any, expected: set[str]) -> None:
    """A dynamic field's first number changes in each way there is, as promised."""
    report = with_field(annotation, __name__)
    assert report.passed, report
    rows = kinds(report)
    assert set(rows) == expected
    for kind, row in rows.items():
        assert (row.predicted, row.traces) == (("reuse", 0) if kind == "value" else ("retrace", 1))
        assert not row.static


VALUE_ONLY = {"value"}
BOTH = {"value", "type"}


@pytest.mark.parametrize(
    ("annotation", "change", "expected"),
    [
        (int, "1 -> 0", BOTH),
        (str, "'a' -> 'b'", BOTH),
        (Color, "Color.RED -> Color.BLUE", VALUE_ONLY),
        (Literal["relu", "gelu"], "'relu' -> 'gelu'", BOTH),
        (tuple[int, ...], "() -> (0,)", BOTH),
        (Config, "Config(depth=0, name='x') -> Config(depth=0, name='a')", VALUE_ONLY),
    ],
    ids=_label,
)
def test_static(annotation: Any, change: str, expected: set[str]) -> None:
    """A static field gets another value, and an equal one of another type; both retrace."""
    report = with_field(lw.Static[annotation], __name__)
    assert report.passed, report
    rows = kinds(report)
    assert set(rows) <= expected | {"type"}
    assert set(rows) >= expected
    assert rows["value"].change == change
    for row in rows.values():
        assert (row.predicted, row.traces, row.compiles) == ("retrace", 1, 1)
        assert row.static


def test_only_one_value() -> None:
    """Where there is one value only, the row is skipped, and says why."""
    row = kinds(with_field(lw.Static[Literal["only"]], __name__))["value"]
    assert (row.verdict, row.traces) == ("skipped", 0)
    assert "no other value" in row.change


def test_keys() -> None:
    """A random key gets another key and another shape; it has no other dtype."""
    default = lw.field(default_factory=lambda: jax.random.key(0))
    report = with_field(jax.Array, __name__, default)
    assert report.passed, report
    assert set(kinds(report)) == {"value", "shape"}
    several = lw.field(default_factory=lambda: jax.random.split(jax.random.key(0)))
    assert "shape" in kinds(with_field(jax.Array, __name__, several))


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "uint32", "bool"])
@pytest.mark.parametrize("module", [np, jnp], ids=["numpy", "jax"])
def test_dtypes(dtype: str, module: Any) -> None:
    """An array of any dtype that JAX has can be changed."""
    report = with_field(
        Any, __name__, lw.field(default_factory=lambda: module.ones(3, jnp.dtype(dtype)))
    )
    assert report.passed, report
    rows = kinds(report)
    assert {"value", "shape", "dtype"} <= set(rows)
    assert dtype in rows["value"].change


def declared(cls: Any) -> Any:
    return jax.tree_util.register_dataclass(dataclasses.dataclass(cls))


@declared
class Static:
    w: jax.Array
    size: dataclasses.field(metadata={"static": True})  # type: ignore[valid-type]  # noqa: F821, RUF100


@declared
class Text:
    size: "dataclasses.field(default=3)"  # type: ignore[valid-type]


@pytest.mark.parametrize("cls", [Static, Text])
def test_a_field_as_an_annotation(cls: type) -> None:
    """It is named as what it is; the field is dynamic, and changed as one."""
    with pytest.raises(LawViolation) as caught:
        check_pytree(cls, laws=["no-hidden-state"])
    assert caught.value.path == f"{cls.__name__}.size"
    sentence = "`dataclasses.Field`: `:` was written for `=`, so that the field is dynamic"
    assert sentence in str(caught.value)
    report = report_of(cls)
    assert not report.error
    assert kinds(report, "size")["value"].change
    assert not any(row.static for row in report.rows)


@lw.pytree
class OwnInit:
    n: lw.Static[int]
    x: jax.Array

    def __init__(self, n: int, /, x: float = 2.0, *rest: int, **more: int) -> None:
        self.n = n
        self.x = jnp.full(3, x + len(rest) + len(more))


@lw.pytree
class OwnInitOtherTypes:
    size: lw.Static[int]
    text: lw.Static[int]

    def __init__(self, size: Literal["small", "big"], text: str) -> None:
        self.size = {"small": 1, "big": 2}[size]
        self.text = len(text)


@lw.pytree
class Placed:
    """An array that was put on a device stays there when it is changed."""

    x: jax.Array = lw.field(default_factory=lambda: jax.device_put(jnp.ones(3), jax.devices()[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls",
    [
        OwnInit,
        OwnInitOtherTypes,
        Placed,
        test_instances.Derived,
        test_instances.Converted,
        test_instances.Picky,
        test_instances.Unforgiving,
    ],
)
def test_built(cls: type) -> None:
    """Whatever its constructor takes, the class is built and its changes are as promised."""
    report = report_of(cls)
    assert report.passed, report
    fields = [field.name for field in dataclasses.fields(cls)]
    assert list(dict.fromkeys(row.field for row in report.rows)) == fields, "in field order"


def test_fields_that_no_parameter_sets() -> None:
    """They are not forgotten: a static one is skipped aloud, a dynamic one changed in place."""

    @lw.pytree
    class Derived:
        n: lw.Static[int] = 2
        twice: int = lw.static_field(init=False)
        zeros: jax.Array = lw.field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.n * 2
            self.zeros = jnp.zeros(self.n)

    report = report_of(Derived)
    assert report.passed, report
    seen = verdicts(report)
    assert seen["twice", "value"] == "skipped"
    assert {kind: seen["zeros", kind] for kind in ("value", "shape", "dtype")} == {
        "value": "ok",
        "shape": "ok",
        "dtype": "ok",
    }


class Either:
    """Its defaults do not fit together; numbers of Python are static, as with distrax."""

    def __init__(
        self, logits: jax.Array | None = None, probs: jax.Array | None = None, size: int = 3
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError("one of both")
        self.logits, self.probs, self.size = logits, probs, size

    def tree_flatten(self) -> Any:
        leaves, structure = jax.tree.flatten(vars(self))
        switch = tuple(type(leaf) not in (int, float) for leaf in leaves)
        pairs = list(zip(leaves, switch, strict=True))
        children = [leaf if is_data else None for leaf, is_data in pairs]
        return children, (tuple(None if is_data else leaf for leaf, is_data in pairs), structure)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        made = object.__new__(cls)
        both = zip(children, aux[0], strict=True)
        leaves = [child if static is None else static for child, static in both]
        vars(made).update(jax.tree.unflatten(aux[1], leaves))
        return made


jax.tree_util.register_pytree_node_class(Either)


@pytest.mark.slow
def test_defaults_that_do_not_fit_together() -> None:
    """Then others are given; what is static by its value is changed as a static."""
    report = report_of(Either)
    assert report.passed, report
    given = next(row.field for row in report.rows if row.kind == "shape")
    assert given in ("logits", "probs")
    for field, is_static in ((given, False), ("size", True)):
        row = kinds(report, field)["value"]
        assert (row.static, row.verdict) == (is_static, "ok")
    assert field_names_of(Either(probs=jax.numpy.ones(3))).static == ("size",)


@jax.tree_util.register_pytree_node_class
class Hand:
    def __init__(self, w: float, n: int) -> None:
        self.w = w
        self.n = n

    def tree_flatten(self) -> tuple[tuple[Any], int]:
        return (self.w,), self.n

    @classmethod
    def tree_unflatten(cls, n: int, children: tuple[Any]) -> "Hand":
        return cls(children[0], n)


@jax.tree_util.register_pytree_with_keys_class
class Keyed(Hand):
    def tree_flatten_with_keys(self) -> tuple[Any, int]:
        return ((jax.tree_util.GetAttrKey("w"), self.w),), self.n


class State(NamedTuple):
    mu: jax.Array
    count: int = 0


@pytest.mark.parametrize("cls", [Plain, Hand, Keyed], ids=lambda cls: cls.__name__)
def test_fields_of_foreign_classes(cls: type) -> None:
    """Each field is changed as for leafwise's own; an equal static of another type is a warning."""
    report = report_of(cls)
    assert report.passed, report
    assert report.fields == ("w", "n")
    seen = verdicts(report)
    assert seen["w", "value"] == seen["w", "shape"] == seen["n", "value"] == "ok"
    assert seen["n", "type"] == "warning"
    assert (kinds(report, "n")["type"].predicted, kinds(report, "n")["type"].traces) == ("reuse", 0)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=[], drop_fields=["n"]
)
@dataclasses.dataclass
class Dropping:
    x: jax.Array
    n: str = "dropped"  # before 0.10 JAX drops names of one character alone


def test_a_field_that_jax_was_told_to_drop() -> None:
    """It is in no program by the user's own order: no lost static, and no field to change."""
    laws = (Law.STATIC_VALUES, Law.NO_HIDDEN_STATE, Law.TRANSFORMATIONS)
    report = report_of(Dropping, CheckOptions(laws=laws, examples=5))
    assert (report.passed, report.fields) == (True, ("x",)), report


def test_libraries() -> None:
    """The report says which library made a class a pytree class."""
    made = {"chex": Chex, "equinox": Equinox, "flax.struct": Flax, "jax_dataclasses": Jdc}
    for library, cls in made.items():
        assert is_node(cls)
        report = report_of(cls)
        assert (report.library, report.passed) == (library, True), report
        assert set(kinds(report, "w")) == {"value", "shape", "dtype", "weak type"}
    assert [library_of(cls) for cls in (Plain, Hand, State)] == ["JAX", "JAX", "NamedTuple"]


def test_leaves_that_only_filter_jit_takes() -> None:
    """Functions and names in an equinox module keep nobody from changing its arrays."""
    equinox = pytest.importorskip("equinox")

    class Layer(equinox.Module):  # type: ignore[misc, name-defined]
        w: jax.Array
        act: Callable[[Any], Any]
        name: str | None = "layer"

    report = report_of(Layer)
    assert report.passed, report
    assert kinds(report, "w")["value"].verdict == "ok"
    for field in ("act", "name"):
        assert {row.verdict for row in kinds(report, field).values()} == {"skipped"}


@pytest.mark.parametrize("is_part", [False, True])
def test_two_drawn_instances_are_compared(is_part: bool) -> None:
    """Treedefs of them are, whatever else a class holds: a constructor makes a static array."""
    equinox = pytest.importorskip("equinox")

    class Layer(equinox.Module):  # type: ignore[misc, name-defined]
        w: jax.Array
        act: Callable[[Any], Any]
        rest: Any
        table: Any = equinox.field(static=True)

        def __init__(self, w: jax.Array, rest: float if is_part else list[float]) -> None:  # type: ignore[valid-type]
            self.w, self.act, self.rest = w, jax.nn.relu, rest
            self.table = jax.numpy.arange(3.0)

    @lw.pytree
    class Model:
        layer: Layer

    (law,) = laws_of(Model if is_part else Layer, Law.TREEDEF_EQUALITY).laws
    assert str(law.verdict) == ("warning" if is_part else "violation")
    assert law.message.startswith("Layer.table: breaks the law treedef-equality")
    fix = "make `table` a dynamic field: drop `static=True`; or hold it as `lw.StaticArray`"
    assert fix in law.message
    assert "site-packages" not in law.message


SOURCE = """
import dataclasses
import enum
import functools
from typing import NamedTuple

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Native:
    x: jax.Array

@jax.tree_util.register_pytree_node_class
class Hand:
    def __init__(self, x: float): self.x = x
    def tree_flatten(self): return (self.x,), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(*children)

class State(NamedTuple):
    mu: jax.Array

class Record(NamedTuple):
    text: str

class Plain: ...
"""


def test_found_in_a_module(write: Write, check: Check) -> None:
    """Classes of any library are found; a named tuple of no arrays is left out unless named."""
    file = write(SOURCE)
    outcome = check(file, "--output-format=json")
    assert outcome.code == 0
    assert outcome.names == ["Native", "Hand", "State", "Record"]
    *others, record = outcome.document["classes"]
    assert all(entry["rows"] and not entry["left_out"] for entry in others)
    assert "JAX cannot trace" in record["left_out"]
    assert (record["error"], record["passed"]) == ("", True)
    for targets in ([f"{file}:Record"], [file, f"{file}:Record"]):
        outcome = check(*targets, "--output-format=json")
        assert outcome.code == 3
        place = outcome.names.index("Record")
        assert "JAX cannot trace" in outcome.document["classes"][place]["error"]


def test_equinox_layers(check: Check) -> None:
    """A layer is built and changed; those that are abstract are passed over."""
    outcome = check("equinox.nn:Dropout", "--output-format=json")
    assert outcome.code == 0, outcome.out
    assert outcome.document["classes"][0]["rows"]
    from tests.kit.inside import find_targets

    names = [target.name for target in find_targets(["equinox.nn"]).targets]
    assert "equinox.nn:Linear" in names
    assert "equinox.nn:StatefulLayer" not in names


def test_linen_modules(check: Check) -> None:
    """A class whose instances JAX takes for leaves is refused, with what to do."""
    outcome = check("flax.linen:Dense")
    assert outcome.code == 2
    assert "treats its instances as leaves" in outcome.err
    assert "fix:" in outcome.err


@jax.tree_util.register_static
class Switch(enum.Enum):
    OFF = 0
    ON = 1


@lw.pytree
class Machine:
    switch: Switch
    x: jax.Array


def test_an_enum_that_is_a_static_node() -> None:
    """A member is a static as a whole, of a class that JAX takes in any field."""
    f = jax.jit(lambda machine: machine.x + machine.switch.value)
    assert [f(Machine(each, jax.numpy.zeros(()))) for each in Switch] == [0, 1]
    laws = (Law.STATIC_VALUES, Law.STATIC_TYPES, Law.NO_HIDDEN_STATE)
    options = CheckOptions(laws=laws, examples=5)
    for cls, fields in ((Switch, ()), (Machine, ("switch", "x"))):
        report = report_of(cls, options)
        assert (report.passed, report.fields) == (True, fields), report
