import pytest

from .conftest import Project

pytestmark = pytest.mark.slow  # each test runs a pytest of its own

MODELS = """
    from typing import NamedTuple

    import jax
    import leafwise as lw

    @lw.pytree
    class Params:
        w: float
        depth: int = lw.static_field(default=2)

        @lw.pytree
        class Inner:
            a: float

    @lw.pytree
    class Other:
        b: float
"""
SETTINGS = """
    [pytest]
    addopts = -p no:cacheprovider
    testpaths = tests
    pythonpath = .
    leafwise_check = mypkg.models
    leafwise_laws =
        identity-map
        round-trip
"""
TESTS = "def test_it(): pass"
PARAMS, INNER, OTHER = (
    [f"leafwise::mypkg.models.{name}::{law}" for law in ("round-trip", "identity-map")]
    for name in ("Params", "Params.Inner", "Other")
)
CHECKS = [*PARAMS, *INNER, *OTHER]
PLANTED = """
    import jax

    @jax.tree_util.register_pytree_node_class
    class Swapped:
        def __init__(self, a: float, b: float, n: int):
            self.a, self.b, self.n = a, b, n

        def tree_flatten(self):
            return (self.a, self.b), self.n

        @classmethod
        def tree_unflatten(cls, n, children):
            return cls(children[1], children[0], n)
"""
HEAVY = {"jax", "jaxlib", "numpy", "hypothesis", "leafwise"}
FEW = "from hypothesis import settings\nsettings.register_profile('default', max_examples=3)"
UNBUILDABLE = """
    import abc
    from typing import NamedTuple

    import leafwise as lw

    class Odd(abc.ABC):
        @abc.abstractmethod
        def secret(self): ...

    @lw.pytree
    class Params:
        a: float
        odd: lw.Static[Odd]

    class Pair(NamedTuple):
        a: float
        odd: Odd
"""


@pytest.fixture
def models(project: Project) -> Project:
    """A project whose classes are checked for two laws."""
    project.write("pytest.ini", SETTINGS)
    project.write("mypkg/__init__.py")
    project.write("mypkg/models.py", MODELS)
    project.write("tests/test_it.py", TESTS)
    return project


def collected(project: Project, *options: str) -> list[str]:
    """Return the node ids that are collected, but for those of tests."""
    result = project.run("--collect-only", "-q", *options)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return [line for line in result.outlines if line.startswith("leafwise::")]


def test_one_item_for_each_class_and_law(models: Project) -> None:
    """A plain run has the checks, behind the tests, in the order of the module."""
    result = models.run("--collect-only", "-q")
    assert result.outlines[:7] == ["tests/test_it.py::test_it", *CHECKS]
    result = models.run("-v")
    result.assert_outcomes(passed=7)
    result.stdout.fnmatch_lines([f"{CHECKS[0]} PASSED*"])


def test_all_laws_by_default(models: Project) -> None:
    """Without `leafwise_laws` there are all of them."""
    found = collected(models, "-o", "leafwise_laws=", "-k", "Other")
    assert len(found) > 10
    assert {"fresh-process", "recompilation"} < {each.rpartition("::")[2] for each in found}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], CHECKS),
        (["tests"], CHECKS),
        (["tests/test_it.py"], []),
        (["tests/test_it.py::test_it"], []),
        (["tests/deep"], []),
        (["tests/test_it.py", "--leafwise-check=mypkg.models:Other"], OTHER),
        (["--leafwise-check=mypkg.models"], CHECKS),
        (["--leafwise-check=mypkg/models.py:Other", "tests/test_it.py"], OTHER),
        (["-k", "round-trip"], CHECKS[::2]),
        (["-k", "Other and not round-trip"], OTHER[1:]),
        (["-k", "mypkg.models"], CHECKS),
        (["-m", "leafwise"], CHECKS),
        (["-m", "not leafwise"], []),
        (["leafwise::"], CHECKS),
        (["leafwise::mypkg.models"], CHECKS),
        (["leafwise::mypkg.models.Other"], OTHER),
        (["leafwise::mypkg.models.Params"], [*PARAMS, *INNER]),
        ([OTHER[1]], OTHER[1:]),
        ([OTHER[1], "--leafwise-check=mypkg.models"], OTHER[1:]),
    ],
    ids=" ".join,
)
def test_which_are_collected(models: Project, options: list[str], expected: list[str]) -> None:
    """A run that is narrowed to files leaves the checks out; node ids and options choose."""
    models.write("tests/deep/test_deep.py", TESTS)
    assert collected(models, *options) == expected


