"""The form of a value: equal exactly as long as two values cannot be distinguished.

It is a fold over the table of kinds (`leafwise._objects.parts`). Nothing large is kept alive: of an
array, a function or an object there is a weak reference, of what can change in place the content,
up to a size. No ``==`` of the user's runs.
"""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

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
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import Kind, kind_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import describe_array

# What is larger is compared by identity: a NumPy array or a buffer, a container, an object, and
# the containers and objects of a value after so many.
MOST_BYTES: Final = 1 << 10
MOST_ITEMS: Final = 32
_MOST_ATTRIBUTES: Final = 128
_MOST_PARTS: Final = 4096


class Fingerprinted(NamedTuple):
    """The fingerprint of a value."""

    form: Any
    """Equal for values that cannot be distinguished; hashable."""
    source: "Source"
    """Returns expressions, all true as long as another one, read once, has the value unchanged."""
    is_fixed: bool = False
    """Whether it is the same as long as it is the same object."""
    is_light: bool = False
    """Whether it keeps no array alive."""


class Names:
    """The variables of generated code: those of the user's that it reads, and values of its own.

    The names of its own end with a number.
    """

    def __init__(self, space: dict[str, Any] | None = None) -> None:
        self.space: dict[str, Any] = {} if space is None else space  # its globals
        self.cells: dict[str, types.CellType] = {}
        self._known: dict[tuple[str, int], str] = {}
        self._locals = itertools.count()

    def is_free(self, name: str) -> bool:
        """Return whether no variable of the code has a name that a global has."""
        return not name[-1].isdigit() and name not in ("args", "kwargs", "same", "value")

    def local(self) -> str:
        """Return a new name of a local variable."""
        return f"at_{next(self._locals)}"

    def of(self, kind: str, value: Any) -> str:
        """Return the name of a value, which begins with a word for what it is."""
        name = self._known.setdefault((kind, id(value)), f"{kind}_{len(self.cells)}")
        self.cells.setdefault(name, types.CellType(value))
        return name

    def of_cell(self, variable: str, cell: types.CellType) -> str:
        """Return the name of a variable of the user's, in whose cell the code reads it."""
        name = self._known.setdefault(("cell", id(cell)), f"{variable}_{len(self.cells)}")
        self.cells[name] = cell
        return name

    def function(self, code: types.CodeType) -> Callable[..., Any]:
        """Return the function of a code that has these names."""
        cells = tuple(self.cells[name] for name in code.co_freevars)
        return types.FunctionType(code, self.space, code.co_name, None, cells)


