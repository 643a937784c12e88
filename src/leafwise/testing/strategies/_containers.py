"""Strategies for values that are made of others: unions, sequences, sets and mappings."""

import collections
import collections.abc
import dataclasses
import functools
import inspect
import operator
import types
import typing
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import jax
import numpy as np
from hypothesis import strategies as st

from leafwise._classes.annotations import named_by
from leafwise._objects.frozen import FrozenMapping
from leafwise.errors import CannotBuildError
from leafwise.testing.strategies._arrays import Strategy, array_values, own_dims
from leafwise.testing.strategies._constructor import EndlessError, FieldContext
from leafwise.testing.strategies._scalars import (
    Ask,
    Rule,
    constant,
    is_exactly,
    is_origin,
    issubclass_of,
    origin_of,
)

_DIGITS: Final = st.integers(0, 9)
NAMES: Final = st.sampled_from(["a", "b", "c"])


def _union(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    parts = typing.get_args(kind)
    members = [part for part in parts if part is not type(None)]
    none = [st.none()] if len(members) < len(parts) else []
    if np.number in members and jax.Array in members:  # jax.typing.ArrayLike, flattened
        like = st.one_of(array_values(jax.Array, where), st.floats(-10, 10, width=16))
        return st.one_of(*none, like) if where.varied else st.one_of(like, *none)
    strategies: list[Strategy] = []
    refusals: list[CannotBuildError] = []
    for part in members:
        try:
            strategies.append(ask(part, where))
        except CannotBuildError as error:
            refusals.append(error)
    ends = none and all(isinstance(error, EndlessError) for error in refusals)
    if refusals and not strategies and not ends:
        raise refusals[0]
    # The simplest instance has None where it may; the one that is checked has a value.
    return st.one_of(*none, *strategies) if where.varied else st.one_of(*strategies, *none)


def _array_like(_kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    made = array_values(jax.Array, where)
    return made | st.floats(-10, 10, width=16) if where.varied else made


class _Sizes(typing.NamedTuple):
    smallest: int
    largest: int


def _many(
    items: list[Any], where: FieldContext, ask: Ask, largest: int = 3
) -> tuple[list[Strategy], _Sizes]:
    """Return the strategies of items, and how many there may be: none if they cannot end."""
    try:
        strategies = [ask(item, where) for item in items]
    except EndlessError:
        return [st.nothing()] * len(items), _Sizes(0, 0)
    return strategies, _Sizes(0 if where.varied else 1, largest)


def _items(kind: Any) -> list[Any]:
    return [part for part in typing.get_args(kind) if part is not ...]


def _tuple(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    said = typing.get_args(kind)
    if kind == tuple[()]:
        return st.just(())
    if not said:
        return st.lists(_DIGITS, max_size=3).map(tuple)
    if said[-1] is ...:
        (item,), sizes = _many(_items(kind), where, ask)
        return st.lists(item, min_size=sizes.smallest, max_size=sizes.largest).map(tuple)
    return st.tuples(*[ask(part, where) for part in said])


def _sequence(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    parts = typing.get_args(_items(kind)[0]) if _items(kind) else ()
    if origin_of(kind) in (Iterable, Iterator) and len(parts) == 2 and says_nothing(parts[0]):  # noqa: PLR2004
        pairs = _mapping(types.GenericAlias(dict, parts), where, ask)
        return pairs.map(lambda drawn: tuple(drawn.items()))
    (item,), sizes = _many(_items(kind) or [None], where, ask)
    if not _items(kind):
        item = _DIGITS
    made = st.lists(item, min_size=sizes.smallest, max_size=sizes.largest)
    origin = origin_of(kind)
    if origin in (list, collections.abc.MutableSequence):
        return made
    return made.map(collections.deque if origin is collections.deque else tuple)


def _set(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    (item,), sizes = _many(_items(kind) or [None], where, ask)
    if not _items(kind):
        item = _DIGITS
    made = st.frozensets(item, min_size=sizes.smallest, max_size=sizes.largest)
    mutable = origin_of(kind) in (set, collections.abc.MutableSet)
    return made.map(set) if mutable and where.varied else made


def _mapping(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    items = _items(kind)
    keys = ask(items[0], dataclasses.replace(where, as_key=True)) if items else NAMES
    # A subclass of dict may have one parameter of its own.
    (values,), sizes = _many(items[1:] or [None], where, ask, largest=2)
    if not items[1:]:
        values = _DIGITS
    made = st.dictionaries(keys, values, min_size=sizes.smallest, max_size=sizes.largest)
    made = made.map(_with_keys_of_one_type)
    origin: Any = origin_of(kind)
    if issubclass_of(kind, collections.defaultdict):
        return made.map(functools.partial(origin, None))
    if issubclass_of(kind, dict):
        return made if origin is dict else made.map(origin)
    if _is_own_mapping(kind):
        return made.map(origin)
    if origin is collections.abc.MutableMapping:
        return made
    frozen = made.map(FrozenMapping)
    if origin is FrozenMapping or (where.varied and where.static):
        return frozen
    # Of the two, only a dict is a node of a tree.
    return made if where.varied else frozen | made


def says_nothing(kind: Any) -> bool:
    """Return whether an annotation leaves open what a value is, except that it may have a hash."""
    while isinstance(kind, TypeVar):
        kind = kind.__bound__ or Any
    cls = origin_of(kind)
    is_protocol = isinstance(cls, type) and cls.__dict__.get("_is_protocol", False)
    hashable = cls is Hashable or (is_protocol and Hashable in cls.__mro__)
    return hashable or kind in (Any, object, inspect.Parameter.empty)


def _with_keys_of_one_type(drawn: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict without the keys that JAX could not sort, so that it could not flatten it."""
    first: Any = next(iter(drawn), None)
    alike: dict[Any, Any] = {key: value for key, value in drawn.items() if type(key) is type(first)}
    try:
        sorted(alike)
    except TypeError:  # complex numbers, members of most enums
        return {first: drawn[first]}
    return alike


def _is_own_mapping(kind: Any) -> bool:
    """Return whether it is a library's mapping, made from a dict as a rule: ``nnx.State``."""
    origin: Any = origin_of(kind)
    is_mapping = issubclass_of(kind, Mapping) and not issubclass_of(kind, dict, FrozenMapping)
    if not is_mapping or inspect.isabstract(origin):
        return False
    if typing.get_args(kind):
        return True
    try:
        return jax.tree_util.is_tree_node(origin) and isinstance(origin({}), Mapping)
    except Exception:  # noqa: BLE001  # its own constructor
        return False


def _typed_dict(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    kind = origin_of(kind)
    fields, where = _fields_of(kind), dataclasses.replace(where, home=kind)
    needed = {name: ask(fields[name], where) for name in fields if name in kind.__required_keys__}
    free: dict[str, Strategy] = {}
    for name in fields.keys() - needed.keys():
        try:
            free[name] = ask(fields[name], where)
        except CannotBuildError as error:
            if not where.varied and not isinstance(error, EndlessError):
                raise
    optional = {name: free[name] for name in fields if name in free}
    return _of_one_scope(st.fixed_dictionaries(needed, optional=optional))


def _fields_of(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError:  # each is resolved alone, and refused alone
        return dict(kind.__annotations__)


@st.composite
def _of_one_scope(draw: st.DrawFn, strategy: Strategy) -> Any:
    """Draw a record whose axes have names of their own."""
    with own_dims():
        return draw(strategy)


def _type_variable(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    if kind.__constraints__:
        return ask(functools.reduce(operator.or_, kind.__constraints__), where)
    default = getattr(kind, "__default__", None)  # since Python 3.13
    has_default = getattr(kind, "has_default", lambda: False)()
    return ask(default if has_default else kind.__bound__ or Any, where)


def _tree(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    """Return a strategy for jaxtyping's ``PyTree[leaf]``."""
    leaf = ask(getattr(kind, "leaftype", Any), where)
    if not where.varied:
        return leaf
    return st.one_of(
        leaf,
        st.lists(leaf, max_size=3),
        st.lists(leaf, max_size=2).map(tuple),
        st.dictionaries(NAMES, leaf, max_size=2),
        st.fixed_dictionaries({"a": st.lists(leaf, max_size=2), "b": leaf}),
    )


class AnyNamedTuple(typing.NamedTuple):
    """What is drawn for the annotation ``NamedTuple``, by which blackjax means any of them."""

    first: jax.Array
    second: jax.Array


def _is_tree(kind: Any) -> bool:
    return type(kind).__name__ == "_MetaPyTree" and type(kind).__module__.startswith("jaxtyping")


RULES: Final[tuple[Rule, ...]] = (
    (is_exactly(jax.typing.ArrayLike), _array_like),
    (
        lambda kind: named_by(kind) is not None,
        lambda kind, where, ask: ask(named_by(kind), where),
    ),
    (_is_tree, _tree),
    (lambda kind: isinstance(kind, TypeVar), _type_variable),
    (is_origin(typing.Union, types.UnionType), _union),
    (is_exactly(typing.NamedTuple), lambda _, where, ask: ask(AnyNamedTuple, where)),
    (is_origin(tuple), _tuple),
    (
        is_origin(
            *(list, collections.deque, collections.abc.MutableSequence),
            *(Sequence, Collection, Iterable, Iterator),
        ),
        _sequence,
    ),
    (is_origin(set, frozenset, collections.abc.Set, collections.abc.MutableSet), _set),
    (typing.is_typeddict, _typed_dict),
    (lambda kind: typing.is_typeddict(origin_of(kind)), _typed_dict),
    (
        is_exactly(collections.Counter),
        constant(st.dictionaries(NAMES, _DIGITS, max_size=2).map(collections.Counter)),
    ),
    (
        lambda kind: (
            issubclass_of(kind, dict)
            or _is_own_mapping(kind)
            or origin_of(kind) in (Mapping, collections.abc.MutableMapping, FrozenMapping)
        ),
        _mapping,
    ),
)
"""Later rules are asked only if no earlier one means the annotation."""
