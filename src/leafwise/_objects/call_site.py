"""The line of the user's code from which a call came."""

import linecache
import os
import types
from typing import Final, NamedTuple


class Site(NamedTuple):
    """A line of code.

    Attributes:
        file: The path of the file.
        line: The number of the line, from 1.
        function: The name of the function around it.
    """

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The source of the line; empty where there is none."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        """Return ``train.py:12 in main``."""
        return f"{self.file}:{self.line} in {self.function}"


def short_file(file: str) -> str:
    """Return a path relative to the working directory, if it is below it."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return file if relative.startswith("..") or file.startswith("<") else relative


def site_of(frame: types.FrameType | None) -> Site | None:
    """Return the innermost line of the user's code, from a frame outwards."""
    frame = user_frame(frame)
    if frame is None:
        return None
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def user_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the innermost frame of the user's code, from a frame outwards."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _CALLERS_FOR_OTHERS:
            return frame
        frame = frame.f_back
    return None


_CALLERS_FOR_OTHERS: Final = frozenset(
    {
        *("leafwise", "leafwise_cli", "leafwise_pytest"),
        *("jax", "jaxlib", "equinox", "flax", "chex", "optax"),
        *("contextlib", "functools", "importlib", "runpy", "threading", "concurrent"),
    }
)
"""Packages that call jitted functions for the user: the line of interest is further out."""
