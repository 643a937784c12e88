"""How often lines of the user's code have run: two compiles of one line are of one run, or two.

Python counts since 3.12 (`sys.monitoring`), at the cost of a call for each run of a line that is
asked about and none for others. Before, and where all tools are taken, nothing is counted.
"""

import sys
import types
from typing import Any, Final

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
    if not _begin():
        return None
    code, line = frame.f_code, frame.f_lineno
    _, runs = _counted.setdefault(id(code), (code, {}))
    if line not in runs:
        runs[line] = 0
        _MONITORING.set_local_events(_tool, code, _MONITORING.events.LINE)
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


def _begin() -> bool:
    """Take a tool, once; return whether there is one."""
    global _tool  # noqa: PLW0603  # one for the process
    if _tool is None and _MONITORING is not None:
        _tool = next((each for each in _TOOLS if _MONITORING.get_tool(each) is None), -1)
        if _tool >= 0:
            _MONITORING.use_tool_id(_tool, "leafwise")
            _MONITORING.register_callback(_tool, _MONITORING.events.LINE, _on_line)
    return _tool is not None and _tool >= 0


def _on_line(code: types.CodeType, line: int) -> Any:
    _, runs = _counted.get(id(code), (code, {}))
    if line not in runs:
        return _MONITORING.DISABLE
    runs[line] += 1
    return None
