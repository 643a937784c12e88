"""Edits of the user's files, the patch that they make, and whether git could take it back."""

import ast
import contextlib
import difflib
import functools
import io
import itertools
import json
import os
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from leafwise._objects.call_site import is_users_file
from leafwise.cli.notebook import cells_of


class Code:
    """A file of Python, or the cells of a notebook as one: its text in UTF-8, and its tree."""

    def __init__(self, path: str) -> None:
        self.path, self.data = path, Path(path).read_bytes()
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(self.data).readline)
        text = self.data.decode(self.encoding)
        self.is_notebook = path.endswith(".ipynb")
        if self.is_notebook:
            text = BETWEEN.decode().join(source for _, source in cells_of(Path(path)))
        self.text = text.encode()  # in which `ast` counts columns
        self.tree = ast.parse(re.sub(r"(?m)^[%!]", "#", text))  # without magics
        self.nodes = list(ast.walk(self.tree))
        self.starts = [0, *itertools.accumulate(map(len, self.text.splitlines(keepends=True)))]
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.defined: dict[str, str] = {}  # by edits

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what is around a node, from the inside."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends."""
        start, end = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset

    def text_of(self, node: ast.AST) -> str:
        """Return the source of a node."""
        start, end = self.span(node)
        return self.text[start:end].decode()

    def replaced(self, node: ast.AST, text: str) -> "Replacement":
        """Return the edit that puts a text in the place of a node."""
        return Replacement(self, *self.span(node), text)

    def file_with(self, text: bytes) -> str:
        """Return the file with another text; of a notebook only the cells that differ change."""
        if not self.is_notebook:
            return text.decode()
        data = self.data.decode(self.encoding)
        dump = functools.partial(json.dumps, ensure_ascii=data.isascii())
        for both in zip(self.text.split(BETWEEN), text.split(BETWEEN), strict=True):
            old, new = ([dump(line.decode()) for line in io.BytesIO(each)] for each in both)
            source = re.search(r'("source":\s*\[(\s*))' + r",\s*".join(map(re.escape, old)), data)
            if source is not None and old != new:
                lines = source[1] + f",{source[2]}".join(new)
                data = data[: source.start()] + lines + data[source.end() :]
        return data


BETWEEN: Final = b"\n\f\n"
"""What stands between two cells."""


class Replacement(NamedTuple):
    """Characters of a file that a text replaces."""

    code: Code
    start: int
    end: int
    text: str


@functools.cache
def code_of(path: str) -> Code | None:
    """Return the code of a file, named whole; None for one that is not to edit."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        return Code(path) if is_users_file(path) else None
    return None


def applied(edits: Iterable[Replacement]) -> dict[Code, bytes]:
    """Return the text of files with edits; what overlaps one behind it is left out."""
    files: dict[Code, bytes] = {}
    reached: dict[Code, int] = {}
    for each in sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
        if each.end <= reached.get(each.code, each.end):
            text = files.get(each.code, each.code.text)
            files[each.code] = text[: each.start] + each.text.encode() + text[each.end :]
            reached[each.code] = each.start
    return files


def diff(files: Mapping[Code, bytes]) -> bytes:
    """Return a unified diff of files, which `git apply` takes."""
    lines: list[bytes] = []
    for code, text in files.items():
        name = Path(os.path.relpath(code.path)).as_posix().encode()
        data = code.file_with(text).encode(code.encoding)
        old, new = (io.BytesIO(each).readlines() for each in (code.data, data))
        lines += difflib.diff_bytes(difflib.unified_diff, old, new, b"a/" + name, b"b/" + name)
    last = b"\n\\ No newline at end of file\n"
    return b"".join(each if each.endswith(b"\n") else each + last for each in lines)


def shown(files: Mapping[Code, bytes]) -> list[str]:
    """Return the changed lines of files, with what stands between them."""
    lines: list[str] = []
    for code, text in files.items():
        old, new = (each.decode().replace("\r", "").split("\n") for each in (code.text, text))
        _, _, *changes = difflib.unified_diff(old, new, n=1)
        lines += [f"{each[0]} {each[1:]}" for each in changes if not each.startswith("@@")]
    changed = [at for at, each in enumerate(lines) if each[0] != " "]
    return lines[changed[0] : changed[-1] + 1]


def uncommitted(files: Iterable[str]) -> str:
    """Return why files are not to be written: git could not bring one back."""
    for path in map(Path, files):
        git = ["git", "-C", f"{path.parent}", "status", "--porcelain", "--ignored", "--", path.name]
        with contextlib.suppress(OSError):  # there is no git
            done = subprocess.run(git, check=False, capture_output=True)  # noqa: S603
            if not (done.returncode or done.stdout):
                continue
        return f"{os.path.relpath(path)} has uncommitted changes: commit them, or use --force"
    return ""
