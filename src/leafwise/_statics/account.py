"""What is kept of a value to see later whether it has changed, part by part.

An account is made by the fold (`leafwise._statics.fold`) under a policy of its own: arrays and
objects are known by weak references, mutable values by content up to a size. No user-defined ``==``
runs. What cannot be accounted for counts by identity, and is kept alive if it has no weak
reference, so that no other object gets its address.
"""

import dataclasses
import functools
import pathlib
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import (
    MACHINERY,
    has_hidden_state,
    hides,
    in_class,
    is_plain_object,
    registry_of,
    stored_attributes,
    wrapped_by,
)
from leafwise._objects.classes import is_a, is_tree_node
from leafwise._objects.code import (
    contents,
    facts_of,
    function_in,
    int_as_float,
    is_installed_module,
)
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.methods import JittedFunction
from leafwise._objects.parts import Kind, Part, kind_of
from leafwise._objects.stand_ins import MISSING, ById, Verbatim
from leafwise._objects.text import describe_array, shorten
from leafwise._statics.fold import Fold, Policy, Reader

# Anything larger is compared by identity: a NumPy array or a buffer, a container, an object, what
# is nested more deeply, and the containers and objects of a value beyond the last limit.
MOST_BYTES: Final = 1 << 10
MOST_ITEMS: Final = 32
_MOST_ATTRIBUTES: Final = 128
_DEEPEST: Final = 100
_MOST_PARTS: Final = 4096
_SHOWN: Final = 8  # numbers of an array


class Held(NamedTuple):
    """The step from a function to what it holds: its defaults, or a variable of its closure."""

    text: str
    variable: str = ""

    def __str__(self) -> str:
        """Return the step as part of a path."""
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
        """Whether the part is known by identity alone."""
        return isinstance(self.key, WeakId) and not self.is_exact

    @property
    def text(self) -> str:
        """The part, for messages."""
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


class Treatment(Enum):
    """What the token and the parts of a value say about it."""

    EXACT = auto()  # all of a value that never changes: 0.1, "relu", (1, 2)
    LIGHT = auto()  # likewise, of a package's function or class: jnp.sin
    SAME = auto()  # its identity: a lock, a list of 100 items, an object that occurs again
    CONTENT = auto()  # the content and the parts of its kind: [w, b], partial(f, 1)
    FUNCTION = auto()  # def act(x): ...
    WRAPPER = auto()  # jax.vmap(act)
    NAMESPACE = auto()  # a class or a module of the user's
    OBJECT = auto()  # Model(rate=1.0)


@dataclasses.dataclass(slots=True)
class Node:
    """A value in an account, as long as the account is being made and checked."""

    value: Any
    treatment: Treatment
    parts: Sequence[tuple[Step, Any]] = ()
    keys: Sequence[Any] = ()  # of a mapping


_Entry: TypeAlias = tuple[PartToken, Node]


class AccountFold(Fold):
    """The account of one value.

    Of a plain object of a user's class, only attributes named in `words` count; all if empty.
    """

    __slots__ = ("nodes", "room", "words")

    def __init__(self, words: frozenset[str] = frozenset()) -> None:
        super().__init__(_POLICY, [])
        self.words = words
        self.room = _MOST_PARTS
        self.nodes: dict[Path, Node] = {}

    def account(self) -> Account:
        """Return the tokens of all parts by path."""
        return dict(zip(cast("list[Any]", self.paths), self.tokens, strict=True))

    def take(self, size: int = 0, most: int = 0) -> None:
        """Raise if a value is too large, or the budget for values with parts is used up."""
        if size > most or self.room <= 0:
            raise OverflowError
        self.room -= 1

    def summary(self, owner: Any, values: Iterable[Any]) -> tuple[PartToken, ...]:
        """Return the tokens of what belongs to a value without being one of its parts."""
        start = len(self.tokens)
        try:
            with self.numbered_apart(owner):
                for value in values:
                    self.add(value, ("",))
            return tuple(self.tokens[start:])
        finally:
            self.back_to(start)


def account_of(value: Any, words: frozenset[str] = frozenset()) -> Account:
    """Return the tokens of all parts of a value by path."""
    return AccountFold(words).add(value, ()).account()


