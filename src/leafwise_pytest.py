"""The pytest plugin of leafwise: budgets for tests, a report, and classes as test items.

pytest loads this before any `conftest.py`, which may still have to say how JAX is to start. So
nothing but pytest and the standard library is imported here; what needs JAX is imported by the
tests that ask for it.
"""

import contextlib
import dataclasses
import functools
import importlib
import math
import os
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from leafwise.testing._plugin.budgets import Budgets
    from leafwise.testing._plugin.counts import Recorder
    from leafwise.types import Log

_CALLING: Final = pytest.StashKey[bool]()
_LOG: Final = pytest.StashKey["Log"]()
_OVER: Final = pytest.StashKey[BaseException]()
_RUN: Final = pytest.StashKey["_Run"]()
_MARKERS: Final = ("max_traces", "max_compiles")
_CAPTURES: Final = "check_captures"
_PREFIX: Final = "leafwise"
_OUTPUT: Final = "leafwise_report"
_MOST: Final = 20
_TITLE: Final = "leafwise: what JAX traced and compiled"


@dataclasses.dataclass
class _Run:
    """The state of one run of pytest."""

    wanted: bool
    selected: list[str]
    whole: bool
    recorder: "Recorder | None" = None
    parts: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    crashed: int = 0
    workers: int = 0
    problem: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the settings."""
    group = parser.getgroup("leafwise")
    group.addoption(
        "--leafwise-check",
        action="append",
        default=[],
        metavar="MODULE",
        help="test that the pytree classes of a module keep the laws (may be repeated)",
    )
    group.addoption(
        "--leafwise-report",
        nargs="?",
        const="",
        default=None,
        metavar="FILE.json",
        help="at the end, show what JAX traced and compiled, and write it to a file",
    )
    parser.addini("leafwise_check", "modules whose pytree classes are tested", "linelist", [])
    parser.addini("leafwise_laws", "the laws they are tested for (default: all)", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, and read the command line."""
    for name in _MARKERS:
        events = name.removeprefix("max_")
        line = f"{name}(n, of=None): allow n {events} in a test, of one function or of all"
        config.addinivalue_line("markers", line)
    line = f'{_CAPTURES}(stale="raise"): check all that `leafwise.jit` functions capture'
    config.addinivalue_line("markers", line)
    line = "leafwise: a law of a pytree class, from leafwise_check or --leafwise-check"
    config.addinivalue_line("markers", line)
    path: str | None = config.getoption("leafwise_report")
    if path and not path.endswith(".json"):
        raise pytest.UsageError(
            f"--leafwise-report takes the path of a .json file, got {path!r}\n"
            f"  fix: --leafwise-report=report.json, or --leafwise-report= for the table alone"
        )
    narrow = any(not _keeps_the_run_whole(config, each) for each in config.args)
    files: list[str] = []
    selected: list[str] = []
    for each in config.args:
        place, colons, name = each.partition("::")
        here = Path(os.path.normpath(config.invocation_params.dir / place))
        if colons and here == config.rootpath / _PREFIX:  # the node id of a check
            selected.append(name.removesuffix("::"))
        else:
            files.append(each)
    config.args = files
    config.stash[_RUN] = _Run(path is not None, selected, whole=not narrow)
    for name in ("leafwise_check", "leafwise_laws"):
        _setting(config, name)  # pytest refuses it if it is not a list


def _keeps_the_run_whole(config: pytest.Config, argument: str) -> bool:
    """Return whether an argument is a directory that holds one of `testpaths`, if there are any."""
    if config.args_source is not config.ArgsSource.ARGS:
        return True
    here = Path(os.path.normpath(config.invocation_params.dir / argument))
    if not here.is_dir():
        return False
    tests = [config.rootpath / each for each in config.getini("testpaths")]
    return not tests or any(each.is_relative_to(here) for each in tests)


def _setting(config: pytest.Config, name: str) -> list[str]:
    """Return the lines of a setting, without the quotes that an INI file keeps."""
    lines: list[str] = config.getini(name)
    return [each for line in lines if (each := line.strip("\"' "))]


def _load(name: str) -> Any:
    """Import what needs JAX."""
    return importlib.import_module(f"leafwise.testing._plugin.{name}")


# --------------------------------------------------------------------------- budgets


