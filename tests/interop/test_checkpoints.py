"""Trees in checkpoints of orbax and in files of safetensors: what comes back, what is refused."""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy
from hypothesis import given
from jax.sharding import NamedSharding, PartitionSpec
from tests.kit.trees import pytrees
from tests.objects.samples import Plain, with_attributes

import leafwise as lw
from leafwise.interop import orbax as lob
from leafwise.interop import safetensors as lst

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


@dataclasses.dataclass(frozen=True)
class Library:
    """The functions of one of the two, and what writes a file without leafwise."""

    save: Callable[..., None]
    load: Callable[..., Any]
    save_plain: Callable[[Path], None]


def save_plain_orbax(path: Path) -> None:
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as plain:
        plain.save(path, args=ocp.args.StandardSave({"w": jnp.ones(2)}))


LIBRARIES = {
    "orbax": Library(lob.save, lob.restore, save_plain_orbax),
    "safetensors": Library(
        lst.save, lst.load, lambda path: safetensors.numpy.save_file({"w": np.ones(2)}, path)
    ),
}


def both(what: str) -> pytest.MarkDecorator:
    """Run a test with both libraries; it stands behind a line of the table for each."""
    rows = [
        pytest.param(library, id=name, marks=pytest.mark.works(name, what))
        for name, library in LIBRARIES.items()
    ]
    return pytest.mark.parametrize("lib", rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved"


LEAVES: dict[str, Callable[[], Any]] = {
    "float32": lambda: jnp.arange(3.0),
    "bfloat16": lambda: jnp.ones(3, jnp.bfloat16),
    "float8": lambda: jnp.ones((2, 2), jnp.float8_e4m3fn),
    "int4": lambda: jnp.arange(-2, 2).astype(jnp.int4),
    "complex": lambda: jnp.ones(2, jnp.complex64) * 1j,
    "weak": lambda: jnp.full((2, 3), 1.0),
    "no dimensions": lambda: jnp.float32(3.0),
    "empty": lambda: jnp.zeros((0, 3)),
    "empty int4": lambda: jnp.zeros((2, 0), jnp.int4),
    "key": lambda: jax.random.key(3),
    "keys": lambda: jax.random.split(jax.random.key(3, impl="rbg"), 2),
    "no keys": lambda: jax.random.split(jax.random.key(3), 2)[:0],
    "numpy float64": lambda: np.linspace(0, 1, 5),
    "not contiguous": lambda: np.arange(6.0).reshape(2, 3).T,
    "numpy scalar": lambda: np.float16(0.1),
    "Python": lambda: [2**62, 0.1, True, 1 + 2j],
    "nothing": lambda: [None, (), {}],
    "a/b.c['d']": lambda: np.array([np.nan, -0.0, np.inf]),
}


def same(one: Any, other: Any) -> bool:
    """Whether two leaves are of one kind and have the same bytes."""
    if "key<" in str(getattr(one, "dtype", "")):
        return one.dtype == other.dtype and same(*map(jax.random.key_data, (one, other)))
    kinds = lw.signature(one) == lw.signature(other) and type(one) is type(other)
    return kinds and np.asarray(one).tobytes() == np.asarray(other).tobytes()


@both("leaves of every dtype, PRNG keys, numpy arrays, Python scalars, empty")
def test_leaves_come_back(lib: Library, path: Path) -> None:
    """All leaves come back as what they were: kind, dtype, shape, weak type and bytes."""
    tree = {name: make() for name, make in LEAVES.items()}
    lib.save(tree, path)
    back = lib.load(tree, path)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert jax.tree.all(jax.tree.map(same, back, tree))


@both("leaves of every dtype, PRNG keys, numpy arrays, Python scalars, empty")
@pytest.mark.parametrize("tree", [{}, None, (), jnp.zeros((0, 2)), jnp.ones(2)], ids=str)
def test_a_small_tree_comes_back(tree: Any, lib: Library, path: Path) -> None:
    """So does a tree with nothing to write, and one that is an array itself."""
    lib.save(tree, path)
    assert str(lib.load(tree, path)) == str(tree)


@both("a restored tree runs the compiled programs of the one saved")
def test_a_restored_tree_does_not_retrace(lib: Library, path: Path) -> None:
    """What was restored has the key and the avals of what was saved, uncommitted as it was."""

    @jax.jit
    def run(tree: Net) -> Any:
        return tree.layers[0].w.sum() * tree.scale

    tree = net()
    run(tree)
    lib.save(tree, path)
    for target in (net(fill=3.0), jax.eval_shape(net)):
        back = lib.load(target, path)
        with lw.no_retrace():
            assert float(run(back)) == 3.0


@both("refuses another static, class or structure, by field path")
def test_differences_are_refused_by_path(lib: Library, path: Path) -> None:
    """Every difference is named, and the target is untouched."""
    lib.save(net(), path)
    first, _ = net().layers
    target = Net((first, lw.replace(first, act="gelu", b=jnp.ones(4))), jnp.ones(2), True)
    before = jax.tree.leaves(target)
    with pytest.raises(lw.errors.CheckpointError) as caught:
        lib.load(target, path)
    assert [str(each) for each in caught.value.differences] == [
        "Net.depth: saved 2, target True",
        "Net.layers[1].act: saved 'relu', target 'gelu'",
        "Net.layers[1].b: saved float32[3], target float32[4]",
        "Net.scale: saved a Python float, target float32[2]",
    ]
    assert str(path) in str(caught.value)
    assert all(one is other for one, other in zip(before, jax.tree.leaves(target), strict=True))


@pytest.mark.works("safetensors", "the target says what kind of scalar comes back")
def test_the_target_says_the_kind_of_a_scalar(path: Path) -> None:
    """A Python float can come back as a JAX scalar, and the other way round; no int is bent."""
    lst.save({"x": 0.5, "n": 300}, path)
    back = lst.load({"x": jnp.float32(0), "n": np.int64(0)}, path)
    assert (back["x"].dtype, back["x"], back["n"]) == (jnp.float32, 0.5, 300)
    with pytest.raises(lw.errors.CheckpointError, match=r"dict\['n'\]: 300 does not fit"):
        lst.load({"x": 0.5, "n": jnp.int8(0)}, path)
    lst.save({"x": jnp.float32(0.5), "n": jnp.int8(3)}, path)
    assert lst.load({"x": 0.0, "n": 0}, path) == {"x": 0.5, "n": 3}


def test_a_dtype_that_jax_would_narrow_is_refused(path: Path) -> None:
    """Where 64 bits are off, an abstract target of 64 bits is an error, not a cast."""
    lst.save({"x": np.ones(2)}, path)
    with jax.enable_x64(True):
        target = jax.eval_shape(lambda: {"x": jnp.ones(2)})
        assert lst.load(target, path)["x"].dtype == np.float64
    with pytest.raises(
        lw.errors.CheckpointError, match=r"dict\['x'\]: JAX converts .* to float32\n.*x64"
    ):
        lst.load(target, path)


@pytest.mark.slow
@both("shardings of the target are honoured")
@pytest.mark.filterwarnings("ignore:Sharding info not provided:UserWarning")
def test_shardings_are_honoured(lib: Library, path: Path) -> None:
    """An array comes back where the target's lies, whatever it was saved with; so do keys."""
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    one = NamedSharding(mesh, PartitionSpec("x", "y"))
    other = NamedSharding(mesh, PartitionSpec("y"))
    array = jax.device_put(jnp.arange(64.0).reshape(8, 8), one)
    keys = jax.device_put(
        jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, PartitionSpec("x"))
    )
    lib.save(Dense(array, keys), path)
    for sharding in (one, other):
        wanted = jax.device_put(jnp.zeros((8, 8)), sharding)
        abstract = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=sharding)
        for target in (wanted, abstract):
            back = lib.load(Dense(target, keys), path)
            assert back.w.sharding == sharding
            assert back.b.sharding == keys.sharding
            np.testing.assert_array_equal(back.w, array)
    assert len(lib.load(Dense(jnp.zeros((8, 8)), keys), path).w.devices()) == 1


