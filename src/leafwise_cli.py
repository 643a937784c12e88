"""The command ``leafwise``: its arguments.

Only the standard library is imported here, so that ``leafwise --help`` answers at once. What
runs a command needs JAX: `leafwise.cli.main` is imported once the command line makes sense.
"""

import argparse
import importlib
import importlib.util
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

_NEEDED: Final = {"check": ("hypothesis", "rich"), "explain": ("rich",)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: The arguments, without the program's name; those of the process if None.

    Returns:
        0 if nothing is wrong, 1 if something is, 2 if the command line or a target is, and 3 if
        something could not be checked.
    """
    parser = argparse.ArgumentParser(
        prog="leafwise",
        description="Pytree dataclasses whose jit cache keys you can trust: their tools.",
    )
    parser.add_argument("--version", action="version", version=metadata.version("leafwise"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_check(commands)
    _add_explain(commands)
    options = parser.parse_args(argv)
    command: str = options.command
    missing = [name for name in _NEEDED[command] if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        parser.exit(2, f"leafwise {command} needs {names}: pip install 'leafwise[cli]'\n")
    problem = ""
    if command == "check" and options.laws and not options.fields and options.field:
        problem = "--laws changes no fields: leave out --laws or --field"
    elif command == "check" and options.fields and not options.laws and options.law:
        problem = "--fields tries no laws: leave out --fields or --law"
    if problem:
        parser.exit(2, f"leafwise check: {problem}\n")
    code: int = getattr(importlib.import_module("leafwise.cli.main"), command)(options)
    return code


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="find out whether your classes keep the laws of pytrees, and what retraces",
        description=(
            "Builds instances of every pytree class in the targets, of any library. Changes one "
            "field at a time, calls a jitted function, and compares what JAX did with what was "
            "predicted; then tries the laws of pytrees on many instances."
        ),
        epilog=(
            "Exit code: 0 nothing wrong, 1 something wrong, 2 usage, 3 something not checked, "
            "130 or 143 after Ctrl-C or SIGTERM. "
            "What is unsound in another library's classes is a warning."
        ),
    )
    check.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="package, module, directory or file.py, with what is below it; or one's :Class",
    )
    check.add_argument("--fields", action="store_true", help="change fields only; show each change")
    check.add_argument("--laws", action="store_true", help="try the laws only")
    check.add_argument(
        "--field", action="append", metavar="NAME", default=[], help="change this field only"
    )
    # Which laws there are is known to leafwise alone, so that `leafwise.cli.main` refuses others.
    check.add_argument(
        "--law", action="append", metavar="NAME", default=[], help="try this law only"
    )
    check.add_argument(
        "--examples", type=_positive, metavar="N", help="instances for each law (20)"
    )
    check.add_argument(
        "--seed", type=_natural, default=0, metavar="N", help="another one, other instances (0)"
    )
    check.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="for each law (120)")
    check.add_argument("--strict", action="store_true", help="let warnings fail")
    check.add_argument(
        "--allow-unchecked", action="store_true", help="let what cannot be checked pass"
    )
    check.add_argument("-v", "--verbose", action="store_true", help="show each change")
    check.add_argument("--json", action="store_true", help="print JSON instead of tables")
    check.add_argument("--sarif", metavar="FILE", help="write what is wrong as SARIF")


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
        help="run a script and explain why JAX traced and compiled",
        usage="%(prog)s [options] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description=(
            "Runs a script unchanged, with every jax.jit under watch, and prints at the end "
            "what was traced and compiled, the line that called, and the reason."
        ),
        epilog="Exit code: the script's own; 2 if it is not found, or a file cannot be written.",
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
