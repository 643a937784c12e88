"""JAX's persistent cache in a folder of a test's own."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

NAMES = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def cache_dir(tmp_path: Path) -> Iterator[None]:
    """Let JAX have a cache of its own, which has no limits."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    compilation_cache.reset_cache()
    for name, value in zip(NAMES, (str(tmp_path), True, 0.0, -1), strict=True):
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
