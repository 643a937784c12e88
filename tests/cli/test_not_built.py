"""Classes that cannot be built, or drawn values that they refuse: the message says what to give."""

import collections
import dataclasses
import types
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Self, Union

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import CheckTarget, check_class

import leafwise as lw
from leafwise.testing import Law
from leafwise.testing._laws.run import find
from leafwise.testing.strategies import instances

from .asked import FIELDS, laws_of, report_of


@pytest.mark.parametrize(
    "value",
    ["text", object(), len, jax.ShapeDtypeStruct((3,), jnp.float32), np.array(["a"])],
    ids=["str", "object", "function", "ShapeDtypeStruct", "numpy text"],
)
def test_leaf_that_jax_cannot_trace(value: Any) -> None:
    """A dynamic leaf that no jitted function takes is named, with the fix."""

    @lw.pytree
    class Wrong:
        x: jax.Array
        extra: Any = lw.field(default_factory=lambda: value)

    report = report_of(Wrong)
    assert not report.passed
    assert not report.rows
    assert "Wrong.extra" in report.error
    code = "extra: lw.Static[Any] = dataclasses.field(default_factory=lambda: value)"
    assert f"fix: make it `{code}`" in report.error


@dataclasses.dataclass
class Variable:
    """It can change: its class is not frozen."""

    value: float = 0.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.random.default_rng(0), "take its value out before the call, as its library does"),
        (Variable(), "take its value out before the call, or make Variable an `@lw.pytree`"),
        (types.SimpleNamespace(n=1), "take its value out before the call, as its library does"),
    ],
)
def test_leaf_that_can_change(value: Any, words: str) -> None:
    """A mutable object is not to be a static, whose changes JAX would not see."""

    @jax.tree_util.register_pytree_node_class
    class Stream:
        def __init__(self, x: float) -> None:
            self.x, self.state = x, value

        def tree_flatten(self) -> Any:
            return (self.x, self.state), None

        @classmethod
        def tree_unflatten(cls, _: None, children: Any) -> Any:
            made = object.__new__(cls)
            made.x, made.state = children
            return made

    report = report_of(Stream)
    assert "Stream.state: JAX cannot trace" in report.error
    assert f"\n  fix: it is a mutable object: {words}" in report.error
    assert "aux_data" not in report.error


@pytest.mark.slow  # it tries many values
def test_one_fix_where_the_class_itself_is_refused(write: Any, check: Any) -> None:
    """An error of ours says what to write: nothing is said about strategies."""
    file = write(
        """
@lw.pytree
class P:
    sizes: lw.Static[list] = dataclasses.field(default_factory=lambda: [1, 2])
""".replace("@lw", "import dataclasses, leafwise as lw\n@lw", 1)
    )
    text = check(file).out
    assert "a list can change in place" in text
    assert text.count("fix:") == 1


class Plain:
    def __init__(self, w: float) -> None:
        self.w = w


def _raise(_: Any) -> Any:
    raise AttributeError


@pytest.mark.parametrize(
    ("flatten", "unflatten", "told"),
    [
        (_raise, lambda _, children: Plain(*children), "flatten raised AttributeError"),
        (lambda it: (it.w,), lambda _, children: Plain(*children), "flatten raised "),
        (lambda it: ((it.w,), None), lambda children: Plain(*children), "unflatten raised TypeErr"),
        (lambda it: ((it.w,), None), lambda _, __: None, "got: a builtins.NoneType"),
    ],
)
def test_a_class_that_jax_can_never_flatten_or_rebuild(
    flatten: Any, unflatten: Any, told: str
) -> None:
    """Every jitted function refuses it: the class is at fault, and what it raised is shown."""
    cls = type("Wrong", (Plain,), {})
    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    report = report_of(cls)
    (law,) = report.laws
    assert report.failed
    assert not report.unchecked
    assert (law.law, law.verdict) == ("round-trip", "violation")
    assert told in law.message


def test_a_class_whose_unflatten_reads_its_leaves() -> None:
    """No jitted function takes it, though `jax.tree.map` does: the class is at fault."""

    def unflatten(_: Any, children: Any) -> Plain:
        return Wrong(float(*children))

    class Wrong(Plain): ...

    jax.tree_util.register_pytree_node(Wrong, lambda it: ((it.w,), None), unflatten)
    report = report_of(Wrong)
    (law,) = report.laws
    assert (report.failed, report.unchecked) == (True, False)
    assert (law.law, law.verdict) == ("transformations", "violation")
    assert "jax.jit raised Concretization" in law.message
    assert "fix: unflatten with `object.__new__" in law.message


