"""Values for the fields of a class, from annotations and defaults, through Hypothesis."""

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
import hypothesis.extra.numpy as hnp
import jax
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from leafwise._annotations import Unknown, resolve
from leafwise._freeze import FrozenMapping, StaticArray

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
_DIMENSION: Final = 3
"""The length of an axis that the annotation does not give."""

FUNCTIONS: Final = (jax.numpy.tanh, jax.numpy.sin, jax.numpy.cos)
"""What stands for a function: named ones, so that a repeated draw is the same object."""


class CannotBuildError(Exception):
    """No instance of a class can be made; the message says what to give."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a constructor.

    Attributes:
        name: The parameter's, and usually the field's, name.
        kind: Its annotation, resolved; `inspect.Parameter.empty` if there is none.
        default: Its default; `inspect.Parameter.empty` if it must be given.
        by_name: Whether it is passed by keyword.
    """

    name: str
    kind: Any
    default: Any
    by_name: bool


def parameters_of(cls: Any) -> list[Parameter]:
    """Return what the constructor of a class takes.

    Raises:
        CannotBuildError: The constructor has no signature.
    """
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError) as error:
        msg = f"{cls.__name__}: its constructor has no signature ({error})"
        raise CannotBuildError(msg) from error
    found: list[Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = _field_type(cls, parameter.name)
        if kind is parameter.empty:
            kind = resolve(cls, parameter.name, parameter.annotation, [])
        by_name = parameter.kind is not parameter.POSITIONAL_ONLY
        found.append(Parameter(parameter.name, kind, parameter.default, by_name))
    return found


def _field_type(cls: Any, name: str) -> Any:
    """Return the annotation that the nearest class of the MRO gives a field."""
    for base in cls.__mro__:
        own = inspect.get_annotations(base)
        if name in own:
            kind = resolve(base, name, own[name], [])
            return kind.type if isinstance(kind, dataclasses.InitVar) else kind
    return inspect.Parameter.empty


def find(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
    """Return the simplest value of a strategy that is wanted, always the same one.

    Raises:
        LookupError: None was found.
    """
    try:
        return hypothesis.find(strategy, wanted, settings=_SETTINGS)
    except hypothesis.errors.HypothesisException as error:  # no such value, or no strategy
        raise LookupError(str(error)) from error


def strategy_for(kind: Any, where: str, default: Any = inspect.Parameter.empty) -> Any:
    """Return a strategy for the values of an annotation.

    Args:
        kind: The annotation, resolved.
        where: ``Class.field``, for the message.
        default: The field's default, whose type serves if the annotation says nothing.

    Raises:
        CannotBuildError: Nothing is known of the annotation; the message says how to
            register a strategy.
    """
    if typing.get_origin(kind) is Annotated:
        return strategy_for(typing.get_args(kind)[0], where, default)
    if isinstance(kind, Unknown):
        msg = (
            f"{where}: its annotation cannot be resolved at run time\n"
            f"  fix: import what it names at the top of the module, not for type checkers only"
        )
        raise CannotBuildError(msg)
    if isinstance(_origin(kind), type) and _is_user_registered(_origin(kind)):
        return st.from_type(kind)
    for test, make in _RULES:
        if test(kind):
            return make(kind, where)
    if kind in (Any, object, inspect.Parameter.empty) and default is not inspect.Parameter.empty:
        return strategy_for(type(default), where)
    if kind in (Any, object, inspect.Parameter.empty):
        return st.integers(0, 9)
    return _from_hypothesis(kind, where)


def _from_hypothesis(kind: Any, where: str) -> Any:
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


def _is_user_registered(kind: type) -> bool:
    """Return whether `register_type_strategy` was called for a class of the user's."""
    from hypothesis.strategies._internal import types as known  # noqa: PLC0415  # no public way

    package = kind.__module__.partition(".")[0]
    registered = vars(known).get("_global_type_lookup", {})
    return package not in {"numpy", *sys.stdlib_module_names} and kind in registered


def arrays(shape: tuple[int, ...] = (_DIMENSION,), dtype: Any = np.float32) -> Any:
    """Return a strategy for numpy arrays of small finite values."""
    if dtype == "bfloat16":  # hypothesis knows numpy's own dtypes
        return arrays(shape).map(_as_bfloat16)
    kind = np.dtype(dtype).kind
    elements: dict[str, Any] = {
        "f": st.floats(-10, 10, width=16),
        "i": st.integers(-10, 10),
        "u": st.integers(0, 10),
        "c": st.complex_numbers(max_magnitude=10, width=64),
    }
    return hnp.arrays(dtype, shape, elements=elements.get(kind))


def _as_bfloat16(array: np.ndarray[Any, Any]) -> Any:
    return np.asarray(jax.numpy.asarray(array, "bfloat16"))


def _array(kind: Any, _where: str) -> Any:
    made = arrays()
    return made if _origin(kind) is np.ndarray else made.map(jax.numpy.asarray)


def _jaxtyped(kind: Any, _where: str) -> Any:
    """Read ``Float[Array, "batch 3"]``: numbers are lengths, names have one length."""
    shape = tuple(
        int(word) if word.isdigit() else _DIMENSION
        for word in str(getattr(kind, "dim_str", "")).split()
        if not word.startswith(("*", "..."))
    )
    dtypes = getattr(kind, "dtypes", None)
    names: list[str] = list(dtypes) if isinstance(dtypes, list | tuple) else []
    dtype = "float32" if not names or "float32" in names else str(names[0])
    if "int32" in names and "float32" not in names:
        dtype = "int32"
    if "prng_key" in names and len(names) == 1:
        return st.integers(0, 9).map(jax.random.key)
    made = arrays(shape, dtype)
    wants_numpy = getattr(kind, "array_type", None) is np.ndarray
    return made if wants_numpy else made.map(jax.numpy.asarray)


def _union(kind: Any, where: str) -> Any:
    parts = typing.get_args(kind)
    members = [part for part in parts if part is not type(None)]
    if np.number in members:  # jax.typing.ArrayLike, flattened
        return _array(jax.Array, where) | st.floats(-10, 10, width=16)
    strategies: list[Any] = []
    refusal: CannotBuildError | None = None
    for part in members:
        try:
            strategies.append(strategy_for(part, where))
        except CannotBuildError as error:
            refusal = error
    if refusal is not None and not strategies:
        raise refusal
    return st.one_of(*strategies, *([st.none()] if len(members) < len(parts) else []))


def _items(kind: Any, where: str) -> list[Any]:
    parts = [part for part in typing.get_args(kind) if part is not ...]
    return [strategy_for(part, where) for part in parts]


def _tuple(kind: Any, where: str) -> Any:
    items = _items(kind, where)
    if kind == tuple[()]:
        return st.just(())
    if not typing.get_args(kind):
        return st.lists(st.integers(0, 9), max_size=3).map(tuple)
    if typing.get_args(kind)[-1:] == (...,):
        return st.lists(items[0], min_size=1, max_size=3).map(tuple)
    return st.tuples(*items)


def _sequence(kind: Any, where: str) -> Any:
    items = _items(kind, where) or [st.integers(0, 9)]
    made = st.lists(items[0], min_size=1, max_size=3)
    return made if _origin(kind) is list else made.map(tuple)


def _set(kind: Any, where: str) -> Any:
    items = _items(kind, where) or [st.integers(0, 9)]
    return st.frozensets(items[0], min_size=1, max_size=3)


def _mapping(kind: Any, where: str) -> Any:
    items = _items(kind, where) or [st.sampled_from(["a", "b", "c"]), st.integers(0, 9)]
    made = st.dictionaries(items[0], items[1], min_size=1, max_size=2)
    if issubclass(_origin(kind), dict):
        return made.map(_origin(kind))
    return (
        made.map(FrozenMapping)
        if _origin(kind) is FrozenMapping
        else made.map(FrozenMapping) | made
    )


def _builds(kind: Any, where: str) -> Any:
    """Return a strategy for a class with annotated fields: pytree class, dataclass."""
    origin = _origin(kind)
    given = {
        parameter.name: _argument(parameter, f"{where}.{parameter.name}")
        for parameter in parameters_of(origin)
    }
    return st.builds(origin, **{name: made for name, made in given.items() if made is not None})


def _argument(parameter: Parameter, where: str) -> Any:
    """Return a strategy for an argument, its default first; None to leave it out."""
    if parameter.default is inspect.Parameter.empty:
        return strategy_for(parameter.kind, where)
    if repr(parameter.default) == "<factory>":  # a mark, not a value
        return None
    default = st.just(parameter.default)
    try:
        return default | strategy_for(parameter.kind, where, parameter.default)
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


def _constant(strategy: Any) -> Callable[[Any, str], Any]:
    return lambda _kind, _where: strategy


def _type_variable(kind: Any, where: str) -> Any:
    if kind.__constraints__:
        return strategy_for(functools.reduce(operator.or_, kind.__constraints__), where)
    return strategy_for(kind.__bound__ or Any, where)


def _class(kind: Any, _where: str) -> Any:
    """Return a strategy for classes: the base that is named, and its subclasses."""
    bases = [base for base in typing.get_args(kind) if isinstance(base, type)]
    if not bases or bases == [object]:
        return st.sampled_from([np.float32, np.int32])
    below: list[type] = []
    for base in bases:
        below.extend(type.__subclasses__(base))
    return st.sampled_from([*bases, *below])


def _typed_dict(kind: Any, where: str) -> Any:
    fields = typing.get_type_hints(kind)
    return st.fixed_dictionaries(
        {name: strategy_for(part, f"{where}[{name!r}]") for name, part in fields.items()}
    )


_DTYPE_LIKE: Final = (jax.typing.DTypeLike, npt.DTypeLike)
_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])

