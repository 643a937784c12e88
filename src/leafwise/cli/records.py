"""What `leafwise check` finds, as values."""

import dataclasses
import enum
import traceback
from pathlib import Path
from typing import Final

import jax

from leafwise.testing._format import users_frames


class Verdict(enum.StrEnum):
    """How a change or a law turned out.

    ``ok``: as predicted and as promised. ``mismatch``: JAX did something else than
    predicted. ``violation``: as predicted, but not as promised; of a law: broken.
    ``warning``: the same, where the class's library is known for it. ``error``: the
    class raised. ``not checked``: we raised, or there was not enough time. ``skipped``:
    there is no such change.
    """

    OK = "ok"
    MISMATCH = "mismatch"
    VIOLATION = "violation"
    WARNING = "warning"
    ERROR = "error"
    NOT_CHECKED = "not checked"
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
        return bool(self.error) or Verdict.NOT_CHECKED in self._verdicts

    @property
    def _verdicts(self) -> list[Verdict]:
        return [row.verdict for row in self.rows] + [result.verdict for result in self.laws]

    @property
    def tried(self) -> tuple[CheckedRow, ...]:
        """The changes that were made: all rows but the skipped ones."""
        return tuple(row for row in self.rows if row.verdict is not Verdict.SKIPPED)


class UsageError(Exception):
    """The command line asks for something that is not there."""
