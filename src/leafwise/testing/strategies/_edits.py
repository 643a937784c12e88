"""Changes to one value in an instance, of every kind that JAX can see."""

import dataclasses
import enum
import math
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from leafwise._classes.annotations import unwrap
from leafwise._objects.attributes import is_installed, stored_attributes
from leafwise._objects.classes import per_class
from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._objects.interrupts import or_default
from leafwise._objects.parts import is_key
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise.testing._format import format_change, format_leaf, format_static, short_repr
from leafwise.testing.strategies._annotations import (
    InstancePlan,
    argument_for,
    is_static,
    says_nothing,
)
from leafwise.testing.strategies._arrays import FUNCTIONS, Strategy
from leafwise.testing.strategies._constructor import (
    FieldContext,
    call,
    has_fields,
    is_made_in_python,
)
from leafwise.testing.strategies._edit_positions import EditPosition, Role, edit_positions, is_below
from leafwise.testing.strategies._leaves import (
    is_default_dtype,
    is_numeric,
    other_dtype,
    other_kind,
    other_shape,
    other_value,
    other_weak_type,
)

T = TypeVar("T")


class EditKind(enum.StrEnum):
    """What an edit changes."""

    LEAF_VALUE = "leaf value"
    """The elements of a leaf, which no program depends on."""
    STATIC_VALUE = "static value"
    """The value of a static, or of a part of it."""
    STATIC_TYPE = "static type"
    """The type of a static, or of a part of it; the value is equal."""
    SHAPE = "shape"
    """The shape of a leaf."""
    DTYPE = "dtype"
    """The dtype of a leaf."""
    WEAK_TYPE = "weak type"
    """Whether a leaf is weakly typed."""
    ARRAY_KIND = "kind of array"
    """Whether a leaf is a JAX array, a NumPy array or a Python scalar. Its aval is the same."""
    CONTAINER = "container"
    """The structure: list to tuple, an element added or removed, None instead of a leaf."""


@dataclasses.dataclass(frozen=True)
class Edit(Generic[T]):
    """A change to one value in an instance.

    Attributes:
        path: Its path: ``layers[0].w``; empty for the whole instance.
        kind: What is changed.
        before: The value before the change.
        after: The value after the change.
        edited: The changed instance; the original is unchanged.
    """

    path: str
    kind: EditKind
    before: Any
    after: Any
    edited: T

    def __str__(self) -> str:
        """Return one line: path, kind, and the change."""
        return f"{self.path or 'the whole'}: {self.kind}: {self.change}"

    @property
    def change(self) -> str:
        """The change as text: ``2 -> 3``."""
        if self.kind is EditKind.STATIC_TYPE:
            kind = type(self.after).__name__
            return f"{format_static(self.before)} -> {short_repr(self.after)} ({kind})"
        describe = format_static if self.kind is EditKind.STATIC_VALUE else format_leaf
        before, after = describe(self.before), describe(self.after)
        if self.kind is EditKind.LEAF_VALUE and before == after:
            return f"{before}, other elements"
        if self.kind is EditKind.ARRAY_KIND or (describe is format_static and before == after):
            before = f"{before} ({type(self.before).__name__})"
            after = f"{after} ({type(self.after).__name__})"
        return format_change(before, after)


def _other_containers(value: Any) -> Strategy | None:
    """Return a strategy for trees that differ in structure from a leaf or container."""
    kind = type(value)
    if value is None:
        return st.sampled_from([1.0, ()])
    if kind is list or kind is tuple:
        turned = tuple(value) if kind is list else list(value)
        return st.sampled_from([turned, value[:-1] if value else kind([1.0]), kind([*value, 1.0])])
    if kind is dict:
        return st.sampled_from(_mappings(value, 1.0))
    return st.sampled_from([None, (value,)]) if is_numeric(value) else None