@both("`renamed=`: what an older class has saved, by a mapping of old to new names")
def test_what_an_older_class_has_saved(lib: Library, path: Path) -> None:
    """Fields, classes and functions that have another name now are found by a mapping."""

    @lw.pytree
    class Old:
        weight: jax.Array
        layers: tuple[Dense, ...]
        key: Any
        act: lw.Static[Any] = jax.nn.relu

    @lw.pytree
    class New:
        w: jax.Array
        blocks: tuple[Dense, ...]
        key: Any
        act: lw.Static[Any] = jax.nn.gelu

    old = Old(jnp.arange(6.0).reshape(2, 3), net().layers, jax.random.key(3))
    lib.save(old, path)
    target = New(jnp.zeros((2, 3)), net(fill=0.0).layers, jax.random.key(0))
    names = {"jax.nn:relu": "jax.nn:gelu"}
    names[f"{__name__}:{Old.__qualname__}"] = f"{__name__}:{New.__qualname__}"
    renamed = {".weight": ".w", ".layers": ".blocks", **names}
    back = lib.load(target, path, renamed=renamed)
    assert back == New(old.weight, old.layers, old.key)
    with pytest.raises(lw.errors.CheckpointError, match="pass renamed=") as caught:
        lib.load(target, path, renamed={**names, ".weight": ".w"})
    assert [difference.path for difference in caught.value.differences] == [
        "New.blocks",
        "New.layers",
    ]


