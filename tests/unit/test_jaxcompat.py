import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise import _jaxcompat
from leafwise._events import count_events
from leafwise._sites import site_of


@pytest.fixture(params=["known", "unknown"])
def jax_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let JAX be a version that is known, or one that is not."""
    if request.param == "unknown":
        monkeypatch.setattr(_jaxcompat, "_KNOWN", False)
    return str(request.param)


CONTEXTS = {
    "x64": lambda: jax.enable_x64(True),
    "precision": lambda: jax.default_matmul_precision("highest"),
    "device": lambda: jax.default_device(jax.devices()[0]),
    "promotion": lambda: jax.numpy_rank_promotion("raise"),
    "threefry": lambda: jax.threefry_partitionable(False),
}


@pytest.mark.parametrize("context", list(CONTEXTS.values()), ids=CONTEXTS)
def test_configuration_is_seen(jax_version: str, context: Any) -> None:
    """Options with a public name are seen with and without JAX's internals, and JAX retraces."""
    function = jax.jit(lambda x: x + 1)
    x = jnp.ones(3)
    function(x)
    before = lw.signature(x)
    with context(), count_events() as counts:
        after = lw.signature(x)
        function(x)
    assert counts.traces == 1
    found = lw.explain(before, after)
    assert found.outcome is lw.Outcome.RETRACE
    assert all(reason.path.startswith("config.jax_") for reason in found.reasons)


@pytest.mark.parametrize("name", ["jax_debug_nans", "jax_log_compiles"])
def test_other_options_do_not_matter(jax_version: str, name: str) -> None:
    """Options that JAX does not trace for are no difference."""
    context = {"jax_debug_nans": jax.debug_nans, "jax_log_compiles": jax.log_compiles}[name]
    before = lw.signature(1.0)
    with context(True):
        assert lw.signature(1.0) == before


def test_mesh_is_seen(jax_version: str) -> None:
    """A mesh is part of the configuration, and named once."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    before = lw.signature(1.0)
    with jax.set_mesh(mesh):
        after = lw.signature(1.0)
    assert [reason.path for reason in lw.explain(before, after).reasons] == ["config.mesh"]


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
    with lw.watch() as log, contextlib.suppress(lw.RetraceError), lw.no_retrace():
        function(jax.device_put(x, jax.devices()[0]))
    assert (len(log.traces), len(log.lowerings), len(log.compiles)) == (0, 1, 1)
    if jax_version == "known":
        assert [reason.path for reason in function.recompiles[0].explanation.reasons] == ["x"]
    else:
        assert len(function.recompiles) == 0


def test_calls_are_found_where_jax_is_known() -> None:
    """In the supported versions of JAX the running call is found, with its arguments."""
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.extend(_jaxcompat.running_calls())
        return x

    x = jnp.ones(3)
    jax.jit(function)(x)
    assert [(call.fun, call.runs) for call in seen] == [(function, True)]
    assert seen[0].args[0] is x
    site = site_of(seen[0].frame)
    assert site is not None
    assert site.file == __file__


def test_dispatch_entries_of_an_unknown_object() -> None:
    """Where JAX does not say how many entries there are, the answer says so."""
    assert _jaxcompat.dispatch_entries(object()) == -1
