"""The marker ``check_captures``: what jitted functions capture is checked while a test runs."""

import contextlib
from collections.abc import Generator

import pytest

from leafwise._jit.blocks import CaptureChecks, enter_block, leave_block, stale_of


@contextlib.contextmanager
def checks_of(nodeid: str, mark: pytest.Mark) -> Generator[None, None, None]:
    """Check captures while a test runs, as the marker says.

    Captures that cannot be compared are no warnings here: a test has nothing to do with them.
    """
    try:
        action = _action(*mark.args, **mark.kwargs)
    except (TypeError, ValueError) as error:
        wrong = str(error).replace("_action()", "it")
        given = [repr(each) for each in mark.args]
        given += [f"{name}={value!r}" for name, value in mark.kwargs.items()]
        pytest.fail(f"{nodeid}: check_captures({', '.join(given)}): {wrong}", pytrace=False)
    block = CaptureChecks(stale_of(action, "check_captures"), tells=False)
    enter_block(block)
    try:
        yield
    finally:
        leave_block(block)


def _action(stale: str = "raise") -> str:
    return stale_of(stale, "the marker check_captures")
