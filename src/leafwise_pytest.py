"""The pytest plugin of leafwise: budgets for tests, and classes as test items.

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
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from leafwise.types import Log

_BLOCKS: Final = pytest.StashKey[contextlib.ExitStack]()
_LOG: Final = pytest.StashKey["Log"]()
_OVER: Final = pytest.StashKey[BaseException]()
_RUN: Final = pytest.StashKey["_Run"]()
_MARKERS: Final = ("max_traces", "max_compiles")
_CAPTURES: Final = "check_captures"
_PREFIX: Final = "leafwise"
_TITLE: Final = "leafwise: what JAX traced and compiled"


@dataclasses.dataclass
class _Run:
    """The state of one run of pytest."""

    selected: list[str]
    whole: bool
    claimed: set[object] = dataclasses.field(default_factory=set[object])

    def wants(self, nodeid: str) -> bool:
        """Return whether a check was asked for, or something above it."""
        return not self.selected or any(_covers(each, nodeid) for each in self.selected)


def _covers(selected: str, nodeid: str) -> bool:
    """Return whether a node is one that was asked for, or below it."""
    return f"{nodeid}::".startswith((f"{selected}::", f"{selected}."))


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
    narrow = any(not _keeps_the_run_whole(config, each) for each in config.args)
    files: list[str] = []
    selected: list[str] = []
    for each in config.args:
        place, colons, name = each.partition("::")
        here = Path(os.path.normpath(config.invocation_params.dir / place))
        if colons and here == config.rootpath / _PREFIX:  # the node id of a check
            selected.append(f"{_PREFIX}::{name}".removesuffix("::"))
        else:
            files.append(each)
    config.args = files
    config.stash[_RUN] = _Run(selected, whole=not narrow)
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
def leafwise_traces(request: pytest.FixtureRequest) -> "Generator[Log]":
    """A `leafwise.types.Log` of what JAX traces, lowers and compiles while the test itself runs.

    Operations of JAX itself, outside any jitted function, are left out. If the test fails, the
    report shows the log, with reasons for functions under `leafwise.jit`.
    """
    item: pytest.Item = request.node
    log: Log = _load("budgets").Log(eager=False)
    item.stash[_LOG] = log
    if _BLOCKS in item.stash:  # by `request.getfixturevalue`
        item.stash[_BLOCKS].enter_context(_load("budgets").watching(log))
    yield log
    del item.stash[_LOG]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test, and fail it if it exceeds its budgets."""
    marks = [
        (node.nodeid, mark)
        for name in _MARKERS
        for node, mark in item.iter_markers_with_node(name=name)
    ]
    captures = item.get_closest_marker(_CAPTURES)
    with contextlib.ExitStack() as blocks:
        if _LOG in item.stash:
            blocks.enter_context(_load("budgets").watching(item.stash[_LOG]))
        try:
            if marks:
                note = functools.partial(item.stash.__setitem__, _OVER)
                blocks.enter_context(_load("budgets").budgets_of(marks, note))
            if captures is not None:
                check = importlib.import_module("leafwise.debug").check_captures
                blocks.enter_context(check(*captures.args, **captures.kwargs))
        except (TypeError, ValueError) as error:
            problem = f"{item.nodeid}: {error}"
        else:
            problem = ""
        if problem:
            pytest.fail(problem, pytrace=False)
        item.stash[_BLOCKS] = blocks
        try:
            return (yield)
        finally:
            del item.stash[_BLOCKS]


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
        report.longrepr = _shown(call.excinfo, item)
    log = item.stash.get(_LOG, None)
    if log is not None and report.failed:
        report.sections.append((_TITLE, _load("budgets").text_of(log)))
    return report


