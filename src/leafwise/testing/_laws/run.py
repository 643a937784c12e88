"""Testing laws on drawn instances, finding the smallest failure, and searching outside a test."""

import contextlib
import dataclasses
import functools
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import hypothesis
import hypothesis.errors
import hypothesis.reporting
import jax
from hypothesis import strategies as st

from leafwise._findings.words import count
from leafwise._jax.events import count_events
from leafwise._objects.text import got
from leafwise.errors import CannotBuildError, LawViolation
from leafwise.testing._laws.case import Case, Edits, choose, describe_instance, draw_unprinted
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.same import recreated
from leafwise.testing.strategies._arrays import ImpossibleError, drawn_by
from leafwise.testing.strategies._edit_positions import positions_of
from leafwise.testing.strategies._instances import instances

_SUPPRESSED: Final[Any] = tuple(hypothesis.HealthCheck)  # compiling is slow; tests are nested


class StopSearch(BaseException):
    """Ends a search. Not an Exception, which Hypothesis would treat as a failure and shrink."""


def strategy_of(cls_or_strategy: Any, caller: str) -> "st.SearchStrategy[Any]":
    """Return the strategy for instances of a class, or the strategy that was given."""
    if isinstance(cls_or_strategy, st.SearchStrategy):
        return cls_or_strategy
    if isinstance(getattr(cls_or_strategy, "__origin__", cls_or_strategy), type):  # or Box[int]
        return instances(cls_or_strategy)
    msg = f"{caller} takes a class or a strategy for its instances, got {got(cls_or_strategy)}"
    if jax.tree_util.default_registry.flatten_one_level(cls_or_strategy) is not None:
        name = type(cls_or_strategy).__name__
        msg += f"\n  fix: {caller}({name}), or {caller}(st.just(instance))"
    raise TypeError(msg)


def _settings_for(settings: hypothesis.settings | None, share: float) -> hypothesis.settings:
    given: Any = settings if settings is not None else hypothesis.settings()
    if not isinstance(given, hypothesis.settings):
        raise TypeError(f"settings takes hypothesis.settings(...), got {got(given)}")
    return hypothesis.settings(
        given,
        max_examples=max(1, round(given.max_examples * share)),
        deadline=None,
        # Not `explain`, which runs many more examples for notes on leafwise's own lines.
        phases=[phase for phase in given.phases if phase is not hypothesis.Phase.explain],
        suppress_health_check=_SUPPRESSED,
        report_multiple_bugs=False,
        print_blob=False,
        database=None,  # its key would be the same test function for all classes
    )


def run_law(
    law: Law,
    strategy: "st.SearchStrategy[Any]",
    check: Callable[[Case], None],
    *,
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
    share: float = 1.0,
    until: float = math.inf,
) -> None:
    """Draw instances until a CPU time, and raise the violation of the smallest failing one."""
    chosen = _settings_for(settings, share)
    shrinks = round(300 * share)
    failure = _search(law, strategy, check, chosen, seed=seed, shrinks=shrinks, until=until)
    if failure is None:
        return
    error, instance = failure
    if not isinstance(error, LawViolation):
        error.add_note(f"instance: {describe_instance(instance)}")
        raise error
    once = hypothesis.settings(chosen, phases=[hypothesis.Phase.generate])

    def try_part(part: Any) -> LawViolation | None:
        try:
            copies = st.builds(recreated, st.just(part))
            failure = _search(law, st.just(part), check, once, seed=seed, others=copies)
        except _OF_USERS:
            return None
        return failure[0] if failure and isinstance(failure[0], LawViolation) else None

    raise _at_fault(error, instance, try_part).with_traceback(None)


def _search(
    law: Law,
    strategy: "st.SearchStrategy[Any]",
    check: Callable[[Case], None],
    settings: hypothesis.settings,
    *,
    seed: int | None,
    shrinks: int = 0,
    until: float = math.inf,
    others: "st.SearchStrategy[Any] | None" = None,
) -> tuple[BaseException, Any] | None:
    """Draw instances; return the error and the instance of the smallest failure, or None."""
    failed: list[tuple[BaseException, Any]] = []
    left = shrinks
    is_drawn = False

    def test(data: st.DataObject) -> None:
        nonlocal left, is_drawn
        left -= bool(failed)
        instance = draw_unprinted(data, strategy)
        case = Case(
            law, instance, data, Edits(instance, data), strategy if others is None else others
        )
        case.refuse_leaf()
        is_drawn = True
        error = _failure(case, check)
        if error is not None:
            failed.append((error, instance))
        if left < 0 or time.process_time() > until:
            raise StopSearch  # last: Hypothesis wants each run to draw the same amount
        if error is not None:
            raise error

    try:
        _draw(test, settings, seed)
    except _OF_USERS as error:
        if not failed and not (is_drawn and isinstance(error, hypothesis.errors.Unsatisfiable)):
            drop_notes(error)
            raise
    for failure, _ in failed[-1:]:
        drop_notes(failure)
    return failed[-1] if failed else None


