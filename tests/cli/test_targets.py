"""Targets: what is loaded, which classes are found, and what a wrong target says."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Outcome

Write = Callable[..., str]
Check = Callable[..., Outcome]

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


def test_file(write: Write, check: Check) -> None:
    """A file gives all pytree classes it defines, in order of definition."""
    outcome = check(write(TWO), "--json")
    assert (outcome.code, outcome.names) == (0, ["First", "Second"])


def test_file_by_its_whole_path(write: Write, check: Check, tmp_path: Path) -> None:
    """A file may be given from the root, and in a directory below."""
    below = write(ONE, "below/deep_models.py")
    assert check(str(tmp_path / below), "--json").names == ["Only"]
    assert check(below, "--json").names == ["Only"]


def test_class_of_a_file(write: Write, check: Check) -> None:
    """``file.py:Class`` gives that class alone."""
    outcome = check(f"{write(TWO)}:Second", "--json")
    assert (outcome.code, outcome.names) == (0, ["Second"])


def test_module_of_the_working_directory(write: Write, check: Check) -> None:
    """A module is found in the working directory, as by ``python -m``."""
    name = write(TWO).removesuffix(".py")
    assert check(name, "--json").names == ["First", "Second"]
    outcome = check(f"{name}:First", "--json")
    assert [entry["name"] for entry in outcome.document["classes"]] == [f"{name}:First"]


def test_module_of_a_package(write: Write, check: Check) -> None:
    """A dotted name is a module of a package, whose relative imports work."""
    write("SIZE = 3\n", "checked_package/__init__.py")
    write(
        "from . import SIZE\n@lw.pytree\nclass Sized:\n    n: lw.Static[int] = SIZE\n",
        "checked_package/inner.py",
    )
    outcome = check("checked_package.inner:Sized", "--json")
    assert outcome.code == 0
    assert outcome.document["classes"][0]["instance"] == "Sized(n=3)"


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
    assert check(file, "--json").names == ["Outer.Inner", "Outer.Inner.Innermost"]
    assert check(f"{file}:Outer.Inner.Innermost", "--json").names == ["Outer.Inner.Innermost"]


def test_several_targets(write: Write, check: Check) -> None:
    """Several targets are checked in the order given."""
    first, second = write(TWO), write(ONE)
    assert check(second, f"{first}:Second", "--json").names == ["Only", "Second"]


def test_duplicates(write: Write, check: Check) -> None:
    """A class is checked once, however often it is named, and by whatever alias."""
    file = write(TWO + "\nAlias = First\n")
    module = file.removesuffix(".py")
    outcome = check(file, file, f"{file}:Second", f"{file}:Alias", module, "--json")
    assert outcome.names == ["First", "Second"]


def test_imported_classes_are_not_counted(write: Write, check: Check) -> None:
    """A class that a file only imports is checked where it is defined."""
    source = write(ONE).removesuffix(".py")
    importer = write(f"from {source} import Only\n\n{TWO}")
    assert check(importer, "--json").names == ["First", "Second"]
    assert check(f"{importer}:Only", "--json").names == ["Only"], "naming it is another matter"


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
    outcome = check(file, "--json")
    assert outcome.code == 0
    assert sorted(outcome.names) == ["Foreign", "Pair"]
    for entry in outcome.document["classes"]:
        kinds = {(row["field"], row["static"], row["kind"]) for row in entry["rows"]}
        assert {("x", False, "value"), ("x", False, "shape"), ("n", True, "value")} <= kinds


def test_undecorated_classes_are_not_counted(write: Write, check: Check) -> None:
    """Plain classes, dataclasses and undecorated subclasses are no targets."""
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
    assert check(file, "--json").names == ["Only"]
    outcome = check(f"{file}:Plain")
    assert outcome.code == 2
    assert "@lw.pytree" in outcome.err


def test_a_file_named_like_a_loaded_module(write: Write, check: Check) -> None:
    """A file may have the name of a module in use, which stays what it was."""
    before = sys.modules["json"]
    file = write(TWO, "shadows/json.py")
    assert check(file, "--json").names == ["First", "Second"]
    assert sys.modules["json"] is before


def test_a_shadowing_file_is_loaded_once(write: Write, check: Check) -> None:
    """Naming such a file twice does not execute it twice."""
    file = write(TWO, "shadows/json.py")
    outcome = check(file, f"{file}:First", file, "--json")
    assert outcome.names == ["First", "Second"]
    assert "redefined" not in outcome.out


def test_a_class_redefined_in_its_file(write: Write, check: Check) -> None:
    """Of two classes of one name the file holds the later, and that one is checked."""
    outcome = check(write(ONE + ONE.replace("2", "7")), "--json")
    assert [entry["instance"] for entry in outcome.document["classes"]] == ["Only(n=7)"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class :", "SyntaxError"),
        ("import no_such_thing_at_all", "no_such_thing_at_all"),
        ("raise SystemExit(0)", "SystemExit"),
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
        outcome = check(target, "--json")
        assert outcome.code == 2
        assert not outcome.out
        assert outcome.err.startswith(f"leafwise check: {target}")
        assert words in outcome.err
        assert "Traceback" not in outcome.err
        assert set(sys.modules) - before == set(), "a module that failed stays unloaded"


def test_a_failed_file_can_be_repaired(write: Write, check: Check) -> None:
    """A file that could not be imported is read afresh the next time."""
    file = write("1 / 0")
    assert check(file).code == 2
    write(ONE, file)
    assert check(file).code == 0


def test_interrupting_an_import(write: Write, check: Check) -> None:
    """Ctrl-C while a file is loading stops the command; it is no error of the file."""
    file = write("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        check(file)
    assert file.removesuffix(".py") not in sys.modules


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "empty"),
        ("missing.py", "no such file"),
        ("missing.py:Class", "no such file"),
        ("folder/missing.py", "no such file"),
        ("no_such_module", "no such module"),
        ("no_such_module:Class", "no such module"),
        ("no_such_package.module", "no such module"),
        ("a folder", "no such module"),
        (".", "director"),
        ("./", "director"),
        ("folder/", "director"),
        ("empty.py:", "empty.py:"),
        ("empty.py", "no pytree class"),
        ("empty.py:Missing", "Missing"),
        ("json", "no pytree class"),
        ("json:JSONDecoder", "not a pytree class"),
        ("json:dumps", "not a pytree class"),
        ("collections", "no pytree class"),
        (":Class", ":Class"),
        ("notes.txt", "notes"),
    ],
)
def test_wrong_targets(target: str, words: str, write: Write, check: Check, tmp_path: Path) -> None:
    """The message names the target and what is wrong; nothing else is printed; exit code 2."""
    write("", "empty.py")
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    outcome = check(target)
    assert outcome.code == 2
    assert not outcome.out
    assert words in outcome.err
    assert "Traceback" not in outcome.err
    for nonsense in (".py:.py", ".py.py", "'package' argument"):
        assert nonsense not in outcome.err


def test_a_wrong_class_lists_the_right_ones(write: Write, check: Check) -> None:
    """A class that is not there is answered with those that are."""
    outcome = check(f"{write(TWO)}:Third")
    assert outcome.code == 2
    assert "Third" in outcome.err
    assert "First, Second" in outcome.err


def test_one_wrong_target_of_several(write: Write, check: Check) -> None:
    """One wrong target is a usage error: nothing is checked."""
    outcome = check(write(ONE), "missing.py")
    assert (outcome.code, outcome.out) == (2, "")


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
    outcome = check(file, "--json")
    assert (outcome.code, outcome.names) == (0, ["Square"])
    assert check(f"{file}:Base").code == 3
