"""Start several processes of one program on this machine, and see to it that none is left."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HEAD = """
import json, os, sys, time
import jax, numpy as np, leafwise as lw
from typing import Any

index, count, port = map(int, sys.argv[1:4])

def initialize(**options):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, index, **options)

def report(**found):
    print(json.dumps(found), flush=True)

def outcome(*arguments, **options):
    return attempt(lambda: lw.distributed.assert_same(*arguments, **options))

def attempt(action):
    start = time.monotonic()
    try:
        action()
        found = {"error": None}
    except Exception as error:
        found = {"error": type(error).__name__, "message": str(error)}
        found |= {"differences": getattr(error, "differences", {})}
        found |= {"missing": getattr(error, "missing", ())}
    return found | {"seconds": time.monotonic() - start}

@lw.pytree
class P:
    x: Any
    n: Any = lw.static_field(default=None)
    f: Any = lw.static_field(default=None, compare_by="content")
"""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def run(body: str, count: int, *, limit: float = 60.0) -> list[tuple[int, list[Any], str]]:
    """Run a script in each process; return exit status, what was reported, and the errors.

    Raises:
        AssertionError: Some process did not end within the limit. All are ended.
    """
    path, port = os.pathsep.join(map(str, sys.path)), free_port()
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "program.py"
        script.write_text(HEAD + body, encoding="utf-8")
        try:
            for index in range(count):
                own = {"PYTHONPATH": path, "PYTHONHASHSEED": str(index + 1), "XLA_FLAGS": ""}
                command = [sys.executable, str(script), str(index), str(count), str(port)]
                out, err = folder / f"{index}.out", folder / f"{index}.err"
                with out.open("w") as stdout, err.open("w") as stderr:
                    environment = {**os.environ, **own}
                    process = subprocess.Popen(
                        command,
                        stdout=stdout,
                        stderr=stderr,
                        env=environment,
                        start_new_session=True,
                    )
                started.append(process)
            end = time.monotonic() + limit
            while any(each.poll() is None for each in started) and time.monotonic() < end:
                time.sleep(0.05)
            running = [index for index, each in enumerate(started) if each.poll() is None]
        finally:
            for each in started:  # and what it has started
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)
                each.wait()
        found: list[tuple[int, list[Any], str]] = []
        for index, each in enumerate(started):
            lines = (folder / f"{index}.out").read_text().splitlines()
            reported = [json.loads(line) for line in lines if line.startswith("{")]
            errors = (folder / f"{index}.err").read_text()
            found.append((each.returncode, reported, errors))
    assert not running, f"{running} did not end within {limit} s: {found}"
    return found
