"""The user code that runs on this thread, with its functions and arguments.

While JAX traces a function, everything that it calls simply runs. Python reports each function that
starts: through `sys.monitoring` since 3.12, switched off for installed code, or through a profile
function that also calls the one set before it.
"""

import contextlib
import functools
import gc
import inspect
import sys
import threading
import types
import warnings
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias

import jax
from jax.core import Tracer

from leafwise._jax.stack import functions_around
from leafwise._objects.attributes import dict_of
from leafwise._objects.classes import is_a
from leafwise._objects.interrupts import or_default
from leafwise._objects.locks import new_lock
from leafwise._objects.source.call_site import is_users_file
from leafwise._objects.source.code import parameters
from leafwise._objects.source.names import Chain, chains_of

_MOST_RUNS: Final = 4096


Source: TypeAlias = tuple[str, int]
"""The file and the first line of a function, by which JAX names it."""


def source_of(code: types.CodeType) -> Source:
    """Return the file and the first line of a code object, which equal ones may differ in."""
    return code.co_filename, code.co_firstlineno


class Run(NamedTuple):
    code: types.CodeType
    function: Any  # None if Python does not show it
    names: dict[str, Any]  # its globals
    given: dict[str, Any]  # its arguments, by parameter
    inside: set[Source]  # the sources of the runs around it
    within: dict[int, str]  # JAX's texts for the functions that were being traced, by id
    chains: Callable[[types.CodeType], tuple[Chain, ...]] = chains_of
    """Returns the chains in its code that run."""


class _Runs:
    """The runs of one code object with equal arguments, each function's first."""

    def __init__(self) -> None:
        self.by_cells: dict[tuple[int, ...], tuple[types.FrameType, Run]] = {}
        self.unfinished: list[tuple[types.FrameType, Run]] = []

    def all(self) -> list[tuple[types.FrameType, Run]]:
        return [*self.by_cells.values(), *self.unfinished]

    def drop_repeated(self) -> list[types.FrameType]:
        """Return the frames of finished runs that were another run of a known function."""
        # Two closures of one factory differ in their cells alone, which a frame shows once it has
        # finished.
        dropped: list[types.FrameType] = []
        pending, self.unfinished = self.unfinished, []
        for frame, run in pending:
            function = _function_of(frame)
            if function is None:
                self.unfinished.append((frame, run))
                continue
            cells = tuple(map(id, function.__closure__ or ()))  # kept alive by their frame
            _, first = self.by_cells.setdefault(cells, (frame, run))
            if first is not run:
                first.inside.update(run.inside)
                first.within.update(run.within)
                dropped.append(frame)
        return dropped


def _function_of(frame: types.FrameType) -> types.FunctionType | None:
    """Return the function of a frame that has finished; None if it runs, or Python hides it."""
    behind = filter(inspect.isfunction, gc.get_referents(frame))
    return next((function for function in behind if function.__code__ is frame.f_code), None)


class Observer:
    """Keeps the frames of user functions that start."""

    def __init__(self, around: "tuple[Observer, ...]" = ()) -> None:
        self.around = around  # the observers of the unfinished traces around this one
        self._runs: dict[Any, _Runs] = {}
        self._frames: dict[int, types.CodeType] = {}

    def started(self, frame: types.FrameType) -> None:
        code, seen = frame.f_code, frame.f_locals
        if len(self._frames) >= _MOST_RUNS or code.co_name == "<module>":
            return
        if jax.config.jax_check_tracer_leaks:  # which reports a frame that we keep as a leak
            return
        args = {name: seen[name] for name in parameters(code) if name in seen}
        # The same code in two modules is equal, and its globals are not. A tracer is not a
        # capture: only its type counts.
        key: tuple[int, ...] = id(code), id(frame.f_globals)
        key = *key, *[id(type(value) if is_a(value, Tracer) else value) for value in args.values()]
        runs = self._runs.setdefault(key, _Runs())
        for dropped in runs.drop_repeated() if code.co_freevars else ():
            del self._frames[id(dropped)]
        if code.co_freevars or not runs.unfinished:
            runs.unfinished.append((frame, Run(code, None, frame.f_globals, args, set(), {})))
            self._frames[id(frame)] = code
        _, run = runs.unfinished[-1]
        run.inside.update(self._around(frame.f_back))
        run.within.update(functions_around())

    def _around(self, frame: types.FrameType | None) -> set[Source]:
        """Return the sources of the nearest run around a frame, and of the runs around that one."""
        while frame is not None and id(frame) not in self._frames:
            frame = frame.f_back
        if frame is None:
            return set()
        code = self._frames[id(frame)]
        runs = [run for same in self._runs.values() for _, run in same.all() if run.code is code]
        return {source_of(code)}.union(*(run.inside for run in runs))

    def runs(self) -> list[Run]:
        """Return the runs so far; the functions of those that have ended are known."""
        runs = [pair for same in self._runs.values() for pair in same.all()]
        return [run._replace(function=_function_of(frame)) for frame, run in runs]


