"""The differences between two trees, path by path, and what JAX does about them."""

import dataclasses
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import jax
import jax.numpy as jnp

from leafwise._compare.fixes import Cause, StaticFacts
from leafwise._findings.reasons import Outcome, Reason, ReasonKind
from leafwise._findings.words import count
from leafwise._jax.compat import varying_axes
from leafwise._objects.classes import distinct_names
from leafwise._objects.locks import cached_property
from leafwise._objects.source.code import is_redefinition
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._trees.equality import StaticPair, first_difference, jax_equal, same_entry, verdict_of
from leafwise._trees.leaves import Leaf, LeafKind, format_sharding, same_dispatch, same_lowering
from leafwise._trees.nodes import Node, walk

Comparing: TypeAlias = Generator["Comparing", Any, list[Reason]]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RecordedTree:
    """A tree without the data of its arrays."""

    treedef: Any
    root: Node
    leaf_records: tuple[Leaf, ...]
    numbers: Mapping[int, Any]
    """Python numbers among the leaves, by index, for code in a fix; in `diff` all leaves."""

    @cached_property
    def leaf_paths(self) -> Sequence[str]:
        """The paths of all leaves, without the names of parameters."""
        return ["".join(steps) for steps, part in walk(self.root) if isinstance(part, int)]


class TreeComparison:
    """A comparison of the trees of two calls."""

    def __init__(
        self, before: RecordedTree, after: RecordedTree, *, config_differs: bool = False
    ) -> None:
        self.before, self.after = before, after
        self.config_differs = config_differs
        self.same = same_entry(before.treedef, after.treedef)  # None if comparing them raises
        self.known: dict[tuple[int, int], list[Reason]] = {}

    def reasons(self) -> list[Reason]:
        treedefs = self.before.treedef, self.after.treedef
        running = [self._reasons("", self.before.root, self.after.root, treedefs)]
        found: list[Reason] | None = None
        while running:  # instead of recursion: JAX takes trees of thousands of levels
            try:
                running.append(running[-1].send(found))
                found = None  # as a generator must be sent at first
            except StopIteration as end:
                running.pop()
                found = end.value
        return found or []

    def _reasons(
        self, path: str, mine: Node | int, its: Node | int, treedefs: tuple[Any, Any]
    ) -> "Comparing":
        """Return the differences at and below one path; yields comparisons, and is sent theirs."""
        if isinstance(mine, int) and isinstance(its, int):
            return self.leaf_reasons(mine, its)
        if not (isinstance(mine, Node) and isinstance(its, Node)):
            one = mine if isinstance(mine, Node) else self.before.leaf_records[mine]
            other = its if isinstance(its, Node) else self.after.leaf_records[its]
            return [self.mismatch(path, one, other)]
        # `==` alone is not enough: only the hash distinguishes classes of registered dataclasses.
        same = same_entry(*treedefs) if path else self.same
        if same is True and (path or mine.steps == its.steps):
            return self._equal_tree_reasons(path, mine, its)
        if not path:  # the root only holds the arguments
            return (yield from self._reasons_below(path, mine, its, treedefs))
        reasons = list(self._node_reasons(path, mine, its))
        if mine.cls is its.cls or mine.steps == its.steps:
            reasons += yield from self._reasons_below(path, mine, its, treedefs)
        # Different treedefs cause a retrace, which a milder reason cannot explain.
        if all(reason.outcome.severity < Outcome.RETRACE.severity for reason in reasons):
            aux = mine.aux, its.aux
            reason = Reason(path, ReasonKind.STATIC, Outcome.RETRACE, *aux, Cause.AUX_DATA)
            if same is None:  # JAX raises the error of the comparison
                _, one, other = first_difference(*aux)
                cause = Cause.FAILING_COMPARISON
                reason = Reason(path, ReasonKind.COMPARISON, Outcome.ERROR, one, other, cause)
            reasons.insert(0, reason)
        return reasons

    def _reasons_below(
        self, path: str, mine: Node, its: Node, treedefs: tuple[Any, Any]
    ) -> "Comparing":
        """Return the differences between the children that both nodes have."""
        before, after = (treedef.children() for treedef in treedefs)
        later = {step: place for place, step in enumerate(its.steps)}
        reasons: list[Reason] = []
        for place, (step, child) in enumerate(zip(mine.steps, mine.children, strict=True)):
            other = later.get(step)
            if other is not None and not mine.is_hash_node(place):
                pair = before[place], after[other]
                reasons += yield self._reasons(path + step, child, its.children[other], pair)
        return reasons

    def _node_reasons(self, path: str, mine: Node, its: Node) -> Iterator[Reason]:
        """Yield the differences between two nodes, without those in their children."""
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

    def mismatch(self, path: str, mine: Node | Leaf, its: Node | Leaf) -> Reason:
        """Return the reason for two nodes or leaves of different kinds at one path."""
        words = Verbatim(_format_kind(mine)), Verbatim(_format_kind(its))
        if words[0] == words[1] and isinstance(mine, Node) and isinstance(its, Node):
            one, other = distinct_names(mine.cls, its.cls)
            words = Verbatim(one), Verbatim(other)
        return Reason(path, ReasonKind.STRUCTURE, Outcome.RETRACE, *words, Cause.STRUCTURE)

    def unnamed_reasons(self, path: str, mine: Node, its: Node) -> Iterable[Reason]:  # noqa: ARG002
        """Compare aux_data that JAX considers equal, of nodes whose statics have no names."""
        return ()

    def _equal_tree_reasons(self, path: str, mine: Node, its: Node) -> list[Reason]:
        """Return the differences in leaves, and distinct statics, of trees that JAX finds equal."""
        places = zip(range(mine.start, mine.stop), range(its.start, its.stop), strict=True)
        reasons = [reason for pair in places for reason in self.leaf_reasons(*pair)]
        todo = [(path, mine, its)]
        while todo:
            where, a, b = todo.pop()
            if where and a.aux is not b.aux:
                if a.names == b.names:
                    reasons += _static_reasons(where, a, b, "equal")
                reasons += self.unnamed_reasons(where, a, b)
            for step, left, right in zip(b.steps, a.children, b.children, strict=True):
                if isinstance(left, Node) and isinstance(right, Node):
                    todo.append((where + step, left, right))
        return reasons

    def leaf_reasons(self, mine: int, its: int) -> list[Reason]:
        """Return the differences between two leaves, given by their indices."""
        one, other = self.before.leaf_records[mine], self.after.leaf_records[its]
        key = id(one), id(other)
        if key not in self.known:  # most are pairs of records that were compared before
            if LeafKind.STATIC in (one.kind, other.kind):
                return list(self._static_leaf_reasons(one, other, its))
            found = _traced_leaf_reasons(one, other, config_differs=self.config_differs)
            self.known[key] = list(found)
        if not self.known[key]:
            return []
        # The fix needs both leaves and, if they are numbers, the numbers.
        numbers = self.before.numbers.get(mine), self.after.numbers.get(its)
        path = self.after.leaf_paths[its]
        return [
            Reason(path, *each[1:6], (*each.details, *numbers) if each.details else ())
            for each in self.known[key]
        ]

    def _static_leaf_reasons(self, one: Leaf, other: Leaf, place: int) -> Iterator[Reason]:
        """Compare two leaves if either is static, as under `equinox.filter_jit`."""
        path = self.after.leaf_paths[place]
        if one.kind is other.kind:
            for reason in static_reasons(path, StaticPair(one.value, other.value, "entry")):
                if reason.cause is Cause.STATIC:
                    node = self.after.root
                    while place not in node.children:
                        node = next(
                            child
                            for child in node.children
                            if isinstance(child, Node) and child.start <= place < child.stop
                        )
                    above = path.removesuffix(node.steps[node.children.index(place)])
                    facts = reason.details._replace(cls=node.cls, leaves=len(node.children))
                    yield reason._replace(details=facts, holder=above)
                else:
                    yield reason
        elif LeafKind.INVALID not in (one.kind, other.kind):
            words, cause = (Verbatim(one), Verbatim(other)), Cause.FILTERED
            yield Reason(path, ReasonKind.STATIC, Outcome.RETRACE, *words, cause)


