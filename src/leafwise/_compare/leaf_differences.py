"""The differences between two leaves of one place, and what JAX makes of each."""

from collections.abc import Iterator
from typing import Any

from leafwise._compare import fixes
from leafwise._compare.reasons import Outcome, Reason, ReasonKind, Said
from leafwise._trees.leaves import Leaf, LeafKind, same_dispatch, same_lowering, say_sharding


def leaf_reasons(path: str, mine: Leaf, its: Leaf, *, config_differs: bool) -> Iterator[Reason]:
    """Yield the reasons that two traced leaves give.

    Args:
        path: Where they stand.
        mine: The leaf of the earlier call.
        its: The leaf of the later call.
        config_differs: Whether a change of the configuration explains what it did to leaves
            that are otherwise the same.
    """
    traced: list[Reason] = []
    if mine.aval != its.aval and not (config_differs and mine.facts == its.facts):
        traced = list(aval_reasons(path, mine, its))
        yield from traced
    if its.kind is LeafKind.TRACER:  # inlined into the trace around it
        return
    if all(reason.kind is not ReasonKind.SHARDING for reason in traced):
        lowered = not same_lowering(mine, its)
        if lowered:
            yield _lowering_reason(path, mine, its)
        if lowered or traced:
            return
        if mine.kind is LeafKind.TRACER:
            kind, words, advice = (
                ReasonKind.LEAF_KIND,
                (Said(mine.kind), Said(its.kind)),
                fixes.TRACED,
            )
            yield Reason(path, kind, Outcome.RECOMPILE, *words, advice)
        elif not same_dispatch(mine, its):
            yield _dispatch_reason(path, mine, its)


def aval_reasons(path: str, mine: Leaf, its: Leaf) -> Iterator[Reason]:
    """Name what differs between two abstract values."""
    retrace, same = Outcome.RETRACE, True
    if mine.shape != its.shape:
        same = False
        yield Reason(path, ReasonKind.SHAPE, retrace, mine.shape, its.shape, fixes.SHAPE)
    if mine.dtype != its.dtype:
        same = False
        words, advice = (Said(mine.dtype), Said(its.dtype)), fixes.dtype(mine, its)
        yield Reason(path, ReasonKind.DTYPE, retrace, *words, advice)
    elif mine.weak_type != its.weak_type:
        same = False
        words, advice = (Said(mine), Said(its)), fixes.weak_type(mine, its)
        yield Reason(path, ReasonKind.WEAK_TYPE, retrace, *words, advice)
    if _placement(mine) != _placement(its) or same:
        words, advice = (Said(_where(mine)), Said(_where(its))), fixes.SHARDING
        yield Reason(path, ReasonKind.SHARDING, retrace, *words, advice)


def _placement(leaf: Leaf) -> Any:
    """Return what of a sharding is part of an abstract value: mesh, and explicit axes."""
    sharding = getattr(leaf.aval, "sharding", None)
    # A spec has an entry for each dimension: only the entries that shard count here.
    spec = [entry for entry in getattr(sharding, "spec", ()) if entry is not None]
    return getattr(sharding, "mesh", None), spec


def _where(leaf: Leaf) -> str:
    """Return where the data of a leaf lies."""
    if leaf.sharding is None:
        return str(leaf.kind)
    return f"{'committed to' if leaf.committed else 'on'} {say_sharding(leaf.sharding)}"


def _lowering_reason(path: str, mine: Leaf, its: Leaf) -> Reason:
    """Name why leaves of one abstract value are lowered differently."""
    words = (Said(_where(mine)), Said(_where(its)))
    if mine.committed == its.committed:
        kind, advice = ReasonKind.SHARDING, fixes.SHARDING
    else:
        kind, advice = ReasonKind.COMMITMENT, fixes.commitment(its)
    return Reason(path, kind, Outcome.RECOMPILE, *words, advice)


def _dispatch_reason(path: str, mine: Leaf, its: Leaf) -> Reason:
    """Name why leaves of one program have a dispatch entry each."""
    if mine.kind is its.kind:
        words, kind = (Said(_where(mine)), Said(_where(its))), ReasonKind.SHARDING
    else:
        words, kind = (Said(mine.kind), Said(its.kind)), ReasonKind.LEAF_KIND
    return Reason(path, kind, Outcome.DISPATCH, *words, fixes.dispatch(kind))
