"""The records of what JAX did while a script ran. Nothing here needs JAX."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from leafwise._findings.reasons import Explanation, Fix
from leafwise._findings.words import ShownAsText, clean, count, duration, size
from leafwise._objects.source.call_site import Site, short_file

EventKindText: TypeAlias = Literal["trace", "lowering", "compile", "cache hit"]
"""What JAX did. A cache hit is a compile that JAX's cache on disk saved."""

Place: TypeAlias = Annotated[str, "file:line"]  # empty if it is not known


@dataclasses.dataclass
class Seconds:
    """The seconds that JAX spent on one function, by phase."""

    trace: float
    lower: float
    compile: float


@dataclasses.dataclass
class FunctionRecord:
    """The totals of one function or, if ``eager``, of a line outside jitted functions."""

    name: str
    file: str
    line: int
    eager: bool
    traces: int
    lowerings: int
    compiles: int
    cache_hits: int
    seconds: Seconds

    @property
    def total(self) -> float:
        return self.seconds.trace + self.seconds.lower + self.seconds.compile


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """The line of the program that made a call, and its source text."""

    file: str
    line: int
    function: str = dataclasses.field(compare=False)  # a lambda may be on the same line
    text: str

    @classmethod
    def of(cls, site: Site | None) -> "SiteRecord | None":
        return None if site is None else cls(*site, site.text)

    @classmethod
    def from_json(cls, file: str, line: int, function: str, text: str) -> "SiteRecord":
        """Return it with a short file name, for readers."""
        return cls(short_file(file), line, function, text)


def line_of(site: Site | SiteRecord | None) -> Place:
    return f"{site.file}:{site.line}" if site is not None else ""


def shortened(line: Place) -> Place:
    """Return a line with a short file name."""
    file, _, number = line.rpartition(":")
    return f"{short_file(file)}:{number}" if file else ""


def place(site: SiteRecord | None) -> str:
    """Return ``churn.py:40``, or ``line not known``."""
    return f"{clean(site.file)}:{site.line}" if site else "line not known"


@dataclasses.dataclass
class Origin:
    """Where many operations of a program come from.

    Attributes:
        kind: ``"loop"``, ``"unroll"`` or the name of a function that calls another one
            repeatedly; ``"constants"``; ``"draws"``, random ones of three axes or more;
            ``"copies"`` of one function; else ``"line"``.
        site: The line of user code.
        via: The line in a package that has the loop; empty for a loop in user code.
        share: The share of the operations that come from there.
        runs: How often the body, or the last function, was traced in one trace, over all
            enclosing loops; or the number of draws, or copies; 0 if that is not known.
        nbytes: The bytes of the constants.
        is_folded: Whether an operation has constants alone as operands: XLA computes it.
        path: The functions of packages below the line: the first and the last. Or what is copied.
        fix: What to do; false if nothing is known to help.
    """

    kind: str
    site: SiteRecord | None
    via: Place = ""
    share: float = 0.0
    runs: int = 0
    nbytes: int = 0
    is_folded: bool = False
    path: str = ""
    fix: Fix = dataclasses.field(default_factory=Fix)

    def where(self, *, several: bool) -> str:
        """Return the line, or the functions below it: ``simulate > contact (30 times)``."""
        if not self.path:
            return place(self.site)
        times = f" ({self.runs:,} times)" if self.runs > 1 else ""
        line = f" at {place(self.site)}" if several and self.site else ""
        return f"`{clean(self.path)}`{times}{line}"


