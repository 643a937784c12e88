"""A limit of CPU seconds for a block of code, whatever the code does."""

import contextlib
import math
import signal
import threading
from collections.abc import Generator
from typing import Final

_WALL: Final = 10
"""How many times as long a block may take by the clock as on the processor."""


class TooLong(BaseException):  # not an Exception, which a user's code may catch
    """What was to be done in a limited time was not."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Raise `TooLong` in the block after some CPU seconds, where the system can interrupt it."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "setitimer") or seconds == math.inf:
        yield
        return
    clocks = [
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, _WALL * seconds),
    ]
    # Another clock is somebody else's, such as that of pytest-timeout.
    clocks = [clock for clock in clocks if not signal.getitimer(clock[0])[0]]

    def give_up(*_: object) -> None:
        raise TooLong

    before = [(number, signal.signal(number, give_up)) for _, number, _ in clocks]
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit, 1.0)  # again, if somebody has caught it
    try:
        yield
    finally:
        for clock, _, _ in clocks:
            signal.setitimer(clock, 0)
        for number, handler in before:
            signal.signal(number, handler)
