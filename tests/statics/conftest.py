"""Every hazard runs against plain JAX too, to show that its test can fail."""

from collections.abc import Iterator
from typing import Any

import jax
import pytest

from .judge import Events, Plain, Sound

unregister: Any = getattr(jax.monitoring, "unregister_event_duration_listener", None)
if unregister is None:  # before JAX 0.8.1
    from jax._src.monitoring import _unregister_event_duration_listener_by_callback as unregister


@pytest.fixture(params=[Plain, Sound], ids=["register_dataclass", "leafwise"])
def cls(request: pytest.FixtureRequest) -> Any:
    """The class under test, with a dynamic field ``x`` and a static field ``s``."""
    return request.param


@pytest.fixture
def sound(cls: Any) -> bool:
    """Whether the class under test is the one that must behave."""
    return cls is Sound


@pytest.fixture
def events() -> Iterator[Events]:
    """JAX's own count of traces, lowerings and compiles of a function named `judged`."""
    listener = Events()
    jax.monitoring.register_event_duration_secs_listener(listener)
    yield listener
    unregister(listener)
