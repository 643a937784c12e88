"""Values for annotations: ours where JAX or a promise asks for them, else those of Hypothesis."""

import collections
import collections.abc
import contextlib
import dataclasses
import functools
import inspect
import itertools
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

import jax
import numpy as np
from hypothesis import strategies as st

from leafwise._classes.annotations import Unknown, named_by, resolve, resolve_known
from leafwise._objects.frozen import FrozenMapping
from leafwise.errors import CannotBuildError
from leafwise.testing.strategies import _instance_plan
from leafwise.testing.strategies._arrays import Strategy, array_values, arrays, own_dims
from leafwise.testing.strategies._constructor import (
    EndlessError,
    FieldContext,
    Parameter,
    is_same,
    substitute,
    takes_more,
)
from leafwise.testing.strategies._find import find
from leafwise.testing.strategies._objects import (
    entry_of,
    has_fields,
    is_abstract,
    is_made_in_python,
    is_protocol,
    is_registered,
    is_user_registered,
    issubclass_of,
    origin_of,
    subclasses_of,
)
from leafwise.testing.strategies._scalars import FLOATS, plain_values
from leafwise.testing.strategies._static_values import (
    BY_ARITY,
    FUNCTIONS,
    OF_MANY,
    PARTIALS,
    TREE_PARTIALS,
)

EMPTY: Final = inspect.Parameter.empty


def strategy_for(kind: Any, where: FieldContext, default: Any = EMPTY) -> Strategy:
    """Return a strategy for the values of an annotation.

    Args:
        kind: The annotation, resolved.
        where: The field that the values are for.
        default: The field's default, whose type serves if the annotation says nothing.

    Raises:
        CannotBuildError: Nothing is known of the annotation; the message says how to
            register a strategy.
    """
    kind = substitute(kind, where.bindings)
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return _annotated(kind, where, default)
    if origin in (Final, typing.ClassVar, typing.Required, typing.NotRequired):
        return strategy_for(typing.get_args(kind)[0], where, default)
    kind = _resolved(kind, where)
    where = where.part_of(kind)
    cls = origin_of(kind)
    inside = cls in where.above and where.varied  # its strategy may be the one that asks
    if not inside and (is_user_registered(kind) or is_user_registered(cls)):
        return _from_hypothesis(_with_our_parts(kind, where), where)
    plain = plain_values(kind, where)
    if plain is not None:
        return plain
    for means, make in _RULES:
        if means(kind):
            return make(kind, where)
    if says_nothing(kind):
        return _anything(kind, where, default)
    if is_made_in_python(kind):
        return _instances(kind, where)
    return _from_hypothesis(kind, where)


def argument_for(cls: Any, parameter: Parameter, where: FieldContext) -> Strategy:
    """Return a strategy for an argument that the field of its name does not refuse alone.

    Raises:
        CannotBuildError: Nothing is known of its annotation.
    """
    return _instance_plan.argument_for(cls, parameter, where, strategy_for)


def accepts_none(kind: Any) -> bool:
    """Return whether an annotation is optional."""
    if typing.get_origin(kind) in (Annotated, Final):
        return accepts_none(typing.get_args(kind)[0])
    return type(None) in typing.get_args(kind)


def says_nothing(kind: Any) -> bool:
    """Return whether an annotation leaves open what a value is, except that it may have a hash."""
    while isinstance(kind, TypeVar):
        kind = kind.__bound__ or Any
    cls = origin_of(kind)
    hashable = cls is Hashable or (is_protocol(cls) and Hashable in cls.__mro__)
    return hashable or kind in (Any, object, EMPTY)


# -------------------------------------------------------------------- what an annotation means


