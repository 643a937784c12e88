"""What leafwise predicts of a change, and what JAX then does."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax

from leafwise._jax.events import count_events
from leafwise._objects.text import got
from leafwise._trees.roles import field_order, names_of
from leafwise.cli.changes import Builder
from leafwise.cli.edits import FieldEdit, edits_of, while_changing
from leafwise.cli.records import CheckedRow, Verdict, verdict_of
from leafwise.cli.targets import for_jit, is_own
from leafwise.testing._format import format_error, without_addresses
from leafwise.testing.strategies._leaves import is_numeric


def check_fields(
    builder: Builder, only: Collection[str] = (), on_field: Callable[[str], None] = lambda _: None
) -> Iterator[CheckedRow]:
    """Change each field alone, and count what JAX does.

    Args:
        builder: Has the instance.
        only: The fields to change; empty for all.
        on_field: Is called with each field's name before it is changed.
    """
    names = names_of(builder.base)
    programs = _Programs(for_jit(builder.base))
    for name in field_order(builder.base):
        if only and name not in only:
            continue
        on_field(name)
        try:
            with while_changing(builder.cls, name):
                for edit in edits_of(builder, name, names):
                    yield observe(builder.base, edit, programs)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # user code: go on with the next
            static, verdict = name not in names.dynamic, verdict_of(error)
            yield CheckedRow(name, static, "", "", "", 0, 0, verdict, format_error(error))


def untraceable(base: Any) -> str:
    """Return what is wrong with leaves that no jitted function would take."""
    try:
        _run(_program(), for_jit(base))
    except Exception:
        for path, leaf in jax.tree_util.tree_leaves_with_path(for_jit(base)):
            try:
                _run(_program(), leaf)
            except Exception:  # noqa: BLE001  # JAX has several for it
                where = f"{type(base).__name__}{jax.tree_util.keystr(path)}"
                return without_addresses(
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


class _Programs:
    """Jitted functions that have their program for one instance, for all edits of it.

    Args:
        base: The instance.
    """

    def __init__(self, base: Any) -> None:
        self._base = base
        self._pure: Any = None
        self._used: Any = None
        self._field = ""
        self._known: list[Any] = []

    def for_edit(self, field: str, after: Any, *, retraces: bool) -> Any:
        """Return a function that has no program for a signature unless it is the instance's.

        Args:
            field: The field that was changed: changes of two fields differ.
            after: The signature.
            retraces: Whether it is predicted to be another one.
        """
        if not retraces:
            self._pure = self._pure or self._warm()
            return self._pure
        if field != self._field:
            self._field, self._known = field, []
        if self._used is None or after in self._known:
            self._used, self._known = self._warm(), []
        self._known.append(after)
        return self._used

    def forget(self) -> None:
        """Start with new functions: something happened that was not predicted."""
        self._pure = self._used = None

    def _warm(self) -> Any:
        program = _program()
        _run(program, self._base)
        return program


def observe(base: Any, edit: FieldEdit, programs: _Programs) -> CheckedRow:
    """Call a jitted function that knows the instance with the changed one."""
    if edit.edited is None or _is_hidden(base, edit):
        return CheckedRow(
            edit.field, edit.static, edit.kind, edit.change, "", 0, 0, Verdict.SKIPPED
        )
    with while_changing(type(base), edit.field):
        before, after = for_jit(base), for_jit(edit.edited)
        its = signature(after)
        retraces = signature(before) != its
        program = programs.for_edit(edit.field, its, retraces=retraces)
        with count_events() as counts:
            result = _run(program, after)
        verdict, note = _judge(
            edit, after, result, counts.traces, counts.compiles, retraces=retraces
        )
    if verdict is Verdict.MISMATCH:
        programs.forget()
    if verdict is Verdict.VIOLATION and edit.static and edit.kind == "type":
        verdict = Verdict.VIOLATION if is_own(type(base)) else Verdict.WARNING
    return CheckedRow(
        edit.field,
        edit.static,
        edit.kind,
        edit.change,
        "retrace" if retraces else "reuse",
        counts.traces,
        counts.compiles,
        verdict,
        note,
    )


def _is_hidden(base: Any, edit: FieldEdit) -> bool:
    """Return whether a change is one of leaves that `for_jit` takes away."""
    if edit.kind != "structure" or for_jit(base) is base:
        return False
    values = (getattr(each, edit.field) for each in (base, edit.edited))
    return not all(is_numeric(leaf) for each in values for leaf in jax.tree_util.tree_leaves(each))


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
    edit: FieldEdit, edited: Any, result: Any, traces: int, compiles: int, *, retraces: bool
) -> tuple[Verdict, str]:
    expected = 1 if retraces else 0
    if (traces, compiles) != (expected, expected):
        return Verdict.MISMATCH, f"predicted {expected} traces and compiles"
    structure: Any = jax.tree_util.tree_structure(result)
    if structure != jax.tree_util.tree_structure(edited):
        return Verdict.MISMATCH, "the result has other statics than the argument"
    if edit.must_retrace is not None and edit.must_retrace is not retraces:
        kind = "static" if edit.static else "dynamic"
        promised = "a retrace" if edit.must_retrace else "no retrace"
        return Verdict.VIOLATION, f"a {edit.kind} change of a {kind} field promises {promised}"
    return Verdict.OK, ""
