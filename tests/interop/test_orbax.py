"""Checkpoints with orbax's own checkpointers; `test_checkpoints` tests what comes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import leafwise as lw
from leafwise.interop import orbax as lob

from .test_checkpoints import Dense, net


@pytest.fixture(params=["Checkpointer", "AsyncCheckpointer"])
def checkpointer(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A checkpointer of orbax with its own handler of several items."""
    with getattr(ocp, request.param)(ocp.CompositeCheckpointHandler()) as made:
        yield made


@pytest.mark.works("orbax", "`Checkpointer`, `AsyncCheckpointer` and `CheckpointManager`")
def test_checkpointers_take_the_arguments(checkpointer: Any, tmp_path: Path) -> None:
    """A checkpointer of orbax saves with the arguments of leafwise."""
    numbers = np.zeros(1000)
    tree = {"net": net(), "n": numbers}
    checkpointer.save(tmp_path / "tree", args=lob.save_args(tree))
    numbers[:] = 1  # an asynchronous save has its own copy by now
    getattr(checkpointer, "wait_until_finished", lambda: None)()
    back = lob.restore(tree, tmp_path / "tree")
    assert (back["net"], back["n"].sum()) == (net(), 0)


@pytest.mark.works("orbax", "`Checkpointer`, `AsyncCheckpointer` and `CheckpointManager`")
def test_a_manager_saves_steps(tmp_path: Path) -> None:
    """A manager saves steps and keeps what it is told to; a step is a checkpoint."""
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        for step in range(3):
            manager.save(step, args=lob.save_args(net(fill=float(step))))
        manager.wait_until_finished()
        assert manager.all_steps() == [1, 2]
        assert lob.restore(net(), tmp_path / "1") == net(fill=1.0)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        step = manager.latest_step()
        back = lob.restore(jax.eval_shape(net), manager.directory / str(step))
        assert (back.layers[0].w == 2.0).all()
    with pytest.raises(lw.errors.CheckpointError, match=r"Net\.depth: saved 2, target 3"):
        lob.restore(net(depth=3), tmp_path / "2")
    with pytest.raises(lw.errors.CheckpointError, match=r"not a checkpoint of .*\n.*give the step"):
        lob.restore(net(), tmp_path)
    with pytest.raises(lw.errors.CheckpointError), ocp.CheckpointManager(tmp_path) as manager:
        manager.save(7, args=lob.save_args(net(depth=object())))
    assert manager.latest_step() == 2


@pytest.mark.works("orbax", "several items of one step, others of them orbax's own")
def test_a_step_of_several_items(tmp_path: Path) -> None:
    """A tree of leafwise and what orbax saves by itself stand side by side in one step."""
    with ocp.CheckpointManager(tmp_path) as manager:
        args = ocp.args.Composite(meta=ocp.args.JsonSave({"n": 1}), **lob.save_args(net()))
        manager.save(0, args=args)
        manager.wait_until_finished()
        back = manager.restore(0, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))
    assert back.meta == {"n": 1}
    assert lob.restore(net(fill=0.0), tmp_path / "0") == net()


@pytest.mark.works("orbax", "orbax itself reads the arrays, by key path")
def test_orbax_itself_reads_the_arrays(tmp_path: Path) -> None:
    """Without leafwise the arrays are a dict, and the description is JSON."""
    lob.save(Dense(jnp.ones((2, 3)), jnp.ones(3)), tmp_path / "tree")
    how = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in (".w", ".b")}
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as plain:
        args = ocp.args.Composite(
            arrays=ocp.args.PyTreeRestore(restore_args=how), leafwise=ocp.args.JsonRestore()
        )
        found = plain.restore(tmp_path / "tree", args=args)
    np.testing.assert_array_equal(found.arrays[".w"], np.ones((2, 3)))
    assert found.leafwise["tree"][".act"] == {"static": "relu"}
    assert found.leafwise["tree"][".w"] == {"array": {"dtype": "float32", "shape": [2, 3]}}


@pytest.mark.works("orbax", "what is there is replaced only when asked")
def test_what_is_there_is_replaced_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second save at one path, here a relative one, is refused, unless it is to overwrite."""
    monkeypatch.chdir(tmp_path)
    lob.save(net(), "tree")
    with pytest.raises(ValueError, match="already exists"):
        lob.save(net(fill=2.0), "tree")
    assert lob.restore(net(), "tree") == net()
    lob.save(net(fill=2.0), "tree", overwrite=True)
    assert lob.restore(net(), "tree") == net(fill=2.0)