def _read(fold: AccountFold, value: Any, path: Path) -> Sequence[Part]:
    """Add the token of a value, and return its parts."""
    # One object in two places is not the same as two equal ones: code may test `a is b`.
    is_known = fold.is_numbered(value) or not is_a(value, _SINGLE)
    if is_known and not fold.enter(value, path, is_shared=True):
        return ()
    try:
        token, node = _entry(fold, value, path)
    except Exception:  # noqa: BLE001  # too large, or the value's own code raises
        token, node = _itself(value)
    fold.push(path, token)
    fold.nodes[path] = node
    if node.treatment is Treatment.CONTENT:
        fold.at_end(functools.partial(_merge, fold, path, len(fold.tokens) - 1))
    elif node.treatment is Treatment.FUNCTION:  # no check reads what it holds
        fold.number_parts_apart()
    steps: Any = [((step,), part) for step, part in node.parts]
    return cast("Sequence[Part]", steps)


def _read_plain(fold: AccountFold, value: Any, path: Path) -> tuple[()]:
    fold.push(path, PartToken((type(value), *kind_of(value).content(value)), value))
    fold.nodes[path] = Node(value, Treatment.EXACT)
    return ()


def _read_again(fold: AccountFold, value: Any, path: Path, number: int) -> None:
    """Add the token of an object that occurs again."""
    fold.push(path, PartToken(("again", number), _text_of(type(value))))
    fold.nodes[path] = Node(value, Treatment.SAME)


def _merge(fold: AccountFold, path: Path, start: int) -> None:
    """Make one token of a value that never changes, or holds only such values, and of its parts."""
    node, tokens = fold.nodes[path], fold.tokens[start:]
    value, name = node.value, kind_of(node.value).name
    is_small = len(tokens) == 1 + len(node.parts) and all(part.is_exact for part in tokens[1:])
    key = tuple(part.key for part in tokens)
    if name in _NEVER_CHANGE or (type(value) is tuple and is_small):  # range(3); (1, "a")
        fold.back_to(start)
        fold.push(path, PartToken(key, value))
        fold.nodes[path] = Node(value, Treatment.EXACT)
    elif name == "array" and is_small:
        fold.back_to(start)
        fold.push(path, PartToken(key, np.array(value)))


def _itself(value: Any) -> _Entry:
    return PartToken(WeakId(value), _text_of(type(value))), Node(value, Treatment.SAME)


def _exact(key: tuple[Any, ...], value: Any) -> _Entry:
    return PartToken(key, value), Node(value, Treatment.EXACT)


def _light(value: Any) -> _Entry:
    return PartToken(WeakId(value), value), Node(value, Treatment.LIGHT)


def _entry(fold: AccountFold, value: Any, path: Path) -> _Entry:
    kind: Any = type(value)
    if is_a(value, _OPAQUE) or hides(value) or len(path) > _DEEPEST:  # weakref.ref(model)
        return _itself(value)
    if is_a(value, jax.Array):  # jnp.ones(3)
        return _token_of_array(value), Node(value, Treatment.SAME)
    if is_a(value, Enum):  # Mode.TRAIN
        return _exact((WeakId(kind), value.name), value)
    if is_a(value, _BY_EQUALITY) and is_installed_module(kind.__module__):  # Path("data")
        return _exact((kind, value), value)
    if is_a(value, types.ModuleType):  # settings
        return _module(fold, value)
    if is_a(value, type):  # Net
        return _class(fold, value)
    if kind is types.FunctionType:  # def act(x): ...
        return _function(fold, value)
    is_partial = is_a(value, functools.partial)  # which may have another's `__wrapped__`
    if callable(value) and not is_partial and (wrapped := wrapped_by(value)) is not None:
        return _wrapper(fold, value, wrapped)  # jax.vmap(act)
    table, is_hidden = kind_of(value), has_hidden_state(kind)
    if table.name == "object" or (table.name in _OBJECTS and not is_hidden):
        return _object(fold, value, table)  # Model(rate=1.0)
    return _by_table(fold, value, table)


def _token_of_array(value: Any) -> PartToken:
    """Return the token of a JAX array: its type, and its content if that is small and available."""
    text = Verbatim(describe_array(value))
    try:
        if value.nbytes > MOST_BYTES or not value.is_fully_addressable or value.is_deleted():
            return PartToken(WeakId(value), text)
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
        with jax.ensure_compile_time_eval():  # also for a key in a trace
            content = np.asarray(jax.random.key_data(value) if is_key else value).tobytes()
    except Exception:  # noqa: BLE001  # donated meanwhile, or a guard forbids the transfer
        return PartToken(WeakId(value), text)
    return PartToken((text, not is_key and value.weak_type, content), text)


