"""How an instance of one class is drawn: its arguments, until the constructor takes them."""

import contextlib
import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import hypothesis
import jax
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, InvalidArgument, UnsatisfiedAssumption

from leafwise._classes.annotations import has_mark, unwrap
from leafwise._classes.registry import registered_names, spec_of
from leafwise._classes.spec import is_decorated, is_static_metadata
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
from leafwise.testing.strategies._objects import entry_of, origin_of

Ask = Callable[..., Strategy]
"""Returns the strategy of an annotation, for a field and perhaps with its default."""

_ATTEMPTS: Final = 10
"""How often one draw tries to make an instance, or a value that a field accepts."""

_PATIENCE: Final = 200
"""After how many refusals a class that has accepted nothing is given up.

Hypothesis gives up after fifty draws without naming a reason.
"""


class _RefusedError(Exception):
    """An attempt to make an instance came to nothing, for the reason that is its cause."""


# --------------------------------------------------------------------------- one argument


def argument_for(cls: Any, parameter: Parameter, where: FieldContext, ask: Ask) -> Strategy:
    """Return a strategy for an argument that the field of its name does not refuse alone."""
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

    @st.composite
    def accepted(draw: st.DrawFn) -> Any:
        for _ in range(_ATTEMPTS):
            value = draw(strategy)
            if is_accepted(value):
                return value
        raise ImpossibleError from where.errors[0]

    usual = entry_of(_CANDIDATES, unwrap(parameter.kind)) or ()
    pool = list(filter(is_accepted, usual))
    return accepted() if len(pool) in (0, len(usual)) else st.sampled_from(pool)


_KEY: Final = re.compile("(?i)^(prng_?)?(key|rng)$|_(key|rng)$")
"""What parameters of constructors are named that take a random key."""


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
    """One argument of a constructor and its values; without a strategy it keeps its default."""

    parameter: Parameter
    strategy: Strategy | None
    given: bool = False


class InstancePlan:
    """How instances of a class, or of an alias such as ``Box[int]``, are drawn for a field."""

    def __init__(
        self, kind: Any, where: FieldContext, ask: Ask, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.cls: Any = origin_of(kind)
        self.where = where
        self.parameters = parameters_of(self.cls)
        self._overrides = dict(overrides or {})
        self._refused: int | None = 0  # None once the class accepted something
        bound = bindings_of(kind)
        self.slots = [self._slot(each, bound.get(each.owner, {}), ask) for each in self.parameters]
        for name in self._overrides.keys() - {parameter.name for parameter in self.parameters}:
            extra = Parameter(name, Any, self.cls, None, by_name=True)  # one of **arguments
            self.slots.append(ArgumentSlot(extra, self._overrides[name], given=True))

    def _slot(self, parameter: Parameter, bindings: Mapping[Any, Any], ask: Ask) -> ArgumentSlot:
        parameter = dataclasses.replace(parameter, kind=substitute(parameter.kind, bindings))
        override = self._overrides.get(parameter.name)
        if override is ...:
            parameter = dataclasses.replace(parameter, make_default=None)
        elif override is not None:
            return ArgumentSlot(parameter, override, given=True)
        static = is_static(self.cls, parameter)
        where = FieldContext(
            f"{self.where.text or self.cls.__name__}.{parameter.name}",
            parameter.owner,
            (*self.where.above, self.cls),
            self.where.errors,
            static=static,
            counts=static or not _is_field(self.cls, parameter.name),
            bindings=bindings,
            steps=(*self.where.steps, (self.cls.__name__, parameter.name)),
        )
        try:
            return ArgumentSlot(parameter, argument_for(self.cls, parameter, where, ask))
        except CannotBuildError:
            if parameter.make_default is None:
                raise
            return ArgumentSlot(parameter, None)

    def strategy(self) -> Strategy:
        """Return a strategy; `CannotBuildError` once the class has refused very many arguments."""
        both = self.with_arguments()

        @st.composite
        def instance(draw: st.DrawFn) -> Any:  # not `map`, which draws again what was refused
            return draw(both)[1]

        return instance()

    def with_arguments(self, *, plain: bool = False) -> Strategy:
        """Return a strategy for arguments, and the instance that is made of them.

        The `plain` ones keep all defaults, and have axes of length 3. Each is tried alone, as a
        search learns nothing from attempts that are hidden in one draw.
        """
        attempts = 1 if plain else _ATTEMPTS

        @st.composite
        def instance(draw: st.DrawFn) -> Any:
            for _ in range(attempts):
                try:
                    made = self._attempt(draw, plain)
                except _RefusedError as refused:
                    self.where.errors[:] = [refused.__cause__ or refused]
                else:
                    self._refused = None
                    return made
            draw(st.integers())  # or Hypothesis could run out of values without a reason
            if self._refused is not None:
                self._refused += attempts
                if self._refused >= _PATIENCE:
                    self._give_up(self.where.errors[0])
            return hypothesis.reject()

        return instance()

    def _attempt(self, draw: st.DrawFn, plain: bool) -> tuple[dict[str, Any], Any]:  # noqa: FBT001
        try:
            with own_dims(alike=plain) as dims:
                arguments = self._arguments(draw, dims)
            return arguments, call(self.cls, self.parameters, arguments)
        except ImpossibleError as impossible:  # shown: what does not fit, or what a check raised
            raise _RefusedError from (impossible if str(impossible) else impossible.__cause__)
        except (CannotBuildError, HypothesisException):
            raise
        except (Exception, SystemExit) as error:
            raise _RefusedError from error

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
            elif slot.strategy is not None and (
                default is None or (not dims.alike and draw(st.booleans()))
            ):
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
        except (CannotBuildError, UnsatisfiedAssumption, InvalidArgument):
            if slot.parameter.default is inspect.Parameter.empty:
                raise
            return slot.parameter.default

    def _give_up(self, error: BaseException) -> None:
        name = self.cls.__name__
        wanted = f"{self.where}: " if self.where.text else ""
        is_ours = isinstance(error, ImpossibleError)
        reason = str(error) if is_ours else f"the last error was {format_error(error)}"
        msg = f"{wanted}{name}: no drawn values made an instance; {reason}"
        if isinstance(error, LeafwiseError) and "fix:" in error.message:
            raise CannotBuildError(msg) from error
        names = [each.parameter.name for each in self.slots if each.parameter.make_default is None]
        names = names or [each.parameter.name for each in self.slots]
        given = ", ".join([name, *(f"{each}=..." for each in names)])
        override = self.where.nested(f"instances({given})")
        fit = f"give strategies for fields that must fit: `{override}`, or, " if names else ""
        raise CannotBuildError(
            f"{msg}\n  fix: {fit}next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({name}, ...)"
        ) from error


def _has_axes(kind: Any) -> bool:
    return hasattr(kind, "dim_str") or any(map(_has_axes, typing.get_args(kind)))
