"""Recompilation: comparing what JAX does for each change with predictions and claims.

A claim is made in a test, by `check_recompilation`, or on a function, by `recompiles_only_on`.
"""

import collections
import dataclasses
import functools
import inspect
import re
import threading
import typing
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

import hypothesis
import jax
import numpy as np
from hypothesis import strategies as st

from leafwise._findings.reasons import Explanation, Outcome, Reason
from leafwise._jit.watch import watch
from leafwise._objects.text import got
from leafwise._statics.findings import is_tracer
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise.errors import CannotBuildError, RetraceError, did_you_mean
from leafwise.testing._format import format_error, format_static
from leafwise.testing._laws.case import Case, choose
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.run import run_law, strategy_of
from leafwise.testing._subject import Subject, SubjectProbe
from leafwise.testing.strategies._edit_positions import (
    EditPosition,
    Role,
    argument_positions,
    edit_positions,
    is_below,
    rebuilt,
)
from leafwise.testing.strategies._edits import Edit, EditKind, Options, make_edit, options_of
from leafwise.testing.strategies._instances import instances
from leafwise.testing.strategies._leaves import is_numeric

P = ParamSpec("P")
R = TypeVar("R")

Claims = dict[str, Outcome | None]
"""What a new value does, by path; the longest path counts, and None allows both."""


def as_predicted(case: Case) -> None:
    """Change each leaf's value, and each other kind once: JAX must do what is predicted."""
    x = rebuilt(case.instance)
    options = options_of(edit_positions(x))
    if not options or not all(map(is_numeric, jax.tree_util.tree_leaves(x))):
        return  # nothing can be changed, or a jitted function does not accept it
    make = functools.partial(SubjectProbe, compiles=False)
    probe: SubjectProbe = case.attempt("a jitted function", make, x)
    _EditTrial({"": Outcome.REUSE}, (EditKind.LEAF_VALUE,)).check(case, options, probe)


@dataclasses.dataclass
class _EditTrial:
    """Claims about edits of some kinds, and the paths where they were tested."""

    claims: Claims
    kinds: tuple[EditKind, ...]
    tested: set[str] = dataclasses.field(default_factory=set[str])
    refused: Exception | None = None

    def check(self, case: Case, options: Options, probe: SubjectProbe) -> None:
        """Make one edit of each kind, but at every position for the kinds with claims."""
        for kind, positions in options.items():
            chosen = positions if kind in self.kinds else [choose(case.data, positions)]
            for position, strategy in chosen:
                edit = make_edit(kind, position, case.draw(strategy))
                if edit is None:
                    continue  # the class rejects it, or converts it back
                if (seen := probe.try_observe(edit.edited)) is None:
                    self.refused = probe.refused
                    continue
                if not seen.is_as_predicted:
                    wanted = f"as predicted, {seen.predicted}".replace("\n", "\n  ")
                    case.fail(edit.path, _text_of(edit, seen.outcome), wanted)
                if kind in self.kinds and seen.outcome is not Outcome.ERROR:
                    self.tested.add(edit.path)
                    self._check_claim(case, edit, seen.outcome)

    def _check_claim(self, case: Case, edit: Edit[Any], seen: Outcome) -> None:
        named = [claim for claim in self.claims if not claim or is_below(edit.path, [claim])]
        claimed = self.claims[max(named, key=len)] if named else None
        if claimed in (None, seen):
            return
        if edit.kind is EditKind.STATIC_VALUE and jax_equal(edit.before, edit.after):
            return  # 0.0 and -0.0 are equal, so this is not another value
        wanted = "a retrace" if claimed is Outcome.RETRACE else "no retrace, and no recompile"
        fix = _FIXES[claimed, edit.kind is EditKind.LEAF_VALUE]
        case.fail(edit.path, _text_of(edit, seen), f"{wanted}, for another value", fix=fix)


def _text_of(edit: Edit[Any], seen: Outcome) -> str:
    return f"{edit.kind}: {edit.change}: JAX did a {seen}"


