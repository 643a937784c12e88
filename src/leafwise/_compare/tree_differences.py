"""The differences between two signatures, and what JAX makes of each."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

from leafwise._compare import fixes
from leafwise._compare.call_differences import call_reasons
from leafwise._compare.leaf_differences import leaf_reasons, static_reason
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim
from leafwise._trees.equality import is_distinct, is_redefinition, jax_equal, same_entry
from leafwise._trees.leaves import Leaf, LeafKind
from leafwise._trees.nodes import Node

Place = Node | int
"""A node, or the place of a leaf among all leaves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Differences:
    """What differs between two calls.

    Attributes:
        outcome: What JAX does for the second call after the first.
        reasons: The differences that JAX acts upon, ranked.
        unsound: Those that it does not see, though the statics are not the same value.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...]
    unsound: tuple[Reason, ...]


def differences(before: Signature, after: Signature, *, placed: bool = False) -> Differences:
    """Compare the record of an earlier call with that of a later one.

    Args:
        before: The earlier call.
        after: The later call.
        placed: Whether the function says itself on which device its arguments lie: JAX then
            moves them, and does not compile for where they were.
    """
    found = list(call_reasons(before, after))
    config_differs = any(reason.kind is ReasonKind.CONFIG for reason in found)
    trees = Trees(before, after, config_differs=config_differs)
    found += trees.compare()
    found = _settled(found, after.root.names, raises=trees.equal is None)
    found += _undecided(before, after)
    if after.labels:
        found = [each._replace(path=after.show(each.path)) for each in found]
    if placed:
        found = [each for each in map(_where_placed, found) if each is not None]
    acted = [each for each in found if each.outcome is not Outcome.REUSE]
    unsound = tuple(each for each in found if each.outcome is Outcome.REUSE)
    severity = max((each.outcome.severity for each in acted), default=0)
    outcome = tuple(Outcome)[severity]
    return Differences(outcome, tuple(sorted(acted, key=lambda each: each.rank)), unsound)


def _where_placed(reason: Reason) -> Reason | None:
    """Return what is left of a reason where the function places its arguments itself."""
    if reason.kind is ReasonKind.DEVICES:
        return None
    if reason.outcome is Outcome.RECOMPILE and reason.kind is not ReasonKind.LEAF_KIND:
        return reason._replace(outcome=Outcome.DISPATCH)
    return reason


def _undecided(before: Signature, after: Signature) -> Iterator[Reason]:
    """Yield why JAX's answer hangs on more than what was recorded."""
    off = [bool(dict(each.config).get("jax_disable_jit")) for each in (before, after)]
    if any(off):
        path, fix = "config.jax_disable_jit", fixes.JIT_IS_OFF
        yield Reason(path, ReasonKind.CONFIG, Outcome.UNKNOWN, off[0], off[1], fix)
    if _UNDECIDED.isdisjoint(leaf.kind for leaf in (*before.leaf_records, *after.leaf_records)):
        return
    kind, unknown = ReasonKind.INVALID, Outcome.UNKNOWN
    for path, leaf in zip(before.leaf_paths, before.leaf_records, strict=True):
        if leaf.kind in _UNDECIDED:
            yield Reason(path, kind, unknown, Verbatim(leaf), MISSING, fixes.NOT_CALLED)
    for path, leaf in zip(after.leaf_paths, after.leaf_records, strict=True):
        if leaf.kind is LeafKind.OTHER:
            yield Reason(path, kind, unknown, MISSING, Verbatim(leaf), fixes.OTHER)


_UNDECIDED: Final = {LeafKind.OTHER, LeafKind.INVALID, LeafKind.SHAPE_DTYPE_STRUCT}

_HASHED: Final = frozenset(
    {
        ReasonKind.ARGUMENTS,
        ReasonKind.CLASS,
        ReasonKind.STRUCTURE,
        ReasonKind.SHAPE,
        ReasonKind.DTYPE,
        ReasonKind.WEAK_TYPE,
        ReasonKind.CONFIG,
    }
)
"""What reaches the hash of JAX's keys, so that no static is compared where it differs."""


