"""Records of programs: where their operations come from, and what `leafwise compare` reads.

They hold text and numbers only, as in `recorder`: of the environment, the variables that JAX
and XLA read; of arrays, shapes and digests. A large program is recorded before its compile, which
may take so long that the process is killed: then this is the only record of it.
"""

import ast
import contextlib
import dataclasses
import functools
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from importlib import metadata
from typing import Any, Final

import jax
from jaxlib.mlir import ir  # as in `leafwise._jax.compiles`

from leafwise._captures.captures import Capture, captures
from leafwise._captures.uses import host_call
from leafwise._compare.fixes import fix_in_code, fix_of_constants
from leafwise._findings.findings import LEAST
from leafwise._findings.json import to_json
from leafwise._findings.records import (
    EventRecord,
    FirstCompile,
    LoweredRecord,
    ProcessRecord,
    ProgramRecord,
    SiteRecord,
)
from leafwise._findings.words import without_addresses
from leafwise._jax.compiles import (
    Compile,
    listen_to_compiles,
    shows_lines,
    stop_listening_to_compiles,
)
from leafwise._jax.context import UNNAMED_CONFIG, trace_config
from leafwise._jax.events import EventKind
from leafwise._jax.operations import LARGE_BYTES, Operations, read_operations
from leafwise._jax.persistent_cache import is_on
from leafwise._jit.recorder import Event
from leafwise._objects.source.call_site import Site, tree_of
from leafwise._objects.source.code import names_of
from leafwise._programs.digest import describe_call, describe_captures, digest_of
from leafwise._programs.first_compile import describe_operations
from leafwise._programs.program import packed, read_program
from leafwise.errors import message_of

_SMALL: Final = 0.01
"""A program that was lowered in fewer seconds is not read for its operations' lines. Reading takes
up to a quarter of the time of the lowering."""

_MANY: Final = 1000
"""A program with at least this many operations is recorded before its compile."""

_HEAVY: Final = 40
_LOOPS: Final = frozenset({"stablehlo.while", "stablehlo.sort"})
"""A program with that many operations, or one of these, takes XLA far longer than others."""

_VARIABLES: Final = ("JAX_", "XLA_", "LIBTPU_INIT_ARGS")
_PRIVATE: Final = ("mtls", "credentials", "trace context")
"""Options whose names contain one of these are left out."""


@dataclasses.dataclass
class _Program(threading.local):
    """The program that a thread is compiling."""

    seconds: float = 0.0
    began: float = 0.0  # the CPU time of the process at the end of the lowering
    lowered: tuple[Event, EventRecord] | None = None
    describe: Callable[[], FirstCompile] | None = None
    read: tuple[LoweredRecord | None, str | None] = None, None
    reading: float = 0.0  # seconds
    is_eager: bool = False
    is_heavy: bool | None = None


