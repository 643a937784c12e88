"""Functions that declare what they recompile on, and raise if they recompile on more."""

import collections
import functools
import inspect
import re
import threading
import typing
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Generic, ParamSpec, TypeVar

import hypothesis
import jax

from leafwise._findings.reasons import Explanation, Outcome, Reason
from leafwise._jit.watch import watch
from leafwise._objects.text import got
from leafwise._statics.findings import is_tracer
from leafwise.errors import CannotBuildError, RetraceError
from leafwise.testing._recompilation import Claims, check_claims, paths_of, what_is
from leafwise.testing._subject import Subject
from leafwise.testing.strategies._edit_positions import is_below
from leafwise.testing.strategies._instances import instances

P = ParamSpec("P")
R = TypeVar("R")


class OnlyOn(Generic[P, R]):
    """A jitted function that recompiles only on changes at some paths.

    Attributes:
        paths: The paths where a change may retrace and recompile.
        jitted: The jitted function.
    """

    __wrapped__: Callable[..., Any]

    def __init__(self, fun: Callable[P, R], paths: tuple[str, ...]) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.paths = paths
        self._subject = Subject(fun)
        self.jitted: Callable[P, R] = self._subject.jitted
        self.__wrapped__ = self._subject.plain
        self._signatures: dict[Any, None] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function.

        Raises:
            RetraceError: JAX retraced or recompiled it for a change elsewhere.
        """
        if any(map(is_tracer, jax.tree_util.tree_leaves((args, kwargs)))):
            return self.jitted(*args, **kwargs)  # inlined into another program
        signature = self._subject.signature(*args, **kwargs)
        with watch(eager=False) as log:
            result = self.jitted(*args, **kwargs)
        is_known, earlier = signature in self._signatures, list(self._signatures)
        self._signatures[signature] = None
        here = threading.get_ident()
        is_new = any(event.thread_id == here for event in log.of(self.jitted))
        if is_new and earlier and not is_known:  # a known one: the cache was cleared
            self._judge([signature.explain(before) for before in earlier])
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a bound method if the function is defined in a class."""
        return self if instance is None else functools.partial(self, instance)

    def _judge(self, explanations: list[Explanation]) -> None:
        """Raise `RetraceError` unless some earlier call differs from this one only at the paths."""
        again = (Outcome.RETRACE, Outcome.RECOMPILE)

        def blamed(explanation: Explanation) -> list[Reason]:
            costly = [reason for reason in explanation.reasons if reason.outcome in again]
            return [reason for reason in costly if not is_below(reason.path, self.paths)]

        nearest = min(explanations, key=lambda explanation: len(blamed(explanation)))
        if reasons := blamed(nearest):
            allowed = " or ".join(self.paths) or "nothing at all"
            lines = [f"{self.__wrapped__.__name__} recompiles only on {allowed}; it did so on"]
            raise RetraceError("\n  ".join([*lines, *map(str, reasons)]), (nearest,))

    def check(
        self,
        *,
        settings: hypothesis.settings | None = None,
        seed: int | None = None,
        **strategies: Any,
    ) -> None:
        """Test with drawn arguments that other values elsewhere do not recompile it.

        Args:
            settings: Hypothesis' settings; None for the current profile.
            seed: The seed of the draws; None to leave it to the settings.
            **strategies: Strategies by parameter, used in place of its annotation.

        Raises:
            LawViolation: JAX did something other than predicted, or recompiled on another
                path, which is in the message.
            CannotBuildError: No arguments can be made, as a parameter has neither an
                annotation nor a strategy.
            ValueError: A path does not exist, or no other value was found for it.
            TypeError: A strategy does not name a parameter.
        """
        __tracebackhide__ = True
        arguments = instances(_arguments_class(self.__wrapped__, set(strategies)), **strategies)
        claims: Claims = {"": Outcome.REUSE, **dict.fromkeys(self.paths)}
        check_claims(arguments, self._subject, claims, spread=True, settings=settings, seed=seed)


def _arguments_class(fun: Callable[..., Any], given: AbstractSet[str]) -> Any:
    """Return a named tuple class for a function's arguments, with their annotations."""
    hints = typing.get_type_hints(fun, include_extras=True)
    parameters = inspect.signature(fun).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [parameter for parameter in parameters if parameter.kind in positional]
    for parameter in taken:
        if parameter.name not in {*hints, *given} and parameter.default is parameter.empty:
            raise CannotBuildError(
                f"{fun.__name__}.{parameter.name}: it has no annotation\n"
                f"  fix: write one, or give a strategy: check({parameter.name}=...)"
            )
    names = [parameter.name for parameter in taken]
    defaults = [each.default for each in taken if each.default is not each.empty]
    make: Any = collections.namedtuple  # noqa: PYI024  # the fields are only known at run time
    name = fun.__name__ if fun.__name__.isidentifier() else "function"  # a lambda
    cls = make(name, names, defaults=defaults, module=fun.__module__)
    cls.__annotations__ = {name: hints[name] for name in names if name in hints}
    return cls


def recompiles_only_on(*paths: str) -> Callable[[Callable[P, R]], OnlyOn[P, R]]:
    """Decorate a function that recompiles only on changes at some paths.

    Each call is watched: it raises if JAX retraces or recompiles, and every earlier call
    differs from it outside these paths. `OnlyOn.check` tests the same for arguments that
    Hypothesis draws.

    Args:
        *paths: Paths of arguments, as in explanations: ``"config.depth"``; they include what
            is below. Without paths, the function must never recompile.

    Returns:
        A decorator for functions; it jits a function that is not jitted.

    Raises:
        TypeError: A path is not a string, or the decorated object is not a function.
        ValueError: (on decorating) A path does not begin with a parameter of the function.

    Examples:
        >>> @recompiles_only_on("config.depth")
        ... def step(config: Config, x: jax.Array) -> jax.Array: ...  # doctest: +SKIP
        >>> step(config, x)  # doctest: +SKIP
        >>> step(replace(config, lr=0.2), x)  # another program: raises  # doctest: +SKIP
        >>> step.check(x=arrays(shape=(3,)))  # doctest: +SKIP
    """
    checked = paths_of("recompiles_only_on", paths)

    def decorate(fun: Callable[P, R]) -> OnlyOn[P, R]:
        __tracebackhide__ = True
        function: object = fun
        if not callable(function):
            raise TypeError(f"recompiles_only_on(...) decorates a function, got {got(function)}")
        checked_function = OnlyOn(fun, checked)
        parameters = inspect.signature(checked_function.__wrapped__).parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        for path in () if kinds & open_ended else checked:
            if not is_below(path, parameters):
                names = what_is(re.split(r"[.\[]", path)[0], parameters)
                raise ValueError(f"recompiles_only_on: {path!r} does not name a parameter{names}")
        return checked_function

    return decorate
