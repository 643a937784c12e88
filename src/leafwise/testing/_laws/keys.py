"""Laws of treedefs and their aux_data: equality, hash, and what makes two distinct."""

import operator
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import jax

from leafwise._trees.equality import is_distinct
from leafwise._trees.roles import names_of
from leafwise.errors import message_of
from leafwise.testing._format import format_change, format_static, format_typed, short_repr
from leafwise.testing._laws.case import Case, Pair
from leafwise.testing._laws.libraries import ONE_HASH, UNHASHABLE
from leafwise.testing._laws.same import lookalike_of, recreated
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
    found = case.edits.options(kinds)
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
    for pair in _static_pairs(case, (value, value, value)):
        if _is_plain(pair):
            _check_pair(case, pair)


def static_types(case: Case) -> None:
    """Exchange statics for values that are equal and yet distinct: 1 and True, 0.0 and -0.0."""
    for pair in _static_pairs(case, (EditKind.STATIC_TYPE, *_STATIC)):
        if not _is_plain(pair):
            _check_pair(case, pair)


def _static_pairs(case: Case, kinds: Iterable[EditKind]) -> Iterator[Pair]:
    """Yield pairs that differ in a static: each recreated, and one drawn edit of each kind."""
    yield from case.edits.recreated
    for kind in kinds:
        edit = draw_edit(case, (kind,))
        if edit is None:
            continue
        yield Pair(edit.path, edit.before, edit.after, case.instance, edit.edited)
        position = next(each for each in case.edits.positions if each.path == edit.path)
        if type(edit.before) is float:  # equal, and drawn too seldom
            zeros = [make_edit(kind, position, zero) for zero in (0.0, -0.0)]
            ends = [(each.after, each.edited) for each in zeros if each is not None]
            if len(ends) == 1:  # it was the other zero, or the class refuses that one
                ends.append((edit.before, case.instance))
            if ends:
                (before, one), (after, other) = ends
                yield Pair(edit.path, before, after, one, other)
        fresh = recreated(edit.after)
        again = make_edit(kind, position, fresh)
        if again is not None and fresh is not edit.after:
            yield Pair(edit.path, edit.after, again.after, edit.edited, again.edited)


def _fresh_instances(case: Case) -> Iterator[tuple[str, Any]]:
    return ((pair.path, pair.other) for pair in case.edits.recreated if "." not in pair.path)


def _is_plain(pair: Pair) -> bool:
    """Return whether == of two values says whether they are the same."""
    try:
        equal = bool(pair.before == pair.after)
    except Exception:  # noqa: BLE001  # the user's own code
        return True
    return equal is not is_distinct(pair.before, pair.after)


def _check_pair(case: Case, pair: Pair) -> None:
    path, before, after, one, other = pair
    distinct = is_distinct(before, after)
    equal = case.same_structure(case.structure(one, path), case.structure(other, path), path)
    if distinct is None or equal is not distinct:
        return
    values = format_change(format_typed(before), format_typed(after))
    if distinct:
        got = f"{values}: equal treedefs, so that one program answers for both"
        case.fail(path, got, "a distinct treedef for a distinct static")
    got = f"{values}: the same value, recreated, gives another treedef, and recompiles"
    fix = "compare statics by value" if before == after else ""
    case.fail(path, got, "equal treedefs", fix=fix)


def aux_data_hash(case: Case) -> None:
    """Hash the aux_data, that of an equal instance, and that of some with other statics."""
    x = case.instance
    mine = _aux_of(x)
    try:
        first = hash(mine)
    except Exception as error:  # noqa: BLE001  # the user's own code
        path, value = _unhashable_static(x, message_of(error))
        what = f"{short_repr(value)} ({type(value).__name__})" if path else short_repr(mine)
        case.fail(path, f"{what}, {UNHASHABLE} {message_of(error)}", "aux_data with a hash")
    edits = _edits_of_one_static(case)
    edited = [(edit.path, edit.edited) for edit in edits]
    hashes = {first}
    for path, other in (("", x), *_fresh_instances(case), *edited):
        its = _aux_of(other)
        hashed = case.attempt("hash of aux_data", hash, its, path=path)
        hashes.add(hashed)
        if hashed != first and case.attempt("== of aux_data", operator.eq, mine, its, path=path):
            got = f"equal aux_data with two hashes: {short_repr(mine)}"
            case.fail(path, got, "equal values have equal hashes", fix="hash what == compares")
    if len(hashes) > 1 or not edits:
        return
    values = [edits[0].before, *(edit.after for edit in edits)]
    try:
        different = len(set(map(hash, values)))
    except TypeError:
        return
    if different >= (2 if isinstance(values[0], bool) else _MANY - 1):  # else it is a coincidence
        texts = ", ".join(format_static(value) for value in values)
        fix = "hash all that == compares: JAX never asks for it, but a dict with such keys is slow"
        case.fail(edits[0].path, f"{ONE_HASH} {texts}", "a hash that depends on it", fix=fix)


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


def _edits_of_one_static(case: Case) -> list[Edit[Any]]:
    kind = EditKind.STATIC_VALUE
    # A part may be of the same class: its statics are in other aux_data.
    options = [
        (position, strategy)
        for position, strategy in case.edits.options((kind,)).get(kind, [])
        if position.name and position.path == position.name
    ]
    if not options:
        return []
    position, strategy = case.choose(options)
    drawn = [make_edit(kind, position, case.draw(strategy)) for _ in range(_MANY)]
    return [edit for edit in drawn if edit is not None]


def _aux_of(instance: Any) -> Any:
    level: Any = _REGISTRY.flatten_one_level(instance)
    return level[1]


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
