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
    """What JAX did for one function in all.

    What JAX compiles outside jitted functions has ``eager``, and a record for each line.
    """

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
    """One difference between two calls: a `leafwise.types.Reason` as text.

    ``change`` says what differs: in words, or the value before and after.
    """

    path: str
    kind: str
    outcome: str
    before: str
    after: str
    change: str
    fix: str


class ExplanationRecord(TypedDict):
    """What JAX did for a call, and why: what `leafwise.types.Explanation.as_dict` returns.

    ``nearest`` is None for the first call of a function.
    """

    outcome: str
    nearest: int | None
    reasons: list[ReasonRecord]
    unsound: list[ReasonRecord]


class EventRecord(TypedDict):
    """One trace, lowering or compilation; ``start`` counts from the start of the program.

    ``site`` is the line of the program, and ``via`` that of a package which called from there. An
    explanation is on a trace, on a lowering that had none, or on that of an operation outside
    jitted functions (``eager``), which has the ``run`` of its line. ``process`` is empty for the
    program's own. ``defined`` is the line where the function is defined, if that is known;
    ``role`` what was made of it: ``vmap``, ``forward``, ``backward``. ``recreated`` is on the first
    call of a function whose like was called before: ``"new"``, or ``"defined again"``. ``inner``
    is on what is a part of another trace, and ``miss`` on a compilation that the cache on disk
    did not answer, and says why.
    """

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


class FindingReasonRecord(TypedDict):
    """One reason of a finding: where in the arguments, and what differs there.

    ``more`` is how many other changes there were of the same kind.
    """

    path: str
    kind: str
    change: str
    more: int


class FindingRecord(TypedDict):
    """What JAX made again at one line for one cause, how often and for how long.

    ``what`` says it in words, ``via`` has the lines of packages that called, and ``processes``
    those in which it happened, if there are several. With ``outside`` it is all of the line that
    was compiled again outside jitted functions.
    """

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
    """What counts for all programs of one process.

    ``environment`` has the variables that JAX and XLA read, ``flags`` those of XLA on the command
    line. ``hash_seed`` is a number that differs where sets have another order.
    """

    versions: dict[str, str]
    environment: dict[str, str]
    flags: list[str]
    devices: str
    processes: int
    hash_seed: int
    config: dict[str, Any]


class LoweredRecord(TypedDict):
    """The operations of a program: ``digest`` is theirs, ``fingerprint`` has the options as well.

    ``packed`` is a list of texts and source lines as JSON, compressed by zlib, in Base64. The texts
    are hashes where ``hashed`` is true, and ``packed`` is empty for what is too large even so.
    """

    name: str
    fingerprint: str
    digest: str
    inlined: str
    options: dict[str, str]
    functions: list[str]
    hashed: bool
    packed: str


class ProgramRecord(TypedDict):
    """One program that JAX compiled, or found in its cache on disk: what it was made from.

    ``function`` is ``module:qualname``, ``process`` a place in the list of processes. ``cache`` is
    ``"hit"``, ``"off"``, or why it missed; ``key`` and ``key_parts`` are there while it is on.
    ``config`` has what differs from the process. ``digest`` and ``arguments`` are left out where
    the call could not be seen, ``captures`` for operations of JAX itself; both are by path: the
    class of a node, a static, or the dtype and shape of an array. ``refused`` names what means
    nothing to another process. ``recording`` is how many seconds this record took.
    """

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
    """What JAX did while a program ran.

    ``version`` is that of this layout. ``seconds`` is how long the program took, ``exit`` its exit
    code, and ``ended`` how it ended where that is not 0: an error, ``"interrupted"``, the name of
    a signal. The functions and the findings come with the most seconds first, the events in order
    of time; ``captures`` is there if they were asked for, ``processes`` and ``programs`` if the
    report is written as JSON.
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
    findings: NotRequired[list[FindingRecord]]
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
    """What a function closes over: what `leafwise.types.Captures.as_dict` returns.

    In a report also which of its calls were stale.
    """

    function: str
    nbytes: int
    large: int
    captures: list[CaptureRecord]
    stale: NotRequired[list[StaleCaptureRecord]]
