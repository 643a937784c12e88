"""`leafwise._jax.compiles` calls its listeners with each program, just before it is compiled."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compiler
from jax.experimental.compilation_cache import compilation_cache

from leafwise._jax.compiles import Compile, listen_to_compiles, stop_listening_to_compiles
from leafwise._programs.program import read_program

ORIGINAL = compiler.compile_or_get_cached


@pytest.fixture
def compiles() -> Iterator[list[Compile]]:
    found: list[Compile] = []
    assert listen_to_compiles(found.append)
    yield found
    stop_listening_to_compiles(found.append)
    assert compiler.compile_or_get_cached is ORIGINAL


def test_each_compile_is_reported_once(compiles: list[Compile]) -> None:
    """A listener gets each program of each thread, and nothing on a cache hit."""

    def doubled(x: Any) -> Any:
        return 2 * x

    jitted = jax.jit(doubled)
    thread = threading.Thread(target=jitted, args=(np.ones(3),))
    thread.start()
    thread.join()
    jitted(np.ones(3))
    jitted(np.ones(4))
    assert [each.name for each in compiles] == ["jit_doubled"] * 2
    assert "stablehlo.multiply" in str(compiles[0].lines())
    assert compiles[0].options()["platform"].startswith("cpu")


def test_nobody_is_called_after_the_last_listener(compiles: list[Compile]) -> None:
    """The hook is installed once, and removed with the last listener."""
    others: list[Compile] = []
    assert listen_to_compiles(others.append)
    assert listen_to_compiles(others.append)
    jax.jit(lambda x: x + 1)(1)
    stop_listening_to_compiles(others.append)
    jax.jit(lambda x: x + 2)(1)
    assert (len(compiles), len(others)) == (2, 1)
    stop_listening_to_compiles(others.append)
    assert compiler.compile_or_get_cached is not ORIGINAL


def test_an_error_ends_the_call_and_leaves_caches_sound(compiles: list[Compile]) -> None:
    """What a listener raises ends the call; the next call compiles, and gives the result."""

    def refuse(_: Compile) -> None:
        raise ZeroDivisionError

    jitted = jax.jit(lambda x: x * 3)
    assert listen_to_compiles(refuse)
    try:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                jitted(2)
    finally:
        stop_listening_to_compiles(refuse)
    assert len(compiles) == 2
    assert int(jitted(2)) == 6
    assert len(compiles) == 3


def test_the_key_is_that_of_the_persistent_cache(
    compiles: list[Compile], cache_dir: None, tmp_path: Path
) -> None:
    """The key is the name of the file that JAX writes; None while the cache is off."""

    def cached(x: Any) -> Any:
        return jnp.cos(x)

    jax.jit(cached)(np.ones(2))
    key = compiles[-1].cache_key()
    assert key is not None
    assert any(each.name.startswith(key) for each in tmp_path.iterdir())
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    jax.jit(cached)(1.0)
    assert compiles[-1].cache_key() is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64", "int4"])
def test_large_constants_count_by_their_bits(compiles: list[Compile], dtype: str) -> None:
    """One bit in a large constant is another program; its content is not in the text."""
    fingerprints: list[str] = []
    for changed in (0, 0, 1):
        values = np.arange(5000) % 2
        values[1234] += changed
        constant = values.astype(jnp.dtype(dtype))
        jax.jit(lambda x, constant=constant: x + abs(jnp.asarray(constant).astype("complex64")))(
            1.0
        )
        program = read_program(compiles[-1], compiles[-1].options())
        assert len(str(program)) < 10_000
        fingerprints.append(program.fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
