"""What a project sets in its `pyproject.toml`, and the findings that it accepts."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import BROKEN, GOOD, NOT_BUILT, Check, Outcome, Write

LAWS = ("--law", "no-hidden-state", "--law", "key-paths", "--law", "post-init")


def settings(lines: str, folder: str = ".") -> None:
    """Write the settings of a project."""
    Path(folder, "pyproject.toml").write_text(f"[tool.leafwise]\n{lines}\n", encoding="utf-8")


def laws_of(outcome: Outcome) -> list[str]:
    """Return the laws that were tried on the first class."""
    return [law["law"] for law in outcome.document["classes"][0]["laws"]]


def test_without_a_law(write: Write, check_all: Check) -> None:
    """Laws that are named are not tried, and no unknown one is taken for one."""
    file = write(BROKEN)
    outcome = check_all(file, *LAWS, "--without", "no-hidden-state", "--json")
    assert (outcome.code, laws_of(outcome)) == (0, ["key-paths", "post-init"])
    outcome = check_all(file, "--law", "copies", "--without", "copies")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no law is left" in outcome.err
    outcome = check_all(file, "--without", "keypaths")
    assert outcome.code == 2
    assert "--without: there is no law 'keypaths' (did you mean 'key-paths'?)" in outcome.err


def test_settings_of_the_project(
    write: Write, check_all: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are found from below, stand for the options, and the command line adds to them."""
    file = write(GOOD)
    settings(
        f"""
        targets = ["{file}"]
        law = ["copies", "key-paths", "post-init"]
        without = "key-paths"
        examples = 2
        strict = false
        json = true
        sarif = "out.sarif"
        """
    )
    outcome = check_all()
    assert (outcome.code, laws_of(outcome)) == (0, ["copies", "post-init"])
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "sub" / "pyproject.toml").write_text("[project]\nname = 'it'\n")
    monkeypatch.chdir(tmp_path / "sub" / "deeper")
    (tmp_path / "out.sarif").unlink()
    outcome = check_all("--without", "copies", "--law", "replace")
    assert (outcome.code, laws_of(outcome)) == (0, ["replace", "post-init"])
    assert (tmp_path / "out.sarif").is_file()
    assert outcome.names == ["Good"]
    other = write(GOOD.replace("Good", "Other"))
    assert check_all(str(tmp_path / other)).names == ["Other"], "targets of the command line alone"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("exmaples = 3", "there is no 'exmaples'; did you mean 'examples'?"),
        ("zzz = 3", "there is no 'zzz'; there are fields, laws"),
        ("write-baseline = 'b.json'", "there is no 'write-baseline'"),
        ("examples = 0", "argument --examples: '0' is not a number, 1 or more"),
        ("strict = 'yes'", "strict takes true or false, got 'yes'"),
        ("examples = true", "examples takes a text or a number, got True"),
        ("seed = [1, 2]", "seed takes a text or a number, got [1, 2]"),
        ("law = ['zzz']", "--law: there is no law 'zzz'"),
        ("examples =", "pyproject.toml"),
    ],
)
def test_wrong_settings(lines: str, words: str, write: Write, check_all: Check) -> None:
    """A key or a value that means nothing is refused by its name, and nothing is run."""
    settings(lines)
    outcome = check_all(write("raise ValueError('was run')") if "law = ['" not in lines else "json")
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[tool]\nleafwise = 3", "tool.leafwise must be a table, got 3"),
        (b"[tool.leafwise]\nlaw = '\xe9'", "can't decode byte 0xe9"),
    ],
)
def test_settings_that_are_no_table(content: bytes, words: str, check: Check) -> None:
    """Settings that cannot be read are refused with their file: they are not passed over."""
    Path("pyproject.toml").write_bytes(content)
    outcome = check("json")
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "pyproject.toml: " in outcome.err


def verdicts(outcome: Outcome) -> dict[str, set[str]]:
    """Return the verdicts of each class."""
    found: dict[str, set[str]] = {}
    for entry in outcome.document["classes"]:
        results = (*entry["rows"], *entry["laws"])
        found[entry["name"].rpartition(":")[2]] = {each["verdict"] for each in results}
    return found


@pytest.mark.nightly
def test_a_baseline(write: Write, check_all: Check) -> None:
    """Findings in it are told and do not fail; new ones do, and those that are gone are told."""
    file = write(BROKEN + GOOD + NOT_BUILT)
    module = file.removesuffix(".py")
    options = (*LAWS, "--fields", "--laws")
    assert check_all(file, *options).code == 1
    written = check_all(file, *options, "--write-baseline", "known.json", "--json")
    assert written.code == 0
    assert verdicts(written)["Lossy"] >= {"accepted", "ok"}
    entries: list[Any] = json.loads(Path("known.json").read_text(encoding="utf-8"))["accepted"]
    assert {(each["class"].rpartition(":")[2], each["rule"], each["path"]) for each in entries} == {
        ("Lossy", "no-hidden-state", "Lossy.n"),
        ("Lossy", "field-change", "n: value"),
        ("NotBuilt", "not-checked", ""),
    }
    # However it is named, and wherever its lines are now.
    write("\n\n" + BROKEN + GOOD + NOT_BUILT, file)
    for target in (file, module, f"{module}:Lossy"):
        again = check_all(target, *options, "--baseline", "known.json", "--json", "--sarif", "s")
        assert (again.code, again.document["notes"]) == (0, [])
    results = json.loads(Path("s").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert results
    assert all(each["suppressions"] == [{"kind": "external"}] for each in results)
    text = check_all(file, *options, "--baseline", "known.json")
    assert "2 accepted" in text.out
    assert "not checked, accepted" in text.out
    assert text.out.splitlines()[-1].endswith("3 accepted")
    # One is new, one is gone.
    kept = [each for each in entries if each["path"] != "n: value"]
    gone = {"class": f"{module}:Lossy", "rule": "post-init", "path": "Lossy.q"}
    lost = {"class": f"{module}:Removed", "rule": "copies", "path": "Removed.x"}
    elsewhere = {"class": "elsewhere:Removed", "rule": "copies", "path": "Removed.x"}
    document = {"version": 1, "accepted": [*kept, gone, lost, elsewhere]}
    Path("known.json").write_text(json.dumps(document), encoding="utf-8")
    changed = check_all(file, *options, "--baseline", "known.json")
    assert changed.code == 1
    assert "1 change wrong" in changed.out.splitlines()[-1]
    notes = [line for line in changed.out.splitlines() if line.startswith("note: ")]
    assert notes == [
        f"note: {module}:Lossy: post-init at Lossy.q was accepted, and is not there any more",
        f"note: {module}:Removed: copies at Removed.x was accepted, and is not there any more",
    ]
    # What was not tried is not gone.
    other = check_all(file, "--law", "copies", "--baseline", "known.json")
    assert other.out.count("note: ") == 1
    assert notes[1] in other.out


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"accepted": [1]}', '{"accepted": 3}'])
def test_what_is_no_baseline(text: str | None, check_all: Check) -> None:
    """It is refused by its name, before anything runs."""
    if text is not None:
        Path("known.json").write_text(text, encoding="utf-8")
    outcome = check_all("missing.py", "--baseline", "known.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--baseline known.json: it is not a baseline" in outcome.err


def test_a_baseline_after_an_interruption(
    write: Write, check_all: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not finished is not written."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("leafwise.cli.run.check_class", stop)
    assert check_all(write(GOOD), "--write-baseline", "known.json").code == 130
    assert not Path("known.json").exists()
