"""Records of programs for the JSON report, which `leafwise compare` reads.

They hold text and numbers only, as in `recorder`: of the environment, the variables that JAX
and XLA read; of arrays, shapes and digests.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, Final

import jax

from leafwise._findings.json import to_json
from leafwise._findings.records import ProcessRecord, ProgramRecord, SiteRecord
from leafwise._findings.words import without_addresses
from leafwise._jax.compiles import Compile, listen_to_compiles, stop_listening_to_compiles
from leafwise._jax.context import UNNAMED_CONFIG, trace_config
from leafwise._jax.persistent_cache import is_on
from leafwise._jit.recorder import Event
from leafwise._objects.source.code import names_of
from leafwise._programs.digest import describe_call, describe_captures, digest_of
from leafwise._programs.program import packed, read_program
from leafwise.cli.operations_recorder import writing_faults
from leafwise.errors import message_of

_VARIABLES: Final = ("JAX_", "XLA_", "LIBTPU_INIT_ARGS")
_PRIVATE: Final = ("mtls", "credentials", "trace context")
"""Options whose names contain one of these are left out."""


class ProgramRecorder:
    """Records what each program was made from, and its operations."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._here = threading.local()
        self._config: dict[str, Any] | None = None

    def start(self) -> None:
        listen_to_compiles(self._read)

    def stop(self) -> None:
        stop_listening_to_compiles(self._read)

    def _read(self, compiled: Compile) -> None:
        """Read a program on the thread that is about to compile it."""
        began = time.perf_counter()
        with writing_faults(self._write, compiled.name):
            program = packed(read_program(compiled, compiled.options()))
            self._here.read = program, compiled.cache_key() if is_on() else None
        self._here.seconds = time.perf_counter() - began

    def seconds(self) -> float:
        """Return how many seconds of this thread's last compile were spent here."""
        return float(getattr(self._here, "seconds", 0.0))

    def record(self, event: Event) -> None:
        """Write the record of a compiled program, on the thread that compiled it."""
        program, key = getattr(self._here, "read", (None, None))
        self._here.read, self._here.seconds = (None, None), 0.0
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
