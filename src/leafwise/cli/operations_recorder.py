"""Recording, in a process of a script, which lines the operations of a program come from.

A large program is recorded before its compile, which may take so long that the process is
killed: then this is the only record of it.
"""

import ast
import contextlib
import dataclasses
import functools
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from leafwise._captures.captures import Capture, captures
from leafwise._compare.fixes import fix_of_constants
from leafwise._findings.first_compiles import LEAST
from leafwise._findings.json import to_json
from leafwise._findings.records import EventRecord, FirstCompile, SiteRecord
from leafwise._jax.compiles import (
    Compile,
    listen_to_compiles,
    shows_lines,
    stop_listening_to_compiles,
)
from leafwise._jax.events import EventKind
from leafwise._jax.operations import Operations, read_operations
from leafwise._jit.recorder import Event
from leafwise._objects.source.call_site import Site, tree_of
from leafwise._programs.first_compile import LARGE_BYTES, describe_operations
from leafwise.errors import message_of

_SMALL: Final = 0.01
"""A program that was lowered in fewer seconds is not read. Reading takes up to a quarter of the
time of the lowering."""

_MANY: Final = 1000
"""A program with at least this many operations is recorded before its compile."""


@dataclasses.dataclass
class _Program(threading.local):
    """The program that a thread is compiling."""

    seconds: float = 0.0
    lowered: tuple[Event, EventRecord] | None = None
    describe: Callable[[], FirstCompile] | None = None


class OperationsRecorder:
    """Reads programs before they are compiled, and records where their operations come from."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._here = _Program()

    def stop(self) -> None:
        stop_listening_to_compiles(self._read)

    def note(self, event: Event, record: EventRecord) -> None:
        """Handle an event of this thread; add operations to the record of a long compile."""
        here = self._here
        here.seconds += event.seconds
        if event.kind is EventKind.LOWERING and event.seconds >= _SMALL:
            here.lowered = event, record
            if shows_lines():  # asked once JAX has chosen its devices
                listen_to_compiles(self._read)
        elif event.kind is EventKind.COMPILE:
            if here.seconds >= LEAST and here.describe is not None:
                with writing_faults(self._write, event.name):
                    record.first = here.describe()
            here.seconds, here.lowered, here.describe = 0.0, None, None

    def _read(self, compiled: Compile) -> None:
        """Read a program on the thread that is about to compile it; record a large one at once."""
        here = self._here
        if here.lowered is None or here.describe is not None:
            return
        with writing_faults(self._write, compiled.name):
            frames = traceback.walk_stack(None)
            stack = {(frame.f_code.co_filename, line) for frame, line in frames}
            operations = read_operations(compiled.module, stack)
            describe = functools.partial(_describe, operations, *here.lowered)
            here.describe = functools.cache(describe)
            if operations.total >= _MANY or operations.nbytes >= LARGE_BYTES:
                facts: dict[str, Any] = {"kind": "compile", "start": time.time(), "seconds": 0.0}
                facts |= {"first": here.describe(), "unfinished": True, "explanation": None}
                self._write(compiling=to_json(dataclasses.replace(here.lowered[1], **facts)))


@contextlib.contextmanager
def writing_faults(write: Callable[..., None], name: str) -> Generator[None]:
    """Record what user code or leafwise raises: the script goes on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # as it says
        write(fault=f"{name}: {type(error).__name__}: {message_of(error)}")


def _describe(operations: Operations, event: Event, record: EventRecord) -> FirstCompile:
    """Return the description of a program; only this reads source files."""
    first = describe_operations(operations)
    for origin in first.origins:
        if origin.kind == "constants":
            captured = captures(event.fun).own() if event.fun is not None else ()
            large = [capture for capture in captured if capture.nbytes >= LARGE_BYTES]
            origin.site = _site_of(large) or origin.site or record.site
            origin.fix = fix_of_constants([capture.name for capture in large])
    return first


def _site_of(large: Sequence[Capture]) -> SiteRecord | None:
    """Return the only line that binds the first name, or else the line that first reads it."""
    if not large:
        return None
    where, name = large[0].where, large[0].name.partition(".")[0]
    nodes = ast.walk(tree_of(where.file))
    names = (node for node in nodes if isinstance(node, ast.Name) and node.id == name)
    lines = [node.lineno for node in names if isinstance(node.ctx, ast.Store)]
    return SiteRecord.of(Site(where.file, lines[0] if len(lines) == 1 else where.line, ""))
