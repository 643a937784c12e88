"""Trees in orbax checkpoints: with statics, by checkpointers and by the manager."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import leafwise as lw
from leafwise.interop import orbax as lob

DATA = Path(__file__).parent / "data"


@lw.pytree
class Dense:
    w: jax.Array
    b: jax.Array
    act: lw.Static[Any] = "relu"


@lw.pytree
class Net:
    layers: tuple[Dense, ...]
    scale: Any
    depth: lw.Static[Any] = 2


def net(depth: Any = 2, act: Any = "relu", fill: float = 1.0) -> Net:
    layer = Dense(jnp.full((2, 3), fill), jnp.full(3, fill), act)
    return Net((layer, layer), 0.5 * fill, depth)


def leaves() -> dict[str, Any]:
    return {
        "float32": jnp.arange(3.0),
        "bfloat16": jnp.ones(3, jnp.bfloat16),
        "float8": jnp.ones((2, 2), jnp.float8_e4m3fn),
        "int4": jnp.arange(-2, 2).astype(jnp.int4),
        "complex": jnp.ones(2, jnp.complex64) * 1j,
        "weak": jnp.full((2, 3), 1.0),
        "no dimensions": jnp.float32(3.0),
        "empty": jnp.zeros((0, 3)),
        "keys": jax.random.split(jax.random.key(3, impl="rbg"), 2),
        "key": jax.random.key(3),
        "no keys": jax.random.split(jax.random.key(3), 2)[:0],
        "numpy float64": np.linspace(0, 1, 5),
        "numpy scalar": np.float16(0.1),
        "bool": np.array([True, False]),
        "Python": [2**30, 0.1, True, 1 + 2j],
        "nothing": [None, (), {}],
        "a/b.c['d']": np.array([np.nan, -0.0, np.inf]),
    }


def same(one: Any, other: Any) -> bool:
    """Whether two leaves are of one kind and have the same bytes."""
    if "key<" in str(getattr(one, "dtype", "")):
        return one.dtype == other.dtype and same(*map(jax.random.key_data, (one, other)))
    kinds = lw.signature(one) == lw.signature(other) and type(one) is type(other)
    return kinds and np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.works("orbax", "leaves of every dtype, PRNG keys, numpy arrays, Python scalars, empty")
def test_leaves_come_back(tmp_path: Path) -> None:
    """All leaves come back as what they were: kind, dtype, shape, weak type and bytes."""
    tree = leaves()
    lob.save(tree, tmp_path / "tree")
    back = lob.restore(tree, tmp_path / "tree")
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert jax.tree.all(jax.tree.map(same, back, tree))


@pytest.mark.works("orbax", "leaves of every dtype, PRNG keys, numpy arrays, Python scalars, empty")
@pytest.mark.parametrize("tree", [{}, None, (), jnp.zeros((0, 2))], ids=str)
def test_a_tree_without_data_comes_back(tree: Any, tmp_path: Path) -> None:
    """A tree with nothing to write, which orbax refuses, is a checkpoint all the same."""
    lob.save(tree, tmp_path / "tree")
    assert str(lob.restore(tree, tmp_path / "tree")) == str(tree)


@pytest.mark.works("orbax", "a restored tree runs the compiled programs of the one saved")
def test_a_restored_tree_does_not_retrace(tmp_path: Path) -> None:
    """What was restored has the key and the avals of what was saved, uncommitted as it was."""

    @jax.jit
    def run(tree: Net) -> Any:
        return tree.layers[0].w.sum() * tree.scale

    tree = net()
    run(tree)
    lob.save(tree, tmp_path / "tree")
    for target in (net(fill=3.0), jax.eval_shape(net)):
        back = lob.restore(target, tmp_path / "tree")
        with lw.no_retrace():
            assert float(run(back)) == 3.0


@pytest.fixture(params=["Checkpointer", "AsyncCheckpointer"])
def checkpointer(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A checkpointer of orbax with the handler of leafwise."""
    with getattr(ocp, request.param)(lob.Handler()) as made:
        yield made