def _mappings(value: Any, item: Any) -> list[dict[Any, Any]]:
    """Return mappings with one key more, if keys are strings, and with one less."""
    made: list[dict[Any, Any]] = [dict(list(value.items())[:-1])] if value else []
    if all(isinstance(key, str) for key in value):
        made.insert(0, {**value, "".join(["extra", *value]): item})
    return made


class StrSubclass(str):
    """A string that equals a `str` but has another type."""

    __slots__ = ()
    __repr__ = str.__repr__


class TupleSubclass(tuple[Any, ...]):
    """A tuple that equals a `tuple` but has another type."""

    __slots__ = ()


def twins(value: Any) -> Iterator[Any]:
    """Yield values that equal `value` (``==``) but have another type."""
    conversions = (row for cls, row in _CONVERSIONS.items() if isinstance(value, cls))
    for convert in next(conversions, ()):
        try:
            twin = convert(value)
        except (OverflowError, ValueError):  # the type cannot represent it
            continue
        if type(twin) is not type(value) and twin == value:
            yield twin


_CONVERSIONS: Final[dict[type, tuple[Callable[[Any], Any], ...]]] = {
    enum.Enum: (lambda member: member.value,),
    bool: (int,),
    int: (float, np.int64),
    float: (int, np.float64, float),
    str: (StrSubclass,),
    tuple: (TupleSubclass,),
}
"""Functions to values that may be equal, by class; the first class that matches counts."""


def _other_statics(value: Any) -> Strategy | None:
    """Return a strategy for other statics, mostly of the same type; None if none are known."""
    if type(value) is int:
        strategy: Strategy = st.integers(0, 9) | st.integers(-99, 99)
    elif type(value) is float:
        simple = st.sampled_from([0.0, 1.0, 0.5, -0.0])
        strategy = simple | st.floats(-99, 99, width=16) | st.just(math.nan)
    else:
        # None for objects with fields, which are changed instead.
        is_function = callable(value) and not hasattr(type(value), "_fields")
        functions = list(FUNCTIONS) if is_function else []
        others = (make(value) for kind, make in _OTHERS.items() if isinstance(value, kind))
        values = [new for new in next(others, functions) if is_distinct(value, new) is not False]
        return st.sampled_from(values) if values else None
    return strategy.filter(lambda new: is_distinct(value, new) is not False)


def _other_static_arrays(value: StaticArray) -> list[Any]:
    elements = np.asarray(value)
    is_full = elements.size and is_numeric(elements)
    return [StaticArray(other_value(elements) if is_full else np.ones(2, "int8"))]


def _raw_arrays(value: Any) -> list[Any]:
    """Return arrays, which should not be statics but which some libraries accept."""
    one_more = np.asarray(value)[None]
    changed = [other_value(value), other_shape(value), other_dtype(value), one_more]
    make: Any = np.asarray if isinstance(value, np.ndarray) else jnp.asarray
    return [make(each) for each in changed if each is not None]


_OTHERS: Final[dict[Any, Callable[[Any], list[Any]]]] = {
    enum.Enum: lambda member: list(member.__class__),
    bool: lambda value: [not value],
    str: lambda text: ["", "other", f"{text}s", text.upper()],
    bytes: lambda text: [b"", b"other", text + b"s"],
    type(None): lambda _: [0, "other", ()],
    np.generic: lambda number: [other_value(number)] if is_numeric(number) else [],
    tuple: lambda items: (
        [(*items, "extra"), items[:-1], items[::-1]] if type(items) is tuple else []
    ),
    frozenset: lambda items: [items | {"extra"}, frozenset(list(items)[1:])],
    FrozenMapping: lambda items: list(map(FrozenMapping, _mappings(items, 1))),
    StaticArray: _other_static_arrays,
    (np.ndarray, jax.Array): lambda array: _raw_arrays(array) if is_numeric(array) else [],
    np.dtype: lambda _: [jnp.dtype("int32"), jnp.dtype("float32")],
    type: lambda _: [np.float32, np.int32, int],
}
"""Other statics, by class; the first class that matches counts."""


