"""The record of one call: everything that decides whether JAX reuses a program for it."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax

from leafwise._compare.explain import nearest
from leafwise._findings.reasons import Explanation
from leafwise._jax.context import Config, trace_config
from leafwise._objects.locks import cached_property
from leafwise._objects.text import got, shorten
from leafwise._statics.key import argument_value
from leafwise._trees.equality import same_entry
from leafwise._trees.leaves import LEAF_TYPES, Leaf, LeafKind, LeafRecorder, same_program
from leafwise._trees.nodes import Node, TreeWalk, walk

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_NUMBERS: Final = (bool, int, float, complex)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Signature:
    """The record of one call of a jitted function, without the data of its arrays.

    Two signatures are equal if and only if one program serves both calls, on a function that
    uses all its arguments: JAX neither traces nor lowers nor compiles for the second.

    `leafwise.signature` returns one. It keeps static values alive, but not arrays.

    Attributes:
        treedef: The pytree structure of the dynamic arguments ``(args, kwargs)``.
        config: The JAX options that are part of the cache key of a trace, by name.
    """

    treedef: Any
    config: Config
    root: Node
    leaf_records: tuple[Leaf, ...]
    labels: Mapping[str, str]
    numbers: Mapping[int, Any]
    """The first Python numbers among the leaves, by index, for code in a fix."""

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
                fix: pad to one shape, or a few
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

    @cached_property
    def leaf_paths(self) -> Sequence[str]:
        """The paths of all leaves, without the names of parameters."""
        return [path for path, place in self._walk() if isinstance(place, int)]

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
    options = _OPTIONS.difference(statics.names)  # else it is an argument of that name
    given = {name: value for name, value in kwargs.items() if name not in options}
    return record(args, given, statics, filtered=filter_jit)


_OPTIONS: Final = frozenset(
    {"donate_argnums", "donate_argnames", "keep_unused", "inline", "device"}
)


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
    if given is None:
        items: tuple[Any, ...] = ()
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        items = tuple(given)
    else:
        items = (given,)
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
    walk = TreeWalk(LeafRecorder(filtered=filtered, abstract=abstract), LEAF_TYPES)
    children = list(map(walk.node_or_leaf, dynamic.values()))
    named = tuple(static), tuple(static.values())
    root = Node(tuple, None, named, list(dynamic), children, 0, len(walk.leaves))
    flat, treedef = jax.tree.flatten(list(dynamic.values()))
    return Signature(
        treedef, trace_config(), root, tuple(walk.leaves), labels, _numbers(walk.leaves, flat)
    )


def _numbers(records: Sequence[Leaf], leaves: Sequence[Any]) -> Mapping[int, Any]:
    kinds = [(place, leaf.stored) for place, leaf in enumerate(records)]
    places = [place for place, kind in kinds if type(kind) is type and kind in _NUMBERS]
    return {place: leaves[place] for place in places[:100]}


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
