"""`shardings`, what fields declare as a tree of shardings, and `shard`, which applies it."""

import dataclasses
import difflib
import hashlib
import math
import operator
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from leafwise._classes.annotations import (
    annotations_of,
    is_array_or_number,
    resolve_known,
    unwrap,
    written_annotations,
)
from leafwise._classes.fields import SHARDING
from leafwise._classes.instance import rebuild
from leafwise._classes.registry import spec_of
from leafwise._classes.spec import FieldSpec, is_decorated
from leafwise._jax.compat import current_mesh
from leafwise._jax.events import is_tracing
from leafwise._jax.host_differences import (
    Pairs,
    Words,
    check_timeout,
    differences_between,
    exchange_in_groups,
    grouped_by_digest,
)
from leafwise._jax.processes import processes
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import describe_array, got, shorten
from leafwise._statics.findings import is_tracer
from leafwise._trees.nodes import FlatTree, open_node
from leafwise._trees.paths import format_path, steps_of
from leafwise._trees.where import AtPath, field_metadata
from leafwise.errors import DifferentProcessesError, TreeError

T = TypeVar("T")

MeshAxes: TypeAlias = str | Sequence[str] | None
"""What a rule puts a logical axis on: one axis of the mesh, several, or none."""

Rules: TypeAlias = Mapping[str, MeshAxes] | Iterable[tuple[str, MeshAxes]]
"""Logical axis names, and the axes of the mesh that they stand for, the most important first."""

_NO_PATHS: Final[Mapping[Any, Any]] = MappingProxyType({})
_make_spec: Any = PartitionSpec  # which has no types
_WHOLE: Final[PartitionSpec] = _make_spec()


class _Options(TypedDict, total=False):
    paths: Mapping[Any, Any]
    rules: Rules
    default: PartitionSpec


