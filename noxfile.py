# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.10.14"]
# ///
"""Every check of leafwise: `nox -s tests` runs all that a change must pass.

What follows `--` goes to the session's tool: `nox -s tests -- tests/statics -k key`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
SUPPORTED = nox.project.python_versions(PYPROJECT)

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
# Under CI nox would fail on a missing interpreter; we skip it, and see to it below
# that at least one is there.
nox.options.error_on_missing_interpreters = False


def _name_pyenv_versions() -> None:
    """Let pyenv's shims answer for the newest of each supported Python.

    A shim knows only the versions named in `PYENV_VERSION` (or a `.python-version` file).
    """
    if "PYENV_VERSION" in os.environ or not (pyenv := shutil.which("pyenv")):
        return
    command = [pyenv, "versions", "--bare"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    newest: dict[str, tuple[int, str]] = {}
    for name in listed.stdout.split():
        if found := re.fullmatch(r"(\d+\.\d+)\.(\d+)", name):
            newest[found[1]] = max(newest.get(found[1], (-1, "")), (int(found[2]), name))
    if named := [newest[minor][1] for minor in reversed(SUPPORTED) if minor in newest]:
        os.environ["PYENV_VERSION"] = ":".join(named)


def _answers(minor: str) -> bool:
    """Whether `pythonX.Y` is there and runs: a pyenv shim may exist and refuse."""
    if not (python := shutil.which(f"python{minor}")):
        return False
    return subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0


_name_pyenv_versions()
AVAILABLE = [minor for minor in SUPPORTED if _answers(minor)]
# None found: run everything on the Python that runs nox rather than skip it all.
PYTHONS = SUPPORTED if AVAILABLE else [f"{sys.version_info[0]}.{sys.version_info[1]}"]
WORKERS = ("-n", "logical", "--maxprocesses=4")  # each worker compiles with threads of its own
OLDEST, NEWEST = (AVAILABLE or PYTHONS)[0], (AVAILABLE or PYTHONS)[-1]
ENDS = list(dict.fromkeys((OLDEST, NEWEST)))
PROPERTIES = ("property", "kit", "planted", "strategies")
# What depends little on Python and JAX, and the kit, which tests/interop tries on both ends.
ON_NEWEST = ("bench", "check", "docs", "examples", "kit", "meta", "plugin", "report", "strategies")
# What depends on JAX more than on Python, and runs with the same JAX on the newest.
AS_ON_NEWEST = ("hazards", "messages", "oracle", "transforms")


def _floors(*names: str, groups: tuple[str, ...] = ()) -> list[str]:
    """Pin direct dependencies, or those named, to the oldest version allowed."""
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"].values()
    direct = {*project["dependencies"], *(each for extra in extras for each in extra)}
    direct.update(nox.project.dependency_groups(PYPROJECT, *groups) if groups else ())
    pairs = [each.split(">=") for each in sorted(direct) if ">=" in each]
    return [f"{name}=={floor}" for name, floor in pairs if not names or name in names]


def _install(session: nox.Session, *groups: str, project: str = "", pins: list[str]) -> None:
    """Install the project (with these extras) editable, with dependency groups, in one go.

    Editable, because uv caches the wheel of a directory and would test an old one.
    """
    wanted = nox.project.dependency_groups(PYPROJECT, *groups)
    session.install("-e", project or ".", *wanted, *pins)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests on each Python, with the oldest JAX on the oldest, and then every check."""
    if not session.posargs:  # a narrowed run stays narrow
        ecosystem = [f"downstream-{python}" for python in ENDS]
        for check in ("properties", *ecosystem, "lint", "types", "docs", "demo"):
            session.notify(check, posargs=[])
    pins = _floors("jax", "jaxlib") if session.python == SUPPORTED[0] else []
    # The pages, which run on the newest, show the libraries around leafwise.
    groups = ("test", "interop") if session.python == NEWEST else ("test",)
    _install(session, *groups, pins=pins)
    extra: list[str] = []
    if not session.posargs:
        left_out = ["downstream", "interop", "planted"]  # sessions of their own run these
        if session.python != OLDEST:
            left_out += PROPERTIES
        if session.python != NEWEST:
            left_out += ON_NEWEST
        if session.python not in (OLDEST, NEWEST):
            left_out += AS_ON_NEWEST
        extra = [f"--ignore=tests/{folder}" for folder in left_out]
        extra.append("--ignore=tests/examples/test_scripts.py")  # the demo runs them
        if session.python != NEWEST:
            extra.append("--ignore=tests/oracle/test_explain_command.py")
    if not session.posargs and session.python == NEWEST and not os.environ.get("CI"):
        extra.append("--cov")  # a quarter slower: for people to read
    session.run("pytest", *WORKERS, *extra, *session.posargs)


@nox.session(python=NEWEST)
def properties(session: nox.Session) -> None:
    """Run the property tests, and print how many planted faults the kit finds.

    `-- --hypothesis-profile=thorough` looks further.
    """
    _install(session, "test", pins=[])
    arguments = session.posargs or ["--hypothesis-profile=ci"]
    folders = [f"tests/{folder}" for folder in PROPERTIES]
    session.run("pytest", *folders, *WORKERS, *arguments)


