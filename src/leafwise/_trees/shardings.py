"""`shardings`, a tree of the shardings that fields declare, and `shard`, which applies it."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from leafwise._classes.fields import SHARDING
from leafwise._jax.compat import current_mesh
from leafwise._jax.events import is_tracing
from leafwise._jax.processes import processes
from leafwise._objects.parts import data_of, is_key
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import describe_array, got, sha256_of
from leafwise._processes.agreement import Question, check_timeout, table_differences
from leafwise._statics.findings import is_tracer
from leafwise._trees.combine import NO_PATHS
from leafwise._trees.nodes import FlatTree, open_node
from leafwise._trees.paths import format_path, steps_of
from leafwise._trees.select import AtPath, field_metadata
from leafwise.errors import TreeError

T = TypeVar("T")

_MeshAxes: TypeAlias = str | Sequence[str] | None
Rules: TypeAlias = Mapping[str, _MeshAxes] | Iterable[tuple[str, _MeshAxes]]
"""Logical axis names and the mesh axes that they stand for, the most important first."""

_Rules: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
_WHOLE: Final[PartitionSpec] = cast("Any", PartitionSpec)()  # whose constructor is not annotated


def shardings(
    tree: T,
    mesh: Mesh | AbstractMesh | None = None,
    *,
    paths: Mapping[Any, Any] = NO_PATHS,
    rules: Rules = (),
    default: PartitionSpec = _WHOLE,
) -> T:
    """Return a tree with the sharding of each leaf, as declared by the fields on the path to it.

    The innermost field that declares a sharding decides, as in
    ``field(sharding=PartitionSpec("data", None))`` or, in classes of other libraries, in the
    ``"sharding"`` entry of a field's metadata. The result is for `jax.device_put`, for
    ``in_shardings`` and ``out_shardings`` of `jax.jit`, and, with ``.spec`` of each leaf, for
    `jax.shard_map`. It has the statics of the tree.

    Args:
        tree: Any tree of arrays, or of `jax.ShapeDtypeStruct`, as `jax.eval_shape` returns.
        mesh: The devices and their axes; by default the mesh set by `jax.set_mesh`.
        paths: Shardings by path, which override those declared: a `PartitionSpec` or any
            `jax.sharding.Sharding` for everything at the path. ``*`` in a path matches any one
            step, ``**`` any number. If several paths match a leaf, the last one wins.
        rules: The mesh axes that logical names stand for, as in flax's
            ``logical_to_mesh``: ``{"embed": None, "heads": "model"}`` or pairs. They apply
            in order: if an earlier rule has used a mesh axis for the same array, the next rule
            for the name applies, and without one the dimension is not partitioned.
        default: The sharding of leaves without a declaration.

    Returns:
        The tree, with a `jax.sharding.NamedSharding` in place of each leaf.

    Raises:
        TreeError: A spec has more entries than the array has dimensions, an axis that is not
            in the mesh, or the same axis twice; a dimension is not divisible by its axes; a leaf
            is not an array; or there is no mesh. The message names all such leaves.
        PathError: A path leads nowhere.
        TypeError: An argument is of the wrong type.

    Examples:
        >>> from jax.sharding import PartitionSpec
        >>> @pytree
        ... class Params:
        ...     w: jax.Array = field(sharding=PartitionSpec("data", None))
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> shardings(Params(jnp.ones((4, 2))), mesh).w.spec
        P('data', None)
    """
    mesh = current_mesh() if mesh is None else mesh
    if mesh is None:
        raise TreeError(
            "there is no mesh to shard over\n"
            "  fix: pass one, as in `jax.make_mesh((8,), ('data',))`, or call `jax.set_mesh` first"
        )
    if not isinstance(mesh, Mesh | AbstractMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"shardings are for a jax.sharding.Mesh, got {got(mesh)}")
    if isinstance(tree, type):
        raise TypeError(
            f"shardings are for an instance, got the class {tree.__name__}\n"
            f"  fix: pass an abstract instance: `jax.eval_shape({tree.__name__}, ...)`"
        )
    pairs: Any = rules.items() if isinstance(rules, Mapping) else rules
    axes_of_names = [(name, _names(axes)) for name, axes in pairs]
    flat = FlatTree(tree)
    declarations = _declared(flat, _Declaration("default", default))
    for path, spec in paths.items():
        steps = steps_of(path)
        text = path if isinstance(path, str) else format_path(steps)
        for place, is_there in enumerate(AtPath(text, steps).select(flat)):
            if is_there:
                declarations[place] = _Declaration(f"paths[{text!r}]", spec)
    leaves: list[Sharding] = []
    problems: dict[tuple[str, str], list[str]] = {}
    for place, (where, spec) in enumerate(declarations):
        try:
            leaves.append(_sharding_of(flat.leaves[place], spec, mesh, axes_of_names))
        except ValueError as error:
            problems.setdefault((where, str(error)), []).append(flat.name_of(place))
    if problems:
        raise TreeError("\n".join(_format_problem(*item) for item in problems.items()))
    return cast("T", flat.treedef.unflatten(leaves))


def shard(
    tree: T,
    mesh: Mesh | AbstractMesh | None = None,
    *,
    paths: Mapping[Any, Any] = NO_PATHS,
    rules: Rules = (),
    default: PartitionSpec = _WHOLE,
    timeout: float = 300.0,
) -> T:
    """Shard the leaves of a tree as its fields declare; see `shardings` for the arguments.

    Arrays are moved by `jax.device_put`. Where a mesh spans processes, every process calls this
    with the whole of each array. The processes compare the arrays bit by bit, waiting at most
    `timeout` seconds, and each device gets its part. A `jax.ShapeDtypeStruct` gets the sharding,
    so an abstract instance tells a checkpoint library where to put the arrays. Inside a trace,
    the sharding of the values is constrained or, on an explicit mesh, changed.

    Returns:
        The tree, with the same values and statics. Leafwise constructors do not run.

    Raises:
        TreeError: As in `shardings`.
        DifferentProcessesError: The mesh spans processes that have different values.
        ProcessTimeoutError: The mesh spans processes, and some did not call this in time.
        ValueError: The timeout is not positive.
        PathError: A path leads nowhere.
        TypeError: An argument is of the wrong type.

    Examples:
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> shard({"w": jnp.ones(4)}, mesh)["w"].sharding.spec
        P()
    """
    check_timeout(timeout, "lw.shard(timeout")
    places: Any = shardings(tree, mesh, paths=paths, rules=rules, default=default)
    wanted: list[Any] = jax.tree_util.tree_leaves(places)
    flat = FlatTree(tree)
    # During tracing, `device_put` leaves a constant where it is, unless axes are explicit.
    traces = is_tracing()
    data = {
        place: leaf
        for place, leaf in enumerate(flat.leaves)
        if not (traces or is_tracer(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    }
    far = {place: data.pop(place) for place in [*data] if not wanted[place].is_fully_addressable}
    # One call for all, which is faster.
    arrays: Any = jax.device_put(data, {place: wanted[place] for place in data})
    if far:
        arrays |= _spread(flat, far, wanted, timeout)
    placed = (
        arrays[place] if place in arrays else _promise(leaf, wanted[place])
        for place, leaf in enumerate(flat.leaves)
    )
    return cast("T", flat.treedef.unflatten(placed))


def _promise(leaf: Any, sharding: Any) -> Any:
    """Return a traced or abstract value with a sharding."""
    jax_: Any = jax  # its functions used here are not annotated
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax_.ShapeDtypeStruct.update(leaf, sharding=sharding)
    if AxisType.Explicit in getattr(getattr(sharding, "mesh", None), "axis_types", ()):
        # `reshard` works under `jax.vmap`, but needs a mesh that is set.
        move = jax_.device_put if current_mesh() is None else jax_.sharding.reshard
        return move(leaf, sharding)
    return jax_.lax.with_sharding_constraint(leaf, sharding)


def _spread(
    flat: FlatTree, leaves: Mapping[int, Any], shardings: Sequence[Any], timeout: float
) -> dict[int, Any]:
    """Put leaves on devices of several processes; each process passes the whole of a leaf."""
    # `jax.device_put` also compares such values, but it rejects keys, NaNs and arrays that are on
    # a device already, and its errors do not name the leaf.
    here = {
        place: leaf for place, leaf in leaves.items() if getattr(leaf, "is_fully_addressable", True)
    }
    owners = {device.process_index for place in here for device in shardings[place].device_set}
    if len(owners) == jax.process_count():  # else some process may not get here
        _check_equal({flat.name_of(place): leaf for place, leaf in here.items()}, timeout)
    return {place: put(leaf, shardings[place]) for place, leaf in leaves.items()}


def put(leaf: Any, sharding: Any) -> Any:
    """Put one leaf, whole or a global array, on devices of several processes, unchecked."""
    # A global array, on devices of several processes, as a jitted step returned it
    if not getattr(leaf, "is_fully_addressable", True):
        if not is_key(leaf):
            return jax.device_put(leaf, sharding)
        # `jax.random.key(0)`
        data = jax.device_put(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    aval: Any = jax.typeof(leaf)
    if aval.weak_type:  # `0.1`, `jnp.asarray(0.1)`: no other function of JAX keeps the weak type
        scalar = leaf.item() if isinstance(leaf, jax.Array) and not leaf.ndim else leaf
        return jax.device_put(scalar, sharding)
    value = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, aval.dtype)
    return jax.make_array_from_callback(
        aval.shape, sharding, lambda index: value[index], dtype=aval.dtype
    )


def _check_equal(leaves: Mapping[str, Any], timeout: float) -> None:
    here = processes()
    if here is None:
        raise RuntimeError(
            "lw.shard: the mesh spans processes, which cannot be compared\n"
            "  fix: call `jax.distributed.initialize()` first"
        )
    question = Question(
        here,
        "lw.shard",
        "lw.shard",
        timeout,
        "does not call lw.shard for this mesh as often as the others",
        "create all values from the same seed in all processes, or use those of process 0: "
        "`jax.experimental.multihost_utils.broadcast_one_to_all(tree)`;\n  if each process "
        "has its part of a batch: `jax.make_array_from_process_local_data(sharding, part)`",
    )
    question.check_same(
        lambda: {path: _described(leaf) for path, leaf in leaves.items()},
        functools.partial(table_differences, absent="no such leaf"),
    )


def _described(leaf: Any) -> str:
    aval: Any = jax.typeof(leaf)
    data = data_of(leaf)
    digest = sha256_of(f"{aval} {data.dtype}".encode() + data.tobytes())
    return f"{describe_array(aval)} with digest {digest[:16]}"


class _Declaration(NamedTuple):
    """Where a sharding is declared, for messages, and the spec or tree of specs declared."""

    where: str
    spec: Any

    def part(self, step: str) -> "_Declaration":
        if isinstance(self.spec, PartitionSpec | Sharding):
            return self
        node = open_node(self.spec)
        parts = {} if node is None else dict(zip(node[0].steps, node[1], strict=True))
        return _Declaration(self.where, parts.get(step, MISSING))


def _declared(flat: FlatTree, default: _Declaration) -> list[_Declaration]:
    """Return the declaration for each leaf: that of the innermost field on the path to it."""
    declarations = [default] * len(flat.leaves)
    todo = [(flat.root, default)]
    while todo:
        part, outer = todo.pop()
        if isinstance(part, int):
            declarations[part] = outer
            continue
        fields = field_metadata(part.cls)
        for step, child in zip(part.steps, part.children, strict=True):
            spec = fields.get(step, NO_PATHS).get(SHARDING)
            own = None if spec is None else _Declaration(f"{part.cls.__name__}{step}", spec)
            inner = own or outer.part(step)
            todo.append((child, default if inner.spec is None else inner))
    return declarations


def _by_rules(spec: Any, rules: _Rules) -> Any:
    """Return a spec with logical names replaced by mesh axes, as flax's `logical_to_mesh_axes`."""
    entries = _entries(spec)
    names = {name for entry in entries for name in _names(entry)}
    waiting = names.intersection(name for name, _ in rules)
    if not waiting:
        return spec
    axes_of: dict[str, tuple[str, ...]] = dict.fromkeys(waiting, ())
    taken = names - waiting
    # `{"embed": "data", "heads": "model"}`: "embed" is not partitioned in `P("data", "embed")`
    for name, axes in rules:
        if name in waiting and taken.isdisjoint(axes):
            axes_of[name] = axes
            taken.update(axes)
            waiting.remove(name)
    partitions: list[Any] = []
    for entry in entries:
        chosen = [axis for name in _names(entry) for axis in axes_of.get(name, (name,))]
        whole = entry if entry is PartitionSpec.UNCONSTRAINED else None
        partitions.append(tuple(chosen) if len(chosen) > 1 else next(iter(chosen), whole))
    return spec.update(partitions=tuple(partitions))


