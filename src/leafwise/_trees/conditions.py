"""Conditions that select leaves: a path, a class, a function, metadata, a tree of bools."""

import dataclasses
import difflib
import functools
import operator
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
    format_children,
    format_node,
    nowhere,
    place_of,
)
from leafwise.errors import PathError, TreeError


class Condition(Protocol):
    """A rule for which leaves of a tree are selected."""

    def select(self, flat: FlatTree) -> list[bool]:
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
        return f"where({self.text!r})"

    def select(self, flat: FlatTree) -> list[bool]:
        """Return for each leaf whether it stands there."""
        search = _Search(self.steps, len(flat.leaves))
        search.visit(flat.root, (), 0)
        if not search.hit:
            raise self._error(flat, search)
        return search.flags

    def _error(self, flat: FlatTree, search: "_Search") -> PathError:
        wrong, path, part = search.furthest
        here = part.steps if isinstance(part, Node) else ()
        paths = (steps for steps, _ in flat.walk())
        if isinstance(part, int):
            why = f"{flat.name(path)} is a leaf, which has no parts"
        elif self.steps[wrong] in part.names:
            why = f"{part.cls.__name__}{self.steps[wrong]} is static, so that it has no leaves"
        else:
            why = f"{format_node(flat.tree, path, part.cls)}: {format_children(here)}"
        return nowhere(self.text, self.steps, wrong, why, siblings=here, paths=paths)


class _Search:
    """A search for everything that a pattern leads to."""

    def __init__(self, pattern: Steps, leaves: int) -> None:
        self.pattern = pattern
        self.flags = [False] * leaves
        self.hit = False
        self.furthest: tuple[int, Steps, Any] = (-1, (), None)
        self._visited: set[tuple[int, int]] = set()

    def visit(self, part: Node | int, path: Steps, at: int) -> None:
        """Continue from a node or leaf with the step at `at` in the pattern."""
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
                self.hit |= not part.children  # an empty list is not a mistake
                self._visit_children(part, path, at + 1)
            elif (place := place_of(part.steps, step)) is not None:
                self.visit(part.children[place], (*path, part.steps[place]), at + 1)

    def _visit_deep(self, part: Node | int, path: Steps, at: int) -> None:
        if isinstance(part, Node):
            if (id(part), at) in self._visited:  # `**` has matched it in another way
                return
            self._visited.add((id(part), at))
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
        return f"where({_named(self.kind)})"

    def select(self, flat: FlatTree) -> list[bool]:
        flags = [isinstance(leaf, self.kind) for leaf in flat.leaves]
        todo = [flat.root]
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
    """Selects the leaves for which a function returns True."""

    test: Callable[[Any], object]

    def __repr__(self) -> str:
        return f"where({_named(self.test)})"

    def select(self, flat: FlatTree) -> list[bool]:
        """Return what the function returns for each leaf."""
        return _answers(self.test, flat.leaves, flat)


def _answers(
    test: Callable[[Any], Any], leaves: list[Any], flat: FlatTree, start: int = 0
) -> list[bool]:
    """Return what a function returns for leaves, of which `start` is the place of the first."""
    answers: list[Any] = []
    try:
        answers.extend(map(test, leaves))
    except Exception as error:
        leaf = flat.name_of(start + len(answers))
        error.add_note(f"in the condition {_named(test)} for the leaf {leaf}")
        raise
    for place, answer in enumerate(answers):
        if type(answer) is not bool:
            answers[place] = _as_bool(answer, f"{_named(test)} returned", flat, start + place)
    return answers


def _named(thing: Any) -> str:
    name = str(getattr(thing, "__qualname__", None) or shorten(thing))
    return name.removeprefix("jaxlib._jax.")  # where older JAX defines `jax.Array`


def _as_bool(flag: Any, whence: str, flat: FlatTree, leaf: int) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(
            f"{flat.name_of(leaf)}: {whence}: {got(flag)}, where True or False is wanted"
        )
    return bool(flag)


