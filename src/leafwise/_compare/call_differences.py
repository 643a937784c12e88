"""The differences between two calls outside their trees: configuration, arguments, devices."""

from collections.abc import Iterator
from typing import Final

from leafwise._compare.fixes import Cause
from leafwise._compare.leaf_differences import static_reasons
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature, value_of
from leafwise._jax.context import UNNAMED_CONFIG
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim
from leafwise._trees.equality import How, StaticPair
from leafwise._trees.leaves import Leaf, LeafKind, device_order


def call_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
    """Yield the reasons that are not in the trees of the dynamic arguments."""
    yield from _config_reasons(before, after)
    yield from _refused_leaf_reasons(before, after)
    yield from _device_reasons(before, after)
    yield from _argument_reasons(before, after)
    yield from _static_argument_reasons(before, after)


_CONFIG_NAMES: Final = {
    "abstract_mesh_context_manager": "mesh",
    "mesh_context_manager": "mesh",
    "axis_env_state": "axis names",
}


def _config_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
    if before.config == after.config:
        return
    earlier, later = before.options, after.options
    named: set[str] = set()
    for name, its in later.items():
        if name == "jax_disable_jit":  # nothing is jitted then: see `tree_differences`
            continue
        mine, shown = earlier.get(name, MISSING), _CONFIG_NAMES.get(name, name)
        if shown in named or (named and name == UNNAMED_CONFIG) or mine == its:
            continue
        named.add(shown)
        path, cause = f"config.{shown}", Cause.CONFIG
        yield Reason(path, ReasonKind.CONFIG, Outcome.RETRACE, mine, its, cause)


def _refused_leaf_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
    """Yield the leaves that no jitted function takes."""
    earlier: dict[str, Leaf] = {}
    for place, leaf in enumerate(after.leaf_records):
        if leaf.kind is LeafKind.INVALID:
            got, cause = leaf.value, Cause.INVALID if leaf.aval is None else Cause.DELETED
        elif leaf.kind is LeafKind.SHAPE_DTYPE_STRUCT:
            got, cause = leaf, Cause.ABSTRACT
        else:
            continue
        path = after.leaf_paths[place]
        earlier = earlier or dict(zip(before.leaf_paths, before.leaf_records, strict=True))
        was = Verbatim(earlier[path]) if path in earlier else MISSING
        yield Reason(path, ReasonKind.INVALID, Outcome.ERROR, was, Verbatim(got), cause)


def _device_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
    """Yield arguments that are committed to other devices than the mesh, or than the others."""
    orders = {
        place: device_order(leaf.sharding)
        for place, leaf in enumerate(after.leaf_records)
        if leaf.committed
    }
    if not orders:
        return
    mesh = after.options.get("mesh")
    if mesh is not None:
        there = tuple(mesh.devices.flat)
    else:  # those of the earlier call, so that what moved is named
        earlier = [leaf.sharding for leaf in before.leaf_records if leaf.committed]
        candidates = [*map(device_order, earlier), *orders.values()]
        there = next((order for order in candidates if order in orders.values()), ())
    for place, order in orders.items():
        if order != there:
            names = Verbatim(", ".join(map(str, there))), Verbatim(", ".join(map(str, order)))
            path = after.leaf_paths[place]
            yield Reason(path, ReasonKind.DEVICES, Outcome.ERROR, *names, Cause.DEVICES)


def _argument_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
    """Yield arguments that only one of the calls has, or that are given in two ways."""
    if before.root.steps == after.root.steps and before.root.names == after.root.names:
        return
    mine, its = (
        {**dict.fromkeys(call.root.steps, "traced"), **dict.fromkeys(call.root.names, "static")}
        for call in (before, after)
    )
    old = {before.show(path): path for path in mine if path not in its}
    new = {after.show(path): path for path in its if path not in mine}
    kind, retrace = ReasonKind.ARGUMENTS, Outcome.RETRACE
    for path in dict.fromkeys([*mine, *its]):
        given = mine.get(path), its.get(path)
        shown = after.show(path) if path in its else before.show(path)
        if given[0] == given[1] or (path in its and shown in old):
            continue
        if shown in new and path in mine:
            one, other = (
                Verbatim("by position" if each.startswith("args") else "by keyword")
                for each in (path, new[shown])
            )
            yield Reason(shown, kind, retrace, one, other, Cause.MOVED_ARGUMENT)
        else:
            old_way, new_way = (MISSING if each is None else Verbatim(each) for each in given)
            yield Reason(shown, kind, retrace, old_way, new_way, Cause.ARGUMENT)


def _static_argument_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
    """Compare the static arguments as JAX does: with their types, then by ``==``, or by key."""
    earlier = dict(zip(before.root.names, before.root.values, strict=True))
    for path, value in zip(after.root.names, after.root.values, strict=True):
        mine = earlier.get(path, MISSING)
        try:
            hash(value)
        except Exception:  # noqa: BLE001  # the value's own code
            cause = Cause.UNHASHABLE
            yield Reason(path, ReasonKind.INVALID, Outcome.ERROR, mine, value, cause)
            continue
        shown = value_of(value)
        how: How = "identity" if shown is not value else "entry"
        if type(mine) is not type(value):
            how = "unequal"
        if path in earlier:
            pair = StaticPair(value_of(mine), shown, how, (mine, value))
            yield from static_reasons(path, pair)