Source: TypeAlias = Callable[[str, Names], list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Exact:
    """The form of a small value that never changes, which it keeps: equal where the key is."""

    key: Any
    value: Any = dataclasses.field(compare=False)


class Form(NamedTuple):
    """The form of a value with parts."""

    text: str
    """The value, for messages."""
    kind: Any
    """The class, and what else is not one of its parts."""
    steps: tuple[str, ...]
    """The way to each part: ``.rate``, ``['a']``; empty if it has no name."""
    parts: tuple[Any, ...]

    def named(self) -> dict[str, Any]:
        """Return the parts that have a name."""
        return {step: part for step, part in zip(self.steps, self.parts, strict=True) if step}


class ByWeakId:
    """An object that is equal to itself alone, and is not kept alive; a container with its size.

    Of one that takes no weak references, the address is compared.
    """

    __slots__ = ("_place", "find", "text")

    def __init__(self, value: Any, text: str = "") -> None:
        self._place = _place_of(value)
        self.find: Callable[[], Any] | None = None
        with contextlib.suppress(TypeError):
            self.find = weakref.ref(value)
        self.text = text or _text_of(type(value))

    def __eq__(self, other: object) -> bool:
        is_there = self.find is None or self.find() is not None
        return isinstance(other, ByWeakId) and self._place == other._place and is_there

    def __hash__(self) -> int:
        return hash(self._place)

    def source(self, found: str, names: Names) -> list[str]:
        """Return the expression that is true of this object alone."""
        if self.find is not None:
            return [f"{names.of('ref', self.find)}() is {found} is not None"]
        return [f"{names.of('place_of', _place_of)}({found}) == {names.of('place', self._place)}"]


def _text_of(kind: type) -> str:
    return f"<{kind.__qualname__}>"


def _place_of(value: Any) -> tuple[int, type[Any], int]:
    kind = type(value)  # an object may say another thing to `isinstance`, or raise
    return id(value), kind, len(value) if issubclass(kind, list | dict | set) else 0


def _form_of_array(value: Any) -> "Form | ByWeakId":
    """Return the form of a JAX array: its type and content, if that is small and can be had."""
    text = describe_array(value)
    try:
        if value.nbytes > MOST_BYTES or not value.is_fully_addressable or value.is_deleted():
            return ByWeakId(value, text)
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
        with jax.ensure_compile_time_eval():  # also of a key, in a trace
            content = np.asarray(jax.random.key_data(value) if is_key else value).tobytes()
    except Exception:  # noqa: BLE001  # donated meanwhile, or a guard forbids the transfer
        return ByWeakId(value, text)
    return Form(text, (text, not is_key and value.weak_type, content), (), ())


def _exact(key: Any, value: Any) -> Fingerprinted:
    """Return the fingerprint of a small value that never changes."""
    source: Source = lambda found, names: [f"{found} is {names.of('value', value)}"]  # noqa: E731
    return Fingerprinted(Exact(key, value), source, is_fixed=True, is_light=True)


def by_identity(value: Any, form: Any = None, *, is_light: bool = False) -> Fingerprinted:
    """Return the fingerprint of what is the same as long as it is the same object."""
    itself = ByWeakId(value)
    source = _exact((), value).source if is_light else itself.source
    form = itself if form is None else form
    return Fingerprinted(form, source, is_fixed=True, is_light=is_light)


def _by_parts(
    form: Any,
    value: Any,
    reads: Iterable[tuple[str, Fingerprinted]],
    *,
    itself: Fingerprinted | None = None,
    is_fixed: bool = False,
    size: int | None = None,
    content_of: Callable[[Any], Any] | None = None,
    items_of: Callable[[Any], Any] | None = None,
) -> Fingerprinted:
    """Return the fingerprint of a value, or of the object itself, each part of which is looked at.

    A read is what follows the name of the value, or of its items, and the part there.
    `items_of` returns the dict or list in which ``[0]`` is read; None for the value itself.
    """
    kind, ways = type(value), tuple(reads)
    content = None if content_of is None else content_of(value)

    def source(found: str, names: Names) -> list[str]:
        at = inside = names.local()
        terms = [f"{names.of('type', type)}({at} := {found}) is {names.of('kind', kind)}"]
        if itself is not None:
            terms = itself.source(f"({at} := {found})", names)
        if content_of is not None:
            read = f"{names.of('content_of', content_of)}({at})"
            terms.append(f"{read} == {names.of('content', content)}")
        items = inside
        if items_of is not None:
            inside = names.local()
            items = f"{inside} := {names.of('items', items_of)}({at})"
        if size is not None:
            terms.append(f"{names.of('len', len)}({items}) == {size}")
        for way, part in ways:
            terms += part.source(f"{inside if way.startswith('[') else at}{way}", names)
        return terms

    return Fingerprinted(form, source, is_fixed)


def check_of(found: Fingerprinted) -> Callable[[Any], bool]:
    """Return a function that returns whether a value is unchanged, or raises if it is not."""
    names = Names()
    terms = " and ".join(found.source("value", names))
    return names.function(_code_of_check(", ".join(names.cells), terms))


@functools.lru_cache(maxsize=1024)
def _code_of_check(names: str, terms: str) -> types.CodeType:
    return code_inside(f"lambda {names}: lambda value: {terms}", "<leafwise check of a value>")


def code_inside(source: str, filename: str) -> types.CodeType:
    """Return the code of the function inside the function that a source has."""
    code: Any = compile(source, filename, "exec")
    for _ in range(2):
        code = next(each for each in code.co_consts if isinstance(each, types.CodeType))
    return code  # type: ignore[no-any-return]


def fingerprint(value: Any, *, words: frozenset[str] = frozenset()) -> Fingerprinted:
    """Fingerprint a value; what is large in it, or does not show its content, by identity.

    Of a plain object of the user's the attributes count that have one of the words; all if empty.
    """
    return _Fold(words).fingerprint(value)


class _Fold:
    """Fingerprints one value, and what is inside it."""

    def __init__(self, words: frozenset[str]) -> None:
        self._words = words
        self._room = _MOST_PARTS
        self._met: dict[int, tuple[int, Any]] = {}

    def fingerprint(self, value: Any) -> Fingerprinted:
        """Fingerprint a value, or a part of it."""
        kind: Any = type(value)
        if kind in _PLAIN:
            return _exact((kind, *kind_of(value).content(value)), value)
        # One object in two places is not the same as two equal ones: code may ask `a is b`.
        if id(value) in self._met and not is_a(value, _SINGLE):
            again = Form(_text_of(kind), ("again", self._met[id(value)][0]), (), ())
            return by_identity(value, again)
        self._met[id(value)] = len(self._met), value  # so that the id is not used again
        try:
            return self._of_kind(kind, value)
        except Exception:  # noqa: BLE001  # it is too large, or the user's own code
            return by_identity(value)

    def _of_kind(self, kind: Any, value: Any) -> Fingerprinted:
        if is_a(value, _OPAQUE) or hides(value):
            return by_identity(value)
        if is_a(value, jax.Array):
            return by_identity(value, _form_of_array(value))
        if is_a(value, Enum):
            return _exact((*_class_form(kind), value.name), value)
        if is_a(value, _BY_EQUALITY) and is_installed_module(kind.__module__):
            return _exact((kind, value), value)
        if is_a(value, type | types.ModuleType):
            return self._namespace(value)
        if kind is types.FunctionType:
            return self._function(value)
        is_partial = is_a(value, functools.partial)  # which may have the name of another one
        if callable(value) and not is_partial and (wrapped := wrapped_by(value)) is not None:
            return self._wrapper(value, wrapped)
        table, is_hidden = kind_of(value), has_hidden_state(kind)
        if table.name == "object" or (table.name in _OBJECTS and not is_hidden):
            return self._object(value, table)
        return self._by_table(value, table)

    def _enter(self, size: int = 0, most: int = 0) -> None:
        """Raise if a value is large, or there is no room for a further one with parts."""
        if size > most or self._room <= 0:
            raise OverflowError
        self._room -= 1

    def _by_table(self, value: Any, table: Kind) -> Fingerprinted:
        """Fingerprint a value by its content and its parts, as the table of kinds has them."""
        kind: Any = type(value)
        if table.name in ("array", "buffer"):
            self._enter(memoryview(value).nbytes, MOST_BYTES)
        else:
            self._enter(len(value) if table.name in _SIZED else 0, MOST_ITEMS)
        content, found = table.read(value)
        parts = list(map(self.fingerprint, [item for _, item in found]))
        forms, key = tuple(part.form for part in parts), (*_class_form(kind), *content)
        is_small = all(isinstance(form, Exact) for form in forms)
        if table.name in _NEVER_CHANGE or (kind is tuple and is_small):
            return _exact((*key, *forms), value)
        # Of a key there is nothing to say but which it is.
        steps = tuple("" if step.startswith(" key ") else step for step, _ in found)
        form: Any = Form(_text_of(kind), key, steps, forms)
        if table.name == "array" and is_small:
            form = Exact((*key, *forms), np.array(value))
        if kind in _READ_BY_STEPS:
            return _by_parts(form, value, zip(steps, parts, strict=True))
        reads = [(f"[{place}]", part) for place, part in enumerate(parts)]
        is_tuple = issubclass(kind, tuple) and kind.__getitem__ is tuple.__getitem__
        is_tuple = is_tuple and tuple.__len__(value) == len(parts)
        is_fixed = is_tuple and all(part.is_fixed for part in parts)
        if is_fixed and all(part.is_light for part in parts):
            return by_identity(value, form, is_light=True)
        items_of = None if is_tuple or kind is list else table.values
        content_of = None if table.name in _SIZED and len(content) == 1 else table.content
        return _by_parts(
            form,
            value,
            reads,
            is_fixed=is_fixed,
            size=len(parts),
            content_of=content_of,
            items_of=items_of,
        )

    def _function(self, value: types.FunctionType) -> Fingerprinted:
        """Fingerprint a function; one of a package is the same as long as it is one object."""
        facts, choice = facts_of(value.__code__), registry_of(value)
        if facts.installed and not choice and "<locals>" not in value.__code__.co_qualname:
            exact = Exact((value.__module__, value.__qualname__), value)
            return by_identity(value, exact, is_light=True)
        self._enter()
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        held = {"registry": choice} if choice else {name: contents(cell) for name, cell in cells}
        for name in held.keys() & {*facts.rebinds}:
            held[name] = int_as_float(held[name])
        defaults = value.__defaults__, value.__kwdefaults__
        met, self._met = self._met, dict(self._met)  # no check looks into what it holds
        parts = list(map(self.fingerprint, [*defaults, *held.values()]))
        self._met = met
        steps = (".__defaults__", ".__kwdefaults__", *(f" holding {name}" for name in held))
        forms = tuple(part.form for part in parts)
        form = Form("<function>", (types.FunctionType, facts.form), steps, forms)
        itself = by_identity(value, form, is_light=all(part.is_light for part in parts))
        if choice:
            return _by_parts(form, value, [(".registry", parts[-1])], itself=itself)
        if facts.installed:
            # The user's functions in it, and objects that are called, run: these are read there.
            places = enumerate(zip(held.values(), parts[len(defaults) :], strict=True))
            reads = [
                (f".__closure__[{place}].cell_contents", part)
                for place, (item, part) in places
                if not part.is_fixed and (not callable(item) or _passes_on(item))
            ]
            return _by_parts(form, value, reads, itself=itself) if reads else itself
        own: dict[str, Any] = {"defaults": value.__defaults__, "kwdefaults": value.__kwdefaults__}
        if "IPython" in sys.modules:  # which puts new code into functions that there are
            own["code"] = value.__code__
        # All calls pass on what has no default.
        reads = [
            (f".__{name}__", _exact((), each)) for name, each in own.items() if each is not None
        ]
        return _by_parts(form, value, reads, itself=itself) if reads else itself

    def _wrapper(self, value: Any, wrapped: Any) -> Fingerprinted:
        """Fingerprint what a package makes of a function, as `jax.jit` does."""
        inner, kind = self.fingerprint(wrapped), type(value)
        form = Form(_text_of(kind), _class_form(kind), ("",), (inner.form,))
        if inner.is_fixed:
            return by_identity(value, form)
        return _by_parts(form, value, [(".__wrapped__", inner)], itself=by_identity(value, form))

    def _namespace(self, value: Any) -> Fingerprinted:
        """Fingerprint a class or a module: of one of the user's what the code names."""
        is_class = is_a(value, type)
        name = (value.__module__, value.__qualname__) if is_class else (value.__name__,)
        if is_installed_module(name[0]):
            return by_identity(value, Exact(name, value), is_light=True)
        held, codes = vars(value), list[Any]()
        for each, member in list(held.items()) if is_class else ():
            code = getattr(function_in(member), "__code__", None)
            if isinstance(code, types.CodeType):
                codes.append((each, facts_of(code).form))
        named = sorted(self._words.intersection(held))
        named = [each for each in named if not (is_class and _is_descriptor(held[each]))]
        parts = list(map(self.fingerprint, [held[each] for each in named]))
        steps, forms = tuple(f".{each}" for each in named), tuple(part.form for part in parts)
        # A class of the user's is equal to one of the same name and code: a cell is run again.
        form = Form(f"<{name[-1]}>", (*name, *codes), steps, forms)
        itself = by_identity(value, form, is_light=True)
        reads = list(zip([f".__dict__[{each!r}]" for each in named], parts, strict=True))
        return _by_parts(form, value, reads, itself=itself) if reads else itself

    def _object(self, value: Any, table: Kind) -> Fingerprinted:
        """Fingerprint an object: its class and its attributes, if those are all there is to it."""
        kind: Any = type(value)
        is_opaque = has_hidden_state(kind) or kind.__module__.partition(".")[0] in MACHINERY
        if is_opaque and table.name == "object" and not _is_node(kind):
            return by_identity(value)
        held = self._held(value, table)
        self._enter(len(held), _MOST_ATTRIBUTES)
        names = sorted(held)
        parts = list(map(self.fingerprint, [held[name] for name in names]))
        steps = tuple(f".{name}" for name in names)
        forms = tuple(part.form for part in parts)
        form = Form(_text_of(kind), _class_form(kind), steps, forms)
        is_fixed = never_changes(kind) and all(part.is_fixed for part in parts)
        if is_fixed and ByWeakId(value).find is not None:  # another one may get its address
            return by_identity(value, form)
        own, is_kept = dict_of(value), keeps_in_dict(kind)
        is_hidden = in_class(kind, "__dict__") is not MISSING and not is_kept
        if is_hidden or not all(name in own or is_plain(value, name) for name in names):
            return by_identity(value, form)
        ways = [f"[{name!r}]" if name in own else f".{name}" for name in names]
        items_of = in_class(kind, "__dict__").__get__ if is_kept else None
        size = len(own) if is_kept else None
        reads = zip(ways, parts, strict=True)
        return _by_parts(form, value, reads, is_fixed=is_fixed, size=size, items_of=items_of)

    def _held(self, value: Any, table: Kind) -> dict[str, Any]:
        """Return the attributes of an object that count."""
        kind, held = type(value), stored_attributes(value)
        if _is_node(kind):  # the statics of a pytree class of ours lie elsewhere
            fields: Any = dataclasses.fields(cast("Any", kind))
            held = {name: held[name] for name in held if not name.startswith("__")}
            return held | {each.name: getattr(value, each.name, MISSING) for each in fields}
        if table.name == "record":
            return {step.removeprefix("."): item for step, item in table.parts(value)}
        if not (self._words and is_plain_object(kind)):
            return held
        shared = _data_of_class(kind, self._words - held.keys())
        return {name: held[name] for name in held if name in self._words} | shared


def _is_node(kind: type) -> bool:
    """Return whether a class is a dataclass that is a pytree node."""
    return dataclasses.is_dataclass(kind) and is_tree_node(kind)


def _class_form(kind: type) -> tuple[Any, ...]:
    """Return the form of the type of a value: a class of the user's is equal to itself alone."""
    name = kind.__module__, kind.__qualname__
    return name if is_installed_module(kind.__module__) else (*name, ByWeakId(kind))


def _data_of_class(kind: type, words: frozenset[str]) -> dict[str, Any]:
    """Return the data that a class of the user's has for its instances, as far as code names it."""
    own = [base for base in kind.__mro__ if not is_installed_module(base.__module__)]
    names = words.intersection(*[{name for base in own for name in vars(base)}])
    found = {name: in_class(kind, name) for name in names if not name.startswith("__")}
    return {name: each for name, each in found.items() if not _is_descriptor(each)}


def _passes_on(value: Any) -> bool:
    """Return whether something callable has no code of the user's, but what it calls may have."""
    return is_a(value, functools.partial) or (
        is_a(value, types.FunctionType) and facts_of(value.__code__).installed
    )


def _is_descriptor(value: Any) -> bool:
    return hasattr(type(value), "__get__")


_PLAIN: Final = frozenset(
    {int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
_SINGLE: Final = (np.generic, np.dtype, type, Enum, types.ModuleType)
"""The types whose values nobody distinguishes from equal ones, or of which none are equal."""
_OPAQUE: Final = (Tracer, weakref.ReferenceType, *weakref.ProxyTypes)
_BY_EQUALITY: Final = (pathlib.PurePath, jax.P, jax.sharding.Sharding)
_OBJECTS: Final = ("record", "mapping")
"""The kinds of objects that are read by their attributes, unless they are written in C."""
_SIZED: Final = frozenset({"list", "tuple", "deque", "set", "frozenset", "dict", "mapping"})
_READ_BY_STEPS: Final = (functools.partial, types.MethodType, BoundMethod)
_NEVER_CHANGE: Final = frozenset({"plain", "time", "dtype", "range", "slice"})
