"""Texts exchanged between the processes of a program.

JAX's coordination service has a key-value store, and barriers with a timeout; it has no public API,
and needs no device.
"""

import contextlib
import dataclasses
import threading
from typing import Any, Final
from urllib.parse import quote

import jax

from leafwise._jax.compat import inside
from leafwise._objects.locks import new_lock


class MissingError(Exception):
    """Not all processes responded in time."""

    def __init__(self, missing: tuple[int, ...] | None, detail: str) -> None:
        super().__init__(missing, detail)
        # `()`: this process itself was late. `None`: unknown which processes are missing.
        self.missing = missing
        self.detail = detail


@dataclasses.dataclass(frozen=True)
class Processes:
    index: int
    count: int
    client: Any


def processes() -> Processes | None:
    """Return the processes; None before `jax.distributed.initialize`. No backend is started."""
    if not jax.distributed.is_initialized():
        return _left
    state = inside("distributed").global_state
    return Processes(int(state.process_id), int(state.num_processes), state.client)


def exchange(
    here: Processes, name: str, text: str, timeout: float, start: int = 0
) -> dict[int, str]:
    """Return the texts of all processes by index, once all have called this with the same name."""
    if here is _left:
        raise MissingError(None, "its JAX client is shut down: it must be restarted")
    # The n-th call with a name matches the n-th call of the others, counted from `start`.
    key, previous = _next_keys(here.client, name, start)
    try:
        here.client.key_value_set(f"{key}/{here.index}", text, allow_overwrite=True)
        here.client.wait_at_barrier(key, _milliseconds(timeout))
        texts = _read(here.client, key)
    except RuntimeError as error:  # JaxRuntimeError: the service has ended, or time is up
        missing: tuple[int, ...] | None = None
        with contextlib.suppress(RuntimeError):
            missing = tuple(sorted({*range(here.count)} - {*_read(here.client, key)}))
        raise MissingError(missing, str(error)) from error
    if previous is not None:  # all have read the previous texts, since they are here
        with contextlib.suppress(RuntimeError):
            here.client.key_value_delete(f"{previous}/{here.index}")
    return texts


def announce(here: Processes, name: str, text: str, timeout: float, start: int = 0) -> None:
    """Take part in an exchange without waiting for the others, which may not join it."""
    if here is _left:
        return
    key, _ = _next_keys(here.client, name, start)

    def wait() -> None:
        with contextlib.suppress(RuntimeError):
            here.client.wait_at_barrier(key, _milliseconds(timeout))

    with contextlib.suppress(RuntimeError):  # the coordination service has ended
        here.client.key_value_set(f"{key}/{here.index}", text, allow_overwrite=True)
        threading.Thread(target=wait, daemon=True, name="leafwise announces").start()


def count_of_exchanges(here: Processes, name: str) -> int:
    """Return how many exchanges with a name there have been since JAX was initialised."""
    with _LOCK:
        return _NUMBERS.get(name, -1) + 1 if here.client is _counted_for else 0


def _milliseconds(seconds: float) -> int:
    return max(1, round(min(seconds, 1e6) * 1000))  # more may overflow


_left: Processes | None = None


def leave() -> None:
    """Shut down the JAX client of this process, so that JAX ends those that wait for it."""
    # They end once JAX's shutdown has waited for them, for `shutdown_timeout_seconds`; or, if this
    # process ends first, when its heartbeat is missed. Neither this function nor the end of the
    # process waits for them, as JAX forgets the client.
    global _left  # noqa: PLW0603  # what `processes` returns from here on
    with _LOCK:
        here = processes()
        if here is None or here is _left:
            return
        _left = dataclasses.replace(here, client=None)
    inside("distributed").global_state.client = None

    def shut() -> None:
        with contextlib.suppress(RuntimeError):  # the others do not join
            here.client.shutdown()

    threading.Thread(target=shut, daemon=True, name="leafwise leaves").start()


def _read(client: Any, key: str) -> dict[int, str]:
    pairs: list[tuple[str, str]] = client.key_value_dir_get(f"{key}/")
    return {int(key.rpartition("/")[2]): text for key, text in pairs}


_LOCK: Final = new_lock()
_NUMBERS: Final[dict[str, int]] = {}  # the number of the last exchange with each name

_counted_for: Any = None


def _next_keys(client: Any, name: str, start: int) -> tuple[str, str | None]:
    """Return the key of the next exchange with a name, and that of the previous one, if any."""
    global _counted_for  # noqa: PLW0603  # the current client
    with _LOCK:
        if client is not _counted_for:
            _NUMBERS.clear()
            _counted_for = client
        last = _NUMBERS.get(name, -1)
        _NUMBERS[name] = number = max(last + 1, start)
    folder = f"leafwise/{quote(name, safe='')}"
    return f"{folder}/{number}", None if last < 0 else f"{folder}/{last}"
