"""The benchmark is a folder of scripts: here its modules can be imported for a while."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

BENCH = Path(__file__).parents[2] / "bench"


class Written(NamedTuple):
    """What one run of the benchmark wrote."""

    data: dict[str, Any]
    markdown: str
    text: str


@pytest.fixture(scope="session")
def run_bench() -> Callable[..., str]:
    """Return what runs the benchmark, one call a slot, and returns what it printed."""

    def run(*arguments: str) -> str:
        command = [sys.executable, str(BENCH / "run.py"), "--tiny", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def written(run_bench: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Run the benchmark once, with one call a slot."""
    folder = tmp_path_factory.mktemp("bench")
    files = folder / "bench.json", folder / "bench.md"
    text = run_bench("--json", str(files[0]), "--markdown", str(files[1]))
    data, markdown = (file.read_text(encoding="utf-8") for file in files)
    return Written(json.loads(data), markdown, text)


@pytest.fixture(scope="session")
def load() -> Iterator[Callable[[str], ModuleType]]:
    """Return what imports a module of the benchmark; their names are too plain to stay."""
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(BENCH))
        for name in {path.stem for path in BENCH.glob("*.py")}:
            sys.modules.pop(name, None)
