"""Writing files that belong to the user: each is whole or untouched, whatever happens."""

import contextlib
import errno
import itertools
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path


class NewFile:
    """A file that is to be written: its content, and what was read there if it is a change."""

    def __init__(
        self, path: str, content: bytes | Callable[[Path], object], expected: bytes | None = None
    ) -> None:
        self.path, self.content, self.expected = path, content, expected
        self.target = Path(os.path.realpath(path))
        name = f".leafwise-{os.urandom(8).hex()}"  # short, whatever the length of the file's own
        self.new, self.old = (self.target.with_name(name + end) for end in (".new", ".old"))
        self.is_stream, self.is_kept = _is_stream(path), False

    def stage(self) -> None:
        """Write the content to the disk next to the file, with the mode and owner of the file."""
        if self.is_stream:
            if callable(self.content):
                raise OSError(errno.EINVAL, "Not a regular file")
            return
        old = _status(self.target)
        self.new.touch(0o600 if old else 0o666, exist_ok=False)
        new = self.new.stat()
        _ = self.content(self.new) if callable(self.content) else self.new.write_bytes(self.content)
        self.new.chmod(new.st_mode)  # safetensors creates another file
        if old is not None:
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.chown(self.new, old.st_uid, old.st_gid)
            shutil.copystat(self.target, self.new)
            os.utime(self.new)
        with self.new.open("rb+") as file:  # not if the old one is read-only
            os.fsync(file.fileno())

    def compare(self) -> None:
        """Refuse to change what others have saved, in the file or in the old one that is kept."""
        if self.expected is not None:
            current = self.old if self.is_kept else self.target
            if current.read_bytes() != self.expected:
                raise OSError(errno.EBUSY, "changed while the runs went on: run it again")
            if current.stat().st_nlink > 1:
                raise OSError(errno.EMLINK, "has other hard links: use --diff")
            if not os.access(current, os.W_OK):
                raise OSError(errno.EACCES, "is read-only: use --diff")

    def replace(self) -> None:
        if self.is_stream and isinstance(self.content, bytes):
            with Path(self.path).open("ab") as stream:
                stream.write(self.content)
            return
        if self.expected is not None:
            try:
                os.link(self.target, self.old)
            except OSError:  # a file system without hard links
                shutil.copy2(self.target, self.old)
            self.is_kept = True
        self.new.replace(self.target)

    def put_back(self) -> None:
        """Undo `replace`, unless the file was saved since."""
        if self.is_kept and self.target.read_bytes() == self.content:
            self.old.replace(self.target)

    def clean(self) -> None:
        for path in (self.new, self.old):
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):  # some systems cannot
            folder = os.open(self.target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)


def write_files(*files: NewFile) -> None:
    """Replace files, all or none; an OSError has the user's name of the file.

    Mode, owner, extended attributes and symbolic links stay; pipes and devices are written to. What
    others save meanwhile is kept where something is expected, except what they put in the file's
    place just between `os.link` and `replace`, or write to the old file after the last look at it.
    If the power fails between two files, one is new and one is old.
    """
    compare = NewFile.compare
    steps = compare, NewFile.stage, compare, NewFile.replace, compare
    with contextlib.ExitStack() as stack:  # of what is done for each file, even if one fails
        for file in files:
            stack.callback(file.clean)
        try:
            for step, file in itertools.product(steps, files):
                try:
                    step(file)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, file.path) from error
        except BaseException:
            for file in files:
                stack.callback(file.put_back)
            raise


def is_writable(path: str) -> bool:
    """Return whether `write_files` may write, as far as permissions tell."""
    target = Path(os.path.realpath(path))
    may_replace = _is_stream(path) or os.access(target.parent, os.W_OK | os.X_OK)
    return may_replace and not target.is_dir() and (not target.exists() or os.access(path, os.W_OK))


def _is_stream(path: str) -> bool:
    # `/dev/stdout` may be a file, but its other writers would go on with the old one.
    is_open = path.startswith(("/dev/fd/", "/dev/std", "/proc/self/fd/"))
    status = _status(Path(path))
    return is_open or (status is not None and not stat.S_ISREG(status.st_mode))


def _status(path: Path) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat()
    return None