LEAF_EDITS: Final[dict[EditKind, Callable[[Any], Any]]] = {
    EditKind.LEAF_VALUE: other_value,
    EditKind.SHAPE: other_shape,
    EditKind.DTYPE: other_dtype,
    EditKind.WEAK_TYPE: other_weak_type,
    EditKind.ARRAY_KIND: other_kind,
}
"""Functions that return a leaf with another property, or None; no others affect a program."""

Options = dict[EditKind, list[tuple[EditPosition, Strategy]]]
"""By kind of edit: the positions where it can be made, each with a strategy for new values."""


def options_of(
    positions: Iterable[EditPosition], kinds: Iterable[EditKind] = tuple(EditKind)
) -> Options:
    """Return the edits that can be made at some positions."""
    found: Options = {}
    positions = [position for position in positions if position.make is not None]
    for kind in kinds:
        for position in positions:
            if (strategy := _others(kind, position)) is not None:
                found.setdefault(kind, []).append((position, strategy))
    return found


def _others(kind: EditKind, position: EditPosition) -> Strategy | None:
    """Return a strategy for the new values of an edit at a position, or None without any."""
    value, role = position.value, position.role
    if kind in LEAF_EDITS:
        is_leaf = role is Role.LEAF and is_numeric(value) and can_be_other(kind, value)
        # Created when drawn, since only few of many leaves are.
        return st.just(value).map(LEAF_EDITS[kind]) if is_leaf else None
    if kind is EditKind.CONTAINER:
        return None if role is Role.STATIC else _other_containers(value)
    if role is not Role.STATIC:
        return None
    if kind is EditKind.STATIC_TYPE:
        equal = list(twins(value))
        return st.sampled_from(equal) if equal else None
    annotation = unwrap(position.parameter.kind) if position.parameter else None
    if typing.get_origin(annotation) is typing.Literal:
        others = [choice for choice in typing.get_args(annotation) if is_distinct(choice, value)]
        return st.sampled_from(others) if others else None
    return _other_statics(value)


def can_be_other(kind: EditKind, leaf: Any) -> bool:
    """Return whether an edit of a kind exists for a leaf, without making one for an array."""
    if kind is EditKind.LEAF_VALUE:
        return bool(np.size(leaf))
    if kind is EditKind.WEAK_TYPE and not is_key(leaf):
        return is_default_dtype(jax.typeof(leaf).dtype)
    if kind is EditKind.ARRAY_KIND:
        return other_kind(leaf) is not None
    return kind is EditKind.SHAPE or not is_key(leaf)


def by_annotation(position: EditPosition) -> Strategy | None:
    """Return a strategy from the annotation of a static, or None if it allows anything."""
    parameter = position.parameter
    if parameter is None or says_nothing(parameter.kind):
        return None
    cls = type(position.owner)
    where = FieldContext(parameter.owner, ((cls, position.name),), is_static(cls, parameter))
    return argument_for(cls, parameter, where)


