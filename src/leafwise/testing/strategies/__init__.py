"""Hypothesis strategies for pytrees and for changes to them.

`instances` draws instances of your classes, and `edits` changes them in one place at a time.
`arrays` is for overrides: ``instances(Params, w=arrays((3, 4)))``.
"""

from leafwise.testing.strategies._arrays import arrays
from leafwise.testing.strategies._edits import Edit, EditKind, edits
from leafwise.testing.strategies._instances import instances

__all__ = ["Edit", "EditKind", "arrays", "edits", "instances"]
