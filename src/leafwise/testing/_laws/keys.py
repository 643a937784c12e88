"""Laws about treedefs and their aux_data: equality, hashes, and what they distinguish."""

import dataclasses
import dis
import inspect
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jax

from leafwise._classes.construct import WRITTEN
from leafwise._classes.spec import is_decorated
from leafwise._compare.changes import is_function
from leafwise._jit.jax_errors import as_static
from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.interrupts import or_default
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise.errors import message_of
from leafwise.testing._format import format_change, format_static, format_typed, short_repr
from leafwise.testing._laws.case import Case, Pair
from leafwise.testing._laws.libraries import ANOTHER_TREEDEF, ONE_HASH, UNHASHABLE, by_value_fix
from leafwise.testing._laws.same import lookalike_of
from leafwise.testing.strategies._annotations import InstancePlan
from leafwise.testing.strategies._constructor import FieldContext, call, is_user_registered
from leafwise.testing.strategies._edit_positions import EditPosition, Role, edit_positions
from leafwise.testing.strategies._edits import ArgumentEdit, EditKind, argument_edits

_MANY: Final = 4
"""How many equal hashes of distinct values cannot be a coincidence."""


def treedef_equality(case: Case) -> None:
    """Compare the treedef with those of an equal, of edited and of other instances."""
    x, other = case.instance, case.draw(case.others)
    whole = case.structure(x)
    edited = [(edit.path, edit.edited) for _, edit in case.edits.drawn]
    # Also the root nodes: JAX skips statics if the children differ in structure.
    path = _static_that_raises(case, lambda name: bool(getattr(x, name) == getattr(other, name)))
    treedefs = [(path, case.node(x), case.node(other))]
    for path, tree in (("", other), ("", x), *_fresh_instances(case), *edited):
        treedefs.append((path, whole, case.structure(tree, path)))
    for path, one, two in treedefs:
        equal = case.same_structure(one, two, path)
        back = case.same_structure(two, one, path)
        differs = bool(case.attempt("comparing treedefs", operator.ne, one, two, path=path))
        if equal is not back or equal is differs:
            answers = f"a == b: {equal}, b == a: {back}, a != b: {differs}"
            case.fail(path, answers, "one answer", fix="let == of statics be symmetric")
        hashes = [case.attempt("hash of a treedef", hash, tree, path=path) for tree in (one, two)]
        if equal and hashes[0] != hashes[1]:
            case.fail(path, "equal treedefs with two hashes", "one hash")


def _static_that_raises(
    case: Case, call: Callable[[str], object], problem: str | None = None
) -> str:
    """Return the first static for which a call raises (`problem`, if given), or an empty text."""
    for name in case.names.static:
        try:
            call(name)
        except Exception as error:  # noqa: BLE001  # user code
            if problem in (None, message_of(error)):
                return name
    return ""


def static_values(case: Case) -> None:
    """Replace statics by equal and by different ones, where == decides which."""
    for pair in case.edits.pairs:
        if _is_plain(pair):
            _check_pair(case, pair)
    statics = [position for position in case.edits.positions if position.role is Role.STATIC]
    for cls, position in {type(position.value): position for position in statics}.items():
        for edit in argument_edits(cls, case.draw):
            _check_arguments(case, position, edit)


def static_types(case: Case) -> None:
    """Replace statics by equal but distinct values: 1 and True, 0.0 and -0.0."""
    for pair in case.edits.pairs:
        if not _is_plain(pair):
            _check_pair(case, pair)


def same_arguments(case: Case) -> None:
    if is_user_registered(case.cls):
        return  # its strategy does not tell the arguments
    try:
        arguments, x = case.draw(InstancePlan(case.cls, FieldContext(case.cls)).with_arguments())
        trees = x, x, call(case.cls, arguments)
        treedefs: list[Any] = [jax.tree_util.tree_structure(tree) for tree in trees]
        if treedefs[0] != treedefs[1] or treedefs[0] == treedefs[2]:
            return
        positions = zip(edit_positions(x), edit_positions(trees[2]), strict=False)
        pairs = [pair for pair in positions if pair[0].name and pair[0].role is Role.STATIC]
        recreated = [pair for pair in pairs if is_distinct(pair[0].value, pair[1].value)]
    except (Exception, SystemExit):  # noqa: BLE001  # user code: other laws report it
        return
    case, path, what = dataclasses.replace(case, instance=x), "", "another aux_data"
    fix = case.law.fix
    for one, other in recreated[:1]:
        path, kind = one.path, type(one.value)
        what = f"another {kind.__name__}{_line_of(one)}"
        if is_function(one.value):
            fix = "define the function once, at module level, or as a method"
        if not is_function(one.value) and compares_by_identity(kind):
            fix = by_value_fix(kind)
        elif is_decorated(type(one.owner)) and not is_distinct(one.value, other.value, "content"):
            fix += f"; or {as_static(type(one.owner), one.name, by_content=True)}"
    got = f"{what}, {ANOTHER_TREEDEF} a second call with the same arguments"
    case.fail(path, got, "an equal one, so that no new instance retraces", fix=fix)


