"""A lowered program as a list of operations, which two processes or two runs can compare.

Read from the text that MLIR prints with debug locations. What carries no meaning is left out: the
names of the module and of its private functions, which have counters, locations, and addresses.
Everything else counts: constants by their bits, layouts, shardings, donated arguments.
"""

import dataclasses
import difflib
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from leafwise._objects.call_site import is_users_file
from leafwise._objects.locks import cached_property

_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_ALIAS: Final = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_PLACE: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)":(\d+):\d+|(#loc\d*)')
_LOCATION: Final = re.compile(rf"{_STRING}|(\s?\bloc\()")
_PARENTHESIS: Final = re.compile(rf"{_STRING}|([()])")
_MODULE: Final = re.compile(r"^module @(\S+)")
_FUNCTION: Final = re.compile(r"^  func\.func (private )?@([\w.$-]+|\"[^\"]*\")")
_SYMBOL: Final = re.compile(rf"{_STRING}|@([\w.$-]+)")
_OURS: Final = re.compile(r"@(f\d+)\b")
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-f]{6,}")
_POINTER: Final = re.compile(r'((?:SPMDPartitioning|InspectSharding)\(.*backend_config = )"\d+"')
_LONG: Final = re.compile(r'"[^"\\]{200,}(?:\\.[^"\\]*)*"')
_CONSTANT: Final = re.compile(r"\s*(%[\w.$-]+) = stablehlo\.constant\b")
_CONSTANT_NAME: Final = re.compile(r"%c[\w.$-]*")
_VALUE: Final = re.compile(r"%[\w.$-]+(?:#\d+)?")

