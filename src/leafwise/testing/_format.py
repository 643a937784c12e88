"""Text for values and errors that is the same in every process."""

import linecache
import re
import traceback
from pathlib import Path
from typing import Any, Final

import hypothesis
import jax
import numpy as np

from leafwise._findings.words import without_addresses
from leafwise._objects.describe import describe
from leafwise._objects.parts import is_key
from leafwise._objects.source.call_site import is_of_library
from leafwise._objects.text import describe_array, shorten, shorten_text
from leafwise.errors import message_of


def short_repr(value: object, width: int = 30) -> str:
    """Return a value's repr, without addresses and cut to a width."""
    return cut(shorten(value, 10 * width), width)


def cut(text: str, width: int) -> str:
    # In this order: a shortened address would not be recognised.
    return shorten_text(without_addresses(text), width)


def format_change(before: str, after: str) -> str:
    """Return ``2 -> 3``, or ``x -> another`` for two objects with the same text."""
    return f"{before} -> {after}" if before != after else f"{before} -> another"


def format_static(value: Any) -> str:
    return without_addresses(describe(value))


def format_typed(value: Any) -> str:
    return f"{format_static(value)} ({type(value).__name__})"


def format_leaf(leaf: Any) -> str:
    """Return ``float32[3]`` for an array, with the value if it has one element; else the value."""
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return short_repr(leaf)
    text = describe_array(leaf) + (" weak" if getattr(leaf, "weak_type", False) else "")
    if is_key(leaf) or np.size(leaf) != 1:
        return text
    item = np.asarray(leaf).item()
    return f"{text} {item:.6g}" if isinstance(item, float) else f"{text} {item}"


_LIBRARIES: Final = (
    str(Path(__file__).parents[1]),
    *(str(Path(module.__file__).parent) for module in (hypothesis, jax) if module.__file__),
)


def users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error in user code: not in leafwise, Hypothesis, JAX or Python."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not (frame.filename.startswith((*_LIBRARIES, "<")) or is_of_library(frame.filename))
    ]


def code_of(frame: traceback.FrameSummary) -> str:
    """Return the code that a frame was running, or its line if that is not one line."""
    line = linecache.getline(frame.filename, frame.lineno or 0).encode()
    code = line[frame.colno : frame.end_colno].decode()
    return f"`{code}`" if code and frame.end_lineno == frame.lineno else f"line {frame.lineno}"


_NOT_OF_USERS: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)+"
    rf"|The error occurred while .*{re.escape(_LIBRARIES[0])}.*\n"
)
"""A traceback that JAX includes in an error message, and its line on a function of leafwise."""


def format_error(error: BaseException) -> str:
    """Return an error's class, message and notes, and the user's line that raised it."""
    # Without JAX's note on hidden frames, which begins with a dashed line.
    notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith("----")]
    parts = [f"{type(error).__name__}: {_NOT_OF_USERS.sub('', message_of(error))}", *notes]
    if frames := users_frames(error):
        parts.append(f"raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}")
    return without_addresses("\n  ".join(part.rstrip(": ") for part in parts))
