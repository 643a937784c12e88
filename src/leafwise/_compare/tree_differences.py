"""The differences between two signatures, and what JAX makes of each."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from leafwise._compare.call_differences import call_reasons
from leafwise._compare.fixes import Cause, distinct_names
from leafwise._compare.leaf_differences import leaf_reasons, static_reasons
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature
from leafwise._display.words import count
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim
from leafwise._trees.equality import is_redefinition, jax_equal, same_entry
from leafwise._trees.leaves import Leaf, LeafKind
from leafwise._trees.nodes import Node

NodeOrIndex = Node | int
"""A node, or the index of a leaf among all leaves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Differences:
    """What differs between two calls.

    Attributes:
        outcome: What JAX does for the second call after the first.
        reasons: The differences that JAX acts upon, ranked.
        unsound: Statics that JAX takes for equal though they are distinct.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...]
    unsound: tuple[Reason, ...]


def differences(before: Signature, after: Signature, *, placed: bool = False) -> Differences:
    """Compare the record of an earlier call with that of a later one.

    Args:
        before: The earlier call.
        after: The later call.
        placed: Whether the function itself says on which device its arguments lie: JAX then
            moves them, and does not compile for where they were.
    """
    found = list(call_reasons(before, after))
    config_differs = any(reason.kind is ReasonKind.CONFIG for reason in found)
    trees = TreeComparison(before, after, config_differs=config_differs)
    found += trees.reasons()
    found = _with_reached_comparisons(found, after.root.names, raises=trees.equal is None)
    found += _undecided(before, after)
    if after.labels:
        found = [each._replace(path=after.show(each.path)) for each in found]
    if placed:
        found = [
            each._replace(outcome=Outcome.DISPATCH)
            if each.outcome is Outcome.RECOMPILE and each.kind is not ReasonKind.LEAF_KIND
            else each
            for each in found
            if each.kind is not ReasonKind.DEVICES
        ]
    acted = [each for each in found if each.outcome is not Outcome.REUSE]
    unsound = tuple(each for each in found if each.outcome is Outcome.REUSE)
    severity = max((each.outcome.severity for each in acted), default=0)
    outcome = tuple(Outcome)[severity]
    return Differences(outcome, tuple(sorted(acted, key=lambda each: each.rank)), unsound)


def _undecided(before: Signature, after: Signature) -> Iterator[Reason]:
    """Yield why JAX's answer depends on more than what was recorded."""
    off = [bool(each.options.get("jax_disable_jit")) for each in (before, after)]
    if any(off):
        path, cause = "config.jax_disable_jit", Cause.JIT_IS_OFF
        yield Reason(path, ReasonKind.CONFIG, Outcome.UNKNOWN, off[0], off[1], cause)
    if _UNDECIDED.isdisjoint(leaf.kind for leaf in (*before.leaf_records, *after.leaf_records)):
        return
    kind, unknown = ReasonKind.INVALID, Outcome.UNKNOWN
    for path, leaf in zip(before.leaf_paths, before.leaf_records, strict=True):
        if leaf.kind in _UNDECIDED:
            yield Reason(path, kind, unknown, Verbatim(leaf), MISSING, Cause.NOT_CALLED)
    for path, leaf in zip(after.leaf_paths, after.leaf_records, strict=True):
        if leaf.kind is LeafKind.OTHER:
            yield Reason(path, kind, unknown, MISSING, Verbatim(leaf), Cause.OTHER_TYPE)


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
"""What is part of the hash of JAX's keys: where it differs, no static is compared."""


