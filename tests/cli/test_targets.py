"""Targets: what is loaded, which classes are found, and what a wrong target says."""

import sys
from pathlib import Path

import pytest

from .conftest import GOOD, JSON, Check, Outcome, Write

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


def test_nested_classes(write: Write, check: Check) -> None:
    """A class within a class is found, and can be named."""
    file = write(
        """
        class Outer:
            @lw.pytree
            class Inner:
                n: lw.Static[int] = 2

                @lw.pytree
                class Innermost:
                    n: lw.Static[int] = 2
        """
    )
    assert check(file, JSON).names == ["Outer.Inner", "Outer.Inner.Innermost"]
    assert check(f"{file}:Outer.Inner.Innermost", JSON).names == ["Outer.Inner.Innermost"]


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


def test_undecorated_classes_are_not_counted(write: Write, check: Check) -> None:
    """Plain classes, dataclasses and undecorated subclasses are no targets; others are listed."""
    file = write(
        ONE
        + """
import dataclasses

class Plain: ...

@dataclasses.dataclass
class Data:
    n: int

class Child(Only): ...
"""
    )
    assert check(file, JSON).names == ["Only"]
    for name, words in (("Plain", "@lw.pytree"), ("Missing", "its pytree classes: Only")):
        outcome = check(f"{file}:{name}")
        assert outcome.code == 2
        assert words in outcome.err


def test_a_file_named_like_a_loaded_module(write: Write, check: Check) -> None:
    """A file may have the name of a module in use, which stays what it was."""
    before = sys.modules["json"]
    file = write(TWO, "shadows/json.py")
    assert check(file, JSON).names == ["First", "Second"]
    assert sys.modules["json"] is before


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class :", "SyntaxError"),
        ("import no_such_thing_at_all", "no_such_thing_at_all"),
        ("import sys; sys.exit()", "SystemExit"),
        ("1 / 0", "ZeroDivisionError"),
        ("@lw.pytree\nclass Bad:\n    name: str\n", "Bad.name"),
    ],
)
def test_files_that_cannot_be_imported(source: str, words: str, write: Write, check: Check) -> None:
    """The message names file and error; the exit code is 2, whatever the file wanted."""
    file = write(source)
    for target in (file, file.removesuffix(".py")):
        before = set(sys.modules)
        outcome = check(target, JSON)
        assert outcome.code == 2
        assert not outcome.out
        assert outcome.err.startswith(f"leafwise check: {target}")
        assert words in outcome.err
        assert "Traceback" not in outcome.err
        assert set(sys.modules) - before == set(), "a module that failed stays unloaded"


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


ABSTRACT = """
import abc
from typing import Protocol

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
"""


def test_abstract_classes_are_left_to_their_subclasses(write: Write, check: Check) -> None:
    """A file with an abstract base and a protocol passes; named alone, the base is not checked."""
    file = write(ABSTRACT)
    outcome = check(file, JSON)
    assert (outcome.code, outcome.names) == (0, ["Square"])
    outcome = check(f"{file}:Base")
    assert outcome.code == 3
    assert "abstract" in outcome.out


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


def test_a_directory_with_a_name_of_python(write: Write, check: Check) -> None:
    """A folder named as a module of Python is meant where it exists, the module elsewhere."""
    write(ONE, "colorsys/one.py")
    assert names_of(check("colorsys", JSON)) == ["colorsys/one.py:Only"]
    assert "no pytree class" in check("keyword").err


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
