"""Trees in safetensors files: what comes back, what is refused, and what a broken file says."""

import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Optional

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
from hypothesis import given
from jax.sharding import NamedSharding, PartitionSpec

import leafwise as lw
from leafwise.interop import safetensors as lst
from leafwise.testing import strategies

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


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


ABSTRACT = jax.ShapeDtypeStruct((2,), "f4")
LEAVES: dict[str, Any] = {
    "float32": jnp.arange(3.0),
    "bfloat16": jnp.ones(3, jnp.bfloat16),
    "float8": jnp.ones((2, 2), jnp.float8_e4m3fn),
    "int4": jnp.arange(-2, 2).astype(jnp.int4),
    "uint2": np.arange(4).astype(jnp.uint2),
    "complex": jnp.ones(2, jnp.complex64) * 1j,
    "weak": jnp.full((2, 3), 1.0),
    "weak int": jnp.asarray(3),
    "no dimensions": jnp.float32(3.0),
    "empty": jnp.zeros((0, 3)),
    "empty int4": jnp.zeros((2, 0), jnp.int4),
    "key": jax.random.key(3),
    "keys": jax.random.split(jax.random.key(3, impl="rbg"), 2),
    "raw key": jax.random.PRNGKey(3),
    "numpy float64": np.linspace(0, 1, 5),
    "not contiguous": np.arange(6.0).reshape(2, 3).T,
    "numpy scalar": np.float16(0.1),
    "bool": np.array([True, False]),
    "Python int": 2**30,
    "Python float": 0.1,
    "Python bool": True,
    "Python complex": 1 + 2j,
    "nan": np.array([np.nan, -0.0, np.inf]),
}


@pytest.mark.works("safetensors", "leaves of every dtype, PRNG keys, numpy arrays, Python scalars")
@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_comes_back(name: str, tmp_path: Path) -> None:
    """A leaf comes back as what it was: kind, dtype, shape, weak type and bytes."""
    leaf = LEAVES[name]
    lst.save({"x": leaf}, tmp_path / "file")
    back = lst.load({"x": leaf}, tmp_path / "file")["x"]
    assert type(back) is type(leaf)
    assert jax.typeof(back) == jax.typeof(leaf)
    assert lw.signature(back) == lw.signature(leaf)
    one, other = (
        jax.random.key_data(each) if "key" in str(getattr(each, "dtype", "")) else each
        for each in (back, leaf)
    )
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.works("safetensors", "leaves of every dtype, PRNG keys, numpy arrays, Python scalars")
@given(strategies.pytrees())
def test_any_tree_comes_back(tree: Any) -> None:
    """What is saved of a drawn tree and loaded into it is the tree."""
    path = _folder() / "drawn"
    lst.save(tree, path, allow_opaque=True)
    back = lst.load(tree, path)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert lw.signature(one) == lw.signature(other)
        np.testing.assert_array_equal(one, other)


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp())


@pytest.mark.works("safetensors", "a loaded tree runs the compiled programs of the one saved")
def test_a_loaded_tree_does_not_retrace(tmp_path: Path) -> None:
    """What was loaded has the key and the avals of what was saved, uncommitted as it was."""

    @jax.jit
    def run(tree: Net) -> Any:
        return tree.layers[0].w.sum() * tree.scale

    tree = net()
    run(tree)
    lst.save(tree, tmp_path / "file")
    for target in (net(fill=3.0), jax.eval_shape(net)):
        back = lst.load(target, tmp_path / "file")
        with lw.no_retrace():
            assert float(run(back)) == 3.0


@pytest.mark.works("safetensors", "tensors are named by key path, for other programs to read")
def test_tensors_are_named_by_key_path(tmp_path: Path) -> None:
    """safetensors itself reads the arrays, by names that say where they stood."""
    lst.save({"net": net(), "x.y": np.arange(2)}, tmp_path / "file")
    found = safetensors.numpy.load_file(tmp_path / "file")
    assert sorted(found) == [
        "['net'].layers[0].b",
        "['net'].layers[0].w",
        "['net'].layers[1].b",
        "['net'].layers[1].w",
        "['net'].scale",
        "['x.y']",
    ]
    np.testing.assert_array_equal(found["['net'].layers[0].w"], np.ones((2, 3)))
    lst.save(jnp.ones(2), tmp_path / "file")
    assert list(safetensors.numpy.load_file(tmp_path / "file")) == ["tree"]


