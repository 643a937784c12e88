import contextlib
import re
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import count_events
from tests.kit.processes import run_python

import leafwise as lw
from leafwise._jax import compat, compiles, context, exchanges, frames, processes, stack


@pytest.fixture(params=["known", "unknown"])
def jax_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let JAX show what it has inside, or nothing."""
    if request.param == "unknown":
        for internal in compat.Internal:
            monkeypatch.setitem(compat.ANSWERS, internal, False)
        for module in (compat, compiles, context, exchanges, frames, processes, stack):
            monkeypatch.setattr(module, "inside", lambda _: None)
    return str(request.param)


CONTEXTS = {
    "x64": lambda: jax.enable_x64(True),
    "precision": lambda: jax.default_matmul_precision("highest"),
    "device": lambda: jax.default_device(jax.devices()[0]),
    "promotion": lambda: jax.numpy_rank_promotion("raise"),
    "threefry": lambda: jax.threefry_partitionable(False),
}


@pytest.mark.parametrize("block", list(CONTEXTS.values()), ids=CONTEXTS)
def test_configuration_is_seen(jax_version: str, block: Any) -> None:
    """Options with a public name are seen with and without JAX's internals, and JAX retraces."""
    function = jax.jit(lambda x: x + 1)
    x = jnp.ones(3)
    function(x)
    before = lw.signature(x)
    with block(), count_events() as counts:
        after = lw.signature(x)
        function(x)
    assert counts.traces == 1
    found = after.explain(before)
    assert found.outcome is lw.types.Outcome.RETRACE
    assert all(reason.path.startswith("config.jax_") for reason in found.reasons)


def test_calls_under_one_configuration_share_it(jax_version: str) -> None:
    """Its record is one object, and another one while an option has another value."""
    before = context.trace_config()
    assert context.trace_config() is before
    with jax.enable_x64(not jax.config.jax_enable_x64):
        assert context.trace_config() != before
    assert context.trace_config() == before


def test_mesh_is_seen(jax_version: str) -> None:
    """A mesh is part of the configuration, and named once."""
    if jax_version == "unknown" and not hasattr(jax.sharding, "get_mesh"):
        pytest.skip("JAX 0.8.0 has no public name for it")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    before = lw.signature(1.0)
    with jax.set_mesh(mesh):
        after = lw.signature(1.0)
    assert [reason.path for reason in after.explain(before).reasons] == ["config.mesh"]


def test_traces_are_recorded(jax_version: str) -> None:
    """A function remembers its traces, with the shapes, in any version of JAX."""
    function = lw.jit(lambda x, n: x * n, static_argnames="n")
    for size, n in ((3, 1), (4, 1), (4, 2), (4, 2)):
        function(jnp.ones(size), n=n)
    assert [[reason.path for reason in each.explanation.reasons] for each in function.traces] == [
        [],
        ["x"],
        ["n"],
    ]
    assert all(each.trace_seconds > 0 for each in function.traces)
    here = [each.site.file for each in function.traces if each.site is not None]
    assert here == [__file__] * 3


def test_events_are_counted(jax_version: str) -> None:
    """A watch counts all, and knows which are eager, in any version of JAX."""
    function = lw.jit(lambda x: x - 1)
    x = np.ones(7)
    with lw.watch(eager=False) as log:
        function(x)
        jnp.sin(jnp.ones(11))
    assert [event.name for event in log.traces] == ["<lambda>"]
    assert (len(log.traces), len(log.lowerings), len(log.compiles)) == (1, 1, 1)
    assert {event.site.file for event in log if event.site is not None} == {__file__}


def test_recompile_without_trace(jax_version: str) -> None:
    """Where the arguments can be seen, a committed array is named; elsewhere it is counted."""
    function = lw.jit(lambda x: x - 1)
    x = jnp.ones(3)
    function(x)
    with lw.watch() as log, contextlib.suppress(lw.errors.RetraceError), lw.no_retrace():
        function(jax.device_put(x, jax.devices()[0]))
    assert (len(log.traces), len(log.lowerings), len(log.compiles)) == (0, 1, 1)
    if jax_version == "known":
        assert [reason.path for reason in function.recompiles[0].explanation.reasons] == ["x"]
    else:
        assert len(function.recompiles) == 0


