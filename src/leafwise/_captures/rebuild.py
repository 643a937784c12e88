"""A function rebuilt with other values in the places of arrays that it captured.

`Part`s are what the function is made of, as far as that leads to a captured array: closures,
global names, defaults, arguments of partials, attributes. Rebuilding it changes none of the
user's own objects.
"""

import copy
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax

from leafwise._objects.attributes import attributes
from leafwise._objects.parts import kind_of
from leafwise._objects.stand_ins import MISSING

Key: TypeAlias = Any
"""Where a part stands in what holds it: the index of a cell, the name of an attribute."""


class Slot:
    """The place of one captured array, or of a number.

    Attributes:
        name: Where it was found first.
        value: What is there.
        index: Its place among the leaves of the captured tree; None if it stays as it is.
    """

    __slots__ = ("index", "name", "value")

    def __init__(self, name: str, value: Any) -> None:
        """Know the place; whether it is chosen is said later."""
        self.name = name
        self.value = value
        self.index: int | None = None


class Part:
    """Something that holds captured arrays, or leads to what holds them.

    Attributes:
        value: The user's own object.
        inside: What it holds: parts, and slots.
    """

    __slots__ = ("inside", "value")

    def __init__(self, value: Any) -> None:
        """Start with nothing inside."""
        self.value = value
        self.inside: dict[Key, Part | Slot] = {}

    def make(self, making: "Making") -> Any:
        """Return a copy; what is inside may be filled in later, as it may lead back here."""
        raise NotImplementedError  # each kind of part says how

    def slots(self) -> list[Slot]:
        """Return the chosen slots that this leads to, each once."""
        return [slot for slot in slots_below(self) if slot.index is not None]


class Scope(NamedTuple):
    """The global names of one module, as the rebuilt functions see them.

    Attributes:
        original: The module's own.
        copied: What these functions see.
        written: The values of names that they assign, as they were.
    """

    original: dict[str, Any]
    copied: dict[str, Any]
    written: dict[str, Any]


