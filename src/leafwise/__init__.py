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
    CheckpointError,
    CheckpointMismatchError,
    DefinitionError,
    Difference,
    FieldCheckError,
    FieldNotSetError,
    Finding,
    FrozenInstanceError,
    InconsistentHashError,
    LeafwiseError,
    PathError,
    RetraceError,
    RetraceStormWarning,
    StaticFieldError,
    StaticMutatedError,
    TracerComparisonError,
    TracerInStaticError,
    TreeError,
    UndecoratedSubclassError,
    UnhashableStaticError,
)

if TYPE_CHECKING:
    from leafwise._axes import axes
    from leafwise._combine import combine
    from leafwise._events import EventKind
    from leafwise._explain import Explanation, explain
    from leafwise._jit import JitFunction, Programs, jit
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
    "Diagram": "_show.diagram",
    "Event": "_watching",
    "EventKind": "_events",
    "Explanation": "_explain",
    "JitFunction": "_jit",
    "Leaf": "_leaves",
    "LeafKind": "_leaves",
    "Log": "_watch",
    "Outcome": "_reasons",
    "Program": "_memory",
    "Programs": "_jit",
    "Reason": "_reasons",
    "ReasonKind": "_reasons",
    "Signature": "_signature",
    "Site": "_sites",
    "Where": "_where",
    "axes": "_axes",
    "budget": "_watch",
    "combine": "_combine",
    "explain": "_explain",
    "jit": "_jit",
    "labels": "_where",
    "mask": "_where",
    "no_retrace": "_watch",
    "partition": "_where",
    "show": "_show.diagram",
    "signature": "_signature",
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
    "CheckpointError",
    "CheckpointMismatchError",
    "DefinitionError",
    "Diagram",
    "Difference",
    "Event",
    "EventKind",
    "Explanation",
    "FieldCheckError",
    "FieldNotSetError",
    "Finding",
    "FrozenInstanceError",
    "FrozenMapping",
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
    "Static",
    "StaticArray",
    "StaticFieldError",
    "StaticMutatedError",
    "TracerComparisonError",
    "TracerInStaticError",
    "TreeError",
    "UndecoratedSubclassError",
    "UnhashableStaticError",
    "Where",
    "axes",
    "budget",
    "combine",
    "debug",
    "explain",
    "field",
    "freeze",
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
    "static_field",
    "storm_guard",
    "update",
    "watch",
    "where",
]
