"""Values for annotations: ours where JAX or a promise asks for them, else those of Hypothesis."""

import collections
import collections.abc
import contextlib
import dataclasses
import enum
import functools
import inspect
import numbers
import operator
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

import jax
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from leafwise._classes.annotations import Unknown, named_by, resolve, unwrap
from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise.errors import CannotBuildError
from leafwise.testing.strategies import _instance_plan
from leafwise.testing.strategies._arrays import (
    Strategy,
    array_values,
    arrays,
    concrete_scalar,
    jaxtyped_values,
)
from leafwise.testing.strategies._constructor import (
    EndlessError,
    FieldContext,
    is_same,
    parameters_of,
    substitute,
    takes_more,
)
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

    The type of the field's default serves if the annotation says nothing. `CannotBuildError`
    says how to register a strategy if nothing is known.
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
    # Inside an instance, the strategy that is registered may be the one that asks.
    if cls not in where.above and (is_user_registered(kind) or is_user_registered(cls)):
        return _from_hypothesis(kind, where)
    plain = _plain_values(kind, where)
    if plain is not None:
        return plain
    for means, make in _RULES:
        if means(kind):
            return make(kind, where)
    if says_nothing(kind):
        return _anything(kind, where, default)
    if is_made_in_python(kind):
        return _instances(kind, where)
    if isinstance(cls, type) and not (is_registered(cls) or issubclass(cls, enum.Enum)):
        raise _unknown(kind, where)  # written in C: Hypothesis would call it, and see
    return _from_hypothesis(kind, where)


argument_for = functools.partial(_instance_plan.argument_for, ask=strategy_for)


def accepts_none(kind: Any) -> bool:
    """Return whether an annotation is optional."""
    return type(None) in typing.get_args(unwrap(kind))


def says_nothing(kind: Any) -> bool:
    """Return whether an annotation leaves open what a value is, except that it may have a hash."""
    while isinstance(kind, TypeVar):
        kind = kind.__bound__ or Any
    return kind in (Any, object, EMPTY) or _is_hashable(kind)


def _is_hashable(kind: Any) -> bool:
    cls = origin_of(kind)
    return cls is Hashable or (is_protocol(cls) and Hashable in cls.__mro__)


# -------------------------------------------------------------------- what an annotation means


