"""The record of one call: all that decides whether JAX reuses a program for it, and why not."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax

from leafwise._compare.fixes import Cause
from leafwise._compare.tree_differences import RecordedTree, TreeComparison, static_reasons
from leafwise._findings.reasons import Explanation, Outcome, Reason, ReasonKind, joined, merged
from leafwise._jax.context import UNNAMED_CONFIG, Config, trace_config
from leafwise._objects.interrupts import or_default
from leafwise._objects.locks import cached_property
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import got, shorten
from leafwise._statics.key import argument_value
from leafwise._trees.equality import How, StaticPair, same_entry
from leafwise._trees.leaves import Leaf, LeafKind, LeafRecorder, device_order, same_program
from leafwise._trees.nodes import Node, TreeWalk, walk

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_NUMBERS: Final = (bool, int, float, complex)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Signature(RecordedTree):
    """The record of one call of a jitted function, without the data of its arrays.

    Two signatures are equal if and only if one program serves both calls, on a function that
    uses all its arguments: JAX neither traces nor lowers nor compiles for the second.

    `leafwise.signature` returns one. It keeps static values alive, but not arrays.

    Attributes:
        treedef: The pytree structure of the dynamic arguments ``(args, kwargs)``.
        config: The JAX options that are part of the cache key of a trace, by name.
    """

    config: Config
    labels: Mapping[str, str]

    @property
    def leaves(self) -> Mapping[str, Leaf]:
        """The leaves of the arguments by path, in JAX's order."""
        return dict(zip(map(self.show, self.leaf_paths), self.leaf_records, strict=True))

    @property
    def statics(self) -> Mapping[str, Any]:
        """The static values by path: static fields, and static arguments."""
        statics = [
            (path + name, argument_value(value))
            for path, node in self._walk()
            if isinstance(node, Node)
            for name, value in zip(node.names, node.values, strict=True)
        ]
        return {self.show(path): value for path, value in statics}

    @property
    def all_statics(self) -> Mapping[str, Any]:
        """The same, plus static leaves and the aux_data of nodes without named statics."""
        found = dict(self.statics)
        for path, node in self._walk():
            if isinstance(node, int):
                leaf = self.leaf_records[node]
                if leaf.kind is LeafKind.STATIC:
                    found[self.show(path)] = leaf.value
            elif node.data:
                found.update((self.show(path + name), value) for name, value in node.data.items())
            elif not (node.names or node.aux is None or issubclass(node.cls, dict | tuple)):
                found[self.show(path)] = node.aux
        return found

    @property
    def classes(self) -> Mapping[str, type]:
        """The classes of the nodes, by path, without the tuple of the arguments."""
        nodes = [(path, node) for path, node in self._walk() if path and isinstance(node, Node)]
        return {self.show(path): node.cls for path, node in nodes}

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The JAX options by name."""
        return dict(self.config)

    def explain(self, earlier: "Signature | Iterable[Signature]") -> Explanation:
        """Explain what JAX will do for this call after an earlier one, and why.

        Args:
            earlier: The signature of an earlier call of the same function, or several.

        Returns:
            The outcome and all reasons; with several earlier calls, against the nearest one.

        Raises:
            TypeError: An argument is not a signature.

        Examples:
            >>> print(signature(jnp.ones(4)).explain(signature(jnp.ones(3))))
            retrace: traced, lowered and compiled again
              args[0]: shape (3,) -> (4,)
                fix: pad to one shape, and mask what is added
        """
        calls: list[Any] = [*(earlier if isinstance(earlier, Iterable) else [earlier])]
        for call in calls:
            if not isinstance(call, Signature):
                raise TypeError(
                    f"explain takes signatures from leafwise.signature(...), got {got(call)}"
                )
        return nearest(calls, self)

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments with this record, with a `jax.ShapeDtypeStruct` for each array."""
        struct: Any = jax.ShapeDtypeStruct
        leaves = [
            struct(leaf.aval.shape, leaf.aval.dtype, weak_type=leaf.aval.weak_type)
            for leaf in self.leaf_records
        ]
        dynamic = jax.tree.unflatten(self.treedef, leaves)
        names, values = self.root.names, self.root.values
        by_path = dict(zip((*self.root.steps, *names), (*dynamic, *values), strict=True))
        places = [f"args[{place}]" for place in range(len(by_path))]
        args = [by_path.pop(place) for place in places if place in by_path]
        return args, {path[len("kwargs['") : -len("']")]: value for path, value in by_path.items()}

    def show(self, path: str) -> str:
        """Return a path as it is shown: with the name of the parameter, if known."""
        for start, label in self.labels.items():
            if path.startswith(start):
                return label + path[len(start) :]
        return path

    def _walk(self) -> Iterator[tuple[str, Node | int]]:
        return (("".join(steps), part) for steps, part in walk(self.root))

    def __eq__(self, other: object) -> bool:
        """Return whether one program serves both calls."""
        if not isinstance(other, Signature):
            return NotImplemented
        same = (
            self.root.steps == other.root.steps
            and self.root.names == other.root.names
            and all(  # JAX compares static arguments with their types
                type(mine) is type(its) and same_entry(mine, its) is True
                for mine, its in zip(self.root.values, other.root.values, strict=False)
            )
            and same_entry(self.treedef, other.treedef) is True
            and self.config == other.config
        )
        pairs = zip(self.leaf_records, other.leaf_records, strict=False)
        return same and all(same_program(mine, its) for mine, its in pairs)

    def __hash__(self) -> int:
        """Return a hash of the structure and the abstract values."""
        return hash((self.treedef, tuple(leaf.aval for leaf in self.leaf_records)))

    def __repr__(self) -> str:
        """Return the arguments as JAX sees them, a line each."""
        lines = [f"  {path}: {leaf}" for path, leaf in self.leaves.items()]
        lines += [f"  {path} = {shorten(value)}  (static)" for path, value in self.statics.items()]
        return "\n".join(["Signature(", *lines, ")"])