def promised(edit: Edit[Any]) -> Outcome | None:
    """Return the outcome that the kind of an edit promises; None if unknown."""
    if edit.kind is not EditKind.STATIC_TYPE:
        reused = edit.kind in (EditKind.LEAF_VALUE, EditKind.ARRAY_KIND)
        return Outcome.REUSE if reused else Outcome.RETRACE
    distinct = is_distinct(edit.before, edit.after)
    return None if distinct is None else Outcome.RETRACE if distinct else Outcome.REUSE


_FIXES: Final[dict[tuple[Outcome | None, bool], str]] = {
    (Outcome.RETRACE, True): "make it static, or claim that it is reused",
    (Outcome.RETRACE, False): "compare statics by type and value, as `@lw.pytree` does",
    (Outcome.REUSE, True): (
        "keep it out of the aux_data; under `equinox.filter_jit` a Python number is static"
    ),
    (Outcome.REUSE, False): "make it dynamic, or claim that it retraces",
}


def check_recompilation(
    cls_or_strategy: Any,
    fun: Callable[[Any], Any] | None = None,
    *,
    retrace_on: str | Iterable[str] = (),
    reuse_on: str | Iterable[str] = (),
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
) -> None:
    """Check which changes of a class, of any library, retrace and recompile.

    Hypothesis draws instances, and each is changed in one place. A jitted function is called
    with both, and what JAX does is compared with the prediction of `Signature.explain`, and
    with the claims. Claims are about values: another shape or dtype always retraces.

    Args:
        cls_or_strategy: The class, or a strategy for its instances.
        fun: A function of one instance, jitted or not; None for one that uses all leaves.
            It may reject an edited instance by raising.
        retrace_on: Paths, such as ``"config.depth"``, where another value retraces.
        reuse_on: Paths where another value neither retraces nor recompiles.
        settings: Hypothesis' settings; None for the current profile.
        seed: The seed of the draws; None to leave it to the settings.

    Raises:
        LawViolation: JAX did something other than predicted or claimed; it has the path.
        CannotBuildError: No instance can be made.
        ValueError: A path does not exist, or no other value was found for it, so that the
            claim cannot be tested.
        TypeError: `cls_or_strategy` is neither a class nor a strategy, `fun` is not a function,
            or a path is not a string.

    Examples:
        >>> check_recompilation(Params, retrace_on={"act"}, reuse_on={"lr", "w"})  # doctest: +SKIP
    """
    __tracebackhide__ = True
    strategy = strategy_of(cls_or_strategy, "check_recompilation")
    if fun is not None and not callable(fun):
        wanted = "check_recompilation(fun=...) takes a function of one instance"
        raise TypeError(f"{wanted}, got {got(fun)}")
    claims: Claims = dict.fromkeys(paths_of("retrace_on", retrace_on), Outcome.RETRACE)
    for path in paths_of("reuse_on", reuse_on):
        if path in claims:
            both = f"{path!r} is claimed both to retrace and to reuse"
            raise ValueError(f"check_recompilation: {both}")
        claims[path] = Outcome.REUSE
    check_claims(strategy, Subject(fun), claims, settings=settings, seed=seed)


def paths_of(option: str, paths: str | Iterable[str]) -> tuple[str, ...]:
    is_one = isinstance(paths, str) or not isinstance(cast("Any", paths), Iterable)
    several: list[Any] = [paths] if is_one else list(paths)
    for path in several:
        if not isinstance(path, str) or not path:
            raise TypeError(f'{option} takes paths such as "config.depth", got {got(path)}')
    return tuple(sorted(path.removeprefix(".") for path in several))


