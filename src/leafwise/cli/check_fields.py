"""Changing each field alone: the edits that are made, and a row for each."""

import itertools
import math
import re
import time
import typing
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Any, Final

import jax
from hypothesis import strategies as st

from leafwise._classes.annotations import unwrap
from leafwise._compare.changes import is_function
from leafwise._findings.reasons import Outcome
from leafwise._findings.words import without_addresses
from leafwise._jit.jax_errors import as_static
from leafwise._objects.attributes import compares_by_identity, never_changes
from leafwise._objects.classes import is_a
from leafwise._objects.interrupts import or_default
from leafwise._objects.locks import cached_property
from leafwise._objects.source.code import is_installed_module
from leafwise._objects.text import got
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise._trees.roles import field_names_of, field_order
from leafwise.cli.check_result import CheckVerdict, FieldChange, verdict_of
from leafwise.errors import CannotBuildError
from leafwise.testing._format import format_error, format_leaf, short_repr
from leafwise.testing._laws.case import place
from leafwise.testing._laws.libraries import WITH_HASH, is_own, library_of
from leafwise.testing._laws.run import NO_TIME, find
from leafwise.testing._recompilation import promised
from leafwise.testing._subject import ObservedCall, SubjectProbe
from leafwise.testing.strategies._annotations import InstancePlan
from leafwise.testing.strategies._constructor import (
    FieldContext,
    is_abstract,
    is_user_registered,
    parameter_for,
)
from leafwise.testing.strategies._edit_positions import (
    EditPosition,
    Role,
    edit_positions,
    is_below,
    owner_at,
    rebuilt,
)
from leafwise.testing.strategies._edits import (
    LEAF_EDITS,
    Edit,
    EditKind,
    by_annotation,
    edits_of,
    make_edit,
    options_of,
    twins,
)
from leafwise.testing.strategies._leaves import is_numeric


class Example:
    """The simplest instance of a class, and the positions where it can be changed."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        if is_user_registered(cls) or issubclass(cls, Enum):
            strategies = [st.from_type(cls).map(lambda instance: (None, instance))]
        elif is_abstract(cls):
            raise CannotBuildError(
                f"{cls.__name__}: an abstract class has no instances; check its subclasses"
            )
        else:
            plans = [InstancePlan(cls, FieldContext(cls)) for _ in range(2)]
            strategies = [plans[0].with_arguments(plain=True), plans[1].with_arguments()]
            if all(parameter.make_default is None for parameter in plans[0].parameters):
                del strategies[1]  # the arguments are the same
        self._arguments, instance = _first_found(strategies)
        self.base = rebuilt(instance)

    @cached_property
    def positions(self) -> list[EditPosition]:
        return list(edit_positions(self.base, arguments=self._arguments))

    @cached_property
    def probe(self) -> SubjectProbe:
        return SubjectProbe(for_jit(self.base))


def _first_found(strategies: list[Any]) -> Any:
    """Return an instance from the first strategy that has one, if possible without empty fields."""
    refused: Exception = LookupError()
    for strategy, filled in itertools.product(strategies, (True, False)):
        try:
            return find(strategy, _has_leaves, _FEW) if filled else find(strategy, bool)
        except (LookupError, CannotBuildError) as error:
            refused = error
    raise refused


_FEW: Final = 20
"""How many instances are drawn before one with an empty field is accepted."""


def _has_leaves(drawn: tuple[Any, Any]) -> bool:
    fields = (getattr(drawn[1], name) for name in field_names_of(drawn[1]).dynamic)
    return all(any(map(is_numeric, jax.tree_util.tree_leaves(field))) for field in fields)


def untraceable(example: Example) -> str:
    """Return why jitted functions do not accept an instance's leaves; empty if they do."""
    try:
        example.probe  # noqa: B018  # calls its function
    except Exception:  # JAX's, for a leaf that it does not take; or of a user's flatten
        for position in example.positions:
            if position.role is not Role.LEAF or is_numeric(position.value):
                continue
            if or_default(None)(SubjectProbe)(position.value) is not None:
                continue
            leaf, where = position.value, position.path  # for which JAX raises one of several types
            owner = owner_at(example.base, where)
            while is_installed_module(type(owner).__module__) and "." in where:
                where = where.rpartition(".")[0]  # the user's field that holds an optimizer
                owner = owner_at(example.base, where)
            name = where.rpartition(".")[2].partition("[")[0]
            return without_addresses(
                f"{place(example.cls, where)}: JAX cannot trace {got(leaf)}, so no jitted function "
                f"accepts the class\n  fix: {_fix_of_untraceable(owner, name, leaf)}"
            )
        raise
    base = for_jit(example.base)
    leaves, treedef = jax.tree.flatten(base)
    if type(jax.tree.unflatten(treedef, leaves)) is not type(base):
        raise TypeError("unflatten gives an instance of another class")
    return ""


