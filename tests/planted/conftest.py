"""The score of the property kit, at the end of a run that had these tests."""

from typing import Any, Final

import pytest

FAULT: Final = "planted fault"
CORRECT: Final = "correct class"
"""The properties by which a test says what it was about."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many faults each test of them found, and how many correct classes were blamed."""
    results: dict[str, dict[str, list[bool]]] = {FAULT: {}, CORRECT: {}}
    for status in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(status, []):
            properties: list[tuple[str, Any]] = getattr(report, "user_properties", [])
            for key, name in properties:  # with xdist they come from the workers
                if key in results:
                    results[key].setdefault(name, []).append(status == "passed")
    faults, correct = (results[key].values() for key in (FAULT, CORRECT))
    blamed = len(correct) - sum(map(all, correct))
    if faults or correct:
        terminalreporter.write_line(
            f"leafwise.testing: {sum(map(all, faults))} of {len(faults)} planted faults found, "
            f"{blamed} false alarms in {len(correct)} correct classes"
        )
