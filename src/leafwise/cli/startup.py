"""What `leafwise explain` runs in each Python process of a script, before the script begins.

Python runs it as a part of `site`: the folder of the records has a `sitecustomize` (`SITE`), and
stands first in ``PYTHONPATH``. By the time that the script begins, both are as they would be
without us, and so are `sys.modules` and `sys.path`. What remains is a finder in `sys.meta_path`
that waits for JAX, and functions around those of `os` that start processes. Nothing is imported
here that Python does not load by itself.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` would be one more module that the script finds
if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

SITE = """\
import _frozen_importlib_external, sys
del sys.modules["sitecustomize"]
space = {{"__name__": "leafwise.cli.startup"}}
loader = _frozen_importlib_external.SourceFileLoader("leafwise.cli.startup", {file!r})
exec(loader.get_code("leafwise.cli.startup"), space)
space["start"]({folder!r}, {package!r})
import sitecustomize  # the one of this environment; `site` expects the error if there is none
"""

_VARIABLE = "PYTHONPATH"
_ISOLATED = "IES"
"""The options with which Python does not read that variable, or does not run `site`."""

_LIGHT = ("leafwise.errors", "leafwise.cli", "leafwise.cli.notebook")
"""The modules of leafwise that do without JAX, and are imported in a script."""


def options_of(command: "Sequence[str]") -> list[list[str]]:
    """Return the interpreter's own options of a command line, one by one, each with its value."""
    found: list[list[str]] = []
    rest = list(command[1:])
    while rest and rest[0][:1] == "-" and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        if word.startswith("--"):  # --check-hash-based-pycs
            found.append([word, *rest[:1]])
            del rest[:1]
            continue
        for at, letter in enumerate(word[1:], 2):
            if letter in "cm":
                return found
            if letter in "WX":
                found.append([f"-{letter}{word[at:]}", *([] if word[at:] else rest[:1])])
                del rest[: not word[at:]]
                break
            found.append([f"-{letter}"])
    return found


def _is_python(program: str) -> bool:
    """Return whether a program is a Python, by its name: ``/usr/bin/python3.13``."""
    name = program.rpartition("/")[2].rstrip(".0123456789tw")
    return program == sys.executable or (name == "python" and not os.path.isdir(program))  # noqa: PTH112


def watched(environment: "Mapping[Any, Any]", folder: str) -> dict[str, str]:
    """Return an environment in which Python finds the folder first."""
    found = {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()}
    old = found.get(_VARIABLE)
    # An empty variable is not the same as none: a slash stands for it.
    rest = "" if old is None else os.pathsep + old if old else "/"
    return {**found, _VARIABLE: folder + rest}


def _hide(folder: str) -> None:
    """Let the environment and the path of this process be what they would be without the folder."""
    first, separator, rest = os.environ.get(_VARIABLE, "").partition(os.pathsep)
    if first.rstrip("/") == folder:
        if separator or first != folder:
            os.environ[_VARIABLE] = rest
        else:
            del os.environ[_VARIABLE]
    sys.path[:] = [each for each in sys.path if each.rstrip("/") != folder]
    for each in (folder, f"{folder}/"):
        sys.path_importer_cache.pop(each, None)


def start(folder: str, package: str) -> None:
    """Wait for JAX to be imported in this process, and for other processes to be started.

    Args:
        folder: Where the records go.
        package: The folder of the package `leafwise` that records.
    """
    _hide(folder)
    write(folder)  # so that this process is known to be watched
    children = _Children(folder)
    finder = _Finder({"jax": lambda: _record(folder, package), "_posixsubprocess": children.join})
    sys.meta_path.insert(0, finder)
    if "_posixsubprocess" in sys.modules:
        children.join()


def write(folder: str, **record: object) -> None:
    """Append a record to the file of this process.

    The file is closed each time. So the script gets the file descriptors that it would get without
    us, a forked child has a file of its own, and what is written outlives any end of the process.
    """
    try:
        line = b""
        if record:
            # Not in every Python, but where there is something to record. `json.dumps` is what
            # scripts put another library in the place of.
            from json.encoder import JSONEncoder  # noqa: PLC0415

            line = JSONEncoder().encode(record).encode() + b"\n"
        name = f"{folder}/{os.getpid()}.jsonl"
        file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except Exception:  # noqa: BLE001, S110  # the report is done, the disk is full, `os` is patched
        pass


def _record(folder: str, package: str) -> None:
    """Begin to record: JAX is there."""
    try:
        if "leafwise" not in sys.modules:
            # This one: the path of the script may lead to another, or to none.
            from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415

            spec: Any = spec_from_file_location("leafwise", f"{package}/__init__.py")
            sys.modules["leafwise"] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules["leafwise"])
        from leafwise.cli import recording  # noqa: PLC0415

        recording.start(folder, write)
    except Exception as error:  # noqa: BLE001  # the script goes on, and the report says it
        write(folder, fault=f"{type(error).__name__}: {error}")