def _format_kind(part: Node | Leaf) -> str:
    if isinstance(part, Leaf):
        return str(part)
    return "None" if part.cls is type(None) else part.cls.__qualname__


def _step_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Yield a reason for each child that only one of two nodes of the same class has."""
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
        present = Verbatim("(present)")
        for step in dict.fromkeys((*mine.steps, *its.steps)):
            if step not in new:
                yield Reason(path + step, kind, retrace, present, MISSING, cause)
            elif step not in old:
                yield Reason(path + step, kind, retrace, MISSING, present, cause)


def _static_reasons(
    path: str, mine: Node, its: Node, other: Literal["!=", "equal"] = "!="
) -> Iterator[Reason]:
    """Compare the statics of two nodes of one class: by a leafwise key, or else as `other`."""
    earlier = dict(zip(mine.names, mine.values, strict=True))
    later = dict(zip(its.names, its.values, strict=True))
    attributes = [_attributes(statics) for statics in (earlier, later)]
    if attributes[0] and list(attributes[0]) == list(attributes[1]):
        del earlier[".attributes"], later[".attributes"]
        for name, value in attributes[0].items():
            pair = StaticPair(value, attributes[1][name], other)
            yield from static_reasons(path.removesuffix("._graphdef") + name, pair)
    for name in {**later, **earlier}:
        values = earlier.get(name, MISSING), later.get(name, MISSING)
        how = its.compared_by(name) or other
        yield from static_reasons(path + name, StaticPair(*values, how, (mine.aux, its.aux)))


def _attributes(statics: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by path, the attributes that flax.nnx lists next to the nodes of a graph."""
    try:
        nodes, attributes = iter(statics[".nodes"]), iter(statics[".attributes"])
        _, *parts = nnx_parts(nodes, attributes, "")
    except (KeyError, TypeError, ValueError):  # not a flax.nnx graph
        return {}
    values = {path: getattr(part, "value", None) for path, part in parts}
    return values if len(values) == len(statics[".attributes"]) else {}


