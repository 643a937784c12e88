"""Files of safetensors: names, drawn trees, writing; `test_checkpoints` tests what comes back."""

import functools
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
def test_the_file_is_replaced(tmp_path: Path) -> None:
    """A symbolic link stays; whoever may read other files may read this one, of any name."""
    plain, link, file = (tmp_path / name for name in ("plain", "link", "n" * 250))
    plain.touch()
    link.symlink_to(file.name)
    lst.save({"x": jnp.ones(2)}, link)
    assert link.is_symlink()
    assert file.stat().st_mode == plain.stat().st_mode
    assert {*tmp_path.iterdir()} == {plain, link, file}
