"""How files and lines are shown to a reader."""

import json
import sys
import types
from pathlib import Path

import jax
import pytest
from tests.kit.inside import Site, short_file


def test_library_paths_are_short() -> None:
    """A file of a package, or of Python, is shown without where that is installed."""
    file = "/env/lib/python3.13/site-packages/optax/tree_utils/_tree_math.py"
    assert short_file(file) == "optax/tree_utils/_tree_math.py"
    assert short_file(jax.__file__) == "jax/__init__.py"
    assert short_file(json.__file__) == "json/__init__.py"
    assert str(Site(file, 441, "f")) == "optax/tree_utils/_tree_math.py:441 in f"


def test_own_paths_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file below the working directory is relative to it; another is whole."""
    monkeypatch.chdir(tmp_path)
    assert short_file(str(tmp_path / "train.py")) == "train.py"
    assert short_file(str(tmp_path.parent / "train.py")) == str(tmp_path.parent / "train.py")


def test_cells_are_named_as_ipython_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is `Cell In[3]`, in Jupyter, where it is a temporary file, and under `explain`."""
    assert short_file("/work/train.ipynb[3]") == "Cell In[3]"
    file = "/run/ipykernel_30400/1477475690.py"
    shell = types.SimpleNamespace(compile=types.SimpleNamespace(_filename_map={file: 3}))
    fake = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)  # type: ignore[arg-type]
    assert short_file(file) == "Cell In[3]"
    assert str(Site(file, 1, "<module>")) == "Cell In[3]:1 in <module>"
