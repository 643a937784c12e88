"""What to do about exceptions of code that is not ours: a user's, or a signal handler's."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")


def reraise_interrupt(error: BaseException) -> None:
    """Raise the error again if it comes from a signal handler, not from the code that it met.

    For each ``except`` that turns whatever a user's code raises into something else: a deadline is
    about no value, and comes out.
    """
    # Python calls a handler between any two instructions, with the frame that it interrupts. So
    # the handler's frame is that which was passed its own caller's frame.
    # Not the frame that caught it: before 3.13 its `f_locals` would keep the error in a cycle.
    step = error.__traceback__ and error.__traceback__.tb_next
    while step is not None:
        frame = step.tb_frame
        names, rest, _, values = inspect.getargvalues(frame)
        passed = *(values.get(name) for name in names), *values.get(rest or "", ())
        if frame.f_back is not None and any(item is frame.f_back for item in passed):
            raise error
        step = step.tb_next


def or_default(default: V) -> Callable[[Callable[P, T]], Callable[P, T | V]]:
    """Make a function return `default` where the user's code that it calls raises anything."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | V]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T | V:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # the user's own code
                reraise_interrupt(error)
                return default

        return guarded

    return decorate
