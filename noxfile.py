# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.10.14"]
# ///
"""Every check of leafwise: `nox -s tests` runs all that a change must pass.

`nox -s quick` is the inner loop, `nox -s nightly` what takes too long for each change, and
`nox -l` lists the rest. What follows `--` goes to the session's tool:
`nox -s quick -- tests/statics -k key`.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
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


# Without byte code every worker and every second process would compile JAX, and rewrite the
# assertions of all tests, again: that took a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


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
# Tests differ a lot in length; and each worker compiles with threads of its own.
WORKERS = ("-n", "logical", "--maxprocesses=4", "--dist", "worksteal")
# Libraries that the whole suite needs, flax and orbax, have no wheels for these yet.
AHEAD = ("3.15",)
WHOLE = [minor for minor in AVAILABLE if minor not in AHEAD] or PYTHONS
OLDEST, NEWEST = WHOLE[0], WHOLE[-1]
ENDS = list(dict.fromkeys((OLDEST, NEWEST)))

# What `tests` runs on which Python, by the markers of pyproject.toml; the rest `nightly` does.
QUICK = "(unit or hazard or message) and not (slow or nightly)"
BRIEF = "(hazard or message) and not (slow or nightly)"
CHOSEN = {
    OLDEST: ("(hazard or message or oracle or (unit and reads_jax)) and not (slow or nightly)"),
    # Also of one alone. What is slow with other libraries is left to `downstream`.
    NEWEST: (
        "not (downstream or foreign or no_extras or site or bench or nightly or (interop and slow))"
    ),
}
SCHEMAS = {  # what others read, as `check-jsonschema` knows it without a network
    "citation-file-format": "CITATION.cff",
    "dependabot": ".github/dependabot.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-workflows": ".github/workflows/*.yml",
    "readthedocs": ".readthedocs.yaml",
}
# On the other Pythons: the wings that look into classes, code and objects of Python itself.
BETWEEN = (
    *("tests/captures", "tests/classes", "tests/objects", "tests/statics"),
    *("tests/jit/test_outside.py", "tests/jit/test_stale_captures.py"),
)
# What depends on neither Python nor JAX, or needs what is installed for the newest alone.
ON_NEWEST = "interop or downstream or foreign or no_extras or examples or docs or site or bench"


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


def _pins(python: str) -> list[str]:
    """Pin the oldest JAX, on the oldest Python supported."""
    return _floors("jax", "jaxlib") if python == SUPPORTED[0] else []


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests on each Python, with the oldest JAX on the oldest, and then every check.

    Nothing runs twice; `nightly` runs what is left out. `-- tests/statics` runs that on each
    Python, and no other check; `-- --cov` the whole suite, with its coverage.
    """
    python = str(session.python)
    # The pages, which run on the newest, show the libraries around leafwise.
    _install(session, "test", *(["interop"] if python == NEWEST else []), pins=_pins(python))
    if session.posargs:  # a narrowed run stays narrow
        session.run("pytest", *WORKERS, *session.posargs)
        return
    for check in ("no_extras", "lint", "types", "docs"):
        session.notify(check, posargs=[])
    if python in CHOSEN:
        session.run("pytest", *WORKERS, "-m", CHOSEN[python])
    else:
        session.run("pytest", *WORKERS, "-m", QUICK if python in AHEAD else BRIEF, *BETWEEN)


@nox.session(python=NEWEST, default=False)
def quick(session: nox.Session) -> None:
    """Run what is fast, in under a minute: unit tests, hazards and messages.

    `pytest tests/statics`, or another wing, takes seconds.
    """
    _install(session, "test", pins=[])
    session.run("pytest", *WORKERS, "-m", QUICK, *session.posargs)


@nox.session(python=NEWEST, default=False)
def properties(session: nox.Session) -> None:
    """Run the property tests, and print how many planted faults the kit finds.

    `-- --hypothesis-profile=thorough` looks further.
    """
    _install(session, "test", pins=[])
    arguments = session.posargs or ["--hypothesis-profile=night"]
    session.run("pytest", *WORKERS, "-m", "property and not nightly", *arguments)


