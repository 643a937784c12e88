"""Each fix of `fixes.txt`, done in a program as its words say: no repeat is left, all else is."""

import re
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from tests.compare.fixes import COUNTED, PROGRAMS
from tests.kit.explained import package, program, report_on
from tests.kit.inside import first_compiles, program_recorder

pytestmark = pytest.mark.slow  # each program runs twice

HEAD = """\
import dataclasses
import equinox as eqx
import functools
import jax
import jax.numpy as jnp
import leafwise as lw
import numpy as np
from typing import Any
np.set_printoptions(floatmode="unique")
"""


def side(lines: str, mark: str, pieces: list[str]) -> str:
    """Return the program before (``-``) or after (``+``) the fix, with the code of the fix."""
    code = "".join(f"{line[2:]}\n" for line in lines.splitlines() if line[0] in f" {mark}")
    for number, piece in enumerate(pieces, 1):
        code = code.replace(f"${number}", piece)
    return HEAD + code


def row(fix: str, lines: str) -> Any:
    """Return the row of a fix; flax takes seconds to import."""
    return pytest.param(fix, lines, id=fix, marks=[pytest.mark.slow] * ("flax" in lines))


@pytest.mark.parametrize(("fix", "lines"), [row(*each) for each in PROGRAMS])
def test_a_fix(
    fix: str,
    lines: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is printed for the program before; after it no repeat is left, and the output is equal."""
    if COUNTED in fix and sys.version_info < (3, 12):
        pytest.skip("before Python 3.12 runs of lines are not counted, and JAX is older")
    for module in (first_compiles, program_recorder):
        monkeypatch.setattr(module, "LEAST", 0.0)  # each first compile is a long one
    monkeypatch.setattr(program_recorder, "_SMALL", 0.0)
    said: list[str] = []

    def run(code: str) -> tuple[str, str, int, list[str]]:
        """Return what a program prints, its error, how often it repeats, and all its fixes."""
        jax.clear_caches()
        said.clear()
        error: list[BaseException] = []

        def script() -> None:
            try:
                body()
            except Exception as raised:  # noqa: BLE001  # some programs raise without the fix
                error.append(raised)

        file, body = program(tmp_path, code)
        vars(sys.modules[Path(file).stem]).update(
            package=package, say=lambda it: said.append(str(it))
        )
        report = report_on(script)
        every = (*report.findings, *report.first)
        fixes = [
            str(each).replace(file, "train.py") for finding in every for each in finding.fixes()
        ]
        repeats = sum(len(finding.programs) for finding in report.findings)
        return capsys.readouterr().out, repr(error), repeats, [*fixes, *said]

    out, error, repeats, fixes = run(side(lines, "-", []))
    words = fix.removesuffix(COUNTED)
    assert any(words in each for each in fixes), (fixes, error)
    pieces = re.findall("`([^`]+)`", words)
    fixed_out, fixed_error, left, fixes = run(side(lines, "+", pieces))
    assert fixed_error == "[]"
    assert not any(words in each for each in fixes)
    assert fixed_out == out or error != "[]"
    assert out or error != "[]"
    # Of a static, each value has a program of its own.
    assert left < repeats if "static" in words and left else left == 0
