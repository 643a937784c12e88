"""Hypothesis strategies for pytrees and for changes of them.

`instances` makes instances of your classes, and `edits` changes them one place at a time.
`arrays` is for overrides: ``instances(Params, w=arrays((3, 4)))``. `static_values` and
`pytrees` are for testing a library of pytrees.
"""

from leafwise.testing.strategies._arrays import arrays
from leafwise.testing.strategies._edits import Edit, EditKind, edits
from leafwise.testing.strategies._instances import instances
from leafwise.testing.strategies._static_values import static_values
from leafwise.testing.strategies._trees import LeafwiseNode, NamedNode, RegisteredNode, pytrees

__all__ = [
    "Edit",
    "EditKind",
    "LeafwiseNode",
    "NamedNode",
    "RegisteredNode",
    "arrays",
    "edits",
    "instances",
    "pytrees",
    "static_values",
]
