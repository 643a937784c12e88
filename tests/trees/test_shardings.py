"""`lw.field(sharding=)`, `lw.shardings` and `lw.shard`, on eight devices."""

import dataclasses
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import leafwise as lw
from leafwise.errors import PathError, TreeError

TYPES = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


def mesh_of(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))


@pytest.fixture(params=list(TYPES))
def mesh(request: pytest.FixtureRequest) -> jax.sharding.Mesh:
    """Return a mesh of either kind."""
    return mesh_of(TYPES[request.param])


@lw.pytree
class Layer:
    w: jax.Array = lw.field(sharding=P("data", "model"))
    b: jax.Array | None = lw.field(default=None, sharding=P("model"))
    act: str = lw.static_field(default="relu")


@lw.pytree
class Model:
    hidden: Layer
    layers: list[Layer] = lw.field(default_factory=list)
    table: dict[str, Any] = lw.field(
        default_factory=dict, sharding={"in": P("model"), "out": {"deep": P()}, "rest": None}
    )
    moments: Any = lw.field(default=(), sharding=P("data"))
    scale: float = 1.0


def model() -> Model:
    return Model(
        Layer(jnp.ones((8, 4)), jnp.arange(4.0), act="tanh"),
        [Layer(jnp.ones((4, 2)))],
        {"in": jnp.ones((2, 3)), "out": {"deep": jnp.ones(3)}, "rest": [jnp.ones(5)]},
        [jnp.ones(8), (jnp.ones((4, 1)),)],
    )


def specs(tree: Any) -> Any:
    return jax.tree.map(lambda sharding: sharding.spec, tree)


def test_the_innermost_declaration_decides(mesh: jax.sharding.Mesh) -> None:
    """A spec stands for all below, a tree of them for its parts, and an inner field overrides."""
    found = lw.shardings(model(), mesh)
    assert type(found) is Model
    assert found.hidden.act == "tanh"
    assert jax.tree.structure(found) == jax.tree.structure(model())
    assert all(each.mesh == mesh for each in jax.tree.leaves(found))
    given = specs(found)
    assert (given.hidden.w, given.hidden.b) == (P("data", "model"), P("model"))
    assert (given.layers[0].w, given.layers[0].b) == (P("data", "model"), None)
    assert given.table == {"in": P("model"), "out": {"deep": P()}, "rest": [P()]}
    assert given.moments == [P("data"), (P("data"),)]
    assert given.scale == P()


def test_shard_puts_arrays_there(mesh: jax.sharding.Mesh) -> None:
    """Arrays, numbers and keys are where their fields declare, with the values they had."""
    tree = lw.shard({"m": model(), "n": np.ones(3), "k": jax.random.key(0)}, mesh)
    wanted = lw.shardings(tree, mesh)
    assert jax.tree.map(lambda leaf: leaf.sharding, tree) == wanted
    assert tree["m"].hidden.w.addressable_shards[0].data.shape == (2, 2)
    assert not lw.diff(tree["m"].hidden, model().hidden, values=True)
    assert tree["m"].hidden.act == "tanh"


def test_the_tree_is_what_jax_takes(mesh: jax.sharding.Mesh) -> None:
    """`device_put`, `in_shardings`, `out_shardings` and the specs of `shard_map` take the tree."""
    places, tree = lw.shardings(model(), mesh), model()
    put = jax.device_put(tree, places)
    jitted = jax.jit(lambda m: m, in_shardings=(places,), out_shardings=places)
    mapped = jax.jit(
        jax.shard_map(
            lambda m: jax.tree.map(lambda x: x * 2, m),
            mesh=mesh,
            in_specs=(specs(places),),
            out_specs=specs(places),
        )
    )
    for out in (put, jitted(put), mapped(put)):
        assert out.hidden.w.sharding.is_equivalent_to(places.hidden.w, 2)
        assert out.hidden.act == "tanh"


