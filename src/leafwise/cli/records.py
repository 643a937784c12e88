"""What `leafwise check` finds, as values, and a baseline of findings that were accepted."""

import dataclasses
import enum
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jax

from leafwise.testing._format import users_frames


class Verdict(enum.StrEnum):
    """How a change or a law turned out.

    ``ok``: as predicted and as promised. ``mismatch``: JAX did something else than
    predicted. ``violation``: as predicted, but not as promised; of a law: broken.
    ``warning``: the same, where the class's library is known for it. ``error``: the
    class raised. ``not checked``: we raised, or there was not enough time. ``skipped``:
    there is no such change. ``accepted``: it is bad, or not checked, and in the baseline.
    """

    OK = "ok"
    MISMATCH = "mismatch"
    VIOLATION = "violation"
    WARNING = "warning"
    ERROR = "error"
    NOT_CHECKED = "not checked"
    ACCEPTED = "accepted"
    SKIPPED = "skipped"

    @property
    def is_bad(self) -> bool:
        """Whether a class with this verdict fails."""
        return self in (Verdict.MISMATCH, Verdict.VIOLATION, Verdict.ERROR)

    @property
    def is_reported(self) -> bool:
        """Whether each one is shown: what is bad, and what could not be checked."""
        return self.is_bad or self is Verdict.NOT_CHECKED


def verdict_of(error: BaseException) -> Verdict:
    """Return ``error`` if the class raised, or JAX for it, and ``not checked`` if we did."""
    if users_frames(error):
        return Verdict.ERROR
    last = traceback.extract_tb(error.__traceback__)[-1:]
    # JAX removes its own frames, and leaves a note that says so.
    removed = any(
        "JAX has removed its internal frames" in n for n in getattr(error, "__notes__", ())
    )
    by_jax = removed or any(frame.filename.startswith(_JAX) for frame in last)
    too_deep = isinstance(error, RecursionError | MemoryError)  # wherever it was noticed
    return Verdict.ERROR if by_jax and not too_deep else Verdict.NOT_CHECKED


_JAX: Final = str(Path(jax.__file__).parent)


@dataclasses.dataclass(frozen=True)
class CheckedRow:
    """One change of one field and its outcome, as reported."""

    field: str
    static: bool
    kind: str
    change: str
    predicted: str = ""
    traces: int = 0
    compiles: int = 0
    verdict: Verdict = Verdict.SKIPPED
    note: str = ""


@dataclasses.dataclass(frozen=True)
class LawResult:
    """How one law turned out."""

    law: str
    verdict: Verdict
    path: str = ""
    message: str = ""
    library: str = ""  # which does not promise the law, or the class of the part that breaks it
    error: BaseException | None = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class ClassReport:
    """The outcome for one class."""

    name: str
    instance: str
    rows: tuple[CheckedRow, ...]
    error: str = ""
    laws: tuple[LawResult, ...] = ()
    warnings: tuple[LawResult, ...] = ()  # as far as no earlier class has shown them
    library: str = ""
    flattened_by: str = ""  # the base whose `tree_flatten` it has, if that is not its own
    fields: tuple[str, ...] = ()
    left_out: str = ""  # why it was passed over, which is not a fault
    file: str = ""
    line: int = 0
    is_module: bool = False
    accepted: bool = False
    identity: str = ""  # ``module:Class``, however it was named on the command line

    @property
    def passed(self) -> bool:
        """Whether all was checked, and nothing is wrong with the class."""
        return not self.failed and not self.unchecked

    @property
    def failed(self) -> bool:
        """Whether something is wrong with the class."""
        return any(each.is_bad for each in self._verdicts)

    @property
    def unchecked(self) -> bool:
        """Whether the class, a change or a law could not be checked."""
        return bool(self.error and not self.accepted) or Verdict.NOT_CHECKED in self._verdicts

    @property
    def _verdicts(self) -> list[Verdict]:
        return [row.verdict for row in self.rows] + [result.verdict for result in self.laws]

    @property
    def tried(self) -> tuple[CheckedRow, ...]:
        """The changes that were made: all rows but the skipped ones."""
        return tuple(row for row in self.rows if row.verdict is not Verdict.SKIPPED)


class UsageError(Exception):
    """The command line asks for something that is not there."""


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
