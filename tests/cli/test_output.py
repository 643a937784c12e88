"""What is printed: tables of any width, and what is wrong."""

import dataclasses
import io
import re

import pytest
from rich.console import Console
from tests.kit.inside import (
    CheckPrinter,
    CheckRun,
    CheckVerdict,
    ClassResult,
    FieldChange,
    LawResult,
)

from .conftest import Check, Write

ROWS = (
    FieldChange("width", True, "value", "2 -> 3", "retrace", 7, 8, CheckVerdict.OK),
    FieldChange(
        "x", False, "value", "other elements", "reuse", 1, 1, CheckVerdict.MISMATCH, "no [b]\\"
    ),
    FieldChange("y", False, "structure", ":heart: no leaf"),
)
LAWS = (
    LawResult("round-trip", CheckVerdict.OK),
    LawResult("copies", CheckVerdict.VIOLATION, "P.n", "P.n: [lost]\n  got: 2"),
    LawResult("treedef-equality", CheckVerdict.ERROR, "", "RuntimeError: deep"),
    LawResult("replace", CheckVerdict.ERROR, "", "RuntimeError: deep"),
)
WRONG = ClassResult("m.py:P", "P(s=':heart:')", ROWS, laws=LAWS, fields=("width", "x", "y"))
NOT_BUILT = ClassResult("m.py:Q", error="Q.part: no values\n  fix: lw.Static[int] :heart:")
LEFT_OUT = ClassResult("m.py:R", left_out="R.text: JAX cannot trace it")


def printed(*results: ClassResult, width: int = 120, verbose: bool = False) -> str:
    """Return some classes as the command prints them on a console of that width."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, emoji=False)
    printer = CheckPrinter(console, verbose=verbose)
    printer.start([result.name for result in results])
    for result in results:
        printer.add(result)
    printer.finish(CheckRun(results))
    return stream.getvalue()


def test_each_change() -> None:
    """One line a change: field, kind, changed, change, predicted, counts, verdict; no markup."""
    text = printed(WRONG, NOT_BUILT, verbose=True)
    lines = [line.split() for line in text.splitlines()]
    assert ["width", "static", "value", "2", "->", "3", "retrace", "7", "8", "ok"] in lines
    assert ["y", "dynamic", "structure", ":heart:", "no", "leaf", "skipped"] in lines, "no counts"
    assert "mismatch: no [b]\\" in text
    assert "P(s=':heart:')" in text
    assert "not checked Q.part: no values" in text


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_tables_keep_everything(width: int) -> None:
    """No width loses a name, a count or a verdict; lines are as long as asked."""
    text = printed(dataclasses.replace(WRONG, laws=()), width=width, verbose=True)
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("7", "8", "ok"):
        assert re.search(rf"\b{word}\b", text)
    assert "…" not in text


def test_summary_has_one_line_a_class() -> None:
    """Name, fields, changes, laws kept, result; below it what is wrong, and nothing else."""
    text = printed(WRONG, NOT_BUILT, LEFT_OUT)
    lines = [line.split() for line in text.splitlines()]
    assert ["m.py:P", "3", "2", "1/4", *["1", "change", "wrong,", "3", "laws", "broken"]] in lines
    assert ["m.py:Q", "-", "-", "-", "not", "checked"] in lines
    assert ["m.py:R", "-", "-", "-", "left", "out"] in lines
    assert not any(line[-1:] == ["ok"] for line in lines), "no row that is ok"
    assert "broken: law copies\n  P.n: [lost]\n    got: 2\n" in text
    assert "error: laws treedef-equality, replace\n  RuntimeError: deep\n" in text
    assert "1 change wrong, 3 laws broken, 1 class not checked, 1 class left out" in text


@pytest.mark.parametrize("verdict", list(CheckVerdict))
def test_which_verdicts_pass(verdict: CheckVerdict) -> None:
    """What is wrong fails the class; what is skipped, accepted or a warning does not."""
    row = dataclasses.replace(ROWS[0], verdict=verdict)
    expected = verdict in (CheckVerdict.OK, CheckVerdict.SKIPPED, CheckVerdict.WARNING)
    assert ClassResult("m:P", "P()", (row,)).passed is expected


def test_of_many_classes_what_is_not_right() -> None:
    """Of more than 20 classes, those that are right are counted alone."""
    good = [ClassResult(f"m.py:P{n}", "P()", ROWS[:1], fields=("width",)) for n in range(21)]
    for results, rows in ((good[2:], 19), (good, 0)):
        text = printed(*results, NOT_BUILT)
        assert len(re.findall(r"^m.py:P\d+ ", text, re.MULTILINE)) == rows, text
        assert "m.py:Q" in text
        assert f"{len(results) + 1} classes" in text


def test_the_fault_of_a_base_is_shown_once(write: Write, check_all: Check) -> None:
    """Classes that have the `tree_flatten` of one base share its fault; their own stands apart."""
    file = write("""
class Base:
    def __init__(self, x: float, n: int = 2): self.x, self.n = x, n
    def tree_flatten(self): return (self.x,), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(*children)

@jax.tree_util.register_pytree_node_class
class One(Base): ...

@jax.tree_util.register_pytree_node_class
class Two(Base): ...

@jax.tree_util.register_pytree_node_class
class Own(Base):
    def tree_flatten(self): return (self.x,), None
""")
    text = check_all(file, "--law", "static-values").out
    assert text.count("broken: law static-values") == 3
    assert (
        f"broken: law static-values  as shown for {file}:One: both have Base.tree_flatten" in text
    )
    assert text.count("Base.tree_flatten") == 1
    assert text.count("breaks the law static-values") == 2


SWAPPED = """
@jax.tree_util.register_pytree_node_class
class Swapped:
    def __init__(self, a: float, b: float):
        self.a, self.b = a, b
    def tree_flatten(self): return (self.a, self.b), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(children[1], children[0])
"""


def test_one_fault_is_shown_once(write: Write, check_all: Check) -> None:
    """Of a swapped pair the first law is shown in full, the others in one line."""
    laws = [word for law in ("any-leaf", "round-trip", "identity-map") for word in ("--law", law)]
    outcome = check_all(write(SWAPPED), *laws, "--examples", "5")
    assert outcome.code == 1
    assert "3 laws broken" in outcome.out
    assert outcome.out.count("got: ") == 1
    assert "broken: law round-trip\n  Swapped.a: breaks the law round-trip" in outcome.out
    assert "\n  also breaks: identity-map, any-leaf\n" in outcome.out
    alone = check_all(write(SWAPPED), "--law", "any-leaf", "--examples", "5").out
    assert "fix: convert nothing in flatten, and restore in unflatten" in alone
