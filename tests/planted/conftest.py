"""The score of the property kit, at the end of a run that had these tests."""

from typing import Any

import pytest

from .score import CORRECT, FAULT, score


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the score, from the reports; with xdist they come from the workers."""
    outcomes: list[tuple[str, str, bool]] = []
    for status in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(status, []):
            properties: list[tuple[str, Any]] = getattr(report, "user_properties", [])
            for kind, name in properties:
                if kind in (FAULT, CORRECT):
                    outcomes.append((kind, str(name), status == "passed"))
    line = score(outcomes)
    if line:
        terminalreporter.write_line(line)
