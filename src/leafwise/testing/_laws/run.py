"""Running a test with drawn instances for the smallest that fails, and searching outside a test."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import hypothesis
import hypothesis.errors
import hypothesis.reporting
import jax
from hypothesis import strategies as st

from leafwise._jax.events import count_events
from leafwise._objects.text import got
from leafwise.errors import LawViolation
from leafwise.testing._laws.case import Case, Edits, describe_instance, draw_unprinted
from leafwise.testing._laws.law import Law
from leafwise.testing.strategies._arrays import ImpossibleError
from leafwise.testing.strategies._edit_positions import edit_positions
from leafwise.testing.strategies._instances import instances

_SUPPRESSED: Final[Any] = tuple(hypothesis.HealthCheck)  # compiling is slow, and tests are nested
_SHRINKS: Final = 300
"""How many smaller examples are tried."""


class EnoughError(BaseException):
    """Ends a search; Hypothesis lets it through."""


def strategy_of(cls_or_strategy: Any, caller: str) -> "st.SearchStrategy[Any]":
    """Return a strategy for instances."""
    if isinstance(cls_or_strategy, st.SearchStrategy):
        return cls_or_strategy
    kind = getattr(cls_or_strategy, "__origin__", cls_or_strategy)  # Box[int] is of Box
    if isinstance(kind, type):
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
        # Not `explain`, which runs many more examples for notes on our own lines.
        phases=[phase for phase in given.phases if phase is not hypothesis.Phase.explain],
        suppress_health_check=_SUPPRESSED,
        report_multiple_bugs=False,
        print_blob=False,
        database=None,  # its key would be our own function, the same for all classes
    )


def run_law(
    law: Law,
    strategy: "st.SearchStrategy[Any]",
    check: Callable[[Case], None],
    *,
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
    share: float = 1.0,
) -> None:
    """Draw instances, and raise the violation of the smallest one that breaks the law."""
    failed: list[tuple[BaseException, Any]] = []
    left = round(_SHRINKS * share)
    is_drawn = False

    def test(data: st.DataObject) -> None:
        nonlocal left, is_drawn
        left -= bool(failed)
        if left < 0:
            raise EnoughError
        instance = draw_unprinted(data, strategy)
        case = Case(law, instance, data, Edits(instance))
        case.refuse_leaf()
        is_drawn = True
        error = _failure(case, check)
        if error is not None:
            failed.append((error, instance))
            raise error

    try:
        _draw(test, _settings_for(settings, share), seed)
    except EnoughError:
        pass
    except _OF_USERS as error:
        if not failed and not (is_drawn and isinstance(error, hypothesis.errors.Unsatisfiable)):
            without_notes(error)
            raise
    if failed:
        smallest, instance = failed[-1]  # the last one
        without_notes(smallest)
        if isinstance(smallest, LawViolation):

            def try_part(part: Any) -> None:
                run_law(law, st.just(part), check, settings=settings, seed=seed, share=share)

            raise _at_fault(smallest, instance, try_part).with_traceback(None)
        smallest.add_note(f"instance: {describe_instance(instance)}")
        raise smallest


def _at_fault(
    violation: LawViolation, instance: Any, try_part: Callable[[Any], None]
) -> LawViolation:
    """Return the violation with its owner: a part of the instance, if that breaks the law alone."""
    parts: list[Any] = []
    if violation.owner is type(instance) or violation.law in _OF_ONE_LEVEL:
        return violation
    with contextlib.suppress(Exception):  # a flatten that is at fault
        parts.extend(each.owner for each in edit_positions(instance) if each.name)
    for part in {id(each): each for each in parts if type(each) is not type(instance)}.values():
        try:
            try_part(part)
        except LawViolation as of_part:
            if _breaks_without(part, instance, try_part):
                break
            kept = of_part if violation.owner is None else violation  # which says where
            kept.owner = of_part.owner or type(part)
            return kept
        except _OF_USERS:
            continue
    violation.owner = violation.owner and type(instance)
    return violation


def _breaks_without(part: Any, instance: Any, try_part: Callable[[Any], None]) -> bool:
    """Return whether a law is broken with a number in the place of a part, too."""
    try:
        leaves, structure = jax.tree.flatten(instance, is_leaf=lambda each: each is part)
        leaves = [0.0 if leaf is part else leaf for leaf in leaves]
        try_part(jax.tree.unflatten(structure, leaves))
    except LawViolation:
        return True
    except _OF_USERS:
        pass
    return False


_OF_ONE_LEVEL: Final = (Law.AUX_DATA_HASH, Law.POST_INIT, Law.DISTINCT_CLASSES)
"""Laws of a class alone, whatever parts its instances have."""
_OF_USERS: Final = (Exception, SystemExit, GeneratorExit)
"""What the user's own code may raise."""


def _failure(case: Case, check: Callable[[Case], None]) -> BaseException | None:
    """Return what a law raises; None if it holds, or if the class is not to blame."""
    try:
        check(case)
    except hypothesis.errors.HypothesisException:
        raise
    except _OF_USERS as error:
        return None if case.refuses(error) else error
    return None


