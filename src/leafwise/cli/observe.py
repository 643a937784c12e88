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
    for name in field_order(builder.base):
        if only and name not in only:
            continue
        on_field(name)
        try:
            with while_changing(builder.cls, name):
                for edit in edits_of(builder, name, names):
                    yield observe(builder.base, edit)
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


def observe(base: Any, edit: FieldEdit) -> CheckedRow:
    """Call a new jitted function with the instance and with the changed one."""
    if edit.edited is None or _is_hidden(base, edit):
        return CheckedRow(
            edit.field, edit.static, edit.kind, edit.change, "", 0, 0, Verdict.SKIPPED
        )
    with while_changing(type(base), edit.field):
        before, after = for_jit(base), for_jit(edit.edited)
        retraces = signature(before) != signature(after)
        program = _program()
        _run(program, before)
        with count_events() as counts:
            result = _run(program, after)
        verdict, note = _judge(
            edit, after, result, counts.traces, counts.compiles, retraces=retraces
        )
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
