import os
import sys
from pathlib import Path

import pytest
from tests.kit.processes import Runner

from leafwise_cli import main

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


# Instances with a network to compile, and scripts whose classes only go through a loop.
NOT_CHECKED = ("branches.py", "churn.py", "equinox_mlp.py", "loops.py")
AT_NIGHT = ("many_hosts.py", "train_digits.py")
CHECKED = [
    pytest.param(script, marks=[pytest.mark.nightly] * (script in AT_NIGHT))
    for script in SCRIPTS
    if script not in NOT_CHECKED
]


@pytest.mark.slow
@pytest.mark.parametrize("script", CHECKED)
def test_check_finds_nothing(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`leafwise check` over an example ends with 0: its classes keep each law."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        assert main(["check", "--examples", "3", f"examples/{script}"]) == 0
    finally:
        for each in SCRIPTS:
            sys.modules.pop(Path(each).stem, None)


@pytest.mark.nightly  # the tests beside this one run them in this process
@pytest.mark.parametrize("script", SCRIPTS)
def test_script_runs(script: str) -> None:
    """Run from the repository's root, an example exits with 0 and ends with a sentence."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = Runner(ROOT).run(f"examples/{script}", env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(".")
