"""Targets: which classes are found; and what is said where none is, or one cannot be built."""

import collections
import dataclasses
import sys
import types
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, Union

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import CheckTarget, check_class, find
from tests.kit.specimens import ByHand

import leafwise as lw
from leafwise.testing import Law
from leafwise.testing.strategies import instances

from .conftest import FIELDS, GOOD, JSON, Check, Outcome, Write, laws_of, report_of

ONE = """
@lw.pytree
class Only:
    n: lw.Static[int] = 2
"""

TWO = """
@lw.pytree
class First:
    n: lw.Static[int] = 2

@lw.pytree
class Second:
    n: lw.Static[int] = 2
"""


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (["{file}"], ["First", "Second"]),
        (["{root}/{file}"], ["First", "Second"]),
        (["{file}:Second"], ["Second"]),
        (["{file}::Second"], ["Second"]),
        (["{module}"], ["First", "Second"]),
        (["{module}:First"], ["First"]),
        (["{below}"], ["Only"]),
        (["{root}/{below}"], ["Only"]),
        (["{below}", "{file}:Second"], ["Only", "Second"]),
        (["{file}", "{file}", "{file}:Second", "{file}:Alias", "{module}"], ["First", "Second"]),
    ],
    ids=" ".join,
)
def test_what_is_found(
    targets: list[str], names: list[str], write: Write, check: Check, tmp_path: Path
) -> None:
    """Classes of files, modules and targets named alone, in order of definition, each once."""
    file = write(TWO + "\nAlias = First\n")
    below = write(ONE, "below/deep_models.py")
    places = {"file": file, "module": file.removesuffix(".py"), "root": tmp_path, "below": below}
    outcome = check(*(each.format(**places) for each in targets), JSON)
    assert (outcome.code, outcome.names) == (0, names)


CLASSES = """
import abc
import dataclasses
from typing import Protocol

class Outer:
    @lw.pytree
    class Inner:
        n: lw.Static[int] = 2

        @lw.pytree
        class Innermost:
            n: lw.Static[int] = 2

@lw.pytree
class Base(abc.ABC):
    n: lw.Static[int] = 2

    @abc.abstractmethod
    def area(self) -> float: ...

@lw.pytree
class Sized(Protocol):
    n: lw.Static[int] = 2

@lw.pytree
class Square(Base):
    def area(self) -> float:
        return 1.0

class Plain: ...

@dataclasses.dataclass
class Data:
    n: int

class Child(Square): ...
"""


def test_which_classes_of_a_file(write: Write, check: Check) -> None:
    """Nested ones are targets; abstract, plain and undecorated ones only if they are named."""
    file = write(CLASSES)
    outcome = check(file, JSON)
    assert outcome.code == 0
    assert outcome.names == ["Outer.Inner", "Outer.Inner.Innermost", "Square"]
    assert check(f"{file}:Outer.Inner.Innermost", JSON).names == ["Outer.Inner.Innermost"]
    for name, code, words in (
        ("Plain", 2, "@lw.pytree"),
        ("Missing", 2, "its pytree classes: Outer.Inner, Outer.Inner.Innermost, "),
        ("Base", 3, "abstract"),
    ):
        outcome = check(f"{file}:{name}")
        assert outcome.code == code
        assert words in outcome.out + outcome.err


def test_imported_classes_are_not_counted(write: Write, check: Check) -> None:
    """A class that a file only imports is checked where it is defined."""
    source = write(ONE).removesuffix(".py")
    importer = write(f"from {source} import Only\n\n{TWO}")
    assert check(importer, JSON).names == ["First", "Second"]
    assert check(f"{importer}:Only", JSON).names == ["Only"], "naming it is another matter"


def test_registered_classes(write: Write, check: Check) -> None:
    """A class given to `lw.register` is checked, also one from elsewhere."""
    elsewhere = write(
        """
        class Foreign:
            def __init__(self, x: float, n: int = 3) -> None:
                self.x = x
                self.n = n
        """
    ).removesuffix(".py")
    file = write(
        f"""
        from typing import NamedTuple
        from {elsewhere} import Foreign

        class Pair(NamedTuple):
            x: jax.Array
            n: int = 1

        lw.register(Pair, dynamic=["x"], static=["n"])
        lw.register(Foreign, dynamic=["x"], static=["n"])
        """
    )
    outcome = check(file, JSON)
    assert outcome.code == 0
    assert sorted(outcome.names) == ["Foreign", "Pair"]
    for entry in outcome.document["classes"]:
        kinds = {(row["field"], row["static"], row["kind"]) for row in entry["rows"]}
        assert {("x", False, "value"), ("x", False, "shape"), ("n", True, "value")} <= kinds


