"""Strategies for annotations: our own where JAX or leafwise needs them, else Hypothesis'."""

import collections.abc
import contextlib
import dataclasses
import enum
import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import hypothesis
import jax
import numpy as np
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, InvalidArgument, UnsatisfiedAssumption

from leafwise._classes.annotations import Unknown, annotations_of, named_by, resolve, signature_of
from leafwise._classes.registry import field_names, spec_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.attributes import instance_with
from leafwise._objects.classes import is_a
from leafwise._objects.frozen import FrozenMapping
from leafwise._objects.interrupts import or_default
from leafwise._objects.text import got
from leafwise.errors import CannotBuildError, LeafwiseError
from leafwise.testing._format import format_error
from leafwise.testing.strategies._arrays import (
    FUNCTIONS,
    INITIALIZER,
    AnyNamedTuple,
    Dims,
    ImpossibleError,
    Strategy,
    arrays,
    bind,
    classes,
    drawn_by,
    functions,
    has_axes,
    keys,
    own_dims,
    plain_values,
)
from leafwise.testing.strategies._constructor import (
    EndlessError,
    FieldContext,
    Parameter,
    bindings_of,
    call,
    entry_of,
    has_fields,
    is_abstract,
    is_made_in_python,
    is_protocol,
    is_registered,
    is_user_registered,
    issubclass_of,
    origin_of,
    parameters_of,
    subclasses_of,
    substitute,
    takes_more,
)

EMPTY: Final = inspect.Parameter.empty


def strategy_for(kind: Any, where: FieldContext, default: Any = EMPTY) -> Strategy:
    """Return a strategy for an annotation; without one, for the type of the default."""
    kind = substitute(kind, where.bindings)
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return _annotated(kind, where, default)
    if origin in (Final, typing.ClassVar, typing.Required, typing.NotRequired):
        return strategy_for(typing.get_args(kind)[0], where, default)
    kind = _resolved(kind, where)
    # Inside an instance, the registered strategy may be the caller.
    is_inside = kind in where.around
    where = where.part_of(kind)
    cls = origin_of(kind)
    if not is_inside and (is_user_registered(kind) or is_user_registered(cls)):
        return _from_hypothesis(kind, where)
    if (plain := plain_values(kind, where)) is not None:
        return plain
    rules = (make for means, make in _RULES if means(kind))
    if make := entry_of(_BY_ORIGIN, cls) or next(rules, None):
        return make(kind, where)
    if says_nothing(kind):
        return _anything(kind, where, default)
    if is_made_in_python(kind):
        return _instances(kind, where)
    if isinstance(cls, type) and not (is_registered(cls) or issubclass(cls, enum.Enum)):
        raise _unknown(kind, where)  # written in C: Hypothesis would just call it
    return _from_hypothesis(kind, where)


def says_nothing(kind: Any) -> bool:
    """Return whether an annotation allows any value, or any hashable value."""
    while isinstance(kind, TypeVar):
        kind = kind.__bound__ or Any
    return kind in (Any, object, EMPTY) or _is_hashable(kind)


def _is_hashable(kind: Any) -> bool:
    cls = origin_of(kind)
    return cls is Hashable or (is_protocol(cls) and Hashable in cls.__mro__)


