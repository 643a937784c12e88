"""What other libraries do not promise: the law's own message, once, as a warning."""

import dataclasses
import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from tests.kit.inside import CheckVerdict, ClassResult
from tests.kit.specimens import ByHand, Plain

import leafwise as lw
from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree

from .conftest import Check, Write, laws_of, report_of

SOURCE = """
import dataclasses

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Native:
    n: int = dataclasses.field(default=2, metadata={"static": True})
    m: int = dataclasses.field(default=3, metadata={"static": True})
"""


def test_in_the_report(write: Write, check_all: Check, check: Check) -> None:
    """The law's message and fix are printed, for GitHub at the field's line; the code stays 0."""
    file = write(SOURCE)
    arguments = (file, "--law", "static-types", "--examples", "3")
    outcome = check_all(*arguments)
    assert outcome.code == 0, outcome.out
    for words in (
        "ok, 1 warning",
        "warning: law static-types, Native.",
        "equal treedefs, so that one program serves both",
        "fix: declare Native with `@lw.pytree` and `",
        ": lw.Static[int] = ",
        "\n1 class, 1 law: 1 warning\n",
    ):
        assert words in outcome.out
    (entry,) = check_all(*arguments, "--output-format=json").document["classes"]
    (law,) = entry["laws"]
    assert (law["law"], law["verdict"], law["library"]) == ("static-types", "warning", "JAX")
    strict = check_all(*arguments, "--warnings-as-errors", "--output-format=json")
    assert (strict.code, strict.document["exit_code"]) == (1, 1)
    (shown,) = check_all(*arguments, "--output-format=github").out.splitlines()
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    line = next(at for at, text in enumerate(lines, 1) if "n: int" in text)
    assert shown.startswith(f"::warning file={file},line={line},title=static-types::Native.n: ")
    fields = check(file)
    assert (fields.code, check(file, "--warnings-as-errors").code) == (0, 1)
    words = "warning: a type change of a static field promises a retrace"
    assert words in " ".join(fields.out.split())
    assert fields.out.endswith(": 2 warnings\n")


@lw.pytree
class HoldsOthers:
    inner: list[Plain]
    n: lw.Static[int] = 2


TWO_FAULTS = """
class Spec:
    def __init__(self, n): self.n = n

class Parts:
    def __init__(self, w: float, n: int = 2): self.w, self.n = w, n
    @classmethod
    def tree_unflatten(cls, spec, children): return cls(*children, *vars(spec or Spec(2)).values())

@jax.tree_util.register_pytree_node_class
class Stack(Parts):
    def tree_flatten(self): return (self.w,), Spec(self.n)

@jax.tree_util.register_pytree_node_class
class Lens(Parts):
    def tree_flatten(self): return (self.w,), None
"""


@pytest.mark.nightly
def test_an_annotation_for_each_cause(check_all: Check, write: Write) -> None:
    """GitHub shows ten: a fault is one for each class, with the laws and changes that it breaks."""
    file = write(TWO_FAULTS)
    number = len(check_all(file, "--output-format=json").document["classes"])
    stack, lens = check_all(file, "--output-format=github").out.splitlines()
    assert number == 2
    assert ",title=identity-map::Stack: breaks the law identity-map" in stack
    assert "also breaks: any-leaf, static-values, stable-treedef, " in stack
    assert stack.endswith(", recompilation, a change of w")
    assert ",title=no-hidden-state::Lens.n: breaks the law no-hidden-state" in lens
    assert "%0Aalso breaks: static-values, static-types, aux-data-hash, " in lens
    assert lens.endswith(", a change of n")


def test_faults_of_a_part() -> None:
    """What the class of a part does not keep is a warning that names that class and its fix."""
    report = laws_of(HoldsOthers, Law.STATIC_TYPES, examples=10)
    (law,) = report.laws
    assert (law.verdict, report.passed, law.library) == (CheckVerdict.WARNING, True, "JAX")
    (warning,) = report.warnings
    assert warning.path == "HoldsOthers.inner[0].n"
    assert f"in {Plain.__module__}.Plain, not in HoldsOthers" in warning.message
    assert "fix: declare Plain with `@lw.pytree` and `n: lw.Static[int] = 1`" in warning.message
    assert not laws_of(HoldsOthers, Law.STATIC_TYPES, examples=10, warnings_as_errors=True).passed


def test_function_leaves_of_a_part(write: Write, check_all: Check) -> None:
    """A class that holds a module with functions for leaves is checked without them."""
    file = write("""
        import equinox as eqx

        def mlp():
            return eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))

        @lw.pytree
        class Net:
            mlp: eqx.nn.MLP = lw.field(default_factory=mlp)
    """)
    outcome = check_all(file, "--examples", "1", "--fields", "--output-format=json")
    assert outcome.code == 0, outcome.out
    (entry,) = outcome.document["classes"]
    assert entry["rows"]
    assert {row["verdict"] for row in entry["rows"]} == {"ok"}


class Kind:
    """It compares by identity."""


@dataclasses.dataclass(frozen=True)
class FrozenKind:
    """It compares by what it holds."""


class Kinds(ByHand):
    static = ("kinds",)

    def __init__(self, x: jax.Array, kinds: tuple[Kind]) -> None:
        self.x, self.kinds = x, kinds


@lw.pytree
class Declared:
    x: jax.Array
    kinds: lw.Static[tuple[Kind | FrozenKind]] = (Kind(),)