def test_paths_override() -> None:
    """A path overrides for all below it, patterns are paths, and the last one counts."""
    place = SingleDeviceSharding(jax.devices()[3])
    paths: dict[Any, Any] = {
        "": P(),
        "**.w": P("model"),
        "layers[0].w": P(None, "model"),
        (jax.tree_util.GetAttrKey("scale"),): place,
    }
    found = lw.shardings(model(), mesh_of(), paths=paths)
    assert found.scale == place
    assert lw.shard(model(), mesh_of(), paths=paths).scale.devices() == {jax.devices()[3]}
    assert (found.hidden.w.spec, found.hidden.b.spec) == (P("model"), P())
    assert found.layers[0].w.spec == P(None, "model")
    with pytest.raises(PathError, match=r"nearest: 'hidden\.w'"):
        lw.shardings(model(), mesh_of(), paths={"hiden.w": P()})


def test_mesh_of_the_context() -> None:
    """Without a mesh it is the one that `jax.set_mesh` has set; without that an error."""
    mesh = mesh_of()
    with jax.set_mesh(mesh):
        assert lw.shardings(model()).hidden.w.mesh == mesh
        assert lw.shard(model()).hidden.w.sharding.spec == P("data", "model")
    with pytest.raises(TreeError, match="there is no mesh"):
        lw.shardings(model())
    with pytest.raises(TypeError, match=r"got .*Model"):
        lw.shardings(mesh, model())  # type: ignore[arg-type]


def test_inside_a_trace(mesh: jax.sharding.Mesh) -> None:
    """In a jitted function `lw.shard` moves the value, and its aval on an explicit mesh."""
    seen = []

    @jax.jit
    def moved(m: Model) -> Model:
        out = lw.shard(m, paths={"hidden.w": P(None, "model")})
        seen.append(jax.typeof(out.hidden.w).sharding.spec)
        return out

    with jax.set_mesh(mesh):
        out = moved(lw.shard(model()))
    assert out.hidden.w.sharding.is_equivalent_to(NamedSharding(mesh, P(None, "model")), 2)
    explicit = mesh.axis_types[0] is AxisType.Explicit
    assert seen[0] == (P(None, "model") if explicit else P(None, None))


def test_an_abstract_mesh_is_for_what_has_no_devices() -> None:
    """An abstract tree takes an abstract mesh."""
    mesh = mesh_of().abstract_mesh
    placed = lw.shard(jax.eval_shape(model), mesh)
    assert placed.hidden.w.sharding.mesh == mesh


# ----------------------------------------------------------------- abstract instances


def test_an_abstract_instance_is_sharded_first(mesh: jax.sharding.Mesh) -> None:
    """`jax.eval_shape` gives an instance whose shardings let JAX make each shard in its place."""

    def create(key: jax.Array) -> Model:
        return Model(Layer(jax.random.normal(key, (8, 4)), jnp.zeros(4), act="gelu"))

    key = jax.random.key(0)
    abstract = jax.eval_shape(create, key)
    assert jax.tree.structure(abstract) == jax.tree.structure(create(key))
    placed = lw.shard(abstract, mesh)
    assert isinstance(placed.hidden.w, jax.ShapeDtypeStruct)
    assert placed.hidden.w.sharding == NamedSharding(mesh, P("data", "model"))
    assert placed.hidden.act == "gelu"
    assert placed.scale.weak_type

    init = jax.jit(create, out_shardings=lw.shardings(abstract, mesh))
    with (
        jax.transfer_guard_host_to_device("disallow"),
        jax.transfer_guard_device_to_host("disallow"),
    ):
        made = init(key)
    assert made.hidden.w.sharding == placed.hidden.w.sharding
    assert not lw.diff(made.hidden, create(key).hidden, values=True)


