"""How an instance of one class is drawn: its arguments, until the constructor takes them."""

import contextlib
import contextvars
import dataclasses
import typing
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import hypothesis
import hypothesis.errors
from hypothesis import strategies as st

from leafwise._objects.class_map import ClassMap
from leafwise.errors import CannotBuildError
from leafwise.testing._format import format_error
from leafwise.testing.strategies._arguments import ArgumentSlot, argument_for, is_field, is_static
from leafwise.testing.strategies._arrays import (
    Dims,
    ImpossibleError,
    Strategy,
    bind,
    needs_values,
    own_dims,
)
from leafwise.testing.strategies._constructor import (
    FieldContext,
    Parameter,
    bindings_of,
    call,
    parameters_of,
    substitute,
)
from leafwise.testing.strategies._scalars import origin_of

_ATTEMPTS: Final = 10
"""How often one draw tries to make an instance."""

_PATIENCE: Final = 200
"""After how many refusals a class that has accepted nothing is given up.

Hypothesis gives up after fifty draws without naming a reason.
"""

_MORE: Final = st.integers()
"""Drawn with a refusal: otherwise Hypothesis could run out of values without a reason."""

_REFUSALS: Final[ClassMap[dict[str, int]]] = ClassMap()
"""How often a class has refused arguments of given overrides; -1 once it accepted some.

It outlives a plan, as a test may make one in every example. Who was given up stays so:
what Hypothesis has seen fail must fail again.
"""


