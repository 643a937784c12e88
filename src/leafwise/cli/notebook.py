"""``python -m leafwise.cli.notebook``: running the cells of a notebook in order, as a script.

IPython runs them if it is installed, with magics; otherwise they run as plain Python. In tracebacks
and reports each cell is a file: ``train.ipynb[3]`` is the cell that Jupyter numbers ``[3]`` when
all cells are run.
"""

import functools
import importlib.util
import io
import json
import linecache
import os
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import leafwise_explain


def cells_of(file: Path) -> Iterator[tuple[str, str]]:
    """Yield name and source of each code cell; raise ValueError if the file is not a notebook."""
    try:
        changed = leafwise_explain.changed_text(file)
        notebook: Any = json.loads(changed or file.read_text(encoding="utf-8"))
        cells = [("".join(cell["source"]), cell["cell_type"]) for cell in notebook["cells"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not a notebook of format 4: {error!r}") from error
    number = 0
    for source, kind in cells:
        if kind == "code" and source.strip():
            number += 1
            yield f"{file.resolve()}[{number}]", source


def sources_of(data: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the text of a notebook has the source of each code cell, and the source."""
    cells: list[Any] = json.loads(data)["cells"]
    places = list(_SOURCE.finditer(data))
    if [json.loads(place[1]) for place in places] != [cell["source"] for cell in cells]:
        raise ValueError("not only the cells of the notebook have a source")
    for cell, place in zip(cells, places, strict=True):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.strip():
            yield *place.span(1), source


_SOURCE: Final = re.compile(r'"source"\s*:\s*("(?:[^"\\]|\\.)*"|\[(?:[^]"]|"(?:[^"\\]|\\.)*")*\])')


def with_source(data: str, start: int, end: int, source: str) -> str:
    """Return the text of a notebook with another source at a place, written like the old one."""
    dump = functools.partial(json.dumps, ensure_ascii=data.isascii())
    text, lines = dump(source), io.StringIO(source, newline="\n")
    if brackets := re.fullmatch(r"(\[\s*).*?(\s*\])", data[start:end], re.DOTALL):
        between = f",{brackets[1][1:] or ' '}"
        text = f"{brackets[1]}{between.join(map(dump, lines))}{brackets[2]}"
    return data[:start] + text + data[end:]


def problem(file: Path) -> str | None:
    """Return why a notebook cannot be run, or None."""
    try:
        cells = list(cells_of(file))
    except ValueError as error:
        return str(error)
    if importlib.util.find_spec("IPython") is not None:
        return None
    for name, source in cells:
        try:
            compile(source, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:  # or half of a surrogate pair
            line = (getattr(error, "text", "") or str(error)).strip()
            where = f"{os.path.relpath(name)}:{getattr(error, 'lineno', 1)}"
            return f"{where}: `{line}` is not plain Python; for magics: pip install ipython"
    return None


def main(arguments: list[str]) -> int:
    """Run a notebook in its folder, as Jupyter does; return an exit code."""
    file = Path(arguments[0]).resolve()
    sys.argv[:] = arguments
    os.chdir(file.parent)
    sys.path[0] = str(file.parent)
    run = _run_plain if importlib.util.find_spec("IPython") is None else _run_by_ipython
    return run(list(cells_of(file)))


def _run_by_ipython(cells: list[tuple[str, str]]) -> int:
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415
    from traitlets.config import Config  # noqa: PLC0415

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell: Any = InteractiveShell.instance(config=config)
    for name, source in cells:
        shell.compile.get_code_name = functools.partial(_name_of, name)
        result = shell.run_cell(source, store_history=True)
        if isinstance(result.error_in_exec, SystemExit):
            raise result.error_in_exec
        if not result.success:
            return 1
    return 0


def _name_of(name: str, *_: object) -> str:
    return name


def _run_plain(cells: list[tuple[str, str]]) -> int:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for name, source in cells:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec", dont_inherit=True), vars(module))  # noqa: S102
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
