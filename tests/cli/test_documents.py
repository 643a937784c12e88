"""SARIF: what CI systems read."""

import json
from pathlib import Path
from typing import Any

import leafwise as lw
from leafwise.cli import documents
from leafwise.cli.records import CheckedRow, ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckRun
from leafwise.testing import Law

from .conftest import Check, Write

WORST = "\x00\x1b[31m<a href=\"x\">&amp;]]> \ud800 \ufffe 'é'\n\t\U0001f600"


def row(kind: str, verdict: Verdict, note: str = "") -> CheckedRow:
    """Return a row."""
    return CheckedRow("n", static=True, kind=kind, change=f"2 -> {WORST}", predicted="reuse",
               traces=0, compiles=0, verdict=verdict, note=note)  # fmt: skip


WARNING = LawResult("static-types", Verdict.WARNING, f"P.{WORST}", f"P.n: {WORST}", "JAX")
REPORTS = (
    ClassReport(
        "m.py:P",
        f"P({WORST})",
        (
            row("value", Verdict.OK),
            row("type", Verdict.WARNING, "reused"),
            row("shape", Verdict.MISMATCH, WORST),
            row("dtype", Verdict.SKIPPED),
            row("", Verdict.ERROR, "ValueError: no"),
        ),
        laws=(
            LawResult("round-trip", Verdict.OK),
            LawResult("copies", Verdict.VIOLATION, "P.n", f"P.n: lost\n  got: {WORST}"),
            LawResult("treedef-equality", Verdict.ERROR, "", "RuntimeError: deep"),
            WARNING,
        ),
        warnings=(WARNING,),
        library="JAX",
        fields=("n",),
        file="models/m n.py",
        line=12,
    ),
    ClassReport("m.py:Q", "", (), "Q.part: no values\n  fix: give one"),
    ClassReport("m.py:R", "R(text='a')", (), left_out="R.text: JAX cannot trace it"),
)
RUN = CheckRun(REPORTS)


def sarif() -> dict[str, Any]:
    """Return the only run of the SARIF document."""
    document = json.loads(documents.as_sarif(RUN))
    assert document["version"] == "2.1.0"
    (only,) = document["runs"]
    return dict(only)


def test_sarif_rules() -> None:
    """Every law is a rule with a description."""
    driver = sarif()["tool"]["driver"]
    assert driver["version"] == lw.__version__
    names = [rule["id"] for rule in driver["rules"]]
    assert names == [*map(str, Law), "field-change", "not-checked"]
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    assert all(rule["helpUri"] in rule["help"]["text"] for rule in driver["rules"])


def test_sarif_results() -> None:
    """What is wrong is an error, what a library is known for a warning, each at its class."""
    only = sarif()
    found = [(result["ruleId"], result["level"]) for result in only["results"]]
    assert found == [
        ("field-change", "error"),
        ("field-change", "error"),
        ("copies", "error"),
        ("treedef-equality", "error"),
        ("static-types", "warning"),
        ("not-checked", "error"),
    ]
    for result in only["results"]:
        assert only["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    first = only["results"][0]["locations"][0]
    assert first["physicalLocation"] == {
        "artifactLocation": {"uri": "models/m%20n.py"},
        "region": {"startLine": 12},
    }
    assert first["logicalLocations"] == [{"fullyQualifiedName": "m.py:P", "kind": "type"}]
    assert "physicalLocation" not in only["results"][-1]["locations"][0], "no file is known"


NATIVE = """
import dataclasses

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class P:
    x: jax.Array

    n: int = dataclasses.field(default=1, metadata={"static": True})
"""


def test_the_line_of_the_field(write: Write, check_all: Check, tmp_path: Path) -> None:
    """A result is at the line that declares the field, in SARIF and as an annotation."""
    file = write(NATIVE)
    options = ("--laws", "--law", "static-types", "--examples", "2", "--sarif", "out.sarif")
    outcome = check_all(file, *options, "--output-format=github")
    lines = (tmp_path / file).read_text(encoding="utf-8").splitlines()
    line = next(at for at, text in enumerate(lines, 1) if "n: int" in text)
    document = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))
    (result,) = document["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": line}
    (shown,) = outcome.out.splitlines()
    assert shown.startswith(f"::warning file={file},line={line},title=static-types::P.n: ")


SOURCE = """
@lw.pytree
class P:
    x: jax.Array
    n: lw.Static[int] = 2
"""


def test_a_file_of_the_command(write: Write, check: Check, tmp_path: Path) -> None:
    """The file is written where the command ran, wherever the module goes; JSON is printed."""
    file = write(f"import os, pathlib\npathlib.Path('away').mkdir()\nos.chdir('away')\n{SOURCE}")
    outcome = check(file, "--sarif", "out.sarif", "--json")
    assert outcome.code == 0
    assert outcome.names == ["P"]
    document = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))
    assert document["runs"][0]["results"] == []


def test_a_file_that_cannot_be_written(write: Write, check: Check, tmp_path: Path) -> None:
    """That is said before anything is run."""
    (tmp_path / "folder").mkdir()
    file = write("raise ValueError('was run')\n")
    for name in ("missing/out.sarif", "folder"):
        outcome = check(file, "--sarif", name)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == f"leafwise check: cannot write {name}\n"
