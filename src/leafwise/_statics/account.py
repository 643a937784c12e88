"""What a value consists of, part by part, to see what has changed or how two values differ.

An account is made by the fold (`leafwise._statics.fold`) under a policy of its own: arrays and
objects are known by weak references, mutable values by content. No user-defined ``==`` runs. Of two
accounts, the first path whose token differs is what changed. What an account does not look into, as
its `Scope` says, counts by identity; without a weak reference it is kept alive, so that no other
object gets its address.
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import (
    DISPATCH,
    MACHINERY,
    compares_by_identity,
    functions_behind,
    functions_in,
    has_hidden_state,
    hides_attributes,
    in_class,
    is_callable,
    is_of_package,
    is_plain_object,
    own_attributes,
    registry_of,
    stored_attributes,
    wrapped_by,
)
from leafwise._objects.classes import declared_fields, is_a, is_tree_node, module_of, per_class
from leafwise._objects.describe import describe_value
from leafwise._objects.interrupts import reraise_interrupt
from leafwise._objects.methods import JittedFunction
from leafwise._objects.parts import Kind, Part, data_of, is_key, kind_of
from leafwise._objects.source.call_site import is_generated_file
from leafwise._objects.source.code import (
    OF_EVERY_CLASS,
    contents,
    facts_of,
    int_as_float,
    is_installed_module,
)
from leafwise._objects.stand_ins import MISSING, ById, Verbatim
from leafwise._objects.text import describe_array, shorten
from leafwise._statics import findings
from leafwise._statics.fold import Fold, Policy, Reader
from leafwise._statics.form import OpaqueTreedef

_DEEPEST: Final = 100


class Scope(NamedTuple):
    """How far an account looks; what is larger, or deeper than 100 levels, counts by identity."""

    most_bytes: int = 1 << 10  # of an array or a buffer
    most_items: int = 32  # in a container; an object may have four times as many
    most_parts: int = 4096  # the containers and objects in one value
    whole: frozenset[str] = frozenset({"reference"})  # the kinds that count by identity
    closed: frozenset[str] = MACHINERY  # the packages whose objects are not looked into
    # Whether each part has a token, also in what never changes, and attributes of functions count.
    is_detailed: bool = False
    is_wide: bool = False  # whether parts come in breadth-first order: what is near comes first


CAPTURED: Final = Scope()
"""What is kept of a captured value."""

BY_CONTENT: Final = Scope(sys.maxsize, sys.maxsize, sys.maxsize, is_detailed=True)
"""How two values differ, what functions hold included."""

_CODE: Final = frozenset({"function", "method", "builtin", "object", "wrapper", "reference"})
BY_IDENTITY: Final = BY_CONTENT._replace(whole=_CODE)
"""How two values differ where functions and objects count by identity."""
OBJECTS: Final = BY_CONTENT._replace(whole=_CODE - {"object"})
"""How two values differ where functions count by identity, and objects by their attributes."""


class Held(NamedTuple):
    """The step from a function to what it holds: its defaults, or a variable of its closure."""

    text: str
    variable: str = ""

    def __str__(self) -> str:
        return self.text


Step: TypeAlias = str | Held
Path: TypeAlias = tuple[Step, ...]
"""The path to a part of a value: ``(".layers", "[0]")``; empty for the value itself."""


@dataclasses.dataclass(slots=True, unsafe_hash=True)  # a frozen one takes three times as long
class PartToken:
    """One part of a value, without its own parts; indistinguishable parts have equal tokens."""

    key: Any
    shown: Any = dataclasses.field(compare=False)
    """The value itself if it never changes; otherwise its text, as `Verbatim`."""

    @property
    def is_exact(self) -> bool:
        """Whether the part is a value that never changes."""
        return not isinstance(self.shown, Verbatim)

    @property
    def is_by_identity(self) -> bool:
        return isinstance(self.key, WeakId) and not self.is_exact

    @property
    def keeps_alive(self) -> bool:
        """Whether the token keeps an object alive that may be large."""
        return isinstance(self.key, WeakId) and not self.key.is_weak

    @property
    def text(self) -> str:
        if isinstance(self.shown, type):
            return self.shown.__qualname__
        return describe_value(self.shown) if self.is_exact else str(self.shown)


Account: TypeAlias = dict[Path, PartToken]
"""All parts of a value, each before its own parts."""


class WeakId:
    """The identity of an object; for a list or a dict, also its size.

    The object is not kept alive, unless it has no weak reference: its address may be given to
    another object once it is freed.
    """

    __slots__ = ("_place", "find", "is_weak")

    def __init__(self, value: Any) -> None:
        self._place = id(value), type(value), size_of(value)
        self.find: Callable[[], Any]
        try:
            self.find, self.is_weak = weakref.ref(value), True
        except TypeError:
            self.find, self.is_weak = lambda: value, False

    def __eq__(self, other: object) -> bool:
        is_there = self.find() is not None
        return isinstance(other, WeakId) and self._place == other._place and is_there

    def __hash__(self) -> int:
        return hash(self._place)


def size_of(value: Any) -> int | None:
    """Return the number of items of a list or a dict; None for any other value."""
    return len(value) if issubclass(type(value), list | dict) else None


class CheckedBy(Enum):
    """What the token and the parts of a value say about it."""

    EXACT = auto()  # all of a value that never changes: 0.1, "relu", (1, 2)
    LIGHT = auto()  # likewise, of a package's function or class: jnp.sin
    SAME = auto()  # its identity: a lock, a list of 100 items, an object that occurs again
    CONTENT = auto()  # the content and the parts of its kind: [w, b], partial(f, 1)
    FUNCTION = auto()  # def act(x): ...
    WRAPPER = auto()  # jax.vmap(act)
    NAMESPACE = auto()  # a user's class or module
    OBJECT = auto()  # Model(rate=1.0)


@dataclasses.dataclass(slots=True)
class PartNode:
    """A value in an account, as long as the account is being made and checked."""

    value: Any
    checked_by: CheckedBy
    parts: Sequence[tuple[Step, Any]] = ()
    keys: Sequence[Any] = ()  # of a mapping


_Entry: TypeAlias = tuple[PartToken, PartNode]
_EntryReader: TypeAlias = Callable[["AccountFold", Any, Kind], _Entry]


class AccountFold(Fold):
    """The account of one value.

    Of a plain object of a user's class, only attributes named in `words` count; all if empty.
    """

    __slots__ = ("nodes", "room", "scope", "words")

    def __init__(self, words: frozenset[str] = frozenset(), scope: Scope = CAPTURED) -> None:
        super().__init__(_POLICY, [])
        self.scope = scope
        self.words = words
        self.room = scope.most_parts
        self.nodes: dict[Path, PartNode] = {}

    def account(self) -> Account:
        return dict(zip(cast("list[Any]", self.paths), self.tokens, strict=True))

    def leading_to(self, path: Path) -> dict[str, Any]:
        """Return the value, the parts of it around a path, and the one at it, by path."""
        ways = (path[:size] for size in range(len(path) + 1))
        return {"".join(map(str, way)): self.nodes[way].value for way in ways}

    def take(self, size: int = 0, most: int = 0) -> None:
        """Raise if a value is too large, or the budget for values with parts is used up."""
        if size > most or self.room <= 0:
            raise OverflowError
        self.room -= 1

    def summary(self, owner: Any, values: Iterable[Any]) -> tuple[PartToken, ...]:
        """Return the tokens of what belongs to a value without being one of its parts."""
        values, start = tuple(values), len(self.tokens)
        if _PLAIN.issuperset(map(type, values)):
            return tuple(map(_plain_token, values))
        try:
            with self.apart(owner):
                for value in values:
                    self.add(value, ("",))
            return tuple(self.tokens[start:])
        finally:
            self.back_to(start)


def account_of(value: Any, words: frozenset[str] = frozenset()) -> Account:
    return AccountFold(words).add(value, ()).account()


def differences(
    one: Any, other: Any, scope: Scope
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the paths at which two values differ, none inside another, and what leads there."""
    if one is other:
        return
    first, second = (AccountFold(scope=scope).add(value, ()) for value in (one, other))
    before, after, paths = first.account(), second.account(), set[Path]()
    for path in {**before, **after}:
        if before.get(path) == after.get(path):
            continue
        # A part that only one of them has is a difference of what it is a part of.
        at = path if path in before and path in after else path[:-1]
        if not any(at[:size] in paths for size in range(len(at) + 1)):
            paths.add(at)
            yield "".join(map(str, at)), first.leading_to(at), second.leading_to(at)


