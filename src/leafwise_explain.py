"""What `leafwise explain` runs in each Python process, before its script begins.

`leafwise-explain.pth` lies in ``site-packages``: Python reads it when it starts, and calls `start`
if the environment has ``LEAFWISE_EXPLAIN``, the folder for the records of each process. What
remains is a finder in `sys.meta_path` that waits for JAX. Nothing is imported here that Python does
not load by itself, and the script does not find this module among its own.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` would be one more module that the script finds
if TYPE_CHECKING:
    import types
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any

VARIABLE = "LEAFWISE_EXPLAIN"
_LIGHT = ("leafwise.errors", "leafwise.cli", "leafwise.cli.notebook")
"""The modules of leafwise that do without JAX, and are imported in a script."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def start() -> None:
    """Wait for JAX to be imported in this process, and record from then on."""
    del sys.modules[__name__]
    # Its children may run in another folder.
    folder = os.environ[VARIABLE] = os.path.abspath(os.environ[VARIABLE])  # noqa: PTH100
    # In a virtual environment `site` reads the folder twice.
    if all(type(each).__module__ != __name__ for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder(folder))


def write(folder: str, **record: object) -> None:
    """Append a record to the file of this process, which has its rank and its number.

    The file is closed each time. So the script gets the file descriptors that it would get without
    us, a forked child has a file of its own, and what is written outlives any end of the process.
    """
    try:
        # Not in every Python, but where there is something to record. `json.dumps` is what
        # scripts put another library in the place of.
        from json.encoder import JSONEncoder  # noqa: PLC0415

        line = JSONEncoder().encode(record).encode() + b"\n"
        rank = next((os.environ[each] for each in _RANKS if each in os.environ), "")
        name = f"{folder}/rank{rank}-{os.getpid()}.jsonl"
        file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except Exception:  # noqa: BLE001, S110  # the report is done, the disk is full, `os` is patched
        pass


def _record(folder: str) -> None:
    """Begin to record: JAX is there."""
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    except OSError as error:
        text = f"leafwise: {VARIABLE}={folder}: {error.strerror}: nothing is recorded\n"
        sys.stderr.write(text)
        return
    try:
        from leafwise.cli import recording  # noqa: PLC0415

        recording.start(folder, write)
    except Exception as error:  # noqa: BLE001  # the script goes on, and the report says it
        write(folder, fault=f"{type(error).__name__}: {error}")


class _Finder:
    """Finds modules as the other finders do, and begins to record once JAX is loaded."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: "Any" = None, target: "types.ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name.startswith("leafwise.") and name not in _LIGHT and "jax" not in sys.modules:
            # JAX first: what records is imported after it, and this module would be half done.
            try:  # noqa: SIM105  # `contextlib` is not there yet
                __import__("jax")
            except ImportError:
                pass
        if name != "jax" or not self.folder:  # loaded again
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            found: ModuleSpec | None = None if find is None else find(name, path, target)
            if found is not None:
                loader: Any = _Loader(found.loader, self._act)
                found.loader = loader
                return found
        return None

    def _act(self) -> None:
        folder, self.folder = self.folder, ""
        if folder:
            _record(folder)


class _Loader:
    """The loader of a module, and what to do once the module is loaded."""

    def __init__(self, loader: "Any", action: "Callable[[], None]") -> None:
        self.loader = loader
        self.action = action

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.loader, name)

    def exec_module(self, module: "types.ModuleType") -> None:
        spec: Any = module.__spec__
        spec.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.action()


# Python keeps its import system out of tracebacks, and out of the count of frames by which a
# warning finds its line: it goes by the name of the file.
_Loader.exec_module.__code__ = _Loader.exec_module.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)
