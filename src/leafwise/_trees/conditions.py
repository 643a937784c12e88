"""What a leaf can be selected by: its path, its class, a function, or its fields' metadata."""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import jax
import numpy as np

from leafwise._objects.class_map import ClassMap
from leafwise._objects.text import got, shorten
from leafwise._trees.combine import mismatch
from leafwise._trees.nodes import FlatTree, Node
from leafwise._trees.paths import (
    ANY,
    DEEP,
    Steps,
    format_path,
    format_steps,
    nearest,
    place_of,
    show,
)
from leafwise.errors import PathError, TreeError


class Condition(Protocol):
    """Says which leaves of a tree are selected."""

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether it is selected."""
        ...


def _mark(flags: list[bool], part: Node | int, *, flag: bool = True) -> None:
    """Flag a leaf, or all leaves of a node."""
    if isinstance(part, int):
        flags[part] = flag
    else:
        flags[part.start : part.stop] = [flag] * (part.stop - part.start)


@dataclasses.dataclass(frozen=True, slots=True)
class AtPath:
    """Selects what stands at a path, and below."""

    text: str
    steps: Steps

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"where({self.text!r})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether it stands there.

        Raises:
            PathError: Nothing in the tree does.
        """
        search = _Search(self.steps, len(places.leaves))
        search.visit(places.root, (), 0)
        if not search.hit:
            raise self._nowhere(places, search)
        return search.flags

    def _nowhere(self, places: FlatTree, search: "_Search") -> PathError:
        wrong, path, part = search.furthest
        here: list[str] = []
        if isinstance(part, Node):
            here = [step for place, step in enumerate(part.steps) if not part.is_hash_node(place)]
        paths = (steps for steps, _ in places.walk())
        meant = nearest(self.steps, wrong, here, paths)
        at = show(self.steps[: wrong + 1]) or "*"
        if isinstance(part, int):
            why = f"{places.name(path)} is a leaf, which has no parts"
        elif self.steps[wrong] in part.names:
            why = f"{part.cls.__name__}{self.steps[wrong]} is static, so that it has no leaves"
        else:
            why = f"{format_path(places.tree, path, part.cls)}: {format_steps(here)}"
        where = f", from {at!r} on" if at != self.text else ""
        instead = "" if meant is None else f"\n  nearest: {show(meant)!r}"
        return PathError(f"{self.text!r} leads nowhere{where}: {why}{instead}")


class _Search:
    """A search for all that a pattern leads to.

    Attributes:
        flags: For each leaf whether it was found.
        hit: Whether anything was found, be it a node without leaves.
        furthest: The step at which the search ended that went furthest, and where that was.
    """

    def __init__(self, pattern: Steps, leaves: int) -> None:
        self.pattern = pattern
        self.flags = [False] * leaves
        self.hit = False
        self.furthest: tuple[int, Steps, Any] = (-1, (), None)
        self._seen: set[tuple[int, int]] = set()

    def visit(self, part: Node | int, path: Steps, at: int) -> None:
        """Go on from a node or leaf, with the step that the pattern has at `at`."""
        if at == len(self.pattern):
            self.hit = True
            _mark(self.flags, part)
            return
        step = self.pattern[at]
        if at > self.furthest[0]:
            self.furthest = at, path, part
        if step == DEEP:
            self._visit_deep(part, path, at)
        elif isinstance(part, Node):
            if step == ANY:
                self.hit |= not part.children  # an empty list is no mistake
                self._visit_children(part, path, at + 1)
            elif (place := place_of(part.steps, step)) is not None:
                self.visit(part.children[place], (*path, part.steps[place]), at + 1)

    def _visit_deep(self, part: Node | int, path: Steps, at: int) -> None:
        if isinstance(part, Node):
            if (id(part), at) in self._seen:  # by another way that `**` can be read
                return
            self._seen.add((id(part), at))
        self.visit(part, path, at + 1)
        if isinstance(part, Node):
            self._visit_children(part, path, at)

    def _visit_children(self, part: Node, path: Steps, at: int) -> None:
        for place, child in enumerate(part.children):
            if not part.is_hash_node(place):
                self.visit(child, (*path, part.steps[place]), at)


@dataclasses.dataclass(frozen=True, slots=True)
class OfClass:
    """Selects what stands in an instance of a class, and leaves of that type."""

    kind: Any

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"where({_named(self.kind)})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether it is, or stands in, an instance of the class."""
        flags = [isinstance(leaf, self.kind) for leaf in places.leaves]
        todo = [places.root]
        while todo:
            part = todo.pop()
            if isinstance(part, Node):
                if issubclass(part.cls, self.kind):
                    _mark(flags, part)
                else:
                    todo += part.children
        return flags


