"""Files of safetensors: names, drawn trees, writing; `test_checkpoints` tests what comes back."""

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from tests.kit.trees import pytrees

import leafwise as lw
from leafwise.interop import safetensors as lst


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp())


@pytest.mark.works(
    "safetensors", "leaves of every dtype, PRNG keys, numpy arrays, Python scalars, empty"
)
@given(pytrees())
def test_any_tree_comes_back(tree: Any) -> None:
    """What is saved of a drawn tree and loaded into it is the tree."""
    path = folder() / "drawn"
    lst.save(tree, path)
    back = lst.load(tree, path)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert lw.signature(one) == lw.signature(other)
        np.testing.assert_array_equal(one, other)


@pytest.mark.works("safetensors", "tensors are named by key path, for other programs to read")
def test_tensors_are_named_by_key_path(tmp_path: Path) -> None:
    """safetensors itself reads the arrays, by names that say where they stood."""
    tree = {"net": [jnp.ones((2, 3)), 0.5], "x.y": np.arange(2)}
    lst.save(tree, tmp_path / "file")
    found = safetensors.numpy.load_file(tmp_path / "file")
    assert sorted(found) == ["['net'][0]", "['net'][1]", "['x.y']"]
    np.testing.assert_array_equal(found["['net'][0]"], np.ones((2, 3)))
    lst.save(jnp.ones(2), tmp_path / "file")
    assert list(safetensors.numpy.load_file(tmp_path / "file")) == ["tree"]


@pytest.mark.works("safetensors", "the file is replaced as a whole, or not at all")
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails, the old file is there, and no other."""
    path = tmp_path / "file"
    lst.save({"x": jnp.ones(2)}, path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        lst.save({"x": jnp.zeros(2)}, path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert lst.load({"x": jnp.zeros(2)}, path)["x"].sum() == 2
