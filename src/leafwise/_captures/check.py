"""The check of a capture: the parts of its value, and code that tests whether they changed.

It is a fold over the table of kinds (`leafwise._objects.parts`). Nothing large is kept alive:
arrays and objects are held by weak references, and mutable values are compared by content, up to a
size. No user-defined ``==`` runs.
"""

import contextlib
import dataclasses
import functools
import itertools
import linecache
import pathlib
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._captures.places import Names
from leafwise._objects.attributes import (
    MACHINERY,
    dict_of,
    has_hidden_state,
    hides,
    in_class,
    is_plain,
    is_plain_object,
    keeps_in_dict,
    never_changes,
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
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import Kind, kind_of
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import describe_array, shorten

# Anything larger is compared by identity: a NumPy array or a buffer, a container, an object, and
# the containers and objects of a value beyond the last limit.
MOST_BYTES: Final = 1 << 10
MOST_ITEMS: Final = 32
_MOST_ATTRIBUTES: Final = 128
_MOST_PARTS: Final = 4096
_SHOWN: Final = 8  # numbers of an array


# What a value consists of.


class Held(NamedTuple):
    """The step from a function to what it holds: its defaults, or a variable of its closure."""

    text: str
    variable: str = ""

    def __str__(self) -> str:
        """Return the step as part of a path."""
        return self.text


Path: TypeAlias = tuple[str | Held, ...]
"""The path to a part of a value: ``(".layers", "[0]")``; empty for the value itself."""


@dataclasses.dataclass(slots=True, unsafe_hash=True)  # a frozen one takes three times as long
class PartToken:
    """One part of a value, without its own parts; indistinguishable parts have equal tokens."""

    key: Any
    shown: Any = dataclasses.field(compare=False)
    """The value itself if it never changes; otherwise its text, as `Verbatim`."""

    @property
    def is_exact(self) -> bool:
        """Whether the part is a small immutable value."""
        return not isinstance(self.shown, Verbatim)

    @property
    def text(self) -> str:
        """The part, for messages."""
        if isinstance(self.shown, type):
            return self.shown.__qualname__
        return describe_value(self.shown) if self.is_exact else str(self.shown)


Account: TypeAlias = dict[Path, PartToken]
"""All parts of a value, each before its own parts."""


class ByWeakId:
    """The identity of an object, which is not kept alive; for a container, also its size.

    Objects that do not support weak references are compared by address.
    """

    __slots__ = ("_place", "find")

    def __init__(self, value: Any) -> None:
        self._place = _place_of(value)
        self.find: Callable[[], Any] | None = None
        with contextlib.suppress(TypeError):
            self.find = weakref.ref(value)

    def __eq__(self, other: object) -> bool:
        is_there = self.find is None or self.find() is not None
        return isinstance(other, ByWeakId) and self._place == other._place and is_there

    def __hash__(self) -> int:
        return hash(self._place)

    def term(self, at: str, names: Names) -> str:
        """Return an expression that is true only for this object."""
        if self.find is not None:
            return f"{names.of('ref', self.find)}() is {at} is not None"
        return f"{names.of('place_of', _place_of)}({at}) == {names.of('place', self._place)}"


def _place_of(value: Any) -> tuple[int, type[Any], int]:
    kind = type(value)  # an object may deceive `isinstance`, or raise
    return id(value), kind, len(value) if issubclass(kind, list | dict | set) else 0


def _text_of(kind: type) -> Verbatim:
    return Verbatim(f"<{kind.__qualname__}>")


def _token_of_array(value: Any) -> PartToken:
    """Return the token of a JAX array: its type, and its content if that is small and available."""
    text = Verbatim(describe_array(value))
    try:
        if value.nbytes > MOST_BYTES or not value.is_fully_addressable or value.is_deleted():
            return PartToken(ByWeakId(value), text)
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
        with jax.ensure_compile_time_eval():  # also for a key in a trace
            content = np.asarray(jax.random.key_data(value) if is_key else value).tobytes()
    except Exception:  # noqa: BLE001  # donated meanwhile, or a guard forbids the transfer
        return PartToken(ByWeakId(value), text)
    return PartToken((text, not is_key and value.weak_type, content), text)


class Grade(IntEnum):
    """What the identity of a value guarantees."""

    CHANGING = 0  # it may change in place
    FIXED = 1  # the same object always has the same value
    LIGHT = 2  # likewise, and it keeps no array alive


class Checked(NamedTuple):
    """The parts of a value, and expressions that are all true while they are unchanged."""

    token: PartToken
    parts: "_Parts"
    terms: list[str]
    grade: Grade = Grade.CHANGING

    def account(self) -> Account:
        """Return the tokens of all parts by path."""
        account: Account = {}
        todo: list[tuple[Path, Checked]] = [((), self)]
        while todo:
            path, checked = todo.pop()
            while path in account:  # two items of a set with the same text
                path = *path[:-1], f"{path[-1]}'"
            account[path] = checked.token
            todo += [((*path, step), part) for step, part in reversed(checked.parts)]
        return account


_Parts: TypeAlias = Sequence[tuple[str | Held, Checked]]


class CheckFold:
    """Checks one value and its parts; those that are large or opaque by identity.

    For a plain object of a user's class, only attributes named in `words` count; all if empty.
    """

    def __init__(self, names: Names, words: frozenset[str] = frozenset()) -> None:
        self._names = names
        self._words = words
        self._room = _MOST_PARTS
        self._met: dict[int, tuple[int, Any, Grade]] = {}

    def check(self, value: Any, at: str) -> Checked:
        """Check a value or a part of it; `at` is an expression that reads it, and is used once."""
        kind: Any = type(value)
        if kind in _PLAIN:
            return self._exact((kind, *kind_of(value).content(value)), value, at)
        # One object in two places is not the same as two equal ones: code may test `a is b`.
        if id(value) in self._met and not is_a(value, _SINGLE):
            number, _, grade = self._met[id(value)]
            again = PartToken(("again", number), _text_of(kind))
            return self.same(value, at, again, grade=grade)
        number = len(self._met)
        self._met[id(value)] = number, value, Grade.FIXED  # so that the id is not reused
        try:
            checked = self._by_kind(kind, value, at)
        except Exception:  # noqa: BLE001  # too large, or user code that raises
            return self.same(value, at)
        self._met[id(value)] = number, value, max(checked.grade, Grade.FIXED)
        return checked

    def same(
        self,
        value: Any,
        at: str,
        token: PartToken | None = None,
        parts: _Parts = (),
        grade: Grade = Grade.FIXED,
    ) -> Checked:
        """Check that a value is the same object."""
        token = token or PartToken(ByWeakId(value), _text_of(type(value)))
        if grade is Grade.LIGHT and not self._names.is_weak:
            term = f"{at} is {self._names.of('value', value)}"
        else:
            term = ByWeakId(value).term(at, self._names)
        return Checked(token, parts, [term], grade)

    def _exact(self, key: Any, value: Any, at: str) -> Checked:
        """Check a small immutable value, which is kept alive."""
        term = f"{at} is {self._names.of('value', value)}"
        return Checked(PartToken(key, value), (), [term], Grade.LIGHT)

    def _by_kind(self, kind: Any, value: Any, at: str) -> Checked:
        if is_a(value, _OPAQUE) or hides(value):  # weakref.ref(model)
            return self.same(value, at)
        if is_a(value, jax.Array):  # jnp.ones(3)
            return self.same(value, at, _token_of_array(value))
        if is_a(value, Enum):  # Mode.TRAIN
            return self._exact((*_class_key(kind), value.name), value, at)
        if is_a(value, _BY_EQUALITY) and is_installed_module(kind.__module__):  # Path("data")
            return self._exact((kind, value), value, at)
        if is_a(value, type | types.ModuleType):  # Net, settings
            return self._namespace(value, at)
        if kind is types.FunctionType:  # def act(x): ...
            return self._function(value, at)
        is_partial = is_a(value, functools.partial)  # which may have another's `__wrapped__`
        if callable(value) and not is_partial and (wrapped := wrapped_by(value)) is not None:
            return self._wrapper(value, wrapped, at)  # jax.vmap(act)
        table, is_hidden = kind_of(value), has_hidden_state(kind)
        if table.name == "object" or (table.name in _OBJECTS and not is_hidden):
            return self._object(value, table, at)  # Model(rate=1.0)
        return self._by_table(value, table, at)

    def _enter(self, size: int = 0, most: int = 0) -> None:
        """Raise if a value is too large, or the budget for values with parts is used up."""
        if size > most or self._room <= 0:
            raise OverflowError
        self._room -= 1

    def _by_table(self, value: Any, table: Kind, at: str) -> Checked:
        """Check a value by its content and its parts, as listed in the table of kinds."""
        if table.name in ("array", "buffer"):
            self._enter(memoryview(value).nbytes, MOST_BYTES)
        else:
            self._enter(len(value) if table.name in _SIZED else 0, MOST_ITEMS)
        kind, names, one = type(value), self._names, self._names.local()
        content, found = table.read(value)
        terms = [f"{names.of('type', type)}({one} := {at}) is {names.of('kind', kind)}"]
        is_tuple = issubclass(kind, tuple) and kind.__getitem__ is tuple.__getitem__
        is_tuple = is_tuple and tuple.__len__(value) == len(found)
        if kind in _READ_BY_STEPS:  # partial(f, 1): one.func, one.args[0]
            ways = [f"{one}{step}" for step, _ in found]
            for name in _OF_PARTIAL if table.name == "partial" else ():
                size = len(getattr(value, name))
                terms.append(f"{names.of('len', len)}({one}.{name}) == {size}")
        else:
            if table.name not in _SIZED or len(content) > 1:  # array("d", [1]); deque([1], 9)
                read = names.of("content_of", table.content)
                terms.append(f"{read}({one}) == {names.of('content', content)}")
            items, inside = one, one
            if not is_tuple and kind is not list:  # {"w": w}: its keys and values in a list
                inside = names.local()
                items = f"{inside} := {names.of('items', table.values)}({one})"
            terms.append(f"{names.of('len', len)}({items}) == {len(found)}")
            ways = [f"{inside}[{place}]" for place in range(len(found))]
        steps, values = [step for step, _ in found], [item for _, item in found]
        parts = list(zip(steps, map(self.check, values, ways), strict=True))
        is_small = all(part.token.is_exact and not part.parts for _, part in parts)
        key = *_class_key(kind), *content
        if table.name in _NEVER_CHANGE or (kind is tuple and is_small):  # range(3); (1, "a")
            return self._exact((*key, *map(_key, parts)), value, at)
        if table.name == "array" and is_small:
            token = PartToken((*key, *map(_key, parts)), np.array(value))
            return Checked(token, (), [*terms, *_terms(parts)])
        # A dict's keys belong to its token: another key is a change of the dict.
        keys = [part for part in parts if part[0].startswith(" key ")]
        named = [part for part in parts if not part[0].startswith(" key ")]
        token = PartToken((*key, *map(_key, keys)), _text_of(kind))
        grade = _lowest(parts) if is_tuple else Grade.CHANGING
        if grade is Grade.LIGHT:  # (optimizer.init, optimizer.update)
            return self.same(value, at, token, named, grade)
        return Checked(token, named, [*terms, *_terms(parts)], grade)

    def _with_terms(self, value: Any, at: str, one: str, checked: Checked) -> Checked:
        """Check that a value is the same object, and that the terms about its parts are true."""
        token, parts, terms, grade = checked
        if not terms:
            return self.same(value, at, token, parts, grade)
        itself = self.same(value, f"({one} := {at})", token, parts, grade)
        return Checked(token, parts, [*itself.terms, *terms])

    def _function(self, value: types.FunctionType, at: str) -> Checked:
        """Check a function; one from a package is compared by identity."""
        code, names, one = value.__code__, self._names, self._names.local()
        facts, choice = facts_of(code), registry_of(value)
        if facts.installed and not choice and "<locals>" not in code.co_qualname:
            token = PartToken((value.__module__, value.__qualname__), value)
            return self.same(value, at, token, grade=Grade.LIGHT)
        self._enter()
        cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
        held = {} if choice else {name: contents(cell) for name, cell in cells}
        for name in held.keys() & {*facts.rebinds}:
            held[name] = int_as_float(held[name])
        own = {"__defaults__": value.__defaults__, "__kwdefaults__": value.__kwdefaults__}
        met, self._met = self._met, dict(self._met)  # no check reads what it holds
        defaults = [
            (Held(f".{name}"), self.check(each, f"{one}.{name}")) for name, each in own.items()
        ]
        closure = [
            (
                Held(f" holding {name}", name),
                self.check(each, f"{one}.__closure__[{place}].cell_contents"),
            )
            for place, (name, each) in enumerate(held.items())
        ]
        if choice:
            way = Held(" holding registry", "registry")
            closure = [(way, self.check(choice, f"{one}.registry"))]
        self._met = met
        if choice:  # @singledispatch
            terms = _terms(closure)
        elif facts.installed:  # optax.cosine_decay_schedule(0.1, 9)
            # User functions and callable objects in it run, so their reads are observed there.
            is_read = [not callable(each) or _passes_on(each) for each in held.values()]
            terms = _terms(_changing(itertools.compress(closure, is_read)))
        else:
            # Calls pass each parameter without a default. IPython puts new code into old functions.
            new = {"__code__": code} if "IPython" in sys.modules else {}
            of_all = {**own, **new}.items()
            kept = [(name, each) for name, each in of_all if each is not None]
            terms = [f"{one}.{name} is {names.of('value', each)}" for name, each in kept]
        token, parts = PartToken((types.FunctionType, facts.form), FUNCTION), defaults + closure
        grade = max(_lowest(parts), Grade.FIXED)
        return self._with_terms(value, at, one, Checked(token, parts, terms, grade))

    def _wrapper(self, value: Any, wrapped: Any, at: str) -> Checked:
        """Check the wrapper that a package makes of a function, as `jax.jit` does."""
        kind, one = type(value), self._names.local()
        parts: _Parts = [(".__wrapped__", self.check(wrapped, f"{one}.__wrapped__"))]
        token = PartToken(_class_key(kind), _text_of(kind))
        checked = Checked(token, parts, _terms(_changing(parts)), Grade.FIXED)
        return self._with_terms(value, at, one, checked)

    def _namespace(self, value: Any, at: str) -> Checked:
        """Check a class or a module; of a user's, the members that the code names."""
        is_class, one = is_a(value, type), self._names.local()
        name = (value.__module__, value.__qualname__) if is_class else (value.__name__,)
        if is_installed_module(name[0]):
            return self.same(value, at, PartToken(name, value), grade=Grade.LIGHT)
        held, codes = vars(value), list[Any]()
        for each, member in list(held.items()) if is_class else ():
            code = getattr(function_in(member), "__code__", None)
            if isinstance(code, types.CodeType):
                codes.append((each, facts_of(code).form))
        named = sorted(self._words.intersection(held))
        parts: _Parts = [
            (f".{each}", self.check(held[each], f"{one}.__dict__[{each!r}]"))
            for each in named
            if not (is_class and _is_descriptor(held[each]))
        ]
        # A user's class equals one of the same name and code: notebook cells are rerun.
        token, terms = PartToken((*name, *codes), Verbatim(f"<{name[-1]}>")), _terms(parts)
        if not is_class and not self._words.isdisjoint({"getattr", "hasattr"}):
            # A setting that is not there yet: getattr(settings, "debug", False).
            terms.append(f"{self._names.of('len', len)}({one}.__dict__) == {len(held)}")
        return self._with_terms(value, at, one, Checked(token, parts, terms, Grade.LIGHT))

    def _object(self, value: Any, table: Kind, at: str) -> Checked:
        """Check an object by its class and attributes, if it has no other state."""
        kind, names, one = type(value), self._names, self._names.local()
        is_opaque = has_hidden_state(kind) or kind.__module__.partition(".")[0] in MACHINERY
        if is_opaque and table.name == "object" and not _is_node(kind):
            return self.same(value, at)  # a lock, np.random.default_rng(0)
        held, own = self._attributes(value, table), dict_of(value)
        self._enter(len(held), _MOST_ATTRIBUTES)
        is_kept, inside = keeps_in_dict(kind), names.local()
        parts: list[tuple[str, Checked]] = []
        for name in sorted(held):
            way = f"{inside}[{name!r}]" if name in own else f"{one}.{name}"
            parts.append((f".{name}", self.check(held[name], way)))
        token = PartToken(_class_key(kind), _text_of(kind))
        grade = _lowest(parts) if never_changes(kind) else Grade.CHANGING
        # Without a weak reference, a new object may get the same address.
        is_light = grade is Grade.LIGHT and not names.is_weak
        if is_light or (grade is not Grade.CHANGING and ByWeakId(value).find is not None):
            return self.same(value, at, token, parts, grade)  # a frozen dataclass
        is_hidden = in_class(kind, "__dict__") is not MISSING and not is_kept
        if is_hidden or not all(name in own or is_plain(value, name) for name in held):
            return self.same(value, at, token, parts)  # with properties instead of attributes
        terms = [f"{names.of('type', type)}({one} := {at}) is {names.of('kind', kind)}"]
        if is_kept:
            read = names.of("items", in_class(kind, "__dict__").__get__)
            terms.append(f"{names.of('len', len)}({inside} := {read}({one})) == {len(own)}")
        return Checked(token, parts, [*terms, *_terms(parts)], grade)

    def _attributes(self, value: Any, table: Kind) -> dict[str, Any]:
        """Return the attributes of an object that are compared."""
        kind, held = type(value), stored_attributes(value)
        if _is_node(kind):  # a leafwise class stores its statics elsewhere
            fields: Any = dataclasses.fields(cast("Any", kind))
            held = {name: held[name] for name in held if not name.startswith("__")}
            return held | {each.name: getattr(value, each.name, MISSING) for each in fields}
        if table.name == "record":
            return {step.removeprefix("."): item for step, item in table.parts(value)}
        if not (self._words and is_plain_object(kind)):
            return held
        shared = _data_of_class(kind, self._words - held.keys())
        return {name: held[name] for name in held if name in self._words} | shared


def account_of(value: Any, words: frozenset[str] = frozenset()) -> Account:
    """Return the tokens of all parts of a value by path."""
    return CheckFold(Names(is_weak=True), words).check(value, "value").account()


def _key(part: tuple[str | Held, Checked]) -> Any:
    """Return a key that is equal for indistinguishable parts."""
    _, checked = part
    return tuple(checked.account().items()) if checked.parts else checked.token


def _lowest(parts: _Parts) -> Grade:
    return min([part.grade for _, part in parts], default=Grade.LIGHT)


def _changing(parts: Iterable[tuple[str | Held, Checked]]) -> _Parts:
    return [(step, part) for step, part in parts if part.grade is Grade.CHANGING]


def _terms(parts: _Parts) -> list[str]:
    return [term for _, part in parts for term in part.terms]


def _is_node(kind: type) -> bool:
    """Return whether a class is a dataclass that is a pytree node."""
    return dataclasses.is_dataclass(kind) and is_tree_node(kind)


def _class_key(kind: type) -> tuple[Any, ...]:
    """Return the key of a class; a user's class is equal only to itself."""
    name = kind.__module__, kind.__qualname__
    return name if is_installed_module(kind.__module__) else (*name, ByWeakId(kind))


def _data_of_class(kind: type, words: frozenset[str]) -> dict[str, Any]:
    """Return the data attributes of a user's class that the code names."""
    own = [base for base in kind.__mro__ if not is_installed_module(base.__module__)]
    names = words.intersection(*[{name for base in own for name in vars(base)}])
    found = {name: in_class(kind, name) for name in names if not name.startswith("__")}
    return {name: each for name, each in found.items() if not _is_descriptor(each)}


def _passes_on(value: Any) -> bool:
    """Return whether a callable has no user code itself, but may call some."""
    return is_a(value, functools.partial) or (
        is_a(value, types.FunctionType) and facts_of(value.__code__).installed
    )


def _is_descriptor(value: Any) -> bool:
    return hasattr(type(value), "__get__")


FUNCTION: Final = Verbatim("<function>")
_PLAIN: Final = frozenset(
    {int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
_SINGLE: Final = (np.generic, np.dtype, type, Enum, types.ModuleType)
"""Types whose equal values are interchangeable, or whose values are never equal."""
_OPAQUE: Final = (Tracer, weakref.ReferenceType, *weakref.ProxyTypes)
_BY_EQUALITY: Final = (pathlib.PurePath, jax.P, jax.sharding.Sharding)
_OBJECTS: Final = ("record", "mapping")
"""Kinds of objects that are checked by attribute, unless they are written in C."""
_SIZED: Final = frozenset({"list", "tuple", "deque", "set", "frozenset", "dict", "mapping"})
_READ_BY_STEPS: Final = (functools.partial, types.MethodType, BoundMethod)
_OF_PARTIAL: Final = ("args", "keywords", "__dict__")
_NEVER_CHANGE: Final = frozenset({"plain", "time", "dtype", "range", "slice"})


# The code that checks whether values are unchanged.


def check_function(
    names: Names, terms: list[str], call: Callable[..., Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that calls `call` while all terms are true, and `otherwise` if not.

    It reads globals and cells by name, as the user's function does: it has the globals of the
    module, and the user's cells in its closure. For ``lambda x: f(params, x)``, where
    ``params`` is a dict of two arrays, it is::

        def check(*args, **kwargs):
            __tracebackhide__ = True
            try:
                same = (
                    f is value_0
                    and type_1(at_0 := params) is kind_2
                    and len_4(at_1 := items_3(at_0)) == 4
                    and at_1[0] is value_5
                    and at_1[1] is value_6
                    and ref_7() is at_1[2] is not None
                    and ref_8() is at_1[3] is not None
                )
            except Exception_9:
                same = False
            return call_10(*args, **kwargs) if same else otherwise_11(*args, **kwargs)
    """
    if not terms:
        return call
    given = {"Exception": Exception, "call": call, "otherwise": otherwise}
    own = [names.of(name, value) for name, value in given.items()]
    return names.function(_code_of_check(", ".join(names.cells), tuple(terms), *own))


_FILE: Final = "<leafwise check of captures, {} terms>"


@functools.lru_cache(maxsize=256)
def _code_of_check(
    names: str, terms: tuple[str, ...], exception: str, call: str, otherwise: str
) -> types.CodeType:
    lines = [
        f"def make({names}):",
        "    def check(*args, **kwargs):",
        "        __tracebackhide__ = True",
        "        try:",
        "            same = (",
        *[f"                {'and ' * (place > 0)}{each}" for place, each in enumerate(terms)],
        "            )",
        f"        except {exception}:",
        "            same = False",
        f"        return {call}(*args, **kwargs) if same else {otherwise}(*args, **kwargs)",
        "    return check",
    ]
    source = "\n".join(lines) + "\n"
    filename = _FILE.format(len(terms))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    code: types.CodeType = compile(source, filename, "exec")
    for _ in range(2):  # the code of `make`, then that of `check` inside it
        code = next(inner for inner in code.co_consts if isinstance(inner, types.CodeType))
    return code


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