@pytest.mark.works("orbax", "`Checkpointer`, `AsyncCheckpointer` and `CheckpointManager`")
def test_checkpointers_take_the_handler(checkpointer: Any, tmp_path: Path) -> None:
    """A checkpointer of orbax saves and restores with the arguments of leafwise."""
    numbers = np.zeros(1000)
    tree = {"net": net(), "n": numbers}
    checkpointer.save(tmp_path / "tree", args=lob.Save(tree))
    numbers[:] = 1  # an asynchronous save has its own copy by now
    getattr(checkpointer, "wait_until_finished", lambda: None)()
    back = checkpointer.restore(tmp_path / "tree", args=lob.Restore(tree))
    assert (back["net"], back["n"].sum()) == (net(), 0)
    assert lob.Handler().metadata(tmp_path / "tree").statics["['net'].depth"] == 2
    target = {"net": net(depth=2.0), "n": numbers}
    with pytest.raises(lw.errors.CheckpointMismatchError, match=r"dict\['net'\]\.depth: saved 2"):
        checkpointer.restore(tmp_path / "tree", args=lob.Restore(target))


@pytest.mark.works("orbax", "`Checkpointer`, `AsyncCheckpointer` and `CheckpointManager`")
def test_the_manager_finds_the_handler(tmp_path: Path) -> None:
    """A manager saves steps, restores them by their number, and keeps what it is told to."""
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        for step in range(3):
            manager.save(step, args=lob.Save(net(fill=float(step))))
        manager.wait_until_finished()
        assert manager.all_steps() == [1, 2]
        assert manager.restore(1, args=lob.Restore(net())) == net(fill=1.0)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        step = manager.latest_step()
        back = manager.restore(step, args=lob.Restore(jax.eval_shape(net)))
        assert back.layers == net(fill=2.0).layers
        with pytest.raises(lw.errors.CheckpointMismatchError, match=r"Net\.layers\[1\]\.act"):
            manager.restore(step, args=lob.Restore(net(act="gelu")))
    assert lob.restore(net(), tmp_path / "2" / "default") == net(fill=2.0)


@pytest.mark.works("orbax", "several items of one step, others of them orbax's own")
def test_a_step_of_several_items(tmp_path: Path) -> None:
    """Trees of leafwise and what orbax saves by itself stand side by side in one step."""
    with ocp.CheckpointManager(tmp_path) as manager:
        args = ocp.args.Composite(
            params=lob.Save(net()), ema=lob.Save(net(fill=2.0)), meta=ocp.args.JsonSave({"n": 1})
        )
        manager.save(0, args=args)
        manager.wait_until_finished()
        back = manager.restore(
            0,
            args=ocp.args.Composite(
                params=lob.Restore(net()), ema=lob.Restore(net()), meta=ocp.args.JsonRestore()
            ),
        )
    assert (back.params, back.ema, back.meta) == (net(), net(fill=2.0), {"n": 1})


@pytest.mark.works("orbax", "orbax itself reads the arrays, by key path")
def test_orbax_itself_reads_the_arrays(tmp_path: Path) -> None:
    """Without leafwise the arrays are a dict, and the description is a text to read."""
    lob.save(net(), tmp_path / "tree")
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as plain:
        how = {
            name: ocp.RestoreArgs(restore_type=np.ndarray)
            for name in (".layers[0].w", ".layers[0].b", ".layers[1].w", ".layers[1].b", ".scale")
        }
        found = plain.restore(tmp_path / "tree", args=ocp.args.PyTreeRestore(restore_args=how))
    np.testing.assert_array_equal(found[".layers[1].w"], np.ones((2, 3)))
    content = json.loads((tmp_path / "tree" / "leafwise.json").read_text())
    assert content["statics"][".layers[0].act"] == "relu"
    assert content["leaves"][".layers[0].w"] == {"dtype": "float32", "shape": [2, 3]}


