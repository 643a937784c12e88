import json
from typing import Any

import pytest

from .project import Project

pytestmark = pytest.mark.slow  # each test runs a pytest of its own

TITLE = "*= leafwise: what JAX traced and compiled =*"
COLUMNS = "traces  lowerings  compiles  cache hits   seconds  "
TESTS = """
    @pytest.fixture
    def warm():
        step(jnp.ones(3))

    def test_one(warm):
        pass

    def test_two():
        step(jnp.ones(4))
        step(jnp.ones(5))

    def test_none():
        pass

    class TestSome:
        @pytest.mark.parametrize("n", [6])
        def test_three(self, n):
            jax.jit(lambda x: -x)(jnp.ones(n))
"""


def read(project: Project, path: str = "report.json") -> dict[str, Any]:
    report: dict[str, Any] = json.loads((project.pytester.path / path).read_text())
    return report


def counts(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    return {
        row.get("name") or row["nodeid"]: (row["traces"], row["lowerings"], row["compiles"])
        for row in rows
        if not row.get("eager")
    }


def test_the_table(project: Project) -> None:
    """Functions and tests come in tables, those that compile most first."""
    result = project.test(TESTS, "--leafwise-report")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            TITLE,
            f"{COLUMNS}function",
            "     3          3         3           0  *  step (test_it.py:7)",
            "     1          1         1           0  *  <lambda> (test_it.py:*)",
            f"{COLUMNS}test",
            "*  test_it.py::test_two",
            "JAX was busy for *.* seconds",
        ]
    )
    result.stdout.no_fnmatch_line("* test_it.py::test_none")
    assert not list(project.pytester.path.glob("*.json"))


def test_the_file(project: Project) -> None:
    """The same is written as JSON, into directories that are made for it."""
    project.test(TESTS, "--leafwise-report=new/report.json").stdout.fnmatch_lines([TITLE])
    report = read(project, "new/report.json")
    functions = counts(report["functions"])
    assert functions == {"step": (3, 3, 3), "<lambda>": (1, 1, 1)}
    (step,) = (row for row in report["functions"] if row["name"] == "step")
    assert (step["file"], step["line"], step["eager"]) == ("test_it.py", 7, False)
    tests = {row["nodeid"]: row for row in report["tests"]}
    assert "test_it.py::test_none" not in tests
    assert set(tests) >= {
        "test_it.py::test_one",
        "test_it.py::test_two",
        "test_it.py::TestSome::test_three[6]",
    }
    assert tests["test_it.py::test_two"]["compiles"] >= 2
    assert report["seconds"] >= max(row["seconds"] for row in tests.values()) > 0
    assert report["workers"] == report["crashed_workers"] == 0
    assert report["leafwise"]


@pytest.mark.slow
def test_a_long_table_is_cut(project: Project) -> None:
    """The table shows some functions."""
    source = """
        def test_it():
            for number in range(25):
                exec(f"def f{number}(x): return x", globals())
                jax.jit(globals()[f"f{number}"])(1.0)
    """
    project.test(source, "--leafwise-report").stdout.fnmatch_lines(["... and 5 more, with -v"])


def test_without_the_option(project: Project) -> None:
    """Nobody is shown a report who did not ask."""
    project.test(TESTS).stdout.no_fnmatch_line("*what JAX traced*")
    project.test(TESTS, "--leafwise-report", "--collect-only").stdout.no_fnmatch_line(TITLE)


@pytest.mark.parametrize("path", ["tests", "test_it.py", "report.txt"])
def test_a_path_that_is_no_json(project: Project, path: str) -> None:
    """An argument that the option has swallowed by mistake is an error."""
    result = project.test(TESTS, "--leafwise-report", path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            f"ERROR: --leafwise-report takes the path of a .json file, got '{path}'",
            "*--leafwise-report= for the table alone",
        ]
    )
    result = project.test(TESTS, "--leafwise-report=", "test_it.py")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines([TITLE])


def test_a_file_that_cannot_be_written(project: Project) -> None:
    """A report that is lost fails the run, after its table."""
    project.write("taken", "a file")
    result = project.test(TESTS, "--leafwise-report=taken/report.json")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines([TITLE, "*step*", "the report could not be written: *"])


@pytest.mark.nightly
def test_a_crashed_worker(project: Project) -> None:
    """A worker that dies takes its counts with it, and the report says so."""
    project.write(
        "test_it.py",
        """
        import os
        import jax
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(n):
            if n == 0:
                os._exit(1)
            jax.jit(lambda x: x)(1.0)
    """,
    )
    result = project.run_apart("-n1", "--leafwise-report=report.json")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [TITLE, "*<lambda>*", "the counts of 1 worker were lost in a crash"]
    )
    report = read(project)
    assert (report["workers"], report["crashed_workers"]) == (1, 1)
