"""Leafwise with nothing installed but what it depends on: `nox -s no_extras` runs this.

No conftest is loaded: those need Hypothesis.
"""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
import leafwise.testing

if importlib.util.find_spec("hypothesis") is not None:
    pytest.skip("has extras: run by nox -s no_extras", allow_module_level=True)


@lw.pytree
class Params:
    w: jax.Array
    rate: float = lw.static_field(default=0.1)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_public_names_load() -> None:
    """Every name of the core is there."""
    assert [name for name in lw.__all__ if not hasattr(lw, name)] == []


def test_the_core_works() -> None:
    """Classes, keys, trees, pictures and explanations need no extra."""
    rate = 0.1

    @lw.jit
    def step(params: Params) -> jax.Array:
        return params.w * params.rate * rate

    params = Params(jnp.ones(3))
    assert step(params).shape == (3,)
    assert jax.tree.structure(params) == jax.tree.structure(lw.replace(params, w=jnp.zeros(3)))
    changed = lw.replace(params, rate=0.2)
    assert [each.path for each in lw.diff(params, changed)] == ["rate"]
    assert "rate" in str(step.explain(changed))
    assert "rate" in str(lw.captures(step))
    assert "Params" in str(lw.show(params))


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_command_names_its_extra(command: str, tmp_path: Path) -> None:
    """Both commands say what brings what they need."""
    done = run(tmp_path, "leafwise", command, "script.py")
    assert done.returncode == 2
    assert "pip install 'leafwise[cli]'" in done.stderr


def test_the_plugin_names_its_extra(tmp_path: Path) -> None:
    """The plugin is loaded; checks of classes say what brings Hypothesis."""
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\nleafwise_check = models\npythonpath = .")
    tmp_path.joinpath("models.py").write_text("")
    done = run(tmp_path, "pytest", "-p", "no:cacheprovider")
    assert "pip install 'leafwise[testing]'" in done.stdout + done.stderr


@pytest.mark.parametrize("extra", ["equinox", "chex", "orbax", "safetensors", "treescope"])
def test_a_module_names_its_extra(extra: str) -> None:
    """A module for another library says what brings it."""
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"leafwise.interop.{extra}")
    assert f"pip install 'leafwise[{extra}]'" in str(caught.value)


def test_a_module_names_its_library() -> None:
    """So does a module for a library that no extra brings."""
    with pytest.raises(ImportError, match=r"flax is not installed\n  fix: pip install flax"):
        importlib.import_module("leafwise.interop.flax")


def test_the_kit_names_its_extra() -> None:
    """The kit says what brings Hypothesis."""
    with pytest.raises(ImportError) as caught:
        leafwise.testing.check_pytree(Params)
    assert "pip install 'leafwise[testing]'" in str(caught.value)
