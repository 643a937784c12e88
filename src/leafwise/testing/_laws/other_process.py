"""A second process that unpickles instances before their classes have been used.

Run as a program, it answers requests on standard input until that is closed. Strings have
different hashes there.
"""

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Final, NamedTuple

from leafwise._objects.locks import new_lock
from leafwise.errors import message_of


class UnpickleRequest(NamedTuple):
    """Pickles of an instance, before and after it was hashed, and of its aux_data if it pickles."""

    paths: list[str]
    module: str
    names: tuple[str, ...]
    pickles: list[bytes]


class Answer(NamedTuple):
    """The answer: the instance pickled again, or a problem, with its path and fix."""

    missing: str = ""
    path: str = ""
    problem: str = ""
    back: bytes = b""
    fix: str = ""


class UnpicklingProcess:
    def __init__(self) -> None:
        self._lock = new_lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: UnpickleRequest) -> Answer:
        """Send a request and return the answer; raise EOFError if the process ends."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = _start()
            process: Any = self._process
            # A module may block when imported.
            timer = threading.Timer(120, process.kill)
            timer.daemon = True
            timer.start()
            try:
                pickle.dump(tuple(request), process.stdin)
                process.stdin.flush()
                return Answer(*pickle.load(process.stdout))  # noqa: S301  # of our own program
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self.close()
                raise EOFError from error
            finally:
                timer.cancel()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError), process:
                process.kill()


def _start() -> "subprocess.Popen[bytes]":
    # Requests bring the paths of the user's modules, whose `code.py` must not hide Python's.
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    settings = {
        "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAX_PLATFORMS": "cpu",  # an accelerator may allow only one process
    }
    return subprocess.Popen(  # our own program
        [sys.executable, "-P", "-W", "ignore", "-m", "leafwise.testing._laws.other_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **settings},
    )


PROCESS: Final = UnpicklingProcess()
"""The process that all checks share."""
atexit.register(PROCESS.close)


def folder_of(module: str) -> list[str]:
    """Return the folder that a module can be imported from, if its file and name show it."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file:
        return []
    path = Path(file).resolve()
    parts = module.split(".")
    above = path.parent.parents if path.name == "__init__.py" else path.parents
    return [str(above[len(parts) - 1])] if len(parts) <= len(above) else []


def _answer(request: UnpickleRequest) -> Answer:
    # As in the asking process, the user's paths come first, once JAX is imported.
    sys.path[:0] = [path for path in request.paths if path not in sys.path]
    try:
        __import__(request.module)
    except BaseException as error:  # noqa: BLE001  # it may call sys.exit
        return Answer(missing=f"{type(error).__name__}: {message_of(error)}")
    try:
        before, after, *aux = map(pickle.loads, request.pickles)
    except ImportError as error:
        return Answer(missing=message_of(error))
    except BaseException as error:  # noqa: BLE001  # user code
        last = traceback.format_exception_only(error)[-1].strip()
        return Answer(problem=f"it does not unpickle: {last}")
    try:
        path, problem, fix = _compare(before, after, aux, request.names)
        return Answer("", path, problem, pickle.dumps(before), fix)
    except BaseException as error:  # noqa: BLE001  # user code
        text = f"{type(error).__name__}: {message_of(error)}"
        return Answer(problem=f"after it was unpickled: {text}")


def _compare(before: Any, after: Any, aux: list[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return where an instance differs from one hashed in the first process, how, and the fix."""
    import jax  # noqa: PLC0415  # the class's module has imported it

    flatten: Any = jax.tree_util.default_registry.flatten_one_level
    levels: list[Any] = [flatten(before), flatten(after)]
    if None in levels:
        problem = "it is not a pytree: importing its module does not register the class"
        return "", problem, "register the class in the module that defines it"
    own = [(name, getattr(before, name, None), getattr(after, name, None)) for name in names]
    own += [("", levels[0][1], other) for other in (levels[1][1], *aux)]
    for name, one, other in (*own, ("", *map(jax.tree_util.tree_structure, (before, after)))):
        hashes: set[int] = set()
        for value in (one, other):
            with contextlib.suppress(TypeError):
                hashes.add(hash(value))
        if len(hashes) > 1 and one == other:
            why = "one is of an id, or was computed before pickling"
            fix = "hash what == compares, and pickle no hash: it differs from process to process"
            return name, f"equal values have two hashes: {why}", fix
    return "", "", ""


def main() -> None:
    """Answer requests; redirect what user code prints."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    __import__("jax")
    while True:
        try:
            request = UnpickleRequest(*pickle.load(sys.stdin.buffer))  # noqa: S301  # of our own program
        except EOFError:
            return
        pickle.dump(tuple(_answer(request)), answers)
        answers.flush()


if __name__ == "__main__":
    main()
