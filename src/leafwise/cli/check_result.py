"""The results of a check, as values that text, JSON and annotations are made from."""

import dataclasses
import enum
import json
import platform
import traceback
from pathlib import Path

import jax

from leafwise.testing._format import users_frames


class CheckVerdict(enum.StrEnum):
    OK = "ok"  # as predicted and as promised
    MISMATCH = "mismatch"  # JAX did something other than predicted
    VIOLATION = "violation"  # as predicted, but not as promised; for a law: broken
    WARNING = "warning"  # a violation that the class's library is known for
    ERROR = "error"  # the class raised
    NOT_CHECKED = "not checked"  # leafwise raised, or ran out of time
    SKIPPED = "skipped"  # there is no such change

    @property
    def is_bad(self) -> bool:
        return self in (CheckVerdict.MISMATCH, CheckVerdict.VIOLATION, CheckVerdict.ERROR)

    @property
    def is_reported(self) -> bool:
        """Whether it is always shown: a failure, or something that could not be checked."""
        return self.is_bad or self is CheckVerdict.NOT_CHECKED


def verdict_of(error: BaseException) -> CheckVerdict:
    """Return ``error`` if the class raised, or JAX did for it; ``not checked`` if we did."""
    if users_frames(error):
        return CheckVerdict.ERROR
    last = traceback.extract_tb(error.__traceback__)[-1:]
    # JAX removes its own frames and adds a note that says so.
    notes = "".join(getattr(error, "__notes__", ()))
    home = str(Path(jax.__file__).parent)
    by_jax = any(frame.filename.startswith(home) for frame in last)
    by_jax |= "JAX has removed its internal frames" in notes
    too_deep = isinstance(error, RecursionError | MemoryError)  # whichever frame raised it
    return CheckVerdict.ERROR if by_jax and not too_deep else CheckVerdict.NOT_CHECKED


@dataclasses.dataclass(frozen=True)
class FieldChange:
    field: str
    static: bool
    kind: str
    change: str
    predicted: str = ""
    traces: int = 0
    compiles: int = 0
    verdict: CheckVerdict = CheckVerdict.SKIPPED
    note: str = ""


@dataclasses.dataclass(frozen=True)
class LawResult:
    law: str
    verdict: CheckVerdict
    path: str = ""
    message: str = ""
    library: str = ""  # that does not promise the law, or the class of the part that breaks it
    is_repeated: bool = False  # an earlier class had the same warning for the library


@dataclasses.dataclass(frozen=True)
class ClassResult:
    """The outcome of one class, or of a module that could not be imported."""

    name: str
    instance: str = ""
    rows: tuple[FieldChange, ...] = ()
    error: str = ""
    laws: tuple[LawResult, ...] = ()
    library: str = ""
    flattened_by: str = ""  # the base that it inherits `tree_flatten` from
    fields: tuple[str, ...] = ()
    left_out: str = ""  # why it was skipped without a fault
    file: str = ""
    line: int = 0
    is_module: bool = False

    @property
    def passed(self) -> bool:
        """Whether everything was checked, and nothing is wrong with the class."""
        return not self.failed and not self.unchecked

    @property
    def failed(self) -> bool:
        return any(verdict.is_bad for verdict in self._verdicts)

    @property
    def unchecked(self) -> bool:
        return bool(self.error) or CheckVerdict.NOT_CHECKED in self._verdicts

    @property
    def _verdicts(self) -> list[CheckVerdict]:
        return [row.verdict for row in self.rows] + [law.verdict for law in self.laws]

    @property
    def tried(self) -> tuple[FieldChange, ...]:
        """The changes that were made: all rows except skipped ones."""
        return tuple(row for row in self.rows if row.verdict is not CheckVerdict.SKIPPED)

    @property
    def warnings(self) -> tuple[LawResult, ...]:
        """The warnings about its library, except those that an earlier class had."""
        warned = [law for law in self.laws if law.verdict is CheckVerdict.WARNING]
        return tuple(law for law in warned if not law.is_repeated)


@dataclasses.dataclass(frozen=True)
class CheckRun:
    classes: tuple[ClassResult, ...]
    notes: tuple[str, ...] = ()
    interrupted: int = 0  # the signal before which some classes were not reached
    allow_unchecked: bool = False

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 128 + self.interrupted  # as in a shell
        if any(result.failed for result in self.classes):
            return 1
        unchecked = any(result.unchecked for result in self.classes)
        return 3 if unchecked and not self.allow_unchecked else 0


def as_json(run: CheckRun) -> str:
    """Return a run as JSON: its dataclass fields by name, recursively."""
    head = {
        "version": 4,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "exit_code": run.exit_code,
    }
    classes = [dataclasses.asdict(result) | {"passed": result.passed} for result in run.classes]
    facts = {"classes": classes, "interrupted": bool(run.interrupted)}
    return json.dumps(head | dataclasses.asdict(run) | facts, indent=2)
