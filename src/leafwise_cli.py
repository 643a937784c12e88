"""The arguments of the command ``leafwise``.

Only the standard library and the lazy `leafwise` package are imported here, so that
``leafwise --help`` answers at once. `leafwise.cli.main` is imported after parsing.
"""

import argparse
import functools
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import leafwise
import leafwise_explain
from leafwise.cli.streams import discard

_NEEDED: Final = {"check": ("hypothesis", "rich"), "explain": ("rich",), "compare": ()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="leafwise",
        description="Tools for pytree dataclasses whose jit cache keys you can trust.",
    )
    parser.add_argument("--version", action="version", version=leafwise.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = _add_check(commands)
    _add_explain(commands)
    _add_compare(commands)
    options = _parse(parser, commands.choices, sys.argv[1:] if argv is None else argv)
    leafwise_explain.stop()
    command: str = options.command
    if command == "check":
        _add_settings(check, options)
    missing = [name for name in _NEEDED[command] if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        parser.exit(2, f"leafwise {command} needs {names}: pip install 'leafwise[cli]'\n")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # characters that its encoding lacks
    try:
        code: int = getattr(importlib.import_module("leafwise.cli.main"), command)(options)
        sys.stdout.flush()
    except OSError as error:  # the disk is full, or the pipe was closed
        if isinstance(error, BrokenPipeError):  # the one that rich raises has no errno
            discard(sys.stdout)
            return 141  # 128 + SIGPIPE, as in a shell
        if error.errno is None:
            raise
        discard(sys.stdout)
        parser.exit(2, f"leafwise {command}: {error.filename or 'output'}: {error.strerror}\n")
    return code


def _parse(
    parser: argparse.ArgumentParser,
    commands: dict[str, argparse.ArgumentParser],
    argv: Sequence[str],
) -> argparse.Namespace:
    """Parse the arguments; for an unknown command or option, name the nearest one."""
    if argv and argv[0].isalpha() and argv[0] not in commands:
        parser.error(f"no command {argv[0]!r}{_nearest(argv[0], commands)}")
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        command = commands[options.command]
        hint = _nearest(unknown[0], re.findall(r"--[\w-]+", command.format_help()))
        command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _nearest(name: str, known: Iterable[str]) -> str:
    return leafwise.errors.did_you_mean(
        name, known, most=2
    )  # loaded here, as `--help` is to be fast


def _add_settings(check: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Add the project's settings to the options of `check`, which come first."""
    file, table = _settings(check)
    problem = ""
    for name, setting in table.items():
        kind, words = _SETTINGS.get(name, (None, ""))
        if kind is None:
            problem = f"unknown setting {name!r}; the settings are {', '.join(_SETTINGS)}"
        elif type(setting) is not kind:
            problem = f"{name} takes {words}, got {setting!r}"
        elif name == "examples" and setting < 1:
            problem = f"argument --examples: '{setting}' is not a number, 1 or more"
    if problem:
        check.exit(2, f"{check.prog}: {file}, [tool.leafwise]: {problem}\n")
    targets, options.strategies = (
        [_from(file.parent, str(text)) for text in table.get(name, [])]
        for name in ("targets", "strategies")
    )
    options.targets = options.targets or targets
    options.without = [*table.get("without", []), *options.without]
    options.examples = options.examples or table.get("examples")
    options.allow_unchecked |= table.get("allow-unchecked", False)
    if not options.targets:
        check.error("name a TARGET: a package, a module, a file or a directory")


def _settings(check: argparse.ArgumentParser) -> tuple[Path, dict[str, Any]]:
    """Return the nearest ``pyproject.toml``, upwards, that has a leafwise table, and the table."""
    import tomllib  # noqa: PLC0415  # only `leafwise check` needs it

    here = Path.cwd()
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        try:
            text = file.read_text(encoding="utf-8")
            tool: Any = tomllib.loads(text).get("tool") if "leafwise" in text else None
        except OSError:
            continue
        except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
            check.exit(2, f"{check.prog}: {file}: {error}\n")
        table: Any = tool.get("leafwise") if isinstance(tool, dict) else None
        if isinstance(table, dict):
            return file, table
        if table is not None:
            check.exit(2, f"{check.prog}: {file}: tool.leafwise takes a table, got {table!r}\n")
    return here, {}


_SETTINGS: Final[dict[str, tuple[Any, str]]] = {
    "targets": (list, "a list of strings"),
    "strategies": (list, "a list of files"),
    "without": (list, "a list of law names"),
    "examples": (int, "a number"),
    "allow-unchecked": (bool, "true or false"),
}


def _from(folder: Path, text: str) -> str:
    """Return a target or file with the folder in front, if the folder has a file of that name."""
    is_elsewhere = (folder / text.partition(":")[0]).exists() and folder != Path.cwd()
    return str(folder / text) if is_elsewhere else text


def _add_check(commands: Any) -> argparse.ArgumentParser:
    check: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="check that your classes keep the laws of pytrees, and which changes retrace",
        description=(
            "Builds instances of every pytree class in the targets, from any library. Changes one "
            "field at a time, calls a jitted function, and compares what JAX did with the "
            "prediction; then tests the laws of pytrees on many instances."
        ),
        epilog=(
            "Exit code: 0 nothing wrong, 1 something wrong, 2 usage error, "
            "3 something not checked, 130 after Ctrl-C. "
            "Known faults of other libraries' classes are warnings."
        ),
    )
    check.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="package, module, directory or file.py, with everything below it; or one :Class of it",
    )
    add, flag = check.add_argument, functools.partial(check.add_argument, action="store_true")
    flag("--fields", help="only change fields, and show each change")
    flag("--laws", help="only test the laws")
    add("--field", action="append", metavar="NAME", default=[], help="only change this field")
    # `leafwise.cli.main` checks the names: the list of laws is not imported here.
    add("--law", action="append", metavar="NAME", default=[], help="only test this law")
    add("--without", action="append", metavar="LAW", default=[], help="do not test this law")
    add("--examples", type=_positive, metavar="N", help="instances per law (default 20)")
    add("--seed", type=int, default=0, metavar="N", help="random seed (default 0)")
    add("--timeout", type=seconds, metavar="SECONDS", help="CPU seconds per class (default 8)")
    flag("--warnings-as-errors", help="fail on warnings")
    flag("--allow-unchecked", help="pass even if something was not checked")
    flag("-v", "--verbose", help="show each change")
    flag("-q", "--quiet", help="show only what is wrong")
    _add_outputs(add, "standard output")
    return check


def _add_outputs(add: Callable[..., object], stream: str) -> None:
    add("-o", "--output", metavar="FILE", type=_no_script, help=f"write to FILE, not to {stream}")
    formats = "github: GitHub Actions annotations, one for each finding or difference"
    add("--output-format", choices=("text", "json", "github"), default="text", help=formats)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Parse a number of seconds; argparse shows this function's name if ``float`` raises."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def _add_explain(commands: Any) -> None:
    explain: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="run a script and explain why JAX traced and compiled",
        usage="%(prog)s [options] (SCRIPT | NOTEBOOK | -m MODULE) [ARGUMENT ...]",
        description=(
            "Runs a script unchanged, watches every jax.jit, and prints at the end what was "
            "traced and compiled, from which line, and why. "
            "Options come before the script; what follows it is passed to the script."
        ),
        epilog="Exit code: the script's own; 1 if that is 0 and --fail-on counts more findings "
        "than allowed; 2 if the script is not found, or a file cannot be written.",
    )
    explain.add_argument("-m", dest="module", action="store_true", help="run a module")
    options: list[argparse.Action] = []

    def add(*names: str, **facts: Any) -> None:
        options.append(explain.add_argument(*names, **facts))

    flag = functools.partial(add, action="store_true")
    flag("--captures", help="also list captured values, and calls that used old ones")
    audit = "also compare each call, types and captures included, with the program it ran"
    flag("--audit", help=audit)
    _add_outputs(add, "standard error")
    flag("-q", "--quiet", help="print no report")
    add("--html", metavar="FILE", type=_no_script, help="also write the report as an HTML page")
    flag("--progress", help="show slow compiles even if stderr is a pipe")
    add(
        "--fail-on",
        choices=("retrace", "recompile", "stale"),
        help="fail on findings or calls with one",
    )
    add("--allow", metavar="N", type=int, default=0, help="how many of these to allow (default 0)")
    rerun = "rerun the script with each fix that is an edit, and report what it saves"
    flag("--try", dest="tries", help=rerun)
    add("--max-tries", type=_positive, default=5, metavar="N", help="findings to try (default 5)")
    flag("--diff", help="also print the patch to standard output")
    flag("--write", help="also apply the patch")
    flag("--force", help="even to files with uncommitted changes")
    explain.set_defaults(ours=[option.option_strings[-1] for option in options])
    explain.add_argument(
        "target", metavar="SCRIPT", help="the script or notebook, or the module after -m"
    )
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def _no_script(name: str) -> str:
    """Return the name of a file to write; refuse a script, given by mistake as the value."""
    if name.endswith((".py", ".ipynb")):
        raise argparse.ArgumentTypeError(f"this would overwrite {name}: name an output file")
    return name


def _add_compare(commands: Any) -> None:
    compare: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="explain why a second run compiled different programs, or missed the cache",
        description=(
            "Compares two reports of `leafwise explain --output-format json`: versions, "
            "environment, flags and configuration, and each program's arguments, captures, "
            "operations and key in JAX's persistent cache."
        ),
        epilog="Exit code: 0 nothing differs, 1 something differs, 2 usage error.",
    )
    add = compare.add_argument
    add("first", metavar="RUN1.json", help="the first run")
    add("second", metavar="RUN2.json", help="the second run")
    _add_outputs(add, "standard output")
