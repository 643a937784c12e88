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