def _annotated(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return a strategy for ``Annotated``, whose metadata may be a strategy or limits."""
    inner: Any = kind.__origin__
    for remark in reversed(kind.__metadata__):
        if isinstance(remark, st.SearchStrategy):
            return remark
    limits = [mark for mark in kind.__metadata__ if type(mark).__module__ == "annotated_types"]
    if not limits or not (typing.get_args(inner) or is_registered(inner)):
        return strategy_for(inner, where, default)
    if inner in (int, float):  # a huge size would make a huge array
        made_of: Any = sys.modules["annotated_types"]
        limits.append(made_of.Interval(ge=-100, le=100))
    return _from_hypothesis(inner, where, limits)


def _resolved(kind: Any, where: FieldContext) -> Any:
    """Return the type that a name inside an annotation refers to: ``list["Node"]``."""
    if kind is typing.Self:
        return where.home
    if isinstance(kind, dataclasses.Field):  # `x: field()`, where `x: int = field()` was meant
        return Any
    if isinstance(kind, str | typing.ForwardRef):
        name = kind if isinstance(kind, str) else kind.__forward_arg__
        classes = [where.home, *(cls for cls, _ in where.steps)]
        kind = resolve(where.home, str(where), name, [{cls.__name__: cls} for cls in classes])
    if isinstance(kind, Unknown):
        raise CannotBuildError(
            f"{where}: its annotation cannot be resolved at run time\n"
            f"  fix: import its names at the top of the module, not only for type checkers; or "
            f"{where.fix()}"
        )
    return kind


def _anything(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return a strategy for an annotation without a type: ``Any``, ``object``, ``Hashable``."""
    if default is not EMPTY and isinstance(default, type):
        return st.just(default)  # other classes that would work are unknown
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
    return strategy_for(kind.__bound__ or Any, where)


def _from_hypothesis(kind: Any, where: FieldContext, limits: Iterable[Any] = ()) -> Strategy:
    """Return Hypothesis' strategy, with our own for the parts of the annotation."""
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
    try:  # now, or its errors would come at the first draw
        strategy: Strategy = st.from_type(asked)
        strategy.validate()
    except Exception as error:  # also from strategies that users register
        raise _unknown(kind, where) from error
    if strategy.is_empty:
        raise _unknown(kind, where)
    return strategy


def _unknown(kind: Any, where: FieldContext) -> CannotBuildError:
    fix = where.fix(name=getattr(kind, "__name__", str(kind)))
    return CannotBuildError(f"{where}: no values are known for {kind}\n  fix: {fix}")


def _union(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for the members of a union that have a strategy."""
    parts = sorted(typing.get_args(kind), key=lambda part: part is not type(None))
    if np.number in parts and jax.Array in parts:  # jax.typing.ArrayLike, flattened
        parts = [part for part in parts if part in (type(None), jax.Array, float)]
    if INITIALIZER in parts:  # or any function, as in flax's annotation
        parts = [part for part in parts if part in (type(None), INITIALIZER)]
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
    """Return a strategy for an item, and the most items: 0 if items would nest without end."""
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
    collections.abc.Set: frozenset,
    # A tuple, since it can be a static, and be iterated twice.
    **dict.fromkeys((Sequence, Collection, Iterable, Iterator), tuple),
}


def _mapping(kind: Any, where: FieldContext) -> Strategy:
    origin: Any = origin_of(kind)
    # A subclass of dict may have a single type parameter.
    parts = typing.get_args(kind)
    key, value = (*parts, *(str, int)[len(parts) :])[:2]
    keys = _NAMES if says_nothing(key) else strategy_for(key, where)
    values, most = _items(value, where)
    made = st.dictionaries(keys, values, max_size=most).map(_with_keys_of_one_type)
    if origin is Mapping:  # only a dict is a node, and only a FrozenMapping can be a static
        return made.map(FrozenMapping) if where.static else made
    if origin in (dict, collections.abc.MutableMapping):
        return made
    of_factory = issubclass(origin, collections.defaultdict)
    return made.map(functools.partial(origin, None) if of_factory else origin)


def _with_keys_of_one_type(drawn: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict without keys that JAX could not sort in order to flatten it."""
    first: Any = next(iter(drawn), None)
    alike: dict[Any, Any] = {key: value for key, value in drawn.items() if type(key) is type(first)}
    try:
        sorted(alike)
    except TypeError:  # complex numbers, members of most enums
        return {first: drawn[first]}
    return alike


def _is_mapping(kind: Any) -> bool:
    """Return whether an annotation is a mapping whose constructor takes a dict."""
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
    items = {name: strategy_for(part, where) for name, part in annotations_of(kind).items()}
    optional = {name: items.pop(name) for name in kind.__optional_keys__}
    return st.fixed_dictionaries(items, optional=optional)


def _tree(kind: Any, where: FieldContext) -> Strategy:
    leaf = strategy_for(getattr(kind, "leaftype", Any), where)
    few = st.lists(leaf, max_size=2)
    return leaf | few | few.map(tuple) | st.dictionaries(_NAMES, leaf | few, max_size=2)


def _instances(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for a class with annotated fields, such as a pytree class or dataclass."""
    origin = origin_of(kind)
    if is_abstract(origin):
        return _subclass_instances(origin, where)
    if where.steps and (origin.__module__, origin.__name__) == ("flax.nnx.rnglib", "Rngs"):
        return st.integers(0, 9).map(origin)  # it makes a key for any name
    return InstancePlan(kind, where).strategy()


def _subclass_instances(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for all subclasses of an abstract class, or in a field for the simplest."""
    if where.around.count(kind) > 1:
        raise EndlessError(f"{where}: {kind.__name__} would contain itself without end")
    inside = where if where.steps else dataclasses.replace(where, around=())
    found: list[Strategy] = []
    for subclass in sorted(subclasses_of(kind), key=_needs):
        with contextlib.suppress(CannotBuildError):
            if not is_abstract(subclass):
                found.append(strategy_for(subclass, inside))
                if where.steps:
                    break
    if not found:
        raise CannotBuildError(
            f"{where}: {kind.__name__} is abstract, and no subclass can be built\n"
            f"  fix: {where.fix(name=kind.__name__)}"
        )
    return st.one_of(found)


@or_default((sys.maxsize, ""))  # it has no signature, or an annotation that raises
def _needs(cls: Any) -> tuple[int, str]:
    """Return how many arguments a class requires, and its name, for sorting."""
    return sum(each.make_default is None for each in parameters_of(cls)), cls.__qualname__


def _is_call_protocol(kind: Any) -> bool:
    if not is_protocol(kind):
        return False
    own = {name for name, value in vars(origin_of(kind)).items() if callable(value)}
    return own - {"__init__", "__subclasshook__"} == {"__call__"}


_BY_ORIGIN: Final[dict[Any, Callable[[Any, FieldContext], Strategy]]] = {
    **dict.fromkeys((typing.Union, types.UnionType), _union),
    **dict.fromkeys(_COLLECTIONS, _collection),
    # Hypothesis tries the last one first, as the simplest.
    typing.Literal: lambda kind, _: st.sampled_from(typing.get_args(kind)),
    typing.NamedTuple: lambda _, where: _instances(AnyNamedTuple, where),
    type: lambda kind, _: classes(kind),
    Callable: lambda kind, _: functions(kind),
}

_RULES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, FieldContext], Strategy]], ...]] = (
    (has_fields, _instances),
    (named_by, lambda kind, where: strategy_for(named_by(kind), where)),
    (lambda kind: type(kind).__name__ == "_MetaPyTree", _tree),
    (lambda kind: isinstance(kind, TypeVar), _type_variable),
    (lambda kind: typing.is_typeddict(origin_of(kind)), _typed_dict),
    (_is_mapping, _mapping),
    (_is_call_protocol, lambda _kind, _where: st.sampled_from(FUNCTIONS)),
)
"""Predicates, in order, for annotations that are not in a table."""

