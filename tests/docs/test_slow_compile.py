"""The tutorial on a slow first compile: each step takes one finding away."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "slow-compile.md"


def explain(script: str, folder: Path) -> list[dict[str, Any]]:
    """Return what `leafwise explain` says of the first compiles of a script."""
    path, report = folder / "train.py", folder / "report.json"
    path.write_text(script, encoding="utf-8")
    options = "--output-format=json", "-o", str(report)
    command = [sys.executable, "-m", "leafwise", "explain", *options, str(path)]
    environment = {"JAX_PLATFORMS": "cpu", "PATH": ""}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    first: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8")).get("first", [])
    return first


@pytest.mark.nightly
def test_the_steps_of_the_tutorial(tmp_path: Path) -> None:
    """The loop and the array are found at their lines; after its step each is gone."""
    text = PAGE.read_text(encoding="utf-8")
    (script,) = re.findall(
        r'^```python title="train.py"\n(.*?)^```', text, re.MULTILINE | re.DOTALL
    )
    diffs = re.findall(r"^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    loop, array = explain(script, tmp_path)
    assert (loop["kind"], loop["text"], loop["runs"]) == ("loop", "for x in xs:", 64)
    said = f"{loop['share']:.0%} of its {loop['operations']:,} operations are from"
    assert said in " ".join(text.split())
    assert array["fixes"] == ["pass `SIGNAL` as an argument"]
    assert f"  fix: {loop['fixes'][0]}\n" in text
    left = [[array], [], []]
    for diff, findings in zip(diffs, left, strict=True):
        lines = diff.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
        assert script.count(before) == 1, before
        script = script.replace(before, after)
        if "signal" not in diff or "SIGNAL, at" in diff:
            kinds = [finding["kind"] for finding in explain(script, tmp_path)]
            assert kinds == [finding["kind"] for finding in findings]
