"""The pytest plugin of leafwise: each law of each class as a test item.

As in `leafwise_pytest`, which loads this, whatever needs JAX is imported only when used. The items
report what `leafwise check` finds for their classes.
"""

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
    from leafwise.cli.check_result import ClassResult
    from leafwise.cli.check_targets import CheckTarget
    from leafwise.testing import Law

_PREFIX: Final = "leafwise"
_SELECTION: Final = pytest.StashKey["CheckSelection"]()


@dataclasses.dataclass
class CheckSelection:
    """Which checks a pytest run includes: those given by node id, or those from the settings."""

    node_ids: list[str]
    whole: bool
    claimed: set[object] = dataclasses.field(default_factory=set[object])


def _covers(selected: str, nodeid: str) -> bool:
    return f"{nodeid}::".startswith((f"{selected}::", f"{selected}."))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the settings."""
    parser.getgroup("leafwise").addoption(
        "--leafwise-check",
        action="append",
        default=[],
        metavar="MODULE",
        help="test that the pytree classes of a module keep the laws (may be repeated)",
    )
    parser.getgroup("leafwise").addoption(
        "--leafwise-warnings-as-errors", action="store_true", help="fail on warnings of checks"
    )
    parser.addini("leafwise_check", "modules whose pytree classes are tested", "linelist", [])
    parser.addini("leafwise_laws", "the laws they are tested for (default: all)", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and take the node ids of checks from the command line."""
    line = "leafwise: a law of a pytree class, from leafwise_check or --leafwise-check"
    config.addinivalue_line("markers", line)
    whole = all(_keeps_the_run_whole(config, argument) for argument in config.args)
    files: list[str] = []
    node_ids: list[str] = []
    for argument in config.args:
        place, colons, name = argument.partition("::")
        here = Path(os.path.normpath(config.invocation_params.dir / place))
        if colons and here == config.rootpath / _PREFIX:
            node_ids.append(f"{_PREFIX}::{name}".removesuffix("::"))
        else:
            files.append(argument)
    config.args = files
    config.stash[_SELECTION] = CheckSelection(node_ids, whole)
    for name in ("leafwise_check", "leafwise_laws"):
        config.getini(name)  # pytest raises if it is not a list


def _keeps_the_run_whole(config: pytest.Config, argument: str) -> bool:
    """Return whether an argument is a directory with one of `testpaths`, if there are any."""
    if config.args_source is not config.ArgsSource.ARGS:
        return True
    here = Path(os.path.normpath(config.invocation_params.dir / argument))
    if not here.is_dir():
        return False
    tests = [config.rootpath / path for path in config.getini("testpaths")]
    return not tests or any(path.is_relative_to(here) for path in tests)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the checks after everything else that is collected."""
    report = yield
    config = collector.config
    selection = config.stash[_SELECTION]
    if isinstance(collector, pytest.Session) and report.passed:
        texts: list[str] = [*(config.getoption("leafwise_check") or ())]
        if selection.whole or selection.node_ids:
            texts += config.getini("leafwise_check")
        modules = (_Module.from_parent(collector, name=text) for text in dict.fromkeys(texts))
        report.result = [*report.result, *modules]
    return report


class _Module(pytest.Collector):
    """The classes of one target; JAX is imported here, after every `conftest.py`."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, nodeid=f"{_PREFIX}::{_dotted(name)}", **kwargs)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a check for each law of each class."""
        selection, named = self.config.stash[_SELECTION], self.config.getini("leafwise_laws")
        testing = importlib.import_module("leafwise.testing")
        try:
            testing.check_pytree  # noqa: B018  # it raises if the extra is missing
            check = importlib.import_module("leafwise.testing._check")
            laws = check.chosen_laws("leafwise_laws", named or testing.Law)
            targets = _targets_of(self.config.rootpath, self.name)
        except Exception as error:  # of a pytest.ini, or of a module that it names
            raise self.CollectError(str(error)) from error
        for target in targets:
            name = _dotted(target.name.removeprefix(f"{self.config.rootpath}{os.sep}"))
            if {id(target.cls), name} & selection.claimed:
                continue
            selection.claimed |= {id(target.cls), name}
            checked = CheckedClass(name, target)
            for law in laws:
                nodeid = f"{_PREFIX}::{name}::{law}"
                if any(_covers(asked, nodeid) for asked in selection.node_ids or [nodeid]):
                    yield _LawCheck.from_parent(self, nodeid=nodeid, checked=checked, law=law)


