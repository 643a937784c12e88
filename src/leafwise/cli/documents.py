"""The reports of `leafwise check` for programs: JSON, JUnit XML, SARIF."""

import dataclasses
import json
import os
import platform
import re
import socket
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

import jax

import leafwise
from leafwise.cli.records import Caution, CheckedRow, ClassReport, Verdict
from leafwise.cli.run import CheckRun
from leafwise.testing._laws.law import Law


def as_json(run: CheckRun) -> str:
    """Return the report as JSON text; docs/reference/command-line.md has the layout."""
    document = {
        "version": 2,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "passed": run.passed,
        "interrupted": run.interrupted,
        "classes": [_class_as_json(report) for report in run.reports],
    }
    return json.dumps(document, indent=2)


def _class_as_json(report: ClassReport) -> dict[str, Any]:
    made = dataclasses.asdict(report)
    for each in (*made["rows"], *made["laws"]):
        del each["seconds"]  # two runs give the same document
    for law in made["laws"]:
        del law["owner"]
    return {**made, "passed": report.passed}


# ------------------------------------------------------------------------ JUnit

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write."""


def as_junit(run: CheckRun, seconds: float) -> str:
    """Return the report as JUnit XML: a test case for each change and each law of each class.

    Args:
        run: What was found.
        seconds: How long all of it took.
    """
    suite = ET.Element("testsuite", name="leafwise check")
    for report in run.reports:
        _add_cases(suite, report)
    cases = list(suite)
    numbers = {
        "errors": sum(1 for case in cases if case.find("error") is not None),
        "failures": sum(1 for case in cases if case.find("failure") is not None),
        "skipped": sum(1 for case in cases if case.find("skipped") is not None),
        "tests": len(cases),
    }
    for name, number in numbers.items():
        suite.set(name, str(number))
    suite.set("time", f"{seconds:.3f}")
    suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    suite.set("hostname", _xml(socket.gethostname()))
    root = ET.Element("testsuites", name="leafwise check")
    root.append(suite)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _add_cases(suite: ET.Element, report: ClassReport) -> None:
    if report.error or report.left_out:
        tag = "error" if report.error else "skipped"
        _add_case(suite, (report.name, "build"), 0.0, tag, report.error or report.left_out)
    for row in report.rows:
        name = f"field {row.field}" if row.field else "fields"
        name += f": {row.kind}" if row.kind else ""
        counted = f"predicted {row.predicted}, traces {row.traces}, compiles {row.compiles}"
        seen = counted if row.predicted else ""
        text = "\n".join(part for part in (row.note, row.change, seen) if part)
        _add_case(suite, (report.name, name), row.seconds, _TAGS[row.verdict], text)
    for result in report.laws:
        name = f"law {result.law}"
        case = _add_case(
            suite, (report.name, name), result.seconds, _TAGS[result.verdict], result.message
        )
        told = [in_words(each) for each in report.warnings if each.law == result.law]
        if told:
            ET.SubElement(case, "system-out").text = _xml("\n\n".join(told))


_TAGS: Final = {
    Verdict.OK: "",
    Verdict.WARNING: "",
    Verdict.MISMATCH: "failure",
    Verdict.VIOLATION: "failure",
    Verdict.ERROR: "error",
    Verdict.SKIPPED: "skipped",
}


def _add_case(
    suite: ET.Element, names: tuple[str, str], seconds: float, tag: str, text: str
) -> ET.Element:
    owner, name = map(_xml, names)
    case = ET.SubElement(suite, "testcase", classname=owner, name=name, time=f"{seconds:.3f}")
    if tag:
        first = text.splitlines()[0] if text else ""
        ET.SubElement(case, tag, message=_xml(first)).text = _xml(text)
    return case


def _xml(text: str) -> str:
    """Return a text without characters that XML cannot hold; pytest writes them so, too."""
    return _ILLEGAL.sub(lambda found: f"#x{ord(found[0]):02X}", text)


def in_words(warning: Caution) -> str:
    """Return a warning as plain text."""
    calls = [*warning.calls, *([warning.truth] if warning.truth else [])]
    lines = [warning.message, *warning.program.splitlines()]
    lines += [f"{call.text} -> {call.result}" for call in calls]
    return "\n".join([*lines, *(["fix:", warning.fix] if warning.fix else [])])


# ------------------------------------------------------------------------ SARIF

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_OTHER_RULES: Final = (
    ("field-change", "a change of one field traces and compiles as its kind promises"),
    ("not-checked", "an instance of the class can be made, and jitted functions take it"),
)
_RULES: Final = (*((str(law), law.statement) for law in Law), *_OTHER_RULES)


def as_sarif(run: CheckRun) -> str:
    """Return the report as SARIF 2.1.0: a rule for each law, a result for all that is wrong."""
    rules = [
        {
            "id": name,
            "shortDescription": {"text": text},
            "defaultConfiguration": {"level": "error"},
        }
        for name, text in _RULES
    ]
    driver = {"name": "leafwise check", "version": leafwise.__version__, "rules": rules}
    results = [result for report in run.reports for result in _results(report)]
    only = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not run.interrupted}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [only]}
    return json.dumps(document, indent=2)


def _results(report: ClassReport) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if report.error:
        found.append(_result(report, "not-checked", "error", report.error))
    for row in report.rows:
        if row.verdict.is_bad:
            text = _row_in_words(report, row)
            found.append(_result(report, "field-change", "error", text))
    shown = {warning.law for warning in report.warnings}
    for result in report.laws:
        if result.verdict.is_bad and result.law not in shown:
            text = result.message or f"{report.name}: {result.law}"
            found.append(_result(report, result.law, "error", text))
    strict = {result.law for result in report.laws if result.verdict.is_bad}
    for warning in report.warnings:
        level = "error" if warning.law in strict else "warning"
        found.append(_result(report, warning.law, level, f"{warning.path}: {in_words(warning)}"))
    return found


def _row_in_words(report: ClassReport, row: CheckedRow) -> str:
    what = ": ".join(part for part in (f"{report.name}.{row.field}", row.kind, row.change) if part)
    return f"{what}\n{row.verdict}: {row.note}"


def _result(report: ClassReport, rule: str, level: str, text: str) -> dict[str, Any]:
    names = [name for name, _ in _RULES]
    location: dict[str, Any] = {
        "logicalLocations": [{"fullyQualifiedName": report.name, "kind": "type"}]
    }
    if report.file:
        path = Path(report.file)
        uri = path.as_uri() if path.is_absolute() else quote(report.file.replace(os.sep, "/"))
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri},
            "region": {"startLine": max(report.line, 1)},
        }
    return {
        "ruleId": rule,
        "ruleIndex": names.index(rule),
        "level": level,
        "message": {"text": text},
        "locations": [location],
    }
