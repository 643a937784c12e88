"""Strategies for the arguments of a constructor, which its converters and checks accept."""

import contextlib
import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, Final

import jax
from hypothesis import strategies as st

from leafwise._classes.annotations import has_mark
from leafwise._classes.registry import registered_names, spec_of
from leafwise._classes.spec import is_decorated, is_static_metadata
from leafwise._trees.roles import prepared_by
from leafwise.testing.strategies._arrays import ImpossibleError, Strategy
from leafwise.testing.strategies._constructor import FieldContext, Parameter
from leafwise.testing.strategies._find import find

_TRIES: Final = 1000
"""How many values to try on a converter or check, which are fast."""

_TRIES_IN_A_TEST: Final = 10
"""How many to try inside a test, where every value is a part of the test's data."""


def is_static(cls: Any, parameter: Parameter) -> bool:
    """Return whether a parameter's field is static, as any library writes or flattens it."""
    registered = registered_names(cls)
    if registered is not None:
        return parameter.name in registered[0]
    if is_decorated(cls):
        return parameter.name in spec_of(cls).static_names
    kind = parameter.kind
    marks = kind.__metadata__ if typing.get_origin(kind) is Annotated else ()
    if has_mark(kind) or any("static" in str(mark).lower() for mark in marks):
        return True  # `jax_dataclasses.Static[int]` is metadata, too
    definition = getattr(cls, "__dataclass_fields__", {}).get(parameter.name)
    with contextlib.suppress(ValueError):
        if definition is not None and is_static_metadata(definition.metadata) is True:
            return True
    return _is_in_no_leaf(cls, parameter.name)


def _is_in_no_leaf(cls: Any, name: str) -> bool:
    """Return whether flatten puts an attribute into no leaf: of some classes only JAX knows."""
    try:
        made = object.__new__(cls)
        for each in getattr(cls, "__dataclass_fields__", None) or inspect.signature(cls).parameters:
            object.__setattr__(made, each, object())
        leaves = jax.tree_util.tree_leaves(made)
        return all(leaf is not made and leaf is not getattr(made, name) for leaf in leaves)
    except Exception:  # noqa: BLE001  # a flatten of the user's own
        return False


def is_field(cls: Any, name: str) -> bool:
    """Return whether a parameter is declared as a field, or may be one."""
    if dataclasses.is_dataclass(cls):
        return name in {field.name for field in dataclasses.fields(cls)}
    declared = getattr(cls, "__attrs_attrs__", None)
    return declared is not None or hasattr(cls, "_fields")


def argument_for(
    cls: Any, parameter: Parameter, where: FieldContext, ask: Callable[..., Any]
) -> Strategy:
    """Return a strategy for an argument that the field of its name does not refuse alone.

    Raises:
        CannotBuildError: Nothing is known of its annotation.
    """
    strategy: Strategy = ask(parameter.kind, where, parameter.default)
    field = prepared_by(cls, parameter.name)
    if field is None or not field.options.prepares:
        return strategy
    prepare = field.prepare

    def is_accepted(drawn: Any) -> bool:
        try:
            prepare(drawn)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # converters and checks
            where.errors[:] = [error]
            return False
        return True

    if where.varied:
        return _within_a_test(parameter.kind, strategy, is_accepted, where)
    try:  # first, since values for several picky fields are rarely drawn together
        simplest = find(strategy, is_accepted, _TRIES)
    except LookupError:
        return strategy  # its constructor refuses it, with the better message
    return st.just(simplest) | strategy.filter(is_accepted)


def _within_a_test(
    kind: Any, strategy: Strategy, is_accepted: Callable[[Any], bool], where: FieldContext
) -> Strategy:
    """Return a strategy for accepted values, without a search of Hypothesis in another's."""
    drawn = _accepted(strategy, is_accepted, where)
    usual = _CANDIDATES.get(_bare(kind), ())
    pool = [value for value in usual if is_accepted(value)]
    if not pool or len(pool) == len(usual):
        return drawn
    return st.sampled_from(pool) | drawn


@st.composite
def _accepted(
    draw: st.DrawFn, strategy: Strategy, is_accepted: Callable[[Any], bool], where: FieldContext
) -> Any:
    for _ in range(_TRIES_IN_A_TEST):
        value = draw(strategy)
        if is_accepted(value):
            return value
    raise ImpossibleError from where.errors[0]


def _bare(kind: Any) -> Any:
    while typing.get_origin(kind) in (Annotated, Final):
        kind = typing.get_args(kind)[0]
    return kind if isinstance(kind, type) else None


_CANDIDATES: Final[dict[Any, tuple[Any, ...]]] = {
    int: (*range(101), *range(-1, -11, -1), 128, 256, 512, 1000, 1024),
    float: (0.0, 0.5, 1.0, 0.1, 0.9, 0.01, 0.001, 2.0, 10.0, 100.0, 1000.0, -0.5, -1.0, -10.0),
    str: (
        *("a", "b", "abc", "x", "y", "name", "A", "ABC"),
        *("relu", "gelu", "tanh", "sum", "mean", "max", "min", "none", "same", "valid"),
        *("constant", "linear", "zeros", "ones", "float32", "adam", "sgd"),
    ),
}
"""Values that picky fields are likely to accept one of."""


@dataclasses.dataclass(frozen=True)
class ArgumentSlot:
    """One argument of a constructor, and where it comes from.

    Attributes:
        parameter: The parameter.
        kind: Its annotation, without type variables that stand for something.
        strategy: Its values; None if it keeps its default.
        given: Whether the user gave the strategy.
    """

    parameter: Parameter
    kind: Any
    strategy: Strategy | None
    given: bool = False

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.parameter.name