@pytest.mark.parametrize("cls", [Kinds, Declared])
def test_a_copy_with_another_treedef(cls: Any) -> None:
    """Where a static compares by identity it is a warning, with the fix, whoever made the class."""
    (law,) = laws_of(cls, Law.COPIES).warnings
    assert law.path == f"{cls.__name__}.kinds[0]"
    assert "another Kind, and so another treedef after " in law.message
    assert "fix: make Kind a frozen dataclass: it compares by identity" in law.message
    with pytest.warns(UserWarning, match="make Kind a frozen dataclass"):
        check_pytree(cls, laws=["copies"])
    for value in (FrozenKind(), jax.nn.relu):  # of a jitted function, a copy is another one
        check_pytree(st.builds(cls, st.just(1.0), st.just((value,))), laws=["copies"])


LOST = """
@jax.tree_util.register_pytree_node_class
class Lens:
    def __init__(self, w: jax.Array, tilt: float = 0.0):
        self.w, self.tilt = w, tilt
        self._cached_shapes = {}
        self._area_memo = 4
    @property
    def area(self):
        if not hasattr(self, "_area_memo"):
            self._area_memo = 4
        return self._area_memo
    def tree_flatten(self):
        return (self.w,), (str(self.tilt), type(self.tilt))
    @classmethod
    def tree_unflatten(cls, aux, children):
        self = object.__new__(cls)
        self.w, self.tilt = *children, aux[1](aux[0])
        return self
"""


@pytest.mark.slow
def test_what_is_lost(write: Write, check_all: Check) -> None:
    """A lost attribute is the first fault of its field; a cache is none, and a private one is."""
    only = ("--laws", "--without", "aux-data-hash")
    assert "all as promised" in check_all(write(LOST), *only).out
    lost = LOST.replace("(str(self.tilt), type(self.tilt))", "()").replace("aux[1](aux[0])", "0.0")
    out = check_all(write(lost), *only).out
    assert out.count("broken: law ") == 1
    assert "broken: law no-hidden-state\n  Lens.tilt: " in out
    assert "got: 0.0 (float) after flatten and unflatten\n    wanted: 1.0 (float)" in out
    assert "also breaks: static-values" in out
    private = LOST.replace("self._area_memo = 4\n    @", "self._scale = 4\n    @")
    assert "broken: law no-hidden-state\n  Lens._scale: " in check_all(write(private), *only).out


OPAQUE = """
class Solver: ...

@jax.tree_util.register_pytree_node_class
class Model:
    def __init__(self, w: jax.Array, solver: Solver | None = None):
        if solver is None:
            solver = ()[: w.size]
        self.w, self.solver = w, solver
    def tree_flatten(self):
        return (self.w, self.solver), None
    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)
"""


def test_a_child_that_is_no_leaf_of_jax(write: Write, check_all: Check) -> None:
    """It stays where leaves are replaced by None: JAX never does that; an array may be None."""
    only = ("--law", "any-leaf", "--laws")
    assert "1 law: all as promised" in check_all(write(OPAQUE), *only).out
    refused = OPAQUE.replace("if solver is None", "if w is None or solver is None")
    assert "unflatten with NoneType raised" in check_all(write(refused), *only).out


CREATED = """
from typing import Any

@lw.pytree
class Scaled:
    x: jax.Array
    act: Any = lw.static_field()
    def __init__(self, x: jax.Array, slope: float = 0.1) -> None:
        self.x = x
        self.act = lambda x: x * slope
"""


def test_a_static_that_the_constructor_creates(write: Write, check_all: Check) -> None:
    """Instances from the same arguments have two treedefs: the field and its line are named."""
    file = write(CREATED)
    only = ("--law", "same-arguments", "--laws", "--examples", "3")
    outcome = check_all(file, *only)
    source = Path(file).read_text(encoding="utf-8").splitlines()
    (line,) = [at for at, text in enumerate(source, 1) if "self.act = lambda" in text]
    assert "warning: law same-arguments, Scaled.act" in outcome.out
    assert f"function created in {file}, line {line}, and so another treedef" in outcome.out
    assert 'as a method; or `act: Any = lw.static_field(compare_by="content")`' in outcome.out
    content = CREATED.replace("static_field()", 'static_field(compare_by="content")')
    again = check_all(write(content), *only)
    assert "1 class, 1 law: all as promised" in again.out
    module = CREATED.replace("@lw.pytree", "import equinox as eqx").replace(
        "Scaled", "S(eqx.Module)"
    )
    module = module.replace("lw.static_field()", "eqx.field(static=True)")
    assert "once, at module level, or as a method\n" in check_all(write(module), *only).out
    kind = CREATED.replace("lambda x: x * slope", "Kind()").replace("@lw", "class Kind: ...\n@lw")
    assert "fix: make Kind a frozen dataclass: it" in check_all(write(kind), *only).out
    frozen = kind.replace(
        "class Kind", "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Kind"
    )
    assert "1 class, 1 law: all as promised" in check_all(write(frozen), *only).out


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


def test_messages_are_whole() -> None:
    """A call that raises says so once, and a treedef is not cut to nothing."""
    rows = report_of(native(np.ndarray, np.zeros(3))).rows
    notes = [row.note for row in rows if row.verdict is CheckVerdict.ERROR]
    assert [note.splitlines()[0] for note in notes] == ["the call raises"]
    cls: Any = dataclasses.make_dataclass("Lens", [("w", jax.Array)])
    jax.tree_util.register_pytree_node(cls, lambda x: ((x.w,), object()), lambda _, w: cls(*w))
    assert "got: another treedef with paths\n" in laws_of(cls, Law.KEY_PATHS).laws[0].message


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
