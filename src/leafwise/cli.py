"""The command ``leafwise``."""

import argparse
import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
from collections.abc import Generator, Sequence
from typing import TextIO

import leafwise

_NEEDED = ("hypothesis", "rich")


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
    options = parser.parse_args(argv)
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        parser.exit(
            2,
            f"leafwise check needs {' and '.join(missing)}: pip install 'leafwise[cli]'\n",
        )
    return _check(options.targets, as_json=options.json)


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
