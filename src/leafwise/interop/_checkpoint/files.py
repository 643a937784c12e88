"""The files of a checkpoint, read as a stranger's: whatever is wrong is an error that names one."""

import collections
import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from leafwise._objects.text import shorten
from leafwise.errors import CheckpointError

_FIX: Final = "restore another copy of it, or save the tree again"


def damaged(where: str, what: str) -> CheckpointError:
    """Return the error that a file is not what was written."""
    return CheckpointError(f"{where}: damaged: {what}\n  fix: {_FIX}")


@contextlib.contextmanager
def reading(where: object) -> Generator[None, None, None]:
    """Let what the system says of a file be an error of ours.

    Raises:
        CheckpointError: The file cannot be read.
        FileNotFoundError: There is none.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{where}: cannot be read: {error}\n  fix: let this process read it"
        ) from error


def open_file(path: Path) -> BinaryIO:
    """Open a file.

    Raises:
        CheckpointError: It is something else, or cannot be read.
        FileNotFoundError: There is none.
    """
    if "://" not in str(path):
        path = Path(path)  # one of etils, for which a pipe is a file
    with reading(path):
        if path.is_file():  # to open a pipe would wait for somebody who writes
            return path.open("rb")
        if path.exists() or Path(path).is_symlink():
            raise CheckpointError(f"{path}: not a file, but {_kind(path)}\n  fix: {_FIX}")
    raise FileNotFoundError(f"there is no file {path}")


def _kind(path: Path) -> str:
    if Path(path).is_symlink():  # a path of etils cannot say it
        return "a link that leads to no file"
    return "a folder" if path.is_dir() else "a device or a pipe"


def read_file(path: Path) -> bytes:
    """Return what is in a file; errors as `open_file`."""
    with open_file(path) as file, reading(path):
        return file.read()


def read_json(text: str | bytes, where: str) -> Any:
    """Return what `json.dumps` wrote: of UTF-8, no name twice, no NaN.

    Raises:
        CheckpointError: It is something else.
    """
    try:
        plain = str(text, "utf-8") if isinstance(text, bytes) else text
        return json.loads(plain, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"its JSON cannot be read: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{shorten(twice)} occurs twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def leads_outside(name: str) -> bool:
    """Return whether a name could mean a file that is not in the folder, on some system."""
    strange = not name.isprintable() or "\\" in name or ":" in name
    return strange or bool({"", ".", ".."} & set(name.split("/")))
