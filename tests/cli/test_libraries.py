"""Classes of any library: which are found, and what is seen on them."""

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest
from tests.kit.inside import CheckOptions, is_node
from tests.kit.specimens import Chex, Equinox, Flax, Jdc, Plain

import leafwise as lw
from leafwise.testing import Law
from leafwise.testing._laws.libraries import library_of

from .asked import kinds, laws_of, report_of, verdicts
from .conftest import Check, Write


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
    assert "make `table` a dynamic field: drop `static=True`" in law.message


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
    """A module gives its classes of any library; a named tuple of no arrays is left out."""
    outcome = check(write(SOURCE), "--output-format=json")
    assert outcome.code == 0
    assert outcome.names == ["Native", "Hand", "State", "Record"]
    *others, record = outcome.document["classes"]
    assert all(entry["rows"] and not entry["left_out"] for entry in others)
    assert "JAX cannot trace" in record["left_out"]
    assert (record["error"], record["passed"]) == ("", True)


def test_a_named_tuple_that_is_asked_for(write: Write, check: Check) -> None:
    """Named on the command line, alone or beside its file, it is not checked, as any other."""
    file = write(SOURCE)
    for targets in ([f"{file}:Record"], [file, f"{file}:Record"]):
        outcome = check(*targets, "--output-format=json")
        assert outcome.code == 3
        (record,) = [
            entry for entry in outcome.document["classes"] if entry["name"].endswith("Record")
        ]
        assert "JAX cannot trace" in record["error"]


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
