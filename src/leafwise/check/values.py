"""Values for the fields of a class, from annotations and defaults, through Hypothesis."""

import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import hypothesis
import hypothesis.errors
import jax
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from leafwise._annotations import Unknown, resolve
from leafwise._freeze import FrozenMapping, StaticArray
from leafwise.check.arrays import array_values, arrays, jaxtyped_values
from leafwise.check.fields import prepared_by
from leafwise.check.parameters import CannotBuildError, Parameter, call, parameters_of
from leafwise.check.place import EndlessError, Place

_SETTINGS: Final = hypothesis.settings(
    database=None,
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)
_TRIES: Final = 1000
"""How many values to show to a converter or check, which are quick."""

FUNCTIONS: Final = (jax.numpy.tanh, jax.numpy.sin, jax.numpy.cos)
"""What stands for a function: named ones, so that a repeated draw is the same object."""


def find(strategy: Any, wanted: Callable[[Any], bool], tries: int | None = None) -> Any:
    """Return the simplest value of a strategy that is wanted, always the same one.

    Args:
        strategy: Where values come from.
        wanted: Tells whether a value will do.
        tries: How many values to look at; None for as many as usual.

    Raises:
        LookupError: None was found.
    """
    settings = _SETTINGS if tries is None else hypothesis.settings(_SETTINGS, max_examples=tries)
    try:
        return hypothesis.find(strategy, wanted, settings=settings)
    except hypothesis.errors.FailedHealthCheck:
        raise  # it cannot search where it is: within a test of its own, say
    except hypothesis.errors.HypothesisException as error:  # no such value, or no strategy
        raise LookupError(str(error)) from error


def strategy_for(kind: Any, where: Place, default: Any = inspect.Parameter.empty) -> Any:
    """Return a strategy for the values of an annotation.

    Args:
        kind: The annotation, resolved.
        where: The place of the values.
        default: The field's default, whose type serves if the annotation says nothing.

    Raises:
        CannotBuildError: Nothing is known of the annotation; the message says how to
            register a strategy.
    """
    if typing.get_origin(kind) in (Annotated, Final):
        return strategy_for(typing.get_args(kind)[0], where, default)
    if isinstance(kind, str | typing.ForwardRef):  # inside of another: list["Node"]
        name = kind if isinstance(kind, str) else kind.__forward_arg__
        kind = resolve(where.home, where.text, name, [])
    if isinstance(kind, Unknown):
        msg = (
            f"{where}: its annotation cannot be resolved at run time\n"
            f"  fix: import what it names at the top of the module, not for type checkers only"
        )
        raise CannotBuildError(msg)
    if is_user_registered(_origin(kind)):
        return st.from_type(kind)
    for test, make in _RULES:
        if test(kind):
            return make(kind, where)
    if kind in (Any, object, inspect.Parameter.empty) and default is not inspect.Parameter.empty:
        return strategy_for(type(default), where)
    if kind in (Any, object, inspect.Parameter.empty):
        return st.integers(0, 9)
    return _from_hypothesis(kind, where)


def argument_for(cls: Any, parameter: Parameter, where: Place) -> Any:
    """Return a strategy for an argument that the field of its name does not refuse alone.

    Raises:
        CannotBuildError: Nothing is known of its annotation.
    """
    strategy = strategy_for(parameter.kind, where, parameter.default)
    field = prepared_by(cls, parameter.name)
    if field is None or not field.prepares:
        return strategy
    prepare = field.prepare

    def is_accepted(drawn: Any) -> bool:
        try:
            prepare(drawn)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # converters and checks
            where.errors[:] = [error]
            return False
        return True

    try:  # first, since several picky fields are hardly ever met by chance
        simplest = find(strategy, is_accepted, _TRIES)
    except LookupError:
        return strategy  # its constructor refuses it, with the better message
    return st.just(simplest) | strategy.filter(is_accepted)


def accepts_none(kind: Any) -> bool:
    """Return whether an annotation is optional."""
    if typing.get_origin(kind) in (Annotated, Final):
        return accepts_none(typing.get_args(kind)[0])
    return type(None) in typing.get_args(kind)


def _from_hypothesis(kind: Any, where: Place) -> Any:
    """Ask Hypothesis, and draw once, as its refusals come late."""
    try:
        strategy = st.from_type(kind)
        find(strategy, lambda _: True)
    except Exception as error:
        name = getattr(kind, "__name__", str(kind))
        msg = (
            f"{where}: no values are known for {kind}\n"
            f"  fix: give the field a default, or, beside the class:\n"
            f"       hypothesis.strategies.register_type_strategy(\n"
            f"           {name}, hypothesis.strategies.builds({name}, ...))"
        )
        raise CannotBuildError(msg) from error
    return strategy