def _settled(found: list[Reason], arguments: tuple[str, ...], *, raises: bool) -> list[Reason]:
    """Decide whether JAX gets as far as a comparison that raises.

    Args:
        found: The reasons.
        arguments: The paths of static arguments, which are hashed; static fields are not.
        raises: Whether comparing the structures raises.
    """
    hashed = any(
        reason.kind in _HASHED
        or (reason.kind is ReasonKind.STATIC and reason.path in arguments)
        or (reason.kind is ReasonKind.SHARDING and reason.outcome is Outcome.RETRACE)
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


class Trees:
    """The dynamic arguments of two calls, under comparison.

    Attributes:
        equal: Whether their structures are equal to JAX; None if comparing them raises.
    """

    def __init__(
        self, before: Signature, after: Signature, *, config_differs: bool = False
    ) -> None:
        self.before = before
        self.after = after
        self.config_differs = config_differs
        self._pairs: dict[tuple[int, int], tuple[Reason, ...]] = {}
        # Their hash tells classes apart that `==` does not: those of registered dataclasses.
        self.equal = same_entry(before.treedef, after.treedef)

    def compare(self) -> Iterator[Reason]:
        """Yield all differences."""
        before, after = self.before, self.after
        mine, its = before.root, after.root
        if self.equal is True and mine.steps == its.steps:
            yield from self._same_structure("", mine, its)
            return
        for step, places, trees in _common(mine, its, (before.treedef, after.treedef)):
            yield from self._place(step, *places, trees)

    def _place(self, path: str, mine: Place, its: Place, trees: "_Pair") -> Iterable[Reason]:
        """Compare what stands at one place of both trees."""
        if isinstance(mine, int) and isinstance(its, int):
            return self.leaf(path, mine, its)
        return self._subtree(path, mine, its, trees)

    def _subtree(self, path: str, mine: Place, its: Place, trees: "_Pair") -> Iterator[Reason]:
        """Compare two trees, or a tree with a leaf."""
        if not (isinstance(mine, Node) and isinstance(its, Node)):
            yield from self.other(path, mine, its)
            return
        if same_entry(*trees) is True:
            yield from self._same_structure(path, mine, its)
            return
        found = list(self._node(path, mine, its))
        if mine.cls is its.cls or mine.steps == its.steps:
            for step, places, below in _common(mine, its, trees):
                found += self._place(path + step, *places, below)
        if self.unexplained(mine, its, found):
            fix = fixes.AUX_DATA
            yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, mine.aux, its.aux, fix)
        yield from found

    def unexplained(self, mine: Node, its: Node, found: list[Reason]) -> bool:  # noqa: ARG002
        """Whether nothing that was found makes two nodes different to JAX, which they are."""
        return all(each.outcome is Outcome.REUSE for each in found)

    def _node(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare two nodes, without what is below them."""
        if mine.cls is its.cls:
            yield from _steps(path, mine, its)
            yield from _statics(path, mine, its)
            yield from _data(path, mine, its)
        elif is_redefinition(mine.cls, its.cls):
            words, fix = (mine.cls, its.cls), fixes.REDEFINED
            yield Reason(path, ReasonKind.CLASS, Outcome.RETRACE, *words, fix)
        else:
            yield from self.other(path, mine, its)

    def other(self, path: str, mine: Place, its: Place) -> Iterator[Reason]:
        """Name two things of different kinds at one place."""
        words = Verbatim(_in_words(self.before, mine)), Verbatim(_in_words(self.after, its))
        fix = fixes.structure(*words)
        yield Reason(path, ReasonKind.STRUCTURE, Outcome.RETRACE, *words, fix)

    def _same_structure(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare trees that are equal to JAX: their leaves, and what JAX does not see."""
        yield from self.leaves(mine, its)
        todo = [(path, mine, its)]
        while todo:
            where, a, b = todo.pop()
            yield from self.unseen(where, a, b)
            for step, left, right in zip(b.steps, a.children, b.children, strict=True):
                if isinstance(left, Node) and isinstance(right, Node):
                    todo.append((where + step, left, right))

    def unseen(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Yield statics that JAX takes for equal though they are not."""
        if path and mine.aux is not its.aux and not its.is_keyed and mine.names == its.names:
            for name, one, other in zip(its.names, mine.values, its.values, strict=True):
                yield from static_reason(path + name, one, other, equal=True)

    def leaves(self, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare the leaves of trees that are equal to JAX."""
        before = self.before.leaf_records[mine.start : mine.stop]
        after = self.after.leaf_records[its.start : its.stop]
        known = self._pairs  # most pairs of leaves are pairs of records that were met before
        for place, (one, other) in enumerate(zip(before, after, strict=True), its.start):
            found = known.get((id(one), id(other)))
            if found is None:
                yield from self._leaf(self.after.leaf_paths[place], one, other)
            elif found:
                where = self.after.leaf_paths[place]
                yield from [Reason(where, *reason[1:]) for reason in found]

    def leaf(self, path: str, mine: int, its: int) -> Iterable[Reason]:
        """Compare two leaves, given by their places."""
        return self._leaf(path, self.before.leaf_records[mine], self.after.leaf_records[its])

    def _leaf_reasons(self, one: Leaf, other: Leaf) -> tuple[Reason, ...]:
        """Return the reasons of two traced leaves, without their path."""
        pair = id(one), id(other)
        found = self._pairs.get(pair)
        if found is None:
            reasons = leaf_reasons("", one, other, config_differs=self.config_differs)
            invalid = LeafKind.INVALID in (one.kind, other.kind)
            found = self._pairs[pair] = () if invalid or one == other else tuple(reasons)
        return found

    def _leaf(self, path: str, one: Leaf, other: Leaf) -> Iterable[Reason]:
        """Compare two leaves."""
        if LeafKind.STATIC in (one.kind, other.kind):
            return self._static_leaf(path, one, other)
        return [Reason(path, *reason[1:]) for reason in self._leaf_reasons(one, other)]

    def _static_leaf(self, path: str, one: Leaf, other: Leaf) -> Iterator[Reason]:
        """Compare leaves of which one is static under `equinox.filter_jit`, or both."""
        if one.kind is other.kind:
            equal = same_entry(one.value, other.value)
            yield from static_reason(path, one.value, other.value, equal=equal)
        elif LeafKind.INVALID not in (one.kind, other.kind):
            words, fix = (Verbatim(one), Verbatim(other)), fixes.FILTERED
            yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, *words, fix)


_Pair = tuple[Any, Any]


def _common(
    mine: Node, its: Node, trees: _Pair
) -> Iterator[tuple[str, tuple[Place, Place], _Pair]]:
    """Yield step, places and structures of the children that both nodes have."""
    before, after = trees[0].children(), trees[1].children()
    later = {step: place for place, step in enumerate(its.steps)}
    for place, step in enumerate(mine.steps):
        other = later.get(step)
        if other is not None and not mine.is_hash_node(place):
            places = mine.children[place], its.children[other]
            yield step, places, (before[place], after[other])


def _in_words(call: Signature, place: Place) -> str:
    """Return what stands at a place."""
    if isinstance(place, int):
        return str(call.leaf_records[place])
    return "None" if place.cls is type(None) else place.cls.__qualname__


def _steps(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Name the children that only one of two nodes of one class has."""
    kind, retrace = ReasonKind.STRUCTURE, Outcome.RETRACE
    if mine.steps == its.steps:
        return
    old, new = set(mine.steps), set(its.steps)
    if old == new:  # an OrderedDict
        orders = Verbatim(", ".join(mine.steps)), Verbatim(", ".join(its.steps))
        yield Reason(path, kind, retrace, *orders, fixes.ORDER)
    elif issubclass(mine.cls, list | tuple):
        lengths = Verbatim(f"{len(mine.steps)} elements"), Verbatim(f"{len(its.steps)} elements")
        yield Reason(path, kind, retrace, *lengths, fixes.LENGTH)
    else:
        fix = fixes.missing(mine.cls)
        for step in mine.steps:
            if step not in new:
                yield Reason(path + step, kind, retrace, Verbatim("there"), MISSING, fix)
        for step in its.steps:
            if step not in old:
                yield Reason(path + step, kind, retrace, MISSING, Verbatim("there"), fix)


def _statics(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Compare the statics of two nodes of one class."""
    earlier = dict(zip(mine.names, mine.values, strict=True))
    for name, value in zip(its.names, its.values, strict=True):
        old = earlier.pop(name, MISSING)
        by = its.compared_by(name)
        if by is not None:  # a key of ours compares types and values
            equal: bool | None = mine.aux is its.aux or is_distinct(old, value, by) is False
        else:
            equal = jax_equal(old, value)
        yield from static_reason(path + name, old, value, equal=equal, by=by)
    for name, old in earlier.items():
        yield from static_reason(path + name, old, MISSING, equal=False)


def _data(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Compare what the data of two nodes says by name; what is private only if all else agrees."""
    if not (mine.data and its.data) or jax_equal(mine.aux, its.aux):
        return
    found: list[Reason] = []
    for name in {**mine.data, **its.data}:
        one, other = mine.data.get(name, MISSING), its.data.get(name, MISSING)
        found += static_reason(path + name, one, other, equal=jax_equal(one, other))
    acted = [each for each in found if each.outcome is not Outcome.REUSE]
    named = [each for each in acted if not each.path.removeprefix(path).startswith("._")]
    yield from named or acted