def _draw(
    test: Callable[[st.DataObject], None], settings: hypothesis.settings, seed: int | None
) -> None:
    def run_test(data: st.DataObject) -> None:  # Hypothesis takes no partial and no method
        test(data)

    run: Any = settings(hypothesis.given(st.data())(run_test))
    if seed is not None:
        run = hypothesis.seed(seed)(run)
    with hypothesis.reporting.with_reporter(lambda _: None):
        run()


@dataclasses.dataclass(frozen=True)
class LawTest:
    """How a law is tested: with what share of the examples, and whether it draws more itself."""

    check: Callable[[Case], None]
    share: float = 1.0
    draws: bool = False


_FEW: Final = 5


class SlowInstancesError(Exception):
    """A few instances take long to make."""


_Drawn = tuple[Any, st.DataObject, Edits]


def try_laws(
    tests: Mapping[Law, LawTest],
    strategy: "st.SearchStrategy[Any]",
    *,
    settings: hypothesis.settings,
    seed: int | None,
    most_seconds: float,
    on_law: Callable[[Law], None],
) -> dict[Law, BaseException]:
    """Try laws on the same instances, which are drawn once; return what those raise that break."""
    once = hypothesis.settings(settings, phases=[hypothesis.Phase.generate])
    pool = _draw_pool(strategy, _settings_for(once, 1.0), seed, most_seconds)
    broken: dict[Law, BaseException] = {}

    def attempt(law: Law, drawn: _Drawn) -> None:
        on_law(law)
        error = _failure(Case(law, *drawn), tests[law].check)
        if error is not None:
            broken.setdefault(law, error)

    for law, test in tests.items():
        few = 0 if test.draws else max(1, round(len(pool) * test.share))
        for drawn in pool[:few]:
            if law not in broken:
                attempt(law, drawn)
    for share in dict.fromkeys(test.share for test in tests.values() if test.draws):
        laws = [law for law, test in tests.items() if test.draws and test.share == share]

        def try_edits(data: st.DataObject, laws: list[Law] = laws) -> None:
            instance, _, edits = pool[data.draw(st.integers(0, len(pool) - 1))]
            for law in data.draw(st.permutations(laws)):  # the last may have no data left
                if law not in broken:
                    attempt(law, (instance, data, edits))

        # An instance may come twice from the pool: more examples make up for it.
        _draw(try_edits, _settings_for(once, 1.5 if share == 1 else share), seed)
    return broken


def _draw_pool(
    strategy: "st.SearchStrategy[Any]",
    settings: hypothesis.settings,
    seed: int | None,
    most_seconds: float,
) -> list[_Drawn]:
    pool: list[_Drawn] = []
    drawing = 0.0

    def draw_instance(data: st.DataObject) -> None:
        nonlocal drawing
        started = time.process_time()
        instance = draw_unprinted(data, strategy)
        drawing += time.process_time() - started
        if drawing > most_seconds and len(pool) < _FEW:
            raise SlowInstancesError
        drawn = instance, data, Edits(instance)
        Case(Law.ROUND_TRIP, *drawn).refuse_leaf()
        pool.append(drawn)

    _draw(draw_instance, settings, seed)
    return pool


_E = TypeVar("_E", bound=BaseException)


def without_notes(error: _E) -> _E:
    """Return an error without the notes in which Hypothesis describes our own test."""
    if notes := getattr(error, "__notes__", None):
        error.__notes__ = [each for each in notes if not _BY_HYPOTHESIS.match(each)]
    return error


_BY_HYPOTHESIS: Final = re.compile(
    r"\s*(Draw \d|while generating|Failing test case|Falsifying example|Explanation)|.*data=data\(",
    re.DOTALL,
)


_SETTINGS: Final = hypothesis.settings(
    database=None,
    derandomize=True,
    deadline=None,
    max_examples=200,
    # Not `explain`, which draws many more values, each of which may compile.
    phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
    suppress_health_check=[
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)
_MOST_DRAWN: Final = 400
"""How many values are drawn until one is wanted, and how many more to make it simpler."""
_COMPILED: Final = 20
"""As how many values one counts that compiles."""


def find(strategy: Any, wanted: Callable[[Any], bool], tries: int = _MOST_DRAWN) -> Any:
    """Return a value that is wanted, as simple as it becomes in some steps; else `LookupError`."""
    best: list[Any] = []
    left = tries

    @st.composite
    def is_wanted(draw: st.DrawFn) -> bool:  # not the value: Hypothesis prints what it finds
        nonlocal left
        if left < 0:
            raise EnoughError
        left -= 1
        with count_events() as counts:
            try:
                value = draw(strategy)
            except ImpossibleError:
                return hypothesis.reject()
            accepted = wanted(value)
        if accepted:
            left = left if best else _MOST_DRAWN
            best[:] = [value]
        left -= _COMPILED * bool(counts.compiles)
        return accepted

    try:
        hypothesis.find(is_wanted(), bool, settings=_SETTINGS)
    except hypothesis.errors.FailedHealthCheck:
        raise  # it cannot search here, such as inside another test
    except (EnoughError, hypothesis.errors.HypothesisException) as error:
        if not best:  # no such value, or no strategy; else it was out of steps
            raise LookupError(str(error)) from error
    return best[0]
