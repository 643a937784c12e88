"""Laws of treedefs and their aux_data: equality, hash, and what makes two distinct."""

import dataclasses
import operator
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import jax

from leafwise._trees.equality import is_distinct
from leafwise._trees.roles import names_of
from leafwise.errors import message_of
from leafwise.testing._format import format_change, format_static, format_typed, short_repr
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.libraries import ONE_HASH, UNHASHABLE
from leafwise.testing._laws.same import lookalike_of, recreated
from leafwise.testing.strategies._edit_positions import EditPosition, Role
from leafwise.testing.strategies._edits import Edit, EditKind, make_edit

_REGISTRY: Final = jax.tree_util.default_registry
_MANY: Final = 4
"""How many equal hashes of distinct values are no coincidence."""


def treedef_equality(case: Case) -> None:
    """Compare the treedef with itself, with an equal one, and with those of edited instances."""
    x = case.instance
    mine = case.structure(x)
    drawn = (draw_edit(case, kinds) for kinds in (_STATIC, (EditKind.LEAF_VALUE,)))
    edits = ((edit.path, edit.edited) for edit in drawn if edit is not None)
    for path, other in (("", x), *_fresh_instances(case), *edits):
        its = case.structure(other, path)
        equal = case.same_structure(mine, its, path)
        back = case.same_structure(its, mine, path)
        differs = bool(case.attempt("comparing treedefs", operator.ne, mine, its, path=path))
        if equal is not back or equal is differs:
            answers = f"a == b: {equal}, b == a: {back}, a != b: {differs}"
            case.fail(path, answers, "one answer", fix="let == of statics be symmetric")
        hashes = [case.attempt("hash of a treedef", hash, each, path=path) for each in (mine, its)]
        if equal and hashes[0] != hashes[1]:
            case.fail(path, "equal treedefs with two hashes", "one hash")


_FIELD: Final = re.compile(r"[.\[]")
_STATIC: Final = (EditKind.STATIC_VALUE, EditKind.STATIC_TYPE)


def draw_edit(case: Case, kinds: tuple[EditKind, ...]) -> Edit[Any] | None:
    """Draw an edit of one of the kinds; None if there is none, or the class rejects it."""
    found = case.options(kinds)
    if not found:
        return None
    kind = case.choose(list(found))
    fields: dict[str, list[Any]] = {}  # drawn first, since some fields have many positions inside
    for position, strategy in found[kind]:
        fields.setdefault(_FIELD.split(position.path)[0], []).append((position, strategy))
    options = fields[case.choose(list(fields))]
    position, strategy = case.choose(options)
    return make_edit(kind, position, case.draw(strategy))


def static_values(case: Case) -> None:
    """Exchange statics for equal and for different ones, where == says which they are."""
    value = EditKind.STATIC_VALUE
    for edit in _static_pairs(case, (value, value, value)):
        if _is_plain(edit):
            _check_pair(case, edit)


def static_types(case: Case) -> None:
    """Exchange statics for values that are equal and yet distinct: 1 and True, 0.0 and -0.0."""
    for edit in _static_pairs(case, (EditKind.STATIC_TYPE, *_STATIC)):
        if not _is_plain(edit):
            _check_pair(case, edit)


def _static_pairs(case: Case, kinds: Iterable[EditKind]) -> Iterator[Edit[Any]]:
    """Yield edits of statics: each static recreated, and one drawn edit of each kind."""
    yield from _fresh(case)
    for kind in kinds:
        edit = draw_edit(case, (kind,))
        if edit is not None:
            yield edit
            position = next((each for each in case.positions if each.path == edit.path), None)
            if position is None:
                continue
            if type(position.value) is float:
                yield from _zeros(kind, position)
            fresh = recreated(edit.after)
            other = make_edit(kind, position, fresh)
            if other is not None and fresh is not edit.after:
                # The edited instance against one with an equal value, recreated.
                before = edit.after
                yield _Pair(
                    edit.path, edit.kind, before, other.after, other.edited, fresh, edit.edited
                )


def _zeros(kind: EditKind, position: EditPosition) -> Iterator[Edit[Any]]:
    """Yield 0.0 against -0.0, which are equal, and drawn too seldom."""
    found = [make_edit(kind, position, zero) for zero in (0.0, -0.0)]
    match [each for each in found if each is not None]:
        case [one, other]:
            before, after = one.after, other.after
            yield _Pair(one.path, kind, before, after, other.edited, other.given, one.edited)
        case others:  # it was the other zero, or the class refuses that one
            yield from others


@dataclasses.dataclass(frozen=True)
class _Pair(Edit[Any]):
    """An edit of another instance than the one that was drawn."""

    original: Any = None


def _fresh(case: Case) -> Iterator[Edit[Any]]:
    for position in case.positions:
        if position.role is not Role.STATIC or not position.name:
            continue
        fresh = recreated(position.value)
        if fresh is not position.value and is_distinct(position.value, fresh) is False:
            edited = position.put(fresh)
            if edited is not None:
                kind = EditKind.STATIC_VALUE
                yield _Pair(
                    position.path, kind, position.value, fresh, edited, fresh, case.instance
                )


