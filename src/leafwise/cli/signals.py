"""Signals that end a program, while a command runs."""

import contextlib
import signal
from collections.abc import Callable, Generator
from typing import Any


@contextlib.contextmanager
def handled(handle: Callable[[int, Any], None], *more: str) -> Generator[None]:
    """Call `handle` for them in a block; what is ignored stays ignored, as under ``nohup``."""
    names = "SIGTERM", "SIGHUP", "SIGQUIT", *more  # Windows has the first
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def raised(error: type[BaseException]) -> Generator[list[int]]:
    """Raise an error, with the exit code, for the first one in a block; yield all so far."""
    numbers = list[int]()

    def handle(number: int, _: object) -> None:
        numbers.append(number)
        if len(numbers) == 1:  # `timeout` sends it twice, and the second would stop the cleanup
            raise error(128 + number)

    with handled(handle):
        yield numbers