_ATTEMPTS: Final = 10
"""How many times a draw tries to make an instance, or a value that a field accepts."""

_PATIENCE: Final = 200
"""After how many refusals, and no success, drawing from a class fails with an error."""


def argument_for(cls: Any, parameter: Parameter, where: FieldContext) -> Strategy:
    """Return a strategy for an argument that its field's converter and checks accept."""
    is_array = parameter.kind is jax.Array and not _is_field(cls, parameter.name)
    if is_array and _KEY.search(parameter.name):
        return keys()
    strategy = strategy_for(parameter.kind, where, parameter.default)
    is_own = is_decorated(cls) and not spec_of(cls).has_own_init
    # Only the field's own converter and validator may determine what is stored.
    fields = spec_of(cls).fields if is_own and not hasattr(cls, "__post_init__") else ()
    field = next((field for field in fields if field.name == parameter.name), None)
    if field is None or not field.options.prepares:
        return strategy
    prepare = field.prepare

    def accepted(draw: st.DrawFn) -> Any:
        refused: BaseException | None = None
        for _ in range(_ATTEMPTS):
            value = draw(strategy)
            try:
                prepare(value)
            except (Exception, SystemExit) as error:  # noqa: BLE001  # converters and checks
                refused = error
            else:
                return value
        raise ImpossibleError from refused

    return drawn_by(accepted)