def test_a_named_tuple_that_jax_can_never_rebuild() -> None:
    """It may be no argument of any jitted function: unless it is named, it is left out."""

    class Version(NamedTuple("Version", [("major", int), ("minor", int)])):
        __slots__ = ()

        def __new__(cls, whole: float) -> Self:
            return super().__new__(cls, int(whole), 0)

    report = check_class(CheckTarget(Version, "here:Version", optional=True), FIELDS)
    assert (report.passed, bool(report.left_out)) == (True, True)
    assert report_of(Version).failed


def test_values_of_the_instances_in_the_module(write: Any, check: Any) -> None:
    """A field whose annotation cannot be resolved, or constructed, has what instances hold."""
    file = write("""
        class Opaque:
            def __init__(self, *parts): raise ValueError("no")

        @lw.pytree
        class Field:
            data: "Buffer"
            unit: lw.Static[Opaque]

        FIELDS = [Field(jnp.ones(number), object.__new__(Opaque)) for number in (1, 2)]
        ONE, TWO = FIELDS
    """)
    outcome = check(file, "--output-format=json")
    assert outcome.code == 0, outcome.out
    (entry,) = outcome.document["classes"]
    assert {row["field"] for row in entry["rows"]} == {"data", "unit"}


ArrayTree = Union[jax.Array, Iterable["ArrayTree"], Mapping[Any, "ArrayTree"]]  # noqa: UP007


class Refusing:
    def __init__(self, size: int = 0) -> None:
        raise TypeError(f"No constructor defined! {size}")


class NeverNew:
    def __new__(cls) -> Any:
        raise NotImplementedError


class State(NamedTuple):
    position: ArrayTree
    weights: Mapping[Hashable, Any] = {}


@lw.pytree
class Defaults:
    w: jax.Array
    refusing: lw.Static[Refusing] = None  # type: ignore[assignment]  # as foreign code has it
    never: lw.Static[NeverNew | None] = None
    several: lw.Static[tuple[Refusing, ...]] = ()
    frame: lw.Static[types.FrameType] = lw.static_field(default=None)
    made: lw.Static[dict[str, Refusing]] = lw.static_field(default_factory=lw.FrozenMapping)
    unsaid: lw.Static[object] = lw.static_field(default=None)


@dataclasses.dataclass
class Registered:
    w: jax.Array
    anything: Any
    thing: object
    refusing: Refusing = dataclasses.field(default_factory=lambda: None)  # type: ignore[arg-type,return-value]


jax.tree_util.register_dataclass(Registered, ["w"], ["anything", "thing", "refusing"])


@pytest.mark.parametrize("cls", [State, Defaults, Registered])
def test_laws_of_correct_classes(cls: type) -> None:
    """Keys that can be sorted, aliases that end, defaults where nothing can be constructed."""
    report = laws_of(cls, Law.ROUND_TRIP, Law.STATIC_VALUES, examples=10)
    assert not report.error
    assert [str(each.verdict) for each in report.laws] == ["ok", "ok"], report.laws
    assert not any(each.message for each in report.laws)  # on instances that were drawn


def test_fields_whose_types_cannot_be_constructed() -> None:
    """They keep their defaults, and are no reason not to check the others."""
    report = report_of(Defaults)
    assert report.passed
    by_field = collections.Counter(row.field for row in report.tried)
    assert by_field["w"] == 4
    assert by_field["unsaid"] == 1
    assert {row.field for row in report.rows} - set(by_field) == {
        "refusing",
        "never",
        "frame",
        "made",
    }


def test_a_default_factory_that_raises() -> None:
    """The class is not checked, and its error is shown; what is given for it is drawn."""
    cls = dataclasses.make_dataclass(
        "Made", [("it", Refusing, dataclasses.field(default_factory=Refusing))]
    )
    jax.tree_util.register_dataclass(cls, [], ["it"])
    assert "No constructor defined!" in report_of(cls).error
    made = dataclasses.make_dataclass(
        "Given",
        [("w", float), ("it", int, dataclasses.field(default_factory=Refusing))],  # type: ignore[arg-type]
    )
    assert type(find(instances(made), lambda _: True).it) is int
