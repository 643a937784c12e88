"""Running a test with drawn instances, and reporting the smallest that fails."""

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

from leafwise._objects.text import got
from leafwise.errors import LawViolation
from leafwise.testing._laws.case import Case, LeafError, describe_instance, draw_unprinted
from leafwise.testing._laws.law import Law
from leafwise.testing.strategies._instances import instances
from leafwise.testing.strategies._leaves import has_unsortable_keys

_SUPPRESSED: Final[Any] = tuple(hypothesis.HealthCheck)  # compiling is slow, and tests are nested
_SHRINKS: Final = 300
"""How many smaller examples are tried."""


def strategy_of(cls_or_strategy: Any, caller: str) -> "st.SearchStrategy[Any]":
    """Return a strategy for instances.

    Raises:
        TypeError: It is neither a class nor a strategy.
    """
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


class _EnoughShrinksError(BaseException):
    """Ends the search for a smaller example; Hypothesis lets it through."""


def run_law(
    law: Law,
    strategy: "st.SearchStrategy[Any]",
    check: Callable[[Case], None],
    *,
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
    share: float = 1.0,
) -> None:
    """Draw instances, and raise the violation of the smallest one that breaks the law.

    Args:
        law: The law.
        strategy: Where instances come from.
        check: Raises `LawViolation` for a case.
        settings: Hypothesis' settings; the profile in force if None.
        seed: Of the draws; what the settings say if None.
        share: What share of the examples is tried: those that compile are slow.

    Raises:
        LawViolation: It is broken.
    """
    __tracebackhide__ = True
    failed: list[tuple[Exception, Any]] = []
    left = round(_SHRINKS * share)

    def test(data: st.DataObject) -> None:
        nonlocal left
        left -= bool(failed)
        if left < 0:
            raise _EnoughShrinksError
        case = Case(law, draw_unprinted(data, strategy), data)
        try:
            case.refuse_leaf()
            check(case)
        except hypothesis.errors.HypothesisException:
            raise
        except Exception as error:
            hypothesis.assume(not has_unsortable_keys(case.instance))
            failed.append((error, case.instance))
            raise

    run: Any = _settings_for(settings, share)(hypothesis.given(st.data())(test))
    if seed is not None:
        run = hypothesis.seed(seed)(run)
    try:
        with hypothesis.reporting.with_reporter(lambda _: None):
            run()
    except _EnoughShrinksError:
        pass
    except Exception as error:
        if not failed:
            without_notes(error)
            raise
    if failed:
        raise _with_instance(*failed[-1])  # the last one is the smallest


@dataclasses.dataclass(frozen=True)
class LawTest:
    """How a law is tested.

    Attributes:
        check: Raises `LawViolation` for a case.
        share: What share of the examples it gets: those that compile are slow.
        draws: Whether it draws more than the instance.
    """

    check: Callable[[Case], None]
    share: float = 1.0
    draws: bool = False


_FEW: Final = 5


class SlowInstancesError(Exception):
    """A few instances take long to make."""


def broken_laws(
    tests: Mapping[Law, LawTest],
    strategy: "st.SearchStrategy[Any]",
    *,
    settings: hypothesis.settings,
    seed: int,
    most_seconds: float,
    on_law: Callable[[Law], None] = lambda _: None,
) -> set[Law]:
    """Try laws on the same instances, which are drawn once.

    Args:
        tests: How each law is tested.
        strategy: Where instances come from.
        settings: Hypothesis' settings.
        seed: Of the draws.
        most_seconds: How long a few instances may take to make.
        on_law: Is called with each law before it is tried.

    Returns:
        The laws whose tests have raised: `run_law` finds the smallest example of one law.

    Raises:
        SlowInstancesError: They take longer to make.
    """
    once = hypothesis.settings(settings, phases=[hypothesis.Phase.generate])
    whole = _settings_for(once, 1.0)
    plain = {law: test for law, test in tests.items() if not test.draws}
    left = {law: max(1, round(whole.max_examples * test.share)) for law, test in plain.items()}
    broken: set[Law] = set()
    pool: list[Any] = []
    drawing = 0.0

    def attempt(case: Case) -> None:
        if case.law in broken:
            return
        on_law(case.law)
        try:
            tests[case.law].check(case)
        except hypothesis.errors.UnsatisfiedAssumption:
            pass
        except Exception:  # noqa: BLE001  # the user's own code
            broken.add(case.law)

    def test(data: st.DataObject) -> None:
        nonlocal drawing
        started = time.perf_counter()
        instance = draw_unprinted(data, strategy)
        drawing += time.perf_counter() - started
        if drawing > most_seconds and len(pool) < _FEW:
            raise SlowInstancesError
        Case(Law.ROUND_TRIP, instance, data).refuse_leaf()
        pool.append(instance)
        for law in filter(left.get, plain):
            left[law] -= 1
            attempt(Case(law, instance, data))

    with hypothesis.reporting.with_reporter(lambda _: None):
        hypothesis.seed(seed)(whole(hypothesis.given(st.data())(test)))()
    drawing_laws = [law for law in tests if law not in plain]
    for share in dict.fromkeys(tests[law].share for law in drawing_laws):
        laws = [law for law in drawing_laws if tests[law].share == share]
        # An instance may come twice from the pool: more examples make up for it.
        chosen = _settings_for(once, 1.5 if share == 1 else share)
        _share_examples(laws, pool, attempt, chosen, seed)
    return broken


def _share_examples(
    laws: list[Law],
    pool: list[Any],
    attempt: Callable[[Case], None],
    settings: hypothesis.settings,
    seed: int,
) -> None:
    """Try laws that draw edits, on the same instances, whose edits are found once."""
    known: list[Any] = [{} for _ in pool]

    def test(data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(pool) - 1))
        first = data.draw(st.integers(0, len(laws) - 1))  # the last may have no data left
        for law in (*laws[first:], *laws[:first]):
            attempt(Case(law, pool[at], data, known[at]))

    with hypothesis.reporting.with_reporter(lambda _: None):
        hypothesis.seed(seed)(settings(hypothesis.given(st.data())(test)))()


def _with_instance(error: Exception, instance: Any) -> Exception:
    """Note the instance in the place of Hypothesis' notes, which name `data` and our own lines."""
    made: Exception
    if isinstance(error, LawViolation):
        made = LawViolation(*error.args)
    elif isinstance(error, LeafError):
        made = TypeError(*error.args)
    else:
        error.add_note(f"instance: {describe_instance(instance)}")
        return without_notes(error)
    made.__cause__ = error.__cause__
    return made


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
