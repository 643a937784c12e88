"""The line of the user's code from which a call came, and which files are the user's."""

import functools
import linecache
import os
import re
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any, Final, NamedTuple


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
        return f"{short_file(self.file)}:{self.line} in {self.function}"


def short_file(file: str) -> str:
    """Return a path as a reader knows it.

    That of a package is without the folder it is installed in; one below the working directory is
    relative to it; and a cell of a notebook is ``Cell In[3]``.
    """
    if (cell := _cell(file)) is not None:
        return cell
    parts = Path(file).parts
    for place in range(len(parts) - 1, 0, -1):
        if parts[place - 1] in _PACKAGES:
            return "/".join(parts[place:])
    if file.startswith(stdlib := _stdlib()):
        return file.removeprefix(stdlib)
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return file if relative.startswith("..") or file.startswith("<") else relative


_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})


@functools.cache
def _stdlib() -> str:
    return f"{sysconfig.get_path('stdlib')}{os.sep}"


def _cell(file: str) -> str | None:
    """Return the cell of a notebook that a file stands for: a temporary one in Jupyter."""
    if found := re.search(r"\.ipynb(\[\d+\])$", file):
        return f"Cell In{found[1]}"
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    names: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"Cell In[{names[file]}]" if file in names else None


def site_of(frame: types.FrameType | None) -> Site | None:
    """Return the innermost line of the user's code, from a frame outwards."""
    frame = user_frame(frame)
    if frame is None:
        return None
    code = frame.f_code
    return Site(code.co_filename, frame.f_lineno, code.co_qualname)


def caller_of(site: Site | None, frame: types.FrameType | None) -> Site | None:
    """Return the innermost line of a file of the user's, if `site` is one of a package."""
    if site is None or is_users_file(site.file):
        return None
    while (frame := user_frame(frame)) is not None:
        if is_users_file(frame.f_code.co_filename):
            return site_of(frame)
        frame = frame.f_back
    return None


def is_users_file(file: str) -> bool:
    """Return whether a file is the user's own: not of a package, and not generated for a class."""
    return not (is_installed_file(file) or file.startswith(_GENERATED))


_GENERATED: Final = ("<string>", "<attrs ", "<leafwise ", "<__array_function__")


@functools.lru_cache(maxsize=4096)
def is_installed_file(file: str) -> bool:
    """Return whether a file is of an installed package or the standard library, or generated."""
    return file.startswith(_installed()) or not _PACKAGES.isdisjoint(Path(file).parts)


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return how the files of installed packages begin, and the names of generated code."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {f"{sysconfig.get_path(name)}{os.sep}" for name in names}
    return ("<frozen ", "<leafwise ", *folders)


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
