"""What the markers and the fixture of the plugin do in a project."""

import pytest

from .conftest import Project

pytestmark = pytest.mark.slow  # each test runs a pytest of its own


def test_over_the_budget(project: Project) -> None:
    """A test that traces too often fails with what was over, the line, and why."""
    result = project.test("""
        @pytest.mark.leafwise_budget(traces=1, of="step")
        def test_2():
            step(jnp.ones(3))
            step(jnp.ones(4))

        @pytest.mark.leafwise_budget(traces=1, of="step")
        def test_1():
            step(jnp.ones(5))
    """)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "over budget of step: 2 traces, 1 allowed",
            "  trace of step from *test_it.py:15 in test_2: retrace: *",
            "    x: shape (3,) -> (4,)*",
            "  allowed by @pytest.mark.leafwise_budget(traces=1, of='step') on test_it.py::test_2",
            "test_it.py:12: leafwise.errors.RetraceError: over budget of step*",
            "FAILED test_it.py::test_2 - *RetraceError*",
        ]
    )
    result.stdout.no_fnmatch_line("*leafwise_pytest.py*")


def test_whose_events_count(project: Project) -> None:
    """`of` is a name, a function or an operation; threads of a test count, its fixtures do not."""
    result = project.test("""
        import threading

        jitted = jax.jit(lambda x: x - 1)

        @pytest.fixture
        def around():
            step(jnp.ones(3))
            yield
            step(jnp.ones(4))

        @pytest.mark.leafwise_budget(traces=0)
        def test_it(around):
            step(jnp.ones(3))

        @pytest.mark.leafwise_budget(traces=0, of="step")
        def test_thread():
            thread = threading.Thread(target=lambda: step(jnp.ones(5)))
            thread.start()
            thread.join()

        @pytest.mark.leafwise_budget(traces=0, of=jitted)
        def test_function(): jitted(jnp.ones(3))

        @pytest.mark.leafwise_budget(traces=0, of="<lambda>")
        def test_name(): jitted(jnp.ones(4))

        @pytest.mark.leafwise_budget(traces=0)
        def test_all(): jitted(jnp.ones(5))

        @pytest.mark.leafwise_budget(traces=0, of=step)
        def test_other(): jitted(jnp.ones(6))

        @pytest.mark.leafwise_budget(traces=0, compiles=0)
        def test_eager(): jnp.ones((2, 7, 1, 8)).sum(axis=(0, 3))

        @pytest.mark.leafwise_budget(compiles=0, of=jnp.linalg.det)
        def test_handed_over(): jnp.linalg.det(jnp.ones((9, 9)))
    """)
    result.assert_outcomes(passed=3, failed=5)
    for name in ("thread", "function", "name", "all", "handed_over"):
        result.stdout.fnmatch_lines([f"FAILED test_it.py::test_{name} *"])


def test_a_deadline(project: Project) -> None:
    """An example that compiles exceeds Hypothesis's deadline: the failure says so, with the fix."""
    test = """
        import time
        from hypothesis import given, settings
        from leafwise.testing import strategies as lst

        @jax.jit
        def slow(x):
            time.sleep(0.3)
            return x

        @settings(max_examples=3, deadline=200)
        @given(lst.arrays(shape=(3,)))
        def test_compiles(x): slow(x)

        @settings(max_examples=3, deadline=200)
        @given(lst.arrays(shape=(3,)))
        def test_fails(x): assert x.shape == ()
    """
    result = project.test(test)
    result.assert_outcomes(failed=2)
    note = "Hypothesis's deadline counts the time in which JAX compiles"
    result.stdout.fnmatch_lines([f"*{note}", "*fix: `@settings(deadline=None)`, or *"])
    assert result.stdout.str().count(note) == 1
    result = project.test(test.replace("deadline=200", "deadline=None"))
    result.assert_outcomes(passed=1, failed=1)