def _fix_of_untraceable(owner: Any, name: str, leaf: Any) -> str:
    cls: Any = type(leaf)
    is_open = compares_by_identity(cls) or (cls.__hash__ is None and hasattr(leaf, "__dict__"))
    is_open &= not (callable(leaf) or never_changes(cls) or is_a(leaf, Enum | dict | list | set))
    if is_open and cls.__module__ != "builtins":
        is_own = not is_installed_module(cls.__module__)
        end = f"or make {cls.__name__} an `@lw.pytree`" if is_own else "as its library does"
        return f"it is a mutable object: take its value out before the call, {end}"
    holds_functions = is_function(leaf) and getattr(owner, name, leaf) is not leaf
    fix = f"make it {as_static(type(owner), name, by_content=holds_functions)}"
    try:
        hash(getattr(owner, name, leaf))
    except TypeError:
        fix += f", as {WITH_HASH}"
    return fix


def check_fields(
    example: Example, only: Collection[str] = (), until: float = math.inf
) -> Iterator[FieldChange]:
    """Change each field alone, or only some, until a CPU time, and count traces and compiles."""
    names = field_names_of(example.base)
    for name in field_order(example.base):
        if only and name not in only:
            continue
        static = name not in names.dynamic
        if time.process_time() > until:
            yield FieldChange(name, static, "", "", note=NO_TIME)
            continue
        try:
            for edit in _static_edits(example, name) if static else _dynamic_edits(example, name):
                if isinstance(edit, tuple):
                    yield FieldChange(name, static, *edit)
                else:
                    yield observe(example, edit, static=static)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # user code: go on
            verdict = verdict_of(error)
            yield FieldChange(name, static, "", "", verdict=verdict, note=format_error(error))


def for_jit(tree: Any) -> Any:
    """Return a tree as `equinox.filter_jit` passes it: without functions and texts in modules."""

    def is_module(node: Any) -> bool:
        return library_of(type(node)) == "equinox"

    def numeric_or_none(leaf: Any) -> Any:
        return leaf if is_numeric(leaf) else None

    def numbers_in(node: Any) -> Any:
        return jax.tree.map(numeric_or_none, node) if is_module(node) else node

    has_modules = any(map(is_module, jax.tree.leaves(tree, is_leaf=is_module)))
    return jax.tree.map(numbers_in, tree, is_leaf=is_module) if has_modules else tree


def _label(kind: EditKind) -> str:
    return "structure" if kind is EditKind.CONTAINER else re.sub("^(leaf|static) ", "", kind)


def observe(example: Example, edit: Edit[Any], *, static: bool) -> FieldChange:
    """Call a jitted function that was called with the instance with the edited one."""
    kind = _label(edit.kind)
    is_in_module = edit.kind is EditKind.CONTAINER and for_jit(example.base) is not example.base
    # A change only of leaves that `for_jit` removes.
    if is_in_module and not all(map(is_numeric, jax.tree.leaves((edit.before, edit.after)))):
        return FieldChange(edit.path, static, kind, edit.change)
    seen = example.probe.try_observe(for_jit(edit.edited))
    if seen is None:
        return FieldChange(edit.path, static, kind, f"{edit.change}{_REFUSED}")
    verdict, note = _judge(edit, seen, kind, static=static)
    is_type_violation = verdict is CheckVerdict.VIOLATION and edit.kind is EditKind.STATIC_TYPE
    if is_type_violation and not is_own(example.cls):
        verdict = CheckVerdict.WARNING
    outcome = str(seen.expected), seen.counts.traces, seen.counts.compiles
    return FieldChange(edit.path, static, kind, edit.change, *outcome, verdict, note)


