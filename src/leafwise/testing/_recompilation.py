"""Recompilation: what JAX does for each change, what was predicted, and what was claimed."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import hypothesis
import hypothesis.errors
import jax
from hypothesis import strategies as st

from leafwise._compare.reasons import Outcome
from leafwise._objects.text import got
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise.errors import LawViolation
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.run import run_law, strategy_of
from leafwise.testing._subject import Observation, Probe, Subject
from leafwise.testing.strategies._edit_positions import EditPosition, Role, edit_positions, is_below
from leafwise.testing.strategies._edits import (
    Edit,
    EditKind,
    edits_of,
    make_edit,
    options_of,
)
from leafwise.testing.strategies._leaves import is_numeric

VALUES: Final = (EditKind.LEAF_VALUE, EditKind.STATIC_VALUE)
"""The edits that claims are about: another value, all else being equal."""


def as_predicted(case: Case) -> None:
    """Change one thing, in each way, and compare what JAX does with what is predicted.

    Each leaf takes another value: one program must serve them all.
    """
    x = case.instance
    options = case.options()
    if not options or not all(map(is_numeric, jax.tree_util.tree_leaves(x))):
        return  # nothing can be changed, or a jitted function does not accept it
    probe: Probe = case.attempt("a jitted function", Probe, x)
    for kind, positions in options.items():
        every = kind is EditKind.LEAF_VALUE
        for position, strategy in positions if every else [case.draw(st.sampled_from(positions))]:
            edit = make_edit(kind, position, case.draw(strategy))
            seen = None if edit is None else probe.try_observe(edit.edited)
            if edit is None or seen is None:
                continue  # the class rejects it, or converts it back
            judge(case, seen, edit)
            if every and seen.outcome not in (promised(edit), Outcome.ERROR):
                text = f"{edit.kind}: {edit.change}: JAX did a {seen.outcome}"
                wanted = "no retrace, and no recompile, for another value of a leaf"
                case.fail(edit.path, text, wanted, fix=_FIXES[Outcome.REUSE, True])


def promised(edit: Edit[Any]) -> Outcome | None:
    """Return what the kind of an edit promises; None if that cannot be known."""
    if edit.kind is not EditKind.STATIC_TYPE:
        reused = edit.kind in (EditKind.LEAF_VALUE, EditKind.ARRAY_KIND)
        return Outcome.REUSE if reused else Outcome.RETRACE
    distinct = is_distinct(edit.before, edit.after)
    return None if distinct is None else Outcome.RETRACE if distinct else Outcome.REUSE


def judge(case: Case, seen: Observation, edit: Edit[Any]) -> None:
    """Compare what JAX did with what was predicted."""
    if not seen.is_as_predicted:
        text = f"{edit.kind}: {edit.change}: JAX did a {seen.outcome}"
        case.fail(edit.path, text, f"as predicted, {seen.predicted}".replace("\n", "\n  "))


@dataclasses.dataclass(frozen=True)
class Claims:
    """The paths where another value traces again, and those where none does: perhaps all others."""

    retrace: tuple[str, ...] = ()
    reuse: tuple[str, ...] = ()
    others_reuse: bool = False

    def about(self, path: str) -> Outcome | None:
        """Return what is claimed of a path; the most specific claim counts."""
        named = [each for each in (*self.retrace, *self.reuse) if is_below(path, [each])]
        if named:
            return Outcome.RETRACE if max(named, key=len) in self.retrace else Outcome.REUSE
        return Outcome.REUSE if self.others_reuse else None

    def check(self, case: Case, edit: Edit[Any], seen: Outcome) -> None:
        """Compare what JAX did with what is claimed."""
        claimed = self.about(edit.path)
        if claimed in (None, seen) or edit.kind not in VALUES:
            return
        if edit.kind is EditKind.STATIC_VALUE and jax_equal(edit.before, edit.after):
            return  # == holds, as for 0.0 and -0.0: that is no other value
        if self.others_reuse and claimed is Outcome.RETRACE:
            return  # it may, and need not
        wanted = {Outcome.RETRACE: "a retrace", Outcome.REUSE: "no retrace, and no recompile"}
        fix = _FIXES[claimed, edit.kind is EditKind.LEAF_VALUE]
        text = f"{edit.kind}: {edit.change}: JAX did a {seen}"
        case.fail(edit.path, text, f"{wanted[claimed]}, as claimed", fix=fix)


_FIXES: Final = {
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
    """Check which changes of a class, of any library, trace and compile again.

    Instances are drawn by Hypothesis, and changed in one place. A jitted function is called
    with both, and what JAX does is compared with what `leafwise.explain` predicts, and with
    what is claimed. Claims are about other values: another shape or dtype traces again,
    whatever the field.

    Args:
        cls_or_strategy: The class, or a strategy for its instances.
        fun: A function of one instance, jitted or not; one that uses all leaves if None.
            It may reject an edited instance by raising.
        retrace_on: Paths, such as ``"config.depth"``, where another value traces again.
        reuse_on: Paths where another value neither traces nor compiles.
        settings: Hypothesis' settings; the profile in force if None.
        seed: Of the draws; what the settings say if None.

    Raises:
        LawViolation: JAX did something other than predicted or claimed; it has the path.
        CannotBuildError: No instance can be made.
        ValueError: Nothing is at a path, or no other value was found for it, so that the
            claim cannot be tested.
        TypeError: `cls_or_strategy` is neither a class nor a strategy, `fun` is not a function,
            or a path is not a string.

    Examples:
        >>> check_recompilation(Params, retrace_on={"act"}, reuse_on={"lr", "w"})  # doctest: +SKIP
    """
    __tracebackhide__ = True
    strategy = strategy_of(cls_or_strategy, "check_recompilation")
    if fun is not None and not callable(fun):
        raise TypeError(
            f"check_recompilation(fun=...) takes a function of one instance, got {got(fun)}"
        )
    claims = Claims(paths_of("retrace_on", retrace_on), paths_of("reuse_on", reuse_on))
    both = set(claims.retrace) & set(claims.reuse)
    if both:
        raise ValueError(
            f"check_recompilation: {min(both)!r} is claimed both to retrace and to reuse"
        )

    def identity(tree: Any) -> Any:
        return tree

    make = Subject(fun or identity).fresh
    check_claims(strategy, make, claims, arguments_of=lambda x: [x], settings=settings, seed=seed)


def paths_of(option: str, paths: str | Iterable[str]) -> tuple[str, ...]:
    """Return paths as a tuple, in order."""
    listed: Any = [paths] if isinstance(paths, str) else paths
    several: list[Any] = list(listed) if isinstance(listed, Iterable) else [listed]
    for path in several:
        if not isinstance(path, str) or not path:
            raise TypeError(f'{option} takes paths such as "config.depth", got {got(path)}')
    return tuple(sorted(path.removeprefix(".") for path in several))


def check_claims(
    strategy: "st.SearchStrategy[Any]",
    make: Callable[[], Subject],
    claims: Claims,
    *,
    arguments_of: Callable[[Any], Sequence[Any]],
    positions_of: Callable[[Any], Iterable[EditPosition]] = edit_positions,
    settings: hypothesis.settings | None,
    seed: int | None,
) -> None:
    """Test predictions with any edit of what is drawn, and each claim with edits of its own.

    `make` returns a function without programs; the others return its arguments for what was
    drawn, and the places where that can be changed.
    """
    __tracebackhide__ = True

    given = hypothesis.settings() if settings is None else settings
    few = _FEW / getattr(given, "max_examples", _FEW)

    def run(path: str, share: float) -> _Trial:
        __tracebackhide__ = True
        trial = _Trial(strategy, make, claims, arguments_of, positions_of, path)
        law, share = Law.RECOMPILATION, max(share, few) if path else share
        try:
            run_law(law, strategy, trial.check, settings=settings, seed=seed, share=share)
        except hypothesis.errors.Unsatisfiable:
            if not path:
                raise
            trial.tested = 0
        return trial

    for path in (*claims.retrace, *claims.reuse):
        run(path, 0.2).refuse_untested()
    anything = run("", 0.3)
    if claims.others_reuse:  # each of them, since a few random edits pass many by
        for path, role in anything.known.items():
            if role is not Role.CONTAINER and claims.about(path) is Outcome.REUSE:
                run(path, 0.1)


_FEW: Final = 5
"""How many examples each path gets at least."""


@dataclasses.dataclass
class _Trial:
    """The examples of one claim, or of all edits."""

    strategy: "st.SearchStrategy[Any]"
    make: Callable[[], Subject]
    claims: Claims
    arguments_of: Callable[[Any], Sequence[Any]]
    positions_of: Callable[[Any], Iterable[EditPosition]]
    path: str = ""
    tested: int = 0
    known: dict[str, Role] = dataclasses.field(default_factory=dict[str, Role])
    raised: list[Exception] = dataclasses.field(default_factory=list[Exception])

    def check(self, case: Case) -> None:
        x = case.instance
        positions = list(self.positions_of(x))
        self.known.update({position.path: position.role for position in positions if position.path})
        edit = self._draw(case, positions)
        if edit is None:
            return
        subject = self.make()
        calls = self.arguments_of(x), self.arguments_of(edit.edited)
        subject.call(calls[0])
        try:
            seen = subject.observe(*calls)
        except (LawViolation, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:  # noqa: BLE001  # the function does not take this instance
            self.raised[:] = [error]
            return
        judge(case, seen, edit)
        if seen.outcome is Outcome.ERROR:
            return
        self.tested += 1
        self.claims.check(case, edit, seen.outcome)

    def _draw(self, case: Case, positions: list[EditPosition]) -> Edit[Any] | None:
        """Draw an edit; statics take values that the strategy draws, if it draws others."""
        kinds = VALUES if self.path else tuple(EditKind)
        if self.path:
            positions = [position for position in positions if is_below(position.path, [self.path])]
        options = options_of(positions, kinds)
        donor = case.draw(self.strategy)
        donated = {position.path: position.value for position in self.positions_of(donor)}
        static = EditKind.STATIC_VALUE
        offers = [
            (position, st.just(donated[position.path]))
            for position in positions
            if position.role is Role.STATIC
            and position.path in donated
            and make_edit(static, position, donated[position.path]) is not None
        ]
        if offers:
            options[static] = offers
        return case.draw(edits_of(options)) if options else None

    def refuse_untested(self) -> None:
        """Raise ValueError if the claim was not tested once."""
        if self.tested:
            return
        claim = "retrace_on" if self.path in self.claims.retrace else "reuse_on"
        if self.claims.others_reuse:
            claim = "recompiles_only_on"
        if not any(is_below(path, [self.path]) for path in self.known):
            names = ", ".join(self.known) or "nothing"
            raise ValueError(f"{claim}: nothing is at {self.path!r}; there is {names}")
        raise ValueError(
            f"{claim}: {self.path!r} was not tested: no other value was found that the class "
            f"and the function take\n  fix: give a strategy that draws others"
        ) from (self.raised[0] if self.raised else None)
