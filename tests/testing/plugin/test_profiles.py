import subprocess
import sys

import pytest

SHOW = """
from hypothesis import settings
now = settings.default
print(settings.get_current_profile_name(), now.max_examples, now.deadline, now.derandomize)
"""
REGISTER = "from leafwise.testing._profiles import register_profiles\nregister_profiles()\n"


def run(program: str, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """Run a program, with only these variables that choose a profile."""
    for name in ("CI", "HYPOTHESIS_PROFILE", "GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "dev 25 None False"),
        ({"CI": "true"}, "ci 50 None True"),
        ({"CI": "1", "HYPOTHESIS_PROFILE": "thorough"}, "thorough 1000 None False"),
        ({"HYPOTHESIS_PROFILE": "ci"}, "ci 50 None True"),
    ],
    ids=str,
)
def test_which_is_loaded(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable names the profile; else `CI` decides."""
    assert run(REGISTER + REGISTER + SHOW, monkeypatch, **environment) == expected


@pytest.mark.nightly
@pytest.mark.slow
def test_the_users_own_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that was registered before keeps its numbers, one of Hypothesis' own does not."""
    before = """
from hypothesis import settings
settings.register_profile("dev", max_examples=3)
settings.register_profile("ci", settings.get_profile("ci"), max_examples=7)
"""
    assert run(before + REGISTER + SHOW, monkeypatch) == "dev 3 0:00:00.200000 False"
    assert run(before + REGISTER + SHOW, monkeypatch, CI="1") == "ci 7 None True"
    after = REGISTER + "from hypothesis import settings\n"
    after += "settings.register_profile('dev', max_examples=4)"
    assert run(after + SHOW, monkeypatch).startswith("dev 4 ")


@pytest.mark.slow
def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names no profile is an error, not another profile silently."""
    program = "import hypothesis.errors\ntry:\n    "
    program += REGISTER.replace("\n", "\n    ").rstrip()
    program += "\nexcept hypothesis.errors.InvalidArgument as error:\n    print(error)"
    assert "'thorougher'" in run(program, monkeypatch, HYPOTHESIS_PROFILE="thorougher")