_RULES: Final[Sequence[tuple[Callable[[Any], bool], Callable[[Any, str], Any]]]] = (
    (_is_scalar(bool), _constant(st.booleans())),
    (_is_scalar(int), _constant(st.integers(0, 100))),
    (_is_scalar(float), _constant(st.floats(-10, 10, width=16))),
    (_is_scalar(complex), _constant(st.complex_numbers(max_magnitude=10, width=64))),
    (_is_scalar(str), _constant(st.text("abc", min_size=1, max_size=3))),
    (_is_scalar(bytes), _constant(st.binary(max_size=3))),
    (_is_scalar(type(None)), _constant(st.none())),
    (lambda kind: kind is None, _constant(st.none())),
    (lambda kind: kind is jax.typing.ArrayLike, _array),
    (lambda kind: hasattr(kind, "array_type"), _jaxtyped),
    (_is_scalar(StaticArray), _constant(arrays().map(StaticArray))),
    (_is_subclass(jax.Array, np.ndarray), _array),
    (_is_subclass(enum.Enum), lambda kind, _where: st.sampled_from(list(kind))),
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
    (_is_origin(typing.Union, types.UnionType), _union),
    (lambda kind: any(kind == like for like in _DTYPE_LIKE), _constant(_DTYPES)),
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