def test_commitment_is_read_off_what_is_lowered(jax_version: str) -> None:
    """What is lowered says whether results are committed; an unknown JAX by their devices alone."""
    plain = jax.jit(lambda x: x + 1)
    devices = jax.devices()[:2]
    mesh = jax.sharding.Mesh(np.array(devices), ("i",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))

    def is_committed(x: Any) -> bool:
        lowered: Any = plain.lower(x)
        if jax_version == "unknown":
            lowered = types.SimpleNamespace(compile=lowered.compile)
        return compat.is_committed(lowered)

    assert not is_committed(jnp.ones(2))
    assert is_committed(jax.device_put(jnp.ones(2), spread))
    assert is_committed(jax.device_put(jnp.ones(2), devices[0])) == (jax_version == "known")


def test_the_number_of_a_context_is_no_configuration(jax_version: str) -> None:
    """Traces of other numbers are kept apart, and calls differ in nothing else."""
    value = 1.0

    def scaled(x: Any) -> Any:
        return x * value

    inner = jax.checkpoint(scaled)
    outer: Any = jax.jit(lambda x: inner(x) + 0)
    before = context.trace_config()
    assert float(outer(1.0)) == 1.0
    value = 2.0
    outer.clear_cache()
    assert float(outer(1.0)) == 1.0  # the hazard
    number = context.new_number()
    with context.with_number(number):
        assert float(outer(1.0)) == 2.0
        assert context.current_number() == number
        assert context.trace_config() == before
    assert context.current_number() is None


ASKED = """
import sys

import leafwise as lw
import leafwise.cli.main
from leafwise._jax.compat import ANSWERS, Internal, left_out

assert not ANSWERS
import jax
from leafwise._jax import stack
from leafwise._jax.events import count_events

with count_events() as counts:
    lw.jit(lambda x: x).trace(1.0)
    assert stack.shows_work()
    stack._probe_roles()
assert {Internal.CALLS, Internal.RESULTS, Internal.NESTING, Internal.PROGRAMS} <= set(ANSWERS)
assert all(ANSWERS.values()) and not left_out()
print(counts.compiles)
"""


@pytest.mark.slow
def test_what_is_asked_when() -> None:
    """Nothing at import, and then JAX is asked without a compile; today's shows all."""
    command = [sys.executable, "-c", ASKED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_asking_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside other traces, JAX is asked on this thread, as in `atexit` functions of Python 3.12."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def ask_all() -> dict[compat.Internal, bool]:
        compiles.shows_lines()
        stack.shows_work()
        compat.Internal.ROLES.is_known(stack._probe_roles)
        return dict(compat.ANSWERS)

    @jax.jit
    def step(x: Any) -> Any:
        answers.append(ask_all())
        return x

    expected, answers = ask_all(), list[Any]()
    for internal in expected:
        monkeypatch.delitem(compat.ANSWERS, internal)
    monkeypatch.setattr(threading.Thread, "start", start)
    jax.jit(jax.grad(lambda x: step(x * 2)))(1.0)
    assert answers == [expected]


def test_the_page_has_a_row_for_each() -> None:
    """What JAX does not show has a line that says what is left out."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "support.md"
    rows = re.findall(r"^\| ([^|,]*)[,|]", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {each.value[0] for each in compat.Internal} <= {row.strip() for row in rows}


PROGRAM = """
import jax, jax.numpy as jnp
import leafwise as lw
from leafwise._jax.events import count_events

functions = [jax.jit(lambda x, k=k: x * k) for k in range(3)]
x = jnp.ones(2)
for function in functions:
    function(x)
scaled = lw.jit(lambda x: x)
for _ in range(2):
    with count_events() as counts:
        for function in functions:
            function(x)
    print(counts.compiles)
"""


@pytest.mark.nightly
def test_what_the_first_use_costs() -> None:
    """What JAX compiled before the first `lw.jit` of a process, it compiles once more."""
    assert run_python(PROGRAM).split() == [b"3", b"0"]
