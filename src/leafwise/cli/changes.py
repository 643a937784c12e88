"""One instance of a class, and others that differ in one argument."""

import contextlib
import enum
import operator
from collections.abc import Callable
from typing import Any, Final

import jax
from hypothesis import strategies as st

from leafwise._classes.annotations import without_marks
from leafwise._jax.events import count_events
from leafwise._objects.locks import cached_property
from leafwise._trees.roles import names_of
from leafwise.cli.targets import for_jit, is_abstract
from leafwise.errors import CannotBuildError, LeafwiseError
from leafwise.testing._format import format_error
from leafwise.testing._subject import Probe
from leafwise.testing.strategies._annotations import accepts_none, argument_for
from leafwise.testing.strategies._constructor import FieldContext, Parameter, call, parameters_of
from leafwise.testing.strategies._edit_positions import (
    EditPosition,
    arguments_of,
    edit_positions,
    parameter_for,
)
from leafwise.testing.strategies._find import find
from leafwise.testing.strategies._instance_plan import is_static
from leafwise.testing.strategies._leaves import is_numeric
from leafwise.testing.strategies._objects import is_user_registered

_MANY: Final = 2000
"""How many values to show to a constructor that has refused the usual number."""
_TOGETHER: Final = 12
"""Up to how many arguments are simplified together, which takes the square of their number."""
_MOST_STEPS: Final = 20
"""How often a found value is simplified, if its constructor compiles each time."""


def simplest(strategy: Any, wanted: Callable[[Any], bool], tries: int | None = None) -> Any:
    """Return a value that is wanted, as simple as it becomes in some time, or raise LookupError."""
    best: list[Any] = []
    steps = 0

    def is_wanted(drawn: Any) -> bool:
        nonlocal steps
        if steps > _MOST_STEPS:
            return False
        with count_events() as counts:
            accepted = wanted(drawn)
        steps += bool(best) and bool(counts.compiles)
        if accepted:
            best[:] = [drawn]
        return accepted

    try:
        return find(strategy, is_wanted, tries)
    except LookupError:
        if not best:
            raise
        return best[0]  # out of steps: Hypothesis complains that it is not wanted any more


