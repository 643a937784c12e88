"""The pytest plugin of leafwise: budgets for tests. `leafwise_pytest_checks` checks classes.

pytest loads this before any `conftest.py`, which may still have to configure JAX. So only pytest
and the standard library are imported here; tests that need JAX cause it to be imported.
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from leafwise.types import Log

pytest_plugins = ["leafwise_pytest_checks"]

_BLOCKS: Final = pytest.StashKey[contextlib.ExitStack]()
_LOG: Final = pytest.StashKey["Log"]()
_OVER: Final = pytest.StashKey[BaseException]()
_BUDGET: Final = "leafwise_budget"
_CAPTURES: Final = "leafwise_captures"


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    what = "limit the traces and compiles in a test, of one function or of all"
    line = f"{_BUDGET}(traces=None, compiles=None, of=None): {what}"
    config.addinivalue_line("markers", line)
    line = f'{_CAPTURES}(on_stale="raise"): check everything that `leafwise.jit` functions capture'
    config.addinivalue_line("markers", line)


def _budgets() -> Any:
    """Import and return the module of budgets, which imports JAX."""
    return importlib.import_module("leafwise.testing._budget_markers")


# With a prefix, since a project may have its own fixture `traces`.
@pytest.fixture
def leafwise_traces(request: pytest.FixtureRequest) -> "Generator[Log]":
    """A `leafwise.types.Log` of what JAX traces, lowers and compiles while the test itself runs.

    JAX operations outside any jitted function are left out. If the test fails, the report shows the
    log, with reasons for functions under `leafwise.jit`.
    """
    item: pytest.Item = request.node
    log: Log = _budgets().Log(eager=False)
    item.stash[_LOG] = log
    if _BLOCKS in item.stash:  # the test itself called `request.getfixturevalue`
        _budgets().watch_in(item.stash[_BLOCKS], log)
    yield log
    del item.stash[_LOG]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test, and fail it if it exceeds its budgets."""
    marks = [(node.nodeid, mark) for node, mark in item.iter_markers_with_node(_BUDGET)]
    captures = item.get_closest_marker(_CAPTURES)
    problem = marker = ""
    with contextlib.ExitStack() as blocks:
        if _LOG in item.stash:
            _budgets().watch_in(blocks, item.stash[_LOG])
        try:
            if marks:
                note = functools.partial(item.stash.__setitem__, _OVER)
                blocks.enter_context(_budgets().budgets_of(marks, note))
            if captures is not None:
                marker = f"@pytest.mark.{_CAPTURES}: "
                check = importlib.import_module("leafwise.debug").check_captures
                blocks.enter_context(check(*captures.args, **captures.kwargs))
        except (TypeError, ValueError) as error:
            problem = f"{item.nodeid}: {marker}{error}"
        if problem:  # not in the handler, whose error would be its context
            pytest.fail(problem, pytrace=False)
        item.stash[_BLOCKS] = blocks
        try:
            return (yield)
        except Exception as error:
            if "leafwise.testing.strategies" in sys.modules:
                _note_deadline(error)
            raise
        finally:
            del item.stash[_BLOCKS]


def _note_deadline(error: Exception) -> None:
    """Add to an error about Hypothesis's deadline that the time of a compile counts."""
    late: Any = getattr(sys.modules.get("hypothesis.errors"), "DeadlineExceeded", ())
    errors: Any = getattr(error, "exceptions", (error,))  # of a test that is fast when run again
    if any(isinstance(part, late) for part in errors):
        error.add_note(
            "Hypothesis's deadline counts the time in which JAX compiles\n"
            "  fix: `@settings(deadline=None)`, or the same in a profile in conftest.py"
        )


def _hide_own_frames(failed: "pytest.ExceptionInfo[BaseException] | None") -> None:
    """Make pytest show an error of leafwise at the user's line, not inside leafwise."""
    errors = sys.modules.get("leafwise.errors")
    if failed is None or errors is None or not isinstance(failed.value, errors.LeafwiseError):
        return
    for entry in failed.traceback:
        names = entry.frame.f_globals
        if str(names.get("__name__")).partition(".")[0] == "leafwise":
            names["__tracebackhide__"] = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of a failed test, and an exceeded budget's message without our own frames."""
    _hide_own_frames(call.excinfo)
    report = yield
    if call.when != "call":
        return report
    over = item.stash.get(_OVER, None)
    if over is not None and report.failed and call.excinfo and call.excinfo.value is over:
        report.longrepr = _shown(call.excinfo, item)
    log = item.stash.get(_LOG, None)
    if log is not None and report.failed:
        text = _budgets().text_of(log)
        report.sections.append(("leafwise: what JAX traced and compiled", text))
    return report


def _shown(error: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Return what pytest prints for an error: its message, and the location of the test."""
    shown: Any = error.getrepr(style="value", chain=False)
    if (crash := shown.reprcrash) is not None:
        crash.path, crash.lineno = item.location[0], (item.location[1] or 0) + 1
        shown.reprtraceback.reprentries[-1].reprfileloc = crash
    return shown


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Count the retraces of each test separately."""
    if "leafwise._jit.storm" in sys.modules:  # otherwise `leafwise.jit` has traced nothing
        importlib.import_module("leafwise._jit.storm").begin_test()
