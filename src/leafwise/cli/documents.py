"""The reports of `leafwise check` for programs: JSON and SARIF."""

import ast
import contextlib
import dataclasses
import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import jax

import leafwise
from leafwise._display.words import annotation
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
    content["laws"] = [_only(law, "law", "verdict", "path", "message") for law in report.laws]
    content["warnings"] = [
        _only(law, "law", "path", "message", "library") for law in report.warnings
    ]
    return {**content, "passed": report.passed}


def _only(law: LawResult, *names: str) -> dict[str, Any]:
    return {name: getattr(law, name) for name in names}


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
        "results": [_result(each) for each in _findings(run)],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [only]}
    return json.dumps(document, indent=2)


def as_github(run: CheckRun) -> str:
    """Return the report as annotations of GitHub Actions: one for each result of SARIF."""
    lines = [
        annotation(each.level.replace("note", "notice"), each.text, each.rule, *each.place)
        for each in _findings(run)
        if not each.is_accepted
    ]
    return "\n".join(lines)


class _Finding(NamedTuple):
    """What is shown beside the code."""

    report: ClassReport
    rule: str
    level: str
    text: str
    path: str = ""
    is_accepted: bool = False

    @property
    def place(self) -> tuple[str, int]:
        """The file, and the line of the field, or else of the class."""
        return self.report.file, _field_line(self.report, self.path) if self.report.file else 0


def _findings(run: CheckRun) -> Iterator[_Finding]:
    unchecked = "note" if run.allow_unchecked else "error"
    for report in run.reports:
        found: list[tuple[Verdict, str, str, str]] = []
        if report.error:
            verdict = Verdict.ACCEPTED if report.accepted else Verdict.NOT_CHECKED
            found.append((verdict, "not-checked", report.error, ""))
        for row in report.rows:
            parts = (f"{report.name}.{row.field}", row.kind, row.change)
            text = f"{': '.join(filter(None, parts))}\n{row.verdict}: {row.note}"
            found.append((row.verdict, "field-change", text, f".{row.field}"))
        for law in report.laws:
            text = law.message or f"{report.name}: {law.law}"
            found.append((law.verdict, law.law, text, law.path))
        for verdict, rule, text, path in found:
            if verdict is Verdict.NOT_CHECKED:
                yield _Finding(report, "not-checked", unchecked, text, path)
            elif verdict.is_bad or verdict is Verdict.ACCEPTED:
                yield _Finding(report, rule, "error", text, path, verdict is Verdict.ACCEPTED)
        for law in report.warnings:
            yield _Finding(report, law.law, "warning", law.message, law.path)


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


def _result(finding: _Finding) -> dict[str, Any]:
    """Return a finding as a result of SARIF."""
    name, (file, line) = finding.report.name, finding.place
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name, "kind": "type"}]}
    if file:
        path = Path(file)
        uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri},
            "region": {"startLine": line},
        }
    suppressed = {"suppressions": [{"kind": "external"}]} if finding.is_accepted else {}
    return {
        "ruleId": finding.rule,
        "ruleIndex": list(_RULES).index(finding.rule),
        "level": finding.level,
        "message": {"text": finding.text},
        "locations": [location],
        **suppressed,
    }
