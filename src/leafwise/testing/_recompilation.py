"""Recompilation: comparing what JAX does for each change with predictions and claims."""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import hypothesis
import jax
import numpy as np
from hypothesis import strategies as st

from leafwise._findings.reasons import Outcome
from leafwise._objects.text import got
from leafwise._trees.equality import is_distinct, jax_equal
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
from leafwise.testing.strategies._leaves import is_numeric

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
                seen = probe.try_observe(edit.edited)
                if seen is None:
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
        positions = argument_positions(x, subject.static_names) if spread else edit_positions(x)
        return list(positions)

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
    near = difflib.get_close_matches(path, known, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{hint}; choose from {', '.join(known) or 'nothing'}"


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
