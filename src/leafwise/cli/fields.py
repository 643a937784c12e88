"""Each field changed alone: which edits are made, and the rows that tell of them."""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import jax

from leafwise._compare.reasons import Outcome
from leafwise._objects.text import got, without_addresses
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise._trees.roles import Names, field_order, names_of
from leafwise.cli.changes import Builder, simplest
from leafwise.cli.records import CheckedRow, Verdict, verdict_of
from leafwise.cli.targets import for_jit
from leafwise.errors import CannotBuildError
from leafwise.testing._format import format_error, format_leaf, short_repr
from leafwise.testing._laws.case import place
from leafwise.testing._laws.libraries import is_own, library_of, static_declaration
from leafwise.testing._recompilation import promised
from leafwise.testing._subject import Observation, Probe
from leafwise.testing.strategies._edit_positions import Role, is_below, path_of
from leafwise.testing.strategies._edits import LEAF_EDITS, Edit, EditKind, make_edit
from leafwise.testing.strategies._leaves import is_numeric
from leafwise.testing.strategies._statics import twins

FieldEdit = Edit[Any] | CheckedRow
"""An edit of one field; a row, skipped, in place of one that cannot be made."""


def check_fields(
    builder: Builder, only: Collection[str] = (), on_field: Callable[[str], None] = lambda _: None
) -> Iterator[CheckedRow]:
    """Change each field alone, or only some, and count what JAX does.

    `on_field` is called with each field's name before it is changed.
    """
    names = names_of(builder.base)
    for name in field_order(builder.base):
        if only and name not in only:
            continue
        on_field(name)
        try:
            for edit in edits_of(builder, name, names):
                yield edit if isinstance(edit, CheckedRow) else observe(builder, edit)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # user code: go on with the next
            static, verdict = name not in names.dynamic, verdict_of(error)
            yield CheckedRow(name, static, "", "", "", 0, 0, verdict, format_error(error))


def untraceable(builder: Builder) -> str:
    """Return what is wrong with leaves that no jitted function would take."""
    base = for_jit(builder.base)
    try:
        builder.probe  # noqa: B018  # its function is called
    except Exception:
        for path, leaf in jax.tree_util.tree_leaves_with_path(base):
            try:
                Probe(leaf)
            except Exception:  # noqa: BLE001  # JAX has several for it
                where = path_of(builder.base, path, leaf)
                return without_addresses(
                    f"{place(builder.cls, where)}: JAX cannot trace {got(leaf)}, so no jitted "
                    f"function takes the class\n  fix: {_static_fix(builder.base, where, leaf)}"
                )
        raise
    leaves, treedef = jax.tree.flatten(base)
    if type(jax.tree.unflatten(treedef, leaves)) is not type(base):
        raise TypeError("unflatten gives an instance of another class")
    return ""


def _static_fix(base: Any, where: str, leaf: Any) -> str:
    """Return how the attribute that holds a leaf becomes static, in a class of any library."""
    name = where.rpartition(".")[2].partition("[")[0]

    def is_holder(node: Any) -> bool:
        return any(each is leaf for each in jax.tree_util.tree_leaves(getattr(node, name, None)))

    holder = next(filter(is_holder, jax.tree_util.tree_leaves(base, is_leaf=is_holder)), base)
    owner = type(holder)
    if hasattr(owner, "tree_flatten"):
        return "return it from tree_flatten in the aux_data, and not among the children"
    by_field = library_of(owner) in ("leafwise", "equinox", "flax.struct", "JAX")
    by_field = by_field and dataclasses.is_dataclass(owner)
    first = "" if by_field else f"{owner.__name__} a class with @lw.pytree, and "
    code = static_declaration(holder, name) if name else "lw.static_field()"
    return f"make {first}the field static: `{code}`"


# ------------------------------------------------------------------------ the row of an edit


_STATIC: Final = (EditKind.STATIC_VALUE, EditKind.STATIC_TYPE)
_LABELS: Final = {
    EditKind.LEAF_VALUE: "value",
    EditKind.STATIC_VALUE: "value",
    EditKind.STATIC_TYPE: "type",
    EditKind.CONTAINER: "structure",
}


def _label(kind: EditKind) -> str:
    return _LABELS.get(kind, str(kind))


def _skipped(name: str, kind: str, why: str, *, static: bool) -> CheckedRow:
    return CheckedRow(name, static, kind, why, "", 0, 0, Verdict.SKIPPED)


def _refused(change: str) -> str:
    return f"{change}: the class refuses it"


def observe(builder: Builder, edit: Edit[Any]) -> CheckedRow:
    """Call a jitted function that knows the instance with the edited one."""
    static, kind = edit.kind in _STATIC, _label(edit.kind)
    if _is_hidden(builder.base, edit):
        return _skipped(edit.path, kind, edit.change, static=static)
    seen = builder.probe.try_observe(for_jit(edit.edited))
    if seen is None:
        return _skipped(edit.path, kind, _refused(edit.change), static=static)
    verdict, note = _judge(edit, seen, kind, static=static)
    if verdict is Verdict.VIOLATION and edit.kind is EditKind.STATIC_TYPE:
        verdict = Verdict.VIOLATION if is_own(builder.cls) else Verdict.WARNING
    traces, compiles = seen.counts.traces, seen.counts.compiles
    return CheckedRow(
        edit.path, static, kind, edit.change, str(seen.expected), traces, compiles, verdict, note
    )


