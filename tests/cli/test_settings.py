"""What a project sets in its `pyproject.toml`."""

from pathlib import Path

import pytest

from .conftest import BROKEN, GOOD, NOT_BUILT, Check, Outcome, Write

LAWS = ("--law", "no-hidden-state", "--law", "key-paths", "--law", "post-init")


def settings(lines: str, folder: str = ".") -> None:
    """Write the settings of a project."""
    head = "" if lines.startswith("[") else "[tool.leafwise]\n"
    Path(folder, "pyproject.toml").write_text(f"{head}{lines}\n", encoding="utf-8")


def laws_of(outcome: Outcome) -> list[str]:
    """Return the laws that were tried on the first class."""
    return [law["law"] for law in outcome.document["classes"][0]["laws"]]


def test_without_a_law(write: Write, check_all: Check) -> None:
    """Laws that are named are not tried, and no unknown one is taken for one."""
    file = write(BROKEN)
    outcome = check_all(file, *LAWS, "--without", "no-hidden-state", "--output-format=json")
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
    settings(f'targets = ["{file}"]\nwithout = ["key-paths"]\nexamples = 2')
    outcome = check_all(*LAWS, "--output-format=json")
    assert (outcome.code, laws_of(outcome)) == (0, ["post-init", "no-hidden-state"])
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "sub" / "pyproject.toml").write_text("[project]\nname = 'it'\n")
    monkeypatch.chdir(tmp_path / "sub" / "deeper")
    outcome = check_all(*LAWS, "--output-format=json", "--without", "post-init")
    assert (outcome.code, laws_of(outcome)) == (0, ["no-hidden-state"])
    other = write(GOOD.replace("Good", "Other"))
    outcome = check_all(str(tmp_path / other), *LAWS, "--output-format=json")
    assert outcome.names == ["Other"], "targets of the command line alone"


def test_strategies_of_the_project(write: Write, check: Check) -> None:
    """They stand in files of their own, which are imported before anything is checked."""
    file = write(NOT_BUILT)
    settings(f'targets = ["{file}"]\nstrategies = ["tests/strategies.py"]')
    assert "tests/strategies.py: there is no such file" in check().err
    code = f"import hypothesis.strategies as st\nfrom {file[:-3]} import NotBuilt, Opaque\n"
    write(f"{code}st.register_type_strategy(Opaque, st.just(object))", "tests/strategies.py")
    assert check().code == 0


def test_what_may_stay_unchecked(write: Write, check: Check) -> None:
    """A project may say so once."""
    settings("allow-unchecked = true")
    assert check(write(NOT_BUILT)).code == 0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "strict = true",
            "unknown setting 'strict'; the settings are targets, strategies, without, examples,",
        ),
        ("examples = 0", "argument --examples: '0' is not a number, 1 or more"),
        ("examples = true", "examples takes a number, got True"),
        ("allow-unchecked = 'yes'", "allow-unchecked takes true or false, got 'yes'"),
        ("targets = 'model'", "targets takes a list of strings, got 'model'"),
        ("without = ['zzz']", "--without: there is no law 'zzz'"),
        ("examples =", "pyproject.toml"),
        (f"examples = {'[' * 9999}", "pyproject.toml: "),
        ("[tool]\nleafwise = 3", "pyproject.toml: tool.leafwise takes a table, got 3"),
    ],
)
def test_wrong_settings(lines: str, words: str, write: Write, check_all: Check) -> None:
    """A key or a value that means nothing is refused by its name, and nothing is run."""
    settings(lines)
    outcome = check_all(write("raise ValueError('was run')") if "zzz" not in lines else "json")
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "Traceback" not in outcome.err
