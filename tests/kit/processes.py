"""Python in a process of its own."""

import html
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_python(
    source: str,
    *arguments: str,
    given: bytes = b"",
    python: str = sys.executable,
    **variables: str,
) -> bytes:
    """Run a program that finds what tests find; return what it prints, unless it fails."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [python, "-c", textwrap.dedent(source), *arguments],
        input=given,
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


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

    def explain(self, *arguments: str, **more: Any) -> Done:
        return self.run("-m", "leafwise", "explain", *arguments, **more)

    def report(self, *arguments: str, **more: Any) -> tuple[Done, dict[str, Any]]:
        """Return the report as JSON, too, and the text of its page with standard error."""
        files = "-o", "report.json", "--html", "report.html"
        done = self.explain("--output-format=json", *files, *arguments, **more)
        page = (self.folder / "report.html").read_text(encoding="utf-8")
        done.stderr += html.unescape(re.sub("<[^>]+>", "", page))
        return done, json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