def test_inheritance_slots_and_other_libraries() -> None:
    """A subclass inherits and overrides; slots, `lw.register` and plain metadata do as well."""

    @lw.pytree(slots=True)
    class Wide(Layer):
        w: jax.Array = lw.field(sharding=P(None, "data"))

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Plain:
        x: Any = dataclasses.field(metadata={"sharding": P("model")})

    class Module(eqx.Module):
        x: jax.Array = eqx.field(metadata={"sharding": P("data")})
        y: Any = lw.field(default=None, sharding=P("model"))

    @dataclasses.dataclass
    class Registered:
        x: Any = lw.field(sharding=P("data"))  # noqa: RUF009  # it is one of dataclasses

    lw.register(Registered, dynamic=["x"])
    tree = [Wide(jnp.ones((2, 8)), jnp.ones(2)), Plain(jnp.ones(2)), Registered(jnp.ones(4))]
    wide, plain, registered = specs(lw.shardings(tree, mesh_of()))
    assert (wide.w, wide.b) == (P(None, "data"), P("model"))
    assert (plain.x, registered.x) == (P("model"), P("data"))
    module = lw.shard(Module(jnp.ones(4), jnp.ones(2)), mesh_of())
    assert (module.x.sharding.spec, module.y.sharding.spec) == (P("data"), P("model"))


@pytest.mark.hazard
def test_metadata_is_not_in_the_key() -> None:
    """A declared sharding changes neither treedef nor code: the class costs what it did."""

    def make(**options: Any) -> Any:
        @lw.pytree
        class Same:
            x: jax.Array = lw.field(**options)
            n: int = lw.static_field(default=0)

        return Same

    plain, declared = make(), make(sharding=P("data"))
    assert lw.debug.source_of(plain) == lw.debug.source_of(declared)
    keys = [each(1.0).__leafwise_key__ for each in (plain, declared)]
    assert [key.values for key in keys] == [(0,), (0,)]


# ----------------------------------------------------------------- messages


@pytest.mark.message
def test_every_problem_is_named_at_once() -> None:
    """The error names each field with shape, mesh and a fix; equal ones of a list are counted."""
    tree = Model(
        Layer(jnp.ones((6, 4)), jnp.ones((2, 3))),
        [Layer(jnp.ones(4)), Layer(jnp.ones(4))],
        {"in": jnp.ones(3), "other": jnp.ones(1), "out": jnp.ones(1)},
        ["text", jnp.ones(8)],
    )
    with pytest.raises(TreeError) as caught:
        lw.shardings(tree, mesh_of(), paths={"scale": P("data"), "hidden.b": P("modle", "data")})
    # JAX's own words differ from version to version.
    message = re.sub(r"(, at \S+: ).*(not found|partitioned).*", r"\1\2", caught.value.message)
    assert (
        message
        == f"""\
Layer.w, at Model.hidden.w: partitioned
  got: {P("data", "model")} for float32[6,4] on a mesh (data: 4, model: 2)
paths['hidden.b'], at Model.hidden.b: not found
  got: {P("modle", "data")} for float32[2,3] on a mesh (data: 4, model: 2)
Layer.w, at Model.layers[0].w and 1 more: 2 entries for 1 dimensions
  got: {P("data", "model")} for float32[4] on a mesh (data: 4, model: 2)
Model.table, at Model.table['in']: partitioned
  got: {P("model")} for float32[3] on a mesh (data: 4, model: 2)
Model.table, at Model.table['other']: expected a PartitionSpec, got nothing for this part
Model.table, at Model.table['out']: expected a PartitionSpec, got {{'deep': {P()}}} (dict)
Model.moments, at Model.moments[0]: expected an array, got 'text' (str)
  fix: make it static, or take it out with `lw.partition`
paths['scale'], at Model.scale: 1 entries for 0 dimensions
  got: {P("data")} for float32[] on a mesh (data: 4, model: 2)"""
    )


@pytest.mark.message
@pytest.mark.parametrize(
    ("spec", "shape", "why"),
    [
        (P("data", "data"), (4, 4), "duplicate entries for `data`"),
        (P(("data", "model")), (4,), "axis 0 is partitioned 8 times, but the dimension size is 4"),
        (P(None, None), (4,), "2 entries for 1 dimensions"),
        (P("nowhere"), (4,), "nowhere"),
    ],
)
def test_what_jax_refuses_is_refused(spec: Any, shape: Any, why: str) -> None:
    """Each problem is one for JAX, too."""
    array = jnp.ones(shape)
    with pytest.raises(TreeError, match=re.escape(why)):
        lw.shard([array], mesh_of(), paths={"": spec})
    with pytest.raises(Exception, match=r"."):  # of several classes
        jax.device_put(array, NamedSharding(mesh_of(), spec))