def test_a_file_named_like_a_loaded_module(write: Write, check: Check) -> None:
    """A file may be named as a loaded module, which stays; a folder, as any module of Python."""
    before = sys.modules["json"]
    file = write(TWO, "shadows/json.py")
    assert check(file, JSON).names == ["First", "Second"]
    assert sys.modules["json"] is before
    write(ONE, "colorsys/one.py")
    assert names_of(check("colorsys", JSON)) == ["colorsys/one.py:Only"]
    assert "no pytree class" in check("keyword").err


@pytest.mark.parametrize(
    ("source", "words", "end"),
    [
        ("class :", "SyntaxError", ", line 5)"),
        ("x = 1\nimport no_such_thing_at_all", "no_such_thing_at_all", ", at {}:6"),
        ("import sys; sys.exit()", "SystemExit", ", at {}:5"),
        ("import os\nos.makedirs('')", "FileNotFoundError", ", at {}:6"),  # in `<frozen os>`
        ("jnp.zeros(2) + jnp.zeros(3)", "TypeError", ", at {}:5"),
        ("@lw.pytree\nclass Bad:\n    name: str\n", "Bad.name", ", at {}:5"),
        ("import behind_import\nbehind_import.load()", "no display", ", at behind_import.py:6"),
    ],
)
def test_imports_that_fail(source: str, words: str, end: str, write: Write, check: Check) -> None:
    """The message names file, error and the last line of the user's own code; exit code 2."""
    write("def load():\n    raise RuntimeError('no display')\n", "behind_import.py")
    file = write(source)
    for target in (file, file.removesuffix(".py")):
        before = set(sys.modules)
        outcome = check(target, JSON)
        assert outcome.code == 2
        assert not outcome.out
        assert outcome.err.startswith(f"leafwise check: {target}")
        assert words in outcome.err
        assert outcome.err.rstrip().endswith(end.format(file))
        assert "Traceback" not in outcome.err
        assert set(sys.modules) - before <= {"behind_import"}, "what failed stays unloaded"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "empty"),
        ("missing.py", "no such file"),
        ("no_such_module", "no such module"),
        (".", ".: no pytree class"),
        ("empty.py:", "empty.py:"),
        ("empty.py", "no pytree class"),
        ("json", "no pytree class"),
        ("json:JSONDecoder", "not a pytree class"),
        (":Class", ":Class"),
        ("notes.txt", "notes"),
    ],
)
def test_wrong_targets(target: str, words: str, write: Write, check: Check, tmp_path: Path) -> None:
    """The message names the target and what is wrong; nothing else is printed; exit code 2."""
    write("", "empty.py")
    (tmp_path / "notes.txt").write_text("hello")
    outcome = check(target)
    assert outcome.code == 2
    assert not outcome.out
    assert words in outcome.err
    assert "Traceback" not in outcome.err
    for nonsense in (".py:.py", ".py.py", "'package' argument"):
        assert nonsense not in outcome.err


def names_of(outcome: Outcome) -> list[str]:
    """Return what the classes of the JSON output are called."""
    return [entry["name"] for entry in outcome.document["classes"]]


def package(write: Write, top: str) -> None:
    """Write a package whose modules do all that goes wrong, apart from what is sound in it."""
    for place in ("sub", "sub/tests", "tests"):
        write("", f"{top}/{place}/__init__.py")
    shown = ONE.replace("Only", "Shown")
    write(f"from .models import Shown\nfrom . import models as also\n{ONE}", f"{top}/__init__.py")
    write(f"from . import sub\n{shown}{ONE.replace('Only', 'Hidden')}", f"{top}/models.py")
    write(f"from ..models import Hidden\n{ONE.replace('Only', 'Deep')}", f"{top}/sub/deep.py")
    write(ONE.replace("Only", "Loose"), f"{top}/space/loose.py")  # a package without `__init__`
    for aside in (
        "__main__",
        "test_it",
        "it_test",
        "conftest",
        "tests/it",
        "sub/tests/it",
        "setup",
    ):
        write(f"import sys; sys.ran = {aside!r}; raise SystemExit(7)", f"{top}/{aside}.py")
    write("raise RuntimeError('no display')", f"{top}/sub/broken.py")
    write("import no_such_extra.part", f"{top}/sub/extra.py")
    write("", "shared_namespace/mine.py")  # as `google` is, of which many packages are a part
    write("import shared_namespace.mine, shared_namespace.other", f"{top}/sub/other.py")
    write(f"import {top}.misspelt", f"{top}/sub/wrong.py")


