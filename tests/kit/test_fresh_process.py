"""The law of the fresh process, and the process itself."""

import importlib
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from tests.kit.inside import other_process
from tests.kit.processes import run_python

import leafwise as lw
from leafwise.errors import LawViolation
from leafwise.testing import check_pytree

from . import travellers

FEW = settings(max_examples=15, derandomize=True, deadline=None, phases=[Phase.generate])


def check(cls: Any) -> None:
    check_pytree(cls, laws=["fresh-process"], settings=FEW)


def test_what_is_not_blamed() -> None:
    """What travels whole, though it prints meanwhile, a local class, and what holds a lambda."""

    @lw.pytree
    class Local:
        x: float

    for cls in (travellers.Sound, travellers.Talkative, Local, travellers.Lambda):
        check(cls)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (travellers.KeepsItsHash, "two hashes: one is of an id, or was computed before pickling"),
        (travellers.LosesAStaticAbroad, "'lost' .* back from a new process"),
        (travellers.DoesNotUnpickleAbroad, "does not unpickle: RuntimeError: not at home"),
        (travellers.EndsTheProcess, "a new process ended while it unpickled it"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_goes_wrong_abroad(cls: Any, words: str) -> None:
    """What goes wrong in another process only is found there, and told."""
    check_pytree(cls, laws=["copies", "round-trip"], settings=FEW)
    with pytest.raises(LawViolation, match=words) as caught:
        check(cls)
    assert caught.value.law == "fresh-process"
    check(travellers.Sound)  # another process answers, if that one ended


def test_a_module_that_is_not_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is found by its file; one that ends the process at import is passed over."""
    source = """
    import jax, sys
    import leafwise as lw

    @lw.pytree
    class Params:
        x: float
    """
    for name, more in (("sound_module", ""), ("guarded", "if '_far' in sys.argv[0]: sys.exit(1)")):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source) + more)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("sound_module", "guarded"):
        module = importlib.import_module(name)
        assert other_process.folder_of(name) == [str(tmp_path)]
        check(module.Params)


@pytest.mark.nightly
def test_texts_have_other_hashes_there() -> None:
    """Whatever the seed of hashes here, it is another one there: else the law would be blind."""
    program = """
        from tests.kit.test_fresh_process import check, travellers
        from leafwise.errors import LawViolation
        try:
            check(travellers.KeepsItsHash)
        except LawViolation as error:
            print(error.path)
    """
    assert run_python(program, PYTHONHASHSEED="1").strip() == b"KeepsItsHash.n"
