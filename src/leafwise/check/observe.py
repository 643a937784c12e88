"""What leafwise predicts of a change, and what JAX is seen to do."""

import dataclasses
import enum
from typing import Any

import jax

from leafwise._events import count_events
from leafwise._text import got
from leafwise.check.build import Builder
from leafwise.check.edits import Edit, edits, while_changing
from leafwise.check.parameters import CannotBuildError
from leafwise.check.targets import Target
from leafwise.check.words import plain, short, tell


class Verdict(enum.StrEnum):
    """How a change turned out.

    ``ok``: as predicted, and as the kind of field promises. ``mismatch``: JAX did
    something else. ``violation``: as predicted, but not as promised. ``skipped``: there
    is no such change.
    """

    OK = "ok"
    MISMATCH = "mismatch"
    VIOLATION = "violation"
    SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True)
class Row:
    """One change and its outcome, as reported."""

    field: str
    static: bool
    kind: str
    change: str
    predicted: str
    traces: int
    compiles: int
    verdict: Verdict
    note: str = ""


@dataclasses.dataclass(frozen=True)
class ClassReport:
    """The outcome for one class.

    Attributes:
        name: ``place:Class``.
        instance: The instance that was changed, as text.
        rows: One row a change.
        error: Why the class could not be checked; empty if it was.
    """

    name: str
    instance: str
    rows: tuple[Row, ...]
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with the class."""
        bad = (Verdict.MISMATCH, Verdict.VIOLATION)
        return not self.error and not any(row.verdict in bad for row in self.rows)


def check_class(target: Target) -> ClassReport:
    """Build an instance, change each field alone, and watch JAX."""
    try:
        builder = Builder(target.cls)
        problem = _untraceable(builder.base)
        rows = () if problem else tuple(observe(builder.base, edit) for edit in edits(builder))
        return ClassReport(target.name, short(builder.base, 200), rows, problem)
    except CannotBuildError as error:
        problem = plain(str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # user code: go on with the next class
        problem = f"{target.cls.__name__}: while it was checked: {tell(error)}"
    return ClassReport(target.name, "", (), problem)


def _untraceable(base: Any) -> str:
    """Return what is wrong with leaves that no jitted function would take."""
    try:
        _run(_program(), base)
    except Exception:
        for path, leaf in jax.tree_util.tree_leaves_with_path(base):
            try:
                _run(_program(), leaf)
            except Exception:  # noqa: BLE001  # JAX has several for it
                where = f"{type(base).__name__}{jax.tree_util.keystr(path)}"
                return plain(
                    f"{where}: JAX cannot trace {got(leaf)}, so no jitted function takes the "
                    f"class\n  fix: make the field static: lw.static_field()"
                )
        raise
    return ""


def signature(tree: Any) -> tuple[Any, ...]:
    """Return what one compiled program serves: structure with statics, and avals."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    avals = [jax.typeof(leaf) for leaf in leaves]
    return structure, tuple(
        (aval.shape, aval.dtype, getattr(aval, "weak_type", False)) for aval in avals
    )


def observe(base: Any, edit: Edit) -> Row:
    """Call a fresh jitted function with the instance and with the changed one."""
    if edit.edited is None:
        return Row(edit.field, edit.static, edit.kind, edit.words, "", 0, 0, Verdict.SKIPPED)
    with while_changing(type(base), edit.field):
        retraces = signature(base) != signature(edit.edited)
        program = _program()
        _run(program, base)
        with count_events() as seen:
            answer = _run(program, edit.edited)
    verdict, note = _judge(edit, answer, seen.traces, seen.compiles, retraces=retraces)
    predicted = "retrace" if retraces else "reuse"
    return Row(
        edit.field,
        edit.static,
        edit.kind,
        edit.words,
        predicted,
        seen.traces,
        seen.compiles,
        verdict,
        note,
    )


def _program() -> Any:
    """Return a jitted function that shares no program with others."""

    def probe(tree: Any) -> Any:
        return tree

    return jax.jit(probe)


def _run(program: Any, tree: Any) -> Any:
    """Return the result once its arrays are computed."""
    wait: Any = jax.block_until_ready
    return wait(program(tree))


def _judge(
    edit: Edit, answer: Any, traces: int, compiles: int, *, retraces: bool
) -> tuple[Verdict, str]:
    expected = 1 if retraces else 0
    if (traces, compiles) != (expected, expected):
        return Verdict.MISMATCH, f"predicted {expected} traces and compiles"
    structure: Any = jax.tree_util.tree_structure(answer)
    if structure != jax.tree_util.tree_structure(edit.edited):
        return Verdict.MISMATCH, "the result has other statics than the argument"
    if edit.must_retrace is not None and edit.must_retrace is not retraces:
        kind = "static" if edit.static else "dynamic"
        promised = "a retrace" if edit.must_retrace else "no retrace"
        return Verdict.VIOLATION, f"a {edit.kind} change of a {kind} field promises {promised}"
    return Verdict.OK, ""