def edits(
    instance: T,
    *,
    kinds: Iterable[EditKind | str] | EditKind | str | None = None,
    at: str | Iterable[str] | None = None,
) -> "st.SearchStrategy[Edit[T]]":
    """Return a strategy for changes to one value in an instance.

    Args:
        instance: An instance of a pytree class of any library, or any other pytree. It is
            not changed.
        kinds: The kinds of edits; None for all that are possible.
        at: One or several paths such as ``"config.depth"``, which include what is below;
            None for everywhere.

    Returns:
        A strategy for `Edit`. It shrinks to the simplest change that makes a test fail.

    Raises:
        TypeError: `instance` is a class.
        ValueError: A kind is unknown, a path does not exist, or no such edit is possible.

    Examples:
        >>> @given(st.data())  # doctest: +SKIP
        ... def test(data):
        ...     params = data.draw(instances(Params))
        ...     edit = data.draw(edits(params, kinds=["leaf value"]))
        ...     assert jax.tree.structure(edit.edited) == jax.tree.structure(params)
    """
    if isinstance(instance, type):
        raise TypeError(
            f"edits takes an instance, got the class {instance.__qualname__}\n"
            f"  fix: instances({instance.__name__}).flatmap(edits)"
        )
    named = [kinds] if isinstance(kinds, str) else EditKind if kinds is None else kinds
    chosen = list(map(EditKind, named))
    paths = [at] if isinstance(at, str) else None if at is None else list(at)
    positions = list(edit_positions(instance))
    if paths is not None:
        known = [position.path for position in positions]
        for path in paths:
            if not any(is_below(place, [path]) for place in known):
                names = ", ".join(dict.fromkeys(filter(None, known)))
                kind = type(instance).__name__
                raise ValueError(f"{kind}: nothing is at {path!r}; choose from {names}")
        positions = [position for position in positions if is_below(position.path, paths)]
    options = options_of(positions, chosen)
    if not options:
        names = " or ".join(chosen) or "(none)"
        where = f" at {' or '.join(paths) or '(nowhere)'}" if paths is not None else ""
        raise ValueError(f"{type(instance).__name__}: there is no edit of the kind {names}{where}")
    return edits_of(options)


@st.composite
def edits_of(draw: st.DrawFn, options: Options) -> Edit[Any]:
    kind = draw(st.sampled_from(list(options)))
    position, strategy = draw(st.sampled_from(options[kind]))
    return make_edit(kind, position, draw(strategy)) or hypothesis.reject()


@or_default(None)  # a user's checks
def make_edit(kind: EditKind, position: EditPosition, new: Any) -> Edit[Any] | None:
    """Return an edit; None if the class rejects the value, or stores the old one."""
    if position.make is None:
        return None
    made = position.make(new)
    edited = position.around(made)
    leaves, structure = jax.tree_util.tree_flatten(edited)
    jax.tree_util.tree_unflatten(structure, leaves)  # may call the constructor
    is_named = position.role is Role.STATIC and position.name
    stored = getattr(made, position.name) if is_named else new
    if is_named and is_distinct(position.value, stored) is False:
        return None
    if kind is EditKind.STATIC_TYPE and type(stored) is not type(new):
        return None  # a converter changed the type back
    return Edit(position.path, kind, position.value, stored, edited)


class ArgumentEdit(NamedTuple):
    """Two objects made with different values of one argument, which both store."""

    argument: str
    arguments: tuple[dict[str, Any], dict[str, Any]]
    one: Any
    other: Any


def argument_edits(cls: Any, draw: Callable[[Strategy], Any]) -> Iterator[ArgumentEdit]:
    """Draw arguments twice, and yield an edit for each argument that is replaced alone."""
    # Without a user's ``__eq__`` there are no edits; an argument that is not stored has none.
    is_record = has_fields(cls) or hasattr(cls, "__attrs_attrs__")  # fields are edited directly
    if is_record or is_installed(cls.__eq__) or not is_made_in_python(cls):
        return
    try:
        (arguments, one), (others, _) = (draw(_with_arguments(cls)) for _ in range(2))
        held, again = map(stored_attributes, (one, call(cls, arguments)))
    except (Exception, SystemExit):  # noqa: BLE001  # user checks
        return
    # `self.number = next(numbers)` differs each time.
    names = [name for name in held if not _is_other(held[name], again.get(name))]
    for argument, after in others.items():
        changed = {**arguments, argument: after}
        other = or_default(None)(call)(cls, changed)
        if other is None:  # a user's checks refuse it
            continue
        stored = stored_attributes(other)
        if any(_is_other(held[name], stored.get(name)) for name in names):
            yield ArgumentEdit(argument, (arguments, changed), one, other)


@per_class
def _with_arguments(cls: Any) -> Strategy:
    return InstancePlan(cls, FieldContext(cls, static=True)).with_arguments()


def _is_other(before: Any, after: Any) -> bool:
    """Return whether two values differ also by ``==``, unlike 0.0 and -0.0."""
    return is_distinct(before, after) is True and jax_equal(before, after) is False