class Making:
    """One rebuilding of a function.

    Attributes:
        values: What to put into the slots, by their index.
    """

    def __init__(self, values: Mapping[int, Any]) -> None:
        """Start with nothing made."""
        self.values = values
        self._scopes: dict[int, Scope] = {}
        self._made: dict[int, Any] = {}
        self._later: list[Callable[[], None]] = []

    def _all_of(self, part: Part) -> Any:
        made = self.get(part)
        while self._later:
            self._later.pop()()
        return made

    def get(self, part: Part | Slot) -> Any:
        """Return what is to stand where a part stands."""
        if isinstance(part, Slot):
            return part.value if part.index is None else self.values[part.index]
        if id(part) not in self._made:
            self._made[id(part)] = part.make(self)
        return self._made[id(part)]

    def scope(self, names: dict[str, Any], writes: Iterable[str]) -> dict[str, Any]:
        """Return a copy of a module's names, one for all functions that are made.

        Args:
            names: The names.
            writes: Which of them a function assigns.
        """
        found = self._scopes.setdefault(id(names), Scope(names, dict(names), {}))
        for name in writes:
            found.written.setdefault(name, names.get(name, MISSING))
        return found.copied

    def call(self, part: Part, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make a function again and call it; then give back the names that it assigned."""
        fun = self._all_of(part)
        try:
            return fun(*args, **kwargs)
        finally:
            for original, copied, written in self._scopes.values():
                for name, before in written.items():
                    if copied.get(name, MISSING) is not before:
                        original[name] = copied[name]

    def later(self, fill: Callable[[], None]) -> None:
        """Fill in something at the end, when all shells are there."""
        self._later.append(fill)


class FunctionPart(Part):
    """A Python function.

    Attributes:
        writes: The global names that it assigns.
    """

    __slots__ = ("writes",)

    def __init__(self, value: types.FunctionType, writes: Iterable[str]) -> None:
        """Know the function."""
        super().__init__(value)
        self.writes = tuple(writes)

    def make(self, making: Making) -> Any:
        """Return a function of the same code, with cells, defaults and globals of its own."""
        fun: types.FunctionType = self.value
        cells = [
            types.CellType() if ("cell", place) in self.inside else cell
            for place, cell in enumerate(fun.__closure__ or ())
        ]
        scope = fun.__globals__
        if any(kind == "global" for kind, _ in self.inside):
            scope = making.scope(scope, self.writes)
        made = types.FunctionType(fun.__code__, scope, fun.__name__, None, tuple(cells))
        for name in ("__doc__", "__module__", "__qualname__"):
            setattr(made, name, getattr(fun, name))
        made.__dict__.update(fun.__dict__)

        def fill() -> None:
            named = dict(fun.__kwdefaults__ or {})
            defaults = dict(enumerate(fun.__defaults__ or ()))
            into: dict[str, dict[Any, Any]] = {"global": scope, "default": defaults, "named": named}
            for (kind, place), part in self.inside.items():
                if kind == "cell":
                    cells[place].cell_contents = making.get(part)
                else:
                    into.get(kind, made.__dict__)[place] = making.get(part)
            made.__defaults__ = tuple(defaults.values()) or None
            made.__kwdefaults__ = named or None

        making.later(fill)
        return made


class Remade(Part):
    """What its kind knows how to make again, by the places of its parts: a method, a partial."""

    __slots__ = ()

    def make(self, making: Making) -> Any:
        """Return one like it, of other parts."""
        kind = kind_of(self.value)
        parts = [
            making.get(self.inside[place]) if place in self.inside else item
            for place, item in enumerate(kind.values(self.value))
        ]
        return cast("Any", kind.make)(self.value, parts)


class Tree(Part):
    """A pytree: its leaves by their place among all of them."""

    __slots__ = ("leaves", "treedef")

    def __init__(self, value: Any, leaves: Sequence[Any], treedef: Any) -> None:
        """Know the tree as JAX flattens it."""
        super().__init__(value)
        self.leaves = leaves
        self.treedef = treedef

    def make(self, making: Making) -> Any:
        """Return the tree with other leaves."""
        return self.treedef.unflatten(
            making.get(self.inside[place]) if place in self.inside else leaf
            for place, leaf in enumerate(self.leaves)
        )


class ObjectPart(Part):
    """An object that is not a pytree, by its attributes; a module, too."""

    __slots__ = ()

    def make(self, making: Making) -> Any:
        """Return a shallow copy with other attributes; no constructor runs."""
        made: Any
        if isinstance(self.value, types.ModuleType):
            made = types.ModuleType(self.value.__name__)
            made.__dict__.update(vars(self.value))
        else:
            made = _shallow_copy(self.value)

        def fill() -> None:
            for name, part in self.inside.items():
                _set(made, name, making.get(part))

        making.later(fill)
        return made


def _shallow_copy(value: Any) -> Any:
    """Return a copy without what a `functools.cached_property` has stored in it."""
    try:
        made = object.__new__(type(value))
    except TypeError:  # a subclass of a builtin
        return copy.copy(value)
    for name, item in attributes(value):
        _set(made, name, item)
    return made


def _set(made: Any, name: str, value: Any) -> None:
    """Set an attribute of a copy, be its class frozen or its name that of a property."""
    slot = inspect.getattr_static(type(made), name, None)
    if isinstance(slot, types.MemberDescriptorType):
        object.__setattr__(made, name, value)
    else:
        made.__dict__[name] = value


class Wrapped(Part):
    """What wraps a function: the rebuilt one is wrapped in the same way.

    Attributes:
        wrap: Wraps it.
    """

    __slots__ = ("wrap",)

    def __init__(self, value: Any, wrap: Callable[[Any], Any]) -> None:
        """Know how to wrap."""
        super().__init__(value)
        self.wrap = wrap

    def make(self, making: Making) -> Any:
        """Return the rebuilt function, wrapped."""
        return self.wrap(making.get(self.inside["fun"]))


class JittedPart(Part):
    """A jitted function: made once, with what it captures as its first argument."""

    __slots__ = ("_jitted", "_taken", "options")

    def __init__(self, value: Any, options: Mapping[str, Any]) -> None:
        """Know the options that `jax.jit` was called with."""
        super().__init__(value)
        self.options = options
        self._taken: list[int] = []
        self._jitted: Any = None

    def finish(self) -> None:
        """Make the jitted function, once the slots are chosen."""
        if not self.inside:
            return
        self._taken = [cast("int", slot.index) for slot in self.slots()]
        inner = self.inside["fun"]

        def run(values: Sequence[Any], /, *args: Any, **kwargs: Any) -> Any:
            making = Making(dict(zip(self._taken, values, strict=True)))
            return making.call(cast("Part", inner), args, kwargs)

        run.__name__ = getattr(self.value, "__name__", "hoisted")
        moved: dict[str, Any] = {
            name: tuple(map(_moved, given)) if name.endswith("argnums") else given
            for name, given in self.options.items()
        }
        self._jitted = jax.jit(run, **moved)

    def make(self, making: Making) -> Any:
        """Return a function that calls the jitted one with its captures."""
        values = [making.values[index] for index in self._taken]
        jitted = self._jitted

        def hoisted(*args: Any, **kwargs: Any) -> Any:
            return jitted(values, *args, **kwargs)

        hoisted.__name__ = getattr(self.value, "__name__", "hoisted")
        return hoisted


def _moved(place: int) -> int:
    """Return the place of an argument behind one more; JAX may count it from the end."""
    return place + 1 if place >= 0 else place


class Fixed(Part):
    """What cannot be rebuilt: a class, say.

    Attributes:
        reason: Why.
    """

    __slots__ = ("reason",)

    def __init__(self, value: Any, reason: str) -> None:
        """Know the reason."""
        super().__init__(value)
        self.reason = reason

    def make(self, making: Making) -> Any:  # noqa: ARG002  # as the others
        """Return it as it is: nothing in it was chosen."""
        return self.value


def parts_below(part: Part) -> Iterator[Part]:
    """Yield a part and all parts that it leads to, each once."""
    seen: set[int] = set()
    todo: list[Part | Slot] = [part]
    while todo:
        each = todo.pop()
        if isinstance(each, Part) and id(each) not in seen:
            seen.add(id(each))
            yield each
            todo.extend(each.inside.values())


def held_back(root: Part) -> Iterator[tuple[Fixed, Slot]]:
    """Yield the slots that only a copy of a `Fixed` could change, with the innermost of these."""
    for outer in parts_below(root):
        if isinstance(outer, Fixed):
            yield from ((outer, slot) for slot in slots_below(outer, past=Fixed))


def slots_below(part: Part | Slot | None, past: type | tuple[()] = ()) -> list[Slot]:
    """Return the slots that this leads to, each once.

    Args:
        part: Where to start.
        past: Kinds of parts that are not looked into, but for the first.
    """
    found: dict[Slot, None] = {}
    seen: set[int] = set()
    todo = [part]
    while todo:
        each = todo.pop()
        if isinstance(each, Slot):
            found[each] = None
        elif each is not None and id(each) not in seen and not (seen and isinstance(each, past)):
            seen.add(id(each))
            todo += reversed(each.inside.values())
    return list(found)


def prune(root: Part) -> None:
    """Forget all parts that lead to no chosen slot."""
    every = list(parts_below(root))
    holders: dict[int, list[Part]] = {}
    todo: list[Part] = []
    for part in every:
        for each in part.inside.values():
            if isinstance(each, Part):
                holders.setdefault(id(each), []).append(part)
            elif each.index is not None:
                todo.append(part)
    leading: set[int] = set()
    while todo:
        part = todo.pop()
        if id(part) not in leading:
            leading.add(id(part))
            todo += holders.get(id(part), [])
    for part in every:
        part.inside = {
            key: each
            for key, each in part.inside.items()
            if (each.index is not None if isinstance(each, Slot) else id(each) in leading)
        }