def _annotated(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return what the metadata of ``Annotated`` asks for: a strategy, or limits."""
    inner: Any = kind.__origin__
    remarks: list[Any] = list(kind.__metadata__)
    strategies = [remark for remark in remarks if isinstance(remark, st.SearchStrategy)]
    if strategies:
        return strategies[-1]
    limits = [each for each in remarks if type(each).__module__.startswith("annotated_types")]
    if limits and (typing.get_args(inner) or is_registered(inner)):
        return _limited(inner, limits, where)
    return strategy_for(inner, where, default)


def _limited(kind: Any, limits: list[Any], where: FieldContext) -> Strategy:
    if kind in (int, float):
        made_of: Any = sys.modules["annotated_types"]
        small = [*limits, made_of.Interval(ge=-100, le=100)]
        try:
            return _from_hypothesis(Annotated[kind, *small], where)
        except CannotBuildError:  # the limits ask for others
            pass
    return _from_hypothesis(Annotated[_with_our_parts(kind, where), *limits], where)


def _resolved(kind: Any, where: FieldContext) -> Any:
    """Return what a name inside an annotation stands for: ``list["Node"]``.

    Raises:
        CannotBuildError: It cannot be found.
    """
    if kind is typing.Self:
        return where.home
    if isinstance(kind, dataclasses.Field):  # of `x: field()`, where `x: int = field()` was meant
        return Any
    if isinstance(kind, str | typing.ForwardRef):
        name = kind if isinstance(kind, str) else kind.__forward_arg__
        scopes: list[Any] = [{cls.__name__: cls} for cls in (where.home, *where.above)]
        if isinstance(resolve_known(where.home, name, scopes), str):
            scopes += _homes_of_alias(kind, name, where)
        kind = resolve(where.home, where.text, name, scopes)
    if isinstance(kind, Unknown):
        raise CannotBuildError(
            f"{where}: its annotation cannot be resolved at run time\n"
            f"  fix: import what it names at the top of the module, not for type checkers only; or "
            f"{where.fix()}"
        )
    return kind


def _homes_of_alias(reference: Any, text: str, where: FieldContext) -> list[Any]:
    """Return the namespaces where an alias could be written that contains a forward reference.

    ``Tree = Union[Array, list["Tree"]]`` may be imported under another name, or without ``Tree``.
    """
    own: Any = getattr(reference, "__forward_module__", None)
    if own:
        return [vars(sys.modules[getattr(own, "__name__", own)])]
    around = {id(each) for each in where.around}
    spaces: list[Any] = [getattr(each, "__dict__", {}) for each in list(sys.modules.values())]
    return [
        space
        for space in spaces
        if any(name in space for name in re.findall(r"\w+", text))
        and not around.isdisjoint(map(id, space.values()))
    ]


def _anything(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return a strategy for an annotation that says nothing: ``Any``, ``object``, ``Hashable``."""
    hashable = kind not in (Any, object, EMPTY)
    if default is not EMPTY and isinstance(default, type):
        return st.just(default)  # which other class would do cannot be known
    if default is not EMPTY and default is not None and not hashable:
        return strategy_for(type(default), where)
    if where.as_key:
        return _NAMES | _DIGITS
    if not where.varied:
        return _DIGITS
    if where.static or hashable:
        return _DIGITS | st.sampled_from(["a", "b"]) | st.booleans() | st.tuples(_DIGITS)
    return _DIGITS | st.sampled_from([0.5, 1.0]) | arrays(dtype="float32")


_DIGITS: Final = st.integers(0, 9)
_NAMES: Final = st.sampled_from(["a", "b", "c"])


def _type_variable(kind: Any, where: FieldContext) -> Strategy:
    if kind.__constraints__:
        return strategy_for(functools.reduce(operator.or_, kind.__constraints__), where)
    default = getattr(kind, "__default__", None)  # since Python 3.13
    has_default = getattr(kind, "has_default", lambda: False)()
    return strategy_for(default if has_default else kind.__bound__ or Any, where)


def _with_our_parts(kind: Any, where: FieldContext) -> Any:
    """Return an annotation whose parts Hypothesis draws as we do, unless it knows them itself."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    known = all(part is ... or is_registered(part) for part in parts)
    if known or not (isinstance(origin, type) or origin is typing.Union):
        return kind
    ours: list[Any] = [
        part if part is ... or is_registered(part) else Annotated[part, strategy_for(part, where)]
        for part in parts
    ]
    is_union = origin in (typing.Union, types.UnionType)
    alias: Any = origin
    return functools.reduce(operator.or_, ours) if is_union else alias[tuple(ours)]


def _from_hypothesis(kind: Any, where: FieldContext) -> Strategy:
    """Ask Hypothesis now, since its errors would otherwise come at the first draw."""
    try:
        strategy: Strategy = st.from_type(kind)
        if where.varied:  # within a test, perhaps
            strategy.validate()
        if not where.varied or strategy.is_empty:
            find(strategy, lambda _: True)
    except Exception as error:
        fix = where.fix(getattr(kind, "__name__", None) or str(kind))
        raise CannotBuildError(f"{where}: no values are known for {kind}\n  fix: {fix}") from error
    return strategy


# ------------------------------------------------------------------------------- containers


def _union(kind: Any, where: FieldContext) -> Strategy:
    parts = typing.get_args(kind)
    members = [part for part in parts if part is not type(None)]
    none = [st.none()] if len(members) < len(parts) else []
    strategies: list[Strategy] = []
    refusals: list[CannotBuildError] = []
    if np.number in members and jax.Array in members:  # jax.typing.ArrayLike, flattened
        strategies = [array_values(jax.Array, where), *([FLOATS] if where.varied else ())]
        members = []
    for part in members:
        try:
            strategies.append(strategy_for(part, where))
        except CannotBuildError as error:
            refusals.append(error)
    ends = none and all(isinstance(error, EndlessError) for error in refusals)
    if refusals and not strategies and not ends:
        raise refusals[0]
    # The simplest instance has None where it may; the one that is checked has a value.
    return st.one_of(*none, *strategies) if where.varied else st.one_of(*strategies, *none)


def _tuple(kind: Any, where: FieldContext) -> Strategy:
    parts = typing.get_args(kind)
    if parts[-1:] == (...,) or not hasattr(kind, "__args__"):
        return _collection(kind, where)
    return st.tuples(*[strategy_for(part, where) for part in parts])


def _several(kind: Any, where: FieldContext, largest: int = 3) -> tuple[Strategy, dict[str, Any]]:
    """Return the strategy of an item, and how many there may be: none if they cannot end."""
    try:
        item = strategy_for(kind, where)
    except EndlessError:
        return st.nothing(), {"max_size": 0}
    return item, {"min_size": 0 if where.varied else 1, "max_size": largest}


def _collection(kind: Any, where: FieldContext) -> Strategy:
    origin, item = origin_of(kind), (*typing.get_args(kind), int)[0]
    parts = typing.get_args(item)
    if origin in (Iterable, Iterator) and len(parts) == 2 and says_nothing(parts[0]):  # noqa: PLR2004
        pairs = _mapping(types.GenericAlias(dict, parts), where)
        return pairs.map(lambda drawn: tuple(drawn.items()))
    items, sizes = _several(item, where)
    make: Any = _COLLECTIONS[origin]
    gather = st.frozensets if make in (set, frozenset) else st.lists
    return gather(items, **sizes).map(make)


_COLLECTIONS: Final[dict[Any, type]] = {
    **{kind: kind for kind in (list, tuple, set, frozenset)},
    **{kind: kind for kind in (collections.deque, collections.UserList)},
    collections.abc.MutableSequence: list,
    collections.abc.MutableSet: set,
    collections.abc.Set: frozenset,
    # Of what these could be, a tuple can be a static, and be iterated twice.
    **dict.fromkeys((collections.abc.Sequence, collections.abc.Collection), tuple),
    **dict.fromkeys((Iterable, Iterator, collections.abc.Container), tuple),
    collections.abc.Reversible: tuple,
}


def _mapping(kind: Any, where: FieldContext) -> Strategy:
    origin: Any = origin_of(kind)
    # A subclass of dict may have one parameter of its own.
    parts = typing.get_args(kind)
    key, value = (*parts, *(str, int)[len(parts) :])[:2]
    keys = strategy_for(key, dataclasses.replace(where, as_key=True))
    values, sizes = _several(value, where, largest=2)
    made = st.dictionaries(keys, values, **sizes).map(_with_keys_of_one_type)
    if origin in (dict, collections.abc.MutableMapping):
        return made
    if issubclass(origin, collections.defaultdict):
        return made.map(functools.partial(origin, None))
    if origin is not Mapping:
        return made.map(origin)
    # Of the two, only a dict is a node of a tree, and only the other can be a static.
    return made.map(FrozenMapping) if where.static else made


def _with_keys_of_one_type(drawn: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict without the keys that JAX could not sort, so that it could not flatten it."""
    first: Any = next(iter(drawn), None)
    alike: dict[Any, Any] = {key: value for key, value in drawn.items() if type(key) is type(first)}
    try:
        sorted(alike)
    except TypeError:  # complex numbers, members of most enums
        return {first: drawn[first]}
    return alike


def _is_mapping(kind: Any) -> bool:
    """Return whether an annotation is of a mapping that is made from a dict."""
    origin = origin_of(kind)
    if not issubclass_of(kind, Mapping):
        return False
    if issubclass(origin, dict) or origin in (Mapping, collections.abc.MutableMapping):
        return True
    many = inspect.Parameter.VAR_POSITIONAL
    says_what = is_made_in_python(origin) and not takes_more(origin, many)
    return not inspect.isabstract(origin) and (bool(typing.get_args(kind)) or not says_what)


def _typed_dict(kind: Any, where: FieldContext) -> Strategy:
    kind = origin_of(kind)
    try:
        fields: dict[str, Any] = typing.get_type_hints(kind)
    except NameError:  # each is resolved alone, and refused alone
        fields = dict(kind.__annotations__)
    where = dataclasses.replace(where, home=kind)
    needed: dict[str, Strategy] = {}
    free: dict[str, Strategy] = {}
    for name, part in fields.items():
        if name in kind.__required_keys__:
            needed[name] = strategy_for(part, where)
            continue
        with contextlib.suppress(CannotBuildError):
            free[name] = strategy_for(part, where)
    return _of_one_scope(st.fixed_dictionaries(needed, optional=free))


@st.composite
def _of_one_scope(draw: st.DrawFn, strategy: Strategy) -> Any:
    """Draw a record whose axes have names of their own."""
    with own_dims():
        return draw(strategy)


def _tree(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for jaxtyping's ``PyTree[leaf]``."""
    leaf = strategy_for(getattr(kind, "leaftype", Any), where)
    if not where.varied:
        return leaf
    return st.one_of(
        leaf,
        st.lists(leaf, max_size=3),
        st.lists(leaf, max_size=2).map(tuple),
        st.dictionaries(_NAMES, leaf, max_size=2),
        st.fixed_dictionaries({"a": st.lists(leaf, max_size=2), "b": leaf}),
    )


class AnyNamedTuple(typing.NamedTuple):
    """What is drawn for the annotation ``NamedTuple``, by which blackjax means any of them."""

    first: jax.Array
    second: jax.Array


def _is_tree(kind: Any) -> bool:
    return type(kind).__name__ == "_MetaPyTree" and type(kind).__module__.startswith("jaxtyping")


# ------------------------------------------------------------- instances, classes, functions


def _instances(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for a class with annotated fields: pytree class, dataclass."""
    origin = origin_of(kind)
    if where.forbids(origin):
        raise EndlessError(
            f"{where}: {origin.__name__} would hold another one without end\n"
            f"  fix: give the field a default, or make it optional"
        )
    if is_abstract(origin):
        found = where.known.get((origin, where.facts))
        if found is None:
            try:
                found = _subclass_instances(origin, where)
            except CannotBuildError as error:
                found = error
            where.known[origin, where.facts] = found
        if isinstance(found, CannotBuildError):
            raise found
        return found
    try:
        return _instance_plan.InstancePlan(kind, where, strategy_for).strategy()
    except RecursionError as error:
        raise CannotBuildError(
            f"{where}: {origin.__name__} is made of too many classes\n  fix: {where.fix()}"
        ) from error


def _subclass_instances(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for the subclasses of an abstract class, those that end first.

    Inside an instance of another subclass it is for those that end: twenty subclasses, each of
    which may hold any of them, would be thousands at the third level.
    """
    made: list[Strategy] = []
    endless: list[Strategy] = []
    refusals: list[CannotBuildError] = []
    full = functools.reduce(FieldContext.below, [kind] * 4, where)  # as deep as it goes
    for subclass in itertools.filterfalse(is_abstract, subclasses_of(kind)):
        try:
            ending = strategy_for(subclass, full)
        except CannotBuildError as error:
            ending = None
            refusals.append(error)
        if any(map(is_abstract, where.above)):
            made += [] if ending is None else [ending]
            continue
        with contextlib.suppress(CannotBuildError):
            strategy = strategy_for(subclass, where.below(kind))
            (endless if ending is None else made).append(strategy)
    if made or endless:
        return _one_of_those_that_are_made([*made, *endless])
    if refusals and all(isinstance(error, EndlessError) for error in refusals):
        raise refusals[0]
    raise CannotBuildError(
        f"{where}: {kind.__name__} is abstract, and nothing is known of its subclasses\n"
        f"  fix: {where.fix(kind.__name__)}"
    )


@st.composite
def _one_of_those_that_are_made(draw: st.DrawFn, strategies: list[Strategy]) -> Any:
    """Draw from one of them; from the next one, where no drawn values make an instance."""
    first = draw(st.integers(0, len(strategies) - 1))
    *others, last = [*strategies[first:], *strategies[:first]]
    for strategy in others:
        with contextlib.suppress(CannotBuildError):
            return draw(strategy)
    return draw(last)


def _class(kind: Any, _where: FieldContext) -> Strategy:
    """Return a strategy for classes: the base that is named, and its subclasses."""
    said: Any = (*typing.get_args(kind), object)[0]
    is_union = typing.get_origin(said) in (typing.Union, types.UnionType)
    members = typing.get_args(said) if is_union else (said,)
    bases = [base for base in map(origin_of, members) if isinstance(base, type)]
    if not bases or bases == [object]:
        return st.sampled_from([np.float32, np.int32])
    # Of int and str there are a hundred.
    below = [subclasses_of(base) for base in bases if base.__module__ != "builtins"]
    return st.sampled_from(list(dict.fromkeys(itertools.chain(bases, *below))))


def _function(kind: Any, _where: FieldContext) -> Strategy:
    arguments, result = typing.get_args(kind) or (..., Any)
    if not isinstance(arguments, list):
        return st.sampled_from(FUNCTIONS)
    taken: list[Any] = arguments
    if len(taken) in BY_ARITY:
        return st.sampled_from(BY_ARITY[len(taken)])
    # A hook of an object and its value may be called for that value: if it returned the object,
    # or converted it to an array, it would be called again, without end.
    fitting = [
        function
        for function, part in zip(OF_MANY, (taken[0], taken[-1]), strict=True)
        if is_same(part, result)
    ]
    return st.sampled_from(fitting or OF_MANY)


def _is_call_protocol(kind: Any) -> bool:
    if not is_protocol(kind):
        return False
    origin = origin_of(kind)
    own = {  # what it asks for, as Python 3.12 keeps it
        name
        for name, value in vars(origin).items()
        if callable(value) and name not in {"__init__", "__subclasshook__"}
    }
    return getattr(origin, "__protocol_attrs__", own) == {"__call__"}


_BY_ORIGIN: Final[dict[Any, Callable[[Any, FieldContext], Strategy]]] = {
    **dict.fromkeys((typing.Union, types.UnionType), _union),
    **dict.fromkeys(_COLLECTIONS, _collection),
    # Hypothesis has the last one first, as what is simplest.
    typing.Literal: lambda kind, _: st.sampled_from(typing.get_args(kind)),
    tuple: _tuple,
    typing.NamedTuple: lambda _, where: _instances(AnyNamedTuple, where),
    type: _class,
    Callable: _function,
}


def _one_of(values: tuple[Any, ...]) -> Callable[[Any, FieldContext], Strategy]:
    strategy = st.sampled_from(values)
    return lambda _kind, _where: strategy


_RULES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, FieldContext], Strategy]], ...]] = (
    (has_fields, _instances),
    (
        lambda kind: named_by(kind) is not None,
        lambda kind, where: strategy_for(named_by(kind), where),
    ),
    (_is_tree, _tree),
    (lambda kind: isinstance(kind, TypeVar), _type_variable),
    (
        lambda kind: entry_of(_BY_ORIGIN, origin_of(kind)) is not None,
        lambda kind, where: _BY_ORIGIN[origin_of(kind)](kind, where),
    ),
    (lambda kind: typing.is_typeddict(origin_of(kind)), _typed_dict),
    (_is_mapping, _mapping),
    (_is_call_protocol, _one_of(FUNCTIONS)),
    (lambda kind: issubclass_of(kind, jax.tree_util.Partial), _one_of(TREE_PARTIALS)),
    (lambda kind: issubclass_of(kind, functools.partial), _one_of(PARTIALS)),
    (lambda kind: issubclass_of(kind, types.FunctionType), _one_of(OF_MANY)),
)
"""Later rules are asked only if no earlier one means the annotation."""