@pytest.mark.works("safetensors", "refuses another static, class or structure, by field path")
def test_differences_are_refused_by_path(tmp_path: Path) -> None:
    """Every difference is named, and the target is untouched."""
    lst.save(net(), tmp_path / "file")
    first, _ = net().layers
    target = Net((first, lw.replace(first, act="gelu", b=jnp.ones(4))), 0.5, True)
    before = jax.tree.leaves(target)
    with pytest.raises(lw.errors.CheckpointMismatchError) as caught:
        lst.load(target, tmp_path / "file")
    assert [str(each) for each in caught.value.differences] == [
        "Net.depth: saved 2, target True",
        "Net.layers[1].act: saved 'relu', target 'gelu'",
        "Net.layers[1].b: saved float32[3], target float32[4]",
    ]
    assert str(tmp_path / "file") in str(caught.value)
    assert all(one is other for one, other in zip(before, jax.tree.leaves(target), strict=True))


@pytest.mark.works("safetensors", "refuses another static, class or structure, by field path")
@pytest.mark.parametrize(
    ("target", "place"),
    [
        ({"layers": (1.0,)}, "dict: saved "),
        (Net((), 0.5), "Net.layers[0]: saved"),
        (Net(net().layers, jnp.ones(2)), "Net.scale: saved a Python float, target float32[2]"),
        (Net(net().layers, 1), "Net.scale: saved a Python float, target a Python int"),
        (Net(net().layers, None), "Net.scale: saved a Python float, target NoneType"),
        (Net(list(net().layers), 0.5), "Net.layers: saved tuple, target list"),
        (Net(net().layers, 0.5, lambda: 2), "Net.depth: saved 2, target opaque"),
    ],
    ids=["class", "missing", "shape", "scalar", "none", "container", "opaque"],
)
def test_another_target_is_refused(target: Any, place: str, tmp_path: Path) -> None:
    """Another class, container, leaf or static is a difference at its path."""
    lst.save(net(), tmp_path / "file")
    with pytest.raises(lw.errors.CheckpointMismatchError) as caught:
        lst.load(target, tmp_path / "file")
    assert place in str(caught.value)


@pytest.mark.works("safetensors", "the target says what kind of scalar comes back")
def test_the_target_says_the_kind_of_a_scalar(tmp_path: Path) -> None:
    """A Python float can come back as a JAX scalar, and the other way round; no int is bent."""
    lst.save({"n": 2**62}, tmp_path / "file")
    assert lst.load({"n": 0}, tmp_path / "file") == {"n": 2**62}
    lst.save({"x": 0.5, "n": 300}, tmp_path / "file")
    back = lst.load({"x": jnp.float32(0), "n": np.int64(0)}, tmp_path / "file")
    assert (back["x"].dtype, back["x"], back["n"]) == (jnp.float32, 0.5, 300)
    with pytest.raises(lw.errors.CheckpointError, match=r"dict\['n'\]: 300 does not fit"):
        lst.load({"x": 0.5, "n": jnp.int8(0)}, tmp_path / "file")
    lst.save({"x": jnp.float32(0.5), "n": jnp.int8(3)}, tmp_path / "file")
    assert lst.load({"x": 0.0, "n": 0}, tmp_path / "file") == {"x": 0.5, "n": 3}


def test_a_dtype_that_jax_would_narrow_is_refused(tmp_path: Path) -> None:
    """Where 64 bits are off, an abstract target of 64 bits is an error, not a cast."""
    lst.save({"x": np.ones(2)}, tmp_path / "file")
    with jax.enable_x64(True):
        target = jax.eval_shape(lambda: {"x": jnp.ones(2)})
        assert lst.load(target, tmp_path / "file")["x"].dtype == np.float64
    with pytest.raises(
        lw.errors.CheckpointError, match=r"dict\['x'\]: JAX converts .* to float32\n.*x64"
    ):
        lst.load(target, tmp_path / "file")