def check_claims(
    strategy: "st.SearchStrategy[Any]",
    subject: Subject,
    claims: Claims,
    *,
    spread: bool = False,  # a drawn value is a named tuple of arguments
    settings: hypothesis.settings | None,
    seed: int | None,
) -> None:
    """Test predictions on edits of drawn values, and claims on another value at each position."""
    __tracebackhide__ = True
    # Claims are about a new value, all else being equal.
    trial = _EditTrial(claims, (EditKind.LEAF_VALUE, EditKind.STATIC_VALUE))
    known: dict[str, EditPosition] = {}

    def positions_of(x: Any) -> list[EditPosition]:
        return list(argument_positions(x, subject.static_names) if spread else edit_positions(x))

    def check(case: Case) -> None:
        positions = positions_of(case.instance)
        known.update({position.path: position for position in positions if position.path})
        donors = [positions_of(case.draw(strategy)) for _ in range(3)]
        options = _with_statics_of(donors, positions)
        trial.check(case, options, SubjectProbe(case.instance, subject, spread=spread))

    most = getattr(hypothesis.settings() if settings is None else settings, "max_examples", _FEW)
    share = max(0.15, _FEW / most)  # of the examples; each changes all places
    named = {path: _OPTIONS[claimed] for path, claimed in claims.items() if path}
    try:
        run_law(Law.RECOMPILATION, strategy, check, settings=settings, seed=seed, share=share)
    finally:  # a path that does not exist may be why a claim fails
        for path, option in named.items() if known else ():
            if not any(is_below(place, [path]) for place in known):
                names = what_is(path, known)
                raise ValueError(f"{option}: nothing is at {path!r}{names}") from None
    for path, option in named.items():
        if not any(is_below(place, [path]) for place in trial.tested):
            position = next(known[place] for place in known if is_below(place, [path]))
            error = trial.refused
            last = f"\n  the last one was refused: {format_error(error)}" if error else ""
            raise ValueError(
                f"{option}: {path!r} was not tested: no other value was found that the class "
                f"and the function accept{last}\n  fix: {_strategy_fix(position)}"
            )


def what_is(path: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown path: the closest one, and all that exist."""
    return f"{did_you_mean(path, known)}; choose from {', '.join(known) or 'nothing'}"


def _strategy_fix(position: EditPosition) -> str:
    """Return the fix to draw other values for a position, with the code of a strategy."""
    name, path, value, cls = position.name, position.path, position.value, type(position.owner)
    if name and position.parameter is None:
        return f"let the constructor of {cls.__name__} take `{name}`, or drop the claim"
    code = f"st.from_type({type(value).__name__})"
    if hasattr(value, "dtype"):
        code = f"arrays({np.shape(value)})"
    elif type(value) in (int, float):
        code = f"st.sampled_from([{value}, {value + 3}])"
    elif callable(value):
        code = f"st.sampled_from([{format_static(value)}, jnp.tanh])"
    strategy = f"instances({cls.__name__}, {name}={code})" if name else f"check({path}={code})"
    return f"give a strategy that draws other values: `{strategy}`"


def _with_statics_of(donors: list[list[EditPosition]], positions: list[EditPosition]) -> Options:
    """Return the edits, with other values for statics from drawn instances where possible."""
    static = EditKind.STATIC_VALUE
    options = options_of(positions)
    statics = {position.path: (position, other) for position, other in options.pop(static, [])}
    for donor in donors:
        drawn = {position.path: position.value for position in donor}
        for position in positions:
            is_given = position.role is Role.STATIC and position.path in drawn
            if is_given and make_edit(static, position, drawn[position.path]):
                statics[position.path] = position, st.just(drawn[position.path])
    return {**options, static: list(statics.values())} if statics else options


_OPTIONS: Final[dict[Outcome | None, str]] = {
    Outcome.RETRACE: "retrace_on",
    Outcome.REUSE: "reuse_on",
    None: "recompiles_only_on",
}
_FEW: Final = 5
"""The least number of examples."""


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
            title = f"{self.__wrapped__.__name__} recompiles only on {allowed}; it did so on"
            raise RetraceError("\n  ".join([title, *map(str, reasons)]), (nearest,))

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