def _judge(
    edit: Edit[Any], seen: ObservedCall, kind: str, *, static: bool
) -> tuple[CheckVerdict, str]:
    if seen.outcome is Outcome.ERROR:
        return CheckVerdict.ERROR, str(seen.predicted).removeprefix(f"{Outcome.ERROR}: ")
    if not seen.is_as_predicted or max(seen.counts.traces, seen.counts.compiles) > 1:
        return CheckVerdict.MISMATCH, f"predicted a {seen.expected}, and JAX did a {seen.outcome}"
    promise = promised(edit)
    if promise not in (None, seen.outcome):
        wanted = "a retrace" if promise is Outcome.RETRACE else "no retrace"
        of = "static" if static else "dynamic"
        return CheckVerdict.VIOLATION, f"a {kind} change of a {of} field promises {wanted}"
    return CheckVerdict.OK, ""


FieldEdit = Edit[Any] | tuple[str, str]
"""An edit of one field, or, if it cannot be made, its kind and why."""


def _static_edits(example: Example, name: str) -> Iterator[FieldEdit]:
    """Yield the edits of a static to another value, and to an equal value of another type."""
    position = next((position for position in example.positions if position.path == name), None)
    if position is None or position.make is None:
        why = "not a parameter of the constructor" if position else "computed, not in the treedef"
        if parameter_for(example.cls, name):
            why = "the constructor does not store what it is given"
        yield "value", why
        return

    def is_other(edit: Edit[Any]) -> bool:
        distinct = is_distinct(edit.before, edit.after)
        # Functions that a constructor creates each time have the same content.
        if distinct is None or is_distinct(edit.before, edit.after, "content") is False:
            before: Any = jax.tree_util.tree_structure(example.base)
            distinct = bool(before != jax.tree_util.tree_structure(edit.edited))
        return distinct and jax_equal(edit.before, edit.after) is not True

    options = options_of([position], [EditKind.STATIC_VALUE])
    try:
        if (annotated := by_annotation(position)) is not None:
            options = {EditKind.STATIC_VALUE: [(position, annotated)]}
        yield find(edits_of(options), is_other)
    except CannotBuildError as error:
        yield "value", without_addresses(str(error)).splitlines()[0]
    except LookupError:
        yield "value", "no other value was found"
    others = twins(position.value)
    edits = (make_edit(EditKind.STATIC_TYPE, position, other) for other in others)
    yield from itertools.islice(filter(None, edits), 1)


_REFUSED: Final = ": the class refuses it"


def _dynamic_edits(example: Example, name: str) -> Iterator[FieldEdit]:
    """Yield the edits of the first numeric leaf in a field."""
    inside = [position for position in example.positions if is_below(position.path, [name])]
    leaves = (leaf._replace(path=name) for leaf in inside if leaf.role is Role.LEAF)
    position = next((leaf for leaf in leaves if is_numeric(leaf.value)), None)
    if position is not None:
        yield from _leaf_edits(position)
        parameter = parameter_for(example.cls, name)
        if parameter is None or type(None) not in typing.get_args(unwrap(parameter.kind)):
            return
    itself = [position for position in inside if position.path == name]
    options = options_of(itself, [EditKind.CONTAINER])
    before: Any = jax.tree_util.tree_structure(getattr(example.base, name))

    def is_other(edit: Edit[Any]) -> bool:  # flatten may decide by value what is a leaf
        return bool(before != jax.tree_util.tree_structure(getattr(edit.edited, name)))

    try:
        yield find(edits_of(options), is_other)
    except LookupError:
        value = short_repr(getattr(example.base, name))
        yield "structure", f"{value} has no leaf that could be changed"


def _leaf_edits(position: EditPosition) -> Iterator[FieldEdit]:
    leaf = position.value
    for kind in (EditKind.LEAF_VALUE, EditKind.SHAPE, EditKind.DTYPE, EditKind.WEAK_TYPE):
        other = LEAF_EDITS[kind](leaf)
        if other is not None:
            change = f"{format_leaf(leaf)} -> {format_leaf(other)}"
            yield make_edit(kind, position, other) or (_label(kind), f"{change}{_REFUSED}")
        elif kind is EditKind.LEAF_VALUE:
            yield "value", f"{format_leaf(leaf)} has no elements"
