"""The line of the user's code from which a call came, and how often it has run.

Python counts the runs of lines since 3.12 (`sys.monitoring`), at the cost of a call for each run of
a line that is asked about and none for others: two compiles of one line are of one run, or two.
Before, and where all tools are taken, nothing is counted.
"""

import functools
import itertools
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


@functools.lru_cache(maxsize=4096)
def _is_of_library(file: str) -> bool:
    """Return whether a file is of the standard library, below which packages may be installed."""
    starts = file.startswith(("<frozen ", _stdlib()))
    return starts and _PACKAGES.isdisjoint(Path(file).parts)


def _cell(file: str) -> str | None:
    """Return the cell of a notebook that a file stands for: a temporary one in Jupyter."""
    if found := re.search(r"\.ipynb(\[\d+\])$", file):
        return f"Cell In{found[1]}"
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    names: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"Cell In[{names[file]}]" if file in names else None


def _line_of(frame: types.FrameType | None) -> Site | None:
    if frame is None:
        return None
    code = frame.f_code
    return Site(code.co_filename, frame.f_lineno, code.co_qualname)


def sites_of(frame: types.FrameType | None) -> tuple[Site | None, Site | None]:
    """Return the line of the user's code that a call belongs to, and a package's line below it.

    The line is the innermost of the user's own files; where no frame is of these, as in a thread
    or under ``-m``, the outermost. The second is None where no package stands between.
    """
    user, inner = user_frame(frame), inner_frame(frame)
    return _line_of(user), None if inner is user else _line_of(inner)


def site_of(frame: types.FrameType | None) -> Site | None:
    """Return the line of the user's code that a call belongs to, from a frame outwards."""
    return _line_of(user_frame(frame))


def user_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the innermost frame of the user's own files; where there is none, the outermost."""
    outer = None
    while (frame := inner_frame(frame)) is not None:
        outer = frame
        if is_users_file(frame.f_code.co_filename):
            break
        frame = frame.f_back
    return outer


def position_of(frame: types.FrameType) -> list[int] | None:
    """Return the line and column where what a frame is evaluating begins and ends, if known."""
    at = frame.f_lasti // 2
    start, end, column, end_column = next(itertools.islice(frame.f_code.co_positions(), at, None))
    if start is None or end is None or column is None or end_column is None:
        return None
    return [start, column, end, end_column]


def inner_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the innermost frame that is not leafwise's, JAX's or the standard library's."""
    while frame is not None and (
        str(frame.f_globals.get("__name__", "")).partition(".")[0] in _MACHINERY
        or _is_of_library(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame


_MACHINERY: Final = frozenset(
    {"leafwise", "leafwise_cli", "leafwise_pytest", "leafwise_pytest_checks", "jax", "jaxlib"}
)


def is_users_file(file: str) -> bool:
    """Return whether a file is the user's own: not of a package, and not generated for a class."""
    return not (is_installed_file(file) or file.startswith(_GENERATED))


_GENERATED: Final = ("<string>", "<attrs ", "<generated_", "<leafwise ", "<__array_function__")


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


_MONITORING: Final[Any] = getattr(sys, "monitoring", None)
_TOOLS: Final = (4, 3, 5)
"""The numbers of tools that are tried: the others are for debuggers, coverage and profilers."""

_counted: dict[int, tuple[types.CodeType, dict[int, int]]] = {}
"""The runs of lines since they were asked about, by the identity of their code, which is kept."""

_tool: int | None = None


def run_of(frame: types.FrameType) -> int | None:
    """Return which run of its line a frame is in, counted from the first time that one asks.

    None where nothing is counted.
    """
    if not _take_tool():
        return None
    code, line = frame.f_code, frame.f_lineno
    _, runs = _counted.setdefault(id(code), (code, {}))
    if line not in runs:
        runs[line] = 0
        events = _MONITORING.events.LINE
        if line == code.co_firstlineno:  # a function in one line, of which that is no event
            events |= _MONITORING.events.PY_START
        _MONITORING.set_local_events(_tool, code, events)
        _MONITORING.restart_events()  # this line may have been turned off as none of interest
    return runs[line]


def stop_counting() -> None:
    """Count no line any more, and leave the tool to others."""
    global _tool  # noqa: PLW0603  # one for the process
    if _tool is not None and _tool >= 0:
        for code, _ in _counted.values():
            _MONITORING.set_local_events(_tool, code, 0)
        _MONITORING.free_tool_id(_tool)
    _counted.clear()
    _tool = None


def _take_tool() -> bool:
    """Take a tool, once; return whether there is one."""
    global _tool  # noqa: PLW0603  # one for the process
    if _tool is None and _MONITORING is not None:
        _tool = next((each for each in _TOOLS if _MONITORING.get_tool(each) is None), -1)
        if _tool >= 0:
            _MONITORING.use_tool_id(_tool, "leafwise")
            _MONITORING.register_callback(_tool, _MONITORING.events.LINE, _on_line)
            _MONITORING.register_callback(_tool, _MONITORING.events.PY_START, _on_start)
    return _tool is not None and _tool >= 0


def _on_start(code: types.CodeType, _: int) -> Any:
    """Count a run of a function on one line, such as a lambda: it begins no line."""
    return _on_line(code, code.co_firstlineno)


def _on_line(code: types.CodeType, line: int) -> Any:
    _, runs = _counted.get(id(code), (code, {}))
    if line not in runs:
        return _MONITORING.DISABLE
    runs[line] += 1
    return None
