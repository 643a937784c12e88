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
        self._names: frozenset[str] | None = frozenset()
        """The attributes that the function reads; None if that is not known."""

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
        statics = self._callee.statics
        walk = _Walk(self._reads)
        dynamic: Any = args, kwargs
        if statics.numbers or statics.names:
            numbers, names = statics.resolved(len(args)), statics.names
            walk.add([each for place, each in enumerate(args) if place in numbers])
            walk.add([(name, kwargs[name]) for name in names if name in kwargs])
            dynamic = (
                [each for place, each in enumerate(args) if place not in numbers],
                {name: kwargs[name] for name in kwargs if name not in names},
            )
        leaves, treedef = jax.tree_util.tree_flatten(dynamic)
        walk.add(treedef)
        avals = [
            getattr(leaf, "aval", None)
            or (type(leaf), getattr(leaf, "dtype", None), getattr(leaf, "shape", None))
            for leaf in leaves
        ]
        return (*walk.parts, *avals)

    def contents(self, call: Signature) -> dict[str, Content]:
        """Return the classes and the statics of a call, and all that is inside them, by path."""
        found: dict[str, Content] = {path: (cls, cls) for path, cls in call.classes.items()}
        walk = _Walk(self._reads, found)
        for path, value in call.all_statics.items():
            walk.add(value, path)
        return found

    def _reads(self, name: str) -> bool:
        """Return whether the function may read an attribute of a static object."""
        return _is_public(name) if self._names is None else name in self._names


def _is_public(name: str) -> bool:
    return not name.startswith("__")


def content_of(values: Iterable[Any], reads: Callable[[str], bool] = _is_public) -> tuple[Any, ...]:
    """Return what is equal for values of the same types and contents, all the way down."""
    walk = _Walk(reads)
    for each in values:
        walk.add(each)
    return tuple(walk.parts)


class _Walk:
    """A walk over statics, which collects what they are made of."""

    def __init__(
        self, reads: Callable[[str], bool], found: dict[str, Content] | None = None
    ) -> None:
        self.parts: list[Any] = []
        self.found = found
        self._reads = reads
        self._above: set[int] = set()

    def add(self, value: Any, path: str = "") -> None:
        """Add a static, or a part of one."""
        cls: Any = type(value)
        own: Any = value
        below: list[Part] = []
        if cls is float:
            own = value.hex()  # 0.0 is not -0.0
        elif cls in _PLAIN:
            pass
        elif self.found is None and (cls is tuple or cls is list):
            own = tuple(map(type, value))
            if _PLAIN.issuperset(own):
                own = own, *value
            else:
                below = [("", each) for each in value]
        elif id(value) in self._above or len(self.parts) > _MOST_PARTS:
            return
        else:
            own, below = self._read(cls, value)
        self.parts += (cls, own)
        if self.found is not None and own is not MISSING:
            is_kept = cls in _PLAIN or cls is float or issubclass(cls, _UNCHANGING)
            text = value if is_kept else Verbatim(describe_value(value))
            self.found[path] = (cls, own), text
        if below:
            self._above.add(id(value))
            for step, each in below:
                self.add(each, path + step)
            self._above.discard(id(value))

    def _read(self, cls: Any, value: Any) -> tuple[Any, list[Part]]:
        """Return what a value is but for its parts, MISSING if that is not shown; and the parts."""
        way = _WAYS.get(cls) or _WAYS.setdefault(cls, lambda: _find_way(value))
        if way == "identity":
            return ById(value), []
        if way == "opaque" or (way == "array" and value.nbytes > _MOST_BYTES):
            self.parts.append(ById(value))
            return MISSING, []
        if way == "treedef":  # JAX compares neither classes of dataclasses nor types of statics
            nodes = [node for node in value.__getstate__()[1] if node[3] is not None]
            below = [(".node_data()", node[2]) for node in nodes]
            return (value, *[node[3] for node in nodes]), below
        if way in ("object", "record"):
            if compares_by_identity(cls):
                self.parts.append(ById(value))
            fields = record_fields(cls)
            if fields is None:
                pairs = list(stored_attributes(value).items())
            else:
                pairs = [(name, getattr(value, name, MISSING)) for name in fields]
            if way == "object":
                pairs = [pair for pair in pairs if self._reads(pair[0])]
            below = [(f".{name}", each) for name, each in pairs]
            self.parts += [step for step, _ in below]
            return MISSING, below
        kind = kind_of(value)
        kind = kind.attributes[0] if kind.attributes else kind
        content, values = kind.content(value), kind.values(value)
        if not kind.is_ordered:
            return (*content, frozenset(content_of([each], self._reads) for each in values)), []
        if self.found is None:
            return content, [("", each) for each in values]
        keys = content[0] if way in ("dict", "mapping") else 0  # they come first, and have no path
        below = list(zip(kind.steps(value), values, strict=True))[keys:]
        return (*content, *content_of(values[:keys], self._reads)), below


_WAYS: Final[ClassMap[str]] = ClassMap()


def _find_way(value: Any) -> str:
    """Return how values of a class are read."""
    cls: Any = type(value)
    name = kind_of(value).name
    if issubclass(cls, (*_UNCHANGING, jax.Array)):
        return "identity"
    if name not in ("object", "record"):
        return name
    if cls is PyTreeDef:
        return "treedef"
    if is_installed_module(module_of(cls)) and compares_by_identity(cls):
        return "opaque"
    return "record" if is_frozen(cls) else "object"