# With our name in front: a project may well have a fixture `traces` of its own.
@pytest.fixture
def leafwise_traces(request: pytest.FixtureRequest) -> "Log":
    """A `leafwise.types.Log` of what JAX traces, lowers and compiles while the test itself runs.

    Operations of JAX itself, outside any jitted function, are left out. If the test fails, the
    report shows the log, with reasons for functions under `leafwise.jit`.
    """
    log: Log = _load("budgets").new_log()
    item: pytest.Item = request.node
    item.stash[_LOG] = log
    if item.stash.get(_CALLING, False):  # by `request.getfixturevalue`
        _load("budgets").start(log)
    return log


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Drop the log of a test that runs once more."""
    if _LOG in item.stash:
        del item.stash[_LOG]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test, and fail it if it exceeds its budgets."""
    marks = [
        (node.nodeid, mark)
        for name in _MARKERS
        for node, mark in item.iter_markers_with_node(name=name)
    ]
    budgets: Budgets | None = _load("budgets").Budgets(marks) if marks else None
    if budgets is not None and budgets.problem:
        pytest.fail(f"{item.nodeid}: {budgets.problem}", pytrace=False)
    if _LOG in item.stash:
        _load("budgets").start(item.stash[_LOG])
    item.stash[_CALLING] = True
    try:
        with contextlib.ExitStack() as blocks:
            if (captures := item.get_closest_marker(_CAPTURES)) is not None:
                blocks.enter_context(_load("budgets").checks_of(item.nodeid, captures))
            if budgets is not None:
                blocks.enter_context(budgets)
            outcome = yield
    finally:
        item.stash[_CALLING] = False
        if _LOG in item.stash:
            _load("budgets").stop(item.stash[_LOG])
    try:
        if budgets is not None:
            budgets.settle()
    except AssertionError as error:
        item.stash[_OVER] = error
        raise
    return outcome


def _hide_own_frames(failed: "pytest.ExceptionInfo[BaseException] | None") -> None:
    """Let pytest show an error of leafwise at the user's line, not in our own code."""
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
    """Show a failed test's log, and a budget's message without our own frames."""
    _hide_own_frames(call.excinfo)
    report = yield
    if call.when != "call":
        return report
    over = item.stash.get(_OVER, None)
    if over is not None and report.failed and call.excinfo and call.excinfo.value is over:
        path, line, _ = item.location
        report.longrepr = _load("report").message_of(call.excinfo, path, (line or 0) + 1)
    log = item.stash.get(_LOG, None)
    if log is not None and report.failed:
        report.sections.append((_TITLE, _load("budgets").text_of(log)))
    return report


