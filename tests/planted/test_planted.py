"""The kit finds what is wrong with faulty classes, and nothing wrong with correct ones."""

import gc
from collections.abc import Callable
from typing import Any

import hypothesis
import jax
import pytest

from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree

from . import (  # noqa: F401  # they fill the table
    caches,
    children,
    confusion,
    construction,
    containers,
    copying,
    inheritance,
    leaks,
    paths,
    registrations,
)
from .conftest import CORRECT, FAULT
from .statics import ZerosShared
from .table import FAULTS, TWINS, Planted

# The examples that users have in CI: what is found with fewer is luck.
CI = hypothesis.settings(hypothesis.settings.get_profile("ci"), max_examples=50)
FOUND = hypothesis.settings(CI, phases=[hypothesis.Phase.generate])  # the night shrinks, too
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2)))

Record = Callable[[str, object], None]

AT_NIGHT = {"InstanceInAux", "HashOfStaticTravels", "KeepsInstances"}  # seconds each


def found(planted: Planted, seed: int) -> tuple[str, str]:
    """Return the path and the text of what the check finds, as an error or a warning."""
    options: dict[str, Any] = {"settings": CI if seed else FOUND, "seed": seed}
    if planted.law is Law.SAME_ARGUMENTS:
        with pytest.warns(UserWarning, match="breaks the law") as warned:
            check_pytree(planted.cls, laws=[planted.law], **options)
        text = str(warned[0].message)
        return text.partition(": ")[0], text
    with pytest.raises(LawViolation) as caught:
        check_pytree(planted.cls, laws=[planted.law], **options)
    assert caught.value.law == planted.law
    return caught.value.path, str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(planted, marks=[pytest.mark.nightly] * (planted.name in AT_NIGHT))
        for planted in FAULTS
    ],
    ids=lambda planted: planted.name,
)
def test_fault_is_found(planted: Planted, seed: int, record_property: Record) -> None:
    """The law that should find a fault does, and names class and field."""
    record_property(FAULT, planted.name)
    if planted.law is Law.DISTINCT_CLASSES and jax.__version_info__ < (0, 10):
        pytest.skip("JAX compares the classes itself")
    if planted.law is Law.NO_TRACER_LEAKS and jax.__version_info__ < (0, 11):
        gc.unfreeze()  # there, nothing frozen is found to refer to a tracer
    path, text = found(planted, seed)
    assert path.partition(".")[0] == planted.name
    assert text.startswith(f"{path}: breaks the law {planted.law}: ")
    if planted.fields:
        named = path.partition(".")[2]
        assert any(named == field or named.startswith(f"{field}[") for field in planted.fields)


@pytest.mark.parametrize("seed", SEEDS)
def test_zeros_are_compared_in_few_examples(seed: int) -> None:
    """Nothing has to draw 0.0 and then -0.0: both are put into each float."""
    few = hypothesis.settings(CI, max_examples=8)
    with pytest.raises(LawViolation, match=r"(?s)ZerosShared\.rate.*0\.0 ") as caught:
        check_pytree(ZerosShared, laws=[Law.STATIC_TYPES], settings=few, seed=seed)
    assert "-0.0" in str(caught.value)


@pytest.mark.nightly
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_correct_class_passes(twin: Any, record_property: Record) -> None:
    """The same class without the fault keeps all laws, on as many examples as the profile has."""
    record_property(CORRECT, twin.__name__)
    check_pytree(twin)


def test_each_law_has_a_fault() -> None:
    """Each law is the main law of a fault."""
    assert {planted.law for planted in FAULTS} == set(Law)


def test_names_are_unique() -> None:
    """Faults are distinguished by name, in the score too."""
    names = [planted.name for planted in FAULTS]
    assert len(set(names)) == len(names)
