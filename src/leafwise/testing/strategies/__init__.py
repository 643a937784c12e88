"""Hypothesis strategies for pytrees, for changes of them, and for their classes.

`instances` makes instances of your classes, and `edits` changes them one place at a time.
`arrays` is for overrides: ``instances(Params, w=arrays((3, 4)))``. The others are for
testing a library of pytrees: `static_values`, `pytrees`, `jitted_functions` and
`pytree_classes`.
"""

from leafwise.testing.strategies._arrays import arrays
from leafwise.testing.strategies._classes import DrawnClass, DrawnField, pytree_classes
from leafwise.testing.strategies._constructor import CannotBuildError
from leafwise.testing.strategies._edits import Edit, EditKind, edits
from leafwise.testing.strategies._functions import JittedFunction, jitted_functions, total
from leafwise.testing.strategies._instances import instances
from leafwise.testing.strategies._static_values import static_values
from leafwise.testing.strategies._trees import LeafwiseNode, NamedNode, RegisteredNode, pytrees

__all__ = [
    "CannotBuildError",
    "DrawnClass",
    "DrawnField",
    "Edit",
    "EditKind",
    "JittedFunction",
    "LeafwiseNode",
    "NamedNode",
    "RegisteredNode",
    "arrays",
    "edits",
    "instances",
    "jitted_functions",
    "pytree_classes",
    "pytrees",
    "static_values",
    "total",
]