_KEY: Final = re.compile("(?i)^(prng_?)?(key|rng)$|_(key|rng)$")
"""Names of constructor parameters that take a random key."""


@or_default(default=False)  # a user's flatten
def is_static(cls: Any, parameter: Parameter) -> bool:
    """Return whether a parameter's field is static: flatten does not make it a leaf."""
    name = parameter.name
    if (names := field_names(cls)) is not None:
        return name in names[0]
    fields = getattr(cls, "__dataclass_fields__", None) or signature_of(cls).parameters
    instance = instance_with(cls, {field: object() for field in fields})
    leaves = jax.tree_util.tree_leaves(instance)
    return all(leaf is not instance and leaf is not getattr(instance, name) for leaf in leaves)


def _held_in_module(cls: Any, name: str) -> list[Any]:
    """Return the values of an attribute in the instances that the class's module defines."""
    module = vars(sys.modules.get(cls.__module__, object))
    instances = [value for value in list(module.values()) if is_a(value, cls)]
    return [getattr(instance, name) for instance in instances if hasattr(instance, name)]


def _is_field(cls: Any, name: str) -> bool:
    """Return whether a parameter is a declared field, or could be one."""
    if hasattr(cls, "__dataclass_fields__"):
        return name in cls.__dataclass_fields__
    return hasattr(cls, "__attrs_attrs__") or hasattr(cls, "_fields")


def _changes(parameter: Parameter) -> Strategy:
    """Return a strategy for whether to draw a parameter that has a default."""
    kinds = (parameter.kind, *typing.get_args(parameter.kind))
    # The default of an initializer compiles a program for each shape.
    return st.integers(0, 31) if INITIALIZER in kinds else st.booleans()