_WINDOW: Final = 2000
"""How many operations after the first difference are aligned, which takes the square of it."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """One line of a program.

    Attributes:
        text: What it does, indented by the regions around it.
        source: The line of the user's code that it is from, the innermost: ``"train.py:12"``.
    """

    text: str
    source: str = ""

    def __str__(self) -> str:
        """Return both."""
        return f"{self.text.strip()}  # {self.source}" if self.source else self.text.strip()


@dataclasses.dataclass(frozen=True)
class ProgramDifference:
    """Where two programs differ: an operation of each, None where one has no such."""

    mine: Operation | None
    its: Operation | None


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """A program as JAX hands it to XLA.

    Attributes:
        name: That of the module: ``"jit_step"``. It does not count.
        operations: All of them, private functions in the order in which they are called.
        functions: The names of private functions, which operations call ``@f0``, ``@f1``.
        options: What else the compile depends on, as text.
    """

    name: str
    operations: tuple[Operation, ...]
    functions: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256, the same in every process for the same program."""
        lines = [f"{name}: {text}" for name, text in sorted(self.options.items())]
        lines += [each.text for each in self.operations]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def inlined(self) -> str:
        """A SHA-256 that does not depend on which calls share a private function.

        Programs in which this alone is equal were lowered after other traces: JAX shares inner
        functions by what it happens to have cached.
        """
        bodies: dict[str, list[str]] = {"": []}
        name = ""
        for each in self.operations:
            if each.text.startswith("func.func"):
                found = _OURS.search(each.text)
                name = found[1] if found and each.text.startswith("func.func private") else "main"
                bodies[name] = []
            text = _OURS.sub("@", each.text) if each.text.startswith("func.func") else each.text
            bodies[name].append(text)
        digests: dict[str, str] = {}

        def digest(name: str) -> str:
            if name not in digests:
                digests[name] = ""  # of one that calls itself
                text = "\n".join(bodies.get(name, ()))
                text = _OURS.sub(lambda each: f"@{digest(each[1])}", text)
                digests[name] = hashlib.sha256(text.encode()).hexdigest()
            return digests[name]

        options = str(sorted(self.options.items()))
        return hashlib.sha256(f"{options}{digest('')}{digest('main')}".encode()).hexdigest()

    def shown(self, operation: Operation) -> Operation:
        """Return an operation with the names of the functions that it calls."""

        def name(found: re.Match[str]) -> str:
            place = int(found[1][1:])
            return f"@{self.functions[place]}" if place < len(self.functions) else found[0]

        return dataclasses.replace(operation, text=_OURS.sub(name, operation.text))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "options": dict(self.options),
            "functions": list(self.functions),
            "operations": [[each.text, each.source] for each in self.operations],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Return the program of which `to_json` has made this."""
        operations = tuple(Operation(text, source) for text, source in saved["operations"])
        return cls(saved["name"], operations, tuple(saved["functions"]), saved["options"])


def read_program(text: str, options: Mapping[str, str] | None = None) -> LoweredProgram:
    """Return the program of a module.

    Args:
        text: MLIR, with locations: ``module.operation.get_asm(enable_debug_info=True)``.
        options: What else the compile depends on.
    """
    lines = text.splitlines()
    sources = _Sources(lines)
    name, sections = _sections(lines, sources)
    order, callers = _called(sections)
    numbers = {each: f"f{place}" for place, each in enumerate(order)}

    def renamed(found: re.Match[str]) -> str:
        number = numbers.get(found[1]) if found[1] else None
        return found[0] if number is None else f"@{number}"

    found: list[Operation] = []
    for section in ("", *order):
        default = callers.get(section, "")
        for each in sections.get(section, ()):
            line = _SYMBOL.sub(renamed, each.text) if "@" in each.text else each.text
            found.append(Operation(line, each.source or default))
    return LoweredProgram(name, tuple(found), tuple(order), dict(options or {}))


def first_differences(
    one: LoweredProgram, other: LoweredProgram, limit: int = 3
) -> list[ProgramDifference]:
    """Return the first operations that differ, in order.

    Operations that differ in the numbers of their operands alone follow from an earlier one.
    """
    sides = one.operations, other.operations
    pairs = zip(*sides, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0].text == pair[1].text, pairs))
    left, right = (each[same : same + _WINDOW] for each in sides)
    if not left and not right:
        return []
    forms = [[_VALUE.sub("%", each.text) for each in side] for side in (left, right)]
    pairs_found: list[tuple[Operation | None, Operation | None]] = []
    matcher = difflib.SequenceMatcher(None, forms[0], forms[1], autojunk=False)
    for kind, start, end, its_start, its_end in matcher.get_opcodes():
        if kind != "equal":
            pairs_found += itertools.zip_longest(left[start:end], right[its_start:its_end])
    if left and right:  # what stands there in both, or what takes other operands
        pairs_found[:1] = [(left[0], right[0])]
    pairs_found.sort(key=lambda pair: all(map(_follows, pair)))
    return [
        ProgramDifference(
            None if each is None else one.shown(each), None if its is None else other.shown(its)
        )
        for each, its in pairs_found[:limit]
    ]


def _follows(operation: Operation | None) -> bool:
    """Return whether an operation only has the types of others."""
    return operation is None or operation.text.lstrip().startswith(("func.func", "return "))


# ------------------------------------------------------------------------ reading


class _Sources:
    """The lines of source code that locations stand for."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._aliases = {found[1]: found[2] for each in lines if (found := _ALIAS.match(each))}
        self._known: dict[str, tuple[str, bool]] = {}

    def innermost(self, location: str) -> str:
        return self._find(location)[0]

    def _find(self, location: str) -> tuple[str, bool]:
        """Return a place, and whether it is in the user's code; the callee comes first."""
        known = self._known.get(location)
        if known is not None:
            return known
        self._known[location] = best = ("", False)
        for found in _PLACE.finditer(location):
            if found[3]:
                each = self._find(self._aliases.get(found[3], ""))
            else:
                each = (f"{found[1]}:{found[2]}", is_users_file(found[1]))
            if each[1] or (each[0] and not best[0]):
                best = each
            if best[1]:
                break
        self._known[location] = best
        return best