def _at_fault(
    violation: LawViolation, instance: Any, try_part: Callable[[Any], LawViolation | None]
) -> LawViolation:
    """Return the violation with its owner: the part that breaks the law by itself, if any."""
    if violation.owner is type(instance) or violation.law in _OF_ONE_LEVEL:
        return violation
    owners = [position.owner for position in positions_of(instance) if position.name]
    for part in {id(part): part for part in owners if type(part) is not type(instance)}.values():
        of_part = try_part(part)
        if of_part is None:
            continue
        if try_part(_without(part, instance)) is not None:
            break  # also without such parts
        of_part = _at_fault(of_part, part, try_part)
        kept = of_part if violation.owner is None else violation  # it has the path
        kept.owner = of_part.owner or type(part)
        return kept
    violation.owner = violation.owner and type(instance)
    return violation


def _without(part: Any, instance: Any) -> Any:
    """Return an instance with 0.0 in place of parts of a class; just 0.0 if that raises."""

    def is_alike(node: Any) -> bool:
        return type(node) is type(part)

    try:
        leaves, structure = jax.tree.flatten(instance, is_leaf=is_alike)
        return jax.tree.unflatten(structure, [0.0 if is_alike(leaf) else leaf for leaf in leaves])
    except _OF_USERS:
        return 0.0


_OF_ONE_LEVEL: Final = (Law.AUX_DATA_HASH, Law.POST_INIT, Law.DISTINCT_CLASSES)
"""Laws about a class itself, whatever its instances contain."""
_OF_USERS: Final = (Exception, SystemExit, GeneratorExit)
"""What user code may raise."""


def _failure(case: Case, check: Callable[[Case], None]) -> BaseException | None:
    """Return the error of a law; None if it holds, or the class is not to blame."""
    try:
        check(case)
    except hypothesis.errors.UnsatisfiedAssumption:
        return None
    except hypothesis.errors.HypothesisException:
        raise
    except _OF_USERS as error:
        return None if case.refuses(error) else error
    return None


def _draw(
    test: Callable[[st.DataObject], None], settings: hypothesis.settings, seed: int | None
) -> bool:
    """Run a test with drawn data; return False if it raised `StopSearch`."""

    def run_test(data: st.DataObject) -> None:  # Hypothesis accepts neither a partial nor a method
        test(data)

    run: Any = settings(hypothesis.given(st.data())(run_test))
    if seed is not None:
        run = hypothesis.seed(seed)(run)
    try:
        with hypothesis.reporting.with_reporter(lambda _: None), warnings.catch_warnings():
            # By equinox, of values that are drawn here in place of a user's statics.
            warnings.filterwarnings("ignore", "A JAX array is being set as static")
            run()
    except StopSearch:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class LawTest:
    """How a law is tested: its function, its share of the examples, and what it runs on."""

    check: Callable[[Case], None]
    share: float = 1.0
    on: Literal["instances", "edits", "draws"] = "instances"


