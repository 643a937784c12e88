"""`works`: a test that stands behind a line of the table in docs/reference/ecosystem.md.

    @pytest.mark.works("equinox", "a leafwise class in a module, through `filter_jit`")

says which library, and what works with it. A line may have several tests: it holds where all
of them pass. What cannot work is a test too: `@pytest.mark.works(..., cannot="why")`, which
shows that it does not. With `--works FILE` the outcomes are written as JSON, which
`tests/interop/table.py` makes the table from.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import pytest

_OUTCOMES = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the outcomes."""
    parser.addoption("--works", metavar="FILE", help="write what works with which library")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "works(library, what, cannot=None): a line of the table")
    config.stash[_OUTCOMES] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each outcome carry its line: it may come from a worker of pytest-xdist."""
    for item in items:
        for mark in item.iter_markers("works"):
            library, what = mark.args
            item.user_properties.append(("works", [library, what, mark.kwargs.get("cannot")]))


class _Collector:
    """Gathers the outcomes of all tests of each line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[tuple[str, str], dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a part of a test."""
        for name, value in report.user_properties:
            if name != "works":
                continue
            library, what, cannot = value
            line = self.lines.setdefault((library, what), {"cannot": cannot, "outcome": "skipped"})
            if report.failed:
                line["outcome"] = "failed"
            elif report.when == "call" and report.passed and line["outcome"] == "skipped":
                line["outcome"] = "passed"

    def pytest_sessionfinish(self) -> None:
        """Write the lines, and the versions that they were found with."""
        libraries = sorted({library for library, _ in self.lines})
        found = {
            "python": ".".join(map(str, sys.version_info[:2])),
            "versions": {name: _version(name) for name in ["jax", *libraries]},
            "lines": [
                {"library": library, "what": what, **line}
                for (library, what), line in sorted(self.lines.items())
            ],
        }
        self.path.write_text(json.dumps(found, indent=2) + "\n")


def _version(library: str) -> str:
    name = {"orbax": "orbax-checkpoint"}.get(library, library)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Gather outcomes, in the process that reports them."""
    path = session.config.getoption("--works", None)
    if path and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(Path(path)), "works-collector")
