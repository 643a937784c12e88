"""Property tests for pytree classes of any library: which laws they keep, and what retraces.

The functions below and `strategies` are public; private files have an underscore.

- `_check`: `check_pytree`, which tests the laws on drawn instances (`_laws`). Start here.
- `_recompilation`: claims about which changes retrace, tested on JAX itself
  (`_subject` calls the jitted function and counts).
- `strategies`: instances of any class, and edits of one place at a time.
- `_budget_markers`: the budgets and the log of the pytest plugin's markers and fixture.
- `_format`: values as text in messages.

`leafwise.cli` runs the same laws and edits from the command line.
"""

from typing import TYPE_CHECKING

from leafwise.interop._extra import import_extra
from leafwise.testing._laws.law import Law

if TYPE_CHECKING:
    from leafwise.testing import strategies
    from leafwise.testing._check import check_pytree
    from leafwise.testing._recompilation import OnlyOn, check_recompilation, recompiles_only_on

# Hypothesis is loaded with the first name that needs it.
_MODULES = {
    "OnlyOn": "_recompilation",
    "check_pytree": "_check",
    "check_recompilation": "_recompilation",
    "recompiles_only_on": "_recompilation",
    "strategies": "strategies",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_extra(f"leafwise.testing.{_MODULES[name]}", "testing", "hypothesis")
    found: object = module if name == "strategies" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names, including those not loaded yet."""
    return sorted({*globals(), *_MODULES})


__all__ = [
    "Law",
    "OnlyOn",
    "check_pytree",
    "check_recompilation",
    "recompiles_only_on",
    "strategies",
]