def _without_locations(line: str) -> tuple[str, str]:
    """Return a line without its locations, and the last one of them."""
    kept: list[str] = []
    place, last = 0, ""
    for found in _LOCATION.finditer(line):
        if found[1] is None or found.start() < place:
            continue
        kept.append(line[place : found.start()])
        depth, end = 1, len(line)
        for each in _PARENTHESIS.finditer(line, found.end()):
            depth += {"(": 1, ")": -1, None: 0}[each[1]]
            if not depth:
                end = each.end()
                break
        last, place = line[found.end() : end - 1], end
    return "".join([*kept, line[place:]]), last


def _sections(lines: Sequence[str], sources: _Sources) -> tuple[str, dict[str, list[Operation]]]:
    """Return the name of a module, and its operations by private function; of all else: ""."""
    name, section = "", ""
    sections: dict[str, list[Operation]] = {"": []}
    opened: list[tuple[list[Operation], int]] = []
    for each in lines:
        if not each or _ALIAS.match(each):
            continue
        line, location = _without_locations(each) if "loc(" in each else (each, "")
        found = _MODULE.match(line)
        if found:
            name, line = found[1].strip('"'), f"module{line[found.end() :]}"
        elif function := _FUNCTION.match(line):
            section = function[2].strip('"') if function[1] else ""
        elif line[:2] == "  " and line[2:3] not in {" ", "}"}:
            section = ""
        source = sources.innermost(location) if location else ""
        kept = sections.setdefault(section, [])
        bare = line.strip()
        header = opened.pop() if bare.startswith("}") and opened else None
        if header is not None and source:  # the location stands at the end of an operation
            inside, place = header
            inside[place] = dataclasses.replace(inside[place], source=source)
        if bare != "}":
            kept.append(Operation(_plain(line[2:] if line[:2] == "  " else line), source))
        if bare.endswith("{"):
            opened.append(header if header and bare.startswith("}") else (kept, len(kept) - 1))
    return name, {section: _with_sources(each) for section, each in sections.items()}


def _with_sources(operations: Sequence[Operation]) -> list[Operation]:
    """Return operations, each constant with the source of the first one that uses it.

    JAX gives constants the place of the call, or none; and none to what opens a region.
    """
    found = list(operations)
    used: dict[str, str] = {}
    after = ""
    for place in reversed(range(len(found))):
        each = found[place]
        constant = _CONSTANT.match(each.text)
        source = used.pop(constant[1], each.source) if constant else each.source
        after = source or after
        found[place] = Operation(each.text, after)
        if each.source and "%c" in each.text:
            used.update(dict.fromkeys(_CONSTANT_NAME.findall(each.text), each.source))
    return found


def _plain(line: str) -> str:
    """Return a line without what differs between equal programs, and with long text by digest."""
    if " at 0x" in line:
        line = _ADDRESS.sub("at 0x...", line)
    if "backend_config" in line:
        line = _POINTER.sub(r'\1""', line)
    if len(line) > len('""') + 200:
        line = _LONG.sub(lambda each: f'"sha256:{_sha(each[0])}"', line)
    return line


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _called(sections: Mapping[str, Sequence[Operation]]) -> tuple[list[str], dict[str, str]]:
    """Return the private functions in the order of their first calls, and where those are."""
    order: list[str] = []
    callers: dict[str, str] = {}

    def names(section: str) -> Iterator[tuple[str, str]]:
        for each in sections.get(section, ()):
            for found in _SYMBOL.finditer(each.text) if "@" in each.text else ():
                if found[1] in sections and found[1] != section:
                    yield found[1], each.source or callers.get(section, "")

    waiting = [names("")]
    while waiting:
        name, source = next(waiting[-1], (None, ""))
        if name is None:
            waiting.pop()
        elif name not in callers:
            callers[name] = source
            order.append(name)
            waiting.append(names(name))
    rest = [each for each in sections if each and each not in callers]
    return order + rest, callers
