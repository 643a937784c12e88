"""Run a script in plain JAX, and write how often each function was compiled.

    python tests/foreign/counted.py COUNTS.json SCRIPT [ARGUMENT ...]

Nothing of leafwise is loaded: `jax.monitoring` counts.
"""

import atexit
import json
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax

counts: Counter[str] = Counter()


def count(event: str, _: float, **about: Any) -> None:
    """Count a compilation under the name of its function."""
    if event == "/jax/core/compile/backend_compile_duration":
        counts[str(about["fun_name"]).removeprefix("jit(").removesuffix(")")] += 1


jax.monitoring.register_event_duration_secs_listener(count)
out, *sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
atexit.register(lambda: Path(out).write_text(json.dumps(counts), encoding="utf-8"))
runpy.run_path(sys.argv[0], run_name="__main__")
