"""What each call of a jitted function costs: flattening its arguments, and copying NumPy arrays.

Both are measured once, as the function is first traced, and recorded if the line of the call runs
again: from then on nothing is done. Before Python 3.12, runs of lines are not counted.
"""

import functools
import math
import time
import types
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np

from leafwise._compare.signature import StaticArguments
from leafwise._findings.json import to_json
from leafwise._findings.records import CallRecord, SiteRecord
from leafwise._jax.compat import flattener_of
from leafwise._jax.stack import RunningCall, running_calls
from leafwise._jit.recorder import Event
from leafwise._objects.source.call_site import at_next_run, is_users_file, locals_of
from leafwise.cli.program_recorder import writing_faults

_LEAST_SECONDS: Final = 1e-3
_LEAST_BYTES: Final = 2**20
_WRAPPERS: Final = ("equinox._jit", "jax._src.traceback_util")


class CallCosts:
    """Measures the first call of each function at each line."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._seen = set[Any]()  # two functions of one name at one line count as one

    def note(self, event: Event, frame: types.FrameType | None) -> None:
        """Measure the call that is traced, if it is a first one; the user's frame makes it."""
        call, key = next(iter(running_calls()), None), (event.name, event.site)
        if call is None or frame is None or not call.runs or key in self._seen:
            return
        self._seen.add(key)
        record, arguments = CallRecord(event.name, SiteRecord.of(event.site)), _dynamic(call)
        _measure(record, arguments)
        variables = _variables(frame)
        copied = dict[str, Any]()
        for argument in arguments:
            arrays = _arrays(argument)
            names = [name for name, value in variables.items() if value is argument]
            if names and sum(array.nbytes for array in arrays) >= _LEAST_BYTES:
                copied[names[-1]] = [(weakref.ref(array), _sample(array)) for array in arrays]
        if copied or record.nodes:
            at_next_run(frame, functools.partial(self._again, record, copied))

    def _again(self, record: CallRecord, copied: dict[str, Any], frame: types.FrameType) -> None:
        """Record what the next run of the line costs, too."""
        with writing_faults(self._write, record.function):
            variables = _variables(frame)
            for name, before in copied.items():
                arrays = _arrays(variables.get(name))
                pairs = zip(before, arrays, strict=False)
                is_same = all(
                    ref() is array and old == _sample(array) for (ref, old), array in pairs
                )
                if is_same and len(before) == len(arrays):
                    record.copied[name] = sum(array.nbytes for array in arrays)
            if record.copied or record.nodes:
                self._write(call=to_json(record))


def _variables(frame: types.FrameType) -> dict[str, Any]:
    variables = frame.f_globals | locals_of(frame)
    attributes = getattr(variables.get("self"), "__dict__", {})
    return variables | {f"self.{name}": value for name, value in attributes.items()}


def _dynamic(call: RunningCall) -> list[Any]:
    """Return the arguments that are flattened; `eqx.filter_jit` passes on the parts of its own."""
    statics = StaticArguments(*call.statics)
    left_out = {*statics.resolved(len(call.args)), *statics.names}
    args, kwargs, frame = call.args, call.kwargs, call.frame
    while frame is not None and frame.f_globals.get("__name__") in _WRAPPERS:
        if frame.f_code.co_name == "__call__":
            args, kwargs, left_out = frame.f_locals["args"], frame.f_locals["kwargs"], set()
        frame = frame.f_back
    every: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    return [value for key, value in every.items() if key not in left_out]


def _arrays(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, np.ndarray)]


def _sample(array: np.ndarray[Any, Any]) -> bytes:
    """Return some of the contents: a buffer that each step fills is not the same array."""
    return array.flat[:: max(1, array.size // 4096)].tobytes()


def _measure(record: CallRecord, tree: Any) -> None:
    """Add how long flattening takes, and the class that takes most of that, if it is long."""
    seconds = math.inf
    for _ in range(5):
        seconds = min(seconds, _seconds(jax.tree.flatten, [tree]))
        if seconds < _LEAST_SECONDS:
            return
    structure: Any = jax.tree.structure(tree)
    record.seconds, record.nodes = seconds, structure.num_nodes
    flatten: Any = jax.tree_util.default_registry.flatten_one_level
    instances, todo = defaultdict[type, list[Any]](list), [tree]
    for node in todo:
        if (level := flatten(node)) is not None:  # not a leaf
            instances[type(node)].append(node)
            todo += level[0]
    spent = {cls: min(_seconds(flatten, of) for _ in range(3)) for cls, of in instances.items()}
    cls = max(spent, key=spent.__getitem__)
    record.share, record.by = min(1.0, spent[cls] / seconds), cls.__qualname__
    code: types.CodeType | None = getattr(flattener_of(cls), "__code__", None)
    if code is not None and is_users_file(code.co_filename):
        record.by, record.where = code.co_qualname, f"{code.co_filename}:{code.co_firstlineno}"


def _seconds(function: Callable[[Any], Any], arguments: list[Any]) -> float:
    """Return the CPU time of calling a function with each of some arguments."""
    began = time.thread_time()
    for argument in arguments:
        function(argument)
    return time.thread_time() - began