def signature(
    *args: Any,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    filter_jit: bool = False,
    **kwargs: Any,
) -> Signature:
    """Record everything that decides whether JAX reuses a program for a call.

    It works for any pytree: leafwise classes, dataclasses and classes of other libraries,
    containers, `jax.tree_util.Partial`. Nothing is traced or run, and no data is kept.

    Args:
        *args: The positional arguments of the call.
        static_argnums: The ``static_argnums`` of the function's `jax.jit`.
        static_argnames: The ``static_argnames`` of the function's `jax.jit`.
        filter_jit: Whether the function is under `equinox.filter_jit`, which makes every
            leaf static that is not a JAX or NumPy array.
        **kwargs: The keyword arguments of the call. Options of `jax.jit` that do not affect the
            cache key (`donate_argnums`, `donate_argnames`, `keep_unused`, `inline`, `device`) are
            ignored, unless the name is in `static_argnames`.

    Returns:
        The record: structure, classes and statics by path, and for each leaf its shape,
        dtype, weak type, sharding, commitment and kind.

    Raises:
        TypeError: `static_argnums` are not integers, or `static_argnames` are not strings.

    Examples:
        >>> one = signature(jnp.ones(3), 2.0)
        >>> one == signature(jnp.zeros(3), 5.0)
        True
        >>> one == signature(jnp.ones(3), jnp.float32(2))
        False
    """
    statics = StaticArguments.checked(static_argnums, static_argnames)
    # An option of `jax.jit` only if it is not static, as then the callee takes it.
    options = _OPTIONS.difference(statics.names)
    named = {name: value for name, value in kwargs.items() if name not in options}
    return record(args, named, statics, filtered=filter_jit)


_OPTIONS: Final = {"donate_argnums", "donate_argnames", "keep_unused", "inline", "device"}


@dataclasses.dataclass(frozen=True, slots=True)
class StaticArguments:
    """The static arguments of a function, by position and by name."""

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def checked(
        cls, numbers: int | Iterable[int] | None, names: str | Iterable[str] | None
    ) -> "StaticArguments":
        """Return the static arguments in the forms that `jax.jit` takes, or raise TypeError."""
        return cls(
            _as_tuple("static_argnums takes integers", numbers, int),
            _as_tuple("static_argnames takes names", names, str),
        )

    def union(self, other: "StaticArguments") -> "StaticArguments":
        numbers = sorted({*self.numbers, *other.numbers})
        return StaticArguments(tuple(numbers), tuple(sorted({*self.names, *other.names})))

    def resolved(self, count: int) -> frozenset[int]:
        """Return the positions in a call of `count` arguments, counted from the start."""
        return frozenset(number + count if number < 0 else number for number in self.numbers)


def _as_tuple(expected: str, given: Any, kind: type) -> tuple[Any, ...]:
    """Return one item, several or None as a tuple, or raise if an item has another type."""
    given = () if given is None else given
    is_several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    items: tuple[Any, ...] = tuple(given) if is_several else (given,)
    wrong = [item for item in items if not isinstance(item, kind)]
    if wrong:
        raise TypeError(f"{expected}, got {got(wrong[0])}")
    return items


