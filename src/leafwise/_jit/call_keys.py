"""What a call of a jitted function is made of, by content."""

import contextlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

import jax
from jax.tree_util import PyTreeDef

from leafwise._captures.fingerprint import describe_value
from leafwise._captures.observation import Observation
from leafwise._compare.signature import Signature
from leafwise._jit.callee import Callee
from leafwise._jit.programs import Program
from leafwise._objects.attributes import (
    compares_by_identity,
    is_frozen,
    record_fields,
    stored_attributes,
)
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import module_of
from leafwise._objects.code import is_installed_module
from leafwise._objects.parts import Part, kind_of
from leafwise._objects.stand_ins import MISSING, ById
from leafwise._objects.text import Verbatim
from leafwise._statics.key import StaticKey

_PLAIN: Final = frozenset({int, str, bool, bytes, type(None), StaticKey})
_UNCHANGING: Final = (type, types.ModuleType, types.FunctionType, Enum)
"""Types whose content cannot change, or is looked at elsewhere: what a function reads is that."""
_MOST_PARTS: Final = 1 << 15
_MOST_BYTES: Final = 1 << 20
_READS_ANY: Final = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "fields"})

Content: TypeAlias = tuple[Any, Any]
"""What is equal for statics that are the same but for their parts; and the value, or its text."""


class CallKeys:
    """Returns the keys of the calls of one function."""

    def __init__(self, callee: Callee) -> None:
        self._callee = callee
        # The attributes that the function reads; None if that is not known.
        self._names: frozenset[str] | None = frozenset()

    def note(self, program: Program, current: Observation | None) -> None:
        """Keep what the statics of a program are, after its trace."""
        names = self._names
        if names is not None and current is not None:
            names = names.union(current.words)
        self._names = None if current is None or names is None or names & _READS_ANY else names
        if program.signature is not None:
            with contextlib.suppress(Exception):  # code of the values' own classes
                program.contents = self.contents(program.signature)

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what a call is made of: its statics, and the abstract values of its leaves."""
        statics, found = self._callee.statics, list[_Read]()
        dynamic: Any = args, kwargs
        if statics.numbers or statics.names:
            numbers, names = statics.resolved(len(args)), statics.names
            given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
            static = [each for each in given if each in numbers or each in names]
            _read([(each, given.pop(each)) for each in static], "", self._reads, found)
            dynamic = given
        leaves, treedef = jax.tree_util.tree_flatten(dynamic)
        _read(treedef, "", self._reads, found)
        avals = [
            getattr(leaf, "aval", None)
            or (type(leaf), getattr(leaf, "dtype", None), getattr(leaf, "shape", None))
            for leaf in leaves
        ]
        return (*[content for _, content, _ in found], *avals)

    def contents(self, call: Signature) -> dict[str, Content]:
        """Return the classes and the statics of a call, and all that is inside them, by path."""
        contents: dict[str, Content] = {path: (cls, cls) for path, cls in call.classes.items()}
        found: list[_Read] = []
        for path, value in call.all_statics.items():
            _read(value, path, self._reads, found)
        for path, content, value in found:
            is_kept = type(value) in _PLAIN or isinstance(value, (float, *_UNCHANGING))
            text = value if is_kept else Verbatim(describe_value(value))
            if value is not MISSING:
                contents[path] = content, text
        return contents

    def _reads(self, name: str) -> bool:
        """Return whether the function may read an attribute of a static object."""
        return _is_public(name) if self._names is None else name in self._names


def _is_public(name: str) -> bool:
    return not name.startswith("__")


def content_of(values: Iterable[Any], reads: Callable[[str], bool] = _is_public) -> tuple[Any, ...]:
    """Return what is equal for values of the same types and contents, all the way down."""
    found: list[_Read] = []
    for each in values:
        _read(each, "", reads, found)
    return tuple([content for _, content, _ in found])


_Read: TypeAlias = tuple[str, Any, Any]
"""The path to a part, what it is but for its own parts, and itself; `MISSING` if only these say."""


def _read(
    value: Any,
    path: str,
    reads: Callable[[str], bool],
    found: list[_Read],
    above: tuple[int, ...] = (),
) -> None:
    """Add what a static is made of, and its parts."""
    cls: Any = type(value)
    if cls in _PLAIN or cls is float:
        content = value.hex() if cls is float else value  # 0.0 is not -0.0
        found.append((path, (cls, content), value))
    elif id(value) not in above and len(found) <= _MOST_PARTS:
        way = _WAYS.get(cls) or _WAYS.setdefault(cls, lambda: _find_way(value))
        content, below = _apart(value, way, reads)
        is_shown = way == "identity" or not (way in _OBJECTS or isinstance(content, ById))
        found.append((path, (cls, content), value if is_shown else MISSING))
        for step, each in below:
            _read(each, path + step, reads, found, (*above, id(value)))


def _apart(value: Any, way: str, reads: Callable[[str], bool]) -> tuple[Any, list[Part]]:
    """Return what a value is but for its parts, and the parts."""
    cls: Any = type(value)
    if way in ("identity", "opaque") or (way == "array" and value.nbytes > _MOST_BYTES):
        return ById(value), []
    if cls is tuple or cls is list:
        kinds = tuple(map(type, value))
        if _PLAIN.issuperset(kinds):
            return (kinds, *value), []
        return kinds, [(f"[{place}]", each) for place, each in enumerate(value)]
    if way == "treedef":  # JAX compares neither classes of dataclasses nor types of statics
        nodes = [node for node in value.__getstate__()[1] if node[3] is not None]
        below = [(".node_data()", node[2]) for node in nodes]
        return (value, *[node[3] for node in nodes]), below
    if way in _OBJECTS:
        fields, pairs = record_fields(cls), list(stored_attributes(value).items())
        if fields is not None:
            pairs = [(name, getattr(value, name, MISSING)) for name in fields]
        below = [(f".{name}", each) for name, each in pairs if way == "record" or reads(name)]
        itself = compares_by_identity(cls) and ById(value)
        return (itself, *[step for step, _ in below]), below
    kind = kind_of(value)
    content, below = (kind.attributes[0] if kind.attributes else kind).read(value)
    if not kind.is_ordered:
        return (*content, frozenset(content_of([each], reads) for _, each in below)), []
    keys = [each for step, each in below if step.startswith(" key ")]  # they have no path
    return (*content, *content_of(keys, reads)), below[len(keys) :]


_WAYS: Final[ClassMap[str]] = ClassMap()
_OBJECTS: Final = ("object", "record")


def _find_way(value: Any) -> str:
    """Return how values of a class are read."""
    cls: Any = type(value)
    name = kind_of(value).name
    if issubclass(cls, (*_UNCHANGING, jax.Array)):
        return "identity"
    if name not in _OBJECTS:
        return name
    if cls is PyTreeDef:
        return "treedef"
    if is_installed_module(module_of(cls)) and compares_by_identity(cls):
        return "opaque"
    return "record" if is_frozen(cls) else "object"
