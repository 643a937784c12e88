"""What is printed: tables of any width, and what is wrong."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from leafwise.cli import report
from leafwise.cli.records import CheckedRow, ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckRun

from .conftest import Check, Write

ROWS = (
    CheckedRow("width", static=True, kind="value", change="2 -> 3", predicted="retrace", traces=7,
        compiles=8, verdict=Verdict.OK),
    CheckedRow("x", static=False, kind="value", change="float32[3], other elements",
        predicted="reuse", traces=1, compiles=1, verdict=Verdict.MISMATCH,
        note="predicted 0 traces"),
    CheckedRow("x", static=False, kind="shape", change=":heart: [bold]a[/bold] \\",
        predicted="retrace", traces=1, compiles=1, verdict=Verdict.VIOLATION, note="no [retrace]"),
    CheckedRow("y", static=False, kind="structure", change="no leaf", predicted="", traces=0,
        compiles=0, verdict=Verdict.SKIPPED),
)  # fmt: skip
REPORTS = [
    ClassReport("m.py:P", "P(width=2, x=[1], s=':heart:')", ROWS),
    ClassReport("m.py:Q", "", (), "Q.part: no values\n  fix: lw.Static[int] :heart:"),
]
RUN = CheckRun(tuple(REPORTS))


def printed(width: int) -> str:
    """Return the reports as a console of that width shows them."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, emoji=False)
    report.print_run(RUN, console, verbose=True)
    return stream.getvalue()


def test_wide_table() -> None:
    """One line a change: field, kind, changed, change, predicted, counts, verdict."""
    lines = [line.split() for line in printed(160).splitlines()]
    assert ["width", "static", "value", "2", "->", "3", "retrace", "7", "8", "ok"] in lines
    assert ["y", "dynamic", "structure", "no", "leaf", "skipped"] in lines, "no counts"
    text = printed(160)
    assert "mismatch: predicted 0 traces" in text
    assert "violation: no [retrace]" in text
    assert "not checked Q.part: no values" in text


def test_markup_in_values_is_text() -> None:
    """Brackets, backslashes and emoji codes in values are shown as they are."""
    text = printed(160)
    assert ":heart: [bold]a[/bold] \\" in text
    assert "P(width=2, x=[1], s=':heart:')" in text
    assert "lw.Static[int] :heart:" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_narrow_tables_keep_everything(width: int) -> None:
    """No width loses a name, a count or a verdict; lines are as long as asked."""
    text = printed(width)
    table = text[text.index("width=2") : text.index("m.py:Q")]
    assert all(len(line) <= width for line in table.splitlines()[1:])
    for word in ("7", "8", "ok"):
        assert re.search(rf"\b{word}\b", table)
    for column in ("traces", "compiles", "predicted", "verdict"):
        folded = "".join(rf"{letter}\s*" for letter in column[:2])
        assert re.search(folded, table, re.IGNORECASE)
    assert "…" not in table


LAWS = (
    LawResult("round-trip", Verdict.OK),
    LawResult("copies", Verdict.VIOLATION, "P.n", "P.n: [lost]\n  got: 2"),
    LawResult("treedef-equality", Verdict.ERROR, "", "RuntimeError: deep"),
    LawResult("replace", Verdict.ERROR, "", "RuntimeError: deep"),
)


def summarised(width: int) -> str:
    """Return the default report of the same classes, with laws."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, emoji=False)
    first = dataclasses.replace(REPORTS[0], laws=LAWS, fields=("width", "x", "y"))
    left = ClassReport("m.py:R", "", (), left_out="R.text: JAX cannot trace it")
    report.print_run(CheckRun((first, REPORTS[1], left)), console)
    return stream.getvalue()


def test_summary_has_one_line_a_class() -> None:
    """Name, fields, changes, laws kept, result; below it what is wrong, and nothing else."""
    text = summarised(120)
    lines = [line.split() for line in text.splitlines()]
    wrong = "2 changes wrong, 3 laws broken"
    assert ["m.py:P", "3", "3", "1/4", *wrong.split()] in lines
    assert ["m.py:Q", "-", "-", "-", "not", "checked"] in lines
    assert ["m.py:R", "-", "-", "-", "left", "out"] in lines
    assert "mismatch: predicted 0 traces" in text
    assert not any(line[-1:] == ["ok"] for line in lines), "no row that is ok"
    assert "broken: law copies\n  P.n: [lost]\n    got: 2\n" in text
    assert "error: laws treedef-equality, replace\n  RuntimeError: deep\n" in text
    assert "not checked Q.part: no values" in text
    assert "2 changes wrong, 3 laws broken, 1 class not checked, 1 class left out" in text


@pytest.mark.parametrize("verdict", list(Verdict))
def test_which_verdicts_pass(verdict: Verdict) -> None:
    """What is wrong fails the class; what is skipped, accepted or a warning does not."""
    row = CheckedRow("x", static=False, kind="value", change="", predicted="", traces=0, compiles=0,
              verdict=verdict)  # fmt: skip
    expected = verdict in (Verdict.OK, Verdict.SKIPPED, Verdict.WARNING)
    assert ClassReport("m:P", "P()", (row,)).passed is expected


def test_of_many_classes_what_is_not_right() -> None:
    """Of more than 20 classes, those that are right are counted alone."""
    good = [ClassReport(f"m.py:P{n}", "P()", ROWS[:1], fields=("width",)) for n in range(21)]
    for reports, rows in ((good[2:], 19), (good, 0)):
        stream = io.StringIO()
        console = Console(file=stream, width=120)
        report.print_run(CheckRun((*reports, REPORTS[1])), console)
        text = stream.getvalue()
        assert len(re.findall(r"^m.py:P\d+ ", text, re.MULTILINE)) == rows, text
        assert "m.py:Q" in text
        assert f"{len(reports) + 1} classes" in text


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