def record(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    statics: StaticArguments,
    *,
    filtered: bool = False,
    abstract: bool = False,
    labels: Mapping[str, str] = _NO_LABELS,
) -> Signature:
    """Record one call; if it is only traced (`abstract`), a ShapeDtypeStruct counts as an array."""
    static_places = statics.resolved(len(args))
    static: dict[str, Any] = {}
    dynamic: dict[str, Any] = {}
    for place, arg in enumerate(args):
        (static if place in static_places else dynamic)[f"args[{place}]"] = arg
    for name in sorted(kwargs):
        (static if name in statics.names else dynamic)[f"kwargs[{name!r}]"] = kwargs[name]
    walk = TreeWalk(LeafRecorder(filtered=filtered, abstract=abstract))
    children = list(map(walk.node_or_leaf, dynamic.values()))
    named = tuple(static), tuple(static.values())
    root = Node(tuple, None, named, list(dynamic), children, 0, len(walk.leaves))
    flat, treedef = jax.tree.flatten(list(dynamic.values()))
    kinds = [(place, leaf.stored) for place, leaf in enumerate(walk.leaves)]
    places = [place for place, kind in kinds if type(kind) is type and kind in _NUMBERS]
    numbers = {place: flat[place] for place in places[:100]}
    return Signature(treedef, root, tuple(walk.leaves), numbers, trace_config(), labels)


def labels_of(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, str]:
    """Return the names of a function's parameters, by the paths of the arguments."""
    positional: Sequence[str]
    if type(fun) is types.FunctionType and not vars(fun) and len(args) <= fun.__code__.co_argcount:
        positional, rest = fun.__code__.co_varnames, list[str]()  # faster than its signature
    else:
        try:
            parameters = inspect.signature(fun).parameters.values()
        except (TypeError, ValueError):  # some builtins have no signature, or it is not callable
            return _NO_LABELS
        kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        positional = [each.name for each in parameters if each.kind in kinds]
        rest = [each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
    labels = {f"kwargs[{name!r}]": name for name in kwargs}
    labels.update((f"args[{place}]", name) for place, name in enumerate(positional[: len(args)]))
    for place in range(len(positional), len(args) if rest else 0):
        labels[f"args[{place}]"] = f"{rest[0]}[{place - len(positional)}]"
    return labels


def nearest(
    earlier: Sequence[Signature],
    after: Signature,
    *,
    placed: bool = False,
    shared: frozenset[tuple[str, ReasonKind]] = frozenset(),
) -> Explanation:
    """Explain a call against the earlier call that leads to the cheapest outcome."""
    if len(earlier) == 1:  # nothing to choose from
        return differences(earlier[0], after, placed=placed)
    best: tuple[tuple[Any, ...], Explanation] | None = None
    for place, before in enumerate(earlier):
        found = differences(before, after, placed=placed)
        number = len(found.reasons)
        if number > 1:  # count as the reader sees them, one line each
            number = len(joined(merged(found.reasons)))
        kinds = {(reason.path, reason.kind) for reason in found.reasons}
        is_other = any(kind in _HIDING for _, kind in kinds)
        is_resized = any(kind is ReasonKind.SHAPE for _, kind in kinds)
        # Then prefer fewer differences, equal shapes, an equal structure, and those `shared` with
        # other calls.
        order = found.outcome.severity, number, is_resized, is_other, not kinds <= shared, -place
        if best is None or order < best[0]:
            best = order, dataclasses.replace(found, nearest=place)
    return Explanation(Outcome.RETRACE) if best is None else best[1]


_HIDING: Final = (ReasonKind.STRUCTURE, ReasonKind.CLASS)
"""Of what is below such a difference, nothing is compared."""


def differences(before: Signature, after: Signature, *, placed: bool = False) -> Explanation:
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


def _config_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
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


def _uncommon_leaf_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
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


def _device_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
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


def _argument_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
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


def _given(call: Signature) -> dict[str, tuple[str, str]]:
    """Return for each argument, by name, whether it is traced or static, and how it is passed."""
    kinds = dict.fromkeys(call.root.steps, "traced") | dict.fromkeys(call.root.names, "static")
    return {
        call.show(path): (kind, "by position" if path.startswith("args") else "by keyword")
        for path, kind in kinds.items()
    }


def _static_argument_reasons(before: Signature, after: Signature) -> Iterator[Reason]:
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
