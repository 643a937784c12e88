import pytest

from .project import Project

HEAVY = ("jax", "jaxlib", "numpy", "hypothesis", "leafwise")


@pytest.mark.nightly
def test_loading_imports_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that uses nothing of the plugin imports pytest and the standard library alone."""
    # Other plugins import what they like.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.write(
        "test_it.py",
        f"""
        import sys

        def test_it(request):
            assert request.config.pluginmanager.hasplugin("leafwise_pytest")
            assert not set({HEAVY}) & set(sys.modules)
        """,
    )
    project.run_apart("-p", "leafwise_pytest").assert_outcomes(passed=1)
    project.run_apart("-p", "leafwise_pytest", "--collect-only").assert_outcomes()


@pytest.mark.nightly
@pytest.mark.slow
def test_turned_off(project: Project) -> None:
    """`-p no:leafwise` turns everything off; pytest then warns of what it does not know."""
    project.write(
        "pytest.ini", "[pytest]\naddopts = -p no:cacheprovider\nleafwise_check = mypkg.models"
    )
    project.write(
        "test_it.py",
        """
        import sys
        import pytest

        @pytest.mark.max_traces(0)
        def test_it():
            assert "leafwise_pytest" not in sys.modules

        def test_fixture(leafwise_traces):
            pass
        """,
    )
    result = project.run_apart("-p", "no:leafwise")
    result.assert_outcomes(passed=1, errors=1, warnings=2)
    result.stdout.fnmatch_lines(["*fixture 'leafwise_traces' not found"])
    result.stdout.fnmatch_lines(["*Unknown config option: leafwise_check*"])
    result.stdout.fnmatch_lines(["*Unknown pytest.mark.max_traces*"])
    result = project.run_apart("-p", "no:leafwise", "--strict-config")
    result.stderr.fnmatch_lines(["ERROR: Unknown config option: leafwise_check"])
