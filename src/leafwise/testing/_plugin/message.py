"""A failure as one message, without the frames that are none of the user's."""

from typing import Any

import pytest


def message_of(error: pytest.ExceptionInfo[BaseException], path: str, line: int) -> Any:
    """Return what pytest prints for an error: its message, and a place.

    Args:
        error: The error.
        path: The file to point at.
        line: The line in it, from 1.
    """
    shown: Any = error.getrepr(style="value", chain=False)
    crash = shown.reprcrash
    if crash is not None:
        crash.path, crash.lineno = path, line
        shown.reprtraceback.reprentries[-1].reprfileloc = crash
    return shown