@or_default(default=False)  # a user's flatten function
def holds_tracers(value: Any) -> bool:
    """Return whether an object or a pytree holds tracers, so that it was made in a trace."""
    if is_a(value, Tracer | types.ModuleType | types.FunctionType | type):
        return False
    leaves = (*dict_of(value).values(), *jax.tree.leaves(value))
    return any(is_a(each, Tracer) for each in leaves)


class _ObserverThread(threading.local):
    observers: tuple[Observer, ...] = ()


_HERE: Final = _ObserverThread()


@contextlib.contextmanager
def observing() -> Generator[Observer, None, None]:
    observer = Observer(_HERE.observers)
    _HERE.observers = *observer.around, observer
    stop = _SWITCH.on()
    try:
        yield observer
    finally:
        stop()
        _HERE.observers = observer.around


@functools.lru_cache(maxsize=4096)  # a profile function asks at each call
def is_watched(file: str) -> bool:
    own = __file__.rpartition("_captures")[0]
    return is_users_file(file) and not file.startswith(own)


_MONITORING: Final[Any] = getattr(sys, "monitoring", None)  # since Python 3.12
_TOOLS: Final = (5, 3, 4, 2, 0)
"""The tool ids to try, in order; 1 is that of coverage, and the last two are rarely used."""


class _Switch:
    """Makes Python report each function that starts, while any observer is active."""

    def __init__(self) -> None:
        self._tool: int | None = None
        self._count = 0
        self._lock = new_lock()

    def on(self) -> Callable[[], None]:
        """Switch the reports on; return a function that switches them off."""
        with self._lock:
            if _MONITORING is not None and self._tool is None:
                self._tool = next((n for n in _TOOLS if _MONITORING.get_tool(n) is None), None)
                if self._tool is not None:
                    _MONITORING.use_tool_id(self._tool, "leafwise captures")
                    start = _MONITORING.events.PY_START
                    _MONITORING.register_callback(self._tool, start, _on_start)
            if self._tool is None:
                return _profile()
            self._count += 1
            monitoring: Any = _MONITORING
            monitoring.set_events(self._tool, monitoring.events.PY_START)
        return self._off

    def _off(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                _MONITORING.set_events(self._tool, 0)


_SWITCH: Final = _Switch()


def _on_start(code: types.CodeType, _: int) -> Any:
    if not is_watched(code.co_filename):
        return _MONITORING.DISABLE
    own = inspect.currentframe()
    frame = own and own.f_back
    del own  # avoid a reference cycle through the frame
    if frame is not None:
        for each in _HERE.observers:
            each.started(frame)
    return None


def _profile() -> Callable[[], None]:
    """Set a profile function for this thread that also calls the one set before it."""
    before: Any = sys.getprofile()
    if before is not None and not callable(before):  # cProfile's, which is written in C
        text = "leafwise cannot observe traces while cProfile runs: captures are not checked"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return lambda: None

    def profile(frame: types.FrameType, event: str, given: Any) -> None:
        if event == "call" and is_watched(frame.f_code.co_filename):
            for each in _HERE.observers:
                each.started(frame)
        if before is not None:
            before(frame, event, given)

    sys.setprofile(profile)
    return lambda: sys.setprofile(before)