def is_user_registered(kind: Any) -> bool:
    """Return whether `register_type_strategy` was called for a class of the user's."""
    from hypothesis.strategies._internal import types as known  # noqa: PLC0415  # no public way

    if not isinstance(kind, type):
        return False
    package = kind.__module__.partition(".")[0]
    registered = vars(known).get("_global_type_lookup", {})
    return package not in {"numpy", *sys.stdlib_module_names} and kind in registered


def _union(kind: Any, where: Place) -> Any:
    parts = typing.get_args(kind)
    members = [part for part in parts if part is not type(None)]
    none = [st.none()] if len(members) < len(parts) else []
    if np.number in members:  # jax.typing.ArrayLike, flattened
        return st.one_of(array_values(jax.Array, where), st.floats(-10, 10, width=16), *none)
    strategies: list[Any] = []
    refusals: list[CannotBuildError] = []
    for part in members:
        try:
            strategies.append(strategy_for(part, where))
        except CannotBuildError as error:
            refusals.append(error)
    ends = none and all(isinstance(error, EndlessError) for error in refusals)
    if refusals and not strategies and not ends:
        raise refusals[0]
    return st.one_of(*strategies, *none)


def _items(kind: Any, where: Place) -> list[Any]:
    parts = [part for part in typing.get_args(kind) if part is not ...]
    return [strategy_for(part, where) for part in parts]


def _tuple(kind: Any, where: Place) -> Any:
    items = _items(kind, where)
    if kind == tuple[()]:
        return st.just(())
    if not typing.get_args(kind):
        return st.lists(st.integers(0, 9), max_size=3).map(tuple)
    if typing.get_args(kind)[-1:] == (...,):
        return st.lists(items[0], min_size=1, max_size=3).map(tuple)
    return st.tuples(*items)


def _sequence(kind: Any, where: Place) -> Any:
    items = _items(kind, where) or [st.integers(0, 9)]
    made = st.lists(items[0], min_size=1, max_size=3)
    return made if _origin(kind) is list else made.map(tuple)


def _set(kind: Any, where: Place) -> Any:
    items = _items(kind, where) or [st.integers(0, 9)]
    return st.frozensets(items[0], min_size=1, max_size=3)


def _mapping(kind: Any, where: Place) -> Any:
    items = _items(kind, where) or [st.sampled_from(["a", "b", "c"])]
    keys, values = items if len(items) > 1 else (items[0], st.integers(0, 9))
    made = st.dictionaries(keys, values, min_size=1, max_size=2)
    origin = _origin(kind)
    if issubclass(origin, collections.defaultdict):
        return made.map(functools.partial(origin, None))
    if issubclass(origin, dict):
        return made.map(origin)
    frozen = made.map(FrozenMapping)
    return frozen if origin is FrozenMapping else frozen | made


