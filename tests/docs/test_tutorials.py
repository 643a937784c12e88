"""The tutorials: each step takes away what was found, and nothing is left in the last script."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.kit.processes import Runner

from leafwise.errors import RetraceError

PAGES = Path(__file__).parents[2] / "docs" / "tutorial"
SLOW_LOOP = (PAGES / "slow-loop.md").read_text(encoding="utf-8")
SLOW_COMPILE = (PAGES / "slow-compile.md").read_text(encoding="utf-8")


def blocks(page: str, fence: str) -> list[str]:
    """Return what a page has in blocks of one kind."""
    return re.findall(rf"^```{fence}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def changed(script: str, diff: str) -> str:
    """Return the script with one change of the page, which fits in one place only."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    assert script.count(before) == 1, before
    return script.replace(before, after)


def explain(script: str, folder: Path, *options: str) -> tuple[str, Any]:
    """Return what a script prints, and the report of `leafwise explain` on it."""
    runner = Runner(folder)
    done, report = runner.report(*options, runner.write(script, "train.py"))
    assert done.returncode == 0, done.stderr
    return done.stdout, report


@pytest.mark.nightly
def test_a_slow_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that the page shows is found; after the last step none is, and the test passes."""
    (script,) = blocks(SLOW_LOOP, 'python title="train.py"')
    shown = set(re.findall(r"^train.py:\d+  (.*)$", blocks(SLOW_LOOP, "text")[1], re.MULTILINE))
    printed, report = explain(script, tmp_path)
    assert printed == blocks(SLOW_LOOP, "text")[0]
    assert shown <= {each["text"] for each in report["findings"]}
    diffs = blocks(SLOW_LOOP, "diff")
    assert len(diffs) == 7
    for diff in diffs:
        script = changed(script, diff)
    _, report = explain(script, tmp_path, "--write", "--force")
    for each in report["findings"]:
        edit = each["tried"]["edit"]
        assert all(f"    {line}\n" in SLOW_LOOP for line in edit if line[0] != " ")
    script = (tmp_path / "train.py").read_text(encoding="utf-8")
    _, report = explain(script, tmp_path)
    assert report["findings"] == []
    (test,) = blocks(SLOW_LOOP, "python3")
    namespace: dict[str, Any] = {}
    exec(test, namespace)  # noqa: S102  # our own
    monkeypatch.chdir(tmp_path)
    namespace["test_the_script_compiles_three_programs"]()
    removed, added = diffs[0].splitlines(keepends=True)
    undone = script.replace(added[1:], removed[1:])
    Path("train.py").write_text(undone, encoding="utf-8")
    with pytest.raises(RetraceError, match="compile of evaluate"):
        namespace["test_the_script_compiles_three_programs"]()


@pytest.mark.nightly
def test_a_slow_compile(tmp_path: Path) -> None:
    """The loop and the array are found at their lines; after its step each is gone."""
    (script,) = blocks(SLOW_COMPILE, 'python title="train.py"')
    loop, array = explain(script, tmp_path)[1]["first"]
    assert (loop["kind"], loop["text"], loop["runs"]) == ("loop", "for x in xs:", 64)
    said = f"{loop['share']:.0%} of its {loop['operations']:,} operations are from"
    assert said in " ".join(SLOW_COMPILE.split())
    assert array["fixes"] == ["pass `SIGNAL` as an argument"]
    assert f"  fix: {loop['fixes'][0]}\n" in SLOW_COMPILE
    left = [[array], [], []]
    for diff, findings in zip(blocks(SLOW_COMPILE, "diff"), left, strict=True):
        script = changed(script, diff)
        if "signal" not in diff or "SIGNAL, at" in diff:
            first = explain(script, tmp_path)[1].get("first", [])
            kinds = [finding["kind"] for finding in first]
            assert kinds == [finding["kind"] for finding in findings]
