"""Values for the fields of a class, from annotations and defaults, through Hypothesis."""

import dataclasses
import inspect
import re
import sys
import typing
from typing import Annotated, Any, Final

from hypothesis import strategies as st

from leafwise._classes.annotations import Unknown, resolve, resolve_known
from leafwise.errors import CannotBuildError
from leafwise.testing.strategies import _arguments, _containers, _objects, _scalars
from leafwise.testing.strategies._arrays import Strategy, arrays
from leafwise.testing.strategies._constructor import FieldContext, Parameter, substitute
from leafwise.testing.strategies._containers import NAMES, says_nothing
from leafwise.testing.strategies._find import find
from leafwise.testing.strategies._objects import is_user_registered
from leafwise.testing.strategies._scalars import Rule, origin_of

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
        return _from_hypothesis(kind, where)
    for test, make in _RULES:
        if test(kind):
            return _not_empty(make(kind, where, strategy_for), kind, where)
    if says_nothing(kind):
        return _anything(kind, where, default)
    for test, make in _objects.OWN if where.varied else ():
        if test(kind):
            return make(kind, where, strategy_for)
    return _from_hypothesis(kind, where)


_RULES: Final[tuple[Rule, ...]] = (
    *_scalars.RULES,
    *_objects.FIELDS,
    *_containers.RULES,
    *_objects.RULES,
)


def argument_for(cls: Any, parameter: Parameter, where: FieldContext) -> Strategy:
    """Return a strategy for an argument that the field of its name does not refuse alone.

    Raises:
        CannotBuildError: Nothing is known of its annotation.
    """
    return _arguments.argument_for(cls, parameter, where, strategy_for)


def accepts_none(kind: Any) -> bool:
    """Return whether an annotation is optional."""
    if typing.get_origin(kind) in (Annotated, Final):
        return accepts_none(typing.get_args(kind)[0])
    return type(None) in typing.get_args(kind)


def _not_empty(strategy: Strategy, kind: Any, where: FieldContext) -> Strategy:
    if where.varied and strategy.is_empty:
        msg = f"{where}: there are no values of {_name_of(kind)}\n  fix: {where.fix()}"
        raise CannotBuildError(msg)
    return strategy


def _annotated(kind: Any, where: FieldContext, default: Any) -> Strategy:
    """Return what the metadata of ``Annotated`` asks for: a strategy, or limits."""
    inner: Any = kind.__origin__
    remarks: list[Any] = list(kind.__metadata__)
    strategies = [remark for remark in remarks if isinstance(remark, st.SearchStrategy)]
    if strategies:
        return strategies[-1]
    limits = [each for each in remarks if type(each).__module__.startswith("annotated_types")]
    if limits and where.varied:
        for limit in limits:
            inner = Annotated[inner, limit]
        return _from_hypothesis(inner, where)
    return strategy_for(inner, where, default)


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
        msg = (
            f"{where}: its annotation cannot be resolved at run time\n"
            f"  fix: import what it names at the top of the module, not for type checkers only"
        )
        if where.varied:
            msg += f"; or {where.fix()}"
        raise CannotBuildError(msg)
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
        return NAMES | _DIGITS
    if not where.varied:
        return _DIGITS
    if where.static or hashable:
        return _DIGITS | st.sampled_from(["a", "b"]) | st.booleans() | st.tuples(_DIGITS)
    return _DIGITS | st.sampled_from([0.5, 1.0]) | arrays(dtype="float32")


_DIGITS: Final = st.integers(0, 9)


def _name_of(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _from_hypothesis(kind: Any, where: FieldContext) -> Strategy:
    """Ask Hypothesis now, since its errors would otherwise come at the first draw."""
    try:
        strategy: Strategy = st.from_type(kind)
        if where.varied:  # within a test, perhaps
            strategy.validate()
        else:
            find(strategy, lambda _: True)
    except Exception as error:
        fix = where.fix(_name_of(kind))
        msg = f"{where}: no values are known for {kind}\n  fix: {fix}"
        raise CannotBuildError(msg) from error
    return strategy