@pytest.mark.works("orbax", "refuses another static, class or structure, by field path")
def test_differences_are_refused_by_path(tmp_path: Path) -> None:
    """Every difference is named, where orbax alone restores silently; the target stays."""
    lob.save(net(), tmp_path / "tree")
    first, _ = net().layers
    target = Net((first, lw.replace(first, act="gelu", b=jnp.ones(4))), jnp.ones(2), True)
    before = jax.tree.leaves(target)
    with pytest.raises(lw.errors.CheckpointMismatchError) as caught:
        lob.restore(target, tmp_path / "tree")
    assert [str(each) for each in caught.value.differences] == [
        "Net.depth: saved 2, target True",
        "Net.layers[1].act: saved 'relu', target 'gelu'",
        "Net.layers[1].b: saved float32[3], target float32[4]",
        "Net.scale: saved a Python float, target float32[2]",
    ]
    assert str(tmp_path / "tree") in str(caught.value)
    assert all(one is other for one, other in zip(before, jax.tree.leaves(target), strict=True))


@pytest.mark.works("orbax", "`migrate=`: renamed fields, changed statics and new fields")
def test_migrate_settles_differences(tmp_path: Path) -> None:
    """A function changes what was saved until it fits; what it leaves is refused."""
    lob.save({"old": net(), "steps": jnp.arange(3)}, tmp_path / "tree")

    def migrate(saved: lob.SavedTree) -> None:
        saved.rename("['old']", "['new']")
        saved.statics["['new'].depth"] = 3
        saved.leaves["['steps']"] = np.int32(saved.leaves["['steps']"].sum())
        saved.put("['ema']", net(fill=2.0))

    target = {"new": net(depth=3, fill=0.0), "ema": net(fill=0.0), "steps": jnp.int32(0)}
    back = lob.restore(target, tmp_path / "tree", migrate=migrate)
    assert back == {"new": net(depth=3), "ema": net(fill=2.0), "steps": 3}
    target["new"] = net(depth=4)
    with pytest.raises(lw.errors.CheckpointMismatchError, match="after migrate") as caught:
        lob.restore(target, tmp_path / "tree", migrate=migrate)
    assert [each.path for each in caught.value.differences] == ["dict['new'].depth"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sharding info not provided:UserWarning")
def test_declared_shardings_are_restored(tmp_path: Path) -> None:
    """An abstract instance, sharded as its fields declare, is a target: no array is whole."""

    @lw.pytree
    class Spread:
        w: jax.Array = lw.field(sharding=PartitionSpec("data", "model"))
        n: int = lw.static_field(default=3)

    def create() -> Spread:
        return Spread(jnp.arange(32.0).reshape(8, 4), n=5)

    lob.save(create(), tmp_path / "tree")
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    target = lw.shard(jax.eval_shape(create), mesh)
    back = lob.restore(target, tmp_path / "tree")
    assert back.w.sharding == NamedSharding(mesh, PartitionSpec("data", "model"))
    assert not lw.diff(back, create(), values=True)
    plain = ocp.StandardCheckpointer()
    plain.save(tmp_path / "plain", lw.shard(create(), mesh))
    plain.wait_until_finished()
    assert plain.restore(tmp_path / "plain", target).w.sharding == target.w.sharding
    plain.close()


@pytest.mark.slow
@pytest.mark.works("orbax", "shardings of the target are honoured")
@pytest.mark.filterwarnings("ignore:Sharding info not provided:UserWarning")
def test_shardings_are_honoured(tmp_path: Path) -> None:
    """An array comes back where the target's lies, whatever it was saved with."""
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    one = NamedSharding(mesh, PartitionSpec("x", "y"))
    other = NamedSharding(mesh, PartitionSpec("y"))
    array = jax.device_put(jnp.arange(64.0).reshape(8, 8), one)
    keys = jax.device_put(
        jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, PartitionSpec("x"))
    )
    lob.save(Dense(array, keys), tmp_path / "tree")
    for sharding in (one, other):
        wanted = jax.device_put(jnp.zeros((8, 8)), sharding)
        abstract = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=sharding)
        for target in (wanted, abstract):
            back = lob.restore(Dense(target, keys), tmp_path / "tree")
            assert back.w.sharding == sharding
            assert back.b.sharding == keys.sharding
            np.testing.assert_array_equal(back.w, array)
    assert len(lob.restore(Dense(jnp.zeros((8, 8)), keys), tmp_path / "tree").w.devices()) == 1