def nnx_parts(
    nodes: Iterator[Any], attributes: Iterator[Any], path: str
) -> Iterator[tuple[str, Any]]:
    """Yield the parts in the flat description of a flax.nnx graph, each with its path."""
    node = next(nodes, None)
    yield path, node
    for name, attribute in itertools.islice(attributes, getattr(node, "num_attributes", 0)):
        is_name = isinstance(name, str) and name.isidentifier()
        step = path + (f".{name}" if is_name else f"[{name!r}]")
        if type(attribute).__name__ == "NodeAttr":
            yield from nnx_parts(nodes, attributes, step)
        else:
            yield step, attribute


def _data_reasons(path: str, mine: Node, its: Node) -> Iterator[Reason]:
    """Compare the named parts of two nodes' aux_data; private ones count if all others agree."""
    if not (mine.data and its.data) or jax_equal(mine.aux, its.aux):
        return
    found: list[Reason] = []
    for name in {**mine.data, **its.data}:
        values = mine.data.get(name, MISSING), its.data.get(name, MISSING)
        found += static_reasons(path + name, StaticPair(*values, "!="))
    acted = [each for each in found if each.outcome is not Outcome.REUSE]
    named = [each for each in acted if not each.path.removeprefix(path).startswith("._")]
    yield from named or acted


def _traced_leaf_reasons(mine: Leaf, its: Leaf, *, config_differs: bool) -> Iterator[Reason]:
    """Yield the differences between two traced leaves, without the path."""
    if mine == its or LeafKind.INVALID in (mine.kind, its.kind):
        return
    traced: list[Reason] = []
    # If the configuration differs, it explains avals that differ in nothing else.
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
        kind, cause = ReasonKind.SHARDING, _sharding_cause(mine, its)
        if cause is Cause.SHARDING and mine.committed != its.committed:
            kind, cause = ReasonKind.COMMITMENT, Cause.COMMITTED
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
    """Return the differences between two abstract values that are not equal."""
    retrace = Outcome.RETRACE
    if _is_raw_key_of(mine, its) or _is_raw_key_of(its, mine):
        avals = Verbatim(mine.aval.str_short()), Verbatim(its.aval.str_short())
        return [Reason(path, ReasonKind.DTYPE, retrace, *avals, Cause.RAW_KEY)]
    reasons: list[Reason] = []
    if mine.shape != its.shape:
        shapes = mine.shape, its.shape
        reasons.append(Reason(path, ReasonKind.SHAPE, retrace, *shapes, Cause.SHAPE))
    leaves = mine, its
    if mine.dtype != its.dtype:
        dtypes = Verbatim(mine.dtype), Verbatim(its.dtype)
        reasons.append(Reason(path, ReasonKind.DTYPE, retrace, *dtypes, Cause.DTYPE, leaves))
    elif mine.weak_type != its.weak_type:
        texts = Verbatim(mine), Verbatim(its)
        reasons.append(Reason(path, ReasonKind.WEAK_TYPE, retrace, *texts, Cause.DTYPE, leaves))
    axes = varying_axes(mine.aval), varying_axes(its.aval)
    if axes[0] != axes[1]:
        reasons.append(Reason(path, ReasonKind.VARYING, retrace, *axes, Cause.VARYING))
    if _aval_sharding(mine) != _aval_sharding(its) or not reasons:
        placements = _format_placement(mine), _format_placement(its)
        cause = _sharding_cause(mine, its)
        reasons.append(Reason(path, ReasonKind.SHARDING, retrace, *placements, cause))
    return reasons


def _is_raw_key_of(raw: Leaf, key: Leaf) -> bool:
    is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    shape = raw.shape or ()
    return is_key and raw.dtype == jnp.uint32 and shape[:-1] == key.shape != shape


def _aval_sharding(leaf: Leaf) -> Any:
    """Return the part of a sharding that an abstract value has: the mesh and explicit axes."""
    sharding = getattr(leaf.aval, "sharding", None)
    # A spec has an entry for each dimension; only those that shard count here.
    spec = [entry for entry in getattr(sharding, "spec", ()) if entry is not None]
    return getattr(sharding, "mesh", None), spec


def _sharding_cause(*leaves: Leaf) -> Cause:
    return Cause.ABSTRACT_SHARDING if any(map(_is_abstract, leaves)) else Cause.SHARDING


def _is_abstract(leaf: Leaf) -> bool:
    """Return whether a leaf is that of a ShapeDtypeStruct without a sharding, in `lower`."""
    return leaf.kind is LeafKind.JAX_ARRAY and leaf.sharding is None


def _format_placement(leaf: Leaf) -> Verbatim:
    if leaf.sharding is None:
        return Verbatim("none, in a ShapeDtypeStruct" if _is_abstract(leaf) else leaf.kind)
    how = "committed to" if leaf.committed else "on"
    return Verbatim(f"{how} {format_sharding(leaf.sharding)}")


def static_reasons(path: str, pair: StaticPair) -> Iterator[Reason]:
    """Yield the reason for two static values at one path, if they differ."""
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