def test_the_closest_holds(project: Project) -> None:
    """Of each kind of event, the test's own marker holds, then that of its class."""
    result = project.test("""
        pytestmark = pytest.mark.leafwise_budget(traces=0, of="step")
        step = jax.jit(step.__wrapped__)  # which has no guard against many shapes

        @pytest.mark.leafwise_budget(traces=2, compiles=2, of="step")
        class TestSome:
            def test_class(self):
                step(jnp.ones(3)), step(jnp.ones(4))

            @pytest.mark.leafwise_budget(traces=1, of="step")
            def test_function(self):
                step(jnp.ones(5)), step(jnp.ones(6))

            @pytest.mark.leafwise_budget(traces=2)
            def test_another(self):
                for n in (7, 8, 9):
                    step(jnp.ones(n))

        def test_module():
            step(jnp.ones(10))

        @pytest.mark.leafwise_budget(traces=1, of="step")
        @pytest.mark.leafwise_budget(traces=0, of="step")
        def test_topmost():
            step(jnp.ones(11))

        @pytest.mark.leafwise_budget(traces=0, of="step")
        @pytest.mark.parametrize(
            "n", [12, pytest.param(13, marks=pytest.mark.leafwise_budget(traces=1, of="step"))]
        )
        def test_set(n):
            step(jnp.ones(n))
    """)
    result.assert_outcomes(passed=3, failed=4)
    for name in ("TestSome::test_function", "TestSome::test_another", "test_module"):
        result.stdout.fnmatch_lines([f"FAILED test_it.py::{name} *"])
    result.stdout.fnmatch_lines(["over budget: 3 traces, 2 allowed", "over budget of step: 3*"])
    result.stdout.fnmatch_lines(["*allowed by *(traces=0, of='step') on test_it.py"])
    result.stdout.fnmatch_lines(["*test_set?12? *"])
    assert "test_function\n  allowed by @pytest.mark.leafwise_budget(traces=2" in str(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("of='step'", "neither traces= nor compiles= is given"),
        ("1", "leafwise_budget() takes 0 positional arguments but 1 was given"),
        ("traces=1, off='step'", "leafwise_budget() got an unexpected keyword argument 'off'*"),
        ("traces=-1", "budget(traces=...) takes a number of 0 or more, or None, got -1 (int)"),
        ("compiles=True", "*takes a number of 0 or more, or None, got True (bool)"),
        ("compiles=1, of=3", "budget(of=...) takes a function or a name, got 3 (int)"),
    ],
)
def test_wrong_arguments(project: Project, arguments: str, problem: str) -> None:
    """A marker with wrong arguments fails its test, with words that name both and the fix."""
    marker = f"@pytest.mark.leafwise_budget({arguments})"
    result = project.test(f"""
        {marker}
        def test_it(): raise SystemExit  # it does not run

        def test_other(): pass
    """)
    result.assert_outcomes(passed=1, failed=1)
    fix = "write leafwise_budget(traces=1, of='step')"
    result.stdout.fnmatch_lines([f"test_it.py::test_it: {marker}: {problem}; {fix}"])
    result.stdout.no_fnmatch_line("*another exception*")


def test_unittest(project: Project) -> None:
    """Test cases are held to their budgets, asynchronous ones too, and keep other outcomes."""
    result = project.test("""
        import unittest

        @pytest.mark.leafwise_budget(compiles=0)
        class Case(unittest.TestCase):
            def test_over(self):
                step(jnp.ones(3))

            def test_fails(self):
                step(jnp.ones(4))
                self.assertEqual(1, 2)

            def test_skips(self):
                step(jnp.ones(5))
                self.skipTest("not today")

            def test_passes(self):
                pass

        class Later(unittest.IsolatedAsyncioTestCase):
            @pytest.mark.leafwise_budget(traces=0, of="step")
            async def test_over(self):
                step(jnp.ones(6))
    """)
    result.assert_outcomes(passed=1, skipped=1, failed=3)
    result.stdout.fnmatch_lines(["over budget: 1 compile, 0 allowed", "*AssertionError: 1 != 2"])
    result.stdout.fnmatch_lines(["over budget of step: 1 trace, 0 allowed"])