def _read(fold: AccountFold, value: Any, path: Path) -> Sequence[Part]:
    # One object in two places is not the same as two equal ones: code may test `a is b`.
    scope, table = fold.scope, kind_of(value)
    is_numbered = table.name not in _SINGLE or fold.is_numbered(value)
    if is_numbered and not fold.enter(value, path, is_shared=True):
        return ()
    if is_a(value, Tracer):
        fold.findings.append(findings.traced("".join(map(str, path)), value))
    is_whole = table.name in scope.whole or (len(path) > _DEEPEST and not scope.is_wide)
    try:
        read = _whole if is_whole else _reader_of(type(value))
        token, node = read(fold, value, table)
    except Exception as error:  # noqa: BLE001  # too large, or the value's own code raises
        reraise_interrupt(error)
        token, node = _whole(fold, value, table)
    fold.push(path, token)
    if scope.is_wide:
        for step, part in node.parts[: max(0, scope.most_parts - fold.size)]:
            if type(part) in _PLAIN:
                fold.push((*path, step), _plain_token(part))
            else:
                fold.defer(part, (*path, step))
        return ()
    fold.nodes[path] = node
    if node.checked_by is CheckedBy.CONTENT and not scope.is_detailed:
        fold.at_end(functools.partial(_merge, fold, path, len(fold.tokens) - 1))
    elif node.checked_by is CheckedBy.FUNCTION:  # no check reads what it holds
        fold.number_parts_apart()
    steps: Any = [((step,), part) for step, part in node.parts]
    return cast("Sequence[Part]", steps)


