"""The code that `leafwise explain` runs in each Python process before its script starts.

Python reads `leafwise-explain.pth` in ``site-packages`` when it starts, and calls `start` if the
environment has ``LEAFWISE_EXPLAIN``, the folder for the records of each process. `start` adds a
finder to `sys.meta_path` that waits for JAX. This module imports only what Python itself loads when
it starts. Nothing in the folder is read here: others may write there.
"""

import os
import sys

TYPE_CHECKING = False  # importing `typing` would change what the script finds in `sys.modules`
if TYPE_CHECKING:
    import types
    from typing import Any

VARIABLE = "LEAFWISE_EXPLAIN"
OPTIONS = "LEAFWISE_EXPLAIN_OPTIONS"
"""The options of the command as JSON, with the `FOLDER` they are for and the file `CHANGED`."""

FOLDER, CHANGED = "folder", "changed file"
LOST = "lost"
"""The file in the folder of records whose size is the number of records that are missing."""

changed: "dict[str, str]" = {}
"""Changed source texts, by the real path of their file, for `--try`; read from `CHANGED`."""

served: "set[str]" = set()
"""The files of which this process runs the changed text."""

_LIGHT = {
    *("leafwise.__main__", "leafwise.errors", "leafwise.cli"),
    *("leafwise.cli.notebook", "leafwise.cli.streams"),
}
"""The modules of leafwise that a script may import before JAX: they do not use it."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def start() -> None:
    """Wait until this process imports JAX, and record from then on."""
    # Child processes may run in another folder.
    folder = os.environ[VARIABLE] = os.path.abspath(os.environ[VARIABLE])  # noqa: PTH100
    # In a virtual environment `site` reads `site-packages` twice.
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        text = os.environ.get(OPTIONS, "{}")  # before the script changes it
        sys.meta_path.insert(0, _Finder(folder, text))
        if f'"{CHANGED}"' in text:  # without `json`, which loads others
            file = _options_for(folder, text).get(CHANGED, "")
            if os.path.exists(file):  # noqa: PTH110  # not after the run
                _serve_changed(file)


def stop() -> None:
    """Record neither this process nor its children, which only show what others recorded."""
    os.environ.pop(VARIABLE, None)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


def _options_for(folder: str, text: str) -> "dict[str, Any]":
    """Return the options of the command that has made a folder; empty for a folder of the user."""
    import json  # noqa: PLC0415  # not always loaded

    options: dict[str, Any] = json.loads(text)
    return options if options.get(FOLDER) == folder else {}


def _serve_changed(file: str) -> None:
    """Make imports compile the changed texts in place of the files, which stay as they are."""
    import json  # noqa: PLC0415
    import linecache  # noqa: PLC0415
    from importlib.machinery import SourceFileLoader  # noqa: PLC0415

    with open(file, encoding="utf-8") as opened:  # noqa: PTH123
        changed.update(json.load(opened))
    loader: Any = SourceFileLoader
    get_code = loader.get_code

    def get_changed_code(self: SourceFileLoader, name: str) -> "Any":
        text: Any = changed_text(self.path)
        if text is None:
            return get_code(self, name)
        linecache.cache[self.path] = len(text), None, text.splitlines(keepends=True), self.path
        return self.source_to_code(text, self.path)

    loader.get_code = get_changed_code


def changed_text(path: "str | os.PathLike[str]") -> "str | None":
    """Return the changed text of a file, which is going to run."""
    real = os.path.realpath(path)
    text = changed.get(real)
    served.update({real} if text is not None else ())
    return text


def runs_old_text(path: str) -> bool:
    """Return whether a file runs as it is on disk, although a changed text was given for it."""
    return os.path.realpath(path) in changed.keys() - served if changed else False


def write(folder: str, **record: object) -> None:
    """Append a record to the file of this process, named after its rank and process id.

    The file is closed each time: a forked child gets its own file, and the records survive however
    the process ends.
    """
    import json  # noqa: PLC0415  # not always loaded

    try:
        # The line before may have been cut off: that one is counted when it is read.
        line = b"\n" + json.dumps(record).encode()
        rank = next((os.environ[name] for name in _RANKS if name in os.environ), "")
        name = f"{folder}/rank{rank}-{os.getpid()}.jsonl"
        file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            is_lost = os.write(file, line) <= 1
        finally:
            os.close(file)
    except OSError:  # no room, no descriptor, no folder
        is_lost = True
    if is_lost:
        _count_lost(f"{folder}/{LOST}")


def _count_lost(file: str) -> None:
    """Add one to the size of a file, which needs neither room on the disk nor a descriptor."""
    try:
        os.truncate(file, os.stat(file).st_size + 1)  # noqa: PTH116
    except OSError:
        try:  # noqa: SIM105  # `contextlib` is not loaded yet
            os.unlink(file)  # noqa: PTH108  # then the number is not known
        except OSError:  # the report is done
            pass


def _record(folder: str, options: "dict[str, Any]") -> None:
    """Start recording, now that JAX is imported."""
    try:
        if not options:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            os.close(os.open(f"{folder}/{LOST}", os.O_CREAT | os.O_WRONLY, 0o600))
        elif not os.path.isdir(folder):  # noqa: PTH112  # the report is done
            return
    except OSError as error:
        text = f"leafwise: {VARIABLE}={folder}: {error.strerror}: nothing is recorded\n"
        sys.stderr.write(text)
        _count_lost(f"{folder}/{LOST}")
        return
    try:
        from leafwise.cli import recorder  # noqa: PLC0415

        recorder.start(folder, write, options, runs_old_text)
    except Exception as error:  # noqa: BLE001  # the script goes on, and the report shows the error
        write(folder, fault=f"{type(error).__name__}: {error}")


class _Finder:
    """Leaves modules to the other finders, and starts recording once JAX is loaded."""

    def __init__(self, folder: str, options: str) -> None:
        self.folder, self.options = folder, options

    def find_spec(self, name: str, *_: object) -> "Any":
        if name.startswith("leafwise.") and name not in _LIGHT:
            # JAX first: the recorder is imported right after it, when this module must be complete.
            try:  # noqa: SIM105  # `contextlib` is not loaded yet
                __import__("jax")
            except ImportError:
                pass
        if name != "jax":
            return None
        from importlib.util import find_spec  # noqa: PLC0415  # not always loaded

        sys.meta_path.remove(self)
        try:
            spec: Any = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)  # it may only have been asked whether there is JAX
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module: "types.ModuleType") -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _record(self.folder, _options_for(self.folder, self.options))

            spec.loader.exec_module = exec_module
        return spec


if __name__ == "__main__":  # runs a script with changed text as `python` would
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])  # noqa: PTH100
    sys.path[0] = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    spec: "Any" = spec_from_loader("__main__", SourceFileLoader("__main__", path))
    module: "Any" = module_from_spec(spec)
    sys.modules["__main__"], module.__package__, module.__spec__ = module, None, None
    exec(spec.loader.get_code("__main__"), vars(module))  # noqa: S102
