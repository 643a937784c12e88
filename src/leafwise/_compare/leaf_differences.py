"""The differences between two leaves, or two statics, of one path, and what JAX makes of each."""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.fixes import Cause, Side, StaticFacts
from leafwise._display.reasons import Outcome, Reason, ReasonKind
from leafwise._jax.compat import varying_axes
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import got
from leafwise._trees.equality import StaticPair, is_distinct, jax_equal, verdict_of
from leafwise._trees.leaves import Leaf, LeafKind, format_sharding, same_dispatch, same_lowering
from leafwise.errors import TreeError


def leaf_reasons(mine: Leaf, its: Leaf, *, config_differs: bool) -> Iterator[Reason]:
    """Yield the reasons that two traced leaves give, without the path.

    Where the configuration differs, that explains avals of which nothing else does.
    """
    if mine == its or LeafKind.INVALID in (mine.kind, its.kind):
        return
    traced: list[Reason] = []
    if mine.aval != its.aval and not (config_differs and mine.facts == its.facts):
        traced = aval_reasons("", mine, its)
        yield from traced
    # A tracer is inlined into the trace around it.
    if its.kind is LeafKind.TRACER or any(each.kind is ReasonKind.SHARDING for each in traced):
        return
    placements = _format_placement(mine), _format_placement(its)
    kinds = Verbatim(mine.kind), Verbatim(its.kind)
    is_lowered, is_dispatched = same_lowering(mine, its), same_dispatch(mine, its)
    if not is_lowered:
        kind, cause = ReasonKind.COMMITMENT, Cause.COMMITTED
        if mine.committed == its.committed:
            kind, cause = ReasonKind.SHARDING, Cause.SHARDING
        yield Reason("", kind, Outcome.RECOMPILE, *placements, cause)
    elif traced:
        return
    elif mine.kind is LeafKind.TRACER:
        yield Reason("", ReasonKind.LEAF_KIND, Outcome.RECOMPILE, *kinds, Cause.TRACED)
    elif not is_dispatched and mine.kind is its.kind:
        yield Reason("", ReasonKind.SHARDING, Outcome.DISPATCH, *placements, Cause.DATA_MOVES)
    elif not is_dispatched:
        yield Reason("", ReasonKind.LEAF_KIND, Outcome.DISPATCH, *kinds, Cause.SLOWER_CALL)


def aval_reasons(path: str, mine: Leaf, its: Leaf) -> list[Reason]:
    """Return what differs between two abstract values that are not equal."""
    retrace = Outcome.RETRACE
    if _is_raw_key_of(mine, its) or _is_raw_key_of(its, mine):
        avals = Verbatim(mine.aval.str_short()), Verbatim(its.aval.str_short())
        return [Reason(path, ReasonKind.DTYPE, retrace, *avals, Cause.RAW_KEY)]
    reasons: list[Reason] = []
    if mine.shape != its.shape:
        shapes = mine.shape, its.shape
        reasons.append(Reason(path, ReasonKind.SHAPE, retrace, *shapes, Cause.SHAPE))
    sides = Side("the earlier call", mine), Side("this call", its)
    if mine.dtype != its.dtype:
        dtypes = Verbatim(mine.dtype), Verbatim(its.dtype)
        reasons.append(Reason(path, ReasonKind.DTYPE, retrace, *dtypes, Cause.DTYPE, sides))
    elif mine.weak_type != its.weak_type:
        texts = Verbatim(mine), Verbatim(its)
        reasons.append(Reason(path, ReasonKind.WEAK_TYPE, retrace, *texts, Cause.WEAK_TYPE, sides))
    axes = varying_axes(mine.aval), varying_axes(its.aval)
    if axes[0] != axes[1]:
        reasons.append(Reason(path, ReasonKind.VARYING, retrace, *axes, Cause.VARYING))
    if _aval_sharding(mine) != _aval_sharding(its) or not reasons:
        placements = _format_placement(mine), _format_placement(its)
        reasons.append(Reason(path, ReasonKind.SHARDING, retrace, *placements, Cause.SHARDING))
    return reasons


def _is_raw_key_of(raw: Leaf, key: Leaf) -> bool:
    """Return whether one is a key of `jax.random.PRNGKey`, and the other of `jax.random.key`."""
    is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    shape = raw.shape or ()
    return is_key and raw.dtype == jnp.uint32 and shape[:-1] == key.shape != shape


def _aval_sharding(leaf: Leaf) -> Any:
    """Return what of a sharding is part of an abstract value: mesh, and explicit axes."""
    sharding = getattr(leaf.aval, "sharding", None)
    # A spec has an entry for each dimension: only the entries that shard count here.
    spec = [entry for entry in getattr(sharding, "spec", ()) if entry is not None]
    return getattr(sharding, "mesh", None), spec


def _format_placement(leaf: Leaf) -> Verbatim:
    if leaf.sharding is None:
        return Verbatim(leaf.kind)
    how = "committed to" if leaf.committed else "on"
    return Verbatim(f"{how} {format_sharding(leaf.sharding)}")


