"""The pytree classes of a project as items of a test run, one for each law."""

import importlib.util
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from leafwise._objects.locks import cached_property
from leafwise.errors import CannotBuildError, LawViolation
from leafwise.testing._laws.law import Law, unknown_law
from leafwise.testing._plugin.report import message_of

FoundClasses = Callable[[str], Sequence[tuple[str, type, bool]]]
"""From a target to its classes: name, class, whether it may be left out."""
TriedLaws = Callable[[type, list[Law]], dict[str, tuple[bool, BaseException | None]]]
"""From a class and laws to what each raised, and whether its library does not promise it."""


class CheckPlan:
    """What is checked: the targets, the laws (none for all), the node ids (none for all)."""

    def __init__(
        self,
        texts: list[str],
        laws: list[str],
        selected: list[str],
        *,
        find: FoundClasses,
        try_laws: TriedLaws,
    ) -> None:
        self.texts = texts
        self.selected = selected
        self.find = find
        self.try_laws = try_laws
        self.laws = [law.value for law in Law if not laws or law.value in laws]
        self.unknown = [name for name in laws if name not in set(Law)]
        self._claimed: set[object] = set()

    def wants(self, nodeid: str) -> bool:
        """Return whether a node was asked for, or one above it."""
        return not self.selected or any(covers(each, nodeid) for each in self.selected)

    def wants_some(self, nodeid: str) -> bool:
        """Return whether a node was asked for, or one above or below it."""
        return self.wants(nodeid) or any(covers(nodeid, each) for each in self.selected)

    def claim(self, cls: type, name: str) -> bool:
        """Return whether neither the class nor its name was claimed before."""
        is_new = not {id(cls), name} & self._claimed
        self._claimed |= {id(cls), name}
        return is_new


def targets_of(root: pytest.Collector, plan: CheckPlan) -> Iterator[pytest.Collector]:
    """Yield the targets of a run."""
    if importlib.util.find_spec("hypothesis") is None:
        _refuse("leafwise_check needs Hypothesis\n  fix: pip install 'leafwise[testing]'")
    if plan.unknown:
        _refuse(f"leafwise_laws: {unknown_law(plan.unknown[0])}")
    for text in plan.texts:
        nodeid = f"{root.nodeid}::{dotted(text)}"
        if plan.wants_some(nodeid):
            yield TargetChecks.from_parent(root, name=text, nodeid=nodeid, plan=plan)


def covers(selected: str, nodeid: str) -> bool:
    """Return whether a node is one that was asked for, or below it."""
    return f"{nodeid}::".startswith((f"{selected.removesuffix('::')}::", f"{selected}."))


def dotted(name: str) -> str:
    """Return the name of a target or class without what a node id cannot have."""
    place, colon, rest = name.rpartition(":")
    place, rest = (place, rest) if colon and os.sep not in rest else (name, "")
    place = place.removesuffix(".py").replace(os.sep, ".").lstrip(".")
    return f"{place}.{rest}" if rest else place


class TargetChecks(pytest.Collector):
    """The classes of one target."""

    def __init__(self, *, plan: CheckPlan, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the classes."""
        try:
            found = self.plan.find(self.name)
        except Exception as error:  # noqa: BLE001  # whatever the user's module raises
            _refuse(_format_error(error))
        for written, cls, optional in found:
            name = dotted(written.removeprefix(f"{self.config.rootpath}{os.sep}"))
            nodeid = f"leafwise::{name}"
            if self.plan.wants_some(nodeid) and self.plan.claim(cls, name):
                yield ClassChecks.from_parent(
                    self, name=name, nodeid=nodeid, checked=cls, optional=optional
                )


class ClassChecks(pytest.Collector):
    """The laws of one class, which may be left out if it is `optional` and cannot be built."""

    parent: TargetChecks

    def __init__(self, *, checked: type, optional: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checked = checked
        self.optional = optional

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the laws."""
        plan = self.parent.plan
        for law in plan.laws:
            if plan.wants(f"{self.nodeid}::{law}"):
                yield LawCheck.from_parent(self, name=law)

    @cached_property
    def items(self) -> list[pytest.Item]:
        """The items that run, here or in another worker of pytest-xdist."""
        return [item for item in self.session.items if item.parent is self]

    @cached_property
    def results(self) -> dict[str, tuple[bool, BaseException | None]] | CannotBuildError:
        """What each law raised; or why no instance can be made."""
        try:
            names = [item.name for item in self.items]
            laws = [law for law in Law if law.value in names]
            return self.parent.plan.try_laws(self.checked, laws)
        except CannotBuildError as error:
            return error


class LawCheck(pytest.Item):
    """A class keeps one law."""

    parent: ClassChecks

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_marker("leafwise")

    def runtest(self) -> None:
        """Report the law; of a class that cannot be built one item fails, the others are skipped.

        The first item of a class tries all its laws.
        """
        __tracebackhide__ = True
        found = self.parent.results
        if isinstance(found, CannotBuildError):
            if self.parent.optional:
                pytest.skip(f"left out: {found.message}")
            if self is not self.parent.items[0]:
                pytest.skip(f"no instance can be built: see {self.parent.items[0].nodeid}")
            raise found
        is_unpromised, error = found[self.name]
        if is_unpromised:
            pytest.xfail(f"its library does not keep this law: {str(error).splitlines()[0]}")
        if error is not None:
            raise error

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the message alone where the class is at fault, with frames elsewhere."""
        if isinstance(excinfo.value, (LawViolation, CannotBuildError)):
            path, line, _ = self.location
            return message_of(excinfo, path, (line or 0) + 1)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the class is defined."""
        path, line = _place_of(self.parent.checked)
        return path or self.path, line, f"{self.parent.name} {self.name}"


def _place_of(cls: type) -> tuple[Path | None, int]:
    """Return the file and the line, from 0, where a class is defined."""
    try:
        file = inspect.getsourcefile(cls)
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError, IndexError, SyntaxError):
        return None, 0
    return (Path(file) if file else None), max(0, line - 1)


def _refuse(message: str) -> NoReturn:
    raise pytest.Collector.CollectError(message)


def _format_error(error: Exception) -> str:
    """Return an error and its cause in the user's module, with the user's frames alone."""
    from leafwise.testing._format import users_frames  # noqa: PLC0415  # it needs Hypothesis

    cause = error.__cause__
    if cause is None or cause.__traceback__ is None:
        return str(error)
    shown = traceback.TracebackException.from_exception(cause)
    shown.stack = traceback.StackSummary.from_list(users_frames(cause))
    return f"{error}\n\n{''.join(shown.format())}"
