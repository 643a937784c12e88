"""JUnit XML and SARIF: what CI systems read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import leafwise as lw
from leafwise.cli import documents
from leafwise.cli.records import Call, Caution, CheckedRow, ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckRun
from leafwise.testing import Law

from .conftest import Outcome

Write = Callable[..., str]
Check = Callable[..., Outcome]

WORST = "\x00\x1b[31m<a href=\"x\">&amp;]]> \ud800 \ufffe 'é'\n\t\U0001f600"


def row(kind: str, verdict: Verdict, note: str = "") -> CheckedRow:
    """Return a row."""
    return CheckedRow("n", static=True, kind=kind, change=f"2 -> {WORST}", predicted="reuse",
               traces=0, compiles=0, verdict=verdict, note=note, seconds=0.25)  # fmt: skip


CAUTION = Caution(
    "static-types", f"P.{WORST}", "one for the other", "f = jax.jit(g)",
    (Call("f(1)", "1"), Call("f(True)", WORST)), Call("f(True), compiled afresh", "True"),
    "@lw.pytree",
)  # fmt: skip
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
            LawResult("round-trip", Verdict.OK, seconds=1.5),
            LawResult("copies", Verdict.VIOLATION, "P.n", f"P.n: lost\n  got: {WORST}"),
            LawResult("treedef-equality", Verdict.ERROR, "", "RuntimeError: deep"),
            LawResult("static-types", Verdict.WARNING, "P.n", "P.n: shared"),
        ),
        warnings=(CAUTION,),
        library="JAX",
        fields=("n",),
        file="models/m n.py",
        line=12,
    ),
    ClassReport("m.py:Q", "", (), "Q.part: no values\n  fix: give one"),
    ClassReport("m.py:R", "R(text='a')", (), left_out="R.text: JAX cannot trace it"),
)
RUN = CheckRun(REPORTS, 3)


def junit(run: CheckRun = RUN) -> ET.Element:
    """Return the document, parsed."""
    return ET.fromstring(documents.as_junit(run, 2.5))  # noqa: S314  # our own


def test_junit_counts() -> None:
    """One case a change and law; failures, errors and skipped ones are counted."""
    root = junit()
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": str(len(cases)),
        "failures": "2",
        "errors": "3",
        "skipped": "2",
    }
    assert len(cases) == 5 + 4 + 1 + 1
    assert suite.get("time") == "2.500"
    assert suite.get("timestamp")
    outcomes = {
        (case.get("classname"), case.get("name")): [child.tag for child in case] for case in cases
    }
    assert outcomes == {
        ("m.py:P", "field n: value"): [],
        ("m.py:P", "field n: type"): [],
        ("m.py:P", "field n: shape"): ["failure"],
        ("m.py:P", "field n: dtype"): ["skipped"],
        ("m.py:P", "field n"): ["error"],
        ("m.py:P", "law round-trip"): [],
        ("m.py:P", "law copies"): ["failure"],
        ("m.py:P", "law treedef-equality"): ["error"],
        ("m.py:P", "law static-types"): ["system-out"],
        ("m.py:Q", "build"): ["error"],
        ("m.py:R", "build"): ["skipped"],
    }


def test_junit_texts() -> None:
    """A failure has the whole counterexample, and its first line as message."""
    (suite,) = junit()
    cases = {case.get("name"): case for case in suite}
    failure = cases["law copies"][0]
    assert failure.get("message") == "P.n: lost"
    assert (failure.text or "").startswith("P.n: lost\n  got: ")
    assert cases["law round-trip"].get("time") == "1.500"
    shown = cases["law static-types"][0].text or ""
    for words in ("f(1) -> 1", "f(True) -> ", "compiled afresh -> True", "@lw.pytree"):
        assert words in shown


def test_junit_holds_any_character() -> None:
    """What XML cannot hold is written in another way, as pytest does; the rest stays."""
    text = documents.as_junit(RUN, 1.0)
    text.encode()
    (suite,) = junit()
    failure = next(case for case in suite if case.get("name") == "law copies")[0]
    assert "#x00#x1B[31m<a href=\"x\">&amp;]]> #xD800 #xFFFE 'é'" in (failure.text or "")
    assert "\U0001f600" in (failure.text or "")


def test_junit_looks_like_pytests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements and attributes are those that pytest writes."""
    pytester.makepyfile(
        "import pytest\n"
        "def test_a(): assert False\n"
        "def test_b(): pytest.skip()\n"
        "@pytest.fixture\ndef f(): 1 / 0\n"
        "def test_c(f): print('out')\n"
    )
    pytester.runpytest_inprocess(
        "--junitxml=theirs.xml", "-p", "no:xdist", "-p", "no:randomly", "-q"
    )
    theirs = ET.parse(pytester.path / "theirs.xml").getroot()  # noqa: S314  # pytest's own
    known: dict[str, set[str]] = {}
    for element in theirs.iter():
        known.setdefault(element.tag, set()).update(element.attrib)
    known["system-out"] = set()
    known["skipped"].add("message")
    for element in junit().iter():
        assert set(element.attrib) <= known[element.tag], element.tag


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


SOURCE = """
@lw.pytree
class P:
    x: jax.Array
    n: lw.Static[int] = 2
"""


def test_files_of_the_command(write: Write, check: Check, tmp_path: Path) -> None:
    """Both files are written beside what is printed, wherever the module goes."""
    file = write(f"import os, pathlib\npathlib.Path('away').mkdir()\nos.chdir('away')\n{SOURCE}")
    outcome = check(file, "--junit", "out.xml", "--sarif", "out.sarif", "--json")
    assert outcome.code == 0
    assert outcome.names == ["P"]
    root = ET.parse(tmp_path / "out.xml").getroot()  # noqa: S314  # our own
    assert root[0].get("tests") == "6"
    document = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))
    assert document["runs"][0]["results"] == []


@pytest.mark.parametrize("option", ["--junit", "--sarif"])
def test_files_that_cannot_be_written(
    option: str, write: Write, check: Check, tmp_path: Path
) -> None:
    """That is said before anything is run."""
    (tmp_path / "folder").mkdir()
    file = write("raise ValueError('was run')\n")
    for name in ("missing/out.xml", "folder"):
        outcome = check(file, option, name)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == f"leafwise check: cannot write {name}\n"
