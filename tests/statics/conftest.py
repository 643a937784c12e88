"""Every hazard runs against plain JAX too, to show that its test can fail."""

from typing import Any

import pytest

from .judge import Plain, Sound


@pytest.fixture(params=[Plain, Sound], ids=["register_dataclass", "leafwise"])
def cls(request: pytest.FixtureRequest) -> Any:
    """The class under test, with a dynamic field ``x`` and a static field ``s``."""
    return request.param


@pytest.fixture
def sound(cls: Any) -> bool:
    """Whether the class under test is the one that must behave."""
    return cls is Sound
