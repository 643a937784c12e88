"""The reports of `leafwise check` for programs: JSON and SARIF."""

import ast
import contextlib
import dataclasses
import json
import os
import platform
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import jax

import leafwise
from leafwise._display.annotations import annotation
from leafwise.cli.records import ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckRun
from leafwise.testing._laws.law import Law


def as_json(run: CheckRun) -> str:
    """Return the report as JSON text; docs/reference/command-line.md has the layout."""
    classes = [_class_as_json(report) for report in run.reports]
    document = {
        "version": 3,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "passed": run.passed,
        "interrupted": run.interrupted,
        "exit_code": run.exit_code,
        "notes": run.notes,
        "classes": classes,
    }
    return json.dumps(document, indent=2)


def _class_as_json(report: ClassReport) -> dict[str, Any]:
    content = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    content["rows"] = [dataclasses.asdict(row) for row in report.rows]
    content["laws"] = [_law_as_json(law) for law in report.laws]
    content["warnings"] = [
        {"law": each.law, "path": each.path, "message": each.message, "library": each.library}
        for each in report.warnings
    ]
    return {**content, "passed": report.passed}


def _law_as_json(law: LawResult) -> dict[str, Any]:
    named = ("law", "verdict", "path", "message")
    return {name: getattr(law, name) for name in named}


_HELP: Final = "https://leafwise.readthedocs.io/en/stable/how-to/check/"
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES: Final = {
    **{str(law): law.statement for law in Law},
    "field-change": "a change of one field traces and compiles as its kind promises",
    "not-checked": "the class, a change of a field or a law could be checked",
}


def as_sarif(run: CheckRun) -> str:
    """Return the report as SARIF 2.1.0: a rule for each law, a result for all that is wrong."""
    rules = [
        {
            "id": name,
            "shortDescription": {"text": text},
            "help": {"text": f"{text}. What the words mean, and what to do: {_HELP}"},
            "helpUri": _HELP,
            "defaultConfiguration": {"level": "error"},
        }
        for name, text in _RULES.items()
    ]
    driver = {"name": "leafwise check", "version": leafwise.__version__, "rules": rules}
    unchecked = "note" if run.allow_unchecked else "error"
    results = [result for report in run.reports for result in _results(report, unchecked)]
    only = {
        "tool": {"driver": driver},
        "invocations": [
            {
                "executionSuccessful": not run.interrupted,
                "exitCode": run.exit_code,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": note}} for note in run.notes
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [only]}
    return json.dumps(document, indent=2)


def as_github(run: CheckRun) -> str:
    """Return the report as annotations of GitHub Actions: one for each result of SARIF."""
    unchecked = "note" if run.allow_unchecked else "error"
    lines: list[str] = []
    for result in (each for report in run.reports for each in _results(report, unchecked)):
        if "suppressions" in result:
            continue
        level = result["level"].replace("note", "notice")
        place = result["locations"][0].get("physicalLocation")
        where = (_file_of(place), place["region"]["startLine"]) if place else ("", 0)
        lines.append(annotation(level, result["message"]["text"], result["ruleId"], *where))
    return "\n".join(lines)


def _file_of(place: dict[str, Any]) -> str:
    return unquote(place["artifactLocation"]["uri"]).removeprefix("file://")


def _field_line(report: ClassReport, path: str) -> int:
    """Return the line that declares a field of the class; that of the class if it does not."""
    name = re.sub(r"^[^.]*\.(\w+).*", r"\1", path)
    with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
        for node in ast.walk(ast.parse(Path(report.file).read_text(encoding="utf-8"))):
            first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=0)
            if isinstance(node, ast.ClassDef) and report.line in (first, node.lineno):
                for each in node.body:
                    target = each.target if isinstance(each, ast.AnnAssign) else None
                    if isinstance(target, ast.Name) and target.id == name:
                        return each.lineno
    return max(report.line, 1)


def _results(report: ClassReport, unchecked: str) -> list[dict[str, Any]]:
    """Return the results of a class; the level of what was not checked is `unchecked`."""
    found: list[dict[str, Any]] = []

    def add(verdict: Verdict, rule: str, text: str, path: str = "") -> None:
        missing = verdict is Verdict.NOT_CHECKED
        rule, level = ("not-checked", unchecked) if missing else (rule, "error")
        result = _result(report, rule, level, text, path)
        if verdict is Verdict.ACCEPTED:
            result["suppressions"] = [{"kind": "external"}]
        found.append(result)

    if report.error:
        verdict = Verdict.ACCEPTED if report.accepted else Verdict.NOT_CHECKED
        add(verdict, "not-checked", report.error)
    for row in report.rows:
        if row.verdict.is_reported or row.verdict is Verdict.ACCEPTED:
            parts = (f"{report.name}.{row.field}", row.kind, row.change)
            text = f"{': '.join(filter(None, parts))}\n{row.verdict}: {row.note}"
            add(row.verdict, "field-change", text, f".{row.field}")
    for law in report.laws:
        if law.verdict.is_reported or law.verdict is Verdict.ACCEPTED:
            add(law.verdict, law.law, law.message or f"{report.name}: {law.law}", law.path)
    warnings = report.warnings
    return found + [_result(report, w.law, "warning", w.message, w.path) for w in warnings]


def _result(report: ClassReport, rule: str, level: str, text: str, path: str) -> dict[str, Any]:
    location: dict[str, Any] = {
        "logicalLocations": [{"fullyQualifiedName": report.name, "kind": "type"}]
    }
    if report.file:
        file = Path(report.file)
        uri = file.as_uri() if file.is_absolute() else quote(report.file.replace(os.sep, "/"))
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri},
            "region": {"startLine": _field_line(report, path)},
        }
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": level,
        "message": {"text": text},
        "locations": [location],
    }