def _plain_token(value: Any) -> PartToken:
    return PartToken((type(value), *kind_of(value).content(value)), value)


def _read_plain(fold: AccountFold, value: Any, path: Path) -> tuple[()]:
    fold.push(path, _plain_token(value))
    fold.nodes[path] = PartNode(value, CheckedBy.EXACT)
    return ()


def _read_again(fold: AccountFold, value: Any, path: Path, number: int) -> None:
    fold.push(path, PartToken(("again", number), _known_class(type(value))[1]))
    fold.nodes[path] = PartNode(value, CheckedBy.SAME)


def _merge(fold: AccountFold, path: Path, start: int) -> None:
    """Make one token of a value that never changes, or holds only such values, and of its parts."""
    node, tokens = fold.nodes[path], fold.tokens[start:]
    value, name = node.value, kind_of(node.value).name
    inside = [part.shown for part in tokens[1:] if part.is_exact]
    is_small = len(inside) == len(node.parts) == len(tokens) - 1
    is_small &= not any(isinstance(item, np.ndarray) for item in inside)  # which may change
    key = tuple(part.key for part in tokens)
    if name in _NEVER_CHANGE or (type(value) is tuple and is_small):  # range(3); (1, "a")
        fold.back_to(start)
        fold.push(path, PartToken(key, value))
        fold.nodes[path] = PartNode(value, CheckedBy.EXACT)
    elif name == "array" and is_small:
        fold.back_to(start)
        fold.push(path, PartToken(key, np.array(value)))


