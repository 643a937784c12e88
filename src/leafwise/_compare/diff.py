"""The differences between two trees, by path."""

from collections.abc import Iterator
from typing import Any

import jax

from leafwise._compare.leaf_differences import (
    Tolerance,
    aval_reasons,
    static_reasons,
    value_reasons,
)
from leafwise._compare.signature import Signature
from leafwise._compare.tree_differences import TreeComparison
from leafwise._display.reasons import Advice, Outcome, Reason, ReasonKind
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import got
from leafwise._trees.equality import StaticPair, jax_equal
from leafwise._trees.leaves import LEAF_TYPES, Leaf, LeafKind, LeafRecorder
from leafwise._trees.nodes import Node, TreeWalk
from leafwise.errors import StructureMismatchError


class Diff(tuple[Reason, ...]):
    """The differences between two trees: a tuple that is empty if there are none.

    Each is a `leafwise.types.Reason`: its ``before`` is the first tree's, its ``after`` the
    second's, and its ``outcome`` what JAX makes of it if a jitted function gets the one after
    the other. Printed, it has a line for each.
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return a line for each difference."""
        return "\n".join(map(str, self)) or "no differences"

    __repr__ = __str__


def diff(a: Any, b: Any, *, values: bool = False, rtol: float = 0.0, atol: float = 0.0) -> Diff:
    """Return all differences between two trees, by path.

    Takes any pytrees: leafwise classes, classes of other libraries, containers. Leaves may be
    arrays of JAX and NumPy, Python scalars, ShapeDtypeStructs and tracers. Statics are compared
    by type and value, all the way down: 1 and True differ, and so do 1.0 and np.float64(1.0).

    Args:
        a: A tree.
        b: Another.
        values: Whether the data of the leaves is compared as well: NaN is equal to NaN, and 0.0
            differs from -0.0.
        rtol: How far apart two elements may be, relative to that of `b`.
        atol: How far apart they may be besides, as for `numpy.isclose`.

    Returns:
        The differences: class, structure, static, shape, dtype and weak type, and by request
        value. Of nodes with other children only those below are compared that both have. It
        is a tuple, empty if there are none.

    Raises:
        TreeError: The values of tracers are asked for.
        ValueError: A tolerance is given without ``values=True``, or is negative.

    Examples:
        >>> diff({"w": jnp.ones(3), "n": None}, {"w": jnp.ones(4), "n": 1.0})
        ['n'] (structure): None -> float32[] (Python scalar, weakly typed)
        ['w']: shape (3,) -> (4,)
    """
    tolerance = rtol, atol
    if any(number != 0 and not values for number in tolerance) or not min(tolerance) >= 0:
        raise ValueError(
            f"lw.diff compares numbers within rtol={rtol!r}, atol={atol!r} if both are 0 or more "
            f"and values are compared\n  fix: lw.diff(a, b, values=True, rtol=1e-6)"
        )
    root = "tree"  # which the paths of a Diff leave out
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
        b: Another.
        shapes: Whether their leaves must have the same shapes, too.
        dtypes: Whether they must have the same dtypes.
        weak_types: Whether they must have the same weak types.

    Raises:
        StructureMismatchError: They do not. An `AssertionError`; it names all paths.

    Examples:
        >>> assert_same_structure(params, grads, shapes=True)  # doctest: +SKIP
    """
    asked = {ReasonKind.SHAPE: shapes, ReasonKind.DTYPE: dtypes, ReasonKind.WEAK_TYPE: weak_types}
    asked[ReasonKind.LEAF_KIND] = dtypes
    found = Diff(each for each in diff(a, b) if asked.get(each.kind, True))
    if found:
        lines = "".join(f"\n  {each}" for each in found)
        kinds = " and ".join(dict.fromkeys(type(each).__qualname__ for each in (a, b)))
        raise StructureMismatchError(
            (
                f"{kinds}: the trees differ in {len(found)} "
                f"place{'s' if len(found) > 1 else ''} (first -> second){lines}\n  fix: make the "
                f"second like the first, as lw.replace(first, ...) does"
            ),
            found,
        )


def compare(label: str, a: Any, b: Any, *, tolerance: Tolerance | None = None) -> list[Reason]:
    """Return all differences between two trees, which paths call `label`."""
    comparison = _ExactComparison(_recorded(label, a), _recorded(label, b), tolerance)
    # The fixes are those for retraces: only one that alone says what differs stays.
    return [
        each if len(set(each.words)) == 1 else each._replace(cause=Advice())
        for each in comparison.reasons()
    ]


class _VerbatimLeaf(Leaf):
    """A leaf whose value is its text."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self.value)


