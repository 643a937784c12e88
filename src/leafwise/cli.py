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
    check = commands.add_parser(
        "check",
        help="see which field changes of your classes retrace",
        description=(
            "Builds an instance of every pytree class in the targets, changes one field at a "
            "time, calls a jitted function, and compares what JAX did with what was predicted."
        ),
        epilog="Exit code: 0 as promised, 1 a mismatch or a class not checked, 2 usage.",
    )
    check.add_argument(
        "targets", nargs="+", metavar="TARGET", help="module, module:Class, or file.py[:Class]"
    )
    check.add_argument("--json", action="store_true", help="print JSON instead of tables")
    _add_explain(commands)
    options = parser.parse_args(argv)
    needed = _NEEDED[options.command]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        parser.exit(2, f"leafwise {options.command} needs {names}: pip install 'leafwise[cli]'\n")
    if options.command == "check":
        return _check(options.targets, as_json=options.json)
    return _explain(options)


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
    explain.add_argument("--json", metavar="FILE", help="write the report as JSON")
    explain.add_argument("--html", metavar="FILE", help="write the report as one HTML page")
    explain.add_argument("--perfetto", metavar="FILE", help="write Chrome trace events")
    explain.add_argument("target", metavar="SCRIPT", help="the script, or the module after -m")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def _explain(options: argparse.Namespace) -> int:
    # Loaded when asked for: they need the extra `cli`.
    from rich.console import Console  # noqa: PLC0415

    from leafwise import _script  # noqa: PLC0415
    from leafwise.report import page, perfetto, tables  # noqa: PLC0415

    target = _script.Target(options.target, options.arguments, options.module)
    files = [name for name in (options.json, options.html, options.perfetto) if name]
    problem = _script.problem(target) or _unwritable(files)
    if problem:
        print(f"leafwise explain: {problem}", file=sys.stderr)
        return 2
    here = pathlib.Path.cwd()  # the script may go elsewhere
    report, ended = _script.run(target, leafwise.__version__)
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


def _check(texts: list[str], *, as_json: bool) -> int:
    # Hypothesis keeps tables on disk: not in the folder of whoever calls.
    folder = pathlib.Path(tempfile.gettempdir(), "leafwise-hypothesis")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(folder))
    # Loaded when asked for: they need the extra `cli`.
    from leafwise.check import report, targets  # noqa: PLC0415

    try:
        # Standard output is for the report: what modules and constructors print is not.
        with contextlib.redirect_stdout(sys.stderr):
            reports = report.run_checks(targets.find_targets(texts))
    except targets.TargetError as error:
        print(f"leafwise check: {error}", file=sys.stderr)
        return 2
    try:
        with _any_character(sys.stdout):
            if as_json:
                print(report.as_json(reports))
            else:
                report.print_reports(reports, report.make_console())
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        # At exit Python flushes what is left, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0 if report.passed(reports) else 1


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
