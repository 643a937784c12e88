"""The table of what values consist of: exact contents, parts with their steps."""

from typing import Any

import pytest

from leafwise._objects import parts
from leafwise._objects.parts import kind_of

from .samples import IDS, SAMPLES, Plain, Sample, Setting, Slotted, with_attributes


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values are indistinguishable, as the table says."""
    if one is other:
        return True
    kind = kind_of(one)
    if type(one) is not type(other) or kind.content(one) != kind.content(other):
        return False
    mine, its = list(kind.values(one)), list(kind.values(other))
    if len(mine) != len(its):
        return False
    if not kind.is_ordered:
        return all(any(are_same(a, b) for b in its) for a in mine)
    return all(map(are_same, mine, its))


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_kind_distinguishes_what_differs_and_nothing_else(sample: Sample) -> None:
    """Type, bits, order and attributes count; which object it is does not."""
    value = sample.make()
    assert kind_of(value).name == sample.kind
    assert are_same(value, sample.make())
    for make in sample.others:
        assert not are_same(value, make())
        assert not are_same(make(), value)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_each_part_has_a_step_and_contents_have_a_hash(sample: Sample) -> None:
    """Steps go with parts one by one."""
    for make in (sample.make, *sample.others):
        value = make()
        kind = kind_of(value)
        hash(kind.content(value))
        steps, values = list(kind.steps(value)), list(kind.values(value))
        assert len(steps) == len(values)
        assert [step for step, _ in kind.parts(value)] == steps


def test_there_is_a_sample_of_each_kind() -> None:
    """A new kind needs an entry in the samples."""
    table = [*parts._KINDS.values(), *parts._BASES.values(), parts._OBJECT, parts._BY_IDENTITY]
    named = {kind.name for kind in table} | {"record", "jax.Array"}
    assert named == {sample.kind for sample in SAMPLES}


def test_what_follows_from_the_rest_of_a_value_does_not_count() -> None:
    """A hash that attrs has kept makes no difference."""
    hashed = Setting(1)
    hash(hashed)
    assert are_same(hashed, Setting(1))


def test_steps_are_those_of_a_path() -> None:
    """A path is made of steps."""
    one = with_attributes(Plain(), rate=[{"k": (1,)}])
    assert [step for step, _ in kind_of(one).parts(one)] == [".rate"]
    inner = one.rate[0]
    assert [step for step, _ in kind_of(inner).parts(inner)] == [" key 'k'", "['k']"]
    slotted = Slotted(1)
    assert [step for step, _ in kind_of(slotted).parts(slotted)] == ["._Slotted__hidden", ".rate"]
