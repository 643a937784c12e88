"""Pytree dataclasses whose jit cache keys you can trust."""

import importlib
from typing import TYPE_CHECKING

from leafwise import debug
from leafwise._classes.fields import Static, field, static_field
from leafwise._classes.instance import pformat
from leafwise._classes.pytree import pytree, register
from leafwise._objects.frozen import FrozenMapping, StaticArray, freeze
from leafwise._trees.update import replace
from leafwise.errors import (
    ArrayInStaticError,
    CarryError,
    CheckpointError,
    CheckpointMismatchError,
    DefinitionError,
    Difference,
    FieldCheckError,
    FieldNotSetError,
    Finding,
    FrozenInstanceError,
    HoistError,
    InconsistentHashError,
    LeafwiseError,
    PathError,
    RetraceError,
    RetraceStormWarning,
    StaleCaptureError,
    StaleCaptureWarning,
    StaticFieldError,
    StaticMutatedError,
    StructureMismatchError,
    TracerComparisonError,
    TracerInStaticError,
    TreeError,
    UndecoratedSubclassError,
    UnhashableStaticError,
)

if TYPE_CHECKING:
    from leafwise._captures.captures import Capture, Captures, captures
    from leafwise._captures.hoist import hoist
    from leafwise._captures.source_lines import CapturedAt
    from leafwise._captures.treatment import CapturedLeaf
    from leafwise._captures.walk import Treatment
    from leafwise._compare.carry import CarryChange, stable_carry
    from leafwise._compare.diff import Diff, assert_same_structure, diff
    from leafwise._compare.explain import Explanation, explain
    from leafwise._compare.reasons import Outcome, Reason, ReasonKind
    from leafwise._compare.signature import Signature, signature
    from leafwise._display.diagram import Diagram, show
    from leafwise._jax.events import EventKind
    from leafwise._jit.blocks import StaleCapture
    from leafwise._jit.jit import JitFunction, Programs, jit
    from leafwise._jit.programs import Program
    from leafwise._jit.recorder import Event
    from leafwise._jit.storm import storm_guard
    from leafwise._jit.watch import Log, budget, no_retrace, watch
    from leafwise._objects.call_site import Site
    from leafwise._trees.combine import axes, combine
    from leafwise._trees.leaves import Leaf, LeafKind
    from leafwise._trees.update import update
    from leafwise._trees.where import Where, labels, mask, partition, where

__version__ = "0.1.0"

# The oracle, which few programs ask: loaded with its first name.
_LAZY = {
    "Capture": "_captures.captures",
    "CapturedAt": "_captures.source_lines",
    "CapturedLeaf": "_captures.treatment",
    "Captures": "_captures.captures",
    "CarryChange": "_compare.carry",
    "Diff": "_compare.diff",
    "Diagram": "_display.diagram",
    "Event": "_jit.recorder",
    "EventKind": "_jax.events",
    "Explanation": "_compare.explain",
    "JitFunction": "_jit.jit",
    "Leaf": "_trees.leaves",
    "LeafKind": "_trees.leaves",
    "Log": "_jit.watch",
    "Outcome": "_compare.reasons",
    "Program": "_jit.programs",
    "Programs": "_jit.jit",
    "Reason": "_compare.reasons",
    "ReasonKind": "_compare.reasons",
    "Signature": "_compare.signature",
    "Site": "_objects.call_site",
    "StaleCapture": "_jit.blocks",
    "Treatment": "_captures.walk",
    "Where": "_trees.where",
    "assert_same_structure": "_compare.diff",
    "axes": "_trees.combine",
    "budget": "_jit.watch",
    "captures": "_captures.captures",
    "combine": "_trees.combine",
    "diff": "_compare.diff",
    "explain": "_compare.explain",
    "hoist": "_captures.hoist",
    "jit": "_jit.jit",
    "labels": "_trees.where",
    "mask": "_trees.where",
    "no_retrace": "_jit.watch",
    "partition": "_trees.where",
    "show": "_display.diagram",
    "signature": "_compare.signature",
    "stable_carry": "_compare.carry",
    "storm_guard": "_jit.storm",
    "update": "_trees.update",
    "watch": "_jit.watch",
    "where": "_trees.where",
}


def __getattr__(name: str) -> object:
    """Load what belongs to the oracle when it is asked for."""
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found: object = getattr(importlib.import_module(f"leafwise.{_LAZY[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names, those that are not loaded yet included."""
    return sorted({*globals(), *_LAZY})


__all__ = [
    "ArrayInStaticError",
    "Capture",
    "CapturedAt",
    "CapturedLeaf",
    "Captures",
    "CarryChange",
    "CarryError",
    "CheckpointError",
    "CheckpointMismatchError",
    "DefinitionError",
    "Diagram",
    "Diff",
    "Difference",
    "Event",
    "EventKind",
    "Explanation",
    "FieldCheckError",
    "FieldNotSetError",
    "Finding",
    "FrozenInstanceError",
    "FrozenMapping",
    "HoistError",
    "InconsistentHashError",
    "JitFunction",
    "Leaf",
    "LeafKind",
    "LeafwiseError",
    "Log",
    "Outcome",
    "PathError",
    "Program",
    "Programs",
    "Reason",
    "ReasonKind",
    "RetraceError",
    "RetraceStormWarning",
    "Signature",
    "Site",
    "StaleCapture",
    "StaleCaptureError",
    "StaleCaptureWarning",
    "Static",
    "StaticArray",
    "StaticFieldError",
    "StaticMutatedError",
    "StructureMismatchError",
    "TracerComparisonError",
    "TracerInStaticError",
    "Treatment",
    "TreeError",
    "UndecoratedSubclassError",
    "UnhashableStaticError",
    "Where",
    "assert_same_structure",
    "axes",
    "budget",
    "captures",
    "combine",
    "debug",
    "diff",
    "explain",
    "field",
    "freeze",
    "hoist",
    "jit",
    "labels",
    "mask",
    "no_retrace",
    "partition",
    "pformat",
    "pytree",
    "register",
    "replace",
    "show",
    "signature",
    "stable_carry",
    "static_field",
    "storm_guard",
    "update",
    "watch",
    "where",
]
