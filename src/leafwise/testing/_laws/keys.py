"""Laws of treedefs: equality, hash, and what tells two of them apart."""

import dataclasses
import operator
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import jax
from hypothesis import strategies as st

from leafwise._trees.equality import is_distinct
from leafwise._trees.roles import names_of, try_exchange
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.same import again, decoy_of
from leafwise.testing._words import change_of, say_static, short
from leafwise.testing.strategies._edits import Edit, EditKind, make_edit, options_of
from leafwise.testing.strategies._places import EditPosition, Role, spots

_REGISTRY: Final = jax.tree_util.default_registry
_MANY: Final = 4
"""How many hashes that are all equal are no accident."""


def equality(case: Case) -> None:
    """Compare treedefs: with itself, with an equal one, with those of edits."""
    x = case.instance
    mine = case.structure(x)
    for path, other in (("", x), *_with_fresh_statics(x), *_some_edits(case)):
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


def _with_fresh_statics(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield instances, each with an equal, fresh value in one static, if the class takes it."""
    for name in names_of(x).static:
        value = getattr(x, name)
        fresh = again(value)
        made = None if fresh is value else try_exchange(x, name, fresh)
        if made is not None:
            yield name, made


def _some_edits(case: Case) -> Iterator[tuple[str, Any]]:
    """Yield an edit of a static, and one of a leaf."""
    for kinds in (_STATIC, (EditKind.LEAF_VALUE,)):
        edit = draw_edit(case, kinds)
        if edit is not None:
            yield edit.path, edit.edited


_FIELD: Final = re.compile(r"[.\[]")
_STATIC: Final = (EditKind.STATIC_VALUE, EditKind.STATIC_TYPE)


def draw_edit(case: Case, kinds: tuple[EditKind, ...]) -> Edit[Any] | None:
    """Draw an edit of one of the kinds; None if there is none, or the class refuses it."""
    found = options_of(spots(case.instance), kinds)
    if not found:
        return None
    kind = case.draw(st.sampled_from(list(found)))
    fields: dict[str, list[Any]] = {}  # first the field: some have many places in them
    for spot, strategy in found[kind]:
        fields.setdefault(_FIELD.split(spot.path)[0], []).append((spot, strategy))
    options = fields[case.draw(st.sampled_from(list(fields)))]
    spot, strategy = case.draw(st.sampled_from(options))
    return make_edit(kind, spot, case.draw(strategy))


def static_values(case: Case) -> None:
    """Exchange statics for equal ones, and for others; plain values, on which == is right."""
    value = EditKind.STATIC_VALUE
    for edit in _static_pairs(case, (value, value, value)):
        if _is_plain(edit):
            _check_pair(case, edit)


def static_types(case: Case) -> None:
    """Exchange statics for those of which == alone does not say whether they are the same."""
    for edit in _static_pairs(case, (EditKind.STATIC_TYPE, *_STATIC)):
        if not _is_plain(edit):
            _check_pair(case, edit)


def _static_pairs(case: Case, kinds: Iterable[EditKind]) -> Iterator[Edit[Any]]:
    """Yield edits of statics: each static made afresh, and one that is drawn of each kind."""
    x = case.instance
    yield from _fresh(x)
    for kind in kinds:
        edit = draw_edit(case, (kind,))
        if edit is not None:
            yield edit
            spot = next((each for each in spots(x) if each.path == edit.path), None)
            fresh = again(edit.after)
            other = None if spot is None else make_edit(kind, spot, fresh)
            if other is not None and fresh is not edit.after:
                # The changed instance against one with the same change, made anew.
                before = edit.after
                yield _Pair(edit.path, edit.kind, before, other.after, other.edited, edit.edited)


@dataclasses.dataclass(frozen=True)
class _Pair(Edit[Any]):
    """An edit of another instance than the one that was drawn."""

    original: Any = None


def _fresh(x: Any) -> Iterator[Edit[Any]]:
    for spot in spots(x):
        if spot.role is not Role.STATIC or not spot.name:
            continue
        fresh = again(spot.value)
        if fresh is not spot.value and is_distinct(spot.value, fresh) is False:
            edited = _put(spot, fresh)
            if edited is not None:
                kind = EditKind.STATIC_VALUE
                yield _Pair(spot.path, kind, spot.value, fresh, edited, x)


def _put(spot: EditPosition, value: Any) -> Any:
    try:
        return spot.put(value)
    except Exception:  # noqa: BLE001  # refused
        return None


def _is_plain(edit: Edit[Any]) -> bool:
    """Return whether == of two values says whether they are the same."""
    try:
        equal = bool(edit.before == edit.after)
    except Exception:  # noqa: BLE001  # the user's own code
        return True
    return equal is not is_distinct(edit.before, edit.after)


def _check_pair(case: Case, edit: Edit[Any]) -> None:
    x = edit.original if isinstance(edit, _Pair) else case.instance
    apart = is_distinct(edit.before, edit.after)
    mine, its = case.structure(x, edit.path), case.structure(edit.edited, edit.path)
    equal = case.same_structure(mine, its, edit.path)
    if apart is None or equal is not apart:
        return
    values = change_of(_typed(edit.before), _typed(edit.after))
    if apart:
        got = f"{values}: equal treedefs, so that one program answers for both"
        case.fail(edit.path, got, "another treedef for another static")
    got = f"{values}: the same value, made anew, gives another treedef"
    fix = "compare statics by value" if edit.before == edit.after else ""
    case.fail(edit.path, f"{got}, and compiles again", "equal treedefs", fix=fix)


def _typed(value: Any) -> str:
    return f"{say_static(value)} ({type(value).__name__})"


def static_hash(case: Case) -> None:
    """Hash aux_data, that of an equal instance, and that of some with other statics."""
    x = case.instance
    level: Any = _REGISTRY.flatten_one_level(x)
    if level is None:
        return
    _, mine = level
    try:
        first = hash(mine)
    except Exception as error:  # noqa: BLE001  # the user's own code
        path, value = _blamed(x, str(error))
        what = f"{short(value)} ({type(value).__name__})" if path else short(mine)
        case.fail(path, f"{what}, of which hash() raised {error}", "aux_data with a hash")
    for path, other in _with_fresh_statics(x):
        its: Any = _REGISTRY.flatten_one_level(other)
        equal = bool(case.attempt("== of aux_data", operator.eq, mine, its[1], path=path))
        if equal and hash(its[1]) != first:
            got = f"equal aux_data with two hashes: {short(mine)}"
            case.fail(path, got, "equal values have equal hashes", fix="hash what == compares")
    _check_hash_node(case, mine)


def _blamed(x: Any, error: str) -> tuple[str, Any]:
    """Return the static on whose account aux_data has no hash: the error speaks of its type."""
    for name in names_of(x).static:
        value = getattr(x, name)
        try:
            hash(value)
        except Exception:  # noqa: BLE001  # the user's own code
            if type(value).__name__ in error:
                return name, value
    return "", None


def _check_hash_node(case: Case, mine: Any) -> None:
    """See whether the hash depends on one static, which is drawn."""
    own = [spot for spot in spots(case.instance) if spot.name and spot.holder is case.cls]
    options = options_of(own, (EditKind.STATIC_VALUE,)).get(EditKind.STATIC_VALUE)
    if not options:
        return
    spot, strategy = case.draw(st.sampled_from(options))
    drawn = [make_edit(EditKind.STATIC_VALUE, spot, case.draw(strategy)) for _ in range(_MANY)]
    edits = [edit for edit in drawn if edit is not None]
    values = [spot.value, *(edit.after for edit in edits)]
    first = hash(mine)
    hashes = {first}
    for edit in edits:
        level: Any = _REGISTRY.flatten_one_level(edit.edited)
        hashed = case.attempt("hash of aux_data", hash, level[1], path=spot.path)
        hashes.add(hashed)
        if hashed != first and case.attempt("== of aux_data", operator.eq, mine, level[1]):
            got = f"{edit.change}: equal aux_data with two hashes"
            case.fail(spot.path, got, "equal values have equal hashes", fix="hash what == compares")
    if len(hashes) > 1 or not _are_many(values):
        return
    said = ", ".join(say_static(value) for value in values)
    fix = "hash all that == compares: the hash picks the program where statics differ"
    case.fail(spot.path, f"one hash for {said}", "a hash that depends on it", fix=fix)


def _are_many(values: list[Any]) -> bool:
    """Return whether values are so many, and so different, that one hash is no accident."""
    hashes: set[int] = set()
    for value in values:
        try:
            hashes.add(hash(value))
        except TypeError:
            return False
    return len(hashes) >= (2 if isinstance(values[0], bool) else _MANY - 1)


def told_apart_from_others(case: Case) -> None:
    """Compare with an instance of another dataclass of the same fields."""
    other = decoy_of(case.instance)
    if other is None:
        return
    mine, its = case.structure(case.instance), case.structure(other)
    if case.same_structure(mine, its) or case.same_structure(its, mine):
        got = f"the treedef of an instance equals that of another class, {short(its, 100)}"
        wanted = "treedefs that differ: lax.cond and lax.scan would take one for the other"
        case.fail("", got, wanted)
