"""A function that declares what it recompiles on, and raises if it recompiles on more."""

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

from leafwise._display.reasons import Explanation, Outcome, Reason
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
    """A jitted function that recompiles on changes at some paths only.

    Attributes:
        paths: Where a change may trace and compile again.
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
            RetraceError: JAX has retraced or recompiled it for a change elsewhere.
        """
        if any(map(is_tracer, jax.tree_util.tree_leaves((args, kwargs)))):
            return self.jitted(*args, **kwargs)  # a part of another program
        signature = self._subject.signature(*args, **kwargs)
        with watch(eager=False) as log:
            result = self.jitted(*args, **kwargs)
        is_known, earlier = signature in self._signatures, list(self._signatures)
        self._signatures[signature] = None
        here = threading.get_ident()
        is_new = any(event.thread_id == here for event in log.of(self.jitted))
        if is_new and earlier and not is_known:  # a known one: its program was cleared
            self._judge([signature.explain(before) for before in earlier])
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a bound method, for a function that is defined in a class."""
        return self if instance is None else functools.partial(self, instance)

    def _judge(self, explanations: list[Explanation]) -> None:
        """Raise `RetraceError` if no earlier call differs from this one in the paths alone."""
        again = (Outcome.RETRACE, Outcome.RECOMPILE)
        every: list[tuple[list[Reason], Explanation]] = []
        for explanation in explanations:
            costly = [reason for reason in explanation.reasons if reason.outcome in again]
            blamed = [reason for reason in costly if not is_below(reason.path, self.paths)]
            every.append((blamed, explanation))
        fewest, nearest = min(every, key=lambda pair: len(pair[0]))
        if fewest:
            allowed = " or ".join(self.paths) or "nothing at all"
            lines = [f"{self.__wrapped__.__name__} recompiles only on {allowed}; it did so on"]
            raise RetraceError("\n  ".join([*lines, *map(str, fewest)]), (nearest,))

    def check(
        self,
        *,
        settings: hypothesis.settings | None = None,
        seed: int | None = None,
        **strategies: Any,
    ) -> None:
        """Check it with drawn arguments: another value elsewhere must not recompile it.

        Args:
            settings: Hypothesis' settings; the profile in force if None.
            seed: Of the draws; what the settings say if None.
            **strategies: By parameter, in place of what its annotation says.

        Raises:
            LawViolation: JAX did something other than predicted, or recompiled on another
                path; it has the path.
            CannotBuildError: No arguments can be made: there is no annotation, and no
                strategy is given.
            ValueError: Nothing is at a path, or no other value was found for it.
            TypeError: A strategy is given for no parameter.
        """
        __tracebackhide__ = True
        arguments = instances(_arguments_class(self.__wrapped__, set(strategies)), **strategies)
        claims: Claims = {"": Outcome.REUSE, **dict.fromkeys(self.paths)}
        options: Any = {"settings": settings, "seed": seed}
        check_claims(arguments, self._subject, claims, spread=True, **options)


def _arguments_class(fun: Callable[..., Any], given: AbstractSet[str]) -> Any:
    """Return a class whose instances are a function's arguments, with its annotations."""
    hints = typing.get_type_hints(fun, include_extras=True)
    taken = [
        parameter
        for parameter in inspect.signature(fun).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    for parameter in taken:
        if parameter.name not in {*hints, *given} and parameter.default is parameter.empty:
            raise CannotBuildError(
                f"{fun.__name__}.{parameter.name}: there is no annotation\n"
                f"  fix: write one, or give a strategy: check({parameter.name}=...)"
            )
    names = [parameter.name for parameter in taken]
    defaults = [each.default for each in taken if each.default is not each.empty]
    make: Any = collections.namedtuple  # noqa: PYI024  # the fields are known here and now
    name = fun.__name__ if fun.__name__.isidentifier() else "function"  # a lambda has none
    made = make(name, names, defaults=defaults)
    made.__module__ = fun.__module__
    made.__annotations__ = {name: hints[name] for name in names if name in hints}
    return made


def recompiles_only_on(*paths: str) -> Callable[[Callable[P, R]], OnlyOn[P, R]]:
    """Decorate a function that recompiles on changes at some paths only.

    Each call is watched: where JAX traces or compiles again, and the call differs from every
    earlier one elsewhere than in these paths, the call raises. With `OnlyOn.check` the same is
    tested for arguments that Hypothesis draws.

    Args:
        *paths: Paths of arguments, as in explanations: ``"config.depth"``; what lies below
            counts. Without paths, the function must never recompile.

    Returns:
        A decorator for functions, jitted or not; one that is not is jitted.

    Raises:
        TypeError: A path is not a string, or what is decorated is not a function.
        ValueError: (on decorating) A path begins with no parameter of the function.

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
        made = OnlyOn(fun, checked)
        parameters = inspect.signature(made.__wrapped__).parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        for path in () if kinds & open_ended else checked:
            if not is_below(path, parameters):
                names = what_is(re.split(r"[.\[]", path)[0], parameters)
                raise ValueError(f"recompiles_only_on: {path!r} begins with no parameter{names}")
        return made

    return decorate
