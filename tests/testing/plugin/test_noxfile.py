"""The noxfile of the page on pytest: nox is not there to run it, so its calls are looked at."""

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "pytest.md"


class Session:
    """Notes what a session of nox would run."""

    def __init__(self) -> None:
        self.posargs: list[str] = []
        self.ran: tuple[str, ...] = ()

    def install(self, *_: str) -> None:
        """Nothing is installed."""

    def run(self, *arguments: str) -> None:
        self.ran = arguments


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions of the page's noxfile."""
    found = re.search(r"```text\n(# noxfile\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None

    def session(fun: Any = None, **_: object) -> Any:
        return session if fun is None else fun

    nox: Any = types.ModuleType("nox")
    nox.session, nox.Session, nox.options = session, Session, types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "nox", nox)
    namespace: dict[str, Any] = {"__name__": "noxfile"}
    exec(compile(found[1], str(PAGE), "exec"), namespace)  # noqa: S102  # it is under test
    return namespace


@pytest.mark.parametrize("name", ["tests", "properties"])
def test_pytest_takes_the_options(
    name: str, sessions: dict[str, Any], pytester: pytest.Pytester
) -> None:
    """pytest knows every option and argument that a session hands it."""
    session = Session()
    sessions[name](session)
    command, *arguments = session.ran
    assert command == "pytest"
    pytester.mkdir("tests")
    pytester.makepyfile(**{"tests/property/test_it": "def test_it(): pass", "models": MODELS})
    pytester.makeini("[pytest]\nleafwise_check = models\npythonpath = .")
    quick = ["-n0", "--collect-only", "-q"]
    result = pytester.runpytest_inprocess(*arguments, *quick)
    assert result.ret == pytest.ExitCode.OK
    checks = [line for line in result.outlines if line.startswith("leafwise::models.Params")]
    assert bool(checks) == (name != "tests")
    result.stdout.fnmatch_lines(["tests/property/test_it.py::test_it"])


MODELS = """
import leafwise as lw

@lw.pytree
class Params:
    w: float
"""