def test_unreduced_axes_are_kept() -> None:
    """What else a spec says stays; an axis that the mesh lacks is a problem there, too."""
    array, mesh = [jnp.ones(4)], mesh_of(AxisType.Explicit)
    spec = P("rows", unreduced={"model"})
    found = lw.shardings(array, mesh, paths={"": spec}, rules={"rows": "data"})
    assert found[0].spec == P("data", unreduced={"model"})
    with pytest.raises(TreeError, match=r"at list\[0\]: .*nowhere"):
        lw.shardings(array, mesh, paths={"": P("data", unreduced={"nowhere"})})


def test_a_class_has_no_shardings() -> None:
    """A class in place of an instance is an error that says how to get an abstract one."""
    with pytest.raises(TypeError, match=r"got the class Layer\n  fix: .*`jax.eval_shape\(Layer"):
        lw.shardings(Layer, mesh_of())
    with pytest.raises(ValueError, match=r"lw\.shard\(timeout=0\): the timeout must be a positive"):
        lw.shard(Layer(jnp.ones((4, 4))), mesh_of(), timeout=0)


@pytest.mark.message
def test_declarations_are_checked_where_they_stand() -> None:
    """A tuple in place of a spec is an error of the class."""
    with pytest.raises(TypeError, match=r"takes a PartitionSpec.*got \('data', None\)"):
        lw.field(sharding=("data", None))


# ----------------------------------------------------------------- rules


def test_rules_map_logical_names(mesh: jax.sharding.Mesh) -> None:
    """A logical name stands for the axes of the first rule that leaves each used once."""
    tree = {"w": jnp.ones((8, 2, 4))}
    rules = [("embed", None), ("heads", "model"), ("batch", ("data", "model")), ("mlp", "data")]

    def spec(*names: Any) -> Any:
        return lw.shardings(tree, mesh, paths={"": P(*names)}, rules=rules)["w"].spec

    assert spec("embed", "heads", "mlp") == P(None, "model", "data")
    assert spec("batch", "heads", "data") == P(None, "model", "data")
    assert spec("batch") == P(("data", "model"))
    assert spec(("mlp", "model"), "embed") == P(("data", "model"), None)
    if AxisType.Auto in mesh.axis_types:
        assert spec("heads", P.UNCONSTRAINED) == P("model", P.UNCONSTRAINED)
    mapping = lw.shardings(tree, mesh, paths={"": P("heads")}, rules={"heads": "model"})
    assert mapping["w"].spec == P("model")
    words = f"got: {P('heads')}, which the rules turn into {P('modle')}, for"
    with pytest.raises(TreeError, match=re.escape(words)):
        lw.shardings(tree, mesh, paths={"": P("heads")}, rules={"heads": "modle"})


# ----------------------------------------------------------------- the oracle


@pytest.mark.oracle
def test_another_sharding_is_explained_as_one(mesh: jax.sharding.Mesh) -> None:
    """JAX lowers again for another sharding, and traces again if it is explicit; so we say."""
    step = lw.jit(lambda m: m.hidden.w.sum())
    one = lw.shard(model(), mesh)
    other = lw.shard(model(), mesh, paths={"hidden.w": P(None, "model")})
    step(one)
    explicit = mesh.axis_types[0] is AxisType.Explicit
    expected = lw.signature(other).explain(lw.signature(one))
    with lw.watch() as log:
        step(other)
    assert bool(log.traces) == explicit == (len(step.traces) == 2)
    (reason,) = expected.reasons
    assert (reason.kind, reason.path) == (lw.types.ReasonKind.SHARDING, "args[0].hidden.w")
    found = step.recompiles[-1] if not explicit else step.traces[-1]
    spec = P("data", "model")  # whose repr is shorter since JAX 0.9
    assert f"m.hidden.w: sharding committed to {spec} on a mesh" in str(found)
    assert "lw.shard" in str(found)
    step(lw.shard(model(), mesh))
    assert step.cache_size() == 2
