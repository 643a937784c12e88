"""The shape of a report: plain values, which `json.dumps` takes."""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

EventKindText: TypeAlias = Literal["trace", "lowering", "compile", "cache hit"]
"""What JAX did. A cache hit is a compilation that JAX's cache on disk saved."""


class Seconds(TypedDict):
    """The seconds of one function, by what they went into."""

    trace: float
    lower: float
    compile: float


class FunctionRecord(TypedDict):
    """What JAX did for one function in all, or (``eager``) for a line outside them."""

    name: str
    file: str
    line: int
    eager: bool
    traces: int
    lowerings: int
    compiles: int
    cache_hits: int
    seconds: Seconds


class SiteRecord(TypedDict):
    """The line of the program that made a call, and its source text."""

    file: str
    line: int
    function: str
    text: str


class ReasonRecord(TypedDict):
    """One difference between two calls: a `leafwise.types.Reason` as text."""

    path: str
    kind: str
    outcome: str
    before: str
    after: str
    change: str
    fix: str


class ExplanationRecord(TypedDict):
    """What `leafwise.types.Explanation.as_dict` returns."""

    outcome: str
    nearest: int | None
    reasons: list[ReasonRecord]
    unsound: list[ReasonRecord]


class EventRecord(TypedDict):
    """One trace, lowering or compilation; ``start`` counts from the start of the program."""

    kind: EventKindText
    name: str
    eager: bool
    start: float
    seconds: float
    process: str
    thread: str
    site: SiteRecord | None
    explanation: ExplanationRecord | None
    defined: NotRequired[str]
    via: NotRequired[str]
    role: NotRequired[str]
    run: NotRequired[int]
    recreated: NotRequired[str]
    inner: NotRequired[bool]
    miss: NotRequired[str]
    call: NotRequired[list[int] | None]


class FindingReasonRecord(TypedDict):
    """One reason of a finding, and how many more changes of its kind there were."""

    path: str
    kind: str
    change: str
    more: int


class FindingRecord(TypedDict):
    """What JAX made again at one line for one cause, how often and for how long."""

    place: str
    text: str
    via: list[str]
    functions: list[str]
    outside: bool
    what: str
    retraces: int
    recompiles: int
    seconds: float
    reasons: list[FindingReasonRecord]
    fixes: list[str]
    processes: list[str]
    tried: NotRequired["TriedRecord"]


class TriedRecord(TypedDict):
    """An edit that `--try` made for a finding, and what the script did with it."""

    verdict: str
    edit: list[str]
    before: int
    after: int
    saved: float
    seconds: float


class WrongRecord(TypedDict):
    """A call that was answered by a program made for another value, and how often."""

    call: str
    what: str
    times: int


class AuditRecord(TypedDict):
    """How many calls were compared, in how many seconds, and what was found."""

    calls: int
    seconds: float
    found: list[WrongRecord]


class ProcessRecord(TypedDict):
    """What counts for all programs of one process."""

    versions: dict[str, str]
    environment: dict[str, str]
    flags: list[str]
    devices: str
    processes: int
    hash_seed: int
    config: dict[str, Any]


class LoweredRecord(TypedDict):
    """The operations of a program, packed; none if there are too many."""

    name: str
    fingerprint: str
    digest: str
    inlined: str
    options: dict[str, str]
    functions: list[str]
    packed: str


class ProgramRecord(TypedDict):
    """One program that JAX compiled, or found in its cache on disk: what it was made from."""

    function: str
    name: str
    eager: bool
    site: SiteRecord | None
    process: int
    thread: str
    end: float
    cache: str
    key: str | None
    key_parts: dict[str, str]
    program: LoweredRecord | None
    config: dict[str, Any]
    refused: dict[str, str]
    digest: NotRequired[str]
    arguments: NotRequired[dict[str, Any]]
    captures: NotRequired[dict[str, Any]]
    recording: float


class Report(TypedDict):
    """What JAX did while a program ran; ``version`` is that of this layout.

    ``left_out`` has what JAX did not show, and what is not said for that.
    """

    version: int
    leafwise: str
    jax: str
    python: str
    program: str
    seconds: float
    exit: int
    ended: str
    functions: list[FunctionRecord]
    events: list[EventRecord]
    warnings: list[str]
    left_out: NotRequired[dict[str, str]]
    findings: NotRequired[list[FindingRecord]]
    together: NotRequired[dict[str, Any]]
    audit: NotRequired[AuditRecord]
    captures: NotRequired[list["CapturesRecord"]]
    processes: NotRequired[list[ProcessRecord]]
    programs: NotRequired[list[ProgramRecord]]


class StaleCaptureRecord(TypedDict):
    """A call that was answered for the old value of a capture: a `leafwise.types.StaleCapture`."""

    name: str
    reader: str
    line: str
    before: str
    after: str
    call: str


class CaptureRecord(TypedDict):
    """One value that a function closes over: a `leafwise.types.Capture` as text."""

    name: str
    treatment: str
    nbytes: int
    value: str
    where: str


class CapturesRecord(TypedDict):
    """What a function closes over, and in a report which of its calls were stale."""

    function: str
    nbytes: int
    large: int
    captures: list[CaptureRecord]
    stale: NotRequired[list[StaleCaptureRecord]]
