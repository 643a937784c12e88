"""What JAX will do for a call after earlier ones, and why."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from leafwise._compare.fixes import Cause
from leafwise._compare.tree_differences import TreeComparison, static_reasons
from leafwise._findings.reasons import Explanation, Outcome, Reason, ReasonKind, joined, merged
from leafwise._jax.context import UNNAMED_CONFIG
from leafwise._objects.interrupts import or_default
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._statics.key import argument_value
from leafwise._trees.equality import How, StaticPair
from leafwise._trees.leaves import LeafKind, device_order

if TYPE_CHECKING:  # its `explain` calls what is here
    from leafwise._compare.signature import Signature


def nearest(
    earlier: "Sequence[Signature]",
    after: "Signature",
    *,
    placed: bool = False,
    shared: frozenset[tuple[str, ReasonKind]] = frozenset(),
) -> Explanation:
    """Explain a call against the earlier call that leads to the cheapest outcome.

    Among several such calls, it prefers one with fewer differences, then one with equal shapes,
    then one whose differences are `shared`, by path and kind, with other calls.
    """
    if len(earlier) == 1:  # nothing to choose from
        return differences(earlier[0], after, placed=placed)
    best: tuple[tuple[Any, ...], Explanation] | None = None
    for place, before in enumerate(earlier):
        found = differences(before, after, placed=placed)
        number = len(found.reasons)
        if number > 1:  # count as the reader sees them, one line each
            number = len(joined(merged(found.reasons)))
        kinds = {(reason.path, reason.kind) for reason in found.reasons}
        is_resized = any(kind is ReasonKind.SHAPE for _, kind in kinds)
        is_other = not kinds <= shared
        order = (found.outcome.severity, number, is_resized, is_other, -place)
        if best is None or order < best[0]:
            best = order, dataclasses.replace(found, nearest=place)
    return Explanation(Outcome.RETRACE) if best is None else best[1]


def differences(before: "Signature", after: "Signature", *, placed: bool = False) -> Explanation:
    """Explain a call against one earlier call; a `placed` function moves arguments if needed."""
    reasons = list(_config_reasons(before, after))
    config_differs = any(reason.outcome is Outcome.RETRACE for reason in reasons)
    reasons += _uncommon_leaf_reasons(before, after)
    reasons += _device_reasons(before, after)
    reasons += _argument_reasons(before, after)
    reasons += _static_argument_reasons(before, after)
    trees = TreeComparison(before, after, config_differs=config_differs)
    reasons += trees.reasons()
    reasons = _with_reached_comparisons(reasons, after.root.names, raises=trees.same is None)
    if after.labels:
        reasons = [
            one._replace(path=after.show(one.path), holder=one.holder and after.show(one.holder))
            for one in reasons
        ]
    if placed:
        reasons = [
            reason._replace(outcome=Outcome.DISPATCH)
            if reason.outcome is Outcome.RECOMPILE and reason.kind is not ReasonKind.LEAF_KIND
            else reason
            for reason in reasons
            if reason.kind is not ReasonKind.DEVICES
        ]
    acted = [reason for reason in reasons if reason.outcome is not Outcome.REUSE]
    unsound = tuple(reason for reason in reasons if reason.outcome is Outcome.REUSE)
    ranked = tuple(sorted(acted, key=lambda reason: reason.rank))  # by outcome first
    return Explanation(ranked[0].outcome if ranked else Outcome.REUSE, ranked, unsound, 0)


def _with_reached_comparisons(
    found: list[Reason], arguments: tuple[str, ...], *, raises: bool
) -> list[Reason]:
    """Return the reasons, with a retrace where JAX does not get to a comparison that raises."""
    # Everything that retraces is part of the hash of JAX's cache keys, except statics in a
    # treedef. If the hashes differ, JAX does not compare statics.
    hashed = any(
        reason.kind is ReasonKind.CONFIG
        or (reason.kind is not ReasonKind.STATIC and reason.outcome is Outcome.RETRACE)
        or (reason.kind is ReasonKind.STATIC and reason.path in arguments)
        for reason in found
    )
    raises = raises or any(
        reason.kind is ReasonKind.COMPARISON and reason.path in arguments for reason in found
    )
    if raises and not hashed:
        return found
    return [
        reason._replace(outcome=Outcome.RETRACE) if reason.kind is ReasonKind.COMPARISON else reason
        for reason in found
    ]


_CONFIG_NAMES: Final = {
    "abstract_mesh_context_manager": "mesh",
    "mesh_context_manager": "mesh",
    "axis_env_state": "axis names",
}


def _config_reasons(before: "Signature", after: "Signature") -> Iterator[Reason]:
    off = [bool(call.options.get("jax_disable_jit")) for call in (before, after)]
    if any(off):  # the outcome depends on more than was recorded
        path, unknown = "config.jax_disable_jit", Outcome.UNKNOWN
        yield Reason(path, ReasonKind.CONFIG, unknown, off[0], off[1], Cause.JIT_IS_OFF)
    if before.config == after.config:
        return
    earlier, later = before.options, after.options
    named: set[str] = set()
    for name, its in later.items():
        if name == "jax_disable_jit":  # handled above
            continue
        mine, shown = earlier.get(name, MISSING), _CONFIG_NAMES.get(name, name)
        if shown in named or (named and name == UNNAMED_CONFIG) or mine == its:
            continue
        named.add(shown)
        path = f"config.{shown}"
        yield Reason(path, ReasonKind.CONFIG, Outcome.RETRACE, mine, its, Cause.CONFIG)


def _uncommon_leaf_reasons(before: "Signature", after: "Signature") -> Iterator[Reason]:
    """Yield a reason for each leaf that a jitted function rejects, or may reject."""
    if _UNCOMMON.isdisjoint(leaf.kind for leaf in (*before.leaf_records, *after.leaf_records)):
        return
    kind, error, unknown = ReasonKind.INVALID, Outcome.ERROR, Outcome.UNKNOWN
    earlier = dict(zip(before.leaf_paths, before.leaf_records, strict=True))
    for path, leaf in earlier.items():
        if leaf.kind in _UNCOMMON:
            yield Reason(path, kind, unknown, Verbatim(leaf), MISSING, Cause.NOT_CALLED)
    for path, leaf in zip(after.leaf_paths, after.leaf_records, strict=True):
        was = Verbatim(earlier[path]) if path in earlier else MISSING
        if leaf.kind is LeafKind.INVALID:
            cause = Cause.INVALID if leaf.aval is None else Cause.DELETED
            yield Reason(path, kind, error, was, Verbatim(leaf.value), cause)
        elif leaf.kind is LeafKind.SHAPE_DTYPE_STRUCT:
            yield Reason(path, kind, error, was, Verbatim(leaf), Cause.ABSTRACT)
        elif leaf.kind is LeafKind.OTHER:
            yield Reason(path, kind, unknown, MISSING, Verbatim(leaf), Cause.OTHER_TYPE)


_UNCOMMON: Final = {LeafKind.OTHER, LeafKind.INVALID, LeafKind.SHAPE_DTYPE_STRUCT}


def _device_reasons(before: "Signature", after: "Signature") -> Iterator[Reason]:
    """Yield a reason for each argument that is not on the devices of the mesh or of the others."""
    orders = {
        place: device_order(leaf.sharding)
        for place, leaf in enumerate(after.leaf_records)
        if leaf.committed
    }
    mesh = after.options.get("mesh")
    if mesh is not None:
        there = tuple(mesh.devices.flat)
    else:  # prefer those of the earlier call, so that the argument that moved is named
        earlier = [leaf.sharding for leaf in before.leaf_records if leaf.committed]
        candidates = [*map(device_order, earlier), *orders.values()]
        there = next((order for order in candidates if order in orders.values()), ())
    for place, order in orders.items():
        if order != there:
            names = Verbatim(", ".join(map(str, there))), Verbatim(", ".join(map(str, order)))
            path = after.leaf_paths[place]
            yield Reason(path, ReasonKind.DEVICES, Outcome.ERROR, *names, Cause.DEVICES)


def _argument_reasons(before: "Signature", after: "Signature") -> Iterator[Reason]:
    """Yield a reason for each argument that only one call has, or that is passed differently."""
    mine, its = _given(before), _given(after)
    for name in {**mine, **its}:
        old, new = mine.get(name), its.get(name)
        if old == new:
            continue
        is_moved = old is not None and new is not None and old[0] == new[0]
        place, cause = (1, Cause.MOVED_ARGUMENT) if is_moved else (0, Cause.ARGUMENT)
        one, other = (MISSING if each is None else Verbatim(each[place]) for each in (old, new))
        yield Reason(name, ReasonKind.ARGUMENTS, Outcome.RETRACE, one, other, cause)


def _given(call: "Signature") -> dict[str, tuple[str, str]]:
    """Return for each argument, by name, whether it is traced or static, and how it is passed."""
    kinds = dict.fromkeys(call.root.steps, "traced") | dict.fromkeys(call.root.names, "static")
    return {
        call.show(path): (kind, "by position" if path.startswith("args") else "by keyword")
        for path, kind in kinds.items()
    }


def _static_argument_reasons(before: "Signature", after: "Signature") -> Iterator[Reason]:
    """Compare the static arguments as JAX does: by type, then by ``==`` or by key."""
    earlier = dict(zip(before.root.names, before.root.values, strict=True))
    for path, value in zip(after.root.names, after.root.values, strict=True):
        mine = earlier.get(path, MISSING)
        if or_default(None)(hash)(value) is None:
            yield Reason(path, ReasonKind.INVALID, Outcome.ERROR, mine, value, Cause.UNHASHABLE)
            continue
        shown = argument_value(value)
        how: How = "identity" if shown is not value else "entry"
        if type(mine) is not type(value):
            how = "unequal"
        if path in earlier:
            pair = StaticPair(argument_value(mine), shown, how, (mine, value))
            yield from static_reasons(path, pair)
