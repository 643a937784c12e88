"""What programs read: the place of a finding, and JSON wherever a module goes."""

from pathlib import Path

from .conftest import GOOD, Check, Write

NATIVE = """
import dataclasses

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class P:
    x: jax.Array

    n: int = dataclasses.field(default=1, metadata={"static": True})
"""


def test_the_line_of_the_field(write: Write, check_all: Check, tmp_path: Path) -> None:
    """An annotation is at the line that declares the field."""
    file = write(NATIVE)
    options = ("--laws", "--law", "static-types", "--examples", "2")
    outcome = check_all(file, *options, "--output-format=github")
    lines = (tmp_path / file).read_text(encoding="utf-8").splitlines()
    line = next(at for at, text in enumerate(lines, 1) if "n: int" in text)
    (shown,) = outcome.out.splitlines()
    assert shown.startswith(f"::warning file={file},line={line},title=static-types::P.n: ")


def test_json_of_a_module_that_goes_elsewhere(write: Write, check: Check) -> None:
    """JSON is printed, and nothing else."""
    file = write(f"import os, pathlib\npathlib.Path('away').mkdir()\nos.chdir('away')\n{GOOD}")
    outcome = check(file, "--json")
    assert outcome.code == 0
    assert outcome.names == ["Good"]