@nox.session(python=PYTHONS, default=False)
def nightly(session: nox.Session) -> None:
    """Run what `tests` leaves out, and hold each test to its budget of CPU.

    On the newest Python that is the other seeds of the planted faults, each example as a script,
    the benchmark's tests, and again what is fast, to hold it to its budget; on the oldest the
    properties, what is slow, and whatever else `tests` runs on the newest alone; on those between
    all of it; with XLA's optimizations. Then come `demo`, `downstream` and `distributed` on both
    ends, `foreign`, `minimums` and `jaxes`.
    `-- --hypothesis-profile=thorough` takes hours.
    """
    python = str(session.python)
    if not session.posargs:
        on_ends = [f"{check}-{end}" for check in ("downstream", "distributed") for end in ENDS]
        for check in ("demo", *on_ends, "foreign", "minimums", "jaxes"):
            session.notify(check, posargs=[])
    _install(session, "test", pins=_pins(python))
    left_out = f"not ({ON_NEWEST})"
    if python in CHOSEN:
        left_out += f" and not ({CHOSEN[python]})"
    if python == NEWEST:
        left_out = f"(nightly or bench or {QUICK}) and not (interop or downstream or foreign)"
    arguments = ["--hold-budget", *(session.posargs or ["--hypothesis-profile=night"])]
    # The oldest Python has gone before: digests are the same on both.
    other = Path(session.bin.replace(python.replace(".", "-"), OLDEST.replace(".", "-")), "python")
    env = {"LEAFWISE_OTHER_PYTHON": str(other)} if other.exists() and python != OLDEST else {}
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "0"  # which the tests set otherwise
    arguments.append("--ignore=tests/distributed")  # which has a session
    session.run("pytest", *WORKERS, "-m", left_out, *arguments, env=env)


@nox.session(python=NEWEST)
def no_extras(session: nox.Session) -> None:
    """Try leafwise with nothing but what it depends on.

    The core works, and what needs an extra names the `pip install` that brings it.
    """
    session.install("-e", ".", "pytest>=9")
    session.run("pytest", "--noconftest", "tests/no_extras", *session.posargs)


@nox.session(python=ENDS, default=False)
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


@nox.session(python=ENDS, default=False)
def distributed(session: nox.Session) -> None:
    """Try what is for many hosts, with several processes on this one, nightly tests included."""
    python = str(session.python)
    _install(session, "test", project=".[orbax]", pins=_pins(python))
    # Half of the time they wait for a heartbeat to be missed.
    workers = ("-n", "2", "--dist", "worksteal")
    session.run("pytest", *workers, "tests/distributed", *session.posargs)


@nox.session(python=NEWEST, default=False)
def foreign(session: nox.Session) -> None:
    """Try `leafwise check` and `explain` on pinned libraries that nobody here wrote.

    What they say must be what tests/foreign/verdicts.py says, which plain JAX confirms.
    `-- -k brax` tries one library.
    """
    _install(session, "foreign", project=".[cli]", pins=["pytest>=9", "pytest-xdist>=3.8"])
    # A worker that is done takes over what waits for a library, which may take minutes.
    workers = ("-n", "2", "--dist", "worksteal")
    session.run("pytest", *workers, "tests/foreign", *session.posargs)


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
    """Run the tests with the lowest allowed version of every direct dependency.

    `downstream` tries the libraries of tests/interop in this way; what else it leaves out runs
    on the newest Python alone.
    """
    _install(session, "test", project=".[all]", pins=_floors())
    session.run("pytest", *WORKERS, "-m", f"not ({ON_NEWEST})", *session.posargs)


@nox.session(python="3.12", default=False)
@nox.parametrize("jax", ["0.8", "0.9", "0.10", "0.11", "0.12"])
def jaxes(session: nox.Session, jax: str) -> None:
    """Run what reads, predicts and explains JAX with each version of it that is supported."""
    _install(session, "test", project=".[cli]", pins=[f"jax=={jax}.*", f"jaxlib=={jax}.*"])
    chosen = "not (nightly or downstream or property or site or bench)"
    folders = [f"tests/{each}" for each in ("jax", "jit", "compare", "cli", "foreign")]
    session.run("pytest", *WORKERS, "-m", chosen, *folders, *session.posargs)


@nox.session(python="3.14t", default=False)
def free_threaded(session: nox.Session) -> None:
    """Run the tests on objects, statics and threads without the GIL."""
    _install(session, "test", pins=[])
    session.run("pytest", *WORKERS, "tests/objects", "tests/statics", *session.posargs)
    wings = [f"tests/{each}" for each in ("jax", "jit", "compare", "captures", "property")]
    session.run("pytest", *WORKERS, "-k", "thread", *wings, *session.posargs)


@nox.session(python=NEWEST)
def lint(session: nox.Session) -> None:
    """Check style, format, which wing imports which, and what GitHub and others read.

    `-- --fix` repairs what it can.
    """
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]))
    session.run("lint-imports", env={"PYTHONPATH": "src"})
    for schema, pattern in SCHEMAS.items():
        read = [str(path) for path in sorted(Path().glob(pattern))]
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *read)
    session.run("zizmor", "--offline", "--quiet", ".github")