WRONG_NAMES = {
    "not saved": ({"['c']": "['d']"}, r"renamed has \"\['c'\]\", which was not saved\n  saved: "),
    "no class": ({"models:Old": "models:New"}, "renamed has 'models:Old', which was not saved"),
    "taken": ({"['a']": "['b']"}, r"saved: renamed maps both .* to \"\['b'\]\""),
}


@pytest.mark.parametrize(("renamed", "message"), WRONG_NAMES.values(), ids=WRONG_NAMES)
def test_a_wrong_mapping_is_refused(renamed: Any, message: str, path: Path) -> None:
    """A name that was not saved, and two paths that become one, are errors that name them."""
    tree = {"a": 1.0, "b": 2.0}
    lst.save(tree, path)
    with pytest.raises(lw.errors.CheckpointError, match=message):
        lst.load(tree, path, renamed=renamed)


@both("equinox modules and optax states")
def test_modules_and_optimizer_states(lib: Library, path: Path) -> None:
    """A module of equinox keeps its functions as statics; a state of optax is a tree."""
    mlp = functools.partial(eqx.nn.MLP, 2, 1, 4, 1, final_activation=jax.nn.tanh)
    model = filled(mlp, 1.0)
    state = optax.adam(1e-3).init({"w": jnp.ones(2)})
    lib.save((model, state), path)
    back, _ = lib.load((filled(mlp, 0.0), state), path)
    assert eqx.tree_equal(back, model)
    changed = filled(functools.partial(mlp, activation=jax.nn.gelu), 0.0)
    with pytest.raises(lw.errors.CheckpointError, match=r"tuple\[0\]\.activation: .*relu.*gelu"):
        lib.load((changed, state), path)


def filled(make: Any, value: float) -> Any:
    """Make a module without drawing, and so compiling, its numbers."""
    arrays, rest = eqx.partition(
        eqx.filter_eval_shape(make, key=jax.random.key(0)), lambda leaf: hasattr(leaf, "shape")
    )
    fill = functools.partial(jnp.full_like, fill_value=value)
    return eqx.combine(jax.tree.map(fill, arrays), rest)


def deleted() -> Any:
    array = jnp.ones(2) + 1
    array.delete()
    return array


NO_ARRAY, NO_WORDS = "arrays like this one", "no description that another process could compare"
BAD_LEAVES: dict[str, tuple[Callable[[], Any], str]] = {
    "abstract": (lambda: jax.ShapeDtypeStruct((2,), "f4"), "abstract"),
    "deleted": (deleted, "deleted or donated"),
    "text": (lambda: np.array(["a"]), NO_ARRAY),
    "masked": (lambda: np.ma.masked_array([1.0], [True]), NO_ARRAY),
    "huge": (lambda: 2**70, "does not fit in 64 bits"),
    "lambda": (lambda: lambda: 1, NO_WORDS),
    "object()": (object, NO_WORDS),
}


@both("what cannot be saved is refused by path, and nothing is written")
def test_what_cannot_be_saved_is_refused(lib: Library, path: Path) -> None:
    """All leaves and statics that cannot be saved are named before anything is written."""
    bad = tuple(make() for make, _ in BAD_LEAVES.values())
    with pytest.raises(lw.errors.CheckpointError) as caught:
        lib.save(Net((), (1.0, *bad), depth=(object(),)), path)
    for place, (_, message) in enumerate(BAD_LEAVES.values(), 1):
        line = next(each for each in str(caught.value).split("\n") if f"scale[{place}]" in each)
        assert line.startswith("Net.scale")
        assert message in line
    assert f"Net.depth[0]: it has {NO_WORDS}" in str(caught.value)
    assert not path.exists()


