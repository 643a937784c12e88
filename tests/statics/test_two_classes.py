"""Two classes never share a treedef, and classes that would lose something are refused."""

import dataclasses
from typing import Any

import jax
import pytest

import leafwise as lw

from .judge import Sound

pytestmark = pytest.mark.hazard


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OtherPlain:
    x: Any
    s: Any = dataclasses.field(metadata={"static": True})


@lw.pytree
class OtherSound:
    x: Any
    s: Any = lw.static_field()


@lw.pytree
class DerivedSound(Sound):
    """The same fields by inheritance."""


@lw.pytree(slots=True)
class SlottedSound:
    x: Any
    s: Any = lw.static_field()


class ForeignSound:
    """Registered by hand."""

    def __init__(self, x: Any, s: Any) -> None:
        self.x, self.s = x, s


lw.register(ForeignSound, dynamic=["x"], static=["s"])

SOUND = [Sound, OtherSound, DerivedSound, SlottedSound, ForeignSound]


@pytest.fixture
def distinct(sound: bool) -> bool:
    """Whether JAX keeps the two classes apart: before 0.10 it did so itself."""
    return sound or jax.__version_info__ < (0, 10)


@pytest.fixture
def other(sound: bool) -> Any:
    """Another class with the fields of `cls`."""
    return OtherSound if sound else OtherPlain


def test_treedefs_of_two_classes(cls: Any, other: Any, distinct: bool) -> None:
    """Equal fields and statics do not make two classes one."""
    structures = [jax.tree.structure(kind(1.0, "a")) for kind in (cls, other)]
    assert (structures[0] != structures[1]) is distinct


def test_every_pair_of_classes() -> None:
    """Derived, slotted and registered classes are distinct too."""
    structures = [jax.tree.structure(kind(1.0, "a")) for kind in SOUND]
    assert len(set(structures)) == len(SOUND)
    assert all(a != b for i, a in enumerate(structures) for b in structures[:i])
