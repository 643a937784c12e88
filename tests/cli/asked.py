"""Asking for the report of one class, without a file and without printing."""

from typing import Any

from tests.kit.inside import CheckOptions, CheckTarget, ClassResult, FieldChange, check_class

import leafwise as lw
from leafwise.testing import Law

FIELDS = CheckOptions(laws=())


def report_of(cls: type, options: CheckOptions = FIELDS, **known: Any) -> ClassResult:
    """Change the fields of one class."""
    return check_class(CheckTarget(cls, f"here:{cls.__qualname__}"), options, **known)


def laws_of(
    cls: type, *laws: Law, examples: int = 5, warnings_as_errors: bool = False, **known: Any
) -> ClassResult:
    """Try laws on one class."""
    options = CheckOptions(
        laws=laws, fields=False, examples=examples, warnings_as_errors=warnings_as_errors
    )
    return report_of(cls, options, **known)


def with_field(annotation: Any, module: str, *default: Any) -> ClassResult:
    """Check a class with one field of that annotation, and maybe a default."""
    body: dict[str, Any] = {"__annotations__": {"it": annotation}, "__module__": module}
    if default:
        (body["it"],) = default
    return report_of(lw.pytree(type("Asked", (), body)))


def kinds(report: ClassResult, field: str = "it") -> dict[str, FieldChange]:
    """Return the rows of one field by kind; a kind comes once."""
    rows = [row for row in report.rows if row.field == field]
    found = {row.kind: row for row in rows}
    assert len(found) == len(rows)
    return found


def verdicts(report: ClassResult) -> dict[tuple[str, str], str]:
    """Return the verdicts by field and kind."""
    return {(row.field, row.kind): str(row.verdict) for row in report.rows}
