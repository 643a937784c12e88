"""Classes that cannot be built, or called with: the message says what to give."""

import abc
import enum
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import leafwise as lw
from leafwise.cli.run import check_class
from leafwise.cli.targets import CheckTarget
from leafwise.testing import check_pytree

from .asked import FIELDS, kinds, report_of


class Opaque:
    def __init__(self, a: Any, b: Any) -> None:
        raise ValueError(a, b)


class Unit:
    def __init__(self, name: str) -> None:
        self.name = name


st.register_type_strategy(Unit, st.sampled_from([Unit("m"), Unit("km")]))


def test_message_names_field_and_strategy() -> None:
    """What nothing is known of is named with its field, and with the call that helps."""

    @lw.pytree
    class Lost:
        n: lw.Static[int]
        part: lw.Static[Opaque]

    report = report_of(Lost)
    assert not report.passed
    assert not report.rows
    assert "Lost.part" in report.error
    assert "register_type_strategy(" in report.error
    assert "Opaque" in report.error.partition("register_type_strategy(")[2]


def test_enum_without_members() -> None:
    """A field whose type has no values at all is named, too."""

    class Empty(enum.Enum): ...

    @lw.pytree
    class Lost:
        n: lw.Static[int]
        it: lw.Static[Empty]

    report = report_of(Lost)
    assert not report.passed
    assert "Lost.it" in report.error
    assert "Empty" in report.error
    assert "fix:" in report.error


@pytest.mark.parametrize("annotation", [Unit, Unit | None, tuple[Unit, ...]], ids=str)
def test_a_registered_strategy_is_used(annotation: Any) -> None:
    """A strategy that the user registered makes the class buildable."""

    @lw.pytree
    class Length:
        value: jax.Array
        unit: lw.Static[annotation]  # type: ignore[valid-type]

    report = report_of(Length)
    assert report.passed, report
    assert kinds(report, "unit")["value"].verdict == "ok"
    assert "0x" not in str(report)


@pytest.mark.slow
def test_a_strategy_for_the_class_itself() -> None:
    """The fix that the message names for a class that refuses all values does help."""

    @lw.pytree
    class Fitting:
        n: lw.Static[int]
        m: lw.Static[int]

        def __post_init__(self) -> None:
            if (self.n, self.m) != (1000, 2000):
                raise ValueError("these do not fit")

    report = report_of(Fitting)
    assert not report.passed
    for words in ("Fitting", "these do not fit", "instances(Fitting, n=..., m=...)"):
        assert words in report.error
    st.register_type_strategy(Fitting, st.builds(Fitting, n=st.just(1000), m=st.just(2000)))
    assert report_of(Fitting).instance == "Fitting(n=1000, m=2000)"


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


@lw.pytree
class AbstractLayer(Shape):
    n: lw.Static[int] = 2


def test_abstract_class() -> None:
    """An abstract class is not built, and is said to be abstract."""
    report = report_of(AbstractLayer)
    assert not report.passed
    assert "abstract" in report.error


@pytest.mark.parametrize("annotation", [AbstractLayer, list[AbstractLayer]], ids=str)
def test_field_of_an_abstract_class(annotation: Any) -> None:
    """A field of an abstract class without known subclasses is named."""

    @lw.pytree
    class BoundIn:
        layer: annotation  # type: ignore[valid-type]

    report = report_of(BoundIn)
    assert not report.passed
    assert "BoundIn.layer" in report.error
    assert "fix:" in report.error


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
    code = "extra: Any = lw.static_field(default_factory=lambda: value)"
    assert f"fix: make the field static: `{code}`" in report.error


@pytest.mark.parametrize("value", [2**40, -(2**40), 2**70])
def test_integers_that_jax_cannot_take(value: int) -> None:
    """An int that does not fit JAX's is such a leaf."""

    @lw.pytree
    class TooBig:
        seed: int = value

    report = report_of(TooBig)
    assert not report.passed
    assert "TooBig.seed" in report.error


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


def test_no_notes_on_our_own_test() -> None:
    """The error ends with its fix: what Hypothesis notes is of no use to the user."""

    @lw.pytree
    class Lost:
        part: lw.Static[Opaque]

    with pytest.raises(lw.errors.CannotBuildError) as caught:
        check_pytree(Lost, laws="copies")
    assert not getattr(caught.value, "__notes__", [])


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