def _line_of(position: EditPosition) -> str:
    """Return where a static was created: the line of the constructor that sets it."""
    owner: Any = type(position.owner)
    for maker in (owner.__init__, getattr(owner, "__post_init__", None)):
        function: Any = inspect.unwrap(getattr(maker, WRITTEN, maker) or object)
        code: Any = getattr(function, "__code__", None)
        for step in dis.get_instructions(function) if code else ():
            if (step.opname, step.argval) == ("STORE_ATTR", position.name) and step.positions:
                return f" created in {Path(code.co_filename).name}, line {step.positions.lineno}"
    return ""


def _fresh_instances(case: Case) -> Iterator[tuple[str, Any]]:
    return ((pair.path, pair.other) for pair in case.edits.recreated if "." not in pair.path)


@or_default(default=True)  # a user's `==`
def _is_plain(pair: Pair) -> bool:
    """Return whether == decides if two values are the same."""
    return bool(pair.before == pair.after) is not is_distinct(pair.before, pair.after)


def _check_pair(case: Case, pair: Pair) -> None:
    path, before, after, one, other = pair
    distinct = is_distinct(before, after)
    equal = case.same_structure(case.structure(one, path), case.structure(other, path), path)
    if distinct is None or equal is not distinct:
        return
    values = format_change(format_typed(before), format_typed(after))
    if distinct:
        got = f"{values}: equal treedefs, so that one program serves both"
        case.fail(path, got, "a distinct treedef for a distinct static")
    got = f"{values}: the same value, recreated, gives another treedef, and recompiles"
    fix = "compare statics by value" if before == after else ""
    case.fail(path, got, "equal treedefs", fix=fix)


def _check_arguments(case: Case, position: EditPosition, edit: ArgumentEdit) -> None:
    """Fail if ``==`` of two statics ignores an argument that they store."""
    trees = position.put(edit.one), position.put(edit.other)
    if jax_equal(edit.one, edit.other) is not True or None in trees:
        return
    path, cls = position.path, type(edit.one).__name__
    one, other = (case.structure(tree, path) for tree in trees)
    if case.same_structure(one, other, path):
        texts = [
            ", ".join(f"{name}={format_static(value)}" for name, value in arguments.items())
            for arguments in edit.arguments
        ]
        equal = f"{cls}({texts[0]}) == {cls}({texts[1]}), with equal treedefs"
        got = f"{equal}, so that one program serves both"
        fix = f"compare `{edit.argument}` in `{cls}.__eq__`, or make {cls} a frozen dataclass"
        case.fail(path, got, f"a treedef that depends on `{edit.argument}`", fix=fix)


def aux_data_hash(case: Case) -> None:
    """Hash the aux_data of the instance, of an equal one, and of some with other statics."""
    x = case.instance
    aux = _aux_of(x)
    try:
        first = hash(aux)
    except Exception as error:  # noqa: BLE001  # user code
        problem = message_of(error)
        path = _static_that_raises(case, lambda name: hash(getattr(x, name)), problem)
        what = short_repr(getattr(x, path) if path else aux)
        what += f" ({type(getattr(x, path)).__name__})" if path else ""
        case.fail(path, f"{what}, {UNHASHABLE} {problem}", "aux_data with a hash")
    edits = [edit for _, edit in case.edits.drawn if edit.kind is EditKind.STATIC_VALUE]
    # Not inside a part of the same class, whose statics are in other aux_data.
    edits = [edit for edit in edits if edit.path in case.names.static]
    edits = [edit for edit in edits if edit.path == edits[0].path]
    edited = [(edit.path, edit.edited) for edit in edits]
    hashes = {first}
    for path, other in (("", x), *_fresh_instances(case), *edited):
        twin = _aux_of(other)
        hashed = case.attempt("hash of aux_data", hash, twin, path=path)
        hashes.add(hashed)
        if hashed != first and case.attempt("== of aux_data", operator.eq, aux, twin, path=path):
            got = f"equal aux_data with two hashes: {short_repr(aux)}"
            case.fail(path, got, "equal values have equal hashes", fix="hash what == compares")
    if len(hashes) > 1 or not edits:
        return
    values = [edits[0].before, *(edit.after for edit in edits)]
    try:
        different = len(set(map(hash, values)))
    except TypeError:
        return
    if different >= (2 if isinstance(values[0], bool) else _MANY - 1):  # or it may be a coincidence
        texts = ", ".join(format_static(value) for value in values)
        fix = "hash all that == compares: JAX never asks for it, but a dict with such keys is slow"
        case.fail(edits[0].path, f"{ONE_HASH} {texts}", "a hash that depends on it", fix=fix)


def _aux_of(instance: Any) -> Any:
    level: Any = jax.tree_util.default_registry.flatten_one_level(instance)
    return level[1]


def distinct_classes(case: Case) -> None:
    """Compare with an instance of a different dataclass with as many children and statics."""
    other = lookalike_of(case.instance)
    if other is None:
        return
    own, others = case.structure(case.instance), case.structure(other)
    if case.same_structure(own, others) or case.same_structure(others, own):
        got = f"the treedef of an instance equals that of another class, {short_repr(others, 100)}"
        case.fail("", got, "distinct treedefs: lax.cond and lax.scan would confuse the two")
