"""Findings of `leafwise check` that were accepted, and the file that has them."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leafwise.cli.records import CheckedRow, ClassReport, LawResult, UsageError, Verdict

_VERSION: Final = 1


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """What is wrong with a class, by what stays the same while its code moves."""

    cls: str
    rule: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.cls}: {self.rule}{f' at {self.path}' if self.path else ''}"


class Baseline:
    """Accepts findings, and notes which there were."""

    def __init__(self, accepted: frozenset[Finding] | None = None) -> None:
        self._accepted = accepted
        self._found: set[Finding] = set()

    @classmethod
    def read(cls, file: Path) -> "Baseline":
        """Read a file that `text` has written."""
        try:
            entries: list[Any] = json.loads(file.read_text(encoding="utf-8"))["accepted"]
            found = (Finding(each["class"], each["rule"], each["path"]) for each in entries)
            return cls(frozenset(found))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UsageError(
                f"--baseline {file}: it is not a baseline: {type(error).__name__}: {error}\n"
                f"  fix: leafwise check --write-baseline {file} ..."
            ) from error

    def text(self) -> str:
        """Return the findings of this run as a file."""
        found = sorted(self._found)
        entries = [{"class": each.cls, "rule": each.rule, "path": each.path} for each in found]
        return json.dumps({"version": _VERSION, "accepted": entries}, indent=1) + "\n"

    def apply(self, report: ClassReport) -> ClassReport:
        """Mark the findings of a class that are accepted."""
        unchecked = Finding(report.identity, "not-checked")
        return dataclasses.replace(
            report,
            accepted=bool(report.error) and self._accepts(unchecked),
            rows=tuple(self._mark(report, row) for row in report.rows),
            laws=tuple(self._mark(report, law) for law in report.laws),
        )

    def _mark(self, report: ClassReport, result: Any) -> Any:
        if result.verdict.is_reported and self._accepts(_finding(report, result)):
            return dataclasses.replace(result, verdict=Verdict.ACCEPTED)
        return result

    def _accepts(self, finding: Finding) -> bool:
        self._found.add(finding)
        return self._accepted is None or finding in self._accepted

    def gone(self, reports: tuple[ClassReport, ...]) -> Iterator[str]:
        """Yield what was accepted and does not occur any more, as far as these reports show it."""
        known = {report.identity: report for report in reports}
        for finding in sorted((self._accepted or frozenset()) - self._found):
            report = known.get(finding.cls)
            if report is None:
                is_gone = _is_missing(*finding.cls.partition(":")[::2])
            elif finding.rule == "field-change":
                untried = {*report.fields} - {row.field for row in report.rows}
                is_gone = bool(report.rows) and finding.path.partition(":")[0] not in untried
            else:
                tried = {"", *(result.law for result in report.laws)}
                is_gone = (finding.path if finding.rule == "not-checked" else finding.rule) in tried
            if is_gone:
                yield f"{finding} was accepted, and is not there any more"


def _is_missing(module: str, name: str) -> bool:
    """Return whether a module has been imported, and has no class of that name."""
    value: Any = sys.modules.get(module)
    for part in name.split(".") if value is not None and name else ():
        value = getattr(value, part, None)
    return module in sys.modules and value is None


def _finding(report: ClassReport, result: CheckedRow | LawResult) -> Finding:
    is_checked = result.verdict is not Verdict.NOT_CHECKED
    if isinstance(result, CheckedRow):
        rule, where = "field-change", f"{result.field}: {result.kind}"
    else:
        rule, where = result.law, result.path if is_checked else result.law
    return Finding(report.identity, rule if is_checked else "not-checked", where)
