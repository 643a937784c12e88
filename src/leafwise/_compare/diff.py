"""The differences between two trees, by path."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.tree_differences import (
    RecordedTree,
    TreeComparison,
    aval_reasons,
    static_reasons,
)
from leafwise._findings.reasons import Advice, Outcome, Reason, ReasonKind
from leafwise._findings.words import count
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import got
from leafwise._trees.equality import StaticPair, is_distinct, jax_equal
from leafwise._trees.leaves import Leaf, LeafKind, LeafRecorder
from leafwise._trees.nodes import Node, TreeWalk
from leafwise.errors import StructureMismatchError, TreeError

_Array: TypeAlias = np.ndarray[Any, Any]

_Tolerance: TypeAlias = tuple[float, float]
"""The relative and the absolute tolerance, as in `numpy.isclose`."""


class Diff(tuple[Reason, ...]):
    """The differences between two trees: a tuple that is empty if they do not differ.

    Each is a `leafwise.types.Reason`: ``before`` is the value in the first tree, ``after`` that
    in the second, and ``outcome`` what JAX does if a jitted function is called with the first
    tree and then with the second. Printed, it has a line for each difference.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no differences"

    __repr__ = __str__


def diff(a: Any, b: Any, *, values: bool = False, rtol: float = 0.0, atol: float = 0.0) -> Diff:
    """Return all differences between two trees, by path.

    It takes any pytrees: leafwise classes, classes of other libraries, containers. Leaves may be
    JAX and NumPy arrays, Python scalars, ShapeDtypeStructs and tracers. Statics are compared
    by type and value, all the way down: 1 and True differ, and so do 1.0 and np.float64(1.0).

    Args:
        a: A tree.
        b: Another tree.
        values: Whether to compare the data of the leaves as well: NaN equals NaN, and 0.0
            differs from -0.0.
        rtol: The relative tolerance for two elements, as in `numpy.isclose`.
        atol: The absolute tolerance for two elements, as in `numpy.isclose`.

    Returns:
        The differences in class, structure, statics, shape, dtype and weak type and, with
        `values`, in values. If two nodes have different children, only the children that both
        have are compared. It is a tuple, empty if the trees do not differ.

    Raises:
        TreeError: The values of tracers would have to be compared.
        ValueError: A tolerance is passed without ``values=True``, or is negative.

    Examples:
        >>> diff({"w": jnp.ones(3), "n": None}, {"w": jnp.ones(4), "n": 1.0})
        ['n'] (structure): None -> float32[] (Python scalar, weakly typed)
        ['w']: shape (3,) -> (4,)
    """
    tolerance = rtol, atol
    if any(number != 0 and not values for number in tolerance) or not min(tolerance) >= 0:
        raise ValueError(
            f"lw.diff: tolerances must not be negative, and need values=True, got rtol={rtol!r}, "
            f"atol={atol!r}\n  fix: lw.diff(a, b, values=True, rtol=1e-6)"
        )
    root = "tree"  # left out of the paths of a Diff
    reasons = compare(root, a, b, tolerance=tolerance if values else None)
    return Diff(
        reason._replace(path=reason.path.removeprefix(root).removeprefix(".")) for reason in reasons
    )


def assert_same_structure(
    a: Any, b: Any, *, shapes: bool = False, dtypes: bool = False, weak_types: bool = False
) -> None:
    """Assert that two trees have the same classes, statics and structure.

    Statics are compared by type and value, as `leafwise.diff` does.

    Args:
        a: A tree.
        b: Another tree.
        shapes: Whether their leaves must also have the same shapes.
        dtypes: Whether their leaves must also have the same dtypes.
        weak_types: Whether their leaves must also have the same weak types.

    Raises:
        StructureMismatchError: They differ. An `AssertionError` that names all paths.

    Examples:
        >>> assert_same_structure(params, grads, shapes=True)  # doctest: +SKIP
    """
    asked = {ReasonKind.SHAPE: shapes, ReasonKind.DTYPE: dtypes, ReasonKind.WEAK_TYPE: weak_types}
    asked[ReasonKind.LEAF_KIND] = dtypes
    found = Diff(each for each in diff(a, b) if asked.get(each.kind, True))
    if found:
        lines = "".join(f"\n  {each}" for each in found)
        kinds = " and ".join(dict.fromkeys(type(each).__qualname__ for each in (a, b)))
        message = (
            f"{kinds}: the trees differ in {count(len(found), 'place')} (first -> second){lines}\n"
            f"  fix: make the second like the first, as lw.replace(first, ...) does"
        )
        raise StructureMismatchError(message, found)


