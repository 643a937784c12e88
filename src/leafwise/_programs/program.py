"""A lowered program as a list of operations, for a comparison between processes or runs.

It leaves out what does not affect the program: locations, addresses, and the names of the module
and of its private functions, which have counters. Everything else counts: constants by their
bits, layouts, shardings, donated arguments.
"""

import base64
import dataclasses
import difflib
import itertools
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from leafwise._findings.json import RecordError, from_json
from leafwise._findings.records import LoweredRecord
from leafwise._findings.words import clean, without_addresses
from leafwise._jax.compiles import Compile
from leafwise._objects.locks import cached_property
from leafwise._objects.source.call_site import is_users_file, short_file
from leafwise._objects.text import sha256_of
from leafwise._statics.portable import dump

_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_PLACE: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)":(\d+):\d+')
_PRIVATE: Final = re.compile(r"  func\.func private @([\w.$-]+)")
_SYMBOL: Final = re.compile(rf"{_STRING}|@([\w.$-]+)")
_OURS: Final = re.compile(r"@(f\d+)\b")
_POINTER: Final = re.compile(r'((?:SPMDPartitioning|InspectSharding)\(.*backend_config = )"\d+"')
_LONG: Final = re.compile(r'"[^"\\]{200,}(?:\\.[^"\\]*)*"')
_VALUE: Final = re.compile(r"%[\w.$-]+(?:#\d+)?")

_MOST_BYTES: Final = 4 << 20
"""The largest compressed size of a program whose operations are recorded."""

_WINDOW: Final = 2000
"""How many operations after the first difference are aligned, in quadratic time."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """One line of a program, and the innermost line of user code that it comes from."""

    text: str
    source: str = ""

    @property
    def form(self) -> str:
        """The text without the numbers of values."""
        return _VALUE.sub("%", self.text)

    def __str__(self) -> str:
        file, _, line = self.source.rpartition(":")
        return self.text.strip() + (f"  # {short_file(file)}:{line}" if file else "")


OperationPair: TypeAlias = tuple[Operation | None, Operation | None]
"""An operation of each of two programs, or None if one lacks it."""


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """A program as JAX passes it to XLA; private functions are ``@f0``, ... in order of calls."""

    name: str
    operations: tuple[Operation, ...]
    functions: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 digest, the same in every process for the same program."""
        lines = [f"{name}: {text}" for name, text in sorted(self.options.items())]
        lines += [operation.text for operation in self.operations]
        return sha256_of("\n".join(lines).encode())

    def shown(self, operation: Operation | None) -> Operation | None:
        """Return an operation with the names of the functions that it calls."""
        if operation is None:
            return None

        def name(match: re.Match[str]) -> str:
            place = int(match[1][1:])
            return f"@{self.functions[place]}" if place < len(self.functions) else match[0]

        return dataclasses.replace(operation, text=_OURS.sub(name, operation.text))


def packed(program: LoweredProgram) -> LoweredRecord:
    """Return the record of a program with its operations compressed, or none if they are large."""
    lines = "\n".join(operation.text for operation in program.operations)
    plain = dump([[operation.text, operation.source] for operation in program.operations]).encode()
    text = base64.b64encode(zlib.compress(plain)).decode()
    return LoweredRecord(
        name=program.name,
        fingerprint=program.fingerprint,
        digest=sha256_of(lines.encode()),
        options=dict(program.options),
        functions=list(program.functions),
        packed=text if len(text) <= _MOST_BYTES else "",
    )


def unpacked(record: LoweredRecord) -> LoweredProgram | None:
    """Return the program from a record that `packed` made; None if it was too large."""
    if not record.packed:
        return None
    try:
        plain = zlib.decompress(base64.b64decode(record.packed))
        pairs = from_json(list[tuple[str, str]], json.loads(plain))
        operations = tuple(itertools.starmap(Operation, pairs))
    except (TypeError, ValueError, zlib.error) as error:
        raise RecordError(f"the operations of {clean(record.name)}: {error}") from error
    return LoweredProgram(record.name, operations, tuple(record.functions), record.options)


def read_program(compiled: Compile, options: Mapping[str, str] | None = None) -> LoweredProgram:
    """Return a program that is about to be compiled, with the options that the compile uses."""
    lines = compiled.lines()
    private = {match[1] for line, _ in lines if (match := _PRIVATE.match(line))}
    numbers: dict[str, str] = {}
    callers: dict[str, str] = {}

    def numbered(symbol: re.Match[str]) -> str:
        if symbol[1] not in private:
            return symbol[0]
        callers.setdefault(symbol[1], source)
        return numbers.setdefault(symbol[1], f"@f{len(numbers)}")

    operations: list[Operation] = []
    caller = ""
    for (line, _), own in zip(lines, _sources(lines), strict=True):
        if function := _PRIVATE.match(line):
            caller = callers.get(function[1], "")
        source = own or caller
        if line.strip() != "}":
            text = _SYMBOL.sub(numbered, _plain(line))
            operations.append(Operation(text.removeprefix("  "), source))
    return LoweredProgram(compiled.name, tuple(operations), tuple(numbers), dict(options or {}))


def _sources(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return the source line of each line: in user code, else in JAX, else that of the next."""
    sources: list[str] = []
    source = ""
    for line, location in reversed(lines):
        places = _PLACE.findall(location)
        users = (place for place in places if is_users_file(place[0]))
        source = ":".join(next(users, places[0] if places else ())) or source
        sources.append(source)
        if line.startswith("  func.func "):
            source = ""
    return sources[::-1]


def first_differences(one: LoweredProgram, other: LoweredProgram) -> list[OperationPair]:
    """Return up to three first operations that differ in more than their operands' numbers."""
    sides = one.operations, other.operations
    same = next(
        (place for place, (a, b) in enumerate(zip(*sides, strict=False)) if a.text != b.text),
        min(map(len, sides)),
    )
    left, right = (side[same : same + _WINDOW] for side in sides)
    pairs: list[OperationPair] = []
    forms = [[operation.form for operation in side] for side in (left, right)]
    matcher = difflib.SequenceMatcher(None, forms[0], forms[1], autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag != "equal":
            pairs += itertools.zip_longest(left[start:end], right[other_start:other_end])
    if left and right:  # the first pair, even if only its operands differ
        pairs[:1] = [(left[0], right[0])]
    pairs.sort(key=lambda pair: all(map(_follows, pair)))
    return [(one.shown(before), other.shown(after)) for before, after in pairs[:3]]


def _follows(operation: Operation | None) -> bool:
    return operation is None or operation.text.lstrip().startswith(("func.func", "return "))


def _plain(line: str) -> str:
    """Return a line without text that differs between equal programs; long strings by digest."""
    if " at 0x" in line:
        line = without_addresses(line)
    if "backend_config" in line:
        line = _POINTER.sub(r'\1""', line)
    if len(line) > len('""') + 200:
        line = _LONG.sub(lambda text: f'"sha256:{sha256_of(text[0].encode())}"', line)
    return line