def _dotted(name: str) -> str:
    """Return the name of a target or class as a node id can contain it."""
    place, colon, rest = name.rpartition(":")
    place, rest = (place, rest) if colon and os.sep not in rest else (name, "")
    place = place.removesuffix(".py").replace(os.sep, ".").lstrip(".")
    return f"{place}.{rest}" if rest else place


def _targets_of(root: Path, text: str) -> "list[CheckTarget]":
    from leafwise.cli.check_targets import find_targets  # noqa: PLC0415  # it imports JAX

    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # after installed packages
    is_file = text.partition(":")[0].endswith(".py")
    targets = find_targets([str(root / text) if is_file else text])
    if targets.unloaded:
        raise ImportError("\n".join(f"{name}: {why}" for name, why in targets.unloaded.items()))
    return targets.targets


@dataclasses.dataclass
class CheckedClass:
    """A class whose laws are test items, and its result: all laws are checked at once."""

    name: str
    target: "CheckTarget"
    items: "list[_LawCheck]" = dataclasses.field(default_factory=list["_LawCheck"])

    @functools.cached_property
    def result(self) -> "ClassResult":
        """The result of `leafwise check`, with the examples of the active Hypothesis profile."""
        import hypothesis  # noqa: PLC0415  # an extra

        from leafwise.cli import check_classes  # noqa: PLC0415  # it imports JAX

        profile = hypothesis.settings()
        options = check_classes.CheckOptions(
            laws=tuple(item.law for item in self.items),
            fields=False,
            examples=profile.max_examples,
            seed=0 if profile.derandomize else None,
            seconds=math.inf,
            warnings_as_errors=bool(self.items[0].config.getoption("leafwise_warnings_as_errors")),
        )
        return check_classes.check_class(self.target, options)


class _LawCheck(pytest.Item):
    def __init__(self, *, checked: CheckedClass, law: "Law", **kwargs: Any) -> None:
        super().__init__(name=str(law), **kwargs)
        self.checked = checked
        self.law = law
        self.extra_keyword_matches.add(checked.name)
        self.add_marker(_PREFIX)

    def runtest(self) -> None:
        """Report the law; if a class cannot be checked, one item fails and the rest are skipped."""
        items, result = self.checked.items, self.checked.result
        if self.checked.target.optional and (reason := result.left_out or result.error):
            pytest.skip(f"left out: {reason}")
        laws = {law.law: law for law in result.laws}
        if self.name not in laws:
            if self is not items[0]:
                pytest.skip(f"the class cannot be checked: see {items[0].nodeid}")
            self._fail(result.error or result.laws[0].message)
        law = laws[self.name]
        if law.library and law.verdict == "warning":
            pytest.xfail(f"a warning: {law.message.splitlines()[0]}")
        if law.verdict.is_reported:
            self._fail(law.message)

    def _fail(self, message: str) -> None:
        path, line, _ = self.reportinfo()
        here = os.path.relpath(path, self.config.rootpath)
        pytest.fail(f"{message}\n\n{here}:{line + 1}: {self.checked.name}", pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the class is defined."""
        from leafwise.cli.check_targets import source_location  # noqa: PLC0415  # it imports JAX

        file, line = source_location(self.checked.target.cls)
        path = Path(file).resolve() if file else self.path
        return path, max(0, line - 1), f"{self.checked.name} {self.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Reject the node id of a check that does not exist, before anything is deselected."""
    if session.testsfailed:  # a module could not be imported, which pytest reports
        return
    for name in session.config.stash[_SELECTION].node_ids:
        if not any(_covers(name, item.nodeid) for item in items):
            raise pytest.UsageError(f"not found: {name}\n(no such class or law in leafwise_check)")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Add the selected items to the class that they check."""
    for item in session.items:
        if isinstance(item, _LawCheck):
            item.checked.items.append(item)
