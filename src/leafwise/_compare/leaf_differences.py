"""The differences between two leaves of one place, and what JAX makes of each."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._classes.fields import By
from leafwise._compare import fixes
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._objects.text import Verbatim, got
from leafwise._trees.equality import is_distinct, jax_equal
from leafwise._trees.leaves import Leaf, LeafKind, same_dispatch, same_lowering, say_sharding
from leafwise.errors import TracerComparisonError


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
            kind, words, fix = (
                ReasonKind.LEAF_KIND,
                (Verbatim(mine.kind), Verbatim(its.kind)),
                fixes.TRACED,
            )
            yield Reason(path, kind, Outcome.RECOMPILE, *words, fix)
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
        words, fix = (Verbatim(mine.dtype), Verbatim(its.dtype)), fixes.dtype(mine, its)
        yield Reason(path, ReasonKind.DTYPE, retrace, *words, fix)
    elif mine.weak_type != its.weak_type:
        same = False
        words, fix = (Verbatim(mine), Verbatim(its)), fixes.weak_type(mine, its)
        yield Reason(path, ReasonKind.WEAK_TYPE, retrace, *words, fix)
    if _placement(mine) != _placement(its) or same:
        words, fix = (Verbatim(_where(mine)), Verbatim(_where(its))), fixes.SHARDING
        yield Reason(path, ReasonKind.SHARDING, retrace, *words, fix)


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
    words = (Verbatim(_where(mine)), Verbatim(_where(its)))
    if mine.committed == its.committed:
        kind, fix = ReasonKind.SHARDING, fixes.SHARDING
    else:
        kind, fix = ReasonKind.COMMITMENT, fixes.commitment(its)
    return Reason(path, kind, Outcome.RECOMPILE, *words, fix)


def _dispatch_reason(path: str, mine: Leaf, its: Leaf) -> Reason:
    """Name why leaves of one program have a dispatch entry each."""
    if mine.kind is its.kind:
        words, kind = (Verbatim(_where(mine)), Verbatim(_where(its))), ReasonKind.SHARDING
    else:
        words, kind = (Verbatim(mine.kind), Verbatim(its.kind)), ReasonKind.LEAF_KIND
    return Reason(path, kind, Outcome.DISPATCH, *words, fixes.dispatch(kind))


class Tolerance(NamedTuple):
    """How far apart two numbers may be, as `numpy.isclose` counts; by default they are equal."""

    relative: float = 0.0
    absolute: float = 0.0


def value_reasons(
    path: str, mine: tuple[Leaf, Any], its: tuple[Leaf, Any], tolerance: Tolerance
) -> Iterator[Reason]:
    """Yield the reason that the data of two leaves give, if any.

    Args:
        path: Where they stand.
        mine: The record of the earlier leaf, and the leaf.
        its: The record of the later leaf, and the leaf; of the same shape and dtype.
        tolerance: How far apart their elements may be.

    Raises:
        TracerComparisonError: One is a tracer, and the other another.
    """
    if mine[1] is its[1]:
        return
    if mine[0].aval is None or its[0].aval is None:
        yield from _opaque(path, mine, its)
        return
    plain = mine[0].stored == its[0].stored  # else a Python scalar meets an array
    one, other = (_data(path, leaf, value, plain=plain) for leaf, value in (mine, its))
    if one is not None and other is not None:
        yield from _apart(path, one, other, tolerance)
    elif one is not None or other is not None:
        yield _reason(path, str(mine[0]), str(its[0]))


def _reason(path: str, before: str, after: str) -> Reason:
    return Reason(path, ReasonKind.VALUE, Outcome.REUSE, Verbatim(before), Verbatim(after))


def _opaque(path: str, mine: tuple[Leaf, Any], its: tuple[Leaf, Any]) -> Iterator[Reason]:
    """Compare two leaves that are no data to JAX, such as texts and functions."""
    one, other = mine[1], its[1]
    if all(isinstance(each, np.ndarray) for each in (one, other)) and one.shape == other.shape:
        yield from _elements(path, one, other)
    elif _are_apart(one, other):
        yield _reason(path, *_words(str(mine[0]), str(its[0]), one, other))


def _are_apart(one: Any, other: Any) -> bool:
    differ = is_distinct(one, other)
    return jax_equal(one, other) is not True if differ is None else differ


def _elements(
    path: str, one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]"
) -> Iterator[Reason]:
    """Compare arrays that are none to JAX, such as those of texts, by their elements."""
    flat = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
    apart = [(place, pair) for place, pair in enumerate(flat) if _are_apart(*pair)]
    if one.dtype != other.dtype and not apart:
        yield _reason(path, str(one.dtype), str(other.dtype))
    if not apart:
        return
    place, pair = apart[0]
    before, after = _words(got(pair[0]), got(pair[1]), *pair)
    if one.ndim:
        index = ", ".join(str(int(each)) for each in np.unravel_index(place, one.shape))
        before += f" at [{index}]"
        after += f" ({len(apart)} of {one.size} elements differ)"
    yield _reason(path, before, after)


def _words(before: str, after: str, one: Any, other: Any) -> tuple[str, str]:
    """Return the words for two values, so that they differ."""
    if before != after:
        return before, after
    if isinstance(one, str | bytes) and isinstance(other, str | bytes) and one != other:  # cut
        pairs = enumerate(zip(one, other, strict=False))
        same = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
        start = max(same - 10, 0)
        ends = [repr(each[start : same + 30]) for each in (one, other)]
        return f"{ends[0]} from [{start}] on", ends[1]
    return before, f"{after}, which is not equal"


def _data(path: str, leaf: Leaf, value: Any, *, plain: bool) -> "np.ndarray[Any, Any] | None":
    """Return the data of a leaf; None if it has none."""
    if leaf.kind is LeafKind.TRACER:
        msg = (
            f"{path or 'the tree'}: the value of a tracer is not known while JAX traces: got "
            f"{got(value)}\n  fix: compare outside the jitted function, or leave out `values=`"
        )
        raise TracerComparisonError(msg)
    if leaf.kind in _EMPTY:
        return None
    if leaf.kind is LeafKind.PRNG_KEY:
        return np.asarray(jax.random.key_data(value))
    if leaf.kind is LeafKind.REF:
        value = value[...]
    return np.asarray(value) if plain else np.asarray(value).astype(leaf.dtype)


_EMPTY: Final = {LeafKind.SHAPE_DTYPE_STRUCT, LeafKind.INVALID}


def _apart(
    path: str, one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]", tolerance: Tolerance
) -> Iterator[Reason]:
    if _same_bytes(one, other):
        return
    mask = unequal(one, other, tolerance)
    count = int(mask.sum())
    if not count:
        return
    first = tuple(int(index) for index in np.argwhere(mask)[0])
    before, after = _say_both(one[first], other[first])
    if mask.ndim:
        before += f" at [{', '.join(map(str, first))}]"
        most = _distance(one[mask], other[mask])
        words = f", by {most} at most" if most is not None else ""
        after += f" ({count} of {mask.size} elements differ{words})"
    yield _reason(path, before, after)


def _same_bytes(one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays are the same, at no cost in memory for those that are contiguous."""
    flat = [np.ascontiguousarray(each).reshape(-1) for each in (one, other)]
    return bool(np.array_equal(flat[0].view(np.uint8), flat[1].view(np.uint8)))