@pytest.mark.works("safetensors", "shardings of the target are honoured")
def test_shardings_are_honoured(tmp_path: Path) -> None:
    """An array comes back where the target's lies: by an instance, and by an abstract tree."""
    mesh = jax.make_mesh((8,), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    array = jax.device_put(jnp.arange(16.0), sharding)
    lst.save({"x": array}, tmp_path / "file")
    for target in (array, jax.ShapeDtypeStruct((16,), jnp.float32, sharding=sharding)):
        back = lst.load({"x": target}, tmp_path / "file")["x"]
        assert back.sharding == sharding
        assert (back == array).all()


@pytest.mark.works("safetensors", "`migrate=`: renamed fields, changed statics and new fields")
def test_migrate_settles_differences(tmp_path: Path) -> None:
    """A function changes what was saved: renames, replaces, transposes, adds, drops."""

    @lw.pytree
    class Old:
        weight: jax.Array
        layers: tuple[Dense, ...]
        gone: Any
        act: lw.Static[Any] = jax.nn.relu

    @lw.pytree
    class New:
        w: jax.Array
        blocks: tuple[Dense, ...]
        ema: Dense
        act: lw.Static[Any] = jax.nn.gelu
        rate: lw.Static[float] = 0.1

    old = Old(jnp.arange(6.0).reshape(2, 3), net().layers, {"a": (1.0,)})
    lst.save(old, tmp_path / "file")
    target = New(jnp.zeros((3, 2)), net(fill=0.0).layers, net(fill=0.0).layers[0])

    def migrate(saved: lst.SavedTree) -> None:
        saved.classes[""] = New
        saved.rename(".weight", ".w")
        saved.rename(".layers", ".blocks")
        saved.drop(".gone")
        saved.put(".ema", target.ema)
        saved.leaves[".w"] = saved.leaves[".w"].T
        saved.statics[".act"] = jax.nn.gelu
        saved.statics[".rate"] = 0.1

    back = lst.load(target, tmp_path / "file", migrate=migrate)
    assert back == New(old.weight.T, old.layers, target.ema)
    with pytest.raises(lw.errors.CheckpointMismatchError, match="after migrate") as caught:
        lst.load(lw.replace(target, rate=0.2), tmp_path / "file", migrate=migrate)
    assert [each.path for each in caught.value.differences] == ["New.rate"]


def test_migrate_is_checked(tmp_path: Path) -> None:
    """A wrong path, a leaf that is none, and a returned value are errors that say so."""
    lst.save({"a": 1.0, "b": (1.0,)}, tmp_path / "file")
    load = functools.partial(lst.load, {"a": 1.0, "b": (1.0,)}, tmp_path / "file")
    with pytest.raises(KeyError, match="nothing was saved at"):
        load(migrate=lambda saved: saved.rename(".a", ".b"))
    with pytest.raises(KeyError, match="something at"):
        load(migrate=lambda saved: saved.rename("['a']", "['b']"))
    with pytest.raises(KeyError, match="nothing was saved at"):
        load(migrate=lambda saved: saved.drop("['c']"))
    with pytest.raises(lw.errors.CheckpointError, match="in place, but returned 3"):
        load(migrate=lambda _: 3)
    with pytest.raises(lw.errors.CheckpointError, match=r"migrate: \['a'\]: it is not an array"):
        load(migrate=lambda saved: saved.leaves.__setitem__("['a']", "text"))
    with pytest.raises(lw.errors.CheckpointError, match=r"\['a'\]: it is not an array"):
        load(migrate=lambda saved: saved.leaves.__setitem__("['a']", ABSTRACT))


@pytest.mark.works("safetensors", "equinox modules and optax states")
def test_modules_and_optimizer_states(tmp_path: Path) -> None:
    """A module of equinox keeps its functions as statics; a state of optax is a tree."""
    mlp = functools.partial(eqx.nn.MLP, 2, 1, 4, 1, final_activation=jax.nn.tanh)
    model = filled(mlp, 1.0)
    state = optax.adam(1e-3).init({"w": jnp.ones(2)})
    lst.save((model, state), tmp_path / "file")
    back, _ = lst.load((filled(mlp, 0.0), state), tmp_path / "file")
    assert eqx.tree_equal(back, model)
    changed = filled(functools.partial(mlp, activation=jax.nn.gelu), 0.0)
    with pytest.raises(
        lw.errors.CheckpointMismatchError, match=r"tuple\[0\]\.activation: .*relu.*gelu"
    ):
        lst.load((changed, state), tmp_path / "file")
    with pytest.raises(
        lw.errors.CheckpointError, match=r"MLP\.final_activation: it has no description"
    ):
        lst.save(filled(functools.partial(eqx.nn.MLP, 2, 1, 4, 1), 1.0), tmp_path / "file")


def filled(make: Any, value: float) -> Any:
    """Make a module without drawing, and so compiling, its numbers."""
    abstract = eqx.filter_eval_shape(make, key=jax.random.key(0))
    return jax.tree.map(
        lambda x: jnp.full(x.shape, value, x.dtype) if is_abstract(x) else x, abstract
    )


def is_abstract(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def bad_leaves() -> dict[str, Any]:
    deleted = jnp.ones(2) + 1
    deleted.delete()
    return {
        "abstract": (jax.ShapeDtypeStruct((2,), "f4"), "abstract"),
        "deleted": (deleted, "deleted or donated"),
        "object": (np.array([None]), "no arrays like this one"),
        "text": (np.array(["a"]), "no arrays like this one"),
        "time": (np.array([1], "m8[s]"), "no arrays like this one"),
        "swapped": (np.ones(2, ">f4"), "no arrays like this one"),
        "masked": (np.ma.masked_array([1.0], [True]), "no arrays like this one"),
        "huge": (2**70, "does not fit into 64 bits"),
        "lambda": (lambda: 1, "no description that another process could compare"),
        "object()": (object(), "no description that another process could compare"),
    }


@pytest.mark.works("safetensors", "what cannot be saved is refused by path, and nothing is written")
@pytest.mark.parametrize("name", bad_leaves())
def test_what_cannot_be_saved_is_refused(name: str, tmp_path: Path) -> None:
    """A leaf that cannot be saved is an error at its path; no file appears, none is lost."""
    leaf, message = bad_leaves()[name]
    lst.save(net(), tmp_path / "file")
    with pytest.raises(lw.errors.CheckpointError, match=rf"Net\.scale\[1\]: .*{message}"):
        lst.save(Net((), (1.0, leaf)), tmp_path / "file")
    assert files(tmp_path) == ["file"]
    assert lst.load(net(fill=2.0), tmp_path / "file") == net()


@pytest.mark.works("safetensors", "what cannot be saved is refused by path, and nothing is written")
def test_opaque_statics_are_refused_unless_allowed(tmp_path: Path) -> None:
    """A lambda is refused by Class.field; allowed, it is compared by its type and name."""
    with pytest.raises(lw.errors.CheckpointError) as caught:
        lst.save(net(act=lambda x: x, depth=(object(),)), tmp_path / "file")
    assert "Net.layers[0].act: it has no description" in str(caught.value)
    assert "Net.depth[0]: it has no description" in str(caught.value)
    lst.save(net(act=lambda x: x), tmp_path / "file", allow_opaque=True)
    assert lst.load(net(act=lambda x: -x), tmp_path / "file").layers[0].w.sum() == 6
    with pytest.raises(lw.errors.CheckpointMismatchError, match=r"Net\.layers\[0\]\.act"):
        lst.load(net(act=object()), tmp_path / "file")


@pytest.mark.works("safetensors", "a tracer or a mutated static is refused")
def test_tracers_are_refused(tmp_path: Path) -> None:
    """Inside jit there is nothing to save, and nowhere to load to."""

    @jax.jit
    def inside(tree: Net) -> Net:
        lst.save(tree, tmp_path / "file")
        return tree

    with pytest.raises(lw.errors.CheckpointError, match=r"Net\.layers\[0\]\.w: a traced value"):
        inside(net())
    assert not files(tmp_path)
    lst.save(net(), tmp_path / "file")
    with pytest.raises(lw.errors.CheckpointError, match=r"Net\.layers\[0\]\.w: a traced value"):
        jax.jit(lambda tree: lst.load(tree, tmp_path / "file"))(net())


class Box:
    def __init__(self) -> None:
        self.items = [1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and other.items == self.items

    def __hash__(self) -> int:
        return hash(tuple(self.items))


@pytest.mark.works("safetensors", "a tracer or a mutated static is refused")
def test_a_mutated_static_is_refused(tmp_path: Path) -> None:
    """A static that changed in place since its key was made is not saved."""
    tree = net(depth=Box())
    lst.save(tree, tmp_path / "file")
    tree.depth.items.append(2)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"Net\.depth"):
        lst.save(tree, tmp_path / "file")


@pytest.mark.works("safetensors", "a damaged, truncated or foreign file is an error that names it")
def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    """Whatever byte is changed, and wherever the file ends: an error, or the same tree."""
    path = tmp_path / "file"
    tree = {"w": jnp.arange(3.0), "n": np.int8(3)}
    lst.save(tree, path)
    whole = path.read_bytes()
    target = {"w": jnp.zeros(3), "n": np.int8(0)}
    for place in range(0, len(whole), 3):
        for damaged in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :],
        ):
            path.write_bytes(damaged)
            try:
                back = lst.load(target, path)
            except lw.errors.CheckpointError as error:
                assert str(path) in str(error)  # noqa: PT017  # an error is one of two answers
            else:
                assert (back["w"] == tree["w"]).all(), place
                assert back["n"] == 3, place