# --------------------------------------------------------------------------- checks


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the checks behind everything else that is collected."""
    report = yield
    run, config = collector.config.stash[_RUN], collector.config
    if isinstance(collector, pytest.Session) and report.passed:
        given: Any = config.getoption("leafwise_check")
        texts = list[str](given)
        texts += _setting(config, "leafwise_check") if run.whole or run.selected else []
        if texts or run.selected:
            root = _Checks.from_parent(collector, name=_PREFIX, nodeid=_PREFIX)
            root.texts = list(dict.fromkeys(texts))
            report.result = [*report.result, root]
    elif run.wanted and "jax" in sys.modules:
        # What a module compiles while it is imported counts from the second one on: JAX is
        # not loaded here, so that a `conftest.py` may set how it starts.
        _start_recording(config)
    return report


class _Checks(pytest.Collector):
    """All checks of a run."""

    texts: list[str]

    def collect(self) -> Iterable[pytest.Collector]:
        """Return the places to look: JAX is imported here, behind every `conftest.py`."""
        items, config = _load("items"), self.config
        selected = [f"{_PREFIX}::{each}" for each in config.stash[_RUN].selected]
        find = functools.partial(_classes_in, config.rootpath)
        laws = _setting(config, "leafwise_laws")
        plan = items.CheckPlan(self.texts, laws, selected, find=find, try_laws=_try_laws)
        found: Iterable[pytest.Collector] = items.targets_of(self, plan)
        return found


def _classes_in(root: Path, text: str) -> list[tuple[str, type, bool]]:
    """Return the pytree classes of a target.

    Each with a name, and whether it may be left out if it cannot be built.
    """
    from leafwise.cli.targets import find_targets  # noqa: PLC0415  # it imports JAX
    from leafwise.errors import message_of  # noqa: PLC0415  # it imports JAX

    place, _, _ = text.partition(":")
    if place.endswith(".py"):
        text = str(root / text)
    elif place:
        # In front of `find_targets`, which looks into the working directory first.
        try:
            importlib.import_module(place)
        except ModuleNotFoundError:
            pass  # `find_targets` reports it better
        except (Exception, SystemExit) as error:
            raise ImportError(
                f"{place}: importing it raised {type(error).__name__}: {message_of(error)}"
            ) from error
    paths = sys.path[:]
    try:
        found = find_targets([text])
        if found.unloaded:
            raise ImportError("\n".join(f"{name}: {why}" for name, why in found.unloaded.items()))
    finally:
        here = str(Path.cwd())
        sys.path[:] = [each for each in sys.path if each != here or each in paths]
    return [(each.name, each.cls, each.optional) for each in found.targets]


def _try_laws(cls: type, laws: Any) -> dict[str, tuple[bool, BaseException | None]]:
    """Let `leafwise check` try laws, with the examples of Hypothesis' profile in force."""
    import hypothesis  # noqa: PLC0415  # an extra

    from leafwise.cli.laws import CheckOptions, try_laws  # noqa: PLC0415  # it imports JAX

    profile = hypothesis.settings()
    seed = 0 if profile.derandomize else None
    limits: Any = {"examples": profile.max_examples, "seed": seed, "seconds": math.inf}
    results = try_laws(cls, CheckOptions(laws=tuple(laws), **limits))
    return {each.law: (bool(each.library), each.error) for each in results}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Refuse the node id of a check that is not there, before anything is deselected."""
    if session.testsfailed:  # a module could not be imported, and pytest says so
        return
    for name in session.config.stash[_RUN].selected:
        covers = _load("items").covers
        if not any(covers(f"{_PREFIX}::{name}", item.nodeid) for item in items):
            raise pytest.UsageError(
                f"not found: {_PREFIX}::{name}\n(no such class or law in leafwise_check)"
            )


# --------------------------------------------------------------------------- report


def _start_recording(config: pytest.Config) -> None:
    run = config.stash[_RUN]
    if run.recorder is None:
        run.recorder = _load("counts").Recorder(config.rootpath)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to count where the tests run: not in a controller, which has workers for it."""
    if session.config.stash[_RUN].wanted and not session.config.getoption("collectonly"):
        _start_recording(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count events for the test that runs; those of a check do not count."""
    if "leafwise._jit.storm" in sys.modules:  # else nothing has been traced by `leafwise.jit`
        importlib.import_module("leafwise._jit.storm").begin_test()
    recorder = item.config.stash[_RUN].recorder
    if recorder is None:
        return (yield)
    recorder.begin(item.nodeid, counts=not item.nodeid.startswith(f"{_PREFIX}::"))
    try:
        return (yield)
    finally:
        recorder.end()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts to the controller, or write them."""
    config = session.config
    run = config.stash[_RUN]
    if run.recorder is not None:
        run.parts.append(run.recorder.finish())
        run.recorder = None
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = run.parts
        return
    path: str | None = config.getoption("leafwise_report")
    if not path or config.getoption("collectonly"):
        return
    run.problem = _load("report").write(config.invocation_params.dir / path, _report(run))
    if run.problem:
        session.exitstatus = session.exitstatus or pytest.ExitCode.INTERNAL_ERROR


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the counts of a worker of pytest-xdist; one that crashed has none."""
    run: _Run = node.config.stash[_RUN]
    parts = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if parts is None:
        run.crashed += 1
    else:
        run.workers += 1
        run.parts += parts


def pytest_terminal_summary(
    terminalreporter: "pytest.TerminalReporter", config: pytest.Config
) -> None:
    """Show the report."""
    run = config.stash[_RUN]
    if not run.wanted or config.getoption("collectonly"):
        return
    terminalreporter.section(_TITLE)
    most = None if config.get_verbosity() > 0 else _MOST
    for line in _load("report").lines_of(_report(run), most):
        terminalreporter.write_line(line)
    if run.crashed:
        workers = "1 worker" if run.crashed == 1 else f"{run.crashed} workers"
        terminalreporter.write_line(f"the counts of {workers} were lost in a crash", yellow=True)
    if run.problem:
        terminalreporter.write_line(run.problem, red=True)


def _report(run: _Run) -> dict[str, Any]:
    found: dict[str, Any] = _load("report").report_of(run.parts)
    return {**found, "workers": run.workers, "crashed_workers": run.crashed}
