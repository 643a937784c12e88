"""Strategies for instances of classes, for classes, and for functions."""

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
from hypothesis import strategies as st

from leafwise.errors import CannotBuildError
from leafwise.testing.strategies._arrays import Strategy
from leafwise.testing.strategies._constructor import EndlessError, FieldContext
from leafwise.testing.strategies._instance_plan import InstancePlan
from leafwise.testing.strategies._named_functions import (
    BY_ARITY,
    FUNCTIONS,
    OF_MANY,
    PARTIALS,
    TREE_PARTIALS,
)
from leafwise.testing.strategies._scalars import (
    Ask,
    Rule,
    constant,
    is_origin,
    is_subclass,
    issubclass_of,
    origin_of,
)


def is_registered(kind: Any) -> bool:
    """Return whether Hypothesis knows a strategy for a type."""
    try:
        return kind in _registered()
    except TypeError:  # unhashable
        return False


def _registered() -> dict[Any, Any]:
    from hypothesis.strategies._internal import types as known  # noqa: PLC0415  # no public way

    found: dict[Any, Any] = vars(known).get("_global_type_lookup", {})
    return found


_FROM_THE_START: Final = dict(_registered())
"""What Hypothesis knew when this was loaded."""


def is_user_registered(kind: Any) -> bool:
    """Return whether `register_type_strategy` was called for a type."""
    if not is_registered(kind):
        return False
    if kind in _FROM_THE_START and _registered()[kind] is not _FROM_THE_START[kind]:
        return True
    package = str(getattr(kind, "__module__", "")).partition(".")[0]
    return package not in {"numpy", *sys.stdlib_module_names}


def is_abstract(cls: Any) -> bool:
    """Return whether a class has no instances of its own."""
    return (
        inspect.isabstract(cls)
        or bool(getattr(cls, "__abstractvars__", ()))  # equinox's AbstractVar
        or bool(cls.__dict__.get("_is_protocol", False))
    )


def subclasses_of(cls: type) -> list[type]:
    """Return the classes derived from a class that have a name to be found by.

    Others, redefined or made in a function, come and go: draws would not be repeatable.
    If there are only such, they are what there is.
    """
    below: list[type] = []
    direct: list[type] = type.__subclasses__(cls)
    for subclass in direct:
        below += [subclass, *subclasses_of(subclass)]
    below = list(dict.fromkeys(below))
    return [each for each in below if _is_found(each)] or below


def _is_found(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def builds(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    """Return a strategy for a class with annotated fields: pytree class, dataclass."""
    origin = origin_of(kind)
    if where.forbids(origin):
        msg = (
            f"{where}: {origin.__name__} would hold another one without end\n"
            f"  fix: give the field a default, or make it optional"
        )
        raise EndlessError(msg)
    if is_abstract(origin):
        return _concrete(origin, where, ask)
    try:
        return InstancePlan(kind, where, ask).strategy()
    except RecursionError as error:
        msg = f"{where}: {origin.__name__} is made of too many classes\n  fix: {where.fix()}"
        raise CannotBuildError(msg) from error


def _concrete(kind: Any, where: FieldContext, ask: Ask) -> Strategy:
    """Return a strategy for the subclasses of an abstract class, those that end first."""
    below = [each for each in subclasses_of(kind) if not is_abstract(each)]
    made: list[Strategy] = []
    endless: list[Strategy] = []
    refusals: list[CannotBuildError] = []
    full = functools.reduce(FieldContext.below, [kind] * 4, where)  # as deep as it goes
    for subclass in below:
        try:
            strategy = ask(subclass, where.below(kind))
        except CannotBuildError as error:
            refusals.append(error)
            continue
        try:
            ask(subclass, full)
        except EndlessError:
            endless.append(strategy)
        else:
            made.append(strategy)
    if made or endless:
        return st.one_of(*made, *endless)
    if refusals and all(isinstance(error, EndlessError) for error in refusals):
        raise refusals[0]
    msg = (
        f"{where}: {kind.__name__} is abstract, and nothing is known of its subclasses\n"
        f"  fix: {where.fix(kind.__name__)}"
    )
    raise CannotBuildError(msg)


def _class(kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    """Return a strategy for classes: the base that is named, and its subclasses."""
    said = [origin_of(each) for part in typing.get_args(kind) for each in _members(part)]
    bases = [base for base in said if isinstance(base, type)]
    if not bases or bases == [object]:
        return st.sampled_from([np.float32, np.int32])
    below: list[type] = []
    for base in bases:
        if not where.varied:
            below.extend(type.__subclasses__(base))
        elif base.__module__ != "builtins":  # of int and str there are a hundred
            below.extend(subclasses_of(base))
    return st.sampled_from(list(dict.fromkeys([*bases, *below])))


def _members(kind: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if is_union else (kind,)


def _function(kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    parts = typing.get_args(kind)
    if not where.varied or not parts or not isinstance(parts[0], list):
        return st.sampled_from(FUNCTIONS)
    return st.sampled_from(BY_ARITY.get(len(parts[0]), OF_MANY))


def _is_call_protocol(kind: Any) -> bool:
    origin = origin_of(kind)
    if not isinstance(origin, type) or not origin.__dict__.get("_is_protocol", False):
        return False
    own = {  # what it asks for, as Python 3.12 keeps it
        name
        for name, value in vars(origin).items()
        if callable(value) and name not in {"__init__", "__subclasshook__"}
    }
    return getattr(origin, "__protocol_attrs__", own) == {"__call__"}


_PLAIN: Final[list[Any]] = [vars(object)["__init__"], object.__new__]


def _is_made_in_python(kind: Any) -> bool:
    """Return whether a class has a constructor that says what it takes, or takes nothing."""
    origin: Any = origin_of(kind)
    if not isinstance(origin, type) or is_registered(origin):
        return False
    if origin.__module__.partition(".")[0] in {"builtins", "typing", "collections"}:
        return False
    makers: list[Any] = [getattr(origin, name) for name in ("__init__", "__new__")]
    written = any(isinstance(each, types.FunctionType) for each in makers)
    return written or makers == _PLAIN


def _has_fields(kind: Any) -> bool:
    origin = origin_of(kind)
    named = issubclass_of(kind, tuple) and hasattr(origin, "_fields")
    return isinstance(origin, type) and (named or dataclasses.is_dataclass(origin))


FIELDS: Final[tuple[Rule, ...]] = ((_has_fields, builds),)
"""Of classes that declare fields, even if they are mappings or sequences."""

RULES: Final[tuple[Rule, ...]] = (
    (is_origin(Callable), _function),
    (_is_call_protocol, constant(st.sampled_from(FUNCTIONS))),
    (is_subclass(jax.tree_util.Partial), constant(st.sampled_from(TREE_PARTIALS))),
    (is_subclass(functools.partial), constant(st.sampled_from(PARTIALS))),
    (is_subclass(types.FunctionType), constant(st.sampled_from(OF_MANY))),
    (is_origin(type), _class),
)
"""Of functions and classes."""

OWN: Final[tuple[Rule, ...]] = ((_is_made_in_python, builds),)
"""Of classes written by hand."""