def _with_reached_comparisons(
    found: list[Reason], arguments: tuple[str, ...], *, raises: bool
) -> list[Reason]:
    """Return the reasons, with a retrace where JAX does not reach a comparison that raises.

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


class TreeComparison:
    """A comparison of the dynamic arguments of two calls.

    Attributes:
        equal: Whether their treedefs are equal; None if comparing them raises.
    """

    def __init__(
        self, before: Signature, after: Signature, *, config_differs: bool = False
    ) -> None:
        self.before = before
        self.after = after
        self.config_differs = config_differs
        self.known: dict[tuple[int, int], list[Reason]] = {}
        # Not by `==` alone: only the hash distinguishes classes of registered dataclasses.
        self.equal = same_entry(before.treedef, after.treedef)

    def reasons(self) -> Iterator[Reason]:
        """Yield all differences."""
        mine, its = self.before.root, self.after.root
        if self.equal is True and mine.steps == its.steps:
            yield from self._equal_tree_reasons("", mine, its)
            return
        treedefs = self.before.treedef, self.after.treedef
        for step, one, other, below in _common_children(mine, its, treedefs):
            yield from self._part_reasons(step, one, other, below)

    def _part_reasons(
        self, path: str, mine: NodeOrIndex, its: NodeOrIndex, treedefs: "_Pair"
    ) -> Iterator[Reason]:
        """Compare what stands at one path of both trees."""
        if isinstance(mine, int) and isinstance(its, int):
            yield from self.leaf_reasons(path, mine, its)
        elif not (isinstance(mine, Node) and isinstance(its, Node)):
            yield self.mismatch(path, mine, its)
        elif same_entry(*treedefs) is True:
            yield from self._equal_tree_reasons(path, mine, its)
        else:
            found = list(self._node_reasons(path, mine, its))
            if mine.cls is its.cls or mine.steps == its.steps:
                for step, one, other, below in _common_children(mine, its, treedefs):
                    found += self._part_reasons(path + step, one, other, below)
            # Treedefs that differ retrace, which nothing milder explains.
            if all(each.outcome.severity < Outcome.RETRACE.severity for each in found):
                aux, cause = (mine.aux, its.aux), Cause.AUX_DATA
                yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, *aux, cause)
            yield from found

    def _node_reasons(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare two nodes, without what is below them."""
        if mine.cls is its.cls:
            yield from _step_reasons(path, mine, its)
            yield from _static_reasons(path, mine, its)
            yield from _data_reasons(path, mine, its)
            yield from self.unnamed_reasons(path, mine, its)
        elif is_redefinition(mine.cls, its.cls):
            classes, cause = (mine.cls, its.cls), Cause.REDEFINED
            yield Reason(path, ReasonKind.CLASS, Outcome.RETRACE, *classes, cause)
        else:
            yield self.mismatch(path, mine, its)

    def mismatch(self, path: str, mine: NodeOrIndex, its: NodeOrIndex) -> Reason:
        """Name two things of different kinds at one path."""
        words = Verbatim(_format_kind(self.before, mine)), Verbatim(_format_kind(self.after, its))
        if words[0] == words[1] and isinstance(mine, Node) and isinstance(its, Node):
            one, other = distinct_names(mine.cls, its.cls)
            words = Verbatim(one), Verbatim(other)
        return Reason(path, ReasonKind.STRUCTURE, Outcome.RETRACE, *words, Cause.STRUCTURE)

    def unnamed_reasons(self, path: str, mine: Node, its: Node) -> Iterable[Reason]:  # noqa: ARG002, PLR6301
        """Compare aux_data that JAX takes for equal, of nodes whose statics have no names."""
        return ()

    def _equal_tree_reasons(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare trees that are equal to JAX: their leaves, and what JAX does not see."""
        before = self.before.leaf_records[mine.start : mine.stop]
        after = self.after.leaf_records[its.start : its.stop]
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            if self.known.get((id(one), id(other))) != []:  # most are pairs of known records
                at = its.start + place
                where = self.after.leaf_paths[at]
                yield from self.leaf_reasons(where, mine.start + place, at)
        todo = [(path, mine, its)]
        while todo:
            where, a, b = todo.pop()
            if where:
                yield from _unsound_reasons(where, a, b)
                yield from self.unnamed_reasons(where, a, b)
            for step, left, right in zip(b.steps, a.children, b.children, strict=True):
                if isinstance(left, Node) and isinstance(right, Node):
                    todo.append((where + step, left, right))

    def leaf_reasons(self, path: str, mine: int, its: int) -> Iterable[Reason]:
        """Compare two leaves, given by their places."""
        one, other = self.before.leaf_records[mine], self.after.leaf_records[its]
        if LeafKind.STATIC in (one.kind, other.kind):
            holder = _holder(self.after.root, its)
            return _static_leaf_reasons(path, one, other, holder)
        found = self.known.get((id(one), id(other)))
        if found is None:
            found = list(leaf_reasons("", one, other, config_differs=self.config_differs))
            self.known[id(one), id(other)] = found
        numbers = self.before.numbers.get(mine), self.after.numbers.get(its)
        # The fix is made of both leaves, and of the numbers that they are.
        details = [(*each.details, *numbers) if each.details else () for each in found]
        pairs = zip(found, details, strict=True)
        return [each._replace(path=path, details=facts) for each, facts in pairs]


_Pair = tuple[Any, Any]


def _static_leaf_reasons(path: str, one: Leaf, other: Leaf, holder: Node) -> Iterator[Reason]:
    """Compare leaves of which one is static under `equinox.filter_jit`, or both."""
    if one.kind is other.kind:
        for each in static_reasons(path, one.value, other.value, "entry"):
            facts = holder.cls, len(holder.children)
            details = (*each.details, *facts) if each.cause is Cause.STATIC else ()
            yield each._replace(details=details)
    elif LeafKind.INVALID not in (one.kind, other.kind):
        words, cause = (Verbatim(one), Verbatim(other)), Cause.FILTERED
        yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, *words, cause)


def _holder(node: Node, leaf: int) -> Node:
    """Return the node of which a leaf is a child, given by its place."""
    while leaf not in node.children:
        node = next(
            child
            for child in node.children
            if isinstance(child, Node) and child.start <= leaf < child.stop
        )
    return node


def _common_children(
    mine: Node, its: Node, treedefs: _Pair
) -> Iterator[tuple[str, NodeOrIndex, NodeOrIndex, _Pair]]:
    """Yield step, children and treedefs of the children that both nodes have."""
    before, after = treedefs[0].children(), treedefs[1].children()
    later = {step: place for place, step in enumerate(its.steps)}
    for place, step in enumerate(mine.steps):
        other = later.get(step)
        if other is not None and not mine.is_hash_node(place):
            below = before[place], after[other]
            yield step, mine.children[place], its.children[other], below


def _format_kind(call: Signature, child: NodeOrIndex) -> str:
    if isinstance(child, int):
        return str(call.leaf_records[child])
    return "None" if child.cls is type(None) else child.cls.__qualname__


def _step_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Name the children that only one of two nodes of one class has."""
    kind, retrace = ReasonKind.STRUCTURE, Outcome.RETRACE
    if mine.steps == its.steps:
        return
    old, new = set(mine.steps), set(its.steps)
    if old == new:  # an OrderedDict
        orders = Verbatim(", ".join(mine.steps)), Verbatim(", ".join(its.steps))
        yield Reason(path, kind, retrace, *orders, Cause.ORDER)
    elif issubclass(mine.cls, list | tuple):
        one, other = (Verbatim(count(len(each.steps), "element")) for each in (mine, its))
        yield Reason(path, kind, retrace, one, other, Cause.LENGTH)
    else:
        cause = Cause.KEYS if issubclass(mine.cls, Mapping) else Cause.CHILDREN
        for step in mine.steps:
            if step not in new:
                yield Reason(path + step, kind, retrace, Verbatim("there"), MISSING, cause)
        for step in its.steps:
            if step not in old:
                yield Reason(path + step, kind, retrace, MISSING, Verbatim("there"), cause)


def _static_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Compare the statics of two nodes of one class."""
    earlier = dict(zip(mine.names, mine.values, strict=True))
    later = dict(zip(its.names, its.values, strict=True))
    for name in {**later, **earlier}:
        values = earlier.get(name, MISSING), later.get(name, MISSING)
        how = its.compared_by(name) or "!="
        yield from static_reasons(path + name, *values, how, (mine.aux, its.aux))


def _data_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Compare the named parts of two nodes' aux_data; private ones only if all others agree."""
    if not (mine.data and its.data) or jax_equal(mine.aux, its.aux):
        return
    found: list[Reason] = []
    for name in {**mine.data, **its.data}:
        values = mine.data.get(name, MISSING), its.data.get(name, MISSING)
        found += static_reasons(path + name, *values, "!=")
    acted = [each for each in found if each.outcome is not Outcome.REUSE]
    named = [each for each in acted if not each.path.removeprefix(path).startswith("._")]
    yield from named or acted


def _unsound_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Yield statics that JAX takes for equal though they are distinct."""
    if mine.aux is not its.aux and mine.names == its.names:
        for name, one, other in zip(its.names, mine.values, its.values, strict=True):
            how = its.compared_by(name) or "equal"
            yield from static_reasons(path + name, one, other, how, (mine.aux, its.aux))
