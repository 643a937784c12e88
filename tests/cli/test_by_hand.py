"""`check` blames no class for an instance that its constructor would not make."""

import pytest
from tests.kit.inside import CheckOptions, CheckRun

from . import by_hand
from .asked import report_of

pytestmark = pytest.mark.slow


def checked(cls: type) -> tuple[int, list[str]]:
    """Return the exit code of a check, and what it found or left out."""
    report = report_of(cls, CheckOptions())
    bad = [f"{row.field}: {row.change}: {row.note}" for row in report.rows if row.verdict.is_bad]
    bad += [law.message for law in report.laws if law.verdict.is_bad]
    return CheckRun((report,)).exit_code, [*bad, *filter(None, [report.error])]


@pytest.mark.nightly
@pytest.mark.parametrize("cls", by_hand.SOUND)
def test_a_sound_class(cls: type) -> None:
    """All that its constructor accepts is as promised: nothing is found, and nothing left out."""
    assert checked(cls) == (0, [])


@pytest.mark.nightly
@pytest.mark.parametrize("cls", by_hand.FAULTY)
def test_a_fault(cls: type) -> None:
    """What flatten drops, and the round trip does not give back, is found, and nothing else."""
    code, found = checked(cls)
    assert code == 1
    name = by_hand.FAULTY[cls]
    of_field = tuple(f"{each}{end}" for each in (name, f"{cls.__name__}.{name}") for end in ": [.")
    of_class = f"{cls.__name__}: "
    assert any(each.startswith(of_field if name else of_class) for each in found), found
    assert all(each.startswith((*of_field, of_class)) for each in found), found