def _shown(error: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Return what pytest prints for an error: its message, and the place of the item."""
    shown: Any = error.getrepr(style="value", chain=False)
    crash = shown.reprcrash
    if crash is not None:
        crash.path, crash.lineno = item.location[0], (item.location[1] or 0) + 1
        shown.reprtraceback.reprentries[-1].reprfileloc = crash
    return shown


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
        targets = (_Target.from_parent(collector, name=each) for each in dict.fromkeys(texts))
        report.result = [*report.result, *targets]
    return report


@dataclasses.dataclass
class _Checked:
    """A class that is checked; it is left out if it is `optional` and cannot be built."""

    cls: type
    name: str
    optional: bool
    results: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    unbuilt: BaseException | None = None


class _Target(pytest.Collector):
    """The classes of one target: JAX is imported here, behind every `conftest.py`."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, nodeid=f"{_PREFIX}::{_dotted(name)}", **kwargs)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a check for each law of each class."""
        run, named = self.config.stash[_RUN], _setting(self.config, "leafwise_laws")
        testing = importlib.import_module("leafwise.testing")
        try:
            testing.check_pytree  # noqa: B018  # it needs the extra, and says so
            check = importlib.import_module("leafwise.testing._check")
            laws = check.chosen_laws("leafwise_laws", named or testing.Law)
            found = _classes_in(self.config.rootpath, self.name)
        except Exception as error:
            raise self.CollectError(str(error)) from error
        for written, cls, optional in found:
            name = _dotted(written.removeprefix(f"{self.config.rootpath}{os.sep}"))
            if {id(cls), name} & run.claimed:
                continue
            run.claimed |= {id(cls), name}
            checked = _Checked(cls, name, optional)
            for law in laws:
                nodeid = f"{_PREFIX}::{name}::{law}"
                if run.wants(nodeid):
                    yield _LawCheck.from_parent(self, name=str(law), nodeid=nodeid, checked=checked)


def _dotted(name: str) -> str:
    """Return the name of a target or class without what a node id cannot have."""
    place, colon, rest = name.rpartition(":")
    place, rest = (place, rest) if colon and os.sep not in rest else (name, "")
    place = place.removesuffix(".py").replace(os.sep, ".").lstrip(".")
    return f"{place}.{rest}" if rest else place


class _LawCheck(pytest.Item):
    """A class keeps one law."""

    def __init__(self, *, checked: _Checked, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checked = checked
        self.extra_keyword_matches.add(checked.name)
        self.add_marker(_PREFIX)

    def runtest(self) -> None:
        """Report the law; of a class that cannot be built one item fails, the others are skipped.

        The first item of a class tries all its laws that are run in this process.
        """
        __tracebackhide__ = True
        errors = importlib.import_module("leafwise.errors")
        checked = self.checked
        items = [each for each in self.session.items if getattr(each, "checked", 0) is checked]
        if not checked.results and checked.unbuilt is None:
            laws = importlib.import_module("leafwise.testing").Law
            try:
                checked.results = _try_laws(checked.cls, [laws(each.name) for each in items])
            except errors.CannotBuildError as error:
                checked.unbuilt = error
        if checked.unbuilt is not None:
            if checked.optional:
                pytest.skip(f"left out: {errors.message_of(checked.unbuilt)}")
            if self is not items[0]:
                pytest.skip(f"no instance can be built: see {items[0].nodeid}")
            raise checked.unbuilt
        found = checked.results[self.name]
        if found.library:
            first = str(found.error).splitlines()[0]
            pytest.xfail(f"its library does not keep this law: {first}")
        if found.error is not None:
            raise found.error

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the message alone where the class is at fault, with frames elsewhere."""
        errors = importlib.import_module("leafwise.errors")
        if isinstance(excinfo.value, (errors.LawViolation, errors.CannotBuildError)):
            return _shown(excinfo, self)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the class is defined."""
        from leafwise.cli.targets import source_location  # noqa: PLC0415  # it imports JAX

        file, line = source_location(self.checked.cls)
        path = Path(file).resolve() if file else self.path
        return path, max(0, line - 1), f"{self.checked.name} {self.name}"


def _classes_in(root: Path, text: str) -> list[tuple[str, type, bool]]:
    """Return the classes of a target: name, class, and whether it may be left out."""
    from leafwise.cli.targets import find_targets  # noqa: PLC0415  # it imports JAX

    place, _, _ = text.partition(":")
    paths = sys.path[:]
    if place.endswith(".py"):
        text = str(root / text)
    elif place:
        # In front of `find_targets`, which looks into the working directory first, and reports
        # what is wrong.
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(place)
    try:
        found = find_targets([text])
    finally:
        here = str(Path.cwd())
        sys.path[:] = [each for each in sys.path if each != here or each in paths]
    if found.unloaded:
        raise ImportError("\n".join(f"{name}: {why}" for name, why in found.unloaded.items()))
    return [(each.name, each.cls, each.optional) for each in found.targets]


def _try_laws(cls: type, laws: list[Any]) -> dict[str, Any]:
    """Let `leafwise check` try laws, with the examples of Hypothesis' profile in force."""
    import hypothesis  # noqa: PLC0415  # an extra

    from leafwise.cli.laws import CheckOptions, try_laws  # noqa: PLC0415  # it imports JAX

    profile = hypothesis.settings()
    seed = 0 if profile.derandomize else None
    limits: Any = {"examples": profile.max_examples, "seed": seed, "seconds": math.inf}
    results = try_laws(cls, CheckOptions(laws=tuple(laws), **limits))
    return {each.law: each for each in results}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Refuse the node id of a check that is not there, before anything is deselected."""
    if session.testsfailed:  # a module could not be imported, and pytest says so
        return
    for name in session.config.stash[_RUN].selected:
        if not any(_covers(name, item.nodeid) for item in items):
            raise pytest.UsageError(f"not found: {name}\n(no such class or law in leafwise_check)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Count the retraces of each test apart."""
    if "leafwise._jit.storm" in sys.modules:  # else nothing has been traced by `leafwise.jit`
        importlib.import_module("leafwise._jit.storm").begin_test()
