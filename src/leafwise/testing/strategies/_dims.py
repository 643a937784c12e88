"""The lengths of the axes that jaxtyping annotations name, alike within one instance."""

import ast
import builtins
import contextlib
import contextvars
import dataclasses
import re
import types
import typing
from collections.abc import Generator
from typing import Any, Final

from hypothesis import strategies as st

LENGTHS: Final = st.integers(1, 4)
"""The length of an axis that an annotation does not give."""

SHAPES: Final = st.lists(st.integers(1, 3), max_size=2).map(tuple)
"""The axes of ``*name`` and of ``...``."""


class ImpossibleError(Exception):
    """What was drawn so far does not fit together; another attempt may."""


@dataclasses.dataclass
class Dims:
    """What the names in the annotations of one instance stand for.

    Attributes:
        lengths: The length of each named axis.
        shapes: The axes of each ``*name``.
        values: The arguments that were drawn before, for ``{name}``.
    """

    lengths: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    shapes: dict[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[int, ...]]
    )
    values: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])


_CURRENT: Final[contextvars.ContextVar[Dims | None]] = contextvars.ContextVar(
    "_CURRENT", default=None
)


@contextlib.contextmanager
def own_dims() -> Generator[Dims, None, None]:
    """Let names stand for lengths of their own: an instance is about to be drawn."""
    dims = Dims()
    token = _CURRENT.set(dims)
    try:
        yield dims
    finally:
        _CURRENT.reset(token)


@dataclasses.dataclass(frozen=True)
class Axis:
    """One word of a jaxtyping shape.

    Attributes:
        name: Its name, or an expression; empty if it is anonymous.
        length: Its length, if that is written.
        variadic: Whether it stands for any number of axes.
        broadcasts: Whether its length may also be one.
        symbolic: Whether the name is an expression.
    """

    name: str = ""
    length: int | None = None
    variadic: bool = False
    broadcasts: bool = False
    symbolic: bool = False


def axes_of(annotation: Any) -> list[Axis]:
    """Return the axes of a jaxtyping annotation."""
    return [_axis(word) for word in str(getattr(annotation, "dim_str", "")).split()]


def _axis(word: str) -> Axis:
    if "..." in word:
        return Axis(variadic=True)
    marks = ""
    while True:
        if word[:1] in {"#", "*", "_", "?"}:
            marks, word = marks + word[0], word[1:]
        elif word.count("=") == 1:
            word = word.partition("=")[2]
        else:
            break
    variadic, broadcasts = "*" in marks, "#" in marks
    if re.fullmatch(r"-?\d+", word):
        return Axis(length=int(word), broadcasts=broadcasts)
    # `?name` may differ from leaf to leaf of a tree.
    anonymous = not word or "_" in marks or "?" in marks
    symbolic = not (anonymous or word.isidentifier())
    return Axis("" if anonymous else word, None, variadic, broadcasts, symbolic)


def needs_values(annotation: Any) -> bool:
    """Return whether a shape depends on the values of other fields: ``"{self.n}"``."""
    if "{" in str(getattr(annotation, "dim_str", "")):
        return True
    return any(map(needs_values, typing.get_args(annotation)))


@st.composite
def shapes_of(draw: st.DrawFn, annotation: Any) -> tuple[int, ...]:
    """Draw a shape that a jaxtyping annotation allows, within the present instance."""
    dims = _CURRENT.get() or Dims()
    shape: list[int] = []
    for axis in axes_of(annotation):
        shape += _several(draw, axis, dims) if axis.variadic else [_one(draw, axis, dims)]
    return tuple(shape)


def _one(draw: st.DrawFn, axis: Axis, dims: Dims) -> int:
    if axis.broadcasts and draw(st.booleans()):
        return 1
    if axis.length is not None:
        return axis.length
    if axis.symbolic:
        return _evaluate(draw, axis.name, dims)
    return _named(draw, axis.name, dims) if axis.name else draw(LENGTHS)


def _named(draw: st.DrawFn, name: str, dims: Dims) -> int:
    if name not in dims.lengths:
        dims.lengths[name] = draw(LENGTHS)
    return dims.lengths[name]


def _several(draw: st.DrawFn, axis: Axis, dims: Dims) -> tuple[int, ...]:
    if not axis.name:
        return draw(SHAPES)
    if axis.name not in dims.shapes:
        dims.shapes[axis.name] = draw(SHAPES)
    shape = dims.shapes[axis.name]
    if not axis.broadcasts:
        return shape
    start = draw(st.integers(0, len(shape)))
    return tuple(1 if draw(st.booleans()) else length for length in shape[start:])


def _evaluate(draw: st.DrawFn, text: str, dims: Dims) -> int:
    """Evaluate ``dim + 1``, as jaxtyping does."""
    owner = types.SimpleNamespace(**dims.values)
    try:
        code = str(eval(f"f{text!r}", {"self": owner} | dims.values))  # noqa: S307  # the class's
        names = [each.id for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Name)]
    except (AttributeError, NameError, SyntaxError) as error:
        msg = f"the length of the axis {text!r} cannot be computed ({error})"
        raise ImpossibleError(msg) from None
    for name in names:
        if not hasattr(builtins, name):
            _named(draw, name, dims)
    try:
        length = int(eval(code, dict(dims.lengths)))  # noqa: S307  # the same
    except Exception as error:
        msg = f"the length of the axis {text!r} cannot be computed ({error})"
        raise ImpossibleError(msg) from error
    if length < 0:
        msg = f"the length of the axis {text!r} would be {length}"
        raise ImpossibleError(msg)
    return length


def bind(dims: Dims, annotation: Any, value: Any) -> None:
    """Let the names of an annotation stand for the lengths that a value has."""
    if not hasattr(annotation, "dim_str"):
        for part in typing.get_args(annotation):
            bind(dims, part, value)
        return
    shape, axes = getattr(value, "shape", None), axes_of(annotation)
    if not isinstance(shape, tuple):
        return
    spread = next((i for i, axis in enumerate(axes) if axis.variadic), None)
    extra = len(shape) - len(axes)
    if (spread is None and extra) or extra < -1:
        return
    if spread is not None:
        several = shape[spread : spread + extra + 1]
        if axes[spread].name and not axes[spread].broadcasts:
            dims.shapes.setdefault(axes[spread].name, several)
        shape = (*shape[:spread], 0, *shape[spread + extra + 1 :])
    for axis, length in zip(axes, shape, strict=True):
        plain = axis.name and not (axis.symbolic or axis.variadic)
        if plain and not (axis.broadcasts and length == 1):
            dims.lengths.setdefault(axis.name, length)
