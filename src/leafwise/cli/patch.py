"""Edits of the user's files, the patch that they make, and whether git could take it back."""

import ast
import difflib
import functools
import io
import os
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from leafwise._objects.call_site import is_users_file


class Code:
    """A file of Python: its text with the line ends that it has, and its tree."""

    def __init__(self, path: str) -> None:
        self.path, self.data = path, Path(path).read_bytes()
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(self.data).readline)
        self.text = self.data.decode(self.encoding)
        self.tree = ast.parse(self.text)
        self.nodes = list(ast.walk(self.tree))
        self._lines = list(io.StringIO(self.text, newline=""))  # as Python counts them
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.defined: dict[str, str] = {}  # by edits

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what is around a node, from the inside."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends."""
        ends = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        start, end = (
            sum(map(len, self._lines[: line - 1]))
            + len(self._lines[line - 1].encode()[:column].decode())
            for line, column in ends
        )
        return start, end

    def text_of(self, node: ast.AST) -> str:
        """Return the source of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def replaced(self, node: ast.AST, text: str) -> "Edit":
        """Return the edit that puts a text in the place of a node."""
        return Edit(self, *self.span(node), text)


class Edit(NamedTuple):
    """Characters of a file that a text replaces."""

    code: Code
    start: int
    end: int
    text: str


Files: TypeAlias = Mapping[Code, bytes]
"""What files have, once they are edited."""


@functools.cache
def code_of(file: str) -> Code | None:
    """Return the code of a file that a report names in short; None for one that is not to edit."""
    path = os.path.abspath(file)  # noqa: PTH100
    try:
        return Code(path) if is_users_file(path) else None
    except (OSError, SyntaxError, ValueError):
        return None


def applied(edits: Iterable[Edit]) -> Files:
    """Return what files have with edits; one that overlaps an earlier one is left out."""
    kept: dict[Code, list[Edit]] = {}
    for each in dict.fromkeys(edits):
        others = kept.setdefault(each.code, [])
        if all(each.end <= other.start or other.end <= each.start for other in others):
            others.append(each)
    files: dict[Code, bytes] = {}
    for code, several in kept.items():
        text = code.text
        for each in sorted(several, key=lambda edit: (edit.start, edit.end), reverse=True):
            text = text[: each.start] + each.text + text[each.end :]
        files[code] = text.encode(code.encoding)
    return files


def diff(files: Files, context: int = 3) -> bytes:
    """Return a unified diff of files, which `git apply` takes."""
    lines: list[bytes] = []
    for code, data in files.items():
        name = Path(os.path.relpath(code.path)).as_posix().encode()
        old, new = (re.findall(rb"[^\n]*\n|[^\n]+", each) for each in (code.data, data))
        both = (old, new, b"a/" + name, b"b/" + name)
        lines += difflib.diff_bytes(difflib.unified_diff, *both, n=context)
    last = b"\n\\ No newline at end of file\n"
    return b"".join(each if each.endswith(b"\n") else each + last for each in lines)


def shown(files: Files) -> list[str]:
    """Return the changed lines of files, with what stands between them."""
    text = diff(files, context=1).decode(errors="replace")
    lines = [each.rstrip("\r") for each in text.split("\n") if each]
    lines = [each for each in lines if not each.startswith(("--- a/", "+++ b/", "@@ "))]
    changed = [at for at, each in enumerate(lines) if each.startswith(("+", "-"))]
    return [f"{each[0]} {each[1:]}" for each in lines[changed[0] : changed[-1] + 1]]


def uncommitted(files: Iterable[str]) -> str:
    """Return why files are not to be written: git could not bring one back."""
    for path in files:
        folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
        command = ["git", "-C", folder, "status", "--porcelain", "--ignored", "--", name]
        try:
            done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603
            is_clean = not (done.returncode or done.stdout)
        except OSError:  # there is no git
            is_clean = False
        if not is_clean:
            return f"{os.path.relpath(path)} has uncommitted changes: commit them, or use --force"
    return ""
