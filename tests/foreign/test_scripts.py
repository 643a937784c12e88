"""`leafwise explain` of scripts after the kind of the libraries' own examples."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .verdicts import SCRIPTS, Cause

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


class Ran(NamedTuple):
    """What a run gave: its exit code, what it printed, and what was counted or reported."""

    code: int
    out: str
    err: str
    told: Any


def run(folder: Path, *command: str) -> Ran:
    file = folder / "told.json"
    arguments = [each.replace("TOLD", str(file)) for each in command]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert file.exists(), done.stderr
    return Ran(
        done.returncode, done.stdout, done.stderr, json.loads(file.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, tmp_path: Path) -> None:
    """Explain names the causes of the table, counts as JAX does, and changes no output."""
    wanted = SCRIPTS[name]
    script = str(HERE / "scripts" / f"{name}.py")
    for library in re.findall(
        r"^(?:import|from) (\w+)", Path(script).read_text("utf-8"), re.MULTILINE
    ):
        pytest.importorskip(library)
    plain = run(tmp_path, str(HERE / "counted.py"), "TOLD", script)
    assert {each: plain.told.get(each, 0) for each in wanted.blamed} == wanted.blamed
    # Without what is blamed, JAX does not do it again.
    fixed = run(tmp_path, str(HERE / "counted.py"), "TOLD", script, "fixed")
    assert {each: fixed.told.get(each, 0) for each in wanted.fixed} == wanted.fixed

    options = "--output-format=json", "-o", "TOLD"
    explained = run(tmp_path, "-m", "leafwise", "explain", *options, script)
    assert explained.code == plain.code == 0
    assert explained.out == plain.out
    report = explained.told
    compiled = sum(each["compiles"] for each in report["functions"])
    assert compiled == sum(plain.told.values())
    found = {
        Cause(place, (each["reasons"] or [{"path": ""}])[0]["path"], times)
        for each in report["findings"]
        for place in [_end_of(each["place"], {cause.place for cause in wanted.causes})]
        for times in [max(each["retraces"], each["recompiles"])]
        if not _is_import(each["place"])
    }
    assert found == wanted.causes
    assert "could not be read" not in json.dumps(report["findings"])


def _end_of(place: str, known: set[str]) -> str:
    return next((each for each in known if place.endswith(each)), place)


def _is_import(place: str) -> bool:
    """Return whether it is one of the lines that jax_md compiles while it is imported."""
    return "jax_md/rigid_body.py" in place or "jax_md/util.py:63" in place
