"""Property tests for pytree classes of any library: which laws they keep, and what retraces.

The functions below and `strategies` are public; files that are not have an underscore.

- `_check`: `check_pytree`, which tries the laws on drawn instances (`_laws`). Start here.
- `_recompilation` and `_only_on`: claims about which changes retrace, tested on JAX itself
  (`_subject` is the jitted function, and what it counted).
- `strategies`: instances of any class, and edits of one place at a time.
- `_budget_markers`: what the markers and the fixture of the pytest plugin do with JAX.
- `_format`: values as text in messages.

`cli` runs the same laws and edits from the command line.
"""

from typing import TYPE_CHECKING

from leafwise.interop._extra import import_extra
from leafwise.testing._laws.law import Law

if TYPE_CHECKING:
    from leafwise.testing import strategies
    from leafwise.testing._check import check_pytree
    from leafwise.testing._only_on import OnlyOn, recompiles_only_on
    from leafwise.testing._recompilation import check_recompilation

# Hypothesis is loaded with the first name that needs it.
_MODULES = {
    "OnlyOn": "_only_on",
    "check_pytree": "_check",
    "check_recompilation": "_recompilation",
    "recompiles_only_on": "_only_on",
    "strategies": "strategies",
}


def __getattr__(name: str) -> object:
    """Load what is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_extra(f"leafwise.testing.{_MODULES[name]}", "testing", "hypothesis")
    found: object = module if name == "strategies" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names, those that are not loaded yet included."""
    return sorted({*globals(), *_MODULES})


__all__ = [
    "Law",
    "OnlyOn",
    "check_pytree",
    "check_recompilation",
    "recompiles_only_on",
    "strategies",
]
