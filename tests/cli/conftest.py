"""Running `leafwise check` in this process, and leaving the process as it was."""

import dataclasses
import importlib
import itertools
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.explained import report_on
from tests.kit.inside import (
    CheckOptions,
    CheckTarget,
    ClassResult,
    FieldChange,
    check_class,
    to_json,
)
from tests.kit.processes import Runner

import leafwise as lw
from leafwise.testing import Law
from leafwise_cli import main

HEADER = """\
import jax
import jax.numpy as jnp
import numpy as np
import leafwise as lw
"""

GOOD = """
@lw.pytree
class Good:
    x: jax.Array
    n: lw.Static[int] = 2
"""

NOT_BUILT = """
class Opaque:
    def __init__(self, *parts): raise ValueError("no")

@lw.pytree
class NotBuilt:
    part: lw.Static[Opaque]
"""

# It loses a static; that its `y` cannot be a vector is no finding of the laws below.
BROKEN = """
@jax.tree_util.register_pytree_node_class
class Lossy:
    def __init__(self, x: float, y: float, n: int = 2):
        self.x, self.y, self.n = x, y, n
    def tree_flatten(self): return (self.x, self.y), None
    @classmethod
    def tree_unflatten(cls, _, children):
        if getattr(children[1], "shape", ()): raise ValueError("no vectors")
        return cls(*children)
"""

JSON = "--output-format=json"

_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one run of the command gave."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The standard output, as JSON."""
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed

    @property
    def names(self) -> list[str]:
        """The classes of the JSON output, without where they are from."""
        return [entry["name"].rpartition(":")[2] for entry in self.document["classes"]]


Write: TypeAlias = Callable[..., str]
Check: TypeAlias = Callable[..., Outcome]
Explained: TypeAlias = Callable[..., Any]


FIELDS = CheckOptions(laws=())


def report_of(cls: type, options: CheckOptions = FIELDS, **known: Any) -> ClassResult:
    """Change the fields of one class."""
    return check_class(CheckTarget(cls, f"here:{cls.__qualname__}"), options, **known)


def laws_of(
    cls: type, *laws: Law, examples: int = 5, warnings_as_errors: bool = False, **known: Any
) -> ClassResult:
    """Try laws on one class."""
    options = CheckOptions(
        laws=laws, fields=False, examples=examples, warnings_as_errors=warnings_as_errors
    )
    return report_of(cls, options, **known)


def with_field(annotation: Any, module: str, *default: Any) -> ClassResult:
    """Check a class with one field of that annotation, and maybe a default."""
    body: dict[str, Any] = {"__annotations__": {"it": annotation}, "__module__": module}
    if default:
        (body["it"],) = default
    return report_of(lw.pytree(type("Asked", (), body)))


def kinds(report: ClassResult, field: str = "it") -> dict[str, FieldChange]:
    """Return the rows of one field by kind; a kind comes once."""
    rows = [row for row in report.rows if row.field == field]
    found = {row.kind: row for row in rows}
    assert len(found) == len(rows)
    return found


def verdicts(report: ClassResult) -> dict[tuple[str, str], str]:
    """Return the verdicts by field and kind."""
    return {(row.field, row.kind): str(row.verdict) for row in report.rows}


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty directory; forget afterwards what was loaded from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """A folder to run scripts in."""
    return Runner(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a module of a name of its own, and return its file name."""

    def write_module(source: str, name: str = "") -> str:
        path = tmp_path / (name or f"specimen_{next(_NUMBERS)}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + textwrap.dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        return str(path.relative_to(tmp_path))

    return write_module


@pytest.fixture
def leafwise(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        try:
            code = main(list(arguments))
        except SystemExit as error:  # argparse's way
            code = error.code if isinstance(error.code, int) else 1
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def check(leafwise: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Run `leafwise check --fields` in this process: the laws would take seconds."""
    return lambda *arguments: leafwise("check", "--fields", *arguments)


@pytest.fixture
def check_all(leafwise: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Run `leafwise check` in this process."""
    return lambda *arguments: leafwise("check", *arguments)


@pytest.fixture
def explained(reported: Callable[..., Any]) -> Callable[..., Any]:
    """Return the report on what a function does, as its JSON."""

    def run(script: Callable[[], Any], **options: Any) -> Any:
        return to_json(reported(script, **options))

    return run


@pytest.fixture
def reported() -> Callable[..., Any]:
    """Return the report on what a function does."""
    return report_on
