"""What a project sets in its `pyproject.toml`."""

from pathlib import Path

import pytest

from .conftest import BROKEN, GOOD, Check, Outcome, Write

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
        """
    )
    outcome = check_all()
    assert (outcome.code, laws_of(outcome)) == (0, ["copies", "post-init"])
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "sub" / "pyproject.toml").write_text("[project]\nname = 'it'\n")
    monkeypatch.chdir(tmp_path / "sub" / "deeper")
    outcome = check_all("--without", "copies", "--law", "replace")
    assert (outcome.code, laws_of(outcome)) == (0, ["replace", "post-init"])
    assert outcome.names == ["Good"]
    other = write(GOOD.replace("Good", "Other"))
    assert check_all(str(tmp_path / other)).names == ["Other"], "targets of the command line alone"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("exmaples = 3", "there is no 'exmaples'; did you mean 'examples'?"),
        ("zzz = 3", "there is no 'zzz'; there are fields, laws"),
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
