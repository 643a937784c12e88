"""A value of each kind in the table of parts, through all that fold over it."""

import dataclasses
from typing import Any

import jax
import pytest
from tests.kit.checks import check_of
from tests.statics.judge import ByContent, P

import leafwise as lw
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.parts import kind_of
from leafwise._statics.account import account_of
from leafwise._statics.hash_nodes import hash_node_of
from leafwise._statics.portable import PortableReader, dump
from leafwise._statics.reached import change_between, reached
from leafwise._trees.equality import first_difference

from .samples import IDS, SAMPLES, Sample

pytestmark = pytest.mark.hazard
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=IDS)


def structure(cls: Any, value: Any) -> Any:
    """Return the treedef of an instance; None if the value cannot be static."""
    try:
        return jax.tree.structure(cls(1.0, value))
    except lw.errors.StaticFieldError:
        return None


BY_IDENTITY = ("function", "object", "cell", "wrapper", "getter", "reference")
"""The kinds of which another object is another key."""


@each_sample
@pytest.mark.parametrize("cls", [P, ByContent])
def test_keys(sample: Sample, cls: Any) -> None:
    """Indistinguishable values share a key, others do not; or a value is refused."""
    value = sample.make()
    key = structure(cls, value)
    if key is None:
        return
    again = sample.make()
    if kind_of(value).name not in BY_IDENTITY:
        assert structure(cls, again) == key
    others = [make() for make in sample.others]
    for other in [structure(cls, each) for each in others]:
        assert other is None or other != key


@each_sample
def test_children_of_many_statics(sample: Sample) -> None:
    """Indistinguishable values have one child, whatever they are."""
    assert hash_node_of((sample.make(),)) is hash_node_of((sample.make(),))


@each_sample
def test_texts_of_keys(sample: Sample) -> None:
    """Keys that differ do not look alike."""
    keys = [structure(P, make()) for make in (sample.make, *sample.others)]
    texts = [str(key) for key in keys if key is not None]
    assert len(set(texts)) == len(texts)


@each_sample
def test_reached(sample: Sample) -> None:
    """What differs from what was there is named."""
    value = sample.make()
    before = reached([("P.s", [value])])
    assert change_between(before, reached([("P.s", [value])])) is None
    for make in sample.others:
        change = change_between(before, reached([("P.s", [make()])]))
        assert change is not None
        assert change[0].startswith("P.s")


@each_sample
def test_accounts(sample: Sample) -> None:
    """The account of a captured value distinguishes what differs, and nothing else."""
    value = sample.make()
    before, is_unchanged = account_of(value), check_of(value)
    assert is_unchanged(value) or sample.kind in ("void", "getter")  # read as copies
    assert account_of(value) == before
    for other in [make() for make in sample.others]:
        if sample.kind == "function" and vars(other):  # a place of its own, where code reads it
            continue
        assert account_of(other) != before
        assert not is_unchanged(other)


@each_sample
def test_first_differences(sample: Sample) -> None:
    """The first difference is at a path, and its ends are what stands there."""
    value = sample.make()
    for other in [make() for make in sample.others]:
        if any(structure(P, each) is None for each in (value, other)):
            continue
        path, one, its = first_difference((value,), (other,))
        assert path.startswith("[0]")
        assert one is not its


@each_sample
def test_descriptions(sample: Sample) -> None:
    """Indistinguishable values have one description, others do not; or a value is noted."""

    def described(value: Any) -> str | None:
        reader = PortableReader()
        found = dump(reader.read(value, "P.s"))
        return None if reader.opaque else found

    found = described(sample.make())
    assert found is None or described(sample.make()) == found
    for other in [described(make()) for make in sample.others]:
        assert other is None or other != found


@dataclasses.dataclass
class Part:
    """Holds what holds it, as a module of Flax does."""

    parent: Any
    other: Any


def test_a_record_in_itself() -> None:
    """It is described, once, however many ways lead back to it."""
    whole = Part(None, None)
    whole.parent, whole.other = Part(whole, Part(whole, 1)), Part(whole, 2)
    inside = "Part(other=2, parent=<this Part>)"
    text = describe(whole, DescribeOptions(home=__name__, short=True))
    assert text.count("<this Part>") == 3
    assert inside in text