class Builder:
    """One instance of a class, and others that its constructor makes with one other argument.

    `whole` is the strategy for instances, if one is registered for the class.

    Raises:
        CannotBuildError: No instance can be made; the message says what to give.
    """

    def __init__(self, cls: Any, part: Any = None) -> None:
        self.cls = cls
        self._errors: list[BaseException] = []
        self.arguments: dict[str, Any] = {}
        is_drawn_whole = is_user_registered(cls) or issubclass(cls, enum.Enum)
        self.whole: Any = st.from_type(cls) if is_drawn_whole else None
        if self.whole is None and is_abstract(cls):
            raise CannotBuildError(
                f"{cls.__name__}: an abstract class has no instances; check its subclasses"
            )
        self.parameters = parameters_of(cls)
        self.base: Any = part
        if part is None and self.whole is not None:
            self.base = self._find(self.whole, lambda made: made)
        if self.base is not None:
            self.arguments = arguments_of(self.base)
            self.parameters = [p for p in self.parameters if p.name in self.arguments]
        else:
            self._find_arguments()
            self.base = self.build({})

    def _find_arguments(self) -> None:
        required = [p for p in self.parameters if p.make_default is None]
        drawn = {p.name: self.strategy(p) for p in required}
        try:
            apart = self._find_apart(required) if len(required) > _TOGETHER else None
            self.arguments = apart or self._find(st.fixed_dictionaries(drawn), self.try_build)
        except CannotBuildError:  # the defaults alone may not fit: one of two is to be given
            others: dict[str, Any] = {}
            for parameter in self.parameters:
                if parameter not in required:
                    with contextlib.suppress(CannotBuildError):
                        others[parameter.name] = self.strategy(parameter)
            if not others:
                raise
            both = st.fixed_dictionaries(drawn, optional=others)
            self.arguments = self._find(both, self.try_build)

    @cached_property
    def probe(self) -> Probe:
        """Jitted functions that know the instance."""
        return Probe(for_jit(self.base))

    @cached_property
    def positions(self) -> list[EditPosition]:
        return list(edit_positions(self.base))

    def build(self, changes: dict[str, Any]) -> Any:
        """Construct an instance with some arguments changed."""
        return call(self.cls, self.parameters, {**self.arguments, **changes})

    def try_build(self, changes: dict[str, Any]) -> Any | None:
        """Construct an instance, or return None if the class refuses the value."""
        try:
            return self.build(changes)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # converters, checks, the user's
            self._errors[:] = [error]
            return None

    def takes(self, name: str) -> bool:
        """Return whether the constructor has an argument for an attribute."""
        return parameter_for(self.parameters, name) is not None

    def remake(self, name: str, given: Any) -> Any | None:
        """Construct the instance with one other argument; None if the class refuses that."""
        parameter = parameter_for(self.parameters, name)
        return None if parameter is None else self.try_build({parameter.name: given})

    def others(self, name: str) -> Any:
        """Return a strategy for what an attribute is given, and the instance with it, or None.

        Raises:
            CannotBuildError: No argument sets it, or no values are known.
        """
        parameter = parameter_for(self.parameters, name)
        if parameter is None:
            raise CannotBuildError("not a parameter of the constructor")
        given = (
            self.strategy(parameter)
            if self.whole is None
            else self.whole.map(operator.attrgetter(name))
        )

        def remade(given: Any) -> tuple[Any, Any]:
            return given, self.remake(name, given)

        return given.map(remade)

    def may_be_none(self, name: str) -> bool:
        """Return whether the parameter of an attribute is annotated as optional."""
        parameter = parameter_for(self.parameters, name)
        return parameter is not None and accepts_none(parameter.kind)

    def strategy(self, parameter: Parameter) -> Any:
        """Return a strategy for the arguments of one parameter."""
        name = f"{self.cls.__name__}.{parameter.name}"
        static = is_static(self.cls, parameter)
        context = FieldContext(name, parameter.owner, (), self._errors, static=static)
        return argument_for(self.cls, parameter, context)

    def _find_apart(self, required: list[Parameter]) -> dict[str, Any] | None:
        """Return the simplest argument of each parameter, if they fit together."""
        found: dict[str, Any] = {}
        try:
            for parameter in required:
                strategy = self.strategy(parameter)
                try:
                    found[parameter.name] = simplest(strategy, _is_filled, _TOGETHER)
                except LookupError:
                    found[parameter.name] = simplest(strategy, lambda _: True)
        except LookupError:
            return None
        made = self.try_build(found)
        return found if made is not None and _has_leaves(made) else None

    def _find(self, strategy: Any, build: Callable[[Any], Any]) -> Any:
        """Return what makes the simplest instance, with something in each field if possible."""

        def has_leaves(drawn: Any) -> bool:
            made = build(drawn)
            return made is not None and _has_leaves(made)

        def is_built(drawn: Any) -> bool:
            return build(drawn) is not None

        for wanted, tries in ((has_leaves, None), (is_built, None), (is_built, _MANY)):
            with contextlib.suppress(LookupError):
                return simplest(strategy, wanted, tries)
        if not self._errors:
            self._refuse_undrawable()
        reason = f"; the last error was {format_error(self._errors[-1])}" if self._errors else ""
        name = self.cls.__name__
        msg = f"{name}: no drawn values were accepted by its constructor{reason}"
        last = self._errors[-1] if self._errors else None
        if isinstance(last, LeafwiseError) and "fix:" in last.message:
            raise CannotBuildError(msg) from last
        given = [f"{each.name}=..." for each in self.parameters if each.make_default is None]
        arguments = ", ".join([name, *(given or ["..."])])
        msg += (
            f"\n  fix: give its fields defaults that fit together, or, next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy(\n"
            f"           {name}, hypothesis.strategies.builds({arguments}))"
        )
        raise CannotBuildError(msg) from last

    def _refuse_undrawable(self) -> None:
        """Name the parameter, if there is one, for which no value at all can be drawn."""
        for parameter in self.parameters:
            if parameter.make_default is not None:
                continue
            try:
                simplest(self.strategy(parameter), lambda _: True)
            except LookupError as error:
                raise CannotBuildError(
                    f"{self.cls.__name__}.{parameter.name}: there are no values of "
                    f"{without_marks(parameter.kind)}\n"
                    f"  fix: give the field a default, or register a strategy for its type:\n"
                    f"       hypothesis.strategies.register_type_strategy(...)"
                ) from error


def _is_filled(value: Any) -> bool:
    return any(map(is_numeric, jax.tree_util.tree_leaves(value)))


def _has_leaves(made: Any) -> bool:
    """Return whether there is a leaf in each dynamic field."""
    return all(_is_filled(getattr(made, name)) for name in names_of(made).dynamic)
