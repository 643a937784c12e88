"""``%load_ext leafwise``: the magics ``%%explain`` and ``%explain`` of IPython and Jupyter."""

import io
import time
from typing import Any

from leafwise._findings.json import from_json
from leafwise.cli.recorded import Process, Record, make_report
from leafwise.cli.recorder import Recorder

_loaded: "list[Explainer]" = []


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
        self.recorder = Recorder(self._write)
        self.records: list[dict[str, Any]] | None = None  # None between cells

    def _write(self, **record: Any) -> None:
        if self.records is not None:
            self.records.append(record)

    def explain(self, line: str, cell: str | None = None) -> None:
        """Run a cell, or the rest of a line, and print what JAX traced and compiled, and why."""
        from IPython.core.error import UsageError  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        from leafwise._display import tables  # noqa: PLC0415

        if cell is not None and (options := line.strip()):
            way = f"`leafwise explain {options} NOTEBOOK.ipynb` does"
            raise UsageError(f"%%explain takes no arguments: {way}")
        number = len(self.shell.user_ns["In"]) - 1
        names: dict[str, int] = getattr(self.shell.compile, "_filename_map", {})
        known = set(names)
        self.recorder.forget()
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
            self.shell.ast_node_interactivity = interactivity
        # IPython gives code that a magic runs the number of the next cell.
        names.update(dict.fromkeys(set(names) - known, number))
        process = Process(0, from_json(list[Record], records))
        report = make_report([process], process, f"Cell In[{number}]", began)
        report.seconds = time.time() - began
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            report.exit, report.ended = 1, f"{type(error).__name__}: {error}"
        text = io.StringIO()
        tables.print_report(report, Console(file=text, width=80, force_jupyter=False))
        page = tables.html_page(report, tables.FRAGMENT)
        shown = {"text/plain": text.getvalue().rstrip(), "text/html": page}
        self.shell.display_pub.publish(shown)
