"""A file of the user is the old one or the new one, whatever happens, and nobody's text is lost."""

import contextlib
import functools
import io
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Any, Final

import numpy as np
import pytest
from tests.kit.inside import Code, main, trial

from leafwise._objects.files import NewFile, is_writable, write_files

OLD, THEIRS = b"old = 1\n", b"what somebody else has saved\n"


def patch(*files: Path) -> Callable[[], object]:
    """Return what writes a patch for the scripts or notebooks as they are now."""
    codes = [Code(str(file)) for file in files]
    texts = {code: code.text.replace(b"old", b"new") for code in codes}

    def write() -> None:
        if problem := trial.write_patch(texts):
            raise OSError(problem)

    return write


def report(file: Path) -> Callable[[], object]:
    return functools.partial(main._write, str(file), "new = 1")


def checkpoint(file: Path) -> Callable[[], object]:
    safetensors = pytest.importorskip("leafwise.interop.safetensors")
    return functools.partial(safetensors.save, {"w": np.ones(300)}, file)


NOTEBOOK: Final = b'{"cells": [{"cell_type": "code", "source": ["old = 1\\n"]}]}'
# What is written; the old files.
WRITES: Final[dict[str, tuple[Callable[..., Callable[[], object]], dict[str, bytes]]]] = {
    "patch of one file": (patch, {"a.py": OLD}),
    "patch of two files": (patch, {"a.py": OLD, "b.py": OLD}),
    "patch of a notebook": (patch, {"a.ipynb": NOTEBOOK}),
    "report": (report, {"a.json": OLD}),
    "page": (report, {"a.html": OLD}),
    "checkpoint": (checkpoint, {"a.safetensors": OLD}),
}
PATCHES: Final = [kind for kind in WRITES if "patch" in kind]
OF_OS: Final = ("open", "close", "stat", "access", "chmod", "utime", "link", "replace", "unlink")
CALLS: Final = [(io, "open"), (os, "fsync"), *((os, name) for name in OF_OS)]


