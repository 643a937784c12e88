"""What a call of a jitted function is made of, by content: fast to find, and fast to compare."""

import contextlib
import functools
import itertools
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from leafwise._captures.fingerprint import describe_value
from leafwise._captures.forms import fingerprint
from leafwise._captures.observation import Observation
from leafwise._compare.signature import Signature
from leafwise._jit.callee import Callee
from leafwise._jit.programs import Program
from leafwise._objects.attributes import (
    compares_by_identity,
    dict_of,
    has_hidden_state,
    is_frozen,
    slots_of,
    stored_attributes,
)
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import module_of
from leafwise._objects.code import is_installed_module
from leafwise._objects.text import Verbatim
from leafwise._statics.key import StaticKey

_PLAIN: Final = frozenset({int, str, bool, bytes, type(None)})
_BY_IDENTITY: Final = (type, types.ModuleType, types.FunctionType, Enum, jax.Array, StaticKey)
"""Types whose content cannot change, or is looked at elsewhere: what a function reads is that."""
_UNCHANGING: Final = (float, type, types.ModuleType, types.FunctionType, Enum)
_NUMBERS: Final = itertools.count()
_MOST_KEPT: Final = 1024
_DEEPEST: Final = 20
_MOST_PARTS: Final = 1024
_READS_ANY: Final = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "fields"})


