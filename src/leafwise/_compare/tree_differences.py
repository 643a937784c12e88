"""The parts of two trees in pairs, what differs between them, and what JAX makes of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from leafwise._compare.fixes import Cause
from leafwise._compare.leaf_differences import leaf_reasons, static_reasons
from leafwise._compare.signature import Signature
from leafwise._display.reasons import Outcome, Reason, ReasonKind
from leafwise._display.words import count
from leafwise._objects.classes import distinct_names
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._trees.equality import (
    How,
    StaticPair,
    first_difference,
    is_redefinition,
    jax_equal,
    same_entry,
)
from leafwise._trees.leaves import Leaf, LeafKind
from leafwise._trees.nodes import Node


class Part(NamedTuple):
    """What stands at one path of both trees.

    Attributes:
        path: The path.
        mine: The node or the leaf of the earlier call.
        its: That of the later call.
        same: Whether the treedefs of two nodes are equal; None if comparing them raises.
        below: The children that two nodes both have; if they are equal, the leaves below that
            are not known to be.
        numbers: The Python numbers that two leaves are, as far as they are known.
        holder: The node above a leaf of the later call that is static, and its path.
    """

    path: str
    mine: Node | Leaf
    its: Node | Leaf
    same: bool | None = False
    below: Sequence["Part"] = ()
    numbers: tuple[Any, Any] = (None, None)
    holder: tuple[Node, str] | None = None


def paired(before: Signature, after: Signature, *, every: bool = False) -> Part:
    """Return the parts of both trees, in pairs; of equal leaves only if asked for every one."""
    treedefs = before.treedef, after.treedef
    (root,) = _Pairing(before, after, every=every).parts("", before.root, after.root, treedefs)
    return root


class _Pairing:
    def __init__(self, before: Signature, after: Signature, *, every: bool) -> None:
        self.before, self.after = before.leaf_records, after.leaf_records
        self.numbers = before.numbers, after.numbers
        self.last = after
        self.every = every
        self.known: dict[tuple[int, int], bool] = {}

    def parts(
        self, path: str, mine: Node | int, its: Node | int, treedefs: tuple[Any, Any]
    ) -> list[Part]:
        """Pair what stands at one path of both trees, if it is no equal leaf."""
        if isinstance(mine, int) and isinstance(its, int):
            return [] if self.is_equal(mine, its) else [self.leaf(path, mine, its)]
        if not (isinstance(mine, Node) and isinstance(its, Node)):
            one = mine if isinstance(mine, Node) else self.before[mine]
            return [Part(path, one, its if isinstance(its, Node) else self.after[its])]
        # Not by `==` alone: only the hash distinguishes classes of registered dataclasses.
        same = same_entry(*treedefs)
        if same is True and (path or mine.steps == its.steps):
            return [Part(path, mine, its, same, self.leaves(mine, its))]
        if path and mine.cls is not its.cls and mine.steps != its.steps:
            return [Part(path, mine, its, same)]
        before, after = treedefs[0].children(), treedefs[1].children()
        later = {step: place for place, step in enumerate(its.steps)}
        below: list[Part] = []
        for place, (step, child) in enumerate(zip(mine.steps, mine.children, strict=True)):
            other = later.get(step)
            if other is not None and not mine.is_hash_node(place):
                pair = before[place], after[other]
                below += self.parts(path + step, child, its.children[other], pair)
        return [Part(path, mine, its, None if same is None else False, below)]

    def leaves(self, mine: Node, its: Node) -> list[Part]:
        """Pair the leaves of trees that are equal to JAX."""
        places = zip(range(mine.start, mine.stop), range(its.start, its.stop), strict=True)
        return [
            self.leaf(self.last.leaf_paths[other], one, other)
            for one, other in places
            if not self.is_equal(one, other)
        ]

    def is_equal(self, mine: int, its: int) -> bool:
        """Return whether two leaves need no comparison."""
        one, other = self.before[mine], self.after[its]
        known = self.known.get((id(one), id(other)))
        if known is None:  # most are pairs of records that were compared before
            known = one == other and one.kind is not LeafKind.STATIC and not self.every
            self.known[id(one), id(other)] = known
        return known

    def leaf(self, path: str, mine: int, its: int) -> Part:
        """Pair two leaves, given by their places."""
        one, other = self.before[mine], self.after[its]
        numbers = self.numbers[0].get(mine), self.numbers[1].get(its)
        holder = None
        if other.kind is LeafKind.STATIC:
            node = _holder(self.last.root, its)
            holder = node, path.removesuffix(node.steps[node.children.index(its)])
        return Part(path, one, other, False, (), numbers, holder)  # noqa: FBT003


class TreeComparison:
    """Words what differs between the parts of two trees."""

    def __init__(self, *, config_differs: bool = False) -> None:
        self.config_differs = config_differs
        self.known: dict[tuple[int, int], list[Reason]] = {}

    def reasons(self, part: Part) -> list[Reason]:
        """Return all differences between two parts, and below them."""
        if isinstance(part.mine, Leaf) and isinstance(part.its, Leaf):
            return self.leaf_reasons(part)
        path, mine, its, same, below, *_ = part
        if not (isinstance(mine, Node) and isinstance(its, Node)):
            return [self.mismatch(part)]
        is_compared = not same and path  # the root is no node of the user's
        reasons = list(self._node_reasons(part, mine, its)) if is_compared else []
        for child in below:
            reasons += self.reasons(child)
        if same:
            reasons += self._unsound_reasons(path, mine, its)
        # Treedefs that differ retrace, which nothing milder explains.
        elif path and all(reason.outcome.severity < Outcome.RETRACE.severity for reason in reasons):
            aux = mine.aux, its.aux
            reason = Reason(path, ReasonKind.STATIC, Outcome.RETRACE, *aux, Cause.AUX_DATA)
            if same is None:  # JAX raises what comparing them does
                _, one, other = first_difference(*aux)
                cause = Cause.FAILING_COMPARISON
                reason = Reason(path, ReasonKind.COMPARISON, Outcome.ERROR, one, other, cause)
            reasons.insert(0, reason)
        return reasons

    def _node_reasons(self, part: Part, mine: Node, its: Node) -> Iterator[Reason]:
        """Compare two nodes, without what is below them."""
        if mine.cls is its.cls:
            yield from _step_reasons(part.path, mine, its)
            yield from _static_reasons(part.path, mine, its)
            yield from _data_reasons(part.path, mine, its)
            yield from self.unnamed_reasons(part.path, mine, its)
        elif is_redefinition(mine.cls, its.cls):
            classes, cause = (mine.cls, its.cls), Cause.REDEFINED
            yield Reason(part.path, ReasonKind.CLASS, Outcome.RETRACE, *classes, cause)
        else:
            yield self.mismatch(part)

    def mismatch(self, part: Part) -> Reason:
        """Name two things of different kinds at one path."""
        path, mine, its, *_ = part
        words = Verbatim(_format_kind(mine)), Verbatim(_format_kind(its))
        if words[0] == words[1] and isinstance(mine, Node) and isinstance(its, Node):
            one, other = distinct_names(mine.cls, its.cls)
            words = Verbatim(one), Verbatim(other)
        return Reason(path, ReasonKind.STRUCTURE, Outcome.RETRACE, *words, Cause.STRUCTURE)

    def unnamed_reasons(self, path: str, mine: Node, its: Node) -> Iterable[Reason]:  # noqa: ARG002
        """Compare aux_data that JAX takes for equal, of nodes whose statics have no names."""
        return ()

    def _unsound_reasons(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Yield statics that JAX takes for equal though they are distinct, in equal trees."""
        todo = [(path, mine, its)]
        while todo:
            where, a, b = todo.pop()
            if where and a.aux is not b.aux:
                if a.names == b.names:
                    yield from _static_reasons(where, a, b, "equal")
                yield from self.unnamed_reasons(where, a, b)
            for step, left, right in zip(b.steps, a.children, b.children, strict=True):
                if isinstance(left, Node) and isinstance(right, Node):
                    todo.append((where + step, left, right))

    def leaf_reasons(self, part: Part) -> list[Reason]:
        """Compare two leaves."""
        one: Any = part.mine
        other: Any = part.its
        found = self.known.get((id(one), id(other)))
        if found is None:
            if LeafKind.STATIC in (one.kind, other.kind):
                return list(_static_leaf_reasons(part.path, one, other, part.holder))
            found = list(leaf_reasons("", one, other, config_differs=self.config_differs))
            self.known[id(one), id(other)] = found
        numbers = part.numbers or (None, None)  # the fix is made of both leaves and of these
        for place, reason in enumerate(found):
            sides = zip(reason.details, numbers, strict=False)
            details = tuple(side._replace(number=number) for side, number in sides)
            found[place] = reason._replace(path=part.path, details=details)
        return found