def test_directories_without_testpaths(models: Project) -> None:
    """Where there are no `testpaths`, a directory does not narrow a run."""
    models.write("pytest.ini", SETTINGS.replace("testpaths = tests", ""))
    assert collected(models, "tests") == CHECKS
    assert collected(models, "tests/test_it.py") == []


def test_from_another_directory(models: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node ids are found from below the root, too."""
    monkeypatch.chdir(models.pytester.path / "tests")
    result = models.run("-q", f"../{OTHER[0]}", "--rootdir=..", "-c", "../pytest.ini")
    result.assert_outcomes(passed=1)


def test_node_ids_that_are_not_there(models: Project) -> None:
    """A node id of no class or law is an error that names it, as for tests."""
    for name in ("mypkg.models.Nobody", "mypkg.models.Other::no-hidden-state", "elsewhere.Params"):
        result = models.run(f"leafwise::{name}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: not found: leafwise::{name}"])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tox.ini", "[pytest]\nleafwise_check =\n mypkg.models\n mypkg.models:Other\npythonpath=."),
        ("pyproject.toml", '[tool.pytest]\nleafwise_check = ["mypkg.models"]\npythonpath = ["."]'),
    ],
)
def test_kinds_of_settings(models: Project, name: str, settings: str) -> None:
    """The setting is read from each kind of file; no class comes twice."""
    (models.pytester.path / "pytest.ini").unlink()
    models.write(name, settings)
    assert collected(models, "-k", "round-trip", "-p", "no:cacheprovider") == CHECKS[::2]


def test_a_violation(models: Project) -> None:
    """A broken law fails with its message, the place of the class, and no frames of ours."""
    models.write("mypkg/models.py", PLANTED)
    result = models.run("-v", "-k", "not identity-map")
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "*_ mypkg.models.Swapped round-trip _*",
            "Swapped*: *round-trip*",
            "mypkg/models.py:4: mypkg.models.Swapped",
            "FAILED leafwise::mypkg.models.Swapped::round-trip - *",
        ]
    )
    result.stdout.no_fnmatch_line("*leafwise/testing*")


def test_what_other_libraries_do_not_promise(models: Project) -> None:
    """Statics confused by their type, in a class that is not of leafwise, are expected."""
    models.write("mypkg/models.py", PLANTED)
    result = models.run("-o", "leafwise_laws=static-types", "-rx")
    result.assert_outcomes(passed=1, xfailed=1)
    result.stdout.fnmatch_lines(
        ["XFAIL leafwise::mypkg.models.Swapped::static-types - a warning: Swapped.n: *"]
    )
    result = models.run("-o", "leafwise_laws=static-types", "--leafwise-warnings-as-errors")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["Swapped.n: breaks the law static-types*"])


def test_a_class_that_cannot_be_built(models: Project) -> None:
    """One item fails with the fix, and the others of the class are skipped."""
    models.write("mypkg/models.py", UNBUILDABLE)
    result = models.run("-rs")
    result.assert_outcomes(passed=1, failed=1, skipped=3)
    result.stdout.fnmatch_lines(["Params.odd*", "*fix: *", "mypkg/models.py:11: *.Params"])
    result.stdout.fnmatch_lines(["SKIPPED *see leafwise::mypkg.models.Params::round-trip"])
    result.stdout.fnmatch_lines(["SKIPPED *left out: Pair.odd*"])
    result = models.run("-k", "Params and identity-map")
    result.assert_outcomes(failed=1, deselected=4)


def test_modules_that_cannot_be_imported(models: Project) -> None:
    """A broken module is an error that names it and its line; others go on."""
    models.write("mypkg/broken.py", "import math\nmath.nothing")
    models.write("mypkg/empty.py")
    models.write("mypkg/exits.py", "raise SystemExit('bye')")
    options = [
        "--leafwise-check=mypkg.broken",
        "--leafwise-check=mypkg.missing",
        "--leafwise-check=mypkg.exits",
        "--leafwise-check=mypkg.empty",
        "--leafwise-check=mypkg.models:Nobody",
    ]
    result = models.run("--continue-on-collection-errors", *options)
    result.assert_outcomes(passed=7, errors=5)
    result.stdout.fnmatch_lines(
        [
            "*_ ERROR collecting leafwise* _*",
            "mypkg.broken: importing it raised AttributeError: *nothing*, at mypkg/broken.py:2",
            "mypkg.missing: there is no such module*",
            "mypkg.exits: importing it raised SystemExit: bye*",
            "mypkg.empty: no pytree class is defined in it*",
            "mypkg.models: it has no Nobody; its pytree classes: Params, Params.Inner, Other",
            "ERROR leafwise::mypkg.broken*",
        ]
    )
    result.stdout.no_fnmatch_line("*leafwise/cli/targets.py*")
    result.stdout.no_fnmatch_line("*leafwise_pytest*.py*")


def test_a_law_that_is_not_there(models: Project) -> None:
    """A misspelt law is one error that lists them all."""
    result = models.run("-o", "leafwise_laws=round-trap")
    result.assert_outcomes(errors=1)
    words = "leafwise_laws: there is no law 'round-trap' (did you mean 'round-trip'?)"
    result.stdout.fnmatch_lines([f"{words}; the laws are round-trip, any-leaf, *"])


@pytest.mark.nightly
def test_without_hypothesis(models: Project) -> None:
    """Without the extra there is one error that says what to install; the rest works."""
    models.write(
        "tests/test_it.py",
        """
        import pytest

        @pytest.mark.leafwise_budget(traces=0)
        def test_it(leafwise_traces):
            import sys
            assert sys.modules["hypothesis"] is None
        """,
    )
    models.write("conftest.py", "import sys\nsys.modules['hypothesis'] = None")
    options = ["-p", "no:hypothesispytest", "--continue-on-collection-errors"]
    result = models.run_apart(*options)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*pip install 'leafwise?testing?'*"])


def test_the_last_failed(models: Project) -> None:
    """`--lf` runs the checks that failed, and nothing else."""
    models.write("pytest.ini", SETTINGS.replace("-p no:cacheprovider", ""))
    models.write("mypkg/models.py", PLANTED)
    options = ["-o", "leafwise_laws=round-trip\nstatic-values"]
    models.run(*options).assert_outcomes(passed=2, failed=1)
    models.run("--lf", *options).assert_outcomes(failed=1, deselected=2)


@pytest.mark.nightly
def test_workers(models: Project) -> None:
    """pytest-xdist hands the checks to its workers, chosen ones too."""
    models.write("mypkg/models.py", UNBUILDABLE)
    models.write("conftest.py", FEW)
    result = models.run_apart("-n2", "-rs", "leafwise::mypkg.models.Params", "tests")
    result.assert_outcomes(passed=1, failed=1, skipped=1)


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
            assert not {HEAVY} & set(sys.modules)
        """,
    )
    project.run_apart("-p", "leafwise_pytest").assert_outcomes(passed=1)
    project.run_apart("-p", "leafwise_pytest", "--collect-only").assert_outcomes()