@pytest.mark.works("orbax", "what cannot be saved is refused by path, and nothing is written")
def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    """All leaves and statics that cannot be saved are named before anything is written."""
    tree = Net(({"a": object()},), jax.ShapeDtypeStruct((2,), "f4"), depth=lambda: 1)
    with pytest.raises(lw.errors.CheckpointError) as caught:
        lob.save(tree, tmp_path / "tree")
    for place in (
        "Net.layers[0]['a']: it has no",
        "Net.scale: an abstract",
        "Net.depth: it has no",
    ):
        assert place in str(caught.value)
    with pytest.raises(lw.errors.CheckpointError), ocp.CheckpointManager(tmp_path / "m") as manager:
        manager.save(0, args=lob.Save(tree))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    lob.save(net(depth=lambda: 1), tmp_path / "tree", allow_opaque=True)
    assert lob.restore(net(depth=lambda: 2), tmp_path / "tree").depth() == 2
    with pytest.raises(lw.errors.CheckpointMismatchError, match=r"Net\.depth: saved opaque"):
        lob.restore(net(), tmp_path / "tree")


@pytest.mark.works("orbax", "a tracer or a mutated static is refused")
def test_tracers_and_mutated_statics_are_refused(tmp_path: Path) -> None:
    """Nothing is saved inside jit, nor of a tree whose static changed in place."""

    def inside(tree: Net) -> Net:
        lob.save(tree, tmp_path / "tree")
        return tree

    with pytest.raises(lw.errors.CheckpointError, match=r"Net\.layers\[0\]\.w: a traced value"):
        jax.jit(inside)(net())

    class Box:
        def __init__(self) -> None:
            self.items = [1]

    tree = net(depth=Box())
    tree.depth.items.append(2)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"Net\.depth"):
        lob.save(tree, tmp_path / "tree", allow_opaque=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.works("orbax", "equinox modules and optax states")
def test_modules_and_optimizer_states(tmp_path: Path) -> None:
    """A module of equinox keeps its functions as statics; a state of optax is a tree."""
    act = eqx.nn.Lambda(jax.nn.relu)
    tree = (act, optax.adam(1e-3).init({"w": jnp.ones(2)}))
    lob.save(tree, tmp_path / "tree")
    assert eqx.tree_equal(lob.restore(tree, tmp_path / "tree"), tree)
    changed = (eqx.nn.Lambda(jax.nn.gelu), tree[1])
    with pytest.raises(lw.errors.CheckpointMismatchError, match=r"tuple\[0\]\.fn: .*relu.*gelu"):
        lob.restore(changed, tmp_path / "tree")


def test_what_is_no_checkpoint_of_leafwise_says_so(tmp_path: Path) -> None:
    """A plain checkpoint, a manager's folder, a file and nothing at all: each says what it is."""
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as plain:
        plain.save(tmp_path / "plain", args=ocp.args.StandardSave({"w": jnp.ones(2)}))
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        manager.save(7, args=lob.Save(net()))
    for path in ("plain", "m", "m/7"):
        with pytest.raises(
            lw.errors.CheckpointError, match=r"not a checkpoint of leafwise.interop.orbax"
        ):
            lob.restore({"w": jnp.ones(2)}, tmp_path / path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lob.restore({"w": jnp.ones(2)}, tmp_path / "nowhere")
    (tmp_path / "file").write_text("text")
    with pytest.raises(lw.errors.CheckpointError, match="file: not a checkpoint of leafwise"):
        lob.restore({"w": jnp.ones(2)}, tmp_path / "file")


@pytest.mark.works("orbax", "a damaged or truncated checkpoint is an error that names it")
def test_every_damaged_file_is_found(tmp_path: Path) -> None:
    """Whichever file is changed, cut or gone: an error, or the very same tree."""
    folder = tmp_path / "tree"
    tree = {"w": jnp.arange(100.0), "n": np.int8(3)}
    lob.save(tree, folder)
    target = {"w": jnp.zeros(100), "n": np.int8(0)}
    refused = 0
    for path in [each for each in folder.rglob("*") if each.is_file()]:
        whole = path.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (flipped, whole[:middle], b"", None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            try:
                back = lob.restore(target, folder)
            except lw.errors.CheckpointError as error:
                assert str(folder) in str(error)  # noqa: PT017  # an error is one of two answers
                refused += 1
            else:  # what orbax writes about the checkpoint as a whole is not needed
                assert path.name in {"_CHECKPOINT_METADATA", "commit_success.txt"}
                assert (back["w"] == tree["w"]).all()
        path.write_bytes(whole)
    assert refused > 20


@pytest.mark.works("orbax", "a damaged or truncated checkpoint is an error that names it")
def test_orbax_alone_restores_a_flipped_bit(tmp_path: Path) -> None:
    """The checksums are needed: without them, a changed byte of an array comes back."""
    folder = tmp_path / "tree"
    array = np.random.default_rng(0).normal(size=1000)
    lob.save({"w": array}, folder)
    path = max(folder.rglob("*"), key=lambda each: each.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with ocp.Checkpointer(lob.Handler(checksums=False)) as trusting:
        back = trusting.restore(folder, args=lob.Restore({"w": array}))
    assert not np.array_equal(back["w"], array)
    with pytest.raises(lw.errors.CheckpointError, match="damaged: not what was written"):
        lob.restore({"w": array}, folder)


CRASH = """
    import os, sys
    import jax.numpy as jnp, orbax.checkpoint as ocp
    from leafwise.interop import orbax as lob

    lob.Handler.finalize = lambda self, directory: os._exit(3)
    lob.save({"w": jnp.ones(3)}, sys.argv[1])
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.works("orbax", "a crash while saving leaves nothing that restores")
def test_a_crash_leaves_nothing_that_restores(tmp_path: Path) -> None:
    """A process that dies before orbax commits leaves no checkpoint, and a half-written folder."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), str(tmp_path / "tree")],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=False,
        capture_output=True,
    )
    assert done.returncode == 3
    target = {"w": jnp.zeros(3)}
    with pytest.raises(FileNotFoundError):
        lob.restore(target, tmp_path / "tree")
    (left,) = tmp_path.iterdir()
    assert (left / "leafwise.json").exists()
    with pytest.raises(lw.errors.CheckpointError, match="half-written"):
        lob.restore(target, left)
    lob.save(target, tmp_path / "tree")
    assert not lob.restore(target, tmp_path / "tree")["w"].any()


@pytest.mark.works("orbax", "a crash while saving leaves nothing that restores")
def test_what_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    """A second save at one path is refused, unless it is to overwrite."""
    lob.save(net(), tmp_path / "tree")
    with pytest.raises(ValueError, match="already exists"):
        lob.save(net(fill=2.0), tmp_path / "tree")
    assert lob.restore(net(), tmp_path / "tree") == net()
    lob.save(net(fill=2.0), tmp_path / "tree", overwrite=True)
    assert lob.restore(net(), tmp_path / "tree") == net(fill=2.0)


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path relative to the working directory is as good as an absolute one."""
    monkeypatch.chdir(tmp_path)
    lob.save(net(), "tree")
    assert lob.restore(net(), "tree") == net()


def fixture_tree() -> Any:
    """Return the tree of the committed checkpoint: never change it."""
    layer = Dense(jnp.arange(6.0).reshape(2, 3), jnp.ones(3, jnp.bfloat16), jax.nn.relu)
    statics = (1, True, 1.0, np.float32(1), frozenset({1, 2}), lw.FrozenMapping(a=None))
    return {"net": Net((layer,), 0.5, statics), "key": jax.random.key(7), "step": np.int32(3)}


@pytest.mark.works("orbax", "checkpoints of older versions stay readable")
def test_the_committed_checkpoint_is_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint that the first version wrote comes back."""
    # Classes have the name that they had when it was written, wherever pytest found this file.
    for cls in (Dense, Net):
        monkeypatch.setattr(cls, "__module__", "fixture")
    tree = fixture_tree()
    target = jax.tree.map(lambda leaf: leaf if isinstance(leaf, float) else leaf * 0, tree["net"])
    target = {"net": target, "key": jax.random.key(0), "step": np.int32(0)}
    back = lob.restore(target, DATA / "version-1.orbax")
    assert back["net"] == tree["net"]
    assert back["step"] == 3
    assert (jax.random.key_data(back["key"]) == jax.random.key_data(tree["key"])).all()
    assert json.loads((DATA / "version-1.orbax" / "leafwise.json").read_text())["version"] == 1