@nox.session(python=ENDS)
def downstream(session: nox.Session) -> None:
    """Try leafwise with the libraries around it, the oldest that it supports and the newest.

    Then `leafwise check` runs over classes of theirs. `-- --write-table` writes again what the
    tests found into docs/reference/ecosystem.md.
    """
    arguments = [each for each in session.posargs if each != "--write-table"]
    files = {python: Path(session.cache_dir, f"works-{python}.json") for python in ENDS}
    works = ["--works", str(files[str(session.python)])]
    if session.python != NEWEST:
        groups = ("test", "interop")
        _install(session, *groups, pins=_floors(groups=("interop",)))
        session.run("pytest", "tests/interop", *WORKERS, *works, *arguments)
        return
    _install(session, "test", "interop", "downstream", pins=[])
    session.run("pytest", "tests/interop", "tests/downstream", *WORKERS, *works, *arguments)
    found = [str(files[python]) for python in ENDS if files[python].exists()]
    if not arguments and len(found) == len(ENDS) > 1:
        write = ["--write"] if "--write-table" in session.posargs else []
        session.run("python", "tests/interop/table.py", *found, *write)


@nox.session(python=NEWEST, default=False)
def mutation(session: nox.Session) -> None:
    """Change the core in one place at a time, and see whether a test notices.

    All changes take many hours; `-- 50` tries that many, always the same ones.
    """
    _install(session, "test", "mutation", pins=[])
    work = Path(session.create_tmp(), "project")  # sources are changed in place
    shutil.rmtree(work, ignore_errors=True)
    skipped = shutil.ignore_patterns(".*", "site", "dist", "__pycache__")
    shutil.copytree(Path.cwd(), work, ignore=skipped)
    session.chdir(work)
    config, results = "tests/mutation/config.toml", "results.sqlite"
    source = {"PYTHONPATH": str(work / "src")}
    session.run("cosmic-ray", "init", config, results)
    session.run("cr-filter-operators", results, config)
    if session.posargs:
        session.run("python", "tests/mutation/sample.py", results, *session.posargs)
    session.run("cosmic-ray", "exec", config, results, env=source)
    session.run("cr-report", results, "--show-diff", "--surviving-only")
    session.run("cr-rate", results, "--estimate")


@nox.session(python=OLDEST, default=False)
def minimums(session: nox.Session) -> None:
    """Run the tests with the lowest allowed version of every direct dependency."""
    _install(session, "test", project=".[all]", pins=_floors())
    session.run("pytest", *WORKERS, *session.posargs)


@nox.session(python=NEWEST)
def lint(session: nox.Session) -> None:
    """Check style and format (`-- --fix` repairs what it can)."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]))


@nox.session(python=NEWEST)
def types(session: nox.Session) -> None:
    """Check types with pyright and mypy, both strict, errors that must occur included."""
    _install(session, "types", "interop", project=".[all]", pins=[])
    paths = [path for path in ("src", "typing_tests") if Path(path).is_dir()]
    python = str(Path(session.bin, "python"))
    session.run("pyright", "--warnings", "--pythonpath", python, *(session.posargs or paths))
    session.run("mypy", *(session.posargs or paths))


@nox.session(python=NEWEST)
def docs(session: nox.Session) -> None:
    """Build the documentation into site/; a warning is an error."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "docs"))
    build = ["zensical", "build", "--strict", "--clean", *session.posargs]
    log = session.run(*build, silent=True, success_codes=[0, 1])
    session.log(log)
    # --strict stops at broken links, anchors and references; a docstring that disagrees
    # with its signature is only logged, by griffe.
    if "No issues found" not in log or re.search(r"^(griffe|mkdocstrings): ", log, re.MULTILINE):
        session.error("the documentation has problems: see above")


@nox.session(python=NEWEST)
def demo(session: nox.Session) -> None:
    """Run every example, then `leafwise check` and `leafwise explain` over them."""
    _install(session, "examples", project=".[cli]", pins=[])
    examples = sorted(str(path) for path in Path("examples").glob("*.py"))
    if not examples:
        session.error("examples/ holds no script")
    churn = str(Path("examples/churn.py"))  # it has no class of its own, and much to explain
    for example in examples:
        if example != churn:
            session.run("python", "-W", "error", example)
    # Instances with a network to compile, and those that only go through a loop.
    left_out = ("churn", "equinox_mlp", "branches", "loops")
    checked = [example for example in examples if Path(example).stem not in left_out]
    session.run("leafwise", "check", "--examples", "3", *checked, *session.posargs)
    session.run("leafwise", "explain", churn)


@nox.session(python=NEWEST, default=False)
def bench(session: nox.Session) -> None:
    """Measure against other libraries; `-P 3.11` in front of `--` chooses the Python."""
    _install(session, "bench", pins=[])
    session.run("python", "bench/run.py", *session.posargs)


@nox.session(python=NEWEST, default=False)
def build(session: nox.Session) -> None:
    """Build sdist and wheel, and try the wheel alone."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "build"))
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", *session.posargs)
    session.install(*(str(wheel) for wheel in Path("dist").glob("*.whl")))
    session.chdir(session.create_tmp())
    session.run("python", "-c", "import leafwise; print(leafwise.__file__)")


if __name__ == "__main__":
    nox.main()
