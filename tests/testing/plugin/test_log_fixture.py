import pytest

from .project import Project

pytestmark = pytest.mark.slow  # each test runs a pytest of its own

TITLE = "*- leafwise: what JAX traced and compiled -*"


def test_a_failing_test_shows_its_log(project: Project) -> None:
    """The report of a failed test has the events, their lines, and why."""
    result = project.test("""
        def test_it(leafwise_traces):
            step(jnp.ones(3))
            step(jnp.ones(4))
            assert len(leafwise_traces.compiles) == 1, "compiled twice"
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: compiled twice",
            TITLE,
            "2 traces, 2 lowerings, 2 compiles",
            "  trace of step from *test_it.py:13 in test_it: first call:*",
            "  trace of step from *test_it.py:14 in test_it: retrace: *",
            "    x: shape (3,) -> (4,)*",
        ]
    )


def test_a_passing_test_shows_nothing(project: Project) -> None:
    """Where nothing fails nothing is printed, not even when all output is asked for."""
    result = project.test(
        """
        def test_it(leafwise_traces):
            step(jnp.ones(3))
            assert [event.name for event in leafwise_traces.of(step)] == ["step"] * 3

        @pytest.mark.xfail(strict=True)
        def test_expected(leafwise_traces):
            step(jnp.ones(4))
            assert not leafwise_traces.traces
        """,
        "-rA",
    )
    result.assert_outcomes(passed=1, xfailed=1)
    result.stdout.no_fnmatch_line("*what JAX traced*")


def test_only_the_test_itself_is_in_it(project: Project) -> None:
    """Operations of JAX itself are left out, and so is what other fixtures do."""
    result = project.test("""
        logs = []

        @pytest.fixture
        def around(leafwise_traces):
            step(jnp.ones(3))
            yield leafwise_traces
            step(jnp.ones(4))
            logs.append(leafwise_traces)

        def test_it(around, leafwise_traces):
            assert around is leafwise_traces
            jnp.ones((3, 1, 4)).sum(axis=(0, 2))
            assert not leafwise_traces.events
            step(jnp.ones(5))
            assert len(leafwise_traces.traces) == 1

        def test_after():
            assert len(logs[0].traces) == 1
            step(jnp.ones(6))
            assert len(logs[0].traces) == 1

        def test_from_here_on(request):
            step(jnp.ones(7))
            log = request.getfixturevalue("leafwise_traces")
            step(jnp.ones(8))
            assert len(log.traces) == 1
    """)
    result.assert_outcomes(passed=3)


@pytest.mark.slow
def test_a_long_log_is_cut(project: Project) -> None:
    """A report shows some events and says how many more there are."""
    result = project.test("""
        def test_it(leafwise_traces):
            for number in range(30):
                jax.jit(lambda x: x + number)(1.0)
            assert 0
    """)
    result.stdout.fnmatch_lines([TITLE, "30 traces, 30 *", "  ... and 40 more"])


def test_own_frames_are_hidden(project: Project) -> None:
    """A failed test shows its own line and the message, and no code of leafwise."""
    result = project.test("""
        def test_it():
            lw.update({"a": 1}, {"b": 2})
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['>*lw.update({"a": 1}, {"b": 2})', "E*PathError*"])
    result.stdout.no_fnmatch_line("*_trees*")
