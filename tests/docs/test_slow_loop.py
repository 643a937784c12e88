"""The tutorial on a slow loop: six steps lead from its first script to one that compiles once."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leafwise.errors import RetraceError

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "slow-loop.md"


def blocks(fence: str) -> list[str]:
    """Return what the page has in blocks of one kind."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{fence}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def changed(script: str, diff: str) -> str:
    """Return the script with one change of the page, which fits in one place only."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    assert script.count(before) == 1, before
    return script.replace(before, after)


def explain(script: str, folder: Path, *options: str) -> tuple[str, list[dict[str, Any]]]:
    """Return what a script prints, and what `leafwise explain` finds in it."""
    path, report = folder / "train.py", folder / "report.json"
    path.write_text(script, encoding="utf-8")
    options = *options, "--output-format=json", "-o", str(report)
    command = [sys.executable, "-m", "leafwise", "explain", *options, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["findings"]
    return done.stdout, found


@pytest.mark.nightly
def test_the_steps_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that the page shows is found; after the last step none is, and the test passes."""
    (script,) = blocks('python title="train.py"')
    shown = set(re.findall(r"^train.py:\d+  (.*)$", blocks("text")[1], re.MULTILINE))
    printed, found = explain(script, tmp_path)
    assert printed == blocks("text")[0]
    assert shown <= {each["text"] for each in found}
    diffs = blocks("diff")
    assert len(diffs) == 7
    for diff in diffs:
        script = changed(script, diff)
    text = PAGE.read_text(encoding="utf-8")
    _, found = explain(script, tmp_path, "--write", "--force")
    for each in found:
        assert all(f"    {line}\n" in text for line in each["tried"]["edit"] if line[0] != " ")
    script = (tmp_path / "train.py").read_text(encoding="utf-8")
    _, found = explain(script, tmp_path)
    assert found == []
    (test,) = blocks("python3")
    namespace: dict[str, Any] = {}
    exec(test, namespace)  # noqa: S102  # our own
    monkeypatch.chdir(tmp_path)
    namespace["test_the_script_compiles_three_programs"]()
    removed, added = diffs[0].splitlines(keepends=True)
    undone = script.replace(added[1:], removed[1:])
    Path("train.py").write_text(undone, encoding="utf-8")
    with pytest.raises(RetraceError, match="compile of evaluate"):
        namespace["test_the_script_compiles_three_programs"]()
