"""What holds for all tests: their kinds, their budget, eight devices, Hypothesis, `pytester`.

`--hypothesis-profile` wins, then the variable `HYPOTHESIS_PROFILE`, then `ci`: the same examples
for everybody. `dev` and `thorough` search at random.
"""

import functools
import gc
import itertools
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

# Read when JAX first needs a device: shardings are tried on eight of them.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
# A program here runs once or twice: without optimisations it compiles in two thirds of the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import hypothesis
import pytest
from jax._src import compiler  # else the first test that needs JAX pays for the import
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["pytester"]

# Compiling makes one example slow and the next one fast: time per example means nothing.
COMPILES: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": (hypothesis.HealthCheck.too_slow,),
}
PROFILES: dict[str, dict[str, Any]] = {
    "dev": {"max_examples": 25},
    # The same examples on every run: a red build can be repeated, and is never bad luck.
    "ci": {"max_examples": 10, "derandomize": True, "database": None, "print_blob": True},
    "night": {"max_examples": 15, "derandomize": True, "database": None, "print_blob": True},
    "thorough": {"max_examples": 1000, "phases": tuple(hypothesis.Phase)},
}
for profile, options in PROFILES.items():
    parent = hypothesis.settings.get_profile("default")
    hypothesis.settings.register_profile(profile, parent, **options, **COMPILES)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "ci")

TESTS = Path(__file__).parent
# The kind of all tests in a folder or file. Other folders are wings, whose tests are unit tests
# where no `pytestmark` says otherwise.
KINDS = {
    "transforms": "transforms",
    "property": "property",
    "planted": "property",
    "kit": "property",
    "testing/strategies": "property",
    # `leafwise check` tries classes on many examples, too.
    **dict.fromkeys(
        (
            "cli/test_check_fixes_applied.py",
            "cli/test_classes.py",
            "cli/test_laws.py",
            "cli/test_targets.py",
            "cli/test_warnings.py",
        ),
        "property",
    ),
    # Equinox, chex, jaxtyping and saved files are tried on each change, these libraries by
    # `downstream`.
    **dict.fromkeys(
        (
            "interop/test_diffrax.py",
            "interop/test_flax_nnx.py",
            "interop/test_flax_serialization.py",
            "interop/test_flax_struct.py",
            "interop/test_orbax.py",
            "interop/test_printing.py",
            "interop/test_trees_optax.py",
        ),
        "downstream",
    ),
    "interop": "interop",
    "downstream": "downstream",
    "foreign": "foreign",
    "examples": "examples",
    "docs": "docs",
    "test_suite.py": "docs",
    "bench": "bench",
    "no_extras": "no_extras",
    "site": "site",
}
IN_WINGS = {"unit", "hazard", "message", "oracle"}
WHEN = {"slow", "nightly"}
READS_JAX = ("captures", "compare", "jax", "jit")  # the wings that depend on JAX's version


@functools.cache
def _kinds_of(path: Path) -> set[str]:
    """Return the kinds that tests in a file or folder may have."""
    if not path.is_relative_to(TESTS):
        return set()
    inner = path.relative_to(TESTS)
    names = [each.as_posix() for each in (inner, *inner.parents)]
    of_all = [KINDS[name] for name in names if name in KINDS]
    return set(of_all[:1]) or (IN_WINGS if path.suffix else {*IN_WINGS, *KINDS.values()})


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its kind, by which the sessions of the noxfile choose."""
    for item in items:
        kinds = _kinds_of(item.path)
        if kinds and not any(map(item.get_closest_marker, kinds)):
            item.add_marker("unit" if kinds is IN_WINGS else next(iter(kinds)))
        if item.path.parent.name in READS_JAX:
            item.add_marker("reads_jax")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of a kind that `-m` leaves out."""
    chosen: str = config.option.markexpr
    kinds = _kinds_of(collection_path)
    names = set(re.findall(r"\w+", chosen)) - {"and", "or", "not"}
    if not kinds or not names or not names <= {*KINDS.values(), *IN_WINGS, *WHEN, "reads_jax"}:
        return None
    marks = (
        {name: name in each for name in names}
        for kind in kinds
        for each in ((kind, "reads_jax"), (kind, "slow"), (kind, "nightly"), (kind, *WHEN))
    )
    # An expression of pytest's, of nothing but such names, is one of Python's.
    return None if any(eval(chosen, {}, each) for each in marks) else True  # noqa: S307


class Scheduling(LoadScopeScheduling):
    """The tests of a file, which share what they compile, go to one worker; so do rows of a law.

    What each test costs here grows with the number of scopes: file by file is a fifth faster.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/bench/"):
            return "tests/bench"
        file = nodeid.partition("::")[0]
        is_law = "property" in _kinds_of(Path(file).absolute())
        return nodeid.partition("[")[0] if is_law else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Distribute tests over workers."""
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def lines() -> None:
    """Skip a test that needs the lines of operations where JAX does not show them."""
    from leafwise._jax.compiles import shows_lines  # JAX starts

    if not shows_lines():
        pytest.skip("JAX does not show the lines of operations")


@hypothesis.given(hypothesis.strategies.none())
def _draw_nothing(_: None) -> None:
    """Let Hypothesis make its generator of random numbers."""


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported.

    Many tests collect garbage, hundreds of times: it takes a quarter of the time if the
    modules of JAX and the libraries around it are not walked through each time.
    """
    _draw_nothing()  # which warns if its generator is among what the collector passes over
    gc.collect()
    gc.freeze()


_compile: Any = getattr(compiler, "backend_compile_and_load", None)
_COMPILED: dict[Any, Any] = {}


def _compile_once(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
    """Compile a program of the same text once: more than half of them have been there before.

    JAX traces, lowers, counts and keeps them as ever; what it is given is a program like its own.
    """
    ids = tuple(device.id for device in devices)
    key = (backend, module.operation.get_asm(), ids, options.SerializeAsString())
    if callbacks:  # which are alive as long as the program is
        return _compile(backend, module, devices, options, callbacks)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(backend, module, devices, options, callbacks)
    return _COMPILED[key]


if _compile and os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1":  # not at night
    compiler.backend_compile_and_load = _compile_once

BUDGET = 1.0  # seconds of CPU that a test may take, its processes included, if it is not `slow`
# Where it is held: what a second is worth, and which test pays for a late import, varies.
TOLERANCE = 3
SPENT = "seconds of CPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes the budget more than advice."""
    parser.addoption("--hold-budget", action="store_true", help="fail if a test is far too slow")


def _cpu() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note what a test has spent, if that is too much."""
    before = _cpu()
    try:
        return (yield)
    finally:
        spent = _cpu() - before
        if spent > BUDGET and not any(map(item.get_closest_marker, WHEN)):
            item.user_properties.append((SPENT, spent))


def _over_budget(config: pytest.Config) -> dict[str, float]:
    """Return what was noted, also by workers: reports bring it from there."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = itertools.chain.from_iterable(reporter.stats.values()) if reporter else ()
    return {
        report.nodeid: spent
        for report in reports
        for name, spent in getattr(report, "user_properties", ())
        if name == SPENT
    }


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that want the mark `slow`."""
    if over := _over_budget(terminalreporter.config):
        terminalreporter.section(f"over {BUDGET} s of CPU, and not marked slow")
        for nodeid, spent in sorted(over.items()):
            terminalreporter.write_line(f"{spent:5.1f} s {nodeid}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test took far more than its budget, where that was asked for."""
    held = session.config.getoption("--hold-budget")
    if held and any(each > TOLERANCE * BUDGET for each in _over_budget(session.config).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
