"""What the functions of leafwise return, for annotations: nobody constructs these by hand."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leafwise._captures.captures import Capture, CapturedAt, Captures
    from leafwise._captures.treatment import CapturedLeaf, Treatment
    from leafwise._compare.diff import Diff
    from leafwise._compare.signature import Signature
    from leafwise._display.diagram import Diagram
    from leafwise._display.reasons import Act, Explanation, Fix, Outcome, Reason, ReasonKind
    from leafwise._jax.events import EventKind
    from leafwise._jit.blocks import StaleCapture
    from leafwise._jit.jit import JitFunction, Programs
    from leafwise._jit.programs import Program
    from leafwise._jit.recorder import Event
    from leafwise._jit.watch import Log
    from leafwise._objects.call_site import Site
    from leafwise._trees.leaves import Leaf, LeafKind
    from leafwise._trees.where import Where
    from leafwise.errors import Difference, Finding

_MODULES = {
    "Act": "_display.reasons",
    "Capture": "_captures.captures",
    "CapturedAt": "_captures.captures",
    "CapturedLeaf": "_captures.treatment",
    "Captures": "_captures.captures",
    "Diagram": "_display.diagram",
    "Diff": "_compare.diff",
    "Difference": "errors",
    "Event": "_jit.recorder",
    "EventKind": "_jax.events",
    "Explanation": "_display.reasons",
    "Finding": "errors",
    "Fix": "_display.reasons",
    "JitFunction": "_jit.jit",
    "Leaf": "_trees.leaves",
    "LeafKind": "_trees.leaves",
    "Log": "_jit.watch",
    "Outcome": "_display.reasons",
    "Program": "_jit.programs",
    "Programs": "_jit.jit",
    "Reason": "_display.reasons",
    "ReasonKind": "_display.reasons",
    "Signature": "_compare.signature",
    "Site": "_objects.call_site",
    "StaleCapture": "_jit.blocks",
    "Treatment": "_captures.treatment",
    "Where": "_trees.where",
}


def __getattr__(name: str) -> object:
    """Load the module that defines a type when the type is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"leafwise.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names, those that are not loaded yet included."""
    return sorted({*globals(), *_MODULES})


__all__ = [
    "Act",
    "Capture",
    "CapturedAt",
    "CapturedLeaf",
    "Captures",
    "Diagram",
    "Diff",
    "Difference",
    "Event",
    "EventKind",
    "Explanation",
    "Finding",
    "Fix",
    "JitFunction",
    "Leaf",
    "LeafKind",
    "Log",
    "Outcome",
    "Program",
    "Programs",
    "Reason",
    "ReasonKind",
    "Signature",
    "Site",
    "StaleCapture",
    "Treatment",
    "Where",
]