def _by_table(fold: AccountFold, value: Any, table: Kind) -> _Entry:
    """Account for a value by its content and its parts, as listed in the table of kinds."""
    if table.name in ("array", "buffer"):
        fold.take(memoryview(value).nbytes, MOST_BYTES)
    else:
        fold.take(len(value) if table.name in SIZED else 0, MOST_ITEMS)
    content, parts = table.read(value)
    key: tuple[Any, ...] = WeakId(type(value)), *content
    keys: list[Any] = []
    if table.name in _MAPPINGS:  # another key is a change of the dict
        keys = [item for _, item in parts[: content[0]]]
        key = *key, *fold.summary(value, keys)
        parts = parts[content[0] :]
    elif not table.is_ordered:
        parts = _with_distinct_steps(parts)
    return PartToken(key, _text_of(type(value))), Node(value, Treatment.CONTENT, parts, keys)


def _with_distinct_steps(parts: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the parts of a set, of which two may have the same text."""
    known: dict[str, Any] = {}
    for step, part in parts:
        while step in known:
            step += "'"  # noqa: PLW2901
        known[step] = part
    return list(known.items())


def _function(fold: AccountFold, value: types.FunctionType) -> _Entry:
    """Account for a function by its code, its globals and what it holds; a package's, by identity.

    Two modules may have the same helper with settings of their own, so its globals count.
    """
    code, facts, choice = value.__code__, facts_of(value.__code__), registry_of(value)
    if facts.installed and not choice and "<locals>" not in code.co_qualname:
        return _light(value)
    fold.take()
    cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
    held = {"registry": choice} if choice else {name: contents(cell) for name, cell in cells}
    for name in held.keys() & {*facts.rebinds}:
        held[name] = int_as_float(held[name])
    parts: list[tuple[Step, Any]] = [
        (Held(".__defaults__"), value.__defaults__),
        (Held(".__kwdefaults__"), value.__kwdefaults__),
        *[(Held(f" holding {name}", name), item) for name, item in held.items()],
    ]
    token = PartToken((types.FunctionType, facts.form, ById(value.__globals__)), FUNCTION)
    return token, Node(value, Treatment.FUNCTION, parts)


def _wrapper(fold: AccountFold, value: Any, wrapped: Any) -> _Entry:
    """Account for the wrapper that a package makes of a function, with its rules and options."""
    kind, parts = type(value), list[tuple[Step, Any]]([(".__wrapped__", wrapped)])
    # What `jax.jit` holds besides its function changes no result.
    if not (is_a(value, JittedFunction) or has_hidden_state(kind)):
        options = _attributes(fold, value, kind_of(value)).items()
        parts += [(f".{name}", item) for name, item in options if not name.startswith("__")]
    token = PartToken((WeakId(kind),), _text_of(kind))
    return token, Node(value, Treatment.WRAPPER, parts)


def _module(fold: AccountFold, value: types.ModuleType) -> _Entry:
    """Account for a module; for one of the user's, with the members that the code names."""
    if is_installed_module(value.__name__):
        return _light(value)
    held = vars(value)
    parts = [(f".{name}", held[name]) for name in sorted(fold.words & held.keys())]
    token = PartToken((value.__name__, WeakId(value)), Verbatim(f"<{value.__name__}>"))
    return token, Node(value, Treatment.NAMESPACE, parts)


def _class(fold: AccountFold, value: type) -> _Entry:
    """Account for a class; for one of the user's, with the data that the code names.

    It is equal to a class of the same name, bases and functions: notebook cells are run again.
    """
    if is_installed_module(value.__module__):
        return _light(value)
    held = vars(value)
    functions = {name: function_in(member) for name, member in list(held.items())}
    functions = {name: item for name, item in functions.items() if hasattr(item, "__code__")}
    made_of = fold.summary(value, (*value.__bases__, *functions.values()))
    data = [name for name in sorted(fold.words & held.keys()) if not is_descriptor(held[name])]
    key = value.__module__, value.__qualname__, *functions, *made_of
    token = PartToken(key, Verbatim(f"<{value.__qualname__}>"))
    return token, Node(value, Treatment.NAMESPACE, [(f".{name}", held[name]) for name in data])


def _object(fold: AccountFold, value: Any, table: Kind) -> _Entry:
    """Account for an object by its class and attributes, if it has no other state."""
    kind = type(value)
    is_opaque = has_hidden_state(kind) or kind.__module__.partition(".")[0] in MACHINERY
    if is_opaque and table.name == "object" and not _is_node(kind):
        return _itself(value)  # a lock, np.random.default_rng(0)
    held = _attributes(fold, value, table)
    fold.take(len(held), _MOST_ATTRIBUTES)
    parts = [(f".{name}", held[name]) for name in sorted(held)]
    return PartToken((WeakId(kind),), _text_of(kind)), Node(value, Treatment.OBJECT, parts)


def _attributes(fold: AccountFold, value: Any, table: Kind) -> dict[str, Any]:
    """Return the attributes of an object that are compared."""
    kind, held = type(value), stored_attributes(value)
    if _is_node(kind):  # a leafwise class stores its statics elsewhere
        fields: Any = dataclasses.fields(cast("Any", kind))
        held = {name: held[name] for name in held if not name.startswith("__")}
        return held | {each.name: getattr(value, each.name, MISSING) for each in fields}
    if table.name == "record":
        return {step.removeprefix("."): item for step, item in table.parts(value)}
    if not (fold.words and is_plain_object(kind)):
        return held
    shared = _data_of_class(kind, fold.words - held.keys())
    return {name: held[name] for name in held if name in fold.words} | shared


def _data_of_class(kind: type, words: frozenset[str]) -> dict[str, Any]:
    """Return the data attributes of a user's class that the code names."""
    own = [base for base in kind.__mro__ if not is_installed_module(base.__module__)]
    names = words.intersection(*[{name for base in own for name in vars(base)}])
    found = {name: in_class(kind, name) for name in names if not name.startswith("__")}
    return {name: each for name, each in found.items() if not is_descriptor(each)}


def _is_node(kind: type) -> bool:
    """Return whether a class is a dataclass that is a pytree node."""
    return dataclasses.is_dataclass(kind) and is_tree_node(kind)


def is_descriptor(value: Any) -> bool:
    """Return whether a class member is read through its ``__get__``."""
    return hasattr(type(value), "__get__")


def _text_of(kind: type) -> Verbatim:
    return Verbatim(f"<{kind.__qualname__}>")


def describe_value(value: Any) -> str:
    """Return a value as text for a message."""
    try:
        if is_a(value, Tracer) or not is_a(value, np.ndarray | jax.Array):
            return shorten(Verbatim(describe(value, DescribeOptions(short=True))), 120)
        array: Any = value
        is_there = not is_a(value, jax.Array) or (array.is_fully_addressable and array.is_ready())
        is_number = not jnp.issubdtype(array.dtype, jax.dtypes.extended)
        is_shown = is_there and is_number and array.size <= _SHOWN
        numbers = f" {shorten(np.asarray(array).tolist(), 80)}" if is_shown else ""
        return describe_array(value) + numbers
    except Exception:  # noqa: BLE001  # the user's own code
        return shorten(value, 120)


FUNCTION: Final = Verbatim("<function>")
_PLAIN: Final = (int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented))
_SINGLE: Final = (np.generic, np.dtype, type, Enum, types.ModuleType)
"""Types whose equal values are interchangeable, or whose values are never equal."""
_OPAQUE: Final = (Tracer, weakref.ReferenceType, *weakref.ProxyTypes)
_BY_EQUALITY: Final = (pathlib.PurePath, jax.P, jax.sharding.Sharding)
_OBJECTS: Final = ("record", "mapping")
"""Kinds of objects that are accounted for by attribute, unless they are written in C."""
_MAPPINGS: Final = ("dict", "mapping")
SIZED: Final = frozenset({"list", "tuple", "deque", "set", "frozenset", *_MAPPINGS})
"""The kinds whose content begins with their number of items."""
_NEVER_CHANGE: Final = frozenset({"plain", "time", "dtype", "range", "slice"})
_READERS: Final[dict[type, Reader]] = {**dict.fromkeys(_PLAIN, _read_plain), object: _read}
_POLICY: Final = Policy(_READERS, Fold.enter, _read_again)