def _static_leaf_reasons(
    path: str, one: Leaf, other: Leaf, holder: tuple[Node, str] | None
) -> Iterator[Reason]:
    """Compare leaves of which one is static under `equinox.filter_jit`, or both."""
    if one.kind is other.kind:
        for reason in static_reasons(path, StaticPair(one.value, other.value, "entry")):
            if reason.cause is not Cause.STATIC or holder is None:
                yield reason
                continue
            node, above = holder
            facts = reason.details._replace(cls=node.cls, leaves=len(node.children))
            yield reason._replace(details=facts, holder=above)
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


def _format_kind(part: Node | Leaf) -> str:
    if isinstance(part, Leaf):
        return str(part)
    return "None" if part.cls is type(None) else part.cls.__qualname__


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


def _static_reasons(path: str, mine: Node, its: Node, other: How = "!=") -> Iterator[Reason]:
    """Compare the statics of two nodes of one class, those without a key of leafwise as told."""
    earlier = dict(zip(mine.names, mine.values, strict=True))
    later = dict(zip(its.names, its.values, strict=True))
    names = _attribute_names(earlier)
    if names and names == _attribute_names(later):
        pairs = zip(names, earlier.pop(".attributes"), later.pop(".attributes"), strict=True)
        for name, (_, before), (_, after) in pairs:
            values = getattr(before, "value", None), getattr(after, "value", None)
            yield from static_reasons(
                f"{path.removesuffix('._graphdef')}{name}", StaticPair(*values, other)
            )
    for name in {**later, **earlier}:
        values = earlier.get(name, MISSING), later.get(name, MISSING)
        how = its.compared_by(name) or other
        yield from static_reasons(path + name, StaticPair(*values, how, (mine.aux, its.aux)))


def _attribute_names(statics: Mapping[str, Any]) -> list[str]:
    """Return the paths of attributes that flax.nnx lists next to the nodes of a graph."""
    names: list[str] = []
    try:
        nodes, attributes = iter(statics[".nodes"]), iter(statics[".attributes"])

        def add(path: str) -> None:
            for _ in range(getattr(next(nodes), "num_attributes", 0)):
                name, kind = next(attributes)
                names.append(f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}")
                if type(kind).__name__ == "NodeAttr":
                    add(names[-1])

        add("")
    except (KeyError, TypeError, ValueError, StopIteration):  # of another class
        return []
    return names if len(names) == len(statics[".attributes"]) else []


def _data_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Compare the named parts of two nodes' aux_data; private ones only if all others agree."""
    if not (mine.data and its.data) or jax_equal(mine.aux, its.aux):
        return
    found: list[Reason] = []
    for name in {**mine.data, **its.data}:
        values = mine.data.get(name, MISSING), its.data.get(name, MISSING)
        found += static_reasons(path + name, StaticPair(*values, "!="))
    acted = [each for each in found if each.outcome is not Outcome.REUSE]
    named = [each for each in acted if not each.path.removeprefix(path).startswith("._")]
    yield from named or acted