class _Finder:
    """Finds modules as the other finders do, and acts once one of a few is loaded."""

    def __init__(self, actions: "dict[str, Callable[[], None]]") -> None:
        self.actions = actions

    def find_spec(
        self, name: str, path: "Any" = None, target: "types.ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name.startswith("leafwise.") and name not in _LIGHT and "jax" not in sys.modules:
            # JAX first: what records is imported after it, and this module would be half done.
            try:  # noqa: SIM105  # `contextlib` is not there yet
                __import__("jax")
            except ImportError:
                pass
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            found: ModuleSpec | None = None if find is None else find(name, path, target)
            if found is not None:
                loader: Any = _Loader(found.loader, lambda: self._act(name))
                found.loader = loader
                return found
        return None

    def _act(self, name: str) -> None:
        action = self.actions.pop(name, None)
        if action is not None:  # else it is loaded again
            action()


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


class _Children:
    """Starts processes as before; those that are Python find the folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.functions: dict[str, Any] = {}
        for name in ("posix_spawn", "posix_spawnp", "execv", "execve", "system"):
            self._wrap(os, name)

    def join(self) -> None:
        """Be what `subprocess` and `multiprocessing` start processes with."""
        module: Any = sys.modules["_posixsubprocess"]
        self._wrap(module, "fork_exec")
        if "subprocess" in sys.modules:
            user: Any = sys.modules["subprocess"]
            user._fork_exec = module.fork_exec  # noqa: SLF001

    def _wrap(self, module: "types.ModuleType", name: str) -> None:
        if not hasattr(module, name):
            return
        original = self.functions[name] = getattr(module, name)
        around = getattr(self, f"_{name}")

        def wrapper(*args: "Any", **options: "Any") -> "Any":
            return around(*args, **options)

        wrapper.__name__ = wrapper.__qualname__ = name
        wrapper.__module__, wrapper.__doc__ = original.__module__, original.__doc__
        setattr(module, name, wrapper)

    def _environment(self, program: "Any", words: "Iterable[Any]", given: "Any") -> "Any":
        """Return the environment of a command: another one for a Python that can be watched."""
        try:
            command = [os.fsdecode(each) for each in words]
            is_python = _is_python(os.fsdecode(program))
            isolated = any(option[1] in _ISOLATED for option, *_ in options_of(command))
            if is_python and not isolated:
                return watched(os.environ if given is None else given, self.folder)
            if is_python or any(_is_python(word) for each in command for word in each.split()):
                write(self.folder, unwatched=command)
        except Exception:  # noqa: BLE001, S110  # the call itself will say what is wrong with it
            pass
        return given

    def _started(self, pid: int, words: "Iterable[Any]") -> int:
        """Note the process that a command became; it says itself that it is watched."""
        write(self.folder, started=pid, command=[os.fsdecode(each) for each in words])
        return pid

    def _fork_exec(self, words: "Any", programs: "Any", *rest: "Any") -> int:
        close, keep, folder, given, *others = rest
        if given is not None:
            given = dict(each.split(b"=", 1) for each in given)
        found = self._environment(programs[0], words, given)
        lines = None
        if found is not None:
            lines = [os.fsencode(key) + b"=" + os.fsencode(found[key]) for key in found]
        pid: int = self.functions["fork_exec"](words, programs, close, keep, folder, lines, *others)
        return self._started(pid, words) if found is not given else pid

    def _posix_spawn(
        self, path: "Any", argv: "Any", env: "Any", *, _name: str = "posix_spawn", **options: "Any"
    ) -> int:
        found = self._environment(path, argv, env)
        pid: int = self.functions[_name](path, argv, found, **options)
        return self._started(pid, argv) if found is not env else pid

    def _posix_spawnp(self, path: "Any", argv: "Any", env: "Any", **options: "Any") -> int:
        return self._posix_spawn(path, argv, env, _name="posix_spawnp", **options)

    def _execv(self, path: "Any", argv: "Any") -> None:
        found = self._environment(path, argv, None)
        if found is None:
            self.functions["execv"](path, argv)
        else:
            self.functions["execve"](path, argv, found)

    def _execve(self, path: "Any", argv: "Any", env: "Any") -> None:
        self.functions["execve"](path, argv, self._environment(path, argv, env))

    def _system(self, command: "Any") -> int:
        self._environment("sh", [command], None)
        status: int = self.functions["system"](command)
        return status