def test_other_outcomes_stay(project: Project) -> None:
    """A failure, a skip and an expected failure of a test are not replaced."""
    result = project.test("""
        pytestmark = pytest.mark.leafwise_budget(traces=0, of="step")

        def test_fails():
            step(jnp.ones(3))
            raise KeyError("mine")

        def test_skips():
            step(jnp.ones(4))
            pytest.skip("not today")

        @pytest.mark.xfail(raises=lw.errors.RetraceError, strict=True)
        def test_expected():
            step(jnp.ones(5))

        @pytest.mark.xfail(raises=KeyError)
        def test_not_expected():
            step(jnp.ones(6))
    """)
    result.assert_outcomes(failed=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*KeyError: 'mine'", "over budget of step: 1 trace, 0 allowed"])


def test_misspelt(project: Project) -> None:
    """A name that is nearly one that was traced fails the test; others pass, called or not."""
    result = project.test("""
        def steppe(x):
            return x

        @pytest.mark.leafwise_budget(traces=1, of="stepp")
        def test_misspelt():
            step(jnp.ones(3))

        @pytest.mark.leafwise_budget(traces=0, of="steppe")
        def test_not_called():
            step(jnp.ones(4))

        @pytest.mark.leafwise_budget(traces=0, of="another")
        def test_not_there(): pass

        @pytest.mark.leafwise_budget(traces=1, of="stepp")
        def test_fails_anyway(): assert 0
    """)
    result.assert_outcomes(passed=2, failed=2)
    problem = "no function named 'stepp' was traced; did you mean 'step'?"
    result.stdout.fnmatch_lines(
        [f"*(traces=1, of='stepp') on test_it.py::test_misspelt: {problem}"]
    )
    result.stdout.fnmatch_lines(["*assert 0"])


def test_markers_are_registered(project: Project) -> None:
    """`--strict-markers` knows the markers, and `--markers` explains them."""
    result = project.run("--markers")
    budget = "@pytest.mark.leafwise_budget(traces=None, compiles=None, of=None)"
    result.stdout.fnmatch_lines([f"{budget}: limit the traces and compiles in a test*"])
    result.stdout.fnmatch_lines(["@pytest.mark.leafwise: *"])
    tests = "@pytest.mark.leafwise_budget(traces=9)\ndef test_it(): pass"
    project.test(tests, "--strict-markers", "-Werror").assert_outcomes(passed=1)


def test_stale_captures(project: Project) -> None:
    """`leafwise_captures` fails a test whose function answers for an old value, and names it."""
    result = project.test("""
        table = [0.0] * 100
        scaled = lw.jit(lambda x: x * table[1], on_stale="ignore")

        @pytest.fixture
        def changed():
            table[1] += 1

        def again():
            scaled(1.0)
            table[1] += 1
            scaled(1.0)

        @pytest.mark.leafwise_captures
        def test_raises():
            again()

        @pytest.mark.leafwise_captures(on_stale="retrace")
        def test_retraces():
            again()

        @pytest.mark.leafwise_captures(on_stale="no")
        def test_wrong():
            again()

        def test_without():
            again()
    """)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["E * captures `table?1?` *, which was 0.0 *"])
    wrong = "@pytest.mark.leafwise_captures: check_captures takes on_stale= *got 'no'*"
    result.stdout.fnmatch_lines([f"*test_it.py::test_wrong: {wrong}"])


def test_storms_are_counted_for_each_test(project: Project) -> None:
    """A suite with many sizes, a few in each test, is no storm, and a test with all of them is."""
    result = project.test(
        """
        import leafwise as lw

        own = lw.jit(lambda x: x)

        @pytest.mark.parametrize("start", [1, 11, 21])
        def test_some(start):
            for size in range(start, start + 5):
                own(jnp.ones(size))

        def test_all():
            for size in range(31, 41):
                own(jnp.ones(size))
        """,
        "-Werror",
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*RetraceStormWarning: x has caused 8 traces of *"])


TITLE = "*- leafwise: what JAX traced and compiled -*"


def test_a_failing_test_shows_its_log(project: Project) -> None:
    """A failed test shows events, their lines and why, of many some, and no code of ours."""
    result = project.test("""
        def test_it(leafwise_traces):
            step(jnp.ones(3))
            step(jnp.ones(4))
            assert len(leafwise_traces.compiles) == 1, "compiled twice"

        def test_long(leafwise_traces):
            for number in range(30):
                jax.jit(lambda x: x + number)(1.0)
            lw.update({"a": 1}, {"b": 2})
    """)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: compiled twice",
            TITLE,
            "2 traces, 2 lowerings, 2 compiles",
            "  trace of step from *test_it.py:13 in test_it: first call:*",
            "  trace of step from *test_it.py:14 in test_it: retrace: *",
            "    x: shape (3,) -> (4,)*",
            '>*lw.update({"a": 1}, {"b": 2})',
            "E*PathError*",
            TITLE,
            "30 traces, 30 *",
            "  ... and 40 more",
        ]
    )
    result.stdout.no_fnmatch_line("*_trees*")


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
