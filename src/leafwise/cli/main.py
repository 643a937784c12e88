"""The command ``leafwise``."""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from typing import Any, TextIO

import leafwise

_NEEDED = {"check": ("hypothesis", "rich"), "explain": ("rich",)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: The arguments, without the program's name; those of the process if None.

    Returns:
        0 if all is as promised, 1 if not, 2 if the command line or a target is wrong.
    """
    parser = argparse.ArgumentParser(prog="leafwise", description=leafwise.__doc__)
    parser.add_argument("--version", action="version", version=leafwise.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_check(commands)
    _add_explain(commands)
    options = parser.parse_args(argv)
    needed = _NEEDED[options.command]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        parser.exit(2, f"leafwise {options.command} needs {names}: pip install 'leafwise[cli]'\n")
    if options.command == "check":
        return _check(options)
    return _explain(options)


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="see whether your classes keep the laws of pytrees, and what retraces",
        description=(
            "Builds instances of every pytree class in the targets, of any library. Changes one "
            "field at a time, calls a jitted function, and compares what JAX did with what was "
            "predicted; then tries the laws of pytrees on many instances."
        ),
        epilog=(
            "Exit code: 0 as promised, 1 not, or a class not checked, 2 usage, 130 after Ctrl-C. "
            "What is unsound in another library's classes is a warning."
        ),
    )
    check.add_argument(
        "targets", nargs="+", metavar="TARGET", help="module, module:Class, or file.py[:Class]"
    )
    check.add_argument("--fields", action="store_true", help="change fields only; show each change")
    check.add_argument("--laws", action="store_true", help="try the laws only")
    check.add_argument(
        "--field", action="append", metavar="NAME", default=[], help="change this field only"
    )
    check.add_argument(
        "--law", action="append", metavar="NAME", default=[], type=_law, help="try this law only"
    )
    check.add_argument(
        "--examples", type=_positive, metavar="N", help="instances for each law (20)"
    )
    check.add_argument(
        "--seed", type=_natural, default=0, metavar="N", help="another one, other instances (0)"
    )
    check.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="for each law (120)")
    check.add_argument("--strict", action="store_true", help="let warnings fail")
    check.add_argument("-v", "--verbose", action="store_true", help="show each change")
    check.add_argument("--json", action="store_true", help="print JSON instead of tables")
    check.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")
    check.add_argument("--sarif", metavar="FILE", help="write what is wrong as SARIF")


def _law(text: str) -> Any:
    from leafwise.testing._laws.law import Law, unknown_law  # noqa: PLC0415  # when asked for

    for law in Law:
        if law == text:
            return law
    raise argparse.ArgumentTypeError(unknown_law(text))


def _natural(text: str) -> int:
    if not text.isdecimal():
        msg = f"{text!r} is not a number, 0 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        msg = f"{text!r} is not a number, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        msg = f"{text!r} is not a number of seconds"
        raise argparse.ArgumentTypeError(msg)
    return number


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        help="run a script and say why JAX traced and compiled",
        usage="%(prog)s [options] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description=(
            "Runs a script unchanged, with every jax.jit under watch, and prints at the end "
            "what was traced and compiled, the line that called, and the reason."
        ),
        epilog="Exit code: the script's own; 2 if it cannot be found, or a file not be written.",
    )
    explain.add_argument("-m", dest="module", action="store_true", help="run a module")
    explain.add_argument(
        "--captures", action="store_true", help="also check what the jitted functions capture"
    )
    explain.add_argument("--json", metavar="FILE", help="write the report as JSON")
    explain.add_argument("--html", metavar="FILE", help="write the report as one HTML page")
    explain.add_argument("--perfetto", metavar="FILE", help="write Chrome trace events")
    explain.add_argument("target", metavar="SCRIPT", help="the script, or the module after -m")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def _explain(options: argparse.Namespace) -> int:
    # Loaded when asked for: they need the extra `cli`.
    from rich.console import Console  # noqa: PLC0415

    from leafwise._display import page, perfetto, tables  # noqa: PLC0415  # needs the extra `cli`
    from leafwise.cli import explain_script  # noqa: PLC0415

    target = explain_script.Script(options.target, options.arguments, options.module)
    files = [name for name in (options.json, options.html, options.perfetto) if name]
    problem = explain_script.problem(target) or _unwritable(files)
    if problem:
        print(f"leafwise explain: {problem}", file=sys.stderr)
        return 2
    here = pathlib.Path.cwd()  # the script may go elsewhere
    report, ended = explain_script.run(target, leafwise.__version__, captures=options.captures)
    if options.json:
        _write(here / options.json, json.dumps(report, indent=1))
    if options.html:
        _write(here / options.html, page.page(report))
    if options.perfetto:
        _write(here / options.perfetto, json.dumps(perfetto.trace_events(report)))
    try:
        with _any_character(sys.stdout):
            tables.print_report(report, Console())
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader has seen enough; rich exits then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ended.code


def _write(file: pathlib.Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="backslashreplace")


def _unwritable(names: list[str]) -> str | None:
    """Say which of the files cannot be written, before a long script has run."""
    for name in names:
        file = pathlib.Path(name).resolve()
        if not file.parent.is_dir() or not os.access(file.parent, os.W_OK) or file.is_dir():
            return f"cannot write {name}"
    return None


def _check(options: argparse.Namespace) -> int:
    problem = _contradiction(options) or _unwritable(list(filter(None, _files(options))))
    if problem:
        print(f"leafwise check: {problem}", file=sys.stderr)
        return 2
    # Hypothesis keeps tables on disk: not in the folder of whoever calls.
    folder = pathlib.Path(tempfile.gettempdir(), "leafwise-hypothesis")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(folder))
    # Loaded when asked for: they need the extra `cli`.
    from leafwise.cli import records, run, targets  # noqa: PLC0415  # needs the extra `cli`

    here = pathlib.Path.cwd()  # a module may go elsewhere
    started = time.perf_counter()
    try:
        # Standard output is for the report: what modules and constructors print is not.
        with contextlib.redirect_stdout(sys.stderr):
            found = run.run_checks(targets.find_targets(options.targets), _chosen(options))
    except (targets.TargetError, records.UsageError) as error:
        print(f"leafwise check: {error}", file=sys.stderr)
        return 2
    _write_check(options, found, here, time.perf_counter() - started)
    if not _print_check(options, found):
        return 1
    return 130 if found.interrupted else 0 if found.passed else 1


def _files(options: argparse.Namespace) -> list[str | None]:
    return [options.junit, options.sarif]


def _contradiction(options: argparse.Namespace) -> str | None:
    """Return what does not go together."""
    if options.laws and not options.fields and options.field:
        return "--laws changes no fields: leave out --laws or --field"
    if options.fields and not options.laws and options.law:
        return "--fields tries no laws: leave out --fields or --law"
    return None


def _chosen(options: argparse.Namespace) -> Any:
    """Return what is to be checked: both parts, unless one alone is named."""
    from leafwise.cli import run  # noqa: PLC0415  # needs the extra `cli`
    from leafwise.testing._laws.law import Law  # noqa: PLC0415

    fields = options.fields or bool(options.field)
    with_laws = options.laws or bool(options.law)
    both = fields == with_laws
    return run.CheckOptions(
        laws=tuple(dict.fromkeys(options.law or Law)) if both or with_laws else (),
        fields=both or fields,
        only=tuple(options.field),
        examples=options.examples or run.EXAMPLES,
        seed=options.seed,
        seconds=options.timeout or run.SECONDS,
        strict=options.strict,
    )


def _write_check(
    options: argparse.Namespace, found: Any, here: pathlib.Path, seconds: float
) -> None:
    from leafwise.cli import documents  # noqa: PLC0415  # as above

    if options.junit:
        _write(here / options.junit, documents.as_junit(found, seconds))
    if options.sarif:
        _write(here / options.sarif, documents.as_sarif(found))


def _print_check(options: argparse.Namespace, found: Any) -> bool:
    """Print the report; return whether somebody read it to the end."""
    from leafwise.cli import documents, report  # noqa: PLC0415  # needs the extra `cli`

    try:
        with _any_character(sys.stdout):
            if options.json:
                print(documents.as_json(found))
            else:
                verbose = options.verbose or options.fields
                report.print_run(found, report.make_console(), verbose=verbose)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        # At exit Python flushes what is left, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


@contextlib.contextmanager
def _any_character(stream: TextIO) -> Generator[None, None, None]:
    """Let a stream write what its encoding lacks as an escape, until the block ends."""
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    errors = stream.errors
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        stream.reconfigure(errors=errors)


if __name__ == "__main__":
    sys.exit(main())