@dataclasses.dataclass(frozen=True, slots=True)
class ByMetadata:
    """Selects by the innermost field on a leaf's path that has an entry in its metadata."""

    key: str
    value: Any

    def __repr__(self) -> str:
        return f"where({self.key}={self.value!r})"

    def select(self, flat: FlatTree) -> list[bool]:
        """Return for each leaf whether that entry is the value."""
        flags = [False] * len(flat.leaves)
        known: set[str] = set()
        todo = [flat.root]
        while todo:  # outer nodes first, so that inner ones override them
            part = todo.pop()
            if isinstance(part, int):
                continue
            todo += part.children
            fields = field_metadata(part.cls)
            for step, child in zip(part.steps, part.children, strict=True) if fields else ():
                entries = fields.get(step, _NO_ENTRIES)
                known.update(key for key in entries if isinstance(key, str))
                if self.key in entries:
                    _mark(flags, child, flag=bool(entries[self.key] == self.value))
        near = difflib.get_close_matches(self.key, known, 1)
        if near and self.key not in known:
            raise PathError(
                f"no field of {type(flat.tree).__name__} has metadata {self.key!r}"
                f"\n  nearest: {near[0]!r}"
            )
        return flags


_NO_ENTRIES: Final[Mapping[Any, Any]] = {}
_METADATA: Final[ClassMap[dict[str, Mapping[Any, Any]]]] = ClassMap()


def field_metadata(cls: type) -> dict[str, Mapping[Any, Any]]:
    """Return the metadata of a class's fields, by the steps to them; empty where none has any."""
    return _METADATA.setdefault(cls, functools.partial(_find_metadata, cls))


def _find_metadata(cls: Any) -> dict[str, Mapping[Any, Any]]:
    declared: Any = getattr(cls, "__attrs_attrs__", ())
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else declared
    return {f".{field.name}": field.metadata for field in fields if field.metadata}


@dataclasses.dataclass(frozen=True, slots=True)
class LikeTree:
    """Selects by a tree of bools, or of functions, that is a prefix of the tree: one bool is."""

    prefix: Any

    def __repr__(self) -> str:
        return f"where({shorten(self.prefix)})"

    def select(self, flat: FlatTree) -> list[bool]:
        """Return for each leaf what stands in its place, or above."""
        flattened: tuple[list[Any], Any] = jax.tree_util.tree_flatten(self.prefix)
        given, structure = flattened
        try:
            parts = structure.flatten_up_to(flat.tree)
        except (ValueError, TypeError, KeyError) as error:
            why = mismatch(self.prefix, flat.tree, flat.tree)
            raise TreeError(
                f"the tree of bools is not a prefix of the tree: {why or error}"
            ) from error
        flags: list[bool] = []
        for flag, part in zip(given, parts, strict=True):
            below = jax.tree_util.tree_leaves(part)
            if not isinstance(flag, bool) and callable(flag):
                flags += _answers(flag, below, flat, start=len(flags))
            elif below:
                flag = _as_bool(flag, "the tree of bools has", flat, len(flags))  # noqa: PLW2901
                flags += [flag] * len(below)
        return flags


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """Selects what two conditions select, or what one of them does."""

    one: Condition
    other: Condition
    both: bool

    def __repr__(self) -> str:
        return f"{self.one!r} & {self.other!r}" if self.both else f"({self.one!r} | {self.other!r})"

    def select(self, flat: FlatTree) -> list[bool]:
        join = operator.and_ if self.both else operator.or_
        return list(map(join, self.one.select(flat), self.other.select(flat)))


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    """Selects what a condition does not."""

    one: Condition

    def __repr__(self) -> str:
        is_joined = isinstance(self.one, Joined) and self.one.both
        return f"~({self.one!r})" if is_joined else f"~{self.one!r}"

    def select(self, flat: FlatTree) -> list[bool]:
        return [not flag for flag in self.one.select(flat)]