def compare(label: str, a: Any, b: Any, *, tolerance: _Tolerance | None = None) -> list[Reason]:
    """Return all differences between two trees, with paths that begin with `label`."""
    comparison = _ExactComparison(_recorded(label, a), _recorded(label, b), tolerance)
    # The causes word fixes for retraces. Keep one only if the values alone look the same.
    return [
        each if len(set(each.words)) == 1 else each._replace(cause=Advice())
        for each in comparison.reasons()
    ]


class _VerbatimLeaf(Leaf):
    """A leaf that is printed as its value."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self.value)


def _recorded(label: str, tree: Any) -> RecordedTree:
    """Return the record of one tree, with the values of all leaves in ``numbers``."""
    to_leaf = LeafRecorder()
    walk = TreeWalk(lambda value: (_leaf_of(to_leaf(value), value), value))
    child = walk.node_or_leaf(tree)
    pairs: list[tuple[Leaf, Any]] = walk.leaves
    root = Node(tuple, None, ((), ()), [label], [child], 0, len(pairs))
    leaves, values = tuple(leaf for leaf, _ in pairs), dict(enumerate(value for _, value in pairs))
    return RecordedTree(jax.tree.structure([tree]), root, leaves, values)


def _leaf_of(leaf: Leaf, value: Any) -> Leaf:
    """Return the record of a leaf, with its own text if it is not an ordinary one to JAX."""
    if leaf.aval is None:
        return _VerbatimLeaf(leaf.kind, None, type(value), value=got(value))
    if leaf.kind is LeafKind.SHAPE_DTYPE_STRUCT:
        text = f"{leaf.aval.str_short()}{' (weakly typed)' if leaf.weak_type else ''}"
        return _VerbatimLeaf(leaf.kind, leaf.aval, leaf.stored, value=text)
    return leaf


class _ExactComparison(TreeComparison):
    """A comparison that takes types into account even where JAX does not."""

    def __init__(self, a: RecordedTree, b: RecordedTree, tolerance: _Tolerance | None) -> None:
        super().__init__(a, b)
        self._tolerance = tolerance

    def unnamed_reasons(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        is_named = mine.is_keyed or mine.names or its.names
        if mine.aux is its.aux or is_named or not jax_equal(mine.aux, its.aux):
            return
        if not mine.data.keys() == its.data.keys() != set():
            yield from static_reasons(path, StaticPair(mine.aux, its.aux, "equal"))
        for name in mine.data.keys() & its.data.keys():
            pair = StaticPair(mine.data[name], its.data[name], "equal")
            yield from static_reasons(path + name, pair)

    def mismatch(self, path: str, mine: Node | Leaf, its: Node | Leaf) -> Reason:
        classes = _class_of_node(mine), _class_of_node(its)
        if None in classes:
            return super().mismatch(path, mine, its)
        return Reason(path, ReasonKind.CLASS, Outcome.RETRACE, *classes)

    def leaf_reasons(self, mine: int, its: int) -> list[Reason]:
        path = self.after.leaf_paths[its]
        one, other = self.before.leaf_records[mine], self.after.leaf_records[its]
        found = list(_type_reasons(path, one, other))
        unlike = {ReasonKind.SHAPE, ReasonKind.DTYPE, ReasonKind.LEAF_KIND}
        if self._tolerance is not None and unlike.isdisjoint(each.kind for each in found):
            values = self.before.numbers[mine], self.after.numbers[its]
            found += _value_reasons(path, (one, values[0]), (other, values[1]), self._tolerance)
        return found


def _class_of_node(child: Node | Leaf) -> Any:
    return child.cls if isinstance(child, Node) and child.cls is not type(None) else None


def _type_reasons(path: str, one: Leaf, other: Leaf) -> Iterator[Reason]:
    """Yield the differences between two leaves that do not depend on their data."""
    if one.aval is None or other.aval is None:
        if one.aval is not other.aval or one.stored is not other.stored:
            yield Reason(path, ReasonKind.LEAF_KIND, Outcome.ERROR, Verbatim(one), Verbatim(other))
        return
    avals = aval_reasons(path, one, other)
    yield from (each for each in avals if each.kind is not ReasonKind.SHARDING)
    stored = one.stored, other.stored  # 64 bits in NumPy may be 32 in JAX
    known = not any(each is None or isinstance(each, type) for each in stored)
    if known and one.dtype == other.dtype and stored[0] != stored[1]:
        dtypes = Verbatim(stored[0]), Verbatim(stored[1])
        yield Reason(path, ReasonKind.DTYPE, Outcome.REUSE, *dtypes)


def _value_reasons(
    path: str, mine: tuple[Leaf, Any], its: tuple[Leaf, Any], tolerance: _Tolerance
) -> Iterator[Reason]:
    """Yield the reason for a difference in the data of two leaves with equal shape and dtype."""
    one, other = mine[1], its[1]
    if one is other:
        return
    texts = str(mine[0]), str(its[0])
    if mine[0].aval is None or its[0].aval is None:  # not data to JAX: strings, functions
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):  # of strings or objects
            one, other = ((array.dtype.str, array.tolist()) for array in (one, other))
        differ = is_distinct(one, other)
        if jax_equal(one, other) is not True if differ is None else differ:
            yield _value_reason(path, *texts)
        return
    plain = mine[0].stored == its[0].stored  # else one is a Python scalar, the other an array
    one, other = (_data_of(path, leaf, value, plain=plain) for leaf, value in (mine, its))
    if one is not None and other is not None:
        yield from _element_reasons(path, one, other, tolerance)
    elif one is not None or other is not None:
        yield _value_reason(path, *texts)


def _value_reason(path: str, before: str, after: str) -> Reason:
    after = f"{after}, which is not equal" if before == after else after
    return Reason(path, ReasonKind.VALUE, Outcome.REUSE, Verbatim(before), Verbatim(after))


def _data_of(path: str, leaf: Leaf, value: Any, *, plain: bool) -> _Array | None:
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
    path: str, one: _Array, other: _Array, tolerance: _Tolerance
) -> Iterator[Reason]:
    mask = _unequal(one, other, tolerance)
    if not mask.any():
        return
    at = tuple(int(index) for index in np.argwhere(mask)[0])
    before, after = str(one[at]), str(other[at])
    if before == after:  # the dtype prints too few digits
        before, after = repr(one[at].item()), repr(other[at].item())
    if mask.ndim:
        most = _largest_distance(one[mask], other[mask])
        by = f", by {most} at most" if most else ""
        before += f" at [{', '.join(map(str, at))}]"
        after += f" ({mask.sum()} of {mask.size} elements differ{by})"
    yield _value_reason(path, before, after)


def _unequal(one: _Array, other: _Array, tolerance: _Tolerance) -> _Array:
    """Return a mask of the elements that differ: 0.0 and -0.0 do, NaN and NaN do not."""
    mask: Any = _bits_of(one) != _bits_of(other)
    if mask.any() and jnp.issubdtype(one.dtype, jnp.inexact):
        mask &= ~(np.isnan(one) & np.isnan(other))
    if any(tolerance) and one.dtype != np.bool_:
        mask &= ~np.isclose(_widened(one), _widened(other), *tolerance, equal_nan=True)
    return np.asarray(mask)


def _bits_of(array: _Array) -> _Array:
    """Return a view of the raw bits, which takes no memory if the array is contiguous."""
    return np.ascontiguousarray(array).view(f"V{array.itemsize}").reshape(array.shape)


def _widened(array: _Array) -> _Array:
    """Return an array of floats in a native NumPy dtype that holds all its values."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _largest_distance(one: _Array, other: _Array) -> str:
    """Return the largest distance between two elements as text, or an empty string if undefined."""
    if jnp.issubdtype(one.dtype, jnp.integer):
        return str(np.abs(one.astype(object) - other.astype(object)).max())
    if not jnp.issubdtype(one.dtype, jnp.inexact):
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(_widened(one) - _widened(other))
    known = apart[~np.isnan(apart)]
    return f"{known.max():.6g}" if known.size else ""