@pytest.mark.slow
def test_packages_with_what_is_below(write: Write, check: Check) -> None:
    """All modules below a package are checked; what cannot be imported is told with the reason."""
    package(write, "below_a")
    outcome = check("below_a", JSON)
    assert not hasattr(sys, "ran")
    assert outcome.code == 3
    *modules, only, shown, hidden, loose, deep = names_of(outcome)
    assert modules == ["below_a.sub.broken", "below_a.sub.wrong"]
    assert [only, shown] == ["below_a:Only", "below_a:Shown"][:: 1 if only.endswith("Only") else -1]
    assert [hidden, loose, deep] == [
        "below_a.models:Hidden",
        "below_a.space.loose:Loose",
        "below_a.sub.deep:Deep",
    ]
    assert "RuntimeError: no display" in outcome.document["classes"][0]["error"]
    note, other = outcome.document["notes"]
    assert note.startswith("below_a.sub.extra: importing it raised ModuleNotFoundError")
    assert other.startswith("below_a.sub.other: importing it raised ModuleNotFoundError")
    text = check("below_a", "--allow-unchecked")
    assert text.code == 0
    assert "not checked importing it raised RuntimeError: no display" in text.out
    assert "note: below_a.sub.extra" in text.out
    assert text.out.splitlines()[-1].startswith("5 classes, ")
    assert text.out.splitlines()[-1].endswith(": 2 modules not checked")


@pytest.mark.slow
def test_directories(write: Write, check: Check) -> None:
    """All files in a directory and below are checked, those of packages as modules of these."""
    package(write, "sources/below_b")
    write(ONE, "sources/script.py")
    write(ONE, "sources/.hidden/script.py")
    write("raise SystemExit", "sources/not-a-module.py")
    for target in ("sources", "sources/", "./sources"):
        outcome = check(target, JSON)
        assert not hasattr(sys, "ran")
        assert outcome.code == 3
        assert sorted(outcome.names[2:]) == ["Deep", "Hidden", "Loose", "Only", "Only", "Shown"]
    assert names_of(outcome)[0] == "sources/below_b/sub/broken.py"
    assert "below_b.sub.deep" in sys.modules
    assert "sources/script.py:Only" in names_of(outcome)


def test_a_file_of_a_package(write: Write, check: Check) -> None:
    """It is imported as a module of the package, whose relative imports work."""
    package(write, "below_c")
    outcome = check("below_c/sub/deep.py", "below_c.sub.deep", JSON)
    assert (outcome.code, names_of(outcome)) == (0, ["below_c/sub/deep.py:Deep"])
    assert sys.modules["below_c.models"].Hidden
    assert names_of(check("below_c/__init__.py:Shown", JSON)) == ["below_c/__init__.py:Shown"]


def test_packages_that_share_a_name(write: Write, check: Check) -> None:
    """Files and packages of one name in two directories are two modules each."""
    for place in ("one", "two"):
        write(ONE, f"{place}/alike.py")
        write("", f"{place}/alike_package/__init__.py")
        write(ONE, f"{place}/alike_package/models.py")
        write(f"from .models import Only\n{TWO}", f"{place}/alike_package/more.py")
    outcome = check("one", "two", JSON)
    assert outcome.code == 0
    assert outcome.names == ["Only", "Only", "First", "Second"] * 2


def test_a_target_without_classes(write: Write, check: Check) -> None:
    """Beside one that has some, it is a note; alone, or with others like it, an error."""
    file, empty = write(ONE), write("")
    outcome = check("json", file, empty, JSON)
    assert (outcome.code, outcome.names) == (0, ["Only"])
    notes = [f"{name}: no pytree class is defined in it" for name in ("json", empty)]
    assert outcome.document["notes"] == notes
    assert f"note: {notes[0]}" in check("json", file).out
    outcome = check("json", empty)
    assert (outcome.code, outcome.out) == (2, "")
    assert all(note in outcome.err for note in notes)


def test_modules_that_are_not_to_blame(write: Write, check: Check) -> None:
    """One that exits, defines flags twice or says which extra it lacks is a note."""
    write("", "notes_package/__init__.py")
    write(GOOD, "notes_package/good.py")
    write("raise SystemExit(2)", "notes_package/exits.py")
    flags = "class DuplicateFlagError(Exception): ...\nraise DuplicateFlagError('steps')"
    write(flags, "notes_package/flags.py")
    extra = "try:\n    import brax_is_not_here\nexcept ImportError as error:\n"
    write(
        f"{extra}    raise ModuleNotFoundError('pip install brax') from error", "notes_package/x.py"
    )
    outcome = check("notes_package", JSON)
    assert (outcome.code, outcome.names) == (0, ["Good"])
    notes = [note.partition(":")[0] for note in outcome.document["notes"]]
    assert notes == [f"notes_package.{each}" for each in ("exits", "flags", "x")]


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

    class Stream(ByHand):
        dynamic = ("x", "state")

        def __init__(self, x: float) -> None:
            self.x, self.state = x, value

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
def test_a_class_that_jax_can_never_rebuild(flatten: Any, unflatten: Any, told: str) -> None:
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
