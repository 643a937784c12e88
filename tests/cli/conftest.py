"""Running `leafwise check` in this process, and leaving the process as it was."""

import dataclasses
import html
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.inside import Process, Record, Recorder, from_json, make_report, to_json

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


Done = subprocess.CompletedProcess[str]


class Runner:
    """Runs scripts in a folder of their own, by `python` and by `leafwise explain`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, script: str, name: str = "script.py") -> str:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(script), encoding="utf-8")
        return name

    def popen(self, *arguments: str, options: tuple[str, ...] = (), **more: Any) -> Any:
        return subprocess.Popen(
            [sys.executable, *options, *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **{"env": {**os.environ, "COLUMNS": "120"}, **more},
        )

    def run(self, *arguments: str, **more: Any) -> Done:
        with self.popen(*arguments, **more) as process:
            out, err = process.communicate("a line\n", timeout=300)
        return Done(arguments, process.returncode, out, err)

    def both(self, *arguments: str, **more: Any) -> tuple[Done, Done]:
        plain = self.run(*arguments, **more)
        return plain, self.explain(*arguments, **more)

    def explain(self, *arguments: str, **more: Any) -> Done:
        return self.run("-m", "leafwise", "explain", *arguments, **more)

    def report(self, *arguments: str, **more: Any) -> tuple[Done, dict[str, Any]]:
        """Return the report as JSON, too, and the text of its page with standard error."""
        files = "-o", "report.json", "--html", "report.html"
        done = self.explain(JSON, *files, *arguments, **more)
        page = (self.folder / "report.html").read_text(encoding="utf-8")
        done.stderr += html.unescape(re.sub("<[^>]+>", "", page))
        return done, json.loads((self.folder / "report.json").read_text(encoding="utf-8"))


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

    def run(script: Callable[[], Any], **options: Any) -> Any:
        records: list[dict[str, Any]] = []

        def write(**record: Any) -> None:
            records.append(record)

        recorder = Recorder(write, **options)
        recorder.start()
        try:
            script()
        finally:
            recorder.note_audit()
            recorder.stop()
        return make_report([Process(1, from_json(list[Record], records))], None, "script.py", 0.0)

    return run
