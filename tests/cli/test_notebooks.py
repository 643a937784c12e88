"""`leafwise explain` runs notebooks, and `%%explain` a cell: cells are the sites."""

import importlib.util
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.kit.inside import notebook

from .conftest import Runner

pytestmark = pytest.mark.slow  # processes of their own

IPYTHON = importlib.util.find_spec("IPython") is not None

CELLS = (
    "import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax, jax.numpy as jnp\nimport beside",
    "",
    "@jax.jit\ndef step(x):\n    return x * beside.VALUE\nstep(1.0)",
    "for n in (2, 3):\n    step(jnp.ones(n))\nprint(jnp.ones(2).dtype, __name__)",
)


def write(folder: Path, *cells: str) -> str:
    """Write a notebook with a text before each cell; return its name."""
    texts = [{"cell_type": "markdown", "metadata": {}, "source": "# text"}]
    code = [{"cell_type": "code", "metadata": {}, "source": each} for each in cells]
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"language": "python", "name": "kernel"}},
        "cells": [part for each in code for part in (*texts, each)],
    }
    (folder / "nb").mkdir(exist_ok=True)
    (folder / "nb" / "beside.py").write_text("VALUE = 2")
    (folder / "nb" / "train.ipynb").write_text(json.dumps(document), encoding="utf-8")
    return "nb/train.ipynb"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "ipython",
    [
        pytest.param(True, marks=pytest.mark.skipif(not IPYTHON, reason="needs IPython")),
        pytest.param(False, marks=pytest.mark.nightly),
    ],
)
def test_a_notebook(run: Runner, ipython: bool) -> None:
    """Cells run in one namespace and in their folder; lines of cells are the sites."""
    magic = ["%time step(7)"] if ipython else ["step(7)"]
    name = write(run.folder, *CELLS, *magic, "step(1.0)\nraise ValueError('at:\\nboom\\nno more')")
    blocked = "" if ipython else "import sys; sys.modules['IPython'] = None\n"
    (run.folder / "sitecustomize.py").write_text(blocked, encoding="utf-8")
    path = f"{run.folder}:{Path(notebook.__file__).parents[2]}"
    done, report = run.report(name, env={"PYTHONPATH": path, "PATH": ""})
    assert done.returncode == 1, done.stderr
    assert "float64 __main__\n" in done.stdout
    sites = [each["site"] for each in report["events"] if each["name"] == "step"]
    assert {(each["file"], each["line"], each["text"]) for each in sites} >= {
        ("Cell In[2]", 4, "step(1.0)"),
        ("Cell In[3]", 2, "step(jnp.ones(n))"),
    }
    (step,) = (each for each in report["functions"] if each["name"] == "step")
    assert (step["file"], step["line"]) == ("Cell In[2]", 1)
    assert report["ended"] == "ValueError: at: boom"
    if not ipython:
        assert 'train.ipynb[5]", line 2, in <module>' in done.stderr


def test_what_is_no_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another format and magics without IPython are said before anything runs."""
    name = tmp_path / write(tmp_path, "1 +", "%matplotlib inline")
    assert notebook.problem(name) is None or not IPYTHON
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path / "nb")
    assert notebook.problem(name) == (
        "train.ipynb[1]:1: `1 +` is not plain Python; for magics: pip install ipython"
    )
    for text in ("no json", "[]", '{"worksheets": []}'):
        name.write_text(text)
        assert "is not a notebook of format 4" in (notebook.problem(name) or "")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("kinds", [("raw", "code", "markdown"), ("code", "markdown")])
def test_the_cell_that_is_edited(kinds: tuple[str, ...], indent: int | None) -> None:
    """Of equal cells it is the right one, a list or one string; nothing else changes."""
    loop, other = "for _ in x:\n    'ä'\n", {"cells": ["source"]}
    sources = [loop, loop.splitlines(keepends=True), "\n", ['"source": ["\\\n', "x"], loop]
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "metadata": other, "source": source, "outputs": [loop]}
        for source in sources
        for kind in kinds
    ]
    cells[-1] = dict(reversed(cells[-1].items()))
    document = {"metadata": other, "cells": cells, "nbformat": 4}
    data = json.dumps(document, indent=indent, ensure_ascii=False)
    code = [cell for cell in cells if cell["cell_type"] == "code" and cell["source"] != "\n"]
    found = list(notebook.sources_of(data))
    assert [source for *_, source in found] == ["".join(cell["source"]) for cell in code]
    for cell, (start, end, source) in zip(code, found, strict=True):
        assert notebook.with_source(data, start, end, source) == data
        changed = notebook.with_source(data, start, end, f"f = 1\n{source}")
        before = cell["source"]
        cell["source"] = ["f = 1\n", *before] if isinstance(before, list) else f"f = 1\n{before}"
        assert changed == json.dumps(document, indent=indent, ensure_ascii=False)
        cell["source"] = before


MAGIC = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.enabled = False
config.InteractiveShell.colors = "nocolor"
shell = InteractiveShell.instance(config=config)
for cell in (
    "import jax, jax.numpy as jnp\\noriginal = jax.jit",
    "%load_ext leafwise\\n@jax.jit\\ndef step(x):\\n    return x * 2\\nstep(0)",
    "%%explain\\ny = step(2.0)\\nstep(True)\\n1 / 0",
    "print('defined', y)",
    "%%explain\\nstep(4)",
    "%explain step(jnp.ones(41))\\nprint('next')",
    "from IPython.utils.capture import capture_output\\nmagic = get_ipython().run_line_magic",
    "with capture_output() as c:\\n    magic('explain', 'step(jnp.ones(43))')",
    "print('html' if '<pre' in c.outputs[-1].data['text/html'] else 'text')",
    "%unload_ext leafwise\\nprint(jax.jit is original)",
):
    shell.run_cell(cell, store_history=True)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not IPYTHON, reason="needs IPython")
def test_the_cell_magic(run: Runner) -> None:
    """`%%explain` tells of its own cell only, by its number and lines, and can be unloaded.

    `%explain` does so for a line; in a notebook it is HTML.
    """
    done = run.run(run.write(textwrap.dedent(MAGIC)))
    assert done.returncode == 0, done.stderr
    before, defined, after = done.stdout.partition("defined")
    assert defined
    assert "ZeroDivisionError" in before
    assert "Cell In[3]:2  y = step(2.0)\n" in before
    assert "Cell In[3]:3  step(True)\n" in before
    assert "step retraced once" in before
    assert "Cell In[2]:2" in before
    assert "JAX compiled nothing." in after
    assert "Cell In[6]:1  step(jnp.ones(41))\n" in after
    assert after.endswith("next\nhtml\nTrue\n")