def unequal(
    one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]", tolerance: Tolerance
) -> "np.ndarray[Any, Any]":
    """Return which elements of two arrays of one shape and dtype differ.

    Zeros of two signs differ, NaN and NaN do not.
    """
    mine, its = _wide(one), _wide(other)
    if jnp.issubdtype(one.dtype, jnp.complexfloating):
        parts = (_differ(mine.real, its.real), _differ(mine.imag, its.imag))
        mask: Any = parts[0] | parts[1]
    else:
        mask = _differ(mine, its)
    if any(tolerance) and one.dtype != np.bool_:
        relative, absolute = tolerance
        mask = mask & ~np.isclose(mine, its, rtol=relative, atol=absolute, equal_nan=True)
    return np.asarray(mask)


def _wide(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return an array in a dtype of NumPy's own that holds all its values."""
    for kind, wide in _WIDE:
        if jnp.issubdtype(array.dtype, kind):
            return array.astype(wide)
    return array


_WIDE: Final[tuple[tuple[Any, Any], ...]] = (
    (jnp.complexfloating, np.complex128),
    (jnp.floating, np.float64),
    (jnp.unsignedinteger, np.uint64),
    (jnp.signedinteger, np.int64),
)


def _differ(one: Any, other: Any) -> Any:
    if one.dtype != np.float64:
        return one != other
    signs = np.signbit(one) != np.signbit(other)
    same = (one == other) & ~signs | np.isnan(one) & np.isnan(other)
    return ~same


def _distance(one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]") -> str | None:
    """Return the largest distance between two elements, in words; None if there is none."""
    mine, its = _wide(one), _wide(other)
    if mine.dtype.kind in "ui":  # the difference of two numbers of 64 bits, without overflow
        wrapped = np.where(mine > its, mine - its, its - mine)
        return str(wrapped.astype(np.uint64).max())
    if mine.dtype.kind not in "fc":
        return None
    with np.errstate(all="ignore"):
        apart = np.abs(mine - its)
    known = apart[~np.isnan(apart)]
    return f"{known.max():.6g}" if known.size else None


def _say_both(one: Any, other: Any) -> tuple[str, str]:
    """Return two numbers as text, so that they differ."""
    texts = str(one), str(other)
    if texts[0] != texts[1]:
        return texts
    return repr(one.item()), repr(other.item())


def static_reason(
    path: str, mine: Any, its: Any, *, equal: bool | None, by: By | None = None
) -> Iterator[Reason]:
    """Yield the reason that two static values of one place give, if any.

    Args:
        path: Where they stand.
        mine: The value of the earlier call.
        its: The value of the later call.
        equal: Whether JAX takes them for equal; None if comparing them raises.
        by: How functions are compared, if they stand in a field of leafwise.

    Yields:
        At most one reason; with the outcome "reuse" where they share a program though they
        can be told apart.
    """
    if equal is None:
        kind, fix = ReasonKind.COMPARISON, fixes.comparison(its)
        yield Reason(path, kind, Outcome.ERROR, mine, its, fix)
    elif not equal:
        fix = fixes.static(mine, its, by)
        if by == "content":  # from outside, functions that differ inside look alike
            _, mine, its = fixes.first_difference(mine, its, by=by)
        yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, mine, its, fix)
    elif by is None and is_distinct(mine, its):
        fix = fixes.unsound(mine, its)
        yield Reason(path, ReasonKind.STATIC, Outcome.REUSE, mine, its, fix)