@both("a tracer or a mutated static is refused")
def test_tracers_and_mutated_statics_are_refused(lib: Library, path: Path) -> None:
    """Nothing is saved inside jit, nor of a tree whose static changed in place."""

    def inside(tree: Net) -> Net:
        lib.save(tree, path)
        return tree

    with pytest.raises(lw.errors.CheckpointError, match=r"Net\.layers\[0\]\.w: a traced value"):
        jax.jit(inside)(net())
    tree = net(depth=with_attributes(Plain(), items=[1]))
    tree.depth.items.append(2)
    with pytest.raises(lw.errors.StaticMutatedError, match=r"Net\.depth"):
        lib.save(tree, path)
    assert not path.exists()
    lib.save(net(), path)
    with pytest.raises(lw.errors.CheckpointError, match=r"Net\.layers\[0\]\.w: a traced value"):
        jax.jit(lambda tree: lib.load(tree, path))(net())


# When one array cannot be read, orbax closes its event loop under the reads of the others.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@both("a truncated or foreign file is an error that names it")
def test_every_truncated_file_is_refused(lib: Library, path: Path) -> None:
    """Whichever file is cut or empty: an error that names the checkpoint, or the very same tree."""
    tree = {"w": jnp.arange(100.0), "n": np.int8(3)}
    target = {"w": jnp.zeros(100), "n": np.int8(0)}
    lib.save(tree, path)
    refused = 0
    for each in [path] if path.is_file() else [*path.rglob("*")]:
        if each.is_dir():
            continue
        whole = each.read_bytes()
        for length in (0, len(whole) // 2, max(len(whole) - 1, 0)):
            each.write_bytes(whole[:length])
            try:
                back = lib.load(target, path)
            except lw.errors.CheckpointError as error:
                assert str(path) in str(error)  # noqa: PT017  # an error is one of two answers
                refused += 1
            else:  # what is cut is not needed for the tree
                assert (back["w"] == tree["w"]).all()
                assert back["n"] == 3
        each.write_bytes(whole)
    assert refused >= 3


@both("a truncated or foreign file is an error that names it")
def test_what_leafwise_did_not_write_says_so(lib: Library, path: Path) -> None:
    """A file without a description says what to do; one that is not there is not found."""
    lib.save_plain(path)
    with pytest.raises(lw.errors.CheckpointError, match=r"saved: not .*leafwise\.interop.*\n  fix"):
        lib.load({"w": jnp.ones(2)}, path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lib.load({"w": jnp.ones(2)}, path / "nowhere")


def fixture_tree() -> Any:
    """Return the tree of the committed files: never change it."""
    layer = Dense(jnp.arange(6.0).reshape(2, 3), jnp.ones(3, jnp.bfloat16), jax.nn.relu)
    statics = (1, True, 1.0, np.float32(1), frozenset({1, 2}), lw.FrozenMapping(a=None))
    return {"net": Net((layer,), 0.5, statics), "key": jax.random.key(7), "step": np.int32(3)}


@both("files of older versions stay readable")
def test_the_committed_file_is_readable(lib: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written in this format comes back."""
    # Classes have the name that they had when it was written, wherever pytest found this file.
    for cls in (Dense, Net):
        monkeypatch.setattr(cls, "__module__", "fixture")
    tree = fixture_tree()
    target = jax.tree.map(lambda leaf: leaf if isinstance(leaf, float) else leaf * 0, tree["net"])
    target = {"net": target, "key": jax.random.key(0), "step": np.int32(0)}
    (name,) = (name for name, each in LIBRARIES.items() if each is lib)
    (file,) = DATA.glob(f"version-*.{name}")
    back = lib.load(target, file)
    assert back["net"] == tree["net"]
    assert back["step"] == 3
    assert (jax.random.key_data(back["key"]) == jax.random.key_data(tree["key"])).all()


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
    assert jax.tree.all(jax.tree.map(same, back, tree))


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
