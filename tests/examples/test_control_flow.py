from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

CONSTRUCTS = [
    "cond",
    "switch",
    "while_loop",
    "fori_loop",
    "scan",
    "vmap",
    "map_batched",
    "grad",
    "checkpoint",
    "debug_print",
    "pure_callback",
]


pytestmark = pytest.mark.nightly  # `nox -s demo` runs it, too


@pytest.fixture(scope="module")
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    """Return the example as a module."""
    return load_example("control_flow")


@pytest.fixture(scope="module")
def rows(example: ModuleType) -> dict[str, Any]:
    """Return the rows of the report."""
    return example.main()


def test_every_construct_is_shown(rows: dict[str, Any]) -> None:
    """The table has a row for each construct."""
    assert list(rows) == CONSTRUCTS


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_class_and_statics_survive(example: ModuleType, rows: dict[str, Any], name: str) -> None:
    """Each construct hands back a Decay whose static is the int that went in."""
    out = rows[name].out
    assert rows[name].kept
    assert type(out) is example.Decay
    assert type(out.order) is int
    assert out.order == 2


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_traces(rows: dict[str, Any], name: str) -> None:
    """Two instances are traced once, and another static once more."""
    assert (rows[name].traces, rows[name].more) == (1, 1)


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_derivatives(rows: dict[str, Any], name: str) -> None:
    """`while_loop` has no backward derivative, `pure_callback` none, and all others both."""
    row = rows[name]
    assert ("support JVP" in row.no_forward) is (name == "pure_callback")
    assert bool(row.no_forward) is (name == "pure_callback")
    assert bool(row.no_backward) is (name in {"while_loop", "pure_callback"})


def test_results_are_those_of_plain_python(example: ModuleType, rows: dict[str, Any]) -> None:
    """Each construct computes what the same steps compute one by one."""
    states = [example.Decay()]
    for _ in range(12):
        states.append(states[-1].step())
    until_little = next(state for state in states if not state.total() > 1)
    expected = {
        "cond": states[1],
        "switch": states[1],
        "while_loop": until_little,
        "fori_loop": states[4],
        "scan": jax.tree.map(lambda *leaves: jnp.stack(leaves), *states[:4]),
        "checkpoint": states[4],
        "debug_print": states[0],
        "grad": example.Decay(jnp.full(3, 0.5), jnp.array(-3.0)),
    }
    for name, wanted in expected.items():
        close = jax.tree.map(lambda a, b: bool(jnp.allclose(a, b)), rows[name].out, wanted)
        assert all(jax.tree.leaves(close)), name
    assert jnp.allclose(rows["vmap"].out.level, rows["map_batched"].out.level)
    assert jnp.allclose(rows["vmap"].out.level[-1], states[1].level)
