"""The frames of JAX in the traceback of an error.

JAX removes them before anybody can read them, and with them those of the files that `exclude_file`
was given. `keep_frames` keeps them, and `hide_frames` removes them afterwards as JAX would have
done it.
"""

import threading
import traceback
import types
from typing import Any, Final, TypeAlias

from leafwise._jax.compat import inside

_INTERNAL: Final = "jax._src."

JaxFunction: TypeAlias = tuple[str, str]
"""A function of JAX: its module, below ``jax._src``, and its name."""


class _Block(threading.local):
    """How many blocks of this thread keep frames, and what undoes the first."""

    depth = 0
    undo: Any = None


_BLOCK: Final = _Block()


def keep_frames() -> None:
    """Let exceptions of this thread keep JAX's frames, until `release_frames` is called."""
    _BLOCK.depth += 1
    internal = _tracebacks()
    if _BLOCK.depth == 1 and internal is not None:
        config, hiding = internal
        if hiding._filtering_mode() == "quiet_remove_frames":  # noqa: SLF001  # JAX's own
            _BLOCK.undo = config.traceback_filtering("off")
            _BLOCK.undo.__enter__()


def release_frames() -> bool:
    """Undo the last `keep_frames`; return whether it kept frames that JAX would have removed."""
    _BLOCK.depth -= 1
    undo = _BLOCK.undo
    if _BLOCK.depth == 0 and undo is not None:
        _BLOCK.undo = None
        undo.__exit__(None, None, None)
    return undo is not None


def hide_frames(error: BaseException) -> None:
    """Remove JAX's frames from the traceback of an error, and add JAX's note on that."""
    internal, above = _tracebacks(), error.__traceback__
    if internal is None or above is None:
        return
    if any(_is_boundary(frame) for frame, _ in traceback.walk_stack(above.tb_frame)):
        return  # inside a function that JAX traces: its own boundary removes them
    last: types.TracebackType | None = None
    boundary: types.TracebackType | None = above
    while boundary is not None and not _is_boundary(boundary.tb_frame):
        last, boundary = boundary, boundary.tb_next
    if boundary is None:
        return
    shown = internal[1].filter_traceback(boundary)
    if last is None:
        error.__traceback__ = shown
    else:
        last.tb_next = shown
    error.add_note("-" * 20 + "\n" + internal[1]._simplified_tb_msg)  # noqa: SLF001  # JAX's own


def exclude_file(file: str) -> None:
    """Let JAX remove the frames of a file wherever it removes its own."""
    internal = _tracebacks()
    exclude = None if internal is None else getattr(internal[1], "register_exclusion", None)
    if exclude is not None:
        exclude(file)


def _tracebacks() -> tuple[Any, Any] | None:
    """Return JAX's modules for tracebacks; None if their names are not the known ones."""
    config, hiding = inside("config"), inside("traceback_util")
    names = ("_filtering_mode", "filter_traceback", "_simplified_tb_msg", "api_boundary")
    there = all(hasattr(hiding, name) for name in names) and hasattr(config, "traceback_filtering")
    is_known = there and hiding.api_boundary(len).__code__.co_name == _BOUNDARY
    return (config, hiding) if is_known else None


_BOUNDARY: Final = "reraise_with_filtered_traceback"


def _is_boundary(frame: types.FrameType) -> bool:
    return (
        frame.f_code.co_name == _BOUNDARY
        and frame.f_globals.get("__name__") == _INTERNAL + "traceback_util"
    )


def frames_of(error: BaseException) -> list[types.FrameType]:
    """Return the frames of a traceback, the innermost first; JAX may have put them in the cause."""
    below = error.__traceback__
    cause = error.__cause__
    if type(cause).__name__ == "UnfilteredStackTrace" and cause is not None:
        below = cause.__traceback__
    found: list[types.FrameType] = []
    while below is not None:
        if not _is_boundary(below.tb_frame):
            found.append(below.tb_frame)
        below = below.tb_next
    return found[::-1]


def is_internal(frame: types.FrameType) -> bool:
    """Return whether a frame is JAX's own."""
    return str(frame.f_globals.get("__name__")).startswith(_INTERNAL)


def function_of(frame: types.FrameType) -> JaxFunction:
    """Return which function a frame runs."""
    module = str(frame.f_globals.get("__name__")).removeprefix(_INTERNAL)
    return module, frame.f_code.co_name