@dataclasses.dataclass
class FirstCompile(ShownAsText):
    """The program that XLA had to compile.

    Attributes:
        total: The number of its operations, counting an inner jitted function at each call.
        origins: Where most of them come from: constants of a mebibyte or more and the loop
            that a trace unrolls, or up to three lines.
    """

    total: int
    origins: list[Origin]

    def words(self, origins: list[Origin], name: str = "") -> str:
        """Return a text on where the operations of the program `name` come from."""
        number = count(self.total, "operation")
        operations = f"the {number} of {name}" if name else f"its {number}"
        if not origins:
            return f"it has {number}"
        origin, *_ = origins
        if origin.kind == "constants":
            folds = ", which XLA folds" * origin.is_folded
            return f"it holds {size(origin.nbytes)} of constants{folds}"
        if origin.kind == "line":
            several = len({line.site for line in origins}) > 1
            lines = (f"{line.share:.0%} from {line.where(several=several)}" for line in origins)
            return f"of {operations}, {', '.join(lines)}"
        if origin.kind == "draws":
            draws = count(origin.runs, "random draw")
            return f"{origin.share:.0%} of {operations} are from {draws} of three axes or more"
        if origin.kind == "copies":
            copies = f"`{clean(origin.path)}`, inlined {origin.runs:,} times"
            return f"{origin.share:.0%} of {operations} are from {copies}"
        called = "this call with `unroll=`" if origin.kind == "unroll" else f"`{origin.kind}` here"
        what = "this loop" if origin.kind == "loop" else called
        times = f"which ran {origin.runs:,} times in one trace"
        return f"{origin.share:.0%} of {operations} are from {what}, {times}"

    def grouped(self) -> list[list[Origin]]:
        """Return the origins one by one, but lines, or no origins, as one group."""
        groups = itertools.groupby(self.origins, lambda origin: origin.kind == "line" or id(origin))
        return [list(group) for _, group in groups] or [[]]

    def __str__(self) -> str:
        """Return where the operations come from, and what to do."""
        lines: list[str] = []
        for origins in self.grouped():
            site = origins[0].site if origins else None
            lines += [] if site is None else [shortened(place(site))]
            lines += [f"  {self.words(origins)}"]
            lines += [f"  fix: {origin.fix}" for origin in origins if origin.fix]
        return "\n".join(lines)


@dataclasses.dataclass
class EventRecord:
    """One trace, lowering or compile."""

    kind: EventKindText
    name: str
    eager: bool
    start: float  # from the start of the script
    seconds: float
    process: str
    thread: str
    site: SiteRecord | None
    explanation: Explanation | None  # on the first event of a program
    defined: Place = ""
    via: Place = ""
    role: str = ""
    run: int | None = None
    recreated: str = ""
    inner: bool = False
    miss: str = ""
    call: list[int] | None = None
    first: FirstCompile | None = None  # on the compile of a program
    unfinished: bool = False  # the process ended during it
    cpu: float | None = None  # seconds of CPU of the process in a compile, if less
    heavy: bool | None = None  # whether it is slow to compile: many operations, or a loop
    maker: str = ""  # the function of JAX that called a heavy one
    # The user's frames around a compile, from the outermost to the first package that uses JAX.
    levels: list["LevelRecord"] = dataclasses.field(default_factory=list["LevelRecord"])
    culprit: SiteRecord | None = None  # the line that caused the repeat, if it is another line
    # The lines of user code that call one that JAX compiles for new sizes, outside `jit`.
    callers: list[SiteRecord] = dataclasses.field(default_factory=list[SiteRecord])
    earlier: Place = ""  # of the call that this one is compared with, if it is another line
    expected: Place = ""  # the line that marks it as expected

    @property
    def interval(self) -> tuple[float, float]:
        return self.start, self.start + self.seconds


@dataclasses.dataclass(frozen=True)
class LevelRecord:
    """A frame of user code around a compile."""

    site: SiteRecord
    loop: SiteRecord | None = None  # the first line of the innermost loop around it
    # Which call of the function it is; None if not counted.
    start: int | None = dataclasses.field(default=None, compare=False)
    reads: bool = False  # whether its code, or that of a package below, needs values
    builder: str = ""  # the package below, if it is one that builds models

    @property
    def place(self) -> SiteRecord:
        return self.loop or self.site

    @property
    def function(self) -> tuple[str, str]:
        return self.site.file, self.site.function

    @property
    def is_module(self) -> bool:
        return self.site.function == "<module>"


@dataclasses.dataclass
class CallsRecord:
    """How often the function `maker` was called below some lines; without one, values were read."""

    maker: str
    levels: list[LevelRecord]
    number: int


