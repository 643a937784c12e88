"""What tests know of the inside: the one door to `cli`, `_display` and `_jit`."""

from leafwise._compare.fixes import BY_FAN_OUT, DRAWN_2D, Cause
from leafwise._display import tables
from leafwise._display.tables import annotations_of, cache_lines, html_page, print_report
from leafwise._findings import first_compiles
from leafwise._findings.findings import (
    Finding,
    busy,
    covered,
    expected_repeats,
    findings,
    functions_of,
    nothing_again,
    seconds_of,
)
from leafwise._findings.first_compiles import FirstFinding, first_findings, first_seconds
from leafwise._findings.json import from_json, to_json
from leafwise._findings.reasons import Act, Advice, Explanation, Fix, Outcome, Reason, ReasonKind
from leafwise._findings.records import (
    AuditRecord,
    CallsRecord,
    CapturesRecord,
    EventKindText,
    EventRecord,
    FirstCompile,
    FunctionRecord,
    LevelRecord,
    LoweredRecord,
    Origin,
    Seconds,
    SiteRecord,
    StaleCaptureRecord,
    WrongRecord,
)
from leafwise._findings.report import Report, cache_off_lines, once_each
from leafwise._findings.words import annotation, clean, count, cut, duration
from leafwise._jax import compiles, frames
from leafwise._jax.compiles import Compile
from leafwise._jax.context import UNNAMED_CONFIG
from leafwise._jax.events import (
    Counts,
    EventKind,
    RawEvent,
    count_events,
    is_tracing,
    subscribe,
    unsubscribe,
)
from leafwise._jit import checked_calls, recorder
from leafwise._jit import storm as storm_module
from leafwise._jit.callee import Callee
from leafwise._jit.jax_errors import SECTIONS, section_for
from leafwise._jit.outside import SeenFunction
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._objects.source.call_site import Site, short_file, user_frame
from leafwise._objects.stand_ins import Verbatim
from leafwise._programs.digest import describe
from leafwise._programs.program import (
    LoweredProgram,
    first_differences,
    packed,
    read_program,
    unpacked,
)
from leafwise._trees.equality import is_distinct
from leafwise._trees.roles import exchange, field_names_of, is_kept
from leafwise.cli import call_costs, main, notebook, program_recorder, trial
from leafwise.cli import check_classes as run_module
from leafwise.cli.check_classes import EXAMPLES, CheckOptions, TooLong, check_class, time_limit
from leafwise.cli.check_fields import Example, check_fields
from leafwise.cli.check_report import CheckPrinter
from leafwise.cli.check_result import CheckRun, CheckVerdict, ClassResult, FieldChange, LawResult
from leafwise.cli.check_targets import CheckTarget, FoundTargets, find_targets, is_node
from leafwise.cli.edits import Code, Replacement, applied, diff, edits_for, shown, uncommitted
from leafwise.cli.explain_script import Script
from leafwise.cli.recorded import Process, Record, make_report
from leafwise.cli.recorder import Recorder
from leafwise.testing import _check
from leafwise.testing._laws import other_process
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.libraries import library_of
from leafwise.testing._laws.run import LawTest, find
from leafwise.testing.strategies._edit_positions import edit_positions
from leafwise.testing.strategies._leaves import same_leaf
