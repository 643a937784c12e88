"""How instances show in IPython, rich and treescope; none of these is imported here."""

import importlib
from collections.abc import Iterator
from typing import Any, Final

import jax
import numpy as np

from leafwise._classes.instance import pformat, represent
from leafwise._classes.registry import spec_of
from leafwise._objects.stand_ins import Verbatim

_NARROWEST: Final = 20


def attach_display(cls: Any) -> None:
    """Give a class with our ``__repr__`` the display methods that it does not define."""
    for name, method in _METHODS.items():
        # Also where a base class has it: IPython goes through the classes, and would prefer
        # the ``__repr__`` of this one.
        if getattr(cls, name, method) is method:
            setattr(cls, name, method)


def _has_own_text(self: Any) -> bool:
    """Return whether a subclass has its own ``__repr__``, which is then shown everywhere."""
    kind: Any = type(self)
    return kind.__repr__ is not represent


def _pretty(self: Any, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # IPython's order
    """Print for IPython, in the columns that are left."""
    if cycle:
        printer.text(f"{type(self).__name__}(...)")
        return
    room = max(printer.max_width - printer.indentation, _NARROWEST)
    for index, line in enumerate(pformat(self, width=room).split("\n")):
        if index:
            printer.break_()
        printer.text(line)


def _rich(self: Any) -> Iterator[tuple[str, Any]] | None:
    return None if _has_own_text(self) else _fields(self)


def _fields(self: Any) -> Iterator[tuple[str, Any]]:
    for field in spec_of(type(self)).fields:
        if field.definition.repr:
            value = getattr(self, field.name, _NOT_SET)
            name = f"static {field.name}" if field.static else field.name
            yield name, value if field.static else _summary(value)


def _summary(value: Any) -> Any:
    """Return a value with its arrays summarised, also inside Python's containers."""
    if isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return Verbatim(pformat(value))
    kind: type = type(value)
    if kind is dict:
        return {key: _summary(item) for key, item in value.items()}
    return kind(map(_summary, value)) if kind in {list, tuple} else value


_NOT_SET: Final = Verbatim("<not set>")


def _treescope(self: Any, path: str | None, subtree_renderer: Any) -> Any:
    """Return what treescope shows; see `leafwise.interop.treescope`."""
    if _has_own_text(self):
        return NotImplemented
    # By name at run time: interop is a wing above this one.
    return importlib.import_module("leafwise.interop.treescope").render(
        self, path, subtree_renderer
    )


_METHODS: Final[dict[str, Any]] = {
    "_repr_pretty_": _pretty,
    "__rich_repr__": _rich,
    "__treescope_repr__": _treescope,
}