@per_class
def _reader_of(kind: Any) -> "_EntryReader":
    if hides_attributes(kind):
        return _whole
    if issubclass(kind, _BY_EQUALITY) and is_installed_module(kind.__module__):
        return _READ_BY_EQUALITY
    return next((reader for kinds, reader in _BY_CLASS if issubclass(kind, kinds)), _unlisted)


def _unlisted(fold: AccountFold, value: Any, table: Kind) -> _Entry:
    if table.name not in ("object", "record", "mapping"):
        return _by_table(fold, value, table)
    if callable(value) and (wrapped := wrapped_by(value)) is not None:
        return _wrapper(fold, value, wrapped)
    if table.name != "object" and has_hidden_state(type(value)):  # written in C
        return _by_table(fold, value, table)
    return _object(fold, value, table)


def _whole(_fold: AccountFold, value: Any, _table: Kind) -> _Entry:
    return PartToken(WeakId(value), _known_class(type(value))[1]), PartNode(value, CheckedBy.SAME)


def _exact(key: Callable[[Any], tuple[Any, ...]]) -> _EntryReader:
    """Return a reader of values that never change, and are equal if their keys are."""

    def read(_fold: AccountFold, value: Any, _table: Kind) -> _Entry:
        return PartToken(key(value), value), PartNode(value, CheckedBy.EXACT)

    return read


def _light(value: Any) -> _Entry:
    return PartToken(WeakId(value), value), PartNode(value, CheckedBy.LIGHT)


def _array(fold: AccountFold, value: Any, _table: Kind) -> _Entry:
    """Account for a JAX array by its type, and its content if that is small and available."""
    text, most = Verbatim(describe_array(value)), fold.scope.most_bytes
    token = PartToken(WeakId(value), text)
    with contextlib.suppress(Exception):  # JAX: donated meanwhile, or a guard forbids the transfer
        if value.nbytes <= most and value.is_fully_addressable and not value.is_deleted():
            with jax.ensure_compile_time_eval():  # also for a key in a trace
                content = data_of(value).tobytes()
            token = PartToken((text, not is_key(value) and value.weak_type, content), text)
    return token, PartNode(value, CheckedBy.SAME)


def _by_table(fold: AccountFold, value: Any, table: Kind) -> _Entry:
    """Account for a value by its content and its parts, as listed in the table of kinds."""
    if table.name in ("array", "buffer"):
        fold.take(memoryview(value).nbytes, fold.scope.most_bytes)
    else:
        fold.take(len(value) if table.name in SIZED else 0, fold.scope.most_items)
    content, parts = table.read(value)
    kind, text = _known_class(type(value))
    if fold.scope.is_detailed and table.name in SIZED:
        text = Verbatim(f"<{text[1:-1]} of {content[0]}>")
    elif fold.scope.is_detailed and table.name == "array":
        text = Verbatim(shorten(value, 60))
    key: tuple[Any, ...] = kind, *content
    keys: list[Any] = []
    if table.name in _MAPPINGS:  # another key is a change of the dict
        keys = [item for _, item in parts[: content[0]]]
        key = *key, *fold.summary(value, keys)
        parts = parts[content[0] :]
    elif not table.is_ordered:  # two items of a set may have the same text
        known: dict[str, Any] = {}
        for step, part in parts:
            while step in known:
                step += "'"  # noqa: PLW2901
            known[step] = part
        parts = list(known.items())
    return PartToken(key, text), PartNode(value, CheckedBy.CONTENT, parts, keys)


