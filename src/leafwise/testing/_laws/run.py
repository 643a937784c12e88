"""Running a test with drawn instances, and reporting the smallest that fails."""

from collections.abc import Callable
from typing import Any, Final

import hypothesis
import hypothesis.errors
import hypothesis.reporting
import jax
from hypothesis import strategies as st

from leafwise._objects.text import got
from leafwise.errors import LawViolation
from leafwise.testing._laws.case import Case
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
        msg = f"settings takes hypothesis.settings(...), got {got(given)}"
        raise TypeError(msg)
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
    failed: list[Exception] = []
    left = round(_SHRINKS * share)

    def test(data: st.DataObject) -> None:
        nonlocal left
        left -= bool(failed)
        if left < 0:
            raise _EnoughShrinksError
        case = Case(law, data.draw(strategy), data)
        case.refuse_leaf()
        try:
            check(case)
        except hypothesis.errors.HypothesisException:
            raise
        except Exception as error:
            hypothesis.assume(not has_unsortable_keys(case.instance))
            failed.append(error)
            raise

    run: Any = _settings_for(settings, share)(hypothesis.given(st.data())(test))
    if seed is not None:
        run = hypothesis.seed(seed)(run)
    try:
        with hypothesis.reporting.with_reporter(lambda _: None):
            run()
    except _EnoughShrinksError:
        pass
    except Exception:
        if not failed:
            raise
    if failed:
        raise _without_notes(failed[-1])  # the last one is the smallest


def _without_notes(error: Exception) -> Exception:
    """Drop Hypothesis' notes, which name `data` and our own lines."""
    if not isinstance(error, LawViolation):
        return error
    made = LawViolation(*error.args)
    made.__cause__ = error.__cause__
    return made
