"""The types that leafwise functions return, for annotations; not to be constructed by hand."""

from leafwise._captures.captures import Capture, CapturedAt, Captures
from leafwise._captures.treatment import CapturedLeaf, Treatment
from leafwise._compare.diff import Diff
from leafwise._compare.signature import Signature
from leafwise._display.diagram import Diagram
from leafwise._findings.reasons import Act, Explanation, Fix, Outcome, Reason, ReasonKind
from leafwise._findings.records import FirstCompile, Origin
from leafwise._jax.events import EventKind
from leafwise._jit.blocks import StaleCapture
from leafwise._jit.jit import JitFunction, Programs
from leafwise._jit.programs import Program
from leafwise._jit.recorder import Event
from leafwise._jit.storm import StormGuard
from leafwise._jit.watch import Budget, Log, Watch
from leafwise._objects.source.call_site import Site
from leafwise._trees.leaves import Leaf, LeafKind
from leafwise._trees.select import Selection
from leafwise.errors import Difference, StaticFinding, StaticFix

__all__ = [
    "Act",
    "Budget",
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
    "FirstCompile",
    "Fix",
    "JitFunction",
    "Leaf",
    "LeafKind",
    "Log",
    "Origin",
    "Outcome",
    "Program",
    "Programs",
    "Reason",
    "ReasonKind",
    "Selection",
    "Signature",
    "Site",
    "StaleCapture",
    "StaticFinding",
    "StaticFix",
    "StormGuard",
    "Treatment",
    "Watch",
]