def _function(fold: AccountFold, value: types.FunctionType, _table: Kind) -> _Entry:
    """Account for a function by its code, its globals and what it holds; a package's, by identity.

    Two modules may have the same helper with settings of their own, so its globals count.
    """
    code, facts, choice = value.__code__, facts_of(value.__code__), registry_of(value)
    is_made = "<locals>" in code.co_qualname or is_generated_file(code.co_filename)
    if facts.installed and not (choice or is_made):
        return _light(value)
    fold.take()
    cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
    held = {"registry": choice} if choice else {name: contents(cell) for name, cell in cells}
    for name in held.keys() & {*facts.rebinds}:
        held[name] = int_as_float(held[name])
    parts: list[tuple[Step, Any]] = [
        (Held(".__defaults__"), value.__defaults__),
        (Held(".__kwdefaults__"), value.__kwdefaults__),
        *[(Held(f".__closure__[{name!r}]", name), item) for name, item in held.items()],
    ]
    is_detailed, named = fold.scope.is_detailed, sorted(vars(value).items())
    # Where parts are named one by one, equal code in another module is the same function.
    space = value.__globals__
    is_alone = str(space.get("__name__")).startswith("namedtuple_")
    is_alone |= is_generated_file(code.co_filename)  # a library has made them for it
    where = None if is_detailed or is_alone else ById(space)
    kept = vars(value).keys() - (DISPATCH if choice else ()) if is_detailed else fold.words
    own = {name: item for name, item in named if name in kept}
    parts += [(f".{name}", item) for name, item in own.items()]
    names = own if is_detailed else ()  # not those that are asked for
    token = PartToken((types.FunctionType, facts.form, where, *names), FUNCTION)
    return token, PartNode(value, CheckedBy.FUNCTION, parts)


def _wrapper(fold: AccountFold, value: Any, wrapped: Any) -> _Entry:
    """Account for the wrapper that a package makes of a function, with its rules and options."""
    parts: list[tuple[Step, Any]] = [(".__wrapped__", wrapped)]
    # What `jax.jit` holds besides its function changes no result.
    if not (is_a(value, JittedFunction) or has_hidden_state(type(value))):
        options = _attributes(fold, value, kind_of(value))
        parts += [part for part in options if not part[0].startswith(".__")]
    own, text = _known_class(type(value))
    return PartToken((own,), text), PartNode(value, CheckedBy.WRAPPER, parts)


def _module(fold: AccountFold, value: types.ModuleType, _table: Kind) -> _Entry:
    """Account for a module; a user's module with the members that the code names."""
    if is_installed_module(value.__name__):
        return _light(value)
    held = vars(value)
    parts = [(f".{name}", held[name]) for name in sorted(fold.words & held.keys())]
    token = PartToken((value.__name__, WeakId(value)), Verbatim(f"<{value.__name__}>"))
    return token, PartNode(value, CheckedBy.NAMESPACE, parts)


def _class(fold: AccountFold, value: type, _table: Kind) -> _Entry:
    """Account for a class; a user's class with the data that the code names."""
    # It is equal to a class of the same name, bases and functions: notebook cells are run again.
    if is_installed_module(value.__module__):
        return _light(value)
    held = vars(value)
    own = [name for name in list(held) if name not in OF_EVERY_CLASS]
    functions = [(name, behind) for name in own if (behind := functions_behind(held[name]))]
    members = [function for _, behind in functions for function in behind]
    fields = declared_fields(value)  # whose defaults generated code has elsewhere
    names = "default", "default_factory"
    defaults = [getattr(field, name, None) for field in fields for name in names]
    made_of = fold.summary(value, (*value.__bases__, *members, *defaults))
    data = [name for name in sorted(fold.words & held.keys()) if not is_descriptor(held[name])]
    key = value.__module__, value.__qualname__, *[name for name, _ in functions], *made_of
    token = PartToken(key, Verbatim(f"<{value.__qualname__}>"))
    return token, PartNode(value, CheckedBy.NAMESPACE, [(f".{name}", held[name]) for name in data])


