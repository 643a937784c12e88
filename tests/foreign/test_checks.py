"""`leafwise check` over whole libraries says what verdicts.py says, and nothing else."""

import json
import subprocess
import sys
from typing import Any

import pytest

from . import test_confirmed
from .verdicts import CHECKS, Check

pytestmark = pytest.mark.slow

BAD = {"violation", "mismatch", "error"}


@pytest.mark.parametrize("library", CHECKS)
def test_library(library: str) -> None:
    """Every finding of the table is made, and none besides; nothing crashes."""
    wanted = CHECKS[library]
    options = ("--output-format=json", "--examples", str(wanted.examples), "--timeout", "900")
    done = subprocess.run(
        [sys.executable, "-m", "leafwise", "check", *options, *wanted.targets],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    classes = report["classes"]
    found, unchecked = findings(classes)
    assert found == set(wanted.findings)
    assert unchecked.keys() == wanted.unchecked.keys()
    for name, words in wanted.unchecked.items():
        assert words in unchecked[name]
    warned = {law["law"] for each in classes for law in each["laws"] if law["verdict"] == "warning"}
    assert warned == set(wanted.warnings)
    assert len(classes) == wanted.classes
    assert done.returncode == (1 if found else 3 if unchecked else 0), done.stderr


def findings(classes: list[Any]) -> tuple[set[tuple[str, str]], dict[str, str]]:
    """Return what is wrong, as class and law or field, and what could not be judged."""
    found: set[tuple[str, str]] = set()
    unchecked: dict[str, str] = {}
    for each in classes:
        name = each["name"].rpartition(":")[2]
        if each["error"]:
            unchecked[name] = each["error"]
        for kind, rows in (("field", each["rows"]), ("law", each["laws"])):
            found |= {(name, row[kind]) for row in rows if row["verdict"] in BAD}
            for row in rows:
                if row["verdict"] == "not checked":
                    unchecked[f"{name}.{row[kind]}"] = row.get("note") or row.get("message")
    return found, unchecked


@pytest.mark.parametrize("library", CHECKS)
def test_each_finding_is_confirmed(library: str) -> None:
    """What is found and warned of has a test that shows it in plain JAX."""
    wanted: Check = CHECKS[library]
    for name in (*wanted.findings.values(), *wanted.warnings.values()):
        assert callable(getattr(test_confirmed, name))
