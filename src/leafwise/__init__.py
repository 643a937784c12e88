"""Pytree dataclasses whose jit cache keys you can trust."""

import importlib
from typing import TYPE_CHECKING

from leafwise import debug
from leafwise._fields import Static, field, static_field
from leafwise._freeze import FrozenMapping, StaticArray, freeze
from leafwise._instance import pformat
from leafwise._pytree import pytree, register
from leafwise._replace import replace
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
    from leafwise._axes import axes
    from leafwise._bindings import Treatment
    from leafwise._capture_checks import StaleCapture
    from leafwise._captured_sites import CapturedAt
    from leafwise._captured_values import CapturedLeaf
    from leafwise._captures import Capture, Captures, captures
    from leafwise._carry import CarryChange, stable_carry
    from leafwise._combine import combine
    from leafwise._diff import Diff, assert_same_structure, diff
    from leafwise._events import EventKind
    from leafwise._explain import Explanation, explain
    from leafwise._hoist import hoist
    from leafwise._jit import jit
    from leafwise._jit_function import JitFunction, Programs
    from leafwise._leaves import Leaf, LeafKind
    from leafwise._memory import Program
    from leafwise._reasons import Outcome, Reason, ReasonKind
    from leafwise._show.diagram import Diagram, show
    from leafwise._signature import Signature, signature
    from leafwise._sites import Site
    from leafwise._storm import storm_guard
    from leafwise._update import update
    from leafwise._watch import Log, budget, no_retrace, watch
    from leafwise._watching import Event
    from leafwise._where import Where, labels, mask, partition, where

__version__ = "0.1.0"

# The oracle, which few programs ask: loaded with its first name.
_LAZY = {
    "Capture": "_captures",
    "CapturedAt": "_captured_sites",
    "CapturedLeaf": "_captured_values",
    "Captures": "_captures",
    "CarryChange": "_carry",
    "Diff": "_diff",
    "Diagram": "_show.diagram",
    "Event": "_watching",
    "EventKind": "_events",
    "Explanation": "_explain",
    "JitFunction": "_jit_function",
    "Leaf": "_leaves",
    "LeafKind": "_leaves",
    "Log": "_watch",
    "Outcome": "_reasons",
    "Program": "_memory",
    "Programs": "_jit_function",
    "Reason": "_reasons",
    "ReasonKind": "_reasons",
    "Signature": "_signature",
    "Site": "_sites",
    "StaleCapture": "_capture_checks",
    "Treatment": "_bindings",
    "Where": "_where",
    "assert_same_structure": "_diff",
    "axes": "_axes",
    "budget": "_watch",
    "captures": "_captures",
    "combine": "_combine",
    "diff": "_diff",
    "explain": "_explain",
    "hoist": "_hoist",
    "jit": "_jit",
    "labels": "_where",
    "mask": "_where",
    "no_retrace": "_watch",
    "partition": "_where",
    "show": "_show.diagram",
    "signature": "_signature",
    "stable_carry": "_carry",
    "storm_guard": "_storm",
    "update": "_update",
    "watch": "_watch",
    "where": "_where",
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