class _RefusedError(Exception):
    """An attempt to make an instance came to nothing."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(reason)
        self.reason = reason


class InstancePlan:
    """How instances of a class are drawn.

    Args:
        kind: The class, or an alias of it with arguments: ``Box[int]``.
        where: The field that the instance is for.
        ask: Returns the strategy of a part.
        overrides: Strategies by parameter; ``...`` for what the annotation says.

    Attributes:
        cls: The class.
        parameters: What its constructor takes.
        slots: Its arguments.

    Raises:
        CannotBuildError: A field cannot be built, or the class has no signature.
    """

    def __init__(
        self,
        kind: Any,
        where: FieldContext,
        ask: Callable[..., Any],
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.cls: Any = origin_of(kind)
        self.where = where
        self.parameters = parameters_of(self.cls)
        self._overrides = dict(overrides or {})
        self._ask = ask
        bound = bindings_of(kind)
        self.slots = [self._slot(each, bound.get(each.owner, {})) for each in self.parameters]
        known = {parameter.name for parameter in self.parameters}
        for name, strategy in self._overrides.items():
            if name not in known:  # one of **arguments
                extra = Parameter(name, Any, self.cls, None, by_name=True)
                self.slots.append(ArgumentSlot(extra, Any, strategy, given=True))

    def _slot(self, parameter: Parameter, bindings: Mapping[Any, Any]) -> ArgumentSlot:
        kind = substitute(parameter.kind, bindings)
        override = self._overrides.get(parameter.name)
        if override is not None and override is not ...:
            return ArgumentSlot(parameter, kind, override, given=True)
        static = self.where.varied and is_static(self.cls, parameter)
        place = self.where.inside(
            self.cls,
            parameter.name,
            parameter.owner,
            static=static,
            counts=static or not is_field(self.cls, parameter.name),
            bindings=bindings,
        )
        parameter = dataclasses.replace(parameter, kind=kind)
        if override is ...:
            parameter = dataclasses.replace(parameter, make_default=None)
        default = parameter.make_default
        try:
            strategy = argument_for(self.cls, parameter, place, self._ask)
        except CannotBuildError:
            if default is None:
                raise
            return ArgumentSlot(parameter, kind, None)
        if default is not None and not self.where.varied:
            strategy = st.builds(default) | strategy
        return ArgumentSlot(parameter, kind, strategy)

    def strategy(self) -> Strategy:
        """Return a strategy for the instances."""
        return _drawn(self)

    def draw(self, draw: st.DrawFn) -> Any:
        """Draw an instance.

        Raises:
            CannotBuildError: The class has refused all of very many arguments.
        """
        attempts = _ATTEMPTS if self.where.varied else 1
        for _ in range(attempts):
            try:
                made = self._attempt(draw)
            except _RefusedError as refused:
                self.where.errors[:] = [refused.reason]
            else:
                self._note(0)
                return made
        if self.where.varied:
            draw(_MORE)
            if self._note(attempts) >= _PATIENCE:
                self._give_up(self.where.errors[0])
        return hypothesis.reject()

    def _attempt(self, draw: st.DrawFn) -> Any:
        try:
            with own_dims() as dims:
                arguments = self._arguments(draw, dims)
        except ImpossibleError as impossible:
            raise _RefusedError(_reason(impossible)) from None
        try:
            return call(self.cls, self.parameters, arguments)
        except hypothesis.errors.UnsatisfiedAssumption:
            raise
        except (Exception, SystemExit) as error:
            raise _RefusedError(error) from error

    def _arguments(self, draw: st.DrawFn, dims: Dims) -> dict[str, Any]:
        """Draw the arguments, those first that decide how long named axes are."""
        found: dict[str, Any] = {}

        def put(slot: ArgumentSlot, value: Any) -> None:
            found[slot.name] = dims.values[slot.name] = value
            bind(dims, slot.kind, value)

        rest: list[ArgumentSlot] = []
        for slot in self.slots:
            if slot.given and slot.strategy is not None:
                put(slot, draw(slot.strategy))
            else:
                rest.append(slot)
        drawn: list[ArgumentSlot] = []
        for slot in rest:
            default = slot.parameter.make_default
            free = default is not None and self.where.varied
            if slot.strategy is not None and (not free or draw(st.booleans())):
                drawn.append(slot)
            elif default is not None and _has_axes(slot.kind):
                put(slot, default())
        for slot in sorted(drawn, key=lambda slot: needs_values(slot.kind)):
            put(slot, self._drawn_or_default(draw, slot))
        return found

    def _drawn_or_default(self, draw: st.DrawFn, slot: ArgumentSlot) -> Any:
        """Draw an argument; its default, if it has one, where its type cannot be constructed."""
        default = slot.parameter.make_default
        try:
            return None if slot.strategy is None else draw(slot.strategy)
        except ImpossibleError:
            raise  # another attempt may fit
        except (Exception, SystemExit) as error:
            if isinstance(error, hypothesis.errors.HypothesisException) and not isinstance(
                error, hypothesis.errors.UnsatisfiedAssumption | hypothesis.errors.InvalidArgument
            ):
                raise
            if default is not None:
                return slot.parameter.default
            if isinstance(error, hypothesis.errors.HypothesisException | CannotBuildError):
                raise
            raise _RefusedError(error) from error

    def _note(self, refused: int) -> int:
        """Note refusals, none for an instance that was made, and return how many there were."""
        known = _REFUSALS.get(self.cls)
        if known is None:
            if not refused:
                return 0
            _REFUSALS[self.cls] = known = {}
        key = repr(sorted(self._overrides.items())) if self._overrides else ""
        count = known.get(key, 0)
        if count < _PATIENCE:
            known[key] = -1 if not refused or count < 0 else count + refused
        return known[key]

    def _give_up(self, error: BaseException) -> None:
        name = self.cls.__name__
        wanted = f"{self.where}: " if self.where.text else ""
        reason = f"; {_format_reason(error)}"
        names = [slot.name for slot in self.slots if slot.parameter.make_default is None]
        names = names or [slot.name for slot in self.slots]
        override = self.where.nested(
            f"instances({', '.join([name, *(f'{each}=...' for each in names)])})"
        )
        msg = (
            f"{wanted}{name}: no drawn values made an instance{reason}\n"
            f"  fix: give strategies for fields that must fit: `{override}`, or, next to the "
            f"class:\n"
            f"       hypothesis.strategies.register_type_strategy({name}, ...)"
        )
        raise CannotBuildError(msg) from error


def _reason(impossible: ImpossibleError) -> BaseException:
    """Return the error to show: what a check raised, or what does not fit."""
    return impossible if str(impossible) else impossible.__cause__ or impossible


def _format_reason(error: BaseException) -> str:
    if isinstance(error, ImpossibleError):
        return str(error)
    return f"the last error was {format_error(error)}"


def _has_axes(kind: Any) -> bool:
    return hasattr(kind, "dim_str") or any(map(_has_axes, typing.get_args(kind)))


@st.composite
def _drawn(draw: st.DrawFn, plan: InstancePlan) -> Any:
    return plan.draw(draw)


_ACTIVE: Final[contextvars.ContextVar[tuple[int, ...]]] = contextvars.ContextVar(
    "_ACTIVE", default=()
)


@contextlib.contextmanager
def drawing(owner: object) -> Generator[bool, None, None]:
    """Yield whether the strategy of `owner` was already being drawn from."""
    active = _ACTIVE.get()
    token = _ACTIVE.set((*active, id(owner)))
    try:
        yield id(owner) in active
    finally:
        _ACTIVE.reset(token)