def _recorded(label: str, tree: Any) -> Signature:
    """Return the signature of one tree, with the values of all its leaves as its numbers."""
    to_leaf = LeafRecorder()
    walk = TreeWalk(lambda value: (_leaf_of(to_leaf(value), value), value), LEAF_TYPES)
    child = walk.node_or_leaf(tree)
    pairs: list[tuple[Leaf, Any]] = walk.leaves
    root = Node(tuple, None, ((), ()), [label], [child], 0, len(pairs))
    leaves, values = tuple(leaf for leaf, _ in pairs), dict(enumerate(value for _, value in pairs))
    return Signature(jax.tree.structure([tree]), (), root, leaves, {}, values)


def _leaf_of(leaf: Leaf, value: Any) -> Leaf:
    """Return the record of a leaf, with its text where that is not JAX's."""
    if leaf.aval is None:
        return _VerbatimLeaf(leaf.kind, None, type(value), value=got(value))
    if leaf.kind is LeafKind.SHAPE_DTYPE_STRUCT:
        text = f"{leaf.aval.str_short()}{' (weakly typed)' if leaf.weak_type else ''}"
        return _VerbatimLeaf(leaf.kind, leaf.aval, leaf.stored, value=text)
    return leaf


class _ExactComparison(TreeComparison):
    """A comparison in which types count, also where JAX does not look at them."""

    def __init__(self, a: Signature, b: Signature, tolerance: Tolerance | None) -> None:
        super().__init__(a, b, config_differs=False)
        self._tolerance = tolerance

    def unnamed_reasons(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare aux_data that JAX takes for equal, of nodes whose statics have no names."""
        is_named = mine.is_keyed or mine.names or its.names
        if mine.aux is its.aux or is_named or not jax_equal(mine.aux, its.aux):
            return
        if not mine.data.keys() == its.data.keys() != set():
            yield from static_reasons(path, StaticPair(mine.aux, its.aux, "equal"))
        for name in mine.data.keys() & its.data.keys():
            pair = StaticPair(mine.data[name], its.data[name], "equal")
            yield from static_reasons(path + name, pair)

    def mismatch(self, path: str, mine: Node | Leaf, its: Node | Leaf) -> Reason:
        """Name another class, or another structure."""
        classes = _class_of_node(mine), _class_of_node(its)
        if None in classes:
            return super().mismatch(path, mine, its)
        return Reason(path, ReasonKind.CLASS, Outcome.RETRACE, *classes)

    def leaf_reasons(self, mine: int, its: int) -> list[Reason]:
        """Compare two leaves."""
        path = self.after.leaf_paths[its]
        one, other = self.before.leaf_records[mine], self.after.leaf_records[its]
        found = list(_type_reasons(path, one, other))
        unlike = {ReasonKind.SHAPE, ReasonKind.DTYPE, ReasonKind.LEAF_KIND}
        if self._tolerance is not None and unlike.isdisjoint(each.kind for each in found):
            values = self.before.numbers[mine], self.after.numbers[its]
            found += value_reasons(path, (one, values[0]), (other, values[1]), self._tolerance)
        return found


def _class_of_node(child: Node | Leaf) -> Any:
    """Return the class of a node; None for a leaf, and for None itself."""
    return child.cls if isinstance(child, Node) and child.cls is not type(None) else None


def _type_reasons(path: str, one: Leaf, other: Leaf) -> Iterator[Reason]:
    """Yield the differences between two leaves that do not depend on their data."""
    if one.aval is None or other.aval is None:
        if one.aval is not other.aval or one.stored is not other.stored:
            yield Reason(path, ReasonKind.LEAF_KIND, Outcome.ERROR, Verbatim(one), Verbatim(other))
        return
    avals = aval_reasons(path, one, other)
    yield from (each for each in avals if each.kind is not ReasonKind.SHARDING)
    stored = one.stored, other.stored  # 64 bits in NumPy may be 32 to JAX
    known = not any(each is None or isinstance(each, type) for each in stored)
    if known and one.dtype == other.dtype and stored[0] != stored[1]:
        dtypes = Verbatim(stored[0]), Verbatim(stored[1])
        yield Reason(path, ReasonKind.DTYPE, Outcome.REUSE, *dtypes)
