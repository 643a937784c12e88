"""Programs in this process, and what `leafwise explain` says of them."""

import itertools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.inside import Process, Record, Recorder, Report, from_json, make_report

_NUMBERS = itertools.count()


def program(folder: Path, code: str) -> tuple[str, Callable[[], None]]:
    """Write a module; return its file, and what runs it in this process."""
    name = f"program_{next(_NUMBERS)}"
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = str(folder / f"{name}.py")
    Path(module.__file__).write_bytes(code.encode())
    compiled = compile(code, module.__file__, "exec")
    return module.__file__, lambda: exec(compiled, vars(module))  # noqa: S102  # ours


def package(source: str, name: str = "solver") -> dict[str, Any]:
    """Return the names of a module of a package."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(source, f"/env/site-packages/{name}.py", "exec"), names)  # noqa: S102  # ours
    return names


def recorded(script: Callable[[], Any], **options: Any) -> list[dict[str, Any]]:
    """Return the records of what a function does."""
    records: list[dict[str, Any]] = []
    recorder = Recorder(lambda **record: records.append(record), **options)
    recorder.start()
    try:
        script()
    finally:
        recorder.note_end()
        recorder.stop()
    return records


def report_on(script: Callable[[], Any], **options: Any) -> Report:
    """Return the report on what a function does."""
    process = Process(1, from_json(list[Record], recorded(script, **options)))
    return make_report([process], None, "script.py", 0.0)