class Folder:
    """Old files, and a write with a fault before the system call of a number."""

    def __init__(self, folder: Path, kind: str, number: int = 0) -> None:
        make, old = WRITES[kind]
        folder.mkdir()
        self.path, self.files = folder, [folder / name for name in old]
        self.old = [*old.values()]
        for file, content in zip(self.files, self.old, strict=True):
            file.write_bytes(content)
        self.write = make(*self.files)
        self.called, self.number, self.numbers = "", number, itertools.count(1)
        self.is_saved = False

    @property
    def contents(self) -> list[bytes]:
        return [file.read_bytes() for file in self.files]

    def run(self, fault: Callable[["Folder"], object]) -> BaseException | None:
        """Write; return what was raised."""

        def with_fault(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                if next(self.numbers) == self.number:
                    self.called = name
                    fault(self)
                return call(*args, **kwargs)

            return run

        with pytest.MonkeyPatch.context() as patched:
            for module, name in CALLS:
                patched.setattr(module, name, with_fault(name, getattr(module, name)))
            try:
                self.write()
            except BaseException as error:  # noqa: BLE001  # Ctrl-C is one of the faults
                return error
        return None


def fail(error: BaseException) -> None:
    raise error


def save(folder: Folder, *, by_renaming: bool = False) -> None:
    """Save another text, as editors do."""
    file = folder.path / "theirs" if by_renaming else folder.files[-1]
    file.write_bytes(THEIRS)
    file.rename(folder.files[-1])
    folder.is_saved = True


ERROR: Final = OSError(30, "Read-only file system")
FAULTS: Final[dict[str, Callable[[Folder], object]]] = {
    "error": lambda _: fail(ERROR),
    "Ctrl-C": lambda _: fail(KeyboardInterrupt()),
    "killed": lambda _: os._exit(9),
    "saved": save,
    # Nothing shows what is renamed just before ours is.
    "renamed": lambda folder: folder.called == "replace" or save(folder, by_renaming=True),
    "saved, and an error": lambda folder: [save(folder), fail(ERROR)],
}


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("name", FAULTS)
def test_whole_or_untouched(tmp_path: Path, kind: str, name: str) -> None:
    """All files are old or all are new, whenever it happens, and what others save is kept.

    If the process is killed, each file is the old or the new one.
    """
    whole, fault = Folder(tmp_path / "whole", kind), FAULTS[name]
    assert whole.run(fault) is None
    for number in range(1, next(whole.numbers)):
        folder = Folder(tmp_path / f"{number}", kind, number)
        if name == "killed":
            with warnings.catch_warnings(action="ignore"):  # a fork next to JAX's threads
                child = os.fork()
            if not child:
                os._exit(folder.run(fault) is None)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
            either = zip(folder.contents, folder.old, whole.contents, strict=True)
            assert all(content in versions for content, *versions in either)
            continue
        raised, contents = folder.run(fault), folder.contents
        versions = [folder.old, whole.contents]
        if folder.is_saved:
            assert contents.pop() in (THEIRS, *([] if kind in PATCHES else whole.contents))
        if name != "Ctrl-C":
            versions = versions[:1] if raised else versions[1:]
        assert contents in [version[: len(contents)] for version in versions], folder.called
        assert {*folder.path.iterdir()} == {*folder.files} or folder.called == "unlink"


LIMITS: Final = {RLIMIT_FSIZE: getrlimit(RLIMIT_FSIZE), RLIMIT_NOFILE: getrlimit(RLIMIT_NOFILE)}


def limit(name: int, value: int) -> None:
    setrlimit(name, (value, LIMITS[name][1]))


# What is done just before a write; what is written; why it is refused. Root may write all files.
REFUSED: Final[dict[str, tuple[Callable[..., object], list[str], str]]] = {
    "disk full": (lambda *_: limit(RLIMIT_FSIZE, 3), [*WRITES], "File too large"),
    "no file": (lambda *_: limit(RLIMIT_NOFILE, 0), [*WRITES], "Too many open files"),
    "linked": (lambda file, _: os.link(file, f"{file}.b"), PATCHES, "has other hard links"),
    "removed": (lambda file, _: file.rename(f"{file}.b"), PATCHES, "No such file or directory"),
    "read-only": (lambda _, m: m.setattr(os, "access", lambda *_: False), PATCHES, "is read-only"),
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in REFUSED for kind in REFUSED[name][1]]
)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    """Nothing is written then, and the error names the file and the reason."""
    folder, (act, _, reason) = Folder(tmp_path / "folder", kind, 1), REFUSED[name]
    try:
        raised = str(folder.run(lambda _: act(folder.files[-1], monkeypatch)))
    finally:
        for each in LIMITS.items():
            setrlimit(*each)
    assert reason in raised
    assert any(file.name in raised for file in folder.files) or kind == "checkpoint"
    assert all(file.read_bytes() in folder.old for file in folder.path.iterdir())


def test_what_stays(tmp_path: Path) -> None:
    """Mode, owner, attributes and a symbolic link, for a name of any length; the time is new."""
    file, link = tmp_path / ("n" * 250), tmp_path / "link.py"
    file.write_bytes(OLD)
    link.symlink_to(file.name)
    file.chmod(0o640)
    os.utime(file, (0, 0))
    with contextlib.suppress(OSError):  # not each file system has them
        os.setxattr(file, "user.note", b"a note")
    with contextlib.suppress(OSError):  # root may give a file away
        os.chown(file, 1, 1)
    before, attributes = file.stat(), os.listxattr(file)
    write_files(NewFile(str(link), THEIRS, OLD))
    after = file.stat()
    assert link.is_symlink()
    assert file.read_bytes() == THEIRS
    assert (after.st_mode, after.st_uid, after.st_gid) == (0o100640, before.st_uid, before.st_gid)
    assert os.listxattr(file) == attributes
    assert after.st_mtime > 0


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """It is not replaced, and neither is the file that standard output goes to."""
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert is_writable(pipe)
    write_files(NewFile(pipe, b"a report"))
    assert os.read(reader, 99) == b"a report"
    os.close(reader)
    with pytest.raises(OSError, match="Not a regular file"):
        write_files(NewFile(pipe, lambda path: path.touch()))  # what writes a file at a path
    code = "from leafwise._objects.files import *; print(1, flush=True)\n"
    code += "write_files(NewFile('/dev/stdout', b'2'))"
    with (tmp_path / "out").open("w+b") as file:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
        file.seek(0)
        assert file.read() == b"1\n2"
