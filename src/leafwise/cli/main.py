"""The commands: `leafwise_cli` parses their arguments and calls these functions.

Each imports what it needs when it runs: `leafwise explain` needs no Hypothesis, and should
import as little as possible before a script.
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from leafwise._objects import files
from leafwise.cli import signals
from leafwise.cli.streams import discard

if TYPE_CHECKING:
    from leafwise._findings.report import Report
    from leafwise.cli.check_classes import CheckOptions


def check(options: argparse.Namespace) -> int:
    """Check classes, print a report, and return the exit code."""
    # Hypothesis stores tables on disk: not in the working directory. Both it and JAX read
    # these variables when imported.
    storage = Path(tempfile.gettempdir(), "leafwise-hypothesis")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(storage))
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # programs run only once or twice
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")  # slow after a deep recursion
    from leafwise.cli import check_classes, check_report, check_result, check_targets  # noqa: PLC0415

    if problem := _unwritable(options.output):
        return _refuse("check", problem)
    form, printed = options.output_format, io.StringIO()
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does
    output = options.output and str(Path.cwd() / options.output)  # modules may change the folder
    with signals.raised(KeyboardInterrupt) as numbers, _standard_output() as stdout:
        console = check_report.make_console(printed if output else stdout)
        is_quiet, is_verbose = options.quiet or form != "text", options.verbose or options.fields
        printer = check_report.CheckPrinter(console, verbose=is_verbose, quiet=is_quiet)
        try:
            chosen = _check_options(options)
            targets = check_targets.find_targets(options.targets)
            for place in options.strategies:  # these import the classes
                check_targets.load_module(place)
            printer.start([*targets.unloaded, *(target.name for target in targets.targets)])
            run = check_classes.run_checks(targets, chosen, on_result=printer.add)
        except check_targets.UsageError as error:
            return _refuse("check", str(error))
        except KeyboardInterrupt:  # while importing modules
            run = check_result.CheckRun((), interrupted=signal.SIGINT)
        number, allow = next(iter(numbers), run.interrupted), options.allow_unchecked
        run = dataclasses.replace(run, interrupted=number, allow_unchecked=allow)
        if form == "text":
            printer.finish(run)
        else:
            text = check_result.as_json(run) if form == "json" else check_report.as_github(run)
            print(text, file=console.file)
        if output:
            _write(output, printed.getvalue())
    return run.exit_code


@contextlib.contextmanager
def _standard_output() -> Generator[TextIO]:
    """Yield standard output for a report; what all other code writes there is on standard error."""
    stdout = sys.stdout
    if sys.__stdout__ is None or stdout is not sys.__stdout__:  # it is closed, or captured
        with contextlib.redirect_stdout(sys.stderr):
            yield stdout
        return
    with os.fdopen(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors) as own:
        os.dup2(2, 1)  # for good: functions of `atexit` print, too
        with contextlib.redirect_stdout(os.fdopen(os.dup(2), "w", 1, errors=stdout.errors)):
            yield own  # and modules may close their standard output


def _check_options(options: argparse.Namespace) -> "CheckOptions":
    """Return what to check: fields and laws, unless the options name only one of them."""
    from leafwise.cli import check_classes  # noqa: PLC0415

    fields = options.fields or bool(options.field)
    tries_laws = options.laws or bool(options.law)
    both = fields == tries_laws
    return check_classes.CheckOptions(
        laws=check_classes.find_laws(options.law, options.without) if both or tries_laws else (),
        fields=both or fields,
        only=tuple(options.field),
        examples=options.examples or check_classes.EXAMPLES,
        seed=options.seed,
        seconds=options.timeout or check_classes.SECONDS,
        warnings_as_errors=options.warnings_as_errors,
    )


@signals.raised(SystemExit)
def explain(options: argparse.Namespace) -> int:
    """Run a script, report what JAX did, write files, and return the script's exit code."""
    from leafwise._findings.json import RecordError  # noqa: PLC0415
    from leafwise._findings.words import clean  # noqa: PLC0415
    from leafwise.cli import explain_script  # noqa: PLC0415

    script = explain_script.Script(options.target, options.arguments, is_module=options.module)
    problem = explain_script.problem(script, options)
    problem = problem or _unwritable(options.output, options.html)
    run: Any = explain_script.run
    if options.tries or options.diff or options.write:
        from leafwise.cli import trial  # noqa: PLC0415  # on demand

        problem = problem or trial.problem(script, options)
        run = functools.partial(trial.run_and_try, options=options)
    if problem:
        return _refuse("explain", problem)
    if ours := [text for text in options.arguments if text.partition("=")[0] in options.ours]:
        text = f"{ours[0]} after {script.name} is passed to the script: "
        text += "to pass it to leafwise, put it before the script"
        print(f"leafwise explain: {text}", file=sys.stderr)
    wanted = {"captures": options.captures or options.fail_on == "stale", "audit": options.audit}
    wanted["programs"] = options.output_format == "json"
    wanted["progress"] = options.progress or sys.stderr.isatty()
    try:
        report, code = run(script, wanted)
    except RecordError as error:
        return _refuse("explain", clean(str(error)))
    if options.html:
        from leafwise._display import tables  # noqa: PLC0415

        _write(options.html, tables.html_page(report))
    if options.output:
        printed = io.StringIO()
        _print_report(report, printed, options.output_format)
        _write(options.output, printed.getvalue())
    elif not options.quiet:
        try:
            _print_report(report, sys.stderr, options.output_format)
            sys.stderr.flush()
        except (BrokenPipeError, SystemExit):  # rich raises SystemExit for a broken pipe
            discard(sys.stderr)
    code = code or _failed(report, options)
    if report.docs:
        print(f"leafwise: docs: {clean(report.docs)}", file=sys.stderr)
    return code


