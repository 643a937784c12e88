"""What `leafwise check` takes for a class of another library: the CPU time of whole processes."""

import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Final

from instances import COMMAND, cpu_seconds
from libraries import OURS
from rows import Row

TABLE: Final = "check"
_TARGET: Final = 0.7
_LIBRARIES: Final = ("optax", "flax.nnx", "equinox.nn")
_AS_JSON: Final = "--output-format=json"
_ONE_CLASS: Final = "equinox.nn:Dropout"


def measure(*, whole: bool) -> list[Row]:
    """Check each library that is there, or one class: seconds for a class, without the imports."""
    names = _LIBRARIES if whole else (_ONE_CLASS,)
    return [_measured(name) for name in names if importlib.util.find_spec(name.partition(".")[0])]


def _measured(target: str) -> Row:
    imported = cpu_seconds(["-c", f"import {target.partition(':')[0]}"], os.environ)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        checked = _check(target, found)
        classes = len(json.loads(found.read_text(encoding="utf-8"))["classes"])
    name = f"leafwise check, a class of {target}"
    figures = {OURS: (checked - imported) / classes, "its import": imported}
    return Row(TABLE, name, "s", figures, None, _TARGET)


def _check(target: str, found: Path) -> float:
    """Return the CPU time of a check; what it found, right or wrong, goes to a file."""
    run = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, *{[*COMMAND, 'check', target, _AS_JSON]!r}], "
        f"stdout=open({str(found)!r}, 'w'), stderr=subprocess.DEVNULL)"
    )
    return cpu_seconds(["-c", run], os.environ)