@pytest.mark.works("safetensors", "a damaged, truncated or foreign file is an error that names it")
def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    """A file of safetensors that leafwise did not write says what to do; none is not found."""
    safetensors.numpy.save_file({"w": np.ones(2)}, tmp_path / "file")
    with pytest.raises(lw.errors.CheckpointError, match=r"file: not written by leafwise"):
        lst.load({"w": jnp.ones(2)}, tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lst.load({"w": jnp.ones(2)}, tmp_path / "nowhere")


@pytest.mark.works("safetensors", "the file is replaced as a whole, or not at all")
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails, the old file is there, and no other."""
    path = tmp_path / "file"
    lst.save(net(), path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        lst.save(net(fill=2.0), path)
    assert files(tmp_path) == ["file"]
    assert lst.load(net(fill=3.0), path) == net()


def fixture_tree() -> Any:
    """Return the tree of the committed file: never change it."""
    layer = Dense(jnp.arange(6.0).reshape(2, 3), jnp.ones(3, jnp.bfloat16), jax.nn.relu)
    statics = (1, True, 1.0, np.float32(1), frozenset({1, 2}), lw.FrozenMapping(a=None))
    return {"net": Net((layer,), 0.5, statics), "key": jax.random.key(7), "step": np.int32(3)}


@pytest.mark.works("safetensors", "files of older versions stay readable")
def test_the_committed_file_is_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the first version wrote comes back."""
    # Classes have the name that they had when it was written, wherever pytest found this file.
    for cls in (Dense, Net):
        monkeypatch.setattr(cls, "__module__", "fixture")
    tree = fixture_tree()
    target = jax.tree.map(lambda leaf: leaf if isinstance(leaf, float) else leaf * 0, tree["net"])
    target = {"net": target, "key": jax.random.key(0), "step": np.int32(0)}
    back = lst.load(target, DATA / "version-1.safetensors")
    assert back["net"] == tree["net"]
    assert back["step"] == 3
    assert (jax.random.key_data(back["key"]) == jax.random.key_data(tree["key"])).all()
    metadata = json.loads(_metadata(DATA / "version-1.safetensors")["leafwise"])
    assert metadata["version"] == 1


def _metadata(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + size])["__metadata__"]
    return found


@lw.pytree
class Episode:
    done: jax.Array
    kind: lw.Static[Any] = Optional[int]  # noqa: UP045  # another object than `int | None`


def test_a_weakly_typed_bool(tmp_path: Path) -> None:
    """It comes back as one, and a union with None as a static is described."""
    saved = Episode(jnp.asarray(0) >= 5)
    lst.save(saved, tmp_path / "episode.safetensors")
    loaded = lst.load(saved, tmp_path / "episode.safetensors")
    assert jax.typeof(loaded.done) == jax.typeof(saved.done)
    assert jax.typeof(loaded.done).weak_type
    assert jax.tree.structure(loaded) == jax.tree.structure(saved)
