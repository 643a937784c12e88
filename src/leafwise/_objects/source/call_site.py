"""The line of user code that a call came from, and how often it has run.

Runs of lines are counted through `sys.monitoring` (Python 3.12), at the cost of one callback for
each run of a line that was asked about: two compiles on one line may be of one run, or of two.
Before 3.12, or if all tool ids are taken, nothing is counted.
"""

import ast
import functools
import inspect
import itertools
import linecache
import os
import re
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple


def add_source(file: str, source: str) -> None:
    """Add code that is in no file of this name, so that tracebacks show it."""
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file


def tree_of(file: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def defined_by(code: types.CodeType, file: str) -> tuple[ast.Module, Any]:
    """Return the AST of a file, and the only `def` or lambda in it that code can be from."""
    # Equal code may be in two files.
    tree, found = tree_of(file), list[Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            first = [*getattr(node, "decorator_list", ()), node][0]
            known = getattr(node, "name", "<lambda>"), first.lineno
            found += [node] if known == (code.co_name, code.co_firstlineno) else []
    return tree, found[0] if len(found) == 1 else None


class Site(NamedTuple):
    """A line of code.

    Attributes:
        file: The path of the file.
        line: The number of the line, from 1.
        function: The qualified name of the function that contains it.
    """

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The source of the line; empty if it is not available."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        """Return ``train.py:12 in main``."""
        return f"{short_file(self.file)}:{self.line} in {self.function}"


def locals_of(frame: types.FrameType) -> dict[str, Any]:
    """Return the local variables of a frame, without leaving references to them in it."""
    names: Any = frame.f_locals
    variables = dict(names)
    # Before 3.13, the frame of a function keeps this copy, and all arrays in it, until it ends. If
    # the function called `locals()`, it has the same one, with a fourth reference.
    is_copy = isinstance(names, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if is_copy and sys.getrefcount(names) == 3:  # noqa: PLR2004  # frame, variable, argument
        names.clear()
    return variables


def short_file(file: str) -> str:
    """Return a path in the form that messages show."""
    # A path in a package starts at the package; one below the working directory is relative to it;
    # and a notebook cell is ``Cell In[3]``.
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
def is_of_library(file: str) -> bool:
    """Return whether a file belongs to the standard library, not to a package below its folder."""
    starts = file.startswith(("<frozen ", _stdlib()))
    return starts and _PACKAGES.isdisjoint(Path(file).parts)


def _cell(file: str) -> str | None:
    """Return the notebook cell that a file, a temporary one in Jupyter, stands for; or None."""
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
    """Return the line of user code that a call belongs to, and a package's line inside it."""
    # The first is the innermost line in the user's own files or, if no frame is in these, as in a
    # thread or under ``-m``, the outermost. The second is None unless a package is in between.
    user, inner = user_frame(frame), inner_frame(frame)
    return _line_of(user), None if inner is user else _line_of(inner)


def site_of(frame: types.FrameType | None) -> Site | None:
    """Return the line of user code that a call belongs to, searching outwards from a frame."""
    return _line_of(user_frame(frame))


def user_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the innermost frame in the user's own files, or else the outermost frame."""
    outer = None
    while (frame := inner_frame(frame)) is not None:
        outer = frame
        if is_users_file(frame.f_code.co_filename):
            break
        frame = frame.f_back
    return outer


def position_of(frame: types.FrameType) -> list[int] | None:
    """Return where a frame's current expression begins and ends (lines and columns), if known."""
    at = frame.f_lasti // 2
    start, end, column, end_column = next(itertools.islice(frame.f_code.co_positions(), at, None))
    if start is None or end is None or column is None or end_column is None:
        return None
    return [start, column, end, end_column]


def inner_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the innermost frame that is not leafwise's, JAX's or the standard library's."""
    while frame is not None and (
        str(frame.f_globals.get("__name__", "")).partition(".")[0] in _MACHINERY
        or is_of_library(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame


_MACHINERY: Final = frozenset(
    {"leafwise", "leafwise_cli", "leafwise_pytest", "leafwise_pytest_checks", "jax", "jaxlib"}
)


def is_users_file(file: str) -> bool:
    """Return whether a file is the user's own: neither installed nor generated for a class."""
    is_named = file != "<string>"
    return is_named and not (is_installed_file(file) or is_generated_file(file))


def is_generated_file(file: str) -> bool:
    """Return whether the name of a file says that a library generated the code for a class."""
    return file.startswith(("<attrs ", "<generated_", "<leafwise ", "<__array_function__"))


@functools.lru_cache(maxsize=4096)
def is_installed_file(file: str) -> bool:
    """Return whether a file is from an installed package or the standard library, or generated."""
    return file.startswith(_installed()) or not _PACKAGES.isdisjoint(Path(file).parts)


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return the path prefixes of installed packages and of generated code."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {f"{sysconfig.get_path(name)}{os.sep}" for name in names}
    return ("<frozen ", "<leafwise ", *folders)


_MONITORING: Final[Any] = getattr(sys, "monitoring", None)
_TOOLS: Final = (4, 3, 5)
"""The tool ids to try: the others are for debuggers, coverage and profilers."""

_counted: dict[int, tuple[types.CodeType, dict[int, int]]] = {}
"""The runs of lines since they were asked about, by the id of their code, which is kept alive."""

_next: dict[tuple[int, int], tuple[int, Callable[[types.FrameType], None]]] = {}
"""What to do at the next run of a line, with the place of the call in its code."""

_START: Final = 0
"""In the place of a line: the start of the function."""

_watched: dict[int, Callable[[types.FrameType], None]] = {}
"""What to call when a function starts, by the id of its code, which is in `_counted`."""

_tool: int | None = None


def run_of(frame: types.FrameType) -> int | None:
    """Return which run of its line a frame is in, counted from the first time this is asked."""
    # None if nothing is counted.
    if not _take_tool():
        return None
    return _count(frame.f_code, frame.f_lineno)


def start_of(frame: types.FrameType) -> int | None:
    """Return which call of its function a frame is, as `run_of` counts the runs of a line."""
    return _count(frame.f_code, _START) if _take_tool() else None


def runs_of_lines() -> dict[str, int]:
    """Return how often each of the user's lines and functions ran since it was asked about."""
    return {
        f"{code.co_filename}:{line or code.co_qualname}": number
        for code, runs in _counted.values()
        if is_users_file(code.co_filename)
        for line, number in runs.items()
    }


def watch_calls(code: types.CodeType, on_call: Callable[[types.FrameType], None]) -> bool:
    """Call `on_call` with the frame of each later call of a function; return whether it is new."""
    if not _take_tool() or id(code) in _watched:
        return False
    _watched[id(code)] = on_call
    _count(code, _START)
    return True


def _count(code: types.CodeType, line: int) -> int:
    _, runs = _counted.setdefault(id(code), (code, {}))
    if line not in runs:
        runs[line] = 0
        events = _MONITORING.events.LINE | _MONITORING.events.JUMP if any(runs) else 0
        # A one-line function emits no line event.
        if not runs.keys().isdisjoint((_START, code.co_firstlineno)):
            events |= _MONITORING.events.PY_START
        _MONITORING.set_local_events(_tool, code, events)
        _MONITORING.restart_events()  # events of this line may have been disabled
    return runs[line]


def at_next_run(frame: types.FrameType, act: Callable[[types.FrameType], None]) -> None:
    """Call `act` with the frame in which the line of a call runs next, if runs are counted."""
    if run_of(frame) is not None:
        _next[id(frame.f_code), frame.f_lineno] = frame.f_lasti, act


def stop_counting() -> None:
    """Stop counting lines, and free the tool id."""
    global _tool  # noqa: PLW0603  # one per process
    if _tool is not None and _tool >= 0:
        for code, _ in _counted.values():
            _MONITORING.set_local_events(_tool, code, 0)
        _MONITORING.free_tool_id(_tool)
    _counted.clear()
    _next.clear()
    _watched.clear()
    _tool = None


def _take_tool() -> bool:
    global _tool  # noqa: PLW0603  # one per process
    if _tool is None and _MONITORING is not None:
        _tool = next((tool for tool in _TOOLS if _MONITORING.get_tool(tool) is None), -1)
        if _tool >= 0:
            _MONITORING.use_tool_id(_tool, "leafwise")
            _MONITORING.register_callback(_tool, _MONITORING.events.LINE, _on_line)
            _MONITORING.register_callback(_tool, _MONITORING.events.PY_START, _on_start)
            _MONITORING.register_callback(_tool, _MONITORING.events.JUMP, _on_jump)
    return _tool is not None and _tool >= 0


def _on_start(code: types.CodeType, _: int) -> Any:
    if (on_call := _watched.get(id(code))) is not None:
        frame = inspect.currentframe()
        if frame is not None and frame.f_back is not None:
            on_call(frame.f_back)
    # A lambda emits no line event.
    results = [_on_line(code, line) for line in {_START, code.co_firstlineno}]
    return _MONITORING.DISABLE if all(results) else None


def _on_jump(code: types.CodeType, start: int, end: int) -> Any:
    # A loop on one line, as a comprehension, emits no line event when it goes back.
    frame = inspect.currentframe()
    if frame is None or frame.f_back is None or end >= start:
        return _MONITORING.DISABLE
    return _on_line(code, frame.f_back.f_lineno, goes_to=end)


def _on_line(code: types.CodeType, line: int, goes_to: int | None = None) -> Any:
    _, runs = _counted.get(id(code), (code, {}))
    if line not in runs:
        return _MONITORING.DISABLE
    runs[line] += 1
    at, act = _next.get((id(code), line), (-1, None))
    if act is not None:
        frame: Any = inspect.currentframe()
        while frame.f_code is not code:
            frame = frame.f_back
        # Later in the same run, the line of an expression of several lines is entered again; and
        # the jump at the end of a loop's body is not a run if it goes to another line.
        place = frame.f_lasti if goes_to is None else goes_to
        is_here = any(i <= place < end and line == at_line for i, end, at_line in code.co_lines())
        if place <= at and is_here:
            del _next[id(code), line]
            act(frame)
    return None