def _failed(report: "Report", options: argparse.Namespace) -> int:
    """Return 1 if there are more findings than are allowed, which it prints."""
    from leafwise._display.captures import stale_calls  # noqa: PLC0415
    from leafwise._findings.records import place  # noqa: PLC0415
    from leafwise._findings.words import clean, count, cut  # noqa: PLC0415

    if options.fail_on is None:
        return 0
    if unknown := [*report.warnings, *(f"JAX does not show {what}" for what in report.left_out)]:
        text = f"--fail-on {options.fail_on} cannot be decided: {cut(unknown[0], 200)}"
        print(f"leafwise explain: {text}", file=sys.stderr)
        return 1
    if options.fail_on == "stale":
        wrong = [": ".join(call) for call in stale_calls(report.captures)]
        number = f"{count(len(wrong), 'call')} with an old value"
    else:
        attribute = f"{options.fail_on}s"
        findings = [finding for finding in report.findings if getattr(finding, attribute)]
        wrong = [f"{place(finding.site)}: {finding.what}" for finding in findings]
        number = f"{count(len(wrong), 'finding')} with a {options.fail_on}"
    if len(wrong) <= options.allow:
        return 0
    lines = [f"leafwise explain: {number}, {options.allow} allowed", *wrong]
    print("\n  ".join(map(clean, lines)), file=sys.stderr)
    return 1


@signals.raised(SystemExit)
def compare(options: argparse.Namespace) -> int:
    """Compare two runs, print the differences, and return the exit code."""
    from leafwise.cli import comparison  # noqa: PLC0415

    if problem := _unwritable(options.output):
        return _refuse("compare", problem)
    try:
        compared = comparison.compare(options.first, options.second)
    except comparison.RunError as error:
        return _refuse("compare", str(error))
    if options.output_format == "json":
        text = json.dumps(compared.as_dict(), indent=1)
    elif options.output_format == "github":
        text = comparison.annotations_of(compared)
    else:
        text = comparison.format_comparison(compared)
    if options.output:
        _write(options.output, f"{text}\n")
    else:
        print(text)
    return 1 if compared.causes else 0


def _print_report(report: "Report", stream: TextIO, form: str) -> None:
    from rich.console import Console  # noqa: PLC0415

    from leafwise._display import tables  # noqa: PLC0415
    from leafwise._findings.json import to_json  # noqa: PLC0415

    if form == "json":
        print(json.dumps(to_json(report), indent=1), file=stream)
    elif form == "github":
        print(tables.annotations_of(report), file=stream)
    else:
        tables.print_report(report, Console(file=stream))


def _refuse(command: str, problem: str) -> int:
    print(f"leafwise {command}: {problem}", file=sys.stderr)
    return 2


def _unwritable(*names: str | None) -> str | None:
    """Return why a file cannot be written, before anything slow runs; None if all can."""
    refused = [name for name in names if name and not files.is_writable(name)]
    return f"cannot write {refused[0]}" if refused else None


def _write(name: str, text: str) -> None:
    files.write_files(files.NewFile(name, text.encode(errors="backslashreplace")))