@nox.session(python=NEWEST)
def types(session: nox.Session) -> None:
    """Check types with pyright and mypy, both strict, errors that must occur included.

    Then those of the blocks of README.md and docs/.
    """
    _install(session, "types", "test", "interop", project=".[all]", pins=[])
    paths = [path for path in ("src", "typing_tests") if Path(path).is_dir()]
    python = str(Path(session.bin, "python"))
    arguments = ("--warnings", "--pythonpath", python, *(session.posargs or paths))
    with ThreadPoolExecutor() as pool:  # each takes one core
        pyright = pool.submit(session.run, "pyright", *arguments)
        session.run("mypy", *(session.posargs or paths))
        if not session.posargs:
            session.run("python", "tests/docs/check_types.py")
        pyright.result()


@nox.session(python=NEWEST)
def docs(session: nox.Session) -> None:
    """Build the documentation into site/, where a warning is an error, and test what was built."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "docs"))
    build = ["zensical", "build", "--strict", "--clean", *session.posargs]
    log = session.run(*build, silent=True, success_codes=[0, 1])
    session.log(log)
    # --strict stops at broken links, anchors and references; a docstring that disagrees
    # with its signature is only logged, by griffe.
    if "No issues found" not in log or re.search(r"^(griffe|mkdocstrings): ", log, re.MULTILINE):
        session.error("the documentation has problems: see above")
    session.run("pytest", "--noconftest", "tests/site")


@nox.session(python=NEWEST, default=False)
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
def pictures(session: nox.Session) -> None:
    """Draw figures and pictures; `-- --record` measures the runs of the first one again."""
    _install(session, "examples", project=".[cli]", pins=[])
    for script in ("figures", "measured", "pictures"):
        session.run("python", f"docs/{script}.py", *session.posargs)


@nox.session(python=NEWEST, default=False)
def bench(session: nox.Session) -> None:
    """Measure against other libraries; `-P 3.11` in front of `--` chooses the Python."""
    _install(session, "bench", project=".[cli]", pins=[])
    session.run("python", "bench/run.py", *session.posargs)


def _build(session: nox.Session) -> Path:
    """Build sdist and wheel into dist/, check what they say and hold, and return the sdist."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    (sdist,), (wheel,) = Path("dist").glob("*.tar.gz"), Path("dist").glob("*.whl")
    session.run("twine", "check", "--strict", str(sdist), str(wheel))
    session.run("check-wheel-contents", str(wheel))
    with zipfile.ZipFile(wheel) as files:
        (said,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = files.read(said).decode()
    urls = PYPROJECT["project"]["urls"]
    if missing := [url for url in urls.values() if f", {url}\n" not in metadata]:
        session.error(f"the wheel does not say {missing}")
    # PyPI shows README.md alone: what is next to it is not there.
    target = r"(?!https://|#)"
    relative = rf'\]\({target}[^)]*\)|(?:src|href)="{target}[^"]*"'
    if dead := re.findall(relative, metadata):
        session.error(f"links of README.md that lead nowhere on PyPI: {', '.join(dead)}")
    return sdist.resolve()


@nox.session(python=NEWEST, default=False)
def build(session: nox.Session) -> None:
    """Build sdist and wheel, and check what they say and hold."""
    _build(session)


@nox.session(python=NEWEST, default=False)
def release(session: nox.Session) -> None:
    """Do all of a release but the tag and the upload.

    The changelog is drafted, sdist and wheel are built and checked, the sdist runs `nox -s quick`
    where it is unpacked, and `wheel` follows. With `-- --tag v1.2.3` the changelog must be written,
    and for this version.
    """
    version = PYPROJECT["project"]["version"]
    if session.posargs:
        if session.posargs != ["--tag", f"v{version}"]:
            session.error(f"{' '.join(session.posargs)}: this is the tree of --tag v{version}")
        if f"\n## {version} (" not in Path("CHANGELOG.md").read_text(encoding="utf-8"):
            session.error(f"before the tag: towncrier build --version {version}, and commit")
    sdist = _build(session)
    if not session.posargs:
        session.run("towncrier", "build", "--draft", "--version", version)
    unpacked = Path(session.create_tmp()) / "sdist"
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.unpack_archive(sdist, unpacked, filter="data")
    for python in PYTHONS:
        session.notify(f"wheel-{python}", posargs=[])
    session.chdir(next(unpacked.iterdir()))
    session.run("nox", "-s", "quick", env={"PYTHONPATH": None, "VIRTUAL_ENV": None})


@nox.session(python=PYTHONS, default=False)
def wheel(session: nox.Session) -> None:
    """Try the wheel that `release` built on each Python, in an empty environment without extras.

    The Python blocks of README.md need no more.
    """
    (built,) = Path("dist").glob("*.whl")
    session.install(str(built), "pytest>=9", "sybil>=9.3")
    pages = "tests/docs/test_code_blocks.py"
    session.run("pytest", "--noconftest", "tests/no_extras", pages, "-k", "core_alone or README")


if __name__ == "__main__":
    nox.main()
