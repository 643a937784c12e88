"""A strategy for instances of any class, from its annotations."""

import contextvars
import difflib
import inspect
import types
import typing
from typing import Any, Final

from hypothesis import strategies as st

from leafwise.testing.strategies._annotations import InstancePlan, strategy_for
from leafwise.testing.strategies._arrays import Strategy
from leafwise.testing.strategies._constructor import (
    FieldContext,
    is_user_registered,
    parameters_of,
    takes_more,
)


def instances(cls: Any, /, **overrides: Any) -> Strategy:
    """Return a strategy for instances of a class, built from its annotations.

    The class may be from any library, or written by hand: only its constructor and the
    annotations of its fields matter. A field with a default keeps it in about half of the
    instances. Named axes in jaxtyping annotations (``Float[Array, "batch dim"]``) have one
    length throughout an instance; a nested instance has its own. Arguments that the class
    refuses are drawn again. Strategies from `hypothesis.register_type_strategy` are used,
    also for the class itself unless there are overrides.

    Args:
        cls: A class, or an alias of one: ``Box[int]``. For an abstract class, its
            subclasses are drawn.
        **overrides: Strategies by field, used instead of the annotation and the default;
            ``...`` uses the annotation but never the default.

    Returns:
        A strategy for instances. Annotations are read at the first draw, so that they may
        refer to later definitions.

    Raises:
        TypeError: `cls` is not a class, or an override names no argument of the constructor
            or is not a strategy.
        CannotBuildError: On drawing: a field cannot be built, or the class refuses all
            arguments. The message names the field and the override to write.

    Examples:
        >>> import jax
        >>> import leafwise as lw
        >>> from hypothesis import given, strategies as st
        >>> from leafwise.testing import strategies as lst
        >>> @lw.pytree
        ... class Params:
        ...     w: jax.Array
        ...     depth: int = lw.static_field(default=2)
        >>> @given(lst.instances(Params, depth=st.integers(1, 4)))
        ... def test(params):
        ...     assert 1 <= params.depth <= 4
        >>> test()
    """
    origin: Any = typing.get_origin(cls) or cls
    unions: tuple[Any, ...] = (types.UnionType, typing.Union)
    if not inspect.isclass(origin) or origin in unions:
        msg = f"instances() takes a class, got {cls!r} ({type(cls).__name__})"
        if type(cls).__module__ not in ("builtins", "types", "typing"):  # an instance
            msg += f": write instances({type(cls).__name__})"
        raise TypeError(msg)
    _check(origin, overrides)
    from_fields: list[Strategy] = []  # created at the first draw

    def draw_one(draw: st.DrawFn, cls: Any, /, **overrides: Any) -> Any:
        registered = is_user_registered(origin)
        active = _ACTIVE.get()
        # While it is being drawn from, this is the registered strategy itself.
        if registered and not overrides and not any(each is from_fields for each in active):
            token = _ACTIVE.set((*active, from_fields))
            try:
                return draw(st.from_type(cls))
            finally:
                _ACTIVE.reset(token)
        if not from_fields:
            where = FieldContext(origin)
            by_fields = bool(overrides) or registered
            plan = InstancePlan(cls, where, overrides) if by_fields else None
            from_fields.append(plan.strategy() if plan else strategy_for(cls, where))
        return draw(from_fields[0])

    draw_one.__name__ = draw_one.__qualname__ = "instances"  # shown in the strategy's repr
    return st.composite(draw_one)(cls, **overrides)


_ACTIVE: Final[contextvars.ContextVar[tuple[object, ...]]] = contextvars.ContextVar(
    "_ACTIVE", default=()
)
"""The registered strategies that are being drawn from."""


def _check(cls: Any, overrides: dict[str, Any]) -> None:
    """Refuse overrides that do not name an argument, or are not strategies."""
    for name, strategy in overrides.items():
        known = [parameter.name for parameter in parameters_of(cls)]
        start = f"instances({cls.__name__}, {name}=...)"
        if name not in known and not takes_more(cls, inspect.Parameter.VAR_KEYWORD):
            near = " or ".join(map(repr, difflib.get_close_matches(name, known)))
            hint = f"did you mean {near}?" if near else f"it takes {', '.join(known) or 'nothing'}"
            if name in getattr(cls, "__dataclass_fields__", {}):
                hint = f"{name!r} is a field with init=False"
            raise TypeError(f"{start}: the constructor takes no {name!r}; {hint}")
        if not isinstance(strategy, st.SearchStrategy) and strategy is not ...:
            raise TypeError(
                f"{start} takes a strategy, got {strategy!r} ({type(strategy).__name__})\n"
                f"  fix: `instances({cls.__name__}, {name}=st.just({strategy!r}))`"
            )
