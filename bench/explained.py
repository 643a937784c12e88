"""What `leafwise explain` adds to a script: the CPU time of whole processes."""

import os
from pathlib import Path
from typing import Final

from instances import COMMAND, cpu_seconds
from libraries import AGAIN, BASELINE, OURS
from rows import Row

TABLE: Final = "explain"
_TARGET: Final = 1.05
_PAIRS: Final = 5
_SCRIPTS: Final = Path(__file__).parent / "scripts"


def measure(seconds: float) -> list[Row]:
    """Run each script for about so many seconds of CPU, with `leafwise explain` and without."""
    return [_measured(script, seconds) for script in sorted(_SCRIPTS.glob("*.py"))]


def _measured(script: Path, seconds: float) -> Row:
    steps = str(_steps_for(script, seconds))
    plain = [str(script), steps]
    explained = [*COMMAND, "explain", "-o", os.devnull, *plain]
    commands = {OURS: explained, BASELINE: plain, AGAIN: plain}
    least = dict.fromkeys(commands, float("inf"))
    for _ in range(_PAIRS if seconds else 1):
        for name, command in commands.items():
            least[name] = min(least[name], cpu_seconds(command, os.environ))
    name = f"leafwise explain {script.name}, {seconds:.0f} s"
    return Row(TABLE, name, "s", least, BASELINE, _TARGET)


def _steps_for(script: Path, seconds: float) -> int:
    """Return how many steps of a script take so long, by the CPU time of two short runs."""
    few, many = (100, 20100) if seconds else (1, 2)
    least, most = (cpu_seconds([str(script), str(steps)], os.environ) for steps in (few, many))
    return max(1, round((seconds - least) / (most - least) * (many - few)))