class InstancePlan:
    """How instances of a class, or of an alias such as ``Box[int]``, are drawn for a field."""

    def __init__(
        self, kind: Any, where: FieldContext, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.cls: Any = origin_of(kind)
        self.where = where
        self.parameters: list[Parameter] = []
        self._given = {n: each for n, each in (overrides or {}).items() if each is not ...}
        self._never_default = set(overrides or {})
        self._refused: int | None = 0  # None once the class accepted something
        self._drawn: dict[str, Strategy] = {}  # other parameters keep their defaults
        bound = bindings_of(kind)
        for written in parameters_of(self.cls):
            bindings = bound.get(written.owner, {})
            parameter = dataclasses.replace(written, kind=substitute(written.kind, bindings))
            self.parameters.append(parameter)
            if parameter.name not in self._given:
                self._plan(parameter, bindings)

    def _plan(self, parameter: Parameter, bindings: Mapping[Any, Any]) -> None:
        static = is_static(self.cls, parameter)
        where = FieldContext(
            parameter.owner,
            (*self.where.steps, (self.cls, parameter.name)),
            static=static,
            counts=static or not _is_field(self.cls, parameter.name),
            bindings=bindings,
            around=self.where.around or (self.cls,),
            repeats=self.where.repeats,
        )
        try:
            self._drawn[parameter.name] = argument_for(self.cls, parameter, where)
        except CannotBuildError:
            if values := _held_in_module(self.cls, parameter.name):
                self._drawn[parameter.name] = st.sampled_from(values)
            elif self._is_needed(parameter):
                raise

    def _is_needed(self, parameter: Parameter) -> bool:
        return parameter.make_default is None or parameter.name in self._never_default

    def strategy(self) -> Strategy:
        """Return a strategy that raises CannotBuildError after too many refused arguments."""
        both = self.with_arguments()
        return drawn_by(lambda draw: draw(both)[1])  # `map` would draw again if refused

    def with_arguments(self, *, plain: bool = False) -> Strategy:
        """Return a strategy for arguments and their instance; `plain` keeps all defaults."""
        attempts = 1 if plain else _ATTEMPTS  # a search cannot use attempts within a draw

        def instance(draw: st.DrawFn) -> Any:
            refused: BaseException = ImpossibleError()
            for _ in range(attempts):
                try:
                    with own_dims(alike=plain) as dims:
                        arguments = self._arguments(draw, dims)
                    result = call(self.cls, arguments)
                except ImpossibleError as error:  # values do not fit, or a check raised
                    refused = error if str(error) else error.__cause__ or error
                except (CannotBuildError, HypothesisException):
                    raise
                except (Exception, SystemExit) as error:  # noqa: BLE001  # the constructor raised
                    refused = error
                else:
                    if self.where.steps or self.cls in type(result).__mro__:
                        self._refused = None
                        return arguments, result
                    refused = ImpossibleError(f"its constructor returned {got(result)}")
            draw(st.integers())  # or Hypothesis could exhaust all values first
            if self._refused is not None:
                self._refused += attempts
                if self._refused >= _PATIENCE:
                    self._give_up(refused)
            return hypothesis.reject()

        return drawn_by(instance)

    def _arguments(self, draw: st.DrawFn, dims: Dims) -> dict[str, Any]:
        """Draw the arguments; those that fix the lengths of named axes come first."""
        found = {name: draw(strategy) for name, strategy in self._given.items()}
        drawn: list[Parameter] = []
        for parameter in sorted(self.parameters, key=lambda each: each.name not in found):
            name, default = parameter.name, parameter.make_default
            if name in found:
                bind(dims, parameter.kind, found[name])
            elif name in self._drawn and (
                self._is_needed(parameter) or (not dims.alike and draw(_changes(parameter)))
            ):
                drawn.append(parameter)
            elif default is not None and has_axes(parameter.kind):
                found[name] = default()
                bind(dims, parameter.kind, found[name])
        return found | {each.name: self._drawn_or_default(draw, each) for each in drawn}

    def _drawn_or_default(self, draw: st.DrawFn, parameter: Parameter) -> Any:
        """Draw an argument; if its type cannot be built, its default or a value from the module."""
        try:
            return draw(self._drawn[parameter.name])
        except (CannotBuildError, UnsatisfiedAssumption, InvalidArgument):
            if parameter.default is not EMPTY:
                return parameter.default
            if values := _held_in_module(self.cls, parameter.name):
                return draw(st.sampled_from(values))
            raise

    def _give_up(self, error: BaseException) -> None:
        name = self.cls.__name__
        wanted = f"{self.where}: " if self.where.steps else ""
        is_ours = isinstance(error, ImpossibleError)
        reason = str(error) if is_ours else f"the last error was {format_error(error)}"
        msg = f"{wanted}{name}: no drawn values made an instance; {reason}"
        if isinstance(error, LeafwiseError) and "fix:" in error.message:
            raise CannotBuildError(msg) from error
        names = [each.name for each in self.parameters if each.make_default is None]
        names = names or [each.name for each in self.parameters]
        given = ", ".join([name, *(f"{each}=..." for each in names)])
        fix = self.where.fix(f"instances({given})" if names else "...", name)
        raise CannotBuildError(f"{msg}\n  fix: {fix}") from error