def _builds(kind: Any, where: Place) -> Any:
    """Return a strategy for a class with annotated fields: pytree class, dataclass."""
    origin = _origin(kind)
    if origin in where.above:
        msg = (
            f"{where}: {origin.__name__} would hold another one without end\n"
            f"  fix: give the field a default, or make it optional"
        )
        raise EndlessError(msg)
    if inspect.isabstract(origin):
        return _concrete(origin, where)
    parameters = parameters_of(origin)
    given: dict[str, Any] = {}
    for parameter in parameters:
        place = where.inside(origin, parameter.name, parameter.owner)
        strategy = _argument(origin, parameter, place)
        if strategy is not None:
            given[parameter.name] = strategy

    def make(arguments: dict[str, Any]) -> Any:
        try:
            return call(origin, parameters, arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # converters, checks, the user's
            where.errors[:] = [error]
            hypothesis.reject()

    return st.fixed_dictionaries(given).map(make)


def _concrete(kind: type, where: Place) -> Any:
    """Return a strategy for the subclasses of an abstract class."""
    made: list[Any] = []
    below: list[type] = type.__subclasses__(kind)
    for subclass in below:
        with contextlib.suppress(CannotBuildError):
            made.append(strategy_for(subclass, where))
    if not made:
        msg = (
            f"{where}: {kind.__name__} is abstract, and nothing is known of its subclasses\n"
            f"  fix: beside the class:\n"
            f"       hypothesis.strategies.register_type_strategy({kind.__name__}, ...)"
        )
        raise CannotBuildError(msg)
    return st.one_of(*made)


def _argument(cls: Any, parameter: Parameter, where: Place) -> Any:
    """Return a strategy for an argument, its default first; None to leave it out."""
    if parameter.make_default is None:
        return argument_for(cls, parameter, where)
    default = st.builds(parameter.make_default)
    try:
        return default | argument_for(cls, parameter, where)
    except CannotBuildError:
        return default


def _is_scalar(base: type) -> Callable[[Any], bool]:
    return lambda kind: kind is base


def _is_origin(*bases: Any) -> Callable[[Any], bool]:
    return lambda kind: _origin(kind) in bases


def _origin(kind: Any) -> Any:
    return typing.get_origin(kind) or kind


def issubclass_of(kind: Any, *bases: type) -> bool:
    """Return whether an annotation names a subclass of one of these."""
    return isinstance(_origin(kind), type) and issubclass(_origin(kind), bases)


def _is_subclass(*bases: type) -> Callable[[Any], bool]:
    return lambda kind: issubclass_of(kind, *bases)


def _constant(strategy: Any) -> Callable[[Any, Place], Any]:
    return lambda _kind, _where: strategy


def _type_variable(kind: Any, where: Place) -> Any:
    if kind.__constraints__:
        return strategy_for(functools.reduce(operator.or_, kind.__constraints__), where)
    return strategy_for(kind.__bound__ or Any, where)


def _class(kind: Any, _where: Place) -> Any:
    """Return a strategy for classes: the base that is named, and its subclasses."""
    bases = [base for base in typing.get_args(kind) if isinstance(base, type)]
    if not bases or bases == [object]:
        return st.sampled_from([np.float32, np.int32])
    below: list[type] = []
    for base in bases:
        below.extend(type.__subclasses__(base))
    return st.sampled_from([*bases, *below])


def _typed_dict(kind: Any, where: Place) -> Any:
    fields = typing.get_type_hints(kind)
    return st.fixed_dictionaries({name: strategy_for(part, where) for name, part in fields.items()})


_DTYPE_LIKE: Final = (jax.typing.DTypeLike, npt.DTypeLike)
_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])

_RULES: Final[Sequence[tuple[Callable[[Any], bool], Callable[[Any, Place], Any]]]] = (
    (_is_scalar(bool), _constant(st.booleans())),
    (_is_scalar(int), _constant(st.integers(0, 100))),
    (_is_scalar(float), _constant(st.floats(-10, 10, width=16))),
    (_is_scalar(complex), _constant(st.complex_numbers(max_magnitude=10, width=64))),
    (_is_scalar(str), _constant(st.text("abc", min_size=1, max_size=3))),
    (_is_scalar(bytes), _constant(st.binary(max_size=3))),
    (_is_scalar(type(None)), _constant(st.none())),
    (lambda kind: kind is None, _constant(st.none())),
    (lambda kind: kind is jax.typing.ArrayLike, array_values),
    (lambda kind: hasattr(kind, "array_type"), jaxtyped_values),
    (_is_scalar(StaticArray), _constant(arrays().map(StaticArray))),
    (_is_subclass(jax.Array, np.ndarray), array_values),
    (_is_subclass(enum.Enum), lambda kind, _where: st.one_of(*map(st.just, kind))),
    (_is_subclass(np.dtype), _constant(_DTYPES)),
    (lambda kind: isinstance(kind, TypeVar), _type_variable),
    (
        lambda kind: isinstance(kind, typing.NewType),
        lambda kind, where: strategy_for(kind.__supertype__, where),
    ),
    (
        lambda kind: hasattr(kind, "__value__"),
        lambda kind, where: strategy_for(kind.__value__, where),
    ),
    (_is_origin(Literal), lambda kind, _where: st.sampled_from(typing.get_args(kind))),
    (lambda kind: any(kind == like for like in _DTYPE_LIKE), _constant(_DTYPES)),
    (_is_origin(typing.Union, types.UnionType), _union),
    (_is_origin(tuple), _tuple),
    (_is_origin(list, Sequence), _sequence),
    (_is_origin(set, frozenset), _set),
    (typing.is_typeddict, _typed_dict),
    (lambda kind: issubclass_of(kind, tuple) and hasattr(_origin(kind), "_fields"), _builds),
    (lambda kind: issubclass_of(kind, dict) or _origin(kind) in (Mapping, FrozenMapping), _mapping),
    (_is_origin(Callable), _constant(st.sampled_from(FUNCTIONS))),
    (_is_origin(type), _class),
    (lambda kind: dataclasses.is_dataclass(_origin(kind)), _builds),
)
