"""No class is blamed for a value that we drew: what JAX refuses, and what cannot be constructed."""

import collections
import dataclasses
import types
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Union

import hypothesis.strategies as st
import jax
import pytest

import leafwise as lw
from leafwise.cli.records import ClassReport
from leafwise.cli.run import CheckOptions, check_class
from leafwise.cli.targets import CheckTarget
from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree
from leafwise.testing.strategies import instances
from leafwise.testing.strategies._annotations import is_static
from leafwise.testing.strategies._constructor import parameters_of
from leafwise.testing.strategies._find import find

from .asked import report_of

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


def laws_of(cls: type) -> ClassReport:
    """Try the laws that do not compile."""
    options = CheckOptions(fields=False, laws=(Law.ROUND_TRIP, Law.STATIC_VALUES), examples=10)
    return check_class(CheckTarget(cls, f"here:{cls.__qualname__}"), options)


@pytest.mark.parametrize("cls", [State, Defaults, Registered])
def test_laws_of_correct_classes(cls: type) -> None:
    """Keys that can be sorted, aliases that end, defaults where nothing can be constructed."""
    report = laws_of(cls)
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


def test_a_type_that_cannot_be_constructed_without_a_default() -> None:
    """The class is not checked, and the field is named."""
    cls = dataclasses.make_dataclass("Needs", [("w", float), ("it", Refusing)])
    jax.tree_util.register_dataclass(cls, ["w"], ["it"])
    report = report_of(cls)
    assert report.error.startswith("Needs.it: ")
    assert report.unchecked
    assert not report.failed


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


class Streams:
    """Gives something to call by any name, as `flax.nnx.Rngs` does."""

    def __getattr__(self, name: str) -> Any:
        return lambda: name


def test_what_answers_to_any_name() -> None:
    """A value is found without being printed, which would call what its class gives."""
    assert type(find(st.builds(Streams), lambda _: True)) is Streams


def test_statics_that_only_jax_knows() -> None:
    """What flatten puts into no leaf is static, although nothing at the class says so."""

    class ByHand:
        def __init__(self, w: Any, cfg: Any) -> None:
            self.w, self.cfg = w, cfg

        def tree_flatten(self) -> Any:
            return (self.w,), self.cfg

        @classmethod
        def tree_unflatten(cls, cfg: Any, children: Any) -> Any:
            return cls(*children, cfg)

    jax.tree_util.register_pytree_node_class(ByHand)
    for cls, wanted in ((ByHand, {"cfg"}), (Registered, {"anything", "thing", "refusing"}),
                        (State, set()), (Refusing, set())):  # fmt: skip
        assert {each.name for each in parameters_of(cls) if is_static(cls, each)} == wanted
    check_pytree(ByHand, laws=["treedef-equality", "static-values"])


def test_a_dict_that_no_class_could_flatten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies of the user's own may draw what JAX refuses: that breaks no law."""

    @lw.pytree
    class Held:
        parts: list[dict[Any, float]]

    bad = st.just([{1: 0.0, "a": 0.0}])
    with monkeypatch.context() as blind:
        blind.setattr("leafwise.testing._laws.run.has_unsortable_keys", lambda _: False)
        with pytest.raises(LawViolation, match="round-trip"):
            check_pytree(bad.map(Held), laws=["round-trip"])
    good = st.just([{1: 0.0, 2: 0.0}])
    check_pytree((bad | good).map(Held), laws=["round-trip", "identity-map", "key-paths"])
    deep = (bad | good).map(lambda part: Held([{0: Held(part)}]))  # type: ignore[dict-item]
    check_pytree(deep, laws=["round-trip"])


def test_numbers_that_jax_cannot_take() -> None:
    """They are leaves that no jitted function takes, as text is."""

    @lw.pytree
    class Counted:
        count: int

    numbers = st.sampled_from([2**31, -(2**70), 5])
    check_pytree(numbers.map(Counted), laws=["transformations", "recompilation"])


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class Guarded:
    x: jax.Array | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        assert self.x is None or self.x.ndim < 3

    def __repr__(self) -> str:
        return f"Guarded of {self.x.shape}"  # type: ignore[union-attr]  # raises for None

    def tree_flatten(self) -> Any:
        return (self.x,), self.size

    @classmethod
    def tree_unflatten(cls, size: Any, children: Any) -> Any:
        return cls(*children, size)


def test_a_class_whose_checks_and_text_fail_for_some_values() -> None:
    """Values that ``assert`` in its constructor refuses are left out, and no ``repr`` is needed."""
    laws = (Law.STATIC_VALUES, Law.STATIC_TYPES, Law.RECOMPILATION)
    report = check_class(CheckTarget(Guarded, "here:Guarded"), CheckOptions(laws=laws))
    assert not report.error
    verdicts = {str(each.law): str(each.verdict) for each in report.laws}
    assert verdicts == {
        "static-values": "ok", "static-types": "warning", "recompilation": "ok"
    }  # fmt: skip


def test_the_instance_for_which_a_law_raises_is_noted() -> None:
    """Hypothesis' own notes, of what is drawn, are not shown."""

    class Raises(Guarded):
        def tree_flatten(self) -> Any:
            raise KeyError(self.size)

    jax.tree_util.register_pytree_node_class(Raises)
    with pytest.raises(KeyError) as caught:
        check_pytree(st.builds(Raises), laws=["recompilation"])
    assert caught.value.__notes__ == ["instance: Raises(x=None, size=None)"]
