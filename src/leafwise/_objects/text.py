"""Short texts for values in messages."""

import hashlib
import re
import sys
from typing import Any

import jax
import numpy as np

from leafwise._objects.classes import is_a, module_of, read
from leafwise._objects.interrupts import reraise_interrupt


def local_name(cls: type) -> str:
    """Return the name of a class, without the function that it is defined in."""
    return cls.__qualname__.rpartition("<locals>.")[2]


def shorten(value: object, width: int = 80) -> str:
    """Return ``repr(value)`` on one line, truncated to `width`, whatever the repr raises."""
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))
    except Exception as error:  # noqa: BLE001  # a user's repr: a message must not fail
        reraise_interrupt(error)
        text = f"<{local_name(type(value))} whose repr raises {type(error).__name__}>"
    return shorten_text(text, width)


def shorten_both(one: object, other: object, width: int = 80) -> tuple[str, str]:
    """Return both as `shorten` does; if that shows the same, from shortly before they differ."""
    texts = shorten(one, width), shorten(other, width)
    if texts[0] != texts[1]:
        return texts
    whole = shorten(one, sys.maxsize), shorten(other, sys.maxsize)
    if whole[0] == whole[1]:
        return texts
    pairs = enumerate(zip(*whole, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), len(min(whole, key=len)))
    before, after = (f"...{text[max(same - width // 4, 0) :]}" for text in whole)
    return shorten_text(before, width), shorten_text(after, width)


def shorten_text(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def describe_array(value: Any) -> str:
    """Return ``float32[3,4]`` for an array or a tracer."""
    shape, dtype = read(value, "shape", ()), read(value, "dtype", "array")
    try:
        return f"{dtype}[{','.join(map(str, shape))}]"
    except TypeError:  # an object that only looks like an array
        return local_name(type(value))


def got(value: object) -> str:
    """Return a value and its type, for the "got" line of a message."""
    module = module_of(type(value))
    name = "" if module in ("", "builtins") else f"{module}."
    name += type(value).__qualname__
    if is_a(value, jax.Array | np.ndarray):
        return f"{describe_array(value)} ({name})"
    return f"{shorten(value)} ({name})"
