"""Python in a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

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
