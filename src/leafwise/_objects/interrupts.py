"""Exceptions of signal handlers, such as a deadline: they are about no value, and come out."""

import inspect


def reraise_interrupt(error: BaseException) -> None:
    """Raise the error again if it comes from a signal handler, not from the code that it met.

    For each ``except`` that turns whatever a user's code raises into something else.
    """
    # Python calls a handler between any two instructions, with the frame that it interrupts. So
    # the handler's frame is that which was passed its own caller's frame.
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        names, rest, _, values = inspect.getargvalues(frame)
        passed = *(values.get(name) for name in names), *values.get(rest or "", ())
        if frame.f_back is not None and any(item is frame.f_back for item in passed):
            raise error
        step = step.tb_next