@overload
def shardings(
    tree: type[T], mesh: Mesh | AbstractMesh | None = None, **options: Unpack[_Options]
) -> T: ...
@overload
def shardings(
    tree: T, mesh: Mesh | AbstractMesh | None = None, **options: Unpack[_Options]
) -> T: ...
def shardings(
    tree: Any,
    mesh: Mesh | AbstractMesh | None = None,
    *,
    paths: Mapping[Any, Any] = _NO_PATHS,
    rules: Rules = (),
    default: PartitionSpec = _WHOLE,
) -> Any:
    """Return a tree with the sharding of each leaf, as the fields on the way to it declare.

    The innermost field on the way to a leaf that declares a sharding decides, as
    ``field(sharding=PartitionSpec("data", None))``, or, in classes of other libraries, the entry
    ``"sharding"`` of a field's metadata. The result is for `jax.device_put`, for
    ``in_shardings`` and ``out_shardings`` of `jax.jit`, and, with ``.spec`` of each leaf, for
    `jax.shard_map`. It has the statics of the tree.

    Args:
        tree: Any tree of arrays, or of `jax.ShapeDtypeStruct`, as `jax.eval_shape` returns it.
            Or a leafwise class: its statics are the defaults, its fields those of the classes in
            its annotations, and each array one leaf of unknown shape, so that only the names of
            axes are checked. What the class alone does not say is an error.
        mesh: The devices and their axes; by default the mesh that `jax.set_mesh` has set.
        paths: Shardings by path, in place of those declared: a `PartitionSpec` or any
            `jax.sharding.Sharding` for all that stands there. ``*`` in a path is any one step,
            ``**`` any number. Of several that lead to a leaf, the last one counts.
        rules: The axes of the mesh that logical names stand for, as in flax's
            ``logical_to_mesh``: ``{"embed": None, "heads": "model"}`` or pairs of them. They
            hold in order: where an axis of the mesh is taken by an earlier rule for the same
            array, the next rule of the name counts, and without one the dimension is whole.
        default: The sharding of leaves for which nothing is declared.

    Returns:
        The tree, with a `jax.sharding.NamedSharding` in the place of each leaf.

    Raises:
        TreeError: A spec has more entries than the array has dimensions, an axis that the
            mesh has not, or one twice, or a dimension cannot be divided by its axes; or a leaf
            is not an array, or there is no mesh. All leaves are named.
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
            "  fix: give one, as `jax.make_mesh((8,), ('data',))`, or call `jax.set_mesh` first"
        )
    if not isinstance(mesh, Mesh | AbstractMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"shardings are for a jax.sharding.Mesh, got {got(mesh)}")
    if not isinstance(paths, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"paths= takes a mapping from paths to shardings, got {got(paths)}")
    if not isinstance(default, PartitionSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"default= takes a PartitionSpec, got {got(default)}")
    if (cls := typing.get_origin(tree)) is not None:
        raise TypeError(
            f"lw.shardings takes a tree, or a class as it is, got {tree}\n"
            f"  fix: `lw.shardings(jax.eval_shape({cls.__name__}, ...), mesh)`"
        )
    if isinstance(tree, type):
        tree = _of_class(tree)
    flat = FlatTree(tree)
    declared = _declared(flat, _Declared("default", default, f"`default={_SPEC}`"))
    for path, given in paths.items():
        steps = steps_of(path)
        text = path if isinstance(path, str) else format_path(steps)
        found = _Declared(f"paths[{text!r}]", given, f"`paths={{{text!r}: {_SPEC}}}`")
        for leaf, chosen in enumerate(AtPath(text, steps).select(flat)):
            declared[leaf] = found if chosen else declared[leaf]
    judge = _Judge(mesh, rules)
    made = [judge.sharding(flat, leaf, each) for leaf, each in enumerate(declared)]
    judge.raise_problems()
    return flat.treedef.unflatten(made)


def shard(
    tree: T,
    mesh: Mesh | AbstractMesh | None = None,
    *,
    paths: Mapping[Any, Any] = _NO_PATHS,
    rules: Rules = (),
    default: PartitionSpec = _WHOLE,
    timeout: float = 300.0,
) -> T:
    """Put the leaves of a tree where their fields declare; see `shardings` for the arguments.

    Arrays are moved by `jax.device_put`. Where a mesh spans processes, each of them calls this,
    and gives all of every array; they are compared by their bits, for `timeout` seconds at most,
    and each device gets its part. A `jax.ShapeDtypeStruct` gets the sharding, so that an abstract
    instance tells a checkpoint where its arrays shall go. Inside a trace, the sharding of the
    values is constrained, or, on an explicit mesh, changed.

    Returns:
        The tree, with the same values and statics. No constructor of a leafwise class runs.

    Raises:
        TreeError: As in `shardings`.
        DifferentProcessesError: The mesh spans processes, which have different values.
        ProcessTimeoutError: The mesh spans processes, and some of them did not come in time.
        ValueError: The timeout is not positive.
        PathError: A path leads nowhere.
        TypeError: An argument is of the wrong type.

    Examples:
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> shard({"w": jnp.ones(4)}, mesh)["w"].sharding.spec
        P()
    """
    if isinstance(tree, type):
        raise TypeError(f"lw.shard takes an instance, got the class {tree.__name__}")
    check_timeout(timeout, "lw.shard(timeout")
    places: Any = shardings(tree, mesh, paths=paths, rules=rules, default=default)
    wanted: list[Any] = jax.tree_util.tree_leaves(places)
    flattened: tuple[list[Any], Any] = jax.tree_util.tree_flatten(tree)
    leaves, treedef = flattened
    data = {
        place: leaf
        for place, leaf in enumerate(leaves)
        if not is_tracer(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct)
    }
    if is_tracing():  # there `device_put` leaves a constant where it is, if axes are not explicit
        data = {}
    elif data and isinstance(mesh, AbstractMesh):
        raise TypeError(
            f"an AbstractMesh has no devices to put arrays on, got {got(mesh)}\n"
            f"  fix: give the Mesh; an abstract one is for an abstract tree: `jax.eval_shape`"
        )
    far = {place: data.pop(place) for place in [*data] if not wanted[place].is_fully_addressable}
    # All at once, which is faster.
    arrays: Any = jax.device_put(data, {place: wanted[place] for place in data})
    if far:
        arrays |= spread(tree, far, wanted, timeout)
    placed: T = treedef.unflatten(
        arrays[place] if place in arrays else _promise(leaf, wanted[place])
        for place, leaf in enumerate(leaves)
    )
    return placed


def _promise(leaf: Any, sharding: Any) -> Any:
    """Return a traced or abstract value with a sharding."""
    jax_: Any = jax  # whose functions here have no types
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax_.ShapeDtypeStruct.update(leaf, sharding=sharding)
    axis_types = getattr(getattr(sharding, "mesh", None), "axis_types", ())
    if AxisType.Explicit in axis_types:
        # `reshard` knows `jax.vmap`, but needs a mesh that is set.
        move = jax_.device_put if current_mesh() is None else jax_.sharding.reshard
        return move(leaf, sharding)
    return jax_.lax.with_sharding_constraint(leaf, sharding)


# ------------------------------------------------------------------- several processes


def spread(
    tree: Any, leaves: Mapping[int, Any], shardings: Sequence[Any], timeout: float
) -> dict[int, Any]:
    """Put leaves where not all devices are of this process; each process gives all of a leaf.

    As `jax.device_put`, which compares such values, too. It takes neither keys nor NaNs nor what
    was put on a device before, and names no leaf.
    """
    here = {
        place: leaf for place, leaf in leaves.items() if getattr(leaf, "is_fully_addressable", True)
    }
    owners = {device.process_index for place in here for device in shardings[place].device_set}
    if len(owners) == jax.process_count():  # else some process may not come here
        _check_equal(tree, here, timeout)
    return {place: put(leaf, shardings[place]) for place, leaf in leaves.items()}


def put(leaf: Any, sharding: Any) -> Any:
    """Put one leaf, of which each process has all or its part, without a comparison."""
    if not getattr(leaf, "is_fully_addressable", True):
        if not _is_key(leaf):
            return jax.device_put(leaf, sharding)
        data = jax.device_put(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    aval: Any = jax.typeof(leaf)
    if aval.weak_type:  # which no other function of JAX keeps
        scalar = leaf.item() if isinstance(leaf, jax.Array) and not leaf.ndim else leaf
        return jax.device_put(scalar, sharding)
    value = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, aval.dtype)
    return jax.make_array_from_callback(
        aval.shape, sharding, lambda index: value[index], dtype=aval.dtype
    )


def _check_equal(tree: Any, leaves: Mapping[int, Any], timeout: float) -> None:
    flat = FlatTree(tree)
    here = processes()
    if here is None:
        raise RuntimeError(
            "lw.shard: the mesh spans processes, which cannot be compared\n"
            "  fix: call `jax.distributed.initialize()` first"
        )
    words = Words("lw.shard", "", "does not call lw.shard for this mesh as often as the others")

    def make() -> dict[str, str]:
        found: dict[str, str] = {}
        for place, leaf in leaves.items():
            aval: Any = jax.typeof(leaf)
            data = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
            digest = _digest(f"{aval} {data.dtype}".encode() + data.tobytes())
            found[flat.name_of(place)] = f"{describe_array(aval)} of digest {digest}"
        return found

    texts, groups = grouped_by_digest(
        here, "lw.shard", make, lambda texts: _digest(repr(texts).encode()), timeout, words
    )
    if len(groups) == 1:
        return
    sent = exchange_in_groups(here, "lw.shard", groups, lambda _: texts)
    lines, found = differences_between(groups, sent, _differing)
    raise DifferentProcessesError(
        (
            f"lw.shard: the mesh spans processes, and these have different values"
            f"{''.join(lines)}\n"
            f"  fix: create them from one seed in all processes, or take those of process 0: "
            f"`jax.experimental.multihost_utils.broadcast_one_to_all(tree)`;\n  where each process "
            f"has its part of a batch: `jax.make_array_from_process_local_data(sharding, part)`"
        ),
        found,
    )


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> Pairs:
    for path in {**one, **other}:
        mine, its = (each.get(path, "no such leaf") for each in (one, other))
        if mine != its:
            yield path, mine, its


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jax.typeof(leaf).dtype, jax.dtypes.prng_key)


# ------------------------------------------------------------------- what is declared


_SPEC: Final = "<spec>"


@dataclasses.dataclass(frozen=True, slots=True)
class _Declared:
    """What is declared for a part of a tree."""

    where: str
    spec: Any
    code: str

    def part(self, step: str) -> "_Declared":
        """Return what a tree of specs says of one part of the value; itself for one spec."""
        if isinstance(self.spec, PartitionSpec | Sharding):
            return self
        opened = open_node(self.spec)
        inside = {} if opened is None else dict(zip(opened[0].steps, opened[1], strict=True))
        code = f"`{_SPEC}` at {step.removeprefix('.')} in the sharding of {self.where}"
        return _Declared(self.where, inside.get(step, MISSING), code)


def _declared(flat: FlatTree, default: _Declared) -> list[_Declared]:
    """Return what is declared for each leaf: by the innermost field on the way to it."""
    found = [default] * len(flat.leaves)
    todo = [(flat.root, default)]
    while todo:
        part, given = todo.pop()
        if isinstance(part, int):
            found[part] = given
            continue
        fields = field_metadata(part.cls)
        for step, child in zip(part.steps, part.children, strict=True):
            own = fields.get(step, _NO_PATHS).get(SHARDING)
            inner = given.part(step)
            if own is not None:
                code = f"`{step[1:]}: ... = lw.field(sharding={_SPEC})`"
                inner = _Declared(f"{part.cls.__name__}{step}", own, code)
            todo.append((child, default if inner.spec is None else inner))
    return found


# ------------------------------------------------------------------- what a mesh can do


class _Judge:
    """Makes shardings for one mesh, and collects what stands in their way."""

    def __init__(self, mesh: Any, rules: Rules) -> None:
        pairs: Any = rules.items() if isinstance(rules, Mapping) else rules
        try:
            self._rules = [(name, _names(axes)) for name, axes in pairs]
        except (TypeError, ValueError):
            raise TypeError(
                f"rules= takes logical names and the axes that they stand for, got {got(rules)}\n"
                f"  fix: `rules={{'embed': None, 'heads': 'model'}}`, or pairs of them"
            ) from None
        self._mesh = mesh
        self._sizes: dict[Any, int] = dict(mesh.shape)
        self._ruled = {name for name, _ in self._rules}
        self._problems: dict[tuple[str, str], list[str]] = {}

    def raise_problems(self) -> None:
        texts: list[str] = []
        for (where, problem), paths in self._problems.items():
            at = "" if paths[0] == where else f", at {paths[0]}"
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            texts.append(f"{where}{at}{more}: {problem}")
        if texts:
            raise TreeError("\n".join(texts))

    def sharding(self, flat: FlatTree, leaf: int, declared: _Declared) -> Any:
        """Return the sharding of a leaf, or note its problem."""
        value, spec, where = flat.leaves[leaf], declared.spec, declared.where
        problem: str | None
        try:
            aval: Any = None if value is MISSING else jax.typeof(value)
        except Exception:  # noqa: BLE001  # whatever the type's own handler raises
            where = flat.name_of(leaf)
            problem = (
                f"not an array: {got(value)}\n"
                f"  fix: make it static, or take it out with `lw.partition`"
            )
        else:
            if isinstance(spec, Sharding):
                return spec
            if isinstance(spec, PartitionSpec):
                entries = self._entries(_partitions(spec))
                problem = self._misfit(declared, entries, aval)
                try:
                    if problem is None:
                        return NamedSharding(self._mesh, _on_mesh(spec, entries))
                except ValueError as error:  # of what a spec says besides its entries
                    problem = str(error)
            else:
                what = "nothing for this part" if spec is MISSING else got(spec)
                problem = (
                    f"its sharding has {what}, where a PartitionSpec is wanted\n"
                    f"  fix: {declared.code.replace(_SPEC, 'PartitionSpec(...)')}"
                )
        self._problems.setdefault((where, problem), []).append(flat.name_of(leaf))
        return None

    def _entries(self, spec: Sequence[Any]) -> list[Any]:
        """Return for each dimension the axes of the mesh, as a tuple, or what is no axis."""
        written = [_names(entry) for entry in spec]
        logical = [name for names in written for name in names if name in self._ruled]
        taken = {name for names in written for name in names} - self._ruled
        chosen: dict[Any, tuple[Any, ...]] = dict.fromkeys(logical, ())
        waiting = set(logical)
        for name, axes in self._rules:  # as flax's `logical_to_mesh_axes`
            if name in waiting and taken.isdisjoint(axes):
                chosen[name] = axes
                taken.update(axes)
                waiting.remove(name)
        return [
            entry
            if entry is PartitionSpec.UNCONSTRAINED
            else tuple(axis for name in names for axis in chosen.get(name, (name,)))
            for entry, names in zip(spec, written, strict=True)
        ]

    def _misfit(self, declared: _Declared, entries: list[Any], aval: Any) -> str | None:
        """Return why an array cannot be sharded so, and how it could; None if it can."""
        spec, sizes = _partitions(declared.spec), self._sizes
        shape: Any = None if aval is None else aval.shape
        reasons: list[str] = []
        repaired = list(spec)
        rule = ""
        seen: set[Any] = set()
        for place, axes in enumerate(entries):
            if axes is PartitionSpec.UNCONSTRAINED:
                continue
            for axis in axes:
                if axis not in sizes:
                    written = _names(spec[place])
                    names = ", ".join(map(repr, written))
                    whence = "" if axis in written else f", which a rule for {names} names"
                    reasons.append(f"the mesh has no axis {axis!r}{whence}")
                    near = difflib.get_close_matches(str(axis), [*map(str, sizes), *self._ruled], 1)
                    close = near[0] if near and len(axes) == 1 else None
                    repaired[place] = None if whence else close
                    if whence and len(written) == 1:
                        rule = f"`rules={{{names}: {close if close in sizes else None!r}}}`"
                elif axis in seen:
                    reasons.append(f"axis {axis!r} is used twice")
                    repaired[place] = None
                seen.add(axis)
            parts = math.prod(sizes.get(axis, 1) for axis in axes)
            if shape is not None and place < len(shape) and shape[place] % parts:
                by = " * ".join(f"{axis!r} ({sizes[axis]})" for axis in axes if axis in sizes)
                reasons.append(f"dimension {place} of size {shape[place]} is not divisible by {by}")
                repaired[place] = None
        if shape is not None and len(spec) > len(shape):
            reasons.append(f"{len(spec)} entries for {len(shape)} dimensions")
            repaired = repaired[: len(shape)]
        if not reasons:
            return None
        of = "" if aval is None else f" for {describe_array(aval)}"
        mesh = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        return (
            f"{'; '.join(reasons)}\n"
            f"  got: {_as_code(spec)}{of} on a mesh ({mesh})\n"
            f"  fix: {rule or declared.code.replace(_SPEC, _as_code(repaired))}"
        )


def _partitions(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a spec: JAX 0.12 refuses to iterate over one that is unreduced."""
    return tuple(spec.partitions if hasattr(spec, "partitions") else spec)


