"""How instances show in IPython, rich and treescope; each is imported by whoever asks."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import numpy as np

from leafwise._classes.instance import pformat, represent
from leafwise._classes.registry import spec_of
from leafwise._objects.text import Verbatim

_NARROWEST: Final = 20


def attach_display(cls: Any) -> None:
    """Give a class that has our ``__repr__`` the ways to be shown that it has not itself."""
    for name, method in _METHODS.items():
        # Again below a class that has it: IPython asks class by class, for a repr as well.
        if getattr(cls, name, method) is method:
            setattr(cls, name, method)


def _has_own_text(self: Any) -> bool:
    """Return whether a subclass prints in another way, which goes before all of this."""
    kind: Any = type(self)
    return kind.__repr__ is not represent


def _pretty(self: Any, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # IPython's order
    """Print for IPython, in the columns that are left."""
    if cycle:
        printer.text(f"{type(self).__name__}(...)")
        return
    room = max(printer.max_width - printer.indentation, _NARROWEST)
    for place, line in enumerate(pformat(self, width=room).split("\n")):
        if place:
            printer.break_()
        printer.text(line)


def _rich(self: Any) -> Iterator[tuple[str, Any]] | None:
    """Return the fields for rich, the static ones marked."""
    return None if _has_own_text(self) else _fields(self)


def _fields(self: Any) -> Iterator[tuple[str, Any]]:
    for field in spec_of(type(self)).fields:
        if field.definition.repr:
            value = getattr(self, field.name, _NOT_SET)
            name = f"static {field.name}" if field.static else field.name
            yield name, value if field.static else _summary(value, ())


def _summary(value: Any, above: tuple[int, ...]) -> Any:
    """Return a value with its arrays in short, as far as containers of Python go."""
    if isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return Verbatim(pformat(value))
    kind: type = type(value)
    if id(value) in above or kind not in (list, tuple, dict):
        return value
    inside = (*above, id(value))
    if kind is dict:
        return {key: _summary(item, inside) for key, item in value.items()}
    return kind(_summary(item, inside) for item in value)


_NOT_SET: Final = Verbatim("<not set>")


def _treescope(self: Any, path: str | None, subtree_renderer: Any) -> Any:
    """Return what treescope shows; see `leafwise.interop.treescope`."""
    if _has_own_text(self):
        return NotImplemented
    # By name: what other libraries are needed for stands above this layer.
    return importlib.import_module("leafwise.interop.treescope").render(
        self, path, subtree_renderer
    )


def _html(self: Any) -> str | None:
    """Return the diagram of `leafwise.show`."""
    diagram = importlib.import_module("leafwise._display.diagram").show(self)
    html: str = diagram._repr_html_()
    return html


class _OfInstances:
    """A method that instances have and the class has not.

    IPython asks an instance. treescope asks the class, would put this into a box of its own
    below what ``__treescope_repr__`` gives, and would step back as a notebook's display.
    """

    __slots__ = ("func",)

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or _has_own_text(instance):
            msg = f"only instances with the repr of leafwise have {self.func.__name__!r}"
            raise AttributeError(msg)
        return self.func.__get__(instance, owner)


_METHODS: Final[dict[str, Any]] = {
    "_repr_pretty_": _pretty,
    "_repr_html_": _OfInstances(_html),
    "__rich_repr__": _rich,
    "__treescope_repr__": _treescope,
}