def static_reasons(path: str, pair: StaticPair) -> Iterator[Reason]:
    """Yield the one reason that two static values of one path give, if any."""
    word, step, before, after = verdict_of(pair)
    if word == "equal":
        return
    kind, outcome, cause = _OF_STATICS[word]
    if word == "differ":
        by = pair.how if pair.how in ("identity", "content") else None
        yield Reason(path, kind, outcome, before, after, cause, StaticFacts(by, step))
    else:
        yield Reason(path + step, kind, outcome, before, after, cause)


_OF_STATICS: Final = {
    "raises": (ReasonKind.COMPARISON, Outcome.ERROR, Cause.FAILING_COMPARISON),
    "differ": (ReasonKind.STATIC, Outcome.RETRACE, Cause.STATIC),
    "unsound": (ReasonKind.STATIC, Outcome.REUSE, Cause.UNSOUND),
    "hidden": (ReasonKind.STATIC, Outcome.REUSE, Cause.OWN_EQUALITY),
}


_Array: TypeAlias = np.ndarray[Any, Any]

Tolerance: TypeAlias = tuple[float, float]
"""How far apart two numbers may be, relative and absolute, as in `numpy.isclose`."""


def value_reasons(
    path: str, mine: tuple[Leaf, Any], its: tuple[Leaf, Any], tolerance: Tolerance
) -> Iterator[Reason]:
    """Yield the reason that the data of two leaves of one shape and dtype give, if any."""
    one, other = mine[1], its[1]
    if one is other:
        return
    texts = str(mine[0]), str(its[0])
    if mine[0].aval is None or its[0].aval is None:  # not data to JAX: texts, functions
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):  # of texts, of objects
            one, other = ((array.dtype.str, array.tolist()) for array in (one, other))
        differ = is_distinct(one, other)
        if jax_equal(one, other) is not True if differ is None else differ:
            yield _value_reason(path, *texts)
        return
    plain = mine[0].stored == its[0].stored  # else a Python scalar meets an array
    one, other = (_data_of(path, leaf, value, plain=plain) for leaf, value in (mine, its))
    if one is not None and other is not None:
        yield from _element_reasons(path, one, other, tolerance)
    elif one is not None or other is not None:
        yield _value_reason(path, *texts)


def _value_reason(path: str, before: str, after: str) -> Reason:
    after = f"{after}, which is not equal" if before == after else after
    return Reason(path, ReasonKind.VALUE, Outcome.REUSE, Verbatim(before), Verbatim(after))


def _data_of(path: str, leaf: Leaf, value: Any, *, plain: bool) -> _Array | None:
    """Return the data of a leaf; None if it has none."""
    if leaf.kind is LeafKind.TRACER:
        raise TreeError(
            f"{path or 'the tree'}: the value of a tracer is not known while JAX traces: got "
            f"{got(value)}\n  fix: compare outside the jitted function, or leave out `values=`"
        )
    if leaf.kind in (LeafKind.SHAPE_DTYPE_STRUCT, LeafKind.INVALID):
        return None
    if leaf.kind is LeafKind.PRNG_KEY:
        return np.asarray(jax.random.key_data(value))
    if leaf.kind is LeafKind.REF:
        value = value[...]
    return np.asarray(value) if plain else np.asarray(value).astype(leaf.dtype)


def _element_reasons(
    path: str, one: _Array, other: _Array, tolerance: Tolerance
) -> Iterator[Reason]:
    mask = _unequal(one, other, tolerance)
    if not mask.any():
        return
    at = tuple(int(index) for index in np.argwhere(mask)[0])
    before, after = str(one[at]), str(other[at])
    if before == after:  # of a dtype whose texts have too few digits
        before, after = repr(one[at].item()), repr(other[at].item())
    if mask.ndim:
        most = _largest_distance(one[mask], other[mask])
        by = f", by {most} at most" if most else ""
        before += f" at [{', '.join(map(str, at))}]"
        after += f" ({mask.sum()} of {mask.size} elements differ{by})"
    yield _value_reason(path, before, after)


def _unequal(one: _Array, other: _Array, tolerance: Tolerance) -> _Array:
    """Return which elements of two arrays differ: zeros of two signs do, NaN and NaN do not."""
    mask: Any = _bits_of(one) != _bits_of(other)
    if mask.any() and jnp.issubdtype(one.dtype, jnp.inexact):
        mask &= ~(np.isnan(one) & np.isnan(other))
    if any(tolerance) and one.dtype != np.bool_:
        mask &= ~np.isclose(_widened(one), _widened(other), *tolerance, equal_nan=True)
    return np.asarray(mask)


def _bits_of(array: _Array) -> _Array:
    """Return a view, which takes no memory if the array is contiguous."""
    return np.ascontiguousarray(array).view(f"V{array.itemsize}").reshape(array.shape)


def _widened(array: _Array) -> _Array:
    """Return an array of floats in a dtype of NumPy's own that holds all its values."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _largest_distance(one: _Array, other: _Array) -> str:
    """Return the largest distance between two elements as text; empty if there is none."""
    if jnp.issubdtype(one.dtype, jnp.integer):
        return str(np.abs(one.astype(object) - other.astype(object)).max())
    if not jnp.issubdtype(one.dtype, jnp.inexact):
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(_widened(one) - _widened(other))
    known = apart[~np.isnan(apart)]
    return f"{known.max():.6g}" if known.size else ""