def _entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a spec; JAX 0.12 refuses to iterate over an unreduced one."""
    return tuple(spec.partitions if hasattr(spec, "partitions") else spec)


def _names(entry: Any) -> tuple[Any, ...]:
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return tuple(entry) if isinstance(entry, tuple | list) else (entry,)


def _sharding_of(leaf: Any, spec: Any, mesh: Any, rules: _Rules) -> Sharding:
    """Return the sharding of one leaf; raise ValueError if it cannot have it."""
    try:  # `{"name": "net"}`
        aval: Any = jax.typeof(leaf)
    except TypeError:
        raise ValueError(
            f"expected an array, got {got(leaf)}\n"
            f"  fix: make it static, or take it out with `lw.partition`"
        ) from None
    if isinstance(spec, Sharding):  # `paths={"w": SingleDeviceSharding(device)}`
        return spec
    if not isinstance(spec, PartitionSpec):  # `field(sharding={"w": P("data")})`, without a "b"
        what = "nothing for this part" if spec is MISSING else got(spec)
        raise ValueError(f"expected a PartitionSpec, got {what}")  # noqa: TRY004
    spec_of_mesh = _by_rules(spec, rules)
    entries = len(_entries(spec_of_mesh))
    try:  # `P("data", None)` for a vector, or for 3 rows on 2 devices
        sharding = NamedSharding(mesh, spec_of_mesh)
        if entries > len(aval.shape):
            raise ValueError(f"{entries} entries for {len(aval.shape)} dimensions")  # noqa: TRY301
        sharding.shard_shape(aval.shape)
    except Exception as error:  # JAX raises several classes
        by_rules = "" if spec_of_mesh == spec else f", which the rules turn into {spec_of_mesh},"
        of_mesh = ", ".join(f"{name}: {size}" for name, size in mesh.shape.items())
        raise ValueError(
            f"{error}\n  got: {spec}{by_rules} for {describe_array(aval)} on a mesh ({of_mesh})"
        ) from error
    return sharding


def _format_problem(problem: tuple[str, str], paths: Sequence[str]) -> str:
    where, text = problem
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{where}, at {paths[0]}{more}: {text}"
