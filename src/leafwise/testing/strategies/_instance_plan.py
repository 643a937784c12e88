"""How an instance of one class is drawn: its arguments, until the constructor takes them."""

import contextlib
import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import hypothesis
import hypothesis.errors
import jax
from hypothesis import strategies as st

from leafwise._classes.annotations import has_mark
from leafwise._classes.registry import registered_names, spec_of
from leafwise._classes.spec import is_decorated, is_static_metadata
from leafwise._objects.class_map import ClassMap
from leafwise._trees.roles import prepared_by
from leafwise.errors import CannotBuildError, LeafwiseError
from leafwise.testing._format import format_error
from leafwise.testing.strategies._arrays import (
    Dims,
    ImpossibleError,
    Strategy,
    bind,
    keys,
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
from leafwise.testing.strategies._find import find
from leafwise.testing.strategies._objects import origin_of

Ask = Callable[..., Strategy]
"""Returns the strategy of an annotation, for a field and perhaps with its default."""

_ATTEMPTS: Final = 10
"""How often one draw tries to make an instance, or a value that a field accepts."""

_PATIENCE: Final = 200
"""After how many refusals a class that has accepted nothing is given up.

Hypothesis gives up after fifty draws without naming a reason.
"""

_TRIES: Final = 1000
"""How many values to try on a converter or check, which are fast, outside a test."""

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


# --------------------------------------------------------------------------- one argument


def argument_for(cls: Any, parameter: Parameter, where: FieldContext, ask: Ask) -> Strategy:
    """Return a strategy for an argument that the field of its name does not refuse alone.

    Raises:
        CannotBuildError: Nothing is known of its annotation.
    """
    is_array = parameter.kind is jax.Array and not _is_field(cls, parameter.name)
    if is_array and _KEY.search(parameter.name):
        return keys()
    strategy = ask(parameter.kind, where, parameter.default)
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

    if where.varied:  # within a test, where every value that is tried is a part of its data
        drawn = _accepted(strategy, is_accepted, where)
        usual = _CANDIDATES.get(_bare(parameter.kind), ())
        pool = list(filter(is_accepted, usual))
        return drawn if len(pool) in (0, len(usual)) else st.sampled_from(pool) | drawn
    try:  # first, since values for several picky fields are rarely drawn together
        simplest = find(strategy, is_accepted, _TRIES)
    except LookupError:
        return strategy  # its constructor refuses it, with the better message
    return st.just(simplest) | strategy.filter(is_accepted)


@st.composite
def _accepted(
    draw: st.DrawFn, strategy: Strategy, is_accepted: Callable[[Any], bool], where: FieldContext
) -> Any:
    for _ in range(_ATTEMPTS):
        value = draw(strategy)
        if is_accepted(value):
            return value
    raise ImpossibleError from where.errors[0]


_KEY: Final = re.compile("(?i)^(prng_?)?(key|rng)$|_(key|rng)$")
"""What parameters of constructors are named that take a random key."""


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


def _is_field(cls: Any, name: str) -> bool:
    """Return whether a parameter is declared as a field, or may be one."""
    if dataclasses.is_dataclass(cls):
        return name in {field.name for field in dataclasses.fields(cls)}
    declared = getattr(cls, "__attrs_attrs__", None)
    return declared is not None or hasattr(cls, "_fields")


# --------------------------------------------------------------------------- all arguments


@dataclasses.dataclass(frozen=True)
class ArgumentSlot:
    """One argument of a constructor, and where it comes from.

    Attributes:
        parameter: The parameter; its annotation has no type variables that stand for something.
        strategy: Its values; None if it keeps its default.
        given: Whether the user gave the strategy.
    """

    parameter: Parameter
    strategy: Strategy | None
    given: bool = False


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
        self, kind: Any, where: FieldContext, ask: Ask, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.cls: Any = origin_of(kind)
        self.where = where
        self.parameters = parameters_of(self.cls)
        self._overrides = dict(overrides or {})
        bound = bindings_of(kind)
        self.slots = [self._slot(each, bound.get(each.owner, {}), ask) for each in self.parameters]
        known = {parameter.name for parameter in self.parameters}
        for name, strategy in self._overrides.items():
            if name not in known:  # one of **arguments
                extra = Parameter(name, Any, self.cls, None, by_name=True)
                self.slots.append(ArgumentSlot(extra, strategy, given=True))

    def _slot(self, parameter: Parameter, bindings: Mapping[Any, Any], ask: Ask) -> ArgumentSlot:
        parameter = dataclasses.replace(parameter, kind=substitute(parameter.kind, bindings))
        override = self._overrides.get(parameter.name)
        if override is not None and override is not ...:
            return ArgumentSlot(parameter, override, given=True)
        static = is_static(self.cls, parameter)
        where = dataclasses.replace(
            self.where,
            text=f"{self.where.text or self.cls.__name__}.{parameter.name}",
            home=parameter.owner,
            above=(*self.where.above, self.cls),
            static=static,
            counts=static or not _is_field(self.cls, parameter.name),
            bindings=bindings,
            steps=(*self.where.steps, (self.cls.__name__, parameter.name)),
            as_key=False,
            around=(),
        )
        if override is ...:
            parameter = dataclasses.replace(parameter, make_default=None)
        default = parameter.make_default
        try:
            strategy = argument_for(self.cls, parameter, where, ask)
        except CannotBuildError:
            if default is None:
                raise
            return ArgumentSlot(parameter, None)
        if default is not None and not self.where.varied:
            strategy = st.builds(default) | strategy
        return ArgumentSlot(parameter, strategy)

    def strategy(self) -> Strategy:
        """Return a strategy for the instances."""
        return _drawn(self)

    def draw(self, draw: st.DrawFn) -> Any:
        """Draw an instance.

        Raises:
            CannotBuildError: The class has refused all of very many arguments.
        """
        for _ in range(_ATTEMPTS):
            try:
                made = self._attempt(draw)
            except _RefusedError as refused:
                self.where.errors[:] = [refused.reason]
            else:
                self._count(0)
                return made
        draw(_MORE)
        if self._count(_ATTEMPTS) >= _PATIENCE:
            self._give_up(self.where.errors[0])
        return hypothesis.reject()

    def _attempt(self, draw: st.DrawFn) -> Any:
        try:
            with own_dims() as dims:
                arguments = self._arguments(draw, dims)
        except ImpossibleError as impossible:  # shown: what does not fit, or what a check raised
            reason = impossible if str(impossible) else impossible.__cause__
            raise _RefusedError(reason or impossible) from None
        try:
            return call(self.cls, self.parameters, arguments)
        except hypothesis.errors.UnsatisfiedAssumption:
            raise
        except (Exception, SystemExit) as error:
            raise _RefusedError(error) from error

    def _arguments(self, draw: st.DrawFn, dims: Dims) -> dict[str, Any]:
        """Draw the arguments, those first that decide how long named axes are."""
        found: dict[str, Any] = {}

        def put(parameter: Parameter, value: Any) -> None:
            found[parameter.name] = dims.values[parameter.name] = value
            bind(dims, parameter.kind, value)

        drawn: list[ArgumentSlot] = []
        for slot in sorted(self.slots, key=lambda slot: not slot.given):
            parameter, default = slot.parameter, slot.parameter.make_default
            if slot.given and slot.strategy is not None:
                put(parameter, draw(slot.strategy))
                continue
            is_free = default is not None and self.where.varied
            if slot.strategy is not None and (not is_free or draw(_EITHER)):
                drawn.append(slot)
            elif default is not None and _has_axes(parameter.kind):
                put(parameter, default())
        for slot in sorted(drawn, key=lambda slot: needs_values(slot.parameter.kind)):
            put(slot.parameter, self._drawn_or_default(draw, slot))
        return found

    def _drawn_or_default(self, draw: st.DrawFn, slot: ArgumentSlot) -> Any:
        """Draw an argument; its default, if it has one, where its type cannot be constructed."""
        try:
            return None if slot.strategy is None else draw(slot.strategy)
        except ImpossibleError:
            raise  # another attempt may fit
        except (Exception, SystemExit) as error:
            by_hypothesis = isinstance(error, hypothesis.errors.HypothesisException)
            no_value = (
                hypothesis.errors.UnsatisfiedAssumption,
                hypothesis.errors.InvalidArgument,
            )
            if by_hypothesis and not isinstance(error, no_value):
                raise
            if slot.parameter.make_default is not None:
                return slot.parameter.default
            if by_hypothesis or isinstance(error, CannotBuildError):
                raise
            raise _RefusedError(error) from error

    def _count(self, refused: int) -> int:
        """Count refusals, none for an instance that was made, and return how many there were."""
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
        is_ours = isinstance(error, ImpossibleError)
        reason = str(error) if is_ours else f"the last error was {format_error(error)}"
        names = [each.parameter.name for each in self.slots if each.parameter.make_default is None]
        names = names or [each.parameter.name for each in self.slots]
        given = ", ".join([name, *(f"{each}=..." for each in names)])
        override = self.where.nested(f"instances({given})")
        fit = f"give strategies for fields that must fit: `{override}`, or, " if names else ""
        msg = f"{wanted}{name}: no drawn values made an instance; {reason}"
        if isinstance(error, LeafwiseError) and "fix:" in error.message:
            raise CannotBuildError(msg) from error
        msg += (
            f"\n  fix: {fit}next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({name}, ...)"
        )
        raise CannotBuildError(msg) from error


_EITHER: Final = st.booleans()


def _has_axes(kind: Any) -> bool:
    return hasattr(kind, "dim_str") or any(map(_has_axes, typing.get_args(kind)))


@st.composite
def _drawn(draw: st.DrawFn, plan: InstancePlan) -> Any:
    return plan.draw(draw)