class Content(NamedTuple):
    """A static, or a part of one, as it was when a program was made for it.

    Attributes:
        form: Equal for values that cannot be distinguished.
        value: The value, or its text where it can change.
        owner: The identity of the value, if its form says nothing of another one.
    """

    form: Any
    value: Any
    owner: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether it is compared as a whole here, and not by its parts."""
        return not self.owner and isinstance(self.form, tuple)

    def differs(self, now: "Content") -> bool:
        """Return whether it was another value."""
        return self.form != now.form and self.owner == now.owner


class CallKeys:
    """Returns the keys of the calls of one function.

    Args:
        callee: The function, and which of its arguments are static.
    """

    def __init__(self, callee: Callee) -> None:
        self._callee = callee
        self._names: frozenset[str] | None = frozenset()
        """The attributes that the function reads; None if that is not known."""
        self._plans: dict[Any, _Plan | None] = {}
        self._tokens: dict[tuple[Any, ...], tuple[int, list[Any]]] = {}
        self._forms: dict[int, tuple[Any, Any]] = {}

    def note(self, program: Program, current: Observation | None) -> None:
        """Keep what the statics of a program are, after its trace.

        Args:
            program: The program.
            current: What the trace has read; of a mutable object only names in its code count.
        """
        names = self._names
        if names is not None and current is not None:
            names = names.union(current.words)
        self._names = None if current is None or names is None or names & _READS_ANY else names
        if program.signature is not None:
            with contextlib.suppress(Exception):  # code of the values' own classes
                program.contents = self.contents(program.signature)

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "CallKey":
        """Return what a call is made of.

        Raises:
            Exception: What the flatten or the ``==`` of the user's classes raises.
        """
        statics = self._callee.statics
        made = _Walk(self, None)
        dynamic: Any = (args, kwargs)
        if statics.numbers or statics.names:
            numbers = statics.resolved(len(args))
            named = [name for name in statics.names if name in kwargs]
            dynamic = (
                [each for place, each in enumerate(args) if place not in numbers],
                {name: kwargs[name] for name in kwargs if name not in named},
            )
            for value in [args[place] for place in sorted(numbers) if place < len(args)]:
                made.add(value)
            for name in named:
                made.parts.append(name)
                made.add(kwargs[name])
        leaves, treedef = jax.tree_util.tree_flatten(dynamic)
        made.add_treedef(treedef)
        made.parts += [getattr(leaf, "aval", None) or _aval_of(leaf) for leaf in leaves]
        return CallKey(tuple(made.parts), made.kept)

    def contents(self, call: Signature) -> dict[str, Content]:
        """Return the statics of a call by path, with those inside them that can change."""
        walk = _Walk(self, {})
        for path, value in call.all_statics.items():
            walk.add(value, path)
        return walk.found or {}

    def plan(self, treedef: Any) -> "_Plan | None":
        """Return where in a treedef there are statics."""
        try:
            return self._plans[treedef]
        except KeyError:
            if len(self._plans) >= _MOST_KEPT:
                self._plans.clear()
            found = self._plans[treedef] = _plan_of(treedef)
            return found

    def form(self, value: Any) -> Any:
        """Return what is equal for values that cannot be distinguished; it is found once."""
        known = self._forms.get(id(value))
        if known is not None:
            return known[1]
        found = fingerprint(value)
        if len(self._forms) >= _MOST_KEPT:
            self._forms.clear()
        if found.is_fixed:
            self._forms[id(value)] = value, found.form
        return found.form

    def token(self, parts: tuple[Any, ...], kept: list[Any]) -> int:
        """Return a number that is the same for equal parts."""
        known = self._tokens.get(parts)
        if known is None:
            if len(self._tokens) >= _MOST_KEPT:
                self._tokens.clear()
            known = self._tokens[parts] = next(_NUMBERS), kept
        return known[0]

    def reads(self, name: str) -> bool:
        """Return whether the function may read an attribute of a static object."""
        return name in self._names if self._names is not None else not name.startswith("__")


class CallKey(NamedTuple):
    """What a call is made of.

    Attributes:
        parts: Its statics, where they are, and the abstract values of its leaves.
        kept: The objects whose identities are among them, which must live as long.
    """

    parts: tuple[Any, ...]
    kept: list[Any]


def _aval_of(leaf: Any) -> Any:
    return type(leaf), getattr(leaf, "dtype", None), getattr(leaf, "shape", None)


class _Plan:
    """Where in a treedef there are statics.

    Attributes:
        has_statics: Whether the node itself has some.
        below: The plans of those of its children that have, by place.
        last: The statics that it had last, if those cannot change, and what stands for them.
    """

    __slots__ = ("below", "has_statics", "last")

    def __init__(self, below: "tuple[tuple[int, _Plan], ...]", *, has_statics: bool) -> None:
        self.below = below
        self.has_statics = has_statics
        self.last: tuple[tuple[Any, ...], int] = (self,), 0


def _plan_of(treedef: Any) -> _Plan | None:
    data = treedef.node_data()
    if data is None:
        return None
    plans = [(place, _plan_of(child)) for place, child in enumerate(treedef.children())]
    below = tuple((place, plan) for place, plan in plans if plan is not None)
    cls, aux = data
    if issubclass(cls, dict):
        has_statics = any(type(key) is not str for key in _keys_of(aux))
    else:
        is_sequence = cls in (list, tuple) or isinstance(aux, type)  # of a namedtuple the class
        has_statics = not (aux is None or aux == () or is_sequence)
    return _Plan(below, has_statics=has_statics) if has_statics or below else None


def _keys_of(aux: Any) -> Iterable[Any]:
    return aux if isinstance(aux, list | tuple) else (None,)


class _Walk:
    """A walk over statics, which collects what they are made of.

    Attributes:
        parts: Types, plain values, forms and identities.
        kept: The objects whose identities are among them.
        found: By path, what they are; None if paths are not wanted.
        can_change: Whether something was met that can change in place.
    """

    def __init__(self, keys: CallKeys, found: dict[str, Content] | None) -> None:
        self.keys = keys
        self.parts: list[Any] = []
        self.kept: list[Any] = []
        self.found = found
        self.can_change = False
        self._depth = 0
        self._inside: list[int] = []

    def add_treedef(self, treedef: Any) -> None:
        """Add the statics in a treedef."""
        plan = self.keys.plan(treedef)
        self.parts.append(id(plan))
        self.kept.append(plan)
        if plan is not None:
            self._follow(plan, treedef)

    def _follow(self, plan: _Plan, treedef: Any) -> None:
        if plan.has_statics:
            self._add_statics(plan, treedef.node_data()[1])
        if plan.below:
            children = treedef.children()
            for place, each in plan.below:
                self._follow(each, children[place])

    def _add_statics(self, plan: _Plan, statics: Any) -> None:
        """Add the statics of a node: mostly the objects that they were in the call before."""
        is_tuple = type(statics) is tuple
        last, token = plan.last  # of one thread
        if is_tuple and len(statics) == len(last) and all(map(operator.is_, statics, last)):
            self.parts.append(token)
            return
        inner = _Walk(self.keys, None)
        inner.add(statics)
        token = self.keys.token(tuple(inner.parts), inner.kept)
        self.parts.append(token)
        self.can_change = self.can_change or inner.can_change
        if is_tuple and not inner.can_change:
            plan.last = statics, token

    def add(self, value: Any, path: str = "") -> None:
        """Add a static, or a part of one."""
        kind: Any = type(value)
        parts = self.parts
        parts.append(kind)
        if kind in _PLAIN:
            parts.append(value)
        elif kind is float:
            parts.append(value.hex())  # 0.0 is not -0.0
        elif kind is PyTreeDef:
            self.add_treedef(value)
        elif (
            (facts := _facts_of(kind)).is_identity
            or self._depth >= _DEEPEST
            or len(parts) >= _MOST_PARTS
        ):
            self._add_identity(value)
        else:
            self._depth += 1
            try:
                self._add_parts(kind, facts, value, path)
            finally:
                self._depth -= 1
            return
        if self.found is not None and path:  # not a key of a dict
            kept = value if kind in _PLAIN or issubclass(kind, _UNCHANGING) else _text(value)
            self.found[path] = Content((kind, parts[-1]), kept)

    def _add_identity(self, value: Any) -> None:
        self.parts.append(id(value))
        self.kept.append(value)

    def _add_parts(self, kind: Any, facts: "_KindFacts", value: Any, path: str) -> None:
        wants_paths = bool(path)
        if issubclass(kind, tuple | list):
            self.parts.append(len(value))
            if not issubclass(kind, tuple):
                self._found(path, len(value), value)
            for place, each in enumerate(value):
                self.add(each, f"{path}[{place}]" if wants_paths else "")
        elif issubclass(kind, dict):
            self.parts.append(len(value))
            self._found(path, list(value), value)
            for key, each in list(value.items()):
                self.add(key)
                self.add(each, f"{path}[{key!r}]" if wants_paths else "")
        else:
            if facts.compares_by_identity:
                self._add_identity(value)
            if facts.has_attributes:
                self._add_attributes(facts, value, path if wants_paths else None)
            else:
                form = self.keys.form(value)
                self.parts.append(form)
                self._found(path, form, value, id(value))

    def _add_attributes(self, facts: "_KindFacts", value: Any, path: str | None) -> None:
        self.can_change = self.can_change or not facts.is_frozen
        if id(value) in self._inside:  # it leads to itself
            return
        self._inside.append(id(value))
        for name, each in list(facts.read(value).items()):
            if facts.is_frozen or self.keys.reads(name):
                self.parts.append(name)
                self.add(each, "" if path is None else f"{path}.{name}")
        self._inside.pop()

    def _found(self, path: str, form: Any, value: Any, owner: int = 0) -> None:
        self.can_change = True
        if self.found is not None and path:  # not a key of a dict
            self.found[path] = Content(form, _text(value), owner)


def _text(value: Any) -> Verbatim:
    return Verbatim(describe_value(value))


def _facts_of(kind: Any) -> "_KindFacts":
    return _FACTS.get(kind) or _FACTS.setdefault(kind, lambda: _find_facts(kind))


class _KindFacts(NamedTuple):
    """What is known of all values of a class.

    Attributes:
        is_identity: Whether a value is known by its identity alone.
        has_attributes: Whether it is what its attributes are, as far as anybody can see: of the
            user's classes, and of those of packages that compare by value.
        compares_by_identity: Whether it has no ``==`` of its own.
        is_frozen: Whether its attributes cannot be assigned.
        read: Returns its attributes.
    """

    is_identity: bool
    has_attributes: bool
    compares_by_identity: bool
    is_frozen: bool
    read: Callable[[Any], dict[str, Any]]


_FACTS: Final[ClassMap[_KindFacts]] = ClassMap()


def _find_facts(kind: Any) -> _KindFacts:
    module = module_of(kind)
    by_identity = compares_by_identity(kind)
    hides = kind.__getattribute__ is not object.__getattribute__ or has_hidden_state(kind)
    is_array = issubclass(kind, np.ndarray | np.generic)
    has_attributes = not (hides or is_array or (is_installed_module(module) and by_identity))
    has_caches = any(isinstance(each, functools.cached_property) for each in _members(kind))
    is_plain = not (slots_of(kind) or has_caches)
    return _KindFacts(
        issubclass(kind, _BY_IDENTITY) or module.startswith(("jax.", "jaxlib.")),
        has_attributes,
        by_identity,
        is_frozen(kind),
        dict_of if is_plain else stored_attributes,
    )


def _members(kind: type) -> Iterable[Any]:
    return [each for base in kind.__mro__ for each in vars(base).values()]