def _object(fold: AccountFold, value: Any, table: Kind) -> _Entry:
    """Account for an object by its class and attributes, if it has no other state."""
    kind = type(value)
    is_opaque = has_hidden_state(kind) or module_of(kind).partition(".")[0] in fold.scope.closed
    if is_opaque and table.name == "object" and not _is_node(kind):
        token, node = _whole(fold, value, table)  # a lock, np.random.default_rng(0)
        if fold.scope.is_wide and is_callable(value) and not is_of_package(value):
            held = {id(item): name for name, item in reversed(own_attributes(value).items())}
            functions = functions_in(value)
            node.parts = [(f".{held.get(id(part), '__wrapped__')}", part) for part in functions]
        return token, node
    parts = _attributes(fold, value, table)
    fold.take(len(parts), 4 * fold.scope.most_items)
    # An object with its own `==` and some attributes may fill caches; others may gain none.
    is_closed = fold.scope.is_detailed and (compares_by_identity(kind) or not parts)
    names = ([step for step, _ in parts] or [""]) if is_closed else ()
    own, text = _known_class(type(value))
    return PartToken((own, *names), text), PartNode(value, CheckedBy.OBJECT, parts)


def _attributes(fold: AccountFold, value: Any, table: Kind) -> list[Part]:
    kind, is_node = type(value), _is_node(type(value))
    if table.name == "record" and not is_node:
        return table.parts(value)
    held = stored_attributes(value)
    if is_node:  # a leafwise class stores its statics elsewhere
        fields: Any = dataclasses.fields(cast("Any", kind))
        held = {name: held[name] for name in held if not name.startswith("__")}
        held |= {field.name: getattr(value, field.name, MISSING) for field in fields}
    elif fold.words and is_plain_object(kind):
        own = [base for base in kind.__mro__ if not is_installed_module(base.__module__)]
        names = {name for base in own for name in vars(base) if not name.startswith("__")}
        members = {name: in_class(kind, name) for name in names & (fold.words - held.keys())}
        shared = {name: item for name, item in members.items() if not is_descriptor(item)}
        held = {name: held[name] for name in held if name in fold.words} | shared
    return [(f".{name}", held[name]) for name in sorted(held)]


def _is_node(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and is_tree_node(kind)


def is_descriptor(value: Any) -> bool:
    return hasattr(type(value), "__get__")


@per_class
def _known_class(kind: type) -> tuple[WeakId, Verbatim]:
    return WeakId(kind), Verbatim(f"<{kind.__qualname__}>")


FUNCTION: Final = Verbatim("<function>")
_PLAIN: Final[frozenset[type]] = frozenset(
    {int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
_SINGLE: Final = ("plain", "dtype", "identity")
"""The kinds whose equal values are interchangeable, or whose values are never equal."""
_BY_EQUALITY: Final = (pathlib.PurePath, jax.P, jax.sharding.Sharding)
_READ_BY_EQUALITY: Final = _exact(lambda value: (value.__class__, value))
_BY_CLASS: Final[tuple[tuple[Any, _EntryReader], ...]] = (
    ((Tracer, *weakref.ProxyTypes), _whole),
    (jax.Array, _array),  # jnp.ones(3)
    (Enum, _exact(lambda member: (_known_class(type(member))[0], member.name))),  # Mode.TRAIN
    (types.ModuleType, _module),  # settings
    (type, _class),  # Net
    (types.FunctionType, _function),  # def act(x): ...
    (jax.tree_util.PyTreeDef, _exact(lambda value: (OpaqueTreedef(value, hash(value)),))),
)
_MAPPINGS: Final = ("dict", "mapping")
SIZED: Final = frozenset({"list", "tuple", "deque", "set", "frozenset", *_MAPPINGS})
"""The kinds whose content begins with their number of items."""
_NEVER_CHANGE: Final = frozenset({"plain", "time", "dtype", "range", "slice"})
_READERS: Final[dict[type, Reader]] = {**dict.fromkeys(_PLAIN, _read_plain), object: _read}
_POLICY: Final = Policy(_READERS, Fold.enter, _read_again)