@dataclasses.dataclass(frozen=True, slots=True)
class ByTest:
    """Selects the leaves for which a function says True."""

    test: Callable[[Any], object]

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"where({_named(self.test)})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return what the function says of each leaf.

        Raises:
            TypeError: It answers with something else than a bool.
        """
        return said_of(self.test, places.leaves, places.name_of)


def said_of(
    test: Callable[[Any], Any], leaves: list[Any], name_of: Callable[[int], str]
) -> list[bool]:
    """Return what a function says of leaves; see `ByTest`."""
    said: list[Any] = []
    try:
        said.extend(map(test, leaves))
    except Exception as error:
        error.add_note(f"in the condition {_named(test)}, asked of the leaf {name_of(len(said))}")
        raise
    for place, flag in enumerate(said):
        if type(flag) is not bool:
            said[place] = _as_bool(flag, f"{_named(test)} says", name_of, place)
    return said


def _named(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", None) or shorten(thing))


def _as_bool(flag: Any, whence: str, name_of: Callable[[int], str], leaf: int) -> bool:
    if not isinstance(flag, bool | np.bool_):
        msg = f"{name_of(leaf)}: {whence}: {got(flag)}, where True or False is wanted"
        raise TypeError(msg)
    return bool(flag)


@dataclasses.dataclass(frozen=True, slots=True)
class ByMetadata:
    """Selects by the innermost field on a leaf's path that has an entry in its metadata."""

    key: str
    value: Any

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"where({self.key}={self.value!r})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether that entry is the value.

        Raises:
            PathError: No field has such an entry, but one has one of nearly its name.
        """
        flags = [False] * len(places.leaves)
        known: set[str] = set()
        todo = [places.root]
        while todo:  # outer ones first: inner ones overrule
            part = todo.pop()
            if isinstance(part, int):
                continue
            todo += part.children
            fields = _metadata_of(part.cls)
            for step, child in zip(part.steps, part.children, strict=True) if fields else ():
                entries = fields.get(step, _NO_ENTRIES)
                known.update(filter(_is_text, entries))
                if self.key in entries:
                    _mark(flags, child, flag=bool(entries[self.key] == self.value))
        near = difflib.get_close_matches(self.key, known, 1)
        if near and self.key not in known:
            msg = (
                f"no field of {type(places.tree).__name__} has metadata {self.key!r}"
                f"\n  nearest: {near[0]!r}"
            )
            raise PathError(msg)
        return flags


_NO_ENTRIES: Final[Mapping[Any, Any]] = {}
_METADATA: Final[ClassMap[dict[str, Mapping[Any, Any]]]] = ClassMap()


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _metadata_of(cls: Any) -> dict[str, Mapping[Any, Any]]:
    """Return the metadata of a class's fields, by the steps to them."""
    return _METADATA.setdefault(cls, lambda: _find_metadata(cls))


def _find_metadata(cls: Any) -> dict[str, Mapping[Any, Any]]:
    declared: Any = getattr(cls, "__attrs_attrs__", ())
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else declared
    return {f".{field.name}": field.metadata for field in fields if field.metadata}


@dataclasses.dataclass(frozen=True, slots=True)
class Everywhere:
    """Selects all leaves, or none."""

    flag: bool

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"where({self.flag})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return the same for each leaf."""
        return [self.flag] * len(places.leaves)


@dataclasses.dataclass(frozen=True, slots=True)
class LikeTree:
    """Selects by a tree of bools, or of functions, that is a prefix of the tree."""

    prefix: Any

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"where({shorten(self.prefix)})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf what stands in its place, or above.

        Raises:
            TreeError: It is no prefix of the tree.
            TypeError: It holds something else than bools and functions of a leaf.
        """
        flat: tuple[list[Any], Any] = jax.tree_util.tree_flatten(self.prefix)
        said, structure = flat
        try:
            parts = structure.flatten_up_to(places.tree)
        except (ValueError, TypeError, KeyError) as error:
            why = mismatch(self.prefix, places.tree, places.tree)
            msg = f"the tree of bools is no prefix of the tree: {why or error}"
            raise TreeError(msg) from error
        flags: list[bool] = []
        for flag, part in zip(said, parts, strict=True):
            below = jax.tree_util.tree_leaves(part)
            if not isinstance(flag, bool) and callable(flag):
                name_of = functools.partial(_name_behind, places, len(flags))
                flags += said_of(flag, below, name_of)
            elif below:
                given = _as_bool(flag, "the tree of bools has", places.name_of, len(flags))
                flags += [given] * len(below)
        return flags


def _name_behind(places: FlatTree, start: int, leaf: int) -> str:
    return places.name_of(start + leaf)


@dataclasses.dataclass(frozen=True, slots=True)
class Both:
    """Selects what two conditions select."""

    one: Condition
    other: Condition

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"{self.one!r} & {self.other!r}"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether both select it."""
        pairs = zip(self.one.select(places), self.other.select(places), strict=True)
        return [one and other for one, other in pairs]


@dataclasses.dataclass(frozen=True, slots=True)
class Either:
    """Selects what one of two conditions selects."""

    one: Condition
    other: Condition

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return f"({self.one!r} | {self.other!r})"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether one of them selects it."""
        pairs = zip(self.one.select(places), self.other.select(places), strict=True)
        return [one or other for one, other in pairs]


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    """Selects what a condition does not."""

    one: Condition

    def __repr__(self) -> str:
        """Return the code that makes it."""
        inside = f"({self.one!r})" if isinstance(self.one, Both) else repr(self.one)
        return f"~{inside}"

    def select(self, places: FlatTree) -> list[bool]:
        """Return for each leaf whether the condition leaves it out."""
        return [not flag for flag in self.one.select(places)]
