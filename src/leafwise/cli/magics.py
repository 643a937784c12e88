"""``%load_ext leafwise``: the magics ``%%explain`` and ``%explain`` of IPython and Jupyter."""

import functools
import io
import time
from typing import Any, Final

from leafwise._findings.json import from_json
from leafwise._jit.blocks import current_block
from leafwise.cli.recorded import Process, Record, make_report
from leafwise.cli.recorder import Recorder, first_line

_loaded: "list[Explainer]" = []
_NOT_CHECKED: Final = "functions jitted in earlier cells are not checked: run those cells again"


def load(shell: Any) -> None:
    """Add the magics, and record every function that is passed to `jax.jit` from now on."""
    if not _loaded:
        _loaded.append(Explainer(shell))
        _loaded[0].recorder.start()
    shell.register_magic_function(_loaded[0].explain, "line_cell", "explain")


def unload(shell: Any) -> None:
    """Remove the magics, and put `jax.jit` back."""
    while _loaded:
        _loaded.pop().recorder.stop()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("explain", None)


class Explainer:
    """The magics, and the records of what JAX does while they run a cell or line."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        # `leafwise explain --captures` of a notebook has checked calls from the start.
        self.recorder = Recorder(self._write, captures=current_block() is not None)
        self.records: list[dict[str, Any]] | None = None  # None between cells
        self.captures: dict[int, dict[str, Any]] = {}  # the last record of each function

    def _write(self, **record: Any) -> None:
        if "captures" in record:
            self.captures[record["owner"]] = record
        if self.records is not None:
            self.records.append(record)

    def explain(self, line: str, cell: str | None = None) -> None:
        """Run a cell, or the rest of a line, and print what JAX traced and compiled, and why."""
        from IPython.core.error import UsageError  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        from leafwise._display import tables  # noqa: PLC0415

        options = line.strip() if cell is not None else ""
        if options not in {"", "--captures"}:
            way = f"`leafwise explain {options} NOTEBOOK.ipynb` does"
            way = "did you mean that?" if "--captures".startswith(options) else way
            raise UsageError(f"%%explain takes no argument but --captures: {way}")
        number = len(self.shell.user_ns["In"]) - 1
        compiler = self.shell.compile
        compiler.cache = functools.partial(_cache, compiler.cache, number)
        self.recorder.forget()
        is_first = bool(options) and self.recorder.list_captures()
        self.records, began = [], time.time()
        # A line in place of the magic's, which keeps the line numbers of the cell.
        code = line if cell is None else f"# %%explain\n{cell}"
        interactivity, hook = self.shell.ast_node_interactivity, self.shell.displayhook
        try:
            if hook.semicolon_at_end_of_expression(code):
                self.shell.ast_node_interactivity = "none"
            result = self.shell.run_cell(code, store_history=False)
        finally:
            records, self.records = self.records, None
            vars(compiler).pop("cache", None)
            self.shell.ast_node_interactivity = interactivity
        # Once listed, captures are recorded in all cells.
        records = [each for each in records if options or "owner" not in each]
        stale = {record["owner"] for record in records if "stale" in record}
        records[:0] = [record for owner, record in self.captures.items() if owner in stale]
        process = Process(0, from_json(list[Record], records))
        report = make_report([process], process, f"Cell In[{number}]", began)
        report.seconds = time.time() - began
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            report.exit, report.ended = 1, first_line(error)
        report.warnings += [_NOT_CHECKED] * is_first
        text = io.StringIO()
        tables.print_report(report, Console(file=text, width=80, force_jupyter=False))
        page = tables.html_page(report, tables.FRAGMENT)
        shown = {"text/plain": text.getvalue().rstrip(), "text/html": page}
        self.shell.display_pub.publish(shown)


def _cache(cache: Any, number: int, code: str, _: int, **raw: Any) -> Any:
    """Cache code with the number of its cell, not of the next one, as IPython would in a magic."""
    return cache(code, number, **raw)