def _fresh_instances(case: Case) -> Iterator[tuple[str, Any]]:
    return ((pair.path, pair.edited) for pair in _fresh(case) if "." not in pair.path)


def _is_plain(edit: Edit[Any]) -> bool:
    """Return whether == of two values says whether they are the same."""
    try:
        equal = bool(edit.before == edit.after)
    except Exception:  # noqa: BLE001  # the user's own code
        return True
    return equal is not is_distinct(edit.before, edit.after)


def _check_pair(case: Case, edit: Edit[Any]) -> None:
    x = edit.original if isinstance(edit, _Pair) else case.instance
    distinct = is_distinct(edit.before, edit.after)
    mine, its = case.structure(x, edit.path), case.structure(edit.edited, edit.path)
    equal = case.same_structure(mine, its, edit.path)
    if distinct is None or equal is not distinct:
        return
    values = format_change(format_typed(edit.before), format_typed(edit.after))
    if distinct:
        got = f"{values}: equal treedefs, so that one program answers for both"
        case.fail(edit.path, got, "a distinct treedef for a distinct static")
    got = f"{values}: the same value, recreated, gives another treedef"
    fix = "compare statics by value" if edit.before == edit.after else ""
    case.fail(edit.path, f"{got}, and recompiles", "equal treedefs", fix=fix)


def aux_data_hash(case: Case) -> None:
    """Hash the aux_data, that of an equal instance, and that of some with other statics."""
    x = case.instance
    level: Any = _REGISTRY.flatten_one_level(x)
    if level is None:
        return
    _, mine = level
    try:
        first = hash(mine)
    except Exception as error:  # noqa: BLE001  # the user's own code
        path, value = _unhashable_static(x, message_of(error))
        what = f"{short_repr(value)} ({type(value).__name__})" if path else short_repr(mine)
        case.fail(path, f"{what}, {UNHASHABLE} {message_of(error)}", "aux_data with a hash")
    for path, other in (("", x), *_fresh_instances(case)):
        its: Any = _REGISTRY.flatten_one_level(other)
        equal = bool(case.attempt("== of aux_data", operator.eq, mine, its[1], path=path))
        if equal and hash(its[1]) != first:
            got = f"equal aux_data with two hashes: {short_repr(mine)}"
            case.fail(path, got, "equal values have equal hashes", fix="hash what == compares")
    _check_hash_depends(case, mine)


def _unhashable_static(x: Any, problem: str) -> tuple[str, Any]:
    """Return the static that makes aux_data unhashable: its hash raises the same."""
    for name in names_of(x).static:
        value = getattr(x, name)
        try:
            hash(value)
        except Exception as error:  # noqa: BLE001  # the user's own code
            if message_of(error) == problem:
                return name, value
    return "", None


def _check_hash_depends(case: Case, mine: Any) -> None:
    """Fail unless the hash depends on one static, which is drawn."""
    values = case.options((EditKind.STATIC_VALUE,)).get(EditKind.STATIC_VALUE, [])
    # A part may be of the same class: its statics are in other aux_data.
    options = [each for each in values if each[0].name and each[0].path == each[0].name]
    if not options:
        return
    position, strategy = case.choose(options)
    drawn = [make_edit(EditKind.STATIC_VALUE, position, case.draw(strategy)) for _ in range(_MANY)]
    edits = [edit for edit in drawn if edit is not None]
    values = [position.value, *(edit.after for edit in edits)]
    first = hash(mine)
    hashes = {first}
    for edit in edits:
        level: Any = _REGISTRY.flatten_one_level(edit.edited)
        hashed = case.attempt("hash of aux_data", hash, level[1], path=position.path)
        hashes.add(hashed)
        if hashed != first and case.attempt("== of aux_data", operator.eq, mine, level[1]):
            got = f"{edit.change}: equal aux_data with two hashes"
            case.fail(
                position.path, got, "equal values have equal hashes", fix="hash what == compares"
            )
    if len(hashes) > 1 or not _are_many(values):
        return
    texts = ", ".join(format_static(value) for value in values)
    fix = "hash all that == compares: JAX never asks for it, but a dict with such keys is slow"
    case.fail(position.path, f"{ONE_HASH} {texts}", "a hash that depends on it", fix=fix)


def _are_many(values: list[Any]) -> bool:
    """Return whether the values have so many hashes that one for all is no coincidence."""
    hashes: set[int] = set()
    for value in values:
        try:
            hashes.add(hash(value))
        except TypeError:
            return False
    return len(hashes) >= (2 if isinstance(values[0], bool) else _MANY - 1)


def distinct_classes(case: Case) -> None:
    """Compare with an instance of another dataclass with as many children and statics."""
    other = lookalike_of(case.instance)
    if other is None:
        return
    mine, its = case.structure(case.instance), case.structure(other)
    if case.same_structure(mine, its) or case.same_structure(its, mine):
        got = f"the treedef of an instance equals that of another class, {short_repr(its, 100)}"
        wanted = "distinct treedefs: lax.cond and lax.scan would confuse the two"
        case.fail("", got, wanted)