@dataclasses.dataclass
class LawTrial:
    """Tests laws on the same instances, each until it is broken.

    Errors are added to `broken` at once, so that they survive an interruption.
    """

    tests: Mapping[Law, LawTest]
    strategy: "st.SearchStrategy[Any]"
    settings: hypothesis.settings
    seed: int | None
    until: float
    broken: dict[Law, BaseException]
    on_law: Callable[[Law], None]
    instances: list[Any] = dataclasses.field(default_factory=list[Any])
    late: int = 0  # how many instances left no time for all edits

    def run(self) -> str:
        """Test the laws, and return a note if there was no time for all of them."""
        once = hypothesis.settings(self.settings, phases=[hypothesis.Phase.generate])
        is_whole = _draw(self._try_new, _settings_for(once, 1.0), self.seed)
        for law in (law for law, test in self.tests.items() if test.on == "draws"):
            again = functools.partial(self._try_again, law=law)
            _draw(again, _settings_for(once, self.tests[law].share), self.seed)
        few = "few changes" if is_whole else count(len(self.instances), "instance")
        is_slow = not is_whole or 2 * self.late > len(self.instances)
        return f"tested on {few}, as {NO_TIME}" if is_slow else ""

    def _try_new(self, data: st.DataObject) -> None:
        """Draw an instance, and test laws on it and on its edits, in its share of the time."""
        self.instances.append(draw_unprinted(data, self.strategy))
        case = self._case(self.instances[-1], data)
        case.refuse_leaf()
        for law, test in self.tests.items():
            if test.on == "instances" and (len(self.instances) - 1) % round(1 / test.share) == 0:
                self._attempt(law, case)
        # Last, since the other laws need instances that were never hashed.
        if of_edits := [law for law, test in self.tests.items() if test.on == "edits"]:
            started, edits = time.process_time(), case.edits
            # There are more instances if examples are rejected.
            left = max(1, 2 + self.settings.max_examples - len(self.instances))
            edits.until = started + (self.until - started) / left
            with contextlib.suppress(Exception):  # of a user's flatten, which the laws report
                edits.drawn  # noqa: B018  # cached
            self.late += time.process_time() > edits.until
            for law in of_edits:
                self._attempt(law, case)
        if time.process_time() > self.until:
            raise StopSearch

    def _try_again(self, data: st.DataObject, law: Law) -> None:
        self._attempt(law, self._case(choose(data, self.instances), data))
        if law in self.broken or time.process_time() > self.until:
            raise StopSearch

    def _case(self, instance: Any, data: st.DataObject) -> Case:
        # Not `sampled_from`, whose range would grow: Hypothesis takes that for a flaky test.
        others = st.integers(0, _MOST_DRAWN).map(lambda n: self.instances[n % len(self.instances)])
        return Case(Law.ROUND_TRIP, instance, data, Edits(instance, data), others)

    def _attempt(self, law: Law, case: Case) -> None:
        if law not in self.broken:
            self.on_law(law)
            error = _failure(dataclasses.replace(case, law=law), self.tests[law].check)
            if error is not None:
                self.broken[law] = error


NO_TIME: Final = "there was no time for others"


def drop_notes(error: BaseException) -> None:
    """Drop the notes of an error in which Hypothesis describes leafwise's own test."""
    if notes := getattr(error, "__notes__", None):
        error.__notes__ = [note for note in notes if not _BY_HYPOTHESIS.match(note)]


_BY_HYPOTHESIS: Final = re.compile(
    r"\s*(Draw \d|while generating|Failing test case|Falsifying example|Explanation)|.*data=data\(",
    re.DOTALL,
)

_MOST_DRAWN: Final = 200
"""How many values are drawn to find one, and then again to simplify it."""


def find(strategy: Any, wanted: Callable[[Any], bool], tries: int = _MOST_DRAWN) -> Any:
    """Return a wanted value, simplified in a limited number of draws; raise LookupError if none."""
    best: list[Any] = []
    left = tries
    drawn = 0

    def is_wanted(draw: st.DrawFn) -> bool:  # returns a bool, as Hypothesis prints what it finds
        nonlocal left, drawn
        if left < 0:
            raise StopSearch
        left -= 1
        drawn += 1
        with count_events() as counts:
            try:
                value = draw(strategy)
            except ImpossibleError:
                hypothesis.reject()
            except CannotBuildError as error:
                raise StopSearch from error  # Hypothesis would shrink it
            accepted = wanted(value)
        if accepted:
            left = left if best else _MOST_DRAWN
            best[:] = [value]
            if drawn == 1:
                raise StopSearch  # the first draw is the simplest
        left -= 20 * bool(counts.compiles)  # a compile takes as long as about 20 other draws
        return accepted

    settings = hypothesis.settings(derandomize=True, max_examples=200)
    try:
        hypothesis.find(drawn_by(is_wanted), bool, settings=_settings_for(settings, 1.0))
    except (StopSearch, hypothesis.errors.HypothesisException) as error:
        if isinstance(error.__cause__, CannotBuildError):
            raise error.__cause__ from None
        if not best:  # no such value, or no strategy; otherwise out of draws
            raise LookupError(str(error)) from error
    return best[0]