class ProgramRecorder:
    """Reads programs before they are compiled; if `is_whole`, also all that each depends on."""

    def __init__(self, write: Callable[..., None], *, is_whole: bool) -> None:
        self._write = write
        self._is_whole = is_whole
        self._here = _Program()
        self._config: dict[str, Any] | None = None

    def stop(self) -> None:
        stop_listening_to_compiles(self._read)

    def spent(self) -> float:
        """Return how many seconds of this thread's last compile were spent here."""
        return self._here.reading

    def note(self, event: Event, record: EventRecord) -> None:
        """Handle an event of this thread; add operations to the record of a long compile."""
        here = self._here
        if event.kind is EventKind.COMPILE:
            record.cpu = min(time.process_time() - here.began, event.seconds)
        here.seconds += event.seconds if record.cpu is None else record.cpu
        if event.kind is EventKind.LOWERING:  # JAX has chosen its devices
            here.began = time.process_time()
            if event.seconds >= _SMALL and shows_lines():
                here.lowered = event, record
            here.is_eager, here.is_heavy = event.eager, None
            if self._is_whole or event.eager or here.lowered is not None:
                listen_to_compiles(self._read)
        elif event.kind is EventKind.COMPILE:
            record.heavy = here.is_heavy if event.eager else None
            if here.seconds >= LEAST and here.describe is not None:
                with writing_faults(self._write, event.name):
                    record.first = here.describe()
            here.seconds, here.lowered, here.describe = 0.0, None, None

    def _read(self, compiled: Compile) -> None:
        """Read a program on the thread that is about to compile it; record a large one at once."""
        here, began = self._here, time.perf_counter()
        with writing_faults(self._write, compiled.name):
            if self._is_whole:
                program = packed(read_program(compiled, compiled.options()))
                here.read = program, compiled.cache_key() if is_on() else None
        here.reading = time.perf_counter() - began if self._is_whole else 0.0
        if here.is_eager:
            with writing_faults(self._write, compiled.name):
                here.is_heavy = _is_heavy(compiled.module)
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

    def record(self, event: Event) -> None:
        """Write the record of a compiled program, on the thread that compiled it."""
        if not self._is_whole:
            return
        program, key = self._here.read
        self._here.read, self._here.reading = (None, None), 0.0
        if self._config is None:
            self._config = _config()
            self._write(process=to_json(_process(self._config)))
        record = ProgramRecord(
            function=":".join(names_of(event.fun)) if event.fun is not None else "",
            name=event.name,
            eager=event.eager,
            site=SiteRecord.of(event.site),
            end=event.time,
            cache=event.miss or ("hit" if event.cached else "off"),
            key=key,
            key_parts=dict(event.key_parts),
            program=program,
            config={},
            refused={},
            unwritten=event.unwritten,
        )
        signature = event.program.signature if event.program is not None else None
        try:
            if signature is not None:
                config = _config(signature.config).items()
                record.config = {k: v for k, v in config if self._config.get(k) != v}
                record.arguments, refused = describe_call(signature)
                record.digest = digest_of(record.arguments)
                record.refused |= {k: without_addresses(what) for k, what in refused.items()}
            if event.fun is not None and not event.eager:
                record.captures, refused = describe_captures(event.fun)
                record.refused |= refused
        except Exception as error:  # noqa: BLE001  # user code; the rest is still useful
            record.refused[event.name] = f"{type(error).__name__}: {message_of(error)}"
        self._write(program=to_json(record))


def _is_heavy(module: Any) -> bool:
    """Return whether XLA is slow to compile a program again for each call of it in one `jit`."""
    names = Counter[str]()

    def count(operation: Any) -> Any:
        names[operation.name] += 1
        return ir.WalkResult.ADVANCE

    with module.context:
        module.operation.walk(count, ir.WalkOrder.PRE_ORDER)
    # Iteration over an array is one program of many slices, which is fast.
    is_sliced = names["stablehlo.slice"] * 3 > names.total()
    return (names.total() >= _HEAVY and not is_sliced) or not _LOOPS.isdisjoint(names)


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
        origin.site = origin.site or record.site  # where all code is of packages
        if origin.kind == "constants":
            captured = captures(event.fun).own() if event.fun is not None else ()
            large = [capture for capture in captured if capture.nbytes >= LARGE_BYTES]
            origin.site = _site_of(large) or origin.site or record.site
            origin.fix = fix_of_constants([capture.name for capture in large])
            use = None if large or event.fun is None else host_call(event.fun)
            if use is not None and SiteRecord.of(use.site) == origin.site:
                origin.fix = fix_in_code(use)
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


def _process(config: dict[str, Any]) -> ProcessRecord:
    """Return what all programs of this process share: versions, environment, configuration."""
    packages = ("jax", "jaxlib", "numpy", "leafwise")
    return ProcessRecord(
        versions={
            "python": ".".join(map(str, sys.version_info[:3])),
            **{name: metadata.version(name) for name in packages},
        },
        environment={
            name: text for name, text in sorted(os.environ.items()) if name.startswith(_VARIABLES)
        },
        flags=sorted(flag for flag in sys.argv if flag.startswith("--xla")),
        devices=f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        processes=jax.process_count(),
        hash_seed=hash("the order of sets") & 0xFFFF,
        config=config,
    )


def _config(trace: Any = None) -> dict[str, Any]:
    """Return JAX's configuration, including what context managers set for the trace."""
    values: Any = jax.config
    options: dict[str, Any] = {**values.values, **dict(trace_config() if trace is None else trace)}
    return {
        name: text if isinstance(text, str | int | float | None) else without_addresses(str(text))
        for name, text in sorted(options.items())
        if name != UNNAMED_CONFIG and not any(word in name for word in _PRIVATE)
    }
