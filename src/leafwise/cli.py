"""The command ``leafwise``."""

import argparse
import importlib.util
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

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
        found = targets.find_targets(texts)
    except targets.TargetError as error:
        print(f"leafwise check: {error}", file=sys.stderr)
        return 2
    reports = report.run_checks(found)
    if as_json:
        print(report.as_json(reports))
    else:
        report.print_reports(reports, report.make_console())
    return 0 if report.passed(reports) else 1


if __name__ == "__main__":
    sys.exit(main())