def _judge(edit: Edit[Any], seen: Observation, kind: str, *, static: bool) -> tuple[Verdict, str]:
    if seen.outcome is Outcome.ERROR:
        return Verdict.ERROR, str(seen.predicted)
    if not seen.is_as_predicted or max(seen.counts.traces, seen.counts.compiles) > 1:
        return Verdict.MISMATCH, f"predicted a {seen.expected}, and JAX did a {seen.outcome}"
    promise = promised(edit)
    if promise not in (None, seen.outcome):
        wanted = "a retrace" if promise is Outcome.RETRACE else "no retrace"
        of = "static" if static else "dynamic"
        return Verdict.VIOLATION, f"a {kind} change of a {of} field promises {wanted}"
    return Verdict.OK, ""


def _is_hidden(base: Any, edit: Edit[Any]) -> bool:
    """Return whether a change is one of leaves that `for_jit` takes away."""
    if edit.kind is not EditKind.CONTAINER or for_jit(base) is base:
        return False
    values = (edit.before, edit.after)
    return not all(is_numeric(leaf) for each in values for leaf in jax.tree_util.tree_leaves(each))


# ------------------------------------------------------------------------ the edits of a field


def edits_of(builder: Builder, name: str, names: Names) -> Iterator[FieldEdit]:
    """Yield all edits of one field, of every kind that a program depends on.

    An argument that is neither a child nor in the aux_data is lost. It is changed as a static,
    which it should have been, unless its name says that it is a cache.
    """
    is_lost = builder.takes(name) and not name.startswith("_")
    if name in names.dynamic:
        yield from _dynamic_edits(builder, name)
    elif name in names.static or is_lost:
        yield from _static_edits(builder, name)
    else:
        yield _skipped(name, "value", "computed, and in no program", static=True)


def _find_other(
    builder: Builder, name: str, kind: EditKind, wanted: Callable[[Any], bool]
) -> Edit[Any]:
    """Return an edit by another argument, whose instance is wanted.

    Raises:
        LookupError: None was found.
        CannotBuildError: No values are known.
    """

    def is_wanted(other: tuple[Any, Any]) -> bool:
        return other[1] is not None and wanted(other[1])

    given, made = simplest(builder.others(name), is_wanted)
    return _edit(builder, name, kind, given, made)


def _edit(builder: Builder, name: str, kind: EditKind, given: Any, made: Any) -> Edit[Any]:
    return Edit(name, kind, getattr(builder.base, name), getattr(made, name), made, given)


def _static_edits(builder: Builder, name: str) -> Iterator[FieldEdit]:
    other = _other_static(builder, name)
    yield other
    is_value = isinstance(other, CheckedRow) or other.kind is EditKind.STATIC_VALUE
    for twin in twins(getattr(builder.base, name)) if is_value else ():
        made = builder.remake(name, twin)
        if made is not None:
            yield _edit(builder, name, EditKind.STATIC_TYPE, twin, made)
            return


def _other_static(builder: Builder, name: str) -> FieldEdit:
    value = getattr(builder.base, name)

    def distinct(made: Any) -> bool:
        found = is_distinct(value, getattr(made, name))
        if found is not None:
            return found
        before: Any = jax.tree_util.tree_structure(builder.base)
        return bool(before != jax.tree_util.tree_structure(made))

    def other(made: Any) -> bool:
        return distinct(made) and jax_equal(value, getattr(made, name)) is not True

    try:
        try:
            return _find_other(builder, name, EditKind.STATIC_VALUE, other)
        except LookupError:  # those that == does not distinguish are of another type
            return _find_other(builder, name, EditKind.STATIC_TYPE, distinct)
    except CannotBuildError as error:
        why = without_addresses(str(error)).splitlines()[0]
    except LookupError:
        why = "no other value was found"
    return _skipped(name, "value", why, static=True)


_LEAF_KINDS: Final = (EditKind.LEAF_VALUE, EditKind.SHAPE, EditKind.DTYPE, EditKind.WEAK_TYPE)


def _dynamic_edits(builder: Builder, name: str) -> Iterator[FieldEdit]:
    """Yield edits of the first leaf in a field that holds numbers."""
    below = (
        position._replace(path=name)
        for position in builder.positions
        if position.role is Role.LEAF and is_below(position.path, [name])
    )
    position = next((each for each in below if is_numeric(each.value)), None)
    if position is None:
        yield _structure_edit(builder, name)
        return
    leaf = position.value
    for kind in _LEAF_KINDS:
        other = LEAF_EDITS[kind](leaf)
        if other is not None:
            edit = make_edit(kind, position, other)
            change = f"{format_leaf(leaf)} -> {format_leaf(other)}"
            yield edit or _skipped(name, _label(kind), _refused(change), static=False)
        elif kind is EditKind.LEAF_VALUE:
            yield _skipped(name, "value", f"{format_leaf(leaf)} has no elements", static=False)
    if builder.may_be_none(name):
        yield _structure_edit(builder, name)


def _structure_edit(builder: Builder, name: str) -> FieldEdit:
    """Return a change of a field's structure, such as from None to an array."""
    value = getattr(builder.base, name)
    before: Any = jax.tree_util.tree_structure(value)

    def is_other(made: Any) -> bool:
        after: Any = jax.tree_util.tree_structure(getattr(made, name))
        return bool(before != after)

    def is_taken(made: Any) -> bool:
        leaves = jax.tree_util.tree_leaves(getattr(made, name))
        return is_other(made) and all(map(is_numeric, leaves))

    for wanted in (is_taken, is_other):  # JAX may refuse all there is: of text, say
        with contextlib.suppress(LookupError, CannotBuildError):
            return _find_other(builder, name, EditKind.CONTAINER, wanted)
    text = f"{short_repr(value)} has no leaf that could be changed"
    return _skipped(name, "structure", text, static=False)
