"""Running a test with drawn instances, and reporting the smallest that fails."""

import contextlib
import dataclasses
import functools
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
from leafwise.testing._laws.case import Case, Edits, LeafError, describe_instance, draw_unprinted
from leafwise.testing._laws.law import Law
from leafwise.testing.strategies._instances import instances
from leafwise.testing.strategies._leaves import has_unsortable_keys

_SUPPRESSED: Final[Any] = tuple(hypothesis.HealthCheck)  # compiling is slow, and tests are nested
_SHRINKS: Final = 300
"""How many smaller examples are tried."""


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

    `share` says what share of the examples is tried: laws that compile are slow.
    """
    __tracebackhide__ = True
    failed: list[tuple[Exception, Any]] = []
    left = round(_SHRINKS * share)
    is_drawn = False

    def test(data: st.DataObject) -> None:
        nonlocal left, is_drawn
        left -= bool(failed)
        if left < 0:
            raise _EnoughShrinksError
        instance = draw_unprinted(data, strategy)
        case = Case(law, instance, data, Edits(instance))
        is_drawn = True
        try:
            case.refuse_leaf()
            check(case)
        except hypothesis.errors.HypothesisException:
            raise
        except Exception as error:
            case.discard_refused(error)
            hypothesis.assume(not has_unsortable_keys(case.instance))
            failed.append((error, case.instance))
            raise

    try:
        _draw(test, _settings_for(settings, share), seed)
    except _EnoughShrinksError:
        pass
    except Exception as error:
        if not failed and not (is_drawn and isinstance(error, hypothesis.errors.Unsatisfiable)):
            without_notes(error)
            raise
    if failed:
        raise _with_instance(*failed[-1])  # the last one is the smallest


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
    """How a law is tested."""

    check: Callable[[Case], None]
    share: float = 1.0
    draws: bool = False


_FEW: Final = 5


class SlowInstancesError(Exception):
    """A few instances take long to make."""


class LawRun:
    """Tries laws on the same instances, which are drawn once."""

    def __init__(
        self, tests: Mapping[Law, LawTest], on_law: Callable[[Law], None] = lambda _: None
    ) -> None:
        self.broken: dict[Law, BaseException] = {}
        self._tests = tests
        self._on_law = on_law
        self._pool: list[tuple[Any, Edits]] = []

    def try_all(
        self,
        strategy: "st.SearchStrategy[Any]",
        settings: hypothesis.settings,
        seed: int | None,
        most_seconds: float,
    ) -> None:
        """Draw instances, and try all laws on them."""
        once = hypothesis.settings(settings, phases=[hypothesis.Phase.generate])
        most = settings.max_examples
        plain = {law: test for law, test in self._tests.items() if not test.draws}
        left = {law: max(1, round(most * test.share)) for law, test in plain.items()}
        drawing = 0.0

        def try_plain(data: st.DataObject) -> None:
            nonlocal drawing
            started = time.process_time()
            instance = draw_unprinted(data, strategy)
            drawing += time.process_time() - started
            if drawing > most_seconds and len(self._pool) < _FEW:
                raise SlowInstancesError
            edits = Edits(instance)
            Case(Law.ROUND_TRIP, instance, data, edits).refuse_leaf()
            self._pool.append((instance, edits))
            for law in filter(left.get, plain):
                left[law] -= 1
                self._attempt(Case(law, instance, data, edits))

        _draw(try_plain, _settings_for(once, 1.0), seed)
        drawing_laws = [law for law in self._tests if law not in plain]
        for share in dict.fromkeys(self._tests[law].share for law in drawing_laws):
            laws = [law for law in drawing_laws if self._tests[law].share == share]
            # An instance may come twice from the pool: more examples make up for it.
            chosen = _settings_for(once, 1.5 if share == 1 else share)
            _draw(functools.partial(self._try_edits, laws), chosen, seed)

    def _try_edits(self, laws: list[Law], data: st.DataObject) -> None:
        instance, edits = self._pool[data.draw(st.integers(0, len(self._pool) - 1))]
        first = data.draw(st.integers(0, len(laws) - 1))  # the last may have no data left
        for law in (*laws[first:], *laws[:first]):
            self._attempt(Case(law, instance, data, edits))

    def _attempt(self, case: Case) -> None:
        test = self._tests[case.law]
        if case.law in self.broken and not test.draws:  # what was drawn is drawn again
            return
        self._on_law(case.law)
        try:
            test.check(case)
        except hypothesis.errors.UnsatisfiedAssumption:  # discarded
            pass
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001  # the user's own code
            with contextlib.suppress(hypothesis.errors.UnsatisfiedAssumption):
                case.discard_refused(error)
                if not has_unsortable_keys(case.instance):
                    self.broken.setdefault(case.law, error)


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
