"""One fault is one verdict: what a library allows is told once of it, whatever the depth."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from tests.kit.inside import CheckVerdict, ClassResult

from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree

from .asked import laws_of, report_of


def native(annotation: Any, *default: Any) -> Any:
    """Return a class of JAX's own with one static field."""
    made = dataclasses.field(default_factory=lambda: default[0]) if default else dataclasses.field()
    cls = dataclasses.make_dataclass("Native", [("w", jax.Array), ("it", annotation, made)])
    cls.__module__ = __name__
    return jax.tree_util.register_dataclass(cls, ["w"], ["it"])


def law_of(cls: type, law: Law, **options: Any) -> tuple[str, ClassResult]:
    """Return how one law turned out."""
    report = laws_of(cls, law, **options)
    return report.laws[0].verdict, report


# -------------------------------------------------------------------- a change of type only


class Mode(enum.IntEnum):
    A = 0
    B = 1


class Words(enum.StrEnum):
    X = "a"


class Two(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, Mode.A), (float, 0), (str, Words.X), (bool, 1), (complex, 2.0), (object, Mode.A)],
)
def test_a_default_that_is_equal_and_of_another_type(annotation: Any, default: Any) -> None:
    """Another value is one that == tells from it; the change of type is a warning of its own."""
    rows = {row.kind: row for row in report_of(native(annotation, default)).rows if row.static}
    assert rows["value"].verdict is CheckVerdict.OK
    if "type" in rows:
        assert rows["type"].verdict is CheckVerdict.WARNING


# -------------------------------------------------------------------- the order of a dict


def with_metadata(restore: Callable[[Any], Any]) -> Any:
    """Return a class that flattens its metadata sorted, as `flax.nnx.Variable` does."""

    class Variable:
        def __init__(self, w: jax.Array) -> None:
            self.w = w
            self.metadata = {"ref": 1, "eager": True, "inner": {"b": 1, "a": 2}}

    def unflatten(aux: Any, children: Any) -> Any:
        made = object.__new__(Variable)
        (made.w,), made.metadata = children, restore(dict(aux))
        return made

    jax.tree_util.register_pytree_node(
        Variable, lambda one: ((one.w,), sorted(one.metadata.items())), unflatten
    )
    return Variable


def test_a_dict_comes_back_in_another_order() -> None:
    """JAX sorts the keys of a dict, and so may a class; values, types and keys are to stay."""

    def sort(drawn: Any) -> Any:
        return drawn | {"inner": dict(sorted(drawn["inner"].items()))}

    laws = [Law.ROUND_TRIP, Law.IDENTITY_MAP]
    check_pytree(with_metadata(sort), laws=laws)
    others: list[Any] = [{"eager": 1}, {"more": 1}, {"inner": {"b": 1, "a": 2.0}}]
    for other in others:
        with pytest.raises(LawViolation, match="metadata"):
            check_pytree(with_metadata(lambda drawn, new=other: sort(drawn) | new), laws=laws)


# -------------------------------------------------------------------- what cannot be hashed


class Unhashable:
    __hash__ = None  # type: ignore[assignment]  # as that of a class with an own ==

    def __init__(self, size: int = 3) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"Unhashable({self.size})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable) and self.size == other.size


@dataclasses.dataclass(frozen=True)
class Holder:
    parts: Any


DEEP: list[Any] = [
    [1], {1}, ({"a": ([1],)},), Holder([1]), Two([1], 2), (Unhashable(),),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("value", DEEP, ids=str)
def test_what_changes_in_place_at_any_depth(value: Any) -> None:
    """It is a warning at each depth, and names the field."""
    verdict, report = law_of(native(Any, value), Law.AUX_DATA_HASH)
    assert (verdict, report.passed) == (CheckVerdict.WARNING, True)
    (warning,) = report.warnings
    assert warning.path == "Native.it"


class OwnList:
    """Its library puts a list of names into aux_data, as penzai does."""

    def __init__(self, w: jax.Array) -> None:
        self.w = w

    def tree_flatten(self) -> Any:
        return (self.w,), ["w"]

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Any:
        return cls(*children)


class OtherList(OwnList):
    pass


class _Odd:
    """Equal ones have two hashes."""

    count = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Odd)

    def __hash__(self) -> int:
        type(self).count += 1
        return self.count


for each in (OwnList, OtherList):
    jax.tree_util.register_pytree_node_class(each)


def test_aux_data_of_the_library_itself() -> None:
    """A list that it makes at each flatten is a warning, and of the library, not of a field."""
    verdict, report = law_of(OwnList, Law.AUX_DATA_HASH)
    assert (verdict, report.passed) == (CheckVerdict.WARNING, True)
    (warning,) = report.warnings
    assert warning.path == "OwnList"
    with pytest.raises(LawViolation):  # the law itself is what it was
        check_pytree(OwnList, laws=["aux-data-hash"])
    assert law_of(OwnList, Law.AUX_DATA_HASH, warnings_as_errors=True)[0] == CheckVerdict.VIOLATION
    program = jax.jit(lambda tree: tree)
    assert isinstance(program(OwnList(jax.numpy.ones(3))), OwnList)  # JAX hashes no aux_data


@dataclasses.dataclass
class Chain:
    w: float
    n: int
    next: "Chain | None" = None


jax.tree_util.register_dataclass(Chain, ["w", "next"], ["n"])


def test_the_static_of_a_part_of_the_same_class() -> None:
    """The aux_data of a node need not depend on the statics of the nodes inside it."""
    chain = st.just(Chain(1.0, 1, Chain(1.0, 2)))
    check_pytree(chain, laws=["aux-data-hash"], settings=settings(max_examples=20), seed=0)


def test_what_makes_a_program_wrong_is_a_failure() -> None:
    """Statics whose == raises fail, and a hash that is wrong."""
    assert law_of(native(_Odd, _Odd()), Law.AUX_DATA_HASH)[0] == CheckVerdict.VIOLATION

    @dataclasses.dataclass
    class Raising:
        it: Any = dataclasses.field(default_factory=lambda: jax.numpy.ones(3))

    jax.tree_util.register_dataclass(Raising, [], ["it"])
    assert law_of(Raising, Law.TREEDEF_EQUALITY)[0] == CheckVerdict.VIOLATION


@pytest.mark.slow
def test_once_a_library() -> None:
    """Distinct classes and types of statics are told of the first class; lists of each field."""
    known: set[tuple[str, str]] = set()
    laws = Law.STATIC_TYPES, Law.DISTINCT_CLASSES, Law.AUX_DATA_HASH
    classes = [
        native(int, 1),
        native(list[int], [1]),
        native(tuple[list[int], int], ([1], 2)),
        OwnList,
        OtherList,
    ]
    reports = [laws_of(cls, *laws, examples=3, known=known) for cls in classes]
    told = [[warning.law for warning in report.warnings] for report in reports]
    assert told == [
        ["static-types", "distinct-classes"], ["aux-data-hash"], ["aux-data-hash"],
        ["aux-data-hash"], [],
    ]  # fmt: skip
    assert all(report.passed for report in reports)
    assert [each.verdict for each in reports[2].laws] == ["warning"] * 3