def _names(entry: Any) -> tuple[Any, ...]:
    """Return the axes in one entry of a spec, or in a rule."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return tuple(entry) if isinstance(entry, tuple | list) else (entry,)


def _on_mesh(spec: Any, entries: list[Any]) -> PartitionSpec:
    """Return a spec of axes of the mesh, with what else the given one says."""
    if all(map(operator.eq, map(_names, _partitions(spec)), map(_names, entries))):
        made: PartitionSpec = spec
        return made
    partitions = [
        (each or (None,))[0] if isinstance(each, tuple) and len(each) <= 1 else each
        for each in entries
    ]
    whole: PartitionSpec = spec.update(partitions=tuple(partitions))
    return whole


def _as_code(entries: Iterable[Any]) -> str:
    unconstrained = PartitionSpec.UNCONSTRAINED
    texts = [
        "PartitionSpec.UNCONSTRAINED" if each is unconstrained else repr(each) for each in entries
    ]
    return f"PartitionSpec({', '.join(texts)})"


# ------------------------------------------------------------------- a class without instance


def _of_class(cls: type) -> Any:
    """Return an instance with `MISSING` for each array, as far as the class says what is in it."""
    if not is_decorated(cls):
        raise TypeError(
            f"{cls.__name__} is not a class that lw.pytree decorated, so that only an instance "
            f"says what is in it\n  fix: `lw.shardings(jax.eval_shape({cls.__name__}, ...), mesh)`"
        )
    problems: list[str] = []
    made = _skeleton(cls, problems)
    if problems:
        fix = f"lw.shardings(jax.eval_shape({cls.__name__}, ...), mesh)"
        problems.append(f"  fix: an instance says it, or an abstract one: `{fix}`")
        raise TreeError("\n".join(problems))
    return made


def _skeleton(cls: type, problems: list[str]) -> Any:
    values: dict[str, Any] = {}
    before = len(problems)
    spec = spec_of(cls)
    for field in spec.fields:
        where = f"{cls.__name__}.{field.name}"
        definition = field.definition
        if not field.static:
            values[field.name] = _skeleton_of_field(cls, field, where, problems)
        elif spec.has_own_init:
            problems.append(f"{where}: a static that the class's own __init__ decides about")
        elif not field.has_default:
            problems.append(f"{where}: a static without a default, which the class does not know")
        else:
            factory: Any = definition.default_factory
            is_plain = definition.default is not dataclasses.MISSING
            value = definition.default if is_plain else factory()
            values[field.name] = field.prepare(value) if field.options.prepares else value
    return MISSING if len(problems) > before else rebuild(cls, values)


def _skeleton_of_field(cls: type, field: FieldSpec, where: str, problems: list[str]) -> Any:
    declared = field.definition.metadata.get(SHARDING)
    kind = unwrap(_annotation_of(cls, field.definition))
    if isinstance(kind, type) and is_decorated(kind):
        return _skeleton(kind, problems)
    if not (is_array_or_number(kind) or (declared is not None and not _has_class(kind))):
        text = shorten(kind.__name__ if isinstance(kind, type) else kind)
        problems.append(f"{where}: what is in it depends on the instance: {text}")
    if declared is None or isinstance(declared, PartitionSpec):
        return MISSING
    parts: Any = jax.tree_util.tree_structure(declared)
    return parts.unflatten([MISSING] * parts.num_leaves)


def _annotation_of(cls: Any, definition: "dataclasses.Field[Any]") -> Any:
    name = definition.name
    base, kind = written_annotations(cls).get(name, (cls, definition.type))
    kind = resolve_known(base, kind, [])
    if isinstance(kind, str):  # it names what only a function sees
        kind = annotations_of(cls.__init__).get(name, kind)
    return kind


def _has_class(kind: Any) -> bool:
    """Return whether instances of a class with fields may be in values of an annotation."""
    kind = unwrap(kind)
    if dataclasses.is_dataclass(typing.get_origin(kind) or kind):
        return True
    return any(_has_class(each) for each in typing.get_args(kind))
