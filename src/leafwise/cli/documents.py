"""The reports of `leafwise check` for programs: JSON, and annotations of GitHub."""

import ast
import contextlib
import dataclasses
import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from leafwise._display.words import annotation
from leafwise.cli.records import ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckRun


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


def as_github(run: CheckRun) -> str:
    """Return the report as annotations of GitHub Actions: one for each finding."""
    lines = [
        annotation(each.level.replace("note", "notice"), each.text, each.rule, *each.place)
        for each in _findings(run)
    ]
    return "\n".join(lines)


class _Finding(NamedTuple):
    """What is shown beside the code."""

    report: ClassReport
    rule: str
    level: str
    text: str
    path: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """The file, and the line of the field, or else of the class."""
        return self.report.file, _field_line(self.report, self.path) if self.report.file else 0


def _findings(run: CheckRun) -> Iterator[_Finding]:
    unchecked = "note" if run.allow_unchecked else "error"
    for report in run.reports:
        found: list[tuple[Verdict, str, str, str]] = []
        if report.error:
            found.append((Verdict.NOT_CHECKED, "not-checked", report.error, ""))
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
            elif verdict.is_bad:
                yield _Finding(report, rule, "error", text, path)
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