def _annotated(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return what the metadata of ``Annotated`` asks for: a strategy, or limits."""
    inner: Any = kind.__origin__
    remarks: list[Any] = list(kind.__metadata__)
    strategies = [remark for remark in remarks if isinstance(remark, st.SearchStrategy)]
    if strategies:
        return strategies[-1]
    limits = [each for each in remarks if type(each).__module__.startswith("annotated_types")]
    if not limits or not (typing.get_args(inner) or is_registered(inner)):
        return strategy_for(inner, where, default)
    if inner in (int, float):  # a size of millions would be an array of millions
        made_of: Any = sys.modules["annotated_types"]
        small = made_of.Interval(ge=-100, le=100)
        with contextlib.suppress(CannotBuildError):  # the limits ask for others
            return _from_hypothesis(inner, where, [*limits, small])
    return _from_hypothesis(inner, where, limits)


def _resolved(kind: Any, where: FieldContext) -> Any:
    """Return what a name inside an annotation stands for: ``list["Node"]``."""
    if kind is typing.Self:
        return where.home
    if isinstance(kind, dataclasses.Field):  # of `x: field()`, where `x: int = field()` was meant
        return Any
    if isinstance(kind, str | typing.ForwardRef):
        name = kind if isinstance(kind, str) else kind.__forward_arg__
        scopes: list[Any] = [{cls.__name__: cls} for cls in (where.home, *where.above)]
        kind = resolve(where.home, where.text, name, scopes)
    if isinstance(kind, Unknown):
        raise CannotBuildError(
            f"{where}: its annotation cannot be resolved at run time\n"
            f"  fix: import what it names at the top of the module, not for type checkers only; or "
            f"{where.fix()}"
        )
    return kind


def _anything(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return a strategy for an annotation that says nothing: ``Any``, ``object``, ``Hashable``."""
    if default is not EMPTY and isinstance(default, type):
        return st.just(default)  # which other class would do cannot be known
    if _is_hashable(kind):
        return _NAMES
    if default is not EMPTY and default is not None:
        return strategy_for(type(default), where)
    if where.static:
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


def _from_hypothesis(kind: Any, where: FieldContext, limits: Iterable[Any] = ()) -> Strategy:
    """Return what Hypothesis knows, with our values for the parts of the annotation."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    asked: Any = kind
    if parts and isinstance(origin, type):
        ours: list[Any] = [
            part if part is ... else Annotated[part, strategy_for(part, where)] for part in parts
        ]
        alias: Any = origin
        asked = alias[tuple(ours)]
    for limit in limits:
        asked = Annotated[asked, limit]
    try:  # now, since its errors would otherwise come at the first draw
        strategy: Strategy = st.from_type(asked)
        strategy.validate()
    except Exception as error:  # of the strategies that users register, too
        raise _unknown(kind, where) from error
    if strategy.is_empty:
        raise _unknown(kind, where)
    return strategy


def _unknown(kind: Any, where: FieldContext) -> CannotBuildError:
    fix = where.fix(getattr(kind, "__name__", None) or str(kind))
    return CannotBuildError(f"{where}: no values are known for {kind}\n  fix: {fix}")


# --------------------------------------------------------------------------- without parts


def _plain_values(kind: Any, where: FieldContext) -> Strategy | None:
    """Return a strategy for values without parts; None if those of Hypothesis will do.

    Its numbers overflow or are not finite, its texts are of any character, its ranges and
    slices go into the millions; it has one path, and does not know JAX.
    """
    if hasattr(kind, "array_type"):
        return jaxtyped_values(kind, where)
    if kind in (int, numbers.Integral):
        sizes = st.sampled_from((1, 2, 3, 0, 4, 5))
        return sizes if where.counts else st.integers(0, 5) | st.integers(-100, 100)
    make = next((make for base, make in _BY_BASE if issubclass_of(kind, base)), None)
    return make(kind) if make else entry_of(_KNOWN, kind)


_FLOATS: Final = st.floats(-10, 10, width=16)
_SMALL: Final = st.none() | st.integers(-5, 5)
_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])


def _dtypes(kind: Any) -> Strategy:
    scalars = [part for part in typing.get_args(kind) if isinstance(part, type)]
    return st.just(np.dtype(concrete_scalar(scalars[0]))) if scalars else _DTYPES


def _numpy_scalars(kind: Any) -> Strategy:
    scalar: Any = concrete_scalar(origin_of(kind))
    if issubclass(scalar, np.bool_):
        return st.booleans().map(scalar)
    return st.integers(0, 10).map(scalar) if issubclass(scalar, np.number) else st.from_type(scalar)


_BY_BASE: Final[tuple[tuple[type, Callable[[Any], Strategy | None]], ...]] = (
    (StaticArray, lambda _: arrays(numpy=True).map(StaticArray)),
    (jax.Array, array_values),
    (np.ndarray, array_values),
    (np.dtype, _dtypes),
    (np.generic, _numpy_scalars),
    (pathlib.PurePath, lambda kind: st.sampled_from(["a", "b/c", "/d"]).map(kind)),
    (jax.tree_util.Partial, lambda _: st.sampled_from(TREE_PARTIALS)),
    (functools.partial, lambda _: st.sampled_from(PARTIALS)),
    (types.FunctionType, lambda _: st.sampled_from(OF_MANY)),
)


def _mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))


_SPEC: Final[Any] = jax.sharding.PartitionSpec
_SPECS: Final = st.sampled_from([_SPEC(), _SPEC(None), _SPEC("x"), _SPEC(None, "x")])
_DEVICES: Final[Strategy] = st.builds(jax.devices).map(operator.itemgetter(0))
_SHARDINGS: Final = _DEVICES.map(jax.sharding.SingleDeviceSharding)

_KNOWN: Final[dict[Any, Strategy]] = {
    None: st.none(),
    **dict.fromkeys((float, numbers.Real), _FLOATS),
    **dict.fromkeys((complex, numbers.Complex), st.builds(complex, _FLOATS, _FLOATS)),
    numbers.Number: _FLOATS,
    **dict.fromkeys((str, typing.LiteralString), st.text("abc", min_size=1, max_size=3)),
    range: st.builds(range, st.integers(0, 5), st.integers(0, 5)),
    slice: st.builds(slice, _SMALL, _SMALL),
    np.random.Generator: st.integers(0, 9).map(np.random.default_rng),
    **dict.fromkeys((jax.typing.DTypeLike, npt.DTypeLike), _DTYPES),
    jax.sharding.PartitionSpec: _SPECS,
    jax.sharding.Mesh: st.builds(_mesh),
    jax.sharding.NamedSharding: st.builds(jax.sharding.NamedSharding, st.builds(_mesh), _SPECS),
    **dict.fromkeys((jax.sharding.Sharding, jax.sharding.SingleDeviceSharding), _SHARDINGS),
    jax.Device: _DEVICES,
    jax.ShapeDtypeStruct: st.builds(
        jax.ShapeDtypeStruct, st.lists(st.integers(1, 3), max_size=2).map(tuple), _DTYPES
    ),
    jax.tree_util.PyTreeDef: st.sampled_from([0, (), (0, 0), {"a": 0}, None]).map(
        jax.tree_util.tree_structure
    ),
}
"""Strategies by annotation."""


# ------------------------------------------------------------------------------- containers


def _union(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for those members of a union of which values are known."""
    parts = sorted(typing.get_args(kind), key=lambda part: part is not type(None))
    if np.number in parts and jax.Array in parts:  # jax.typing.ArrayLike, flattened
        parts = [part for part in parts if part in (type(None), jax.Array, float)]
    strategies: list[Strategy] = []
    refusals: list[CannotBuildError] = []
    for part in parts:
        try:
            strategies.append(strategy_for(part, where))
        except CannotBuildError as error:
            refusals.append(error)
    if not strategies:
        raise refusals[0]
    return st.one_of(strategies)


def _items(kind: Any, where: FieldContext) -> tuple[Strategy, int]:
    """Return a strategy for an item, and how many a container may have: none if they cannot end."""
    try:
        return strategy_for(kind, where), 3
    except EndlessError:
        return st.nothing(), 0


def _collection(kind: Any, where: FieldContext) -> Strategy:
    parts = typing.get_args(kind)
    if origin_of(kind) is tuple and hasattr(kind, "__args__") and parts[-1:] != (...,):
        return st.tuples(*[strategy_for(part, where) for part in parts])
    make: Any = _COLLECTIONS[origin_of(kind)]
    gather = st.frozensets if make in (set, frozenset) else st.lists
    items, most = _items((*parts, int)[0], where)
    return gather(items, max_size=most).map(make)


_COLLECTIONS: Final[dict[Any, type]] = {
    **{kind: kind for kind in (list, tuple, set, frozenset)},
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
    keys = _NAMES if says_nothing(key) else strategy_for(key, where)
    values, most = _items(value, where)
    made = st.dictionaries(keys, values, max_size=most).map(_with_keys_of_one_type)
    if origin is Mapping:  # of the two, only a dict is a node, and only the other a static
        return made.map(FrozenMapping) if where.static else made
    if origin in (dict, collections.abc.MutableMapping):
        return made
    of_factory = issubclass(origin, collections.defaultdict)
    return made.map(functools.partial(origin, None) if of_factory else origin)


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
    where = dataclasses.replace(where, home=kind)
    needed: dict[str, Strategy] = {}
    free: dict[str, Strategy] = {}
    for name, part in kind.__annotations__.items():
        if name in kind.__required_keys__:
            needed[name] = strategy_for(part, where)
            continue
        with contextlib.suppress(CannotBuildError):
            free[name] = strategy_for(part, where)
    return st.fixed_dictionaries(needed, optional=free)


def _tree(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for jaxtyping's ``PyTree[leaf]``."""
    leaf = strategy_for(getattr(kind, "leaftype", Any), where)
    few = st.lists(leaf, max_size=2)
    return leaf | few | few.map(tuple) | st.dictionaries(_NAMES, leaf | few, max_size=2)


def _is_tree(kind: Any) -> bool:
    return type(kind).__name__ == "_MetaPyTree" and type(kind).__module__.startswith("jaxtyping")


class AnyNamedTuple(typing.NamedTuple):
    """What is drawn for the annotation ``NamedTuple``, by which blackjax means any of them."""

    first: jax.Array
    second: jax.Array


# ------------------------------------------------------------- instances, classes, functions


def _instances(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for a class with annotated fields: pytree class, dataclass."""
    origin = origin_of(kind)
    if is_abstract(origin):
        return _subclass_instances(origin, where)
    if where.forbids(origin):
        raise EndlessError(
            f"{where}: {origin.__name__} would hold another one without end\n"
            f"  fix: give the field a default, or make it optional"
        )
    return _instance_plan.InstancePlan(kind, where, strategy_for).strategy()


def _subclass_instances(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for the subclass of an abstract class that needs least.

    Any of twenty subclasses, each of which may hold any of them, would be thousands at the third
    level. Asked for the abstract class itself, it is for all subclasses.
    """
    if kind in where.above:
        raise EndlessError(f"{where}: {kind.__name__} would hold another one without end")
    inside = dataclasses.replace(where, above=(*where.above, kind)) if where.text else where
    found: list[Strategy] = []
    for subclass in sorted(subclasses_of(kind), key=_needs):
        with contextlib.suppress(CannotBuildError):
            if not is_abstract(subclass):
                found.append(strategy_for(subclass, inside))
                if where.text:
                    break
    if not found:
        raise CannotBuildError(
            f"{where}: {kind.__name__} is abstract, and nothing is known of its subclasses\n"
            f"  fix: {where.fix(kind.__name__)}"
        )
    return st.one_of(found)


def _needs(cls: Any) -> tuple[int, str]:
    """Return how many arguments a class needs, and its name."""
    try:
        return sum(each.make_default is None for each in parameters_of(cls)), cls.__qualname__
    except Exception:  # noqa: BLE001  # it has no signature, or an annotation that raises
        return sys.maxsize, cls.__qualname__


def _class(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for classes: the base that is named, and its subclasses."""
    base = origin_of((*typing.get_args(kind), object)[0])
    if base in (object, Any):
        return st.sampled_from([np.float32, np.int32])
    if not isinstance(base, type) or base.__module__ == "builtins":  # of int there are a hundred
        return _from_hypothesis(kind, where)
    return st.sampled_from([base, *subclasses_of(base)])


def _function(kind: Any, _where: FieldContext) -> Strategy:
    arguments, result = typing.get_args(kind) or (..., Any)
    if not isinstance(arguments, list):
        return st.sampled_from(FUNCTIONS)
    taken: list[Any] = arguments
    if len(taken) in BY_ARITY:
        return st.sampled_from(BY_ARITY[len(taken)])
    # A hook of an object and its value may be called for that value: if it returned the object,
    # or converted it to an array, it would be called again, without end.
    both = zip(OF_MANY, (taken[0], taken[-1]), strict=True)
    return st.sampled_from([each for each, part in both if is_same(part, result)] or OF_MANY)


def _is_call_protocol(kind: Any) -> bool:
    if not is_protocol(kind):
        return False
    own = {name for name, value in vars(origin_of(kind)).items() if callable(value)}
    return own - {"__init__", "__subclasshook__"} == {"__call__"}


def _is_in_table(kind: Any) -> bool:
    return entry_of(_BY_ORIGIN, origin_of(kind)) is not None


_BY_ORIGIN: Final[dict[Any, Callable[[Any, FieldContext], Strategy]]] = {
    **dict.fromkeys((typing.Union, types.UnionType), _union),
    **dict.fromkeys(_COLLECTIONS, _collection),
    # Hypothesis has the last one first, as what is simplest.
    typing.Literal: lambda kind, _: st.sampled_from(typing.get_args(kind)),
    typing.NamedTuple: lambda _, where: _instances(AnyNamedTuple, where),
    type: _class,
    Callable: _function,
}


_RULES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, FieldContext], Strategy]], ...]] = (
    (has_fields, _instances),
    (named_by, lambda kind, where: strategy_for(named_by(kind), where)),
    (_is_tree, _tree),
    (lambda kind: isinstance(kind, TypeVar), _type_variable),
    (_is_in_table, lambda kind, where: _BY_ORIGIN[origin_of(kind)](kind, where)),
    (lambda kind: typing.is_typeddict(origin_of(kind)), _typed_dict),
    (_is_mapping, _mapping),
    (_is_call_protocol, lambda _kind, _where: st.sampled_from(FUNCTIONS)),
)
"""Later rules are asked only if no earlier one means the annotation."""