@dataclasses.dataclass
class CallRecord:
    """What each call of a function costs, at one line."""

    function: str
    site: SiteRecord | None
    nodes: int = 0  # of its arguments; 0 if they are flattened quickly
    seconds: float = 0.0  # of CPU, to flatten them
    by: str = ""  # the user's function, or else the class, that takes most of that
    where: Place = ""
    share: float = 0.0
    copied: dict[str, int] = dataclasses.field(default_factory=dict[str, int])  # bytes by argument

    def lines(self) -> Iterator[str]:
        """Yield the costs, and what to do, in words."""
        if self.nodes:
            where = f", {shortened(self.where)}" if self.where else ""
            spent = f"{count(self.nodes, 'node')} in {duration(self.seconds)}"
            most = f"{self.share:.0%} of that in `{clean(self.by)}`{clean(where)}"
            yield f"each call of {clean(self.function)} flattens {spent}: {most}"
        for name, nbytes in self.copied.items():
            what = f"`{name}`, {size(nbytes)} of NumPy arrays"
            yield f"each call of {clean(self.function)} copies {what}, to the device"
            yield "fix: `jax.device_put` them once, if nothing writes to them later"


@dataclasses.dataclass
class TriedRecord:
    """An edit that `--try` made for a finding, and the result of running the script with it."""

    verdict: str
    edit: list[str]
    before: int  # the repeats of the whole script
    after: int
    saved: float  # the seconds of JAX in the whole run, at most those of the findings that are gone
    seconds: float
    # The answers for old values that only the run with the edit gave.
    wrong: list["WrongRecord"] = dataclasses.field(default_factory=list["WrongRecord"])


@dataclasses.dataclass
class WrongRecord:
    """A call that ran a program compiled for another value, and how often that happened."""

    call: Place
    what: str
    times: int


@dataclasses.dataclass
class AuditRecord:
    """The number of calls that the audit compared, the seconds it took, and what it found."""

    calls: int
    seconds: float
    found: list[WrongRecord]


@dataclasses.dataclass
class ExpectedRecord:
    """The repeats at lines marked ``# leafwise: expected``, which are not findings."""

    repeats: int
    lines: list[Place]
    seconds: float


@dataclasses.dataclass
class StaleCaptureRecord:
    """A call that used the old value of a capture: a `leafwise.types.StaleCapture` as text."""

    name: str
    reader: str
    line: Place
    before: str
    after: str
    call: Place


@dataclasses.dataclass
class CaptureRecord:
    """One value that a function closes over: a `leafwise.types.Capture` as text."""

    name: str
    treatment: str
    nbytes: int
    value: str
    where: str


@dataclasses.dataclass
class CapturesRecord:
    """The values that a function closes over and, in a report, its stale calls."""

    function: str
    nbytes: int
    captures: list[CaptureRecord]
    stale: list[StaleCaptureRecord] = dataclasses.field(default_factory=list[StaleCaptureRecord])


@dataclasses.dataclass
class ProcessRecord:
    """The facts about one process that its programs depend on."""

    versions: dict[str, str]
    environment: dict[str, str]
    flags: list[str]
    devices: str
    processes: int
    hash_seed: int
    config: dict[str, Any]


@dataclasses.dataclass
class LoweredRecord:
    """The operations of a program, in ``packed``, which is empty if there are too many."""

    name: str
    fingerprint: str
    digest: str
    options: dict[str, str]
    functions: list[str]
    packed: str


@dataclasses.dataclass
class ProgramRecord:
    """One program that JAX compiled or found in its cache on disk, and what it depends on."""

    function: str
    name: str
    eager: bool
    site: SiteRecord | None
    end: float
    cache: str
    key: str | None
    key_parts: dict[str, str]
    program: LoweredRecord | None
    config: dict[str, Any]
    refused: dict[str, str]
    process: int = -1
    digest: str | None = None
    arguments: dict[str, dict[str, Any]] | None = None
    captures: dict[str, dict[str, Any]] | None = None
    unwritten: str = ""
