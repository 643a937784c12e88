"""Short texts for values, for messages."""

import re
from typing import Any, Self

import jax
import numpy as np


class Verbatim(str):
    """Text that stands for a value: its repr is itself, so that it is shown without quotes."""

    __slots__ = ()

    def __new__(cls, value: object) -> Self:
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return str(self)


def shorten(value: object, width: int = 80) -> str:
    """Return ``repr(value)`` on one line, cut to `width`, whatever that repr does."""
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))
    except Exception as error:  # noqa: BLE001  # a message must come out
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= width else text[: width - 3] + "..."


def describe_array(value: Any) -> str:
    """Return ``float32[3,4]`` for an array or a tracer."""
    shape = ",".join(map(str, getattr(value, "shape", ())))
    return f"{getattr(value, 'dtype', 'array')}[{shape}]"


def got(value: object) -> str:
    """Return a value and its type, for the "got" line of a message."""
    kind: type = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"
    if isinstance(value, jax.Array | np.ndarray):
        return f"{describe_array(value)} ({name})"
    return f"{shorten(value)} ({name})"
