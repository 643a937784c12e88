"""The walk over everything that a function reads: its code, and the code that this calls."""

import dataclasses
import functools
import inspect
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, cast

from leafwise._captures.bytecode import (
    Const,
    Given,
    Item,
    Read,
    Root,
    Usage,
    parameters,
    reads_of,
)
from leafwise._captures.places import (
    BoundIn,
    CapturedPlace,
    as_used,
    cell_place,
    class_place,
    default_place,
    fixed_place,
    global_place,
    import_place,
    in_package,
    in_type_of,
    is_place,
    member_place,
    presence_place,
    step_into,
)
from leafwise._objects.attributes import (
    Member,
    MemberKind,
    functions_behind,
    functions_in,
    has_own_call,
    hides,
    in_class,
    is_bound_method,
    is_callable,
    is_data,
    is_installed,
    is_object,
    is_of_package,
    is_tree,
    wrapped_by,
)
from leafwise._objects.code import function_in, is_installed_module, own_bases
from leafwise._objects.methods import BoundMethod, InheritedMethod, Method
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got

PASSED_OVER: Final = frozenset(
    {
        *("__new__", "__init__", "__post_init__", "__init_subclass__", "__del__"),
        *("__repr__", "__str__", "__format__", "__reduce__", "__getstate__", "__setstate__"),
    }
)
"""The methods that no program calls of an instance that exists already."""

_MAKE_NAMES: Final = frozenset(
    {"getattr", "attrgetter", "methodcaller", "__getattribute__", "__dict__", "vars", "dir"}
)
"""Code that names one of these may read an attribute of any name."""

_JAX_CALLS: Final = frozenset({"tree_flatten", "tree_flatten_with_keys", "tree_unflatten"})


class WaitingMethods:
    """The methods that were met on a walk; each waits until code that is entered names it."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._waiting: dict[str, list[_ToEnter]] = {}
        self._all = False

    def add(self, cls: type, name: str, entries: list["_ToEnter"]) -> list["_ToEnter"]:
        """Return the functions of a method if it is to be entered now; otherwise keep them."""
        if self._all or name in self._names or _is_special(cls, name):
            return entries
        self._waiting.setdefault(name, []).extend(entries)
        return []

    def named(self, code: types.CodeType) -> list["_ToEnter"]:
        """Return the methods that waited for the names in some code."""
        new = set(names_in(code)) - self._names - {"getattr"}  # unless by a name that is not known
        self._names |= new
        new |= {each.name for each in reads_of(code) if each.name == "getattr"}
        if not self._all and not _MAKE_NAMES.isdisjoint(new):
            self._all, new = True, set(self._waiting)
        return [each for name in sorted(new) for each in self._waiting.pop(name, ())]


def is_class_value(cls: type, name: str) -> bool:
    """Return whether an instance of a class of the user's finds a plain value in its class."""
    bases = own_bases(cls)
    value = in_class(cls, name)
    is_own = any(name in vars(base) for base in bases)
    if not is_own or hasattr(type(value), "__get__") or isinstance(value, type):
        return False
    fields = ("__annotations__", "__dataclass_fields__")  # where the class has a default only
    if any(name in vars(base).get(field, ()) for base in bases for field in fields):
        return False
    return not any(_assigns(member, name) for base in bases for member in vars(base).values())


def _assigns(member: object, name: str) -> bool:
    reads = [read for each in functions_behind(member) for read in reads_of(each.__code__)]
    return any(read.usage is Usage.WRITTEN and read.steps == (name,) for read in reads)


def _is_special(cls: type, name: str) -> bool:
    """Return whether Python, JAX or a package whose class it overrides may call a method."""
    if name in _JAX_CALLS or (name.startswith("__") and name.endswith("__")):
        return True
    bases = [base for base in cls.__mro__ if is_installed_module(base.__module__)]
    return any(name in vars(base) for base in bases)


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names in code, and the texts, which may be names for somebody else."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, str):
            yield const
        elif isinstance(const, types.CodeType):
            yield from names_in(const)


_MOST_ENTERED: Final = 2_000
"""Beyond so many functions, what they name is no longer entered."""

_MOST_ITEMS: Final = 20_000
"""So many items of containers are searched for functions and objects to enter."""

_MOST_CALLS: Final = 32
"""After so many calls of a function, its arguments are used as a whole: it may be recursive."""

_DEEPEST: Final = 20
"""After so many steps of a way, containers are not searched."""


@dataclasses.dataclass(slots=True)
class CaptureSite:
    """A place that is read, while the walk goes on."""

    place: CapturedPlace
    reader: Callable[..., Any]
    line: int
    is_written: bool
    is_called: bool
    readers: dict[int, Callable[..., Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rest:
    """What is known of ``*args`` or ``**kwargs``."""

    args: "tuple[Argument, ...]" = ()
    kwargs: "tuple[tuple[str, Argument], ...]" = ()

    def places(self) -> list[CapturedPlace]:
        values = (*self.args, *(value for _, value in self.kwargs))
        return [each for each in values if isinstance(each, CapturedPlace)]


Argument: TypeAlias = CapturedPlace | type | None
"""What is known of a parameter: the place it comes from, or the class that it is of."""

Arguments: TypeAlias = dict[str, Argument | _Rest]


@dataclasses.dataclass(slots=True)
class _Call:
    """What a call passes on to the function that is called, if that is followed.

    Attributes:
        args: The positional arguments.
        kwargs: The others.
        is_followed: Whether they were given to a function that is entered; otherwise they are
            used as a whole.
    """

    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    is_followed: bool = False

    def follow(self) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
        self.is_followed = True
        return self.args, self.kwargs


class _ToEnter(NamedTuple):
    """Something callable that is to be entered, and what is known of its arguments."""

    value: Any
    place: CapturedPlace | None
    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()
    quiet: bool = False
    """Whether a package wrapped it: what its wrappers hold besides is the package's."""
    member: CapturedPlace | None = None
    """Where a class has it, if that is a method of an object that need not exist."""


class CaptureWalk:
    """What is found on the way from one function.

    Attributes:
        found: The places, in the order of first reads.
    """

    def __init__(self) -> None:
        self.found: list[CaptureSite] = []
        self._known: dict[tuple[Any, ...], CaptureSite] = {}
        self._entered: dict[tuple[Any, ...], Any] = {}
        self._pending: list[_ToEnter] = []
        self._next: list[_ToEnter] = []
        self._room = _MOST_ITEMS
        self._methods = WaitingMethods()
        self._called: Counter[int] = Counter()

    def start(self, fn: Callable[..., Any]) -> None:
        """Follow a function, and all that it leads to."""
        self._pending.append(_ToEnter(fn, None))
        while self._pending and len(self._entered) < _MOST_ENTERED:
            self._visit(self._pending.pop())
            self._pending += reversed(self._next)
            self._next = []

    def entered(self) -> list[Any]:
        """Return everything callable that was entered, each once."""
        return list({id(value): value for value in self._entered.values()}.values())

    def _visit(self, entry: _ToEnter) -> None:
        value = entry.value
        known = tuple(_identity(each) for each in entry.args)
        named = tuple((name, _identity(each)) for name, each in entry.kwargs)
        place = (
            None if entry.place is None or isinstance(value, types.FunctionType) else entry.place
        )
        key = id(value), known, named, place and (place.key, place.steps)
        if key in self._entered:
            return
        self._entered[key] = value
        if hides(value):
            self._object(value, entry)
        elif isinstance(value, types.FunctionType):
            self._function(value, entry)
        elif isinstance(value, types.MethodType | BoundMethod) or is_bound_method(value):
            receiver = self._receiver(value.__self__, value.__func__, entry.place)
            self._queue(entry, value.__func__, (receiver, *entry.args))
        elif isinstance(value, functools.partial):
            self._partial(value, entry)
        elif isinstance(value, type):
            self._use_arguments(entry)
            self._class(value, made=entry.place is None and bool(entry.args))
        else:
            self._object(value, entry)

    def _queue(self, entry: _ToEnter, value: Any, args: tuple[Argument, ...] | None = None) -> None:
        args = entry.args if args is None else args
        self._next.append(_ToEnter(value, entry.place, args, entry.kwargs, entry.quiet))

    def _receiver(self, instance: Any, function: Any, place: CapturedPlace | None) -> CapturedPlace:
        """Return the place of the object that a method belongs to."""
        if place is not None:
            return fixed_place(BoundIn.ATTRIBUTE, f"{place.name}.__self__", instance, instance)
        return fixed_place(BoundIn.ATTRIBUTE, _first_parameter(function), instance, instance)

    def _function(self, function: types.FunctionType, entry: _ToEnter) -> None:
        if is_installed(function):
            self._function_of_package(function, entry)
            return
        given = self._assign(function, entry)
        if entry.member is not None:
            self._add(entry.member, entry.member.owner, 0, is_written=False)
        self._next += self._methods.named(function.__code__)
        for read in reads_of(function.__code__):
            self._read(function, read, given)

    def _read(self, function: types.FunctionType, read: Read, given: Arguments) -> None:
        """Follow one read of a function of the user's."""
        place = self._place(function, read, given)
        if isinstance(place, _Rest):
            for each in place.places():
                self._use(each, each.read(), function, read.line)
            place = None
        if read.usage in (Usage.IS, Usage.PRESENT):
            question = self._question(function, read, given)
            if question is not None:
                self._add(question, function, read.line, is_written=False)
                return
            read = dataclasses.replace(read, usage=Usage.READ)
        if read.usage is Usage.RETURNED:
            own = function.__name__ == "__get__" and read.name == _first_parameter(function)
            if own and not read.steps:  # a descriptor returns itself if it is read of the class
                return
            read = dataclasses.replace(read, usage=Usage.READ)
        passed = read.given or Given()
        call = self._call(function, passed, given) if read.usage is Usage.CALLED else None
        if read.root is Root.SUPER:
            self._super(function, read, given, call)
        elif isinstance(place, type):
            self._read_of_class(place, read, function, call)
        elif place is not None:
            self._resolve(place, read, function, call=call)
        for each in () if call is not None and call.is_followed else passed.reads():
            self._read(function, each, given)

    def _call(self, function: types.FunctionType, passed: Given, given: Arguments) -> _Call | None:
        """Return what a call passes on; None where something of it cannot be followed."""
        args: list[Argument] = []
        kwargs: list[tuple[str, Argument]] = []
        for name, each in (*((None, each) for each in passed.args), *passed.kwargs):
            place = self._argument(function, each, given) if isinstance(each, Read) else None
            if place is _WHOLE:
                return None
            if isinstance(place, _Rest):
                args += place.args
                kwargs += place.kwargs
            elif name is None:
                args.append(place)
            else:
                kwargs.append((name, place))
        return _Call(tuple(args), tuple(kwargs))

    def _argument(self, function: types.FunctionType, read: Read, given: Arguments) -> Any:
        """Return the place that a read leads to; `_WHOLE` if it has none."""
        place = self._place(function, read, given)
        if isinstance(place, _Rest) or read.usage is Usage.SPREAD:
            return place if read.usage is Usage.SPREAD and place is not None else _WHOLE
        if place is None or (isinstance(place, type) and not read.steps):
            return place
        if isinstance(place, type) or read.root is Root.SUPER:
            return _WHOLE
        read = as_used(place, read)
        value = place.read()
        for step in read.steps:
            if value is MISSING or hides(value) or _is_installed_module(value):
                return _WHOLE
            member = step_into(value, step)
            if member.kind not in (MemberKind.VALUE, MemberKind.MISSING):
                return _WHOLE
            place, value = place.then(step), member.value
        is_whole = len(place.steps) >= _DEEPEST or read.usage is Usage.CALLED
        return _WHOLE if is_whole or hides(value) or _is_installed_module(value) else place

    def _question(
        self, function: types.FunctionType, read: Read, given: Arguments
    ) -> CapturedPlace | None:
        """Return the place of the answer to a question; None if it cannot be followed."""
        start = self._place(function, read, given)
        asked = as_used(start, read) if isinstance(start, CapturedPlace) else read
        if asked.usage is not read.usage:
            return None
        place = self._argument(function, read, given)
        if not isinstance(place, CapturedPlace):
            return None
        if read.usage is Usage.PRESENT:
            return presence_place(place)
        (other,) = cast("Given", read.given).args
        another = other if isinstance(other, Const) else None
        if isinstance(other, Read):
            another = self._argument(function, other, given)
        return is_place(place, another) if isinstance(another, CapturedPlace | Const) else None

    def _assign(self, function: types.FunctionType, entry: _ToEnter) -> Arguments:
        """Return what is known of the parameters of a function."""
        code = function.__code__
        names = parameters(code)
        given = dict(zip(names[: code.co_argcount], entry.args, strict=False))
        plain = names[: code.co_argcount + code.co_kwonlyargcount]
        given |= {name: each for name, each in entry.kwargs if name in plain}
        found: Arguments = {name: each and _renamed(each, name) for name, each in given.items()}
        rest = entry.args[code.co_argcount :]
        named = tuple((name, each) for name, each in entry.kwargs if name not in plain)
        others = [_Rest(rest)] * bool(code.co_flags & inspect.CO_VARARGS)
        others += [_Rest((), named)] * bool(code.co_flags & inspect.CO_VARKEYWORDS)
        return {**found, **dict(zip(names[len(plain) :], others, strict=True))}

    def _function_of_package(self, function: types.FunctionType, entry: _ToEnter) -> None:
        """Enter a closure that a package made: its numbers, and the user's functions in it."""
        wrapped = wrapped_by(function)
        if entry.place is not None and isinstance(vars(function).get("registry"), Mapping):
            self._add(entry.place.then("registry"), function, 0, is_written=False)  # singledispatch
        if is_of_package(function) or wrapped is None:
            self._use_arguments(entry)
        if is_of_package(function):
            return
        self._next += self._methods.named(function.__code__)
        quiet = entry.quiet or wrapped is not None
        if wrapped is not None:
            self._next.append(entry._replace(value=wrapped, quiet=True))
        for each in reads_of(function.__code__):
            for read in (each, *each.given.reads()) if each.given else (each,):
                if read.root is Root.FREE and read.name != "__class__":
                    self._resolve(cell_place(function, read.name), read, function, quiet=quiet)
        self._queue_closure(function, entry.place, wrapped, quiet=quiet)

    def _queue_closure(
        self, value: Any, place: CapturedPlace | None, wrapped: Any, *, quiet: bool
    ) -> None:
        for each in functions_in(value):
            if each is not wrapped and (wrapped is None or isinstance(each, types.FunctionType)):
                self._next.append(_ToEnter(each, place, quiet=quiet))

    def _place(
        self, function: types.FunctionType, read: Read, given: Arguments
    ) -> Argument | _Rest:
        if read.root is Root.GLOBAL:
            return global_place(function, read.name)
        if read.root is Root.IMPORT:
            return import_place(function, read.name)
        if read.root is Root.FREE:
            return None if read.name == "__class__" else cell_place(function, read.name)
        if read.name in given:
            return given[read.name]
        return default_place(function, read.name)

    def _partial(self, value: "functools.partial[Any]", entry: _ToEnter) -> None:
        args = tuple(
            fixed_place(BoundIn.PARTIAL, f"args[{index}]", item, value)
            for index, item in enumerate(value.args)
        )
        own = {
            name: fixed_place(BoundIn.PARTIAL, name, item, value)
            for name, item in value.keywords.items()
        }
        kwargs = tuple({**own, **dict(entry.kwargs)}.items())
        self._next.append(_ToEnter(value.func, entry.place, (*args, *entry.args), kwargs))

    def _class(self, cls: type, *, made: bool) -> None:
        """Enter those methods of a class of the user's that are named, now or later.

        `made` says that an instance exists already.
        """
        for base in own_bases(cls):
            for name, member in list(vars(base).items()):
                if made and name in PASSED_OVER:
                    continue
                place = member_place(base, name)
                entries = [
                    _ToEnter(function, None, (cls,), member=place)
                    for function in functions_behind(member)
                    if not is_installed(function)
                ]
                self._next += self._methods.add(cls, name, entries)

    def _object(self, value: Any, entry: _ToEnter) -> None:
        call = in_class(type(value), "__call__")
        own = [each for each in functions_behind(call) if not is_installed(each)]
        if own:
            receiver = entry.place or self._receiver(value, own[0], None)
            for function in own:
                self._queue(entry, function, (receiver, *entry.args))
            return
        wrapped = None if is_of_package(value) else wrapped_by(value)
        if wrapped is None:
            self._use_arguments(entry)
        else:
            self._next.append(entry._replace(value=wrapped, quiet=True))
        if wrapped is None and (entry.place is None or entry.quiet) and is_tree(value):
            self._add(self._receiver(value, None, entry.place), value, 0, is_written=False)
        if not is_of_package(value):
            quiet = entry.quiet or wrapped is not None
            self._queue_closure(value, entry.place, wrapped, quiet=quiet)

    def _use_arguments(self, entry: _ToEnter) -> None:
        """Add the arguments of a callable that is not entered."""
        for place in (*entry.args, *(place for _, place in entry.kwargs)):
            if isinstance(place, CapturedPlace):
                self._use(place, place.read(), entry.value, 0)

    def _super(
        self, function: types.FunctionType, read: Read, given: Arguments, call: _Call | None
    ) -> None:
        receiver = given.get(read.name)
        if receiver is None or "__class__" not in function.__code__.co_freevars or not read.steps:
            return
        owner = cell_place(function, "__class__").read()
        kind = receiver if isinstance(receiver, type) else type(receiver.read())
        mro: Sequence[type] = kind.__mro__
        behind = mro[mro.index(owner) + 1 :] if owner in mro else ()
        name = cast("str", read.steps[0])
        for base in behind:
            if name in vars(base):
                member = vars(base)[name]
                args, kwargs = _passed_to(member, call)
                for found in functions_behind(member):
                    self._next.append(_ToEnter(found, None, (receiver, *args), kwargs))
                    if not is_installed(found):
                        place = class_place(base).then(name)
                        self._add(place, function, read.line, is_written=False)
                return

    def _read_of_class(
        self, cls: type, read: Read, reader: types.FunctionType, call: _Call | None
    ) -> None:
        """Follow what is read of an instance of which only the class is known."""
        first, *others = read.steps or ("",)
        if first == "__class__" and others:
            read = dataclasses.replace(read, steps=tuple(others))
            self._resolve(class_place(cls), read, reader, call=call)
        elif isinstance(first, str) and is_class_value(cls, first):
            self._resolve(class_place(cls), read, reader, call=call)
        elif isinstance(first, str):
            member = in_class(cls, first)
            args, kwargs = _passed_to(member, None if others else call)
            for function in functions_behind(member):
                if not is_installed(function):
                    place = member_place(cls, first)
                    entry = _ToEnter(function, None, (cls, *args), kwargs, member=place)
                    self._next.append(entry)

    def _resolve(
        self,
        place: CapturedPlace,
        read: Read,
        reader: types.FunctionType,
        *,
        quiet: bool | None = None,
        call: _Call | None = None,
    ) -> None:
        """Follow one read to its end; `quiet` is given for a closure of a package."""
        read = as_used(place, read)
        value, whole = place.read(), read.steps
        for index, step in enumerate(read.steps):
            if value is MISSING or hides(value):
                break
            if isinstance(value, types.ModuleType) and is_installed_module(value.__name__):
                place, value = in_package(place, value, read.steps[index:])
                break
            member = step_into(value, step)
            if member.kind in (MemberKind.VALUE, MemberKind.MISSING):
                place, value = place.then(step), member.value
            elif self._method(
                place.then(step),
                value,
                member,
                read,
                reader,
                call=call if index + 1 == len(read.steps) else None,
            ):
                return
            else:
                break
        if read.usage is Usage.CALLED and place.steps[-len(whole) :] != whole:
            read = dataclasses.replace(read, usage=Usage.READ)  # what is called is a part of it
        if quiet is None or hides(value):
            is_called = read.usage is Usage.CALLED
            self._use(place, value, reader, read.line, read.usage, call=call if is_called else None)
        elif is_callable(value) or not is_data(value) or not _holds_data(value):
            self._follow(place, value, quiet=quiet)
        elif not quiet:
            self._use(place, value, reader, read.line, read.usage)

    def _method(
        self,
        place: CapturedPlace,
        value: Any,
        member: Member,
        read: Read,
        reader: types.FunctionType,
        *,
        call: _Call | None,
    ) -> bool:
        """Enter a method or a property of an object; False if it is not the user's."""
        if member.kind is MemberKind.HIDDEN or is_installed(member.value):
            return False
        if read.usage is Usage.WRITTEN:
            return True
        receiver: Argument = place.before()
        if member.kind is MemberKind.CLASS_METHOD:
            receiver = class_place(value if isinstance(value, type) else type(value))
        if member.kind is MemberKind.DESCRIPTOR:
            descriptor = dataclasses.replace(in_type_of(place), is_member=False)
            getter = dataclasses.replace(descriptor.then("__get__"), is_member=True)
            self._add(getter, reader, read.line, is_written=False)
            self._next.append(_ToEnter(member.value, None, (descriptor, receiver, None)))
            return True
        is_property = member.kind is MemberKind.PROPERTY
        known = in_type_of(place) if is_property else place
        self._add(known, reader, read.line, is_written=False)
        raw = MISSING if is_property else in_class(type(value), cast("str", place.steps[-1]))
        args, kwargs = _passed_to(raw, call)
        self._next.append(_ToEnter(member.value, None, (receiver, *args), kwargs))
        return True

    def _use(
        self,
        place: CapturedPlace,
        value: Any,
        reader: Callable[..., Any],
        line: int,
        usage: Usage = Usage.READ,
        *,
        call: _Call | None = None,
    ) -> None:
        """Add a value that is used as a whole, and enter what it leads to."""
        if hides(value):
            self._add(place, reader, line, is_written=usage is Usage.WRITTEN)
            return
        is_called = usage is Usage.CALLED
        if not (is_called and is_object(value) and has_own_call(value)):
            self._add(place, reader, line, is_written=usage is Usage.WRITTEN, is_called=is_called)
        if call is not None and self._can_follow(value):
            self._next.append(_ToEnter(value, place, *call.follow()))
        elif usage is not Usage.WRITTEN:
            self._follow(place, value)

    def _can_follow(self, value: Any) -> bool:
        """Return whether what is called hands its arguments to code of the user's as they are."""
        while not hides(value):
            if isinstance(value, types.FunctionType):
                self._called[id(value)] += 1
                return not is_installed(value) and self._called[id(value)] <= _MOST_CALLS
            if isinstance(value, types.MethodType | BoundMethod):
                value = value.__func__
            elif isinstance(value, functools.partial):
                value = value.func
            elif has_own_call(value):
                value = in_class(type(value), "__call__")
            else:
                break
        return False

    def _follow(self, place: CapturedPlace, value: Any, *, quiet: bool = False) -> None:
        """Enter what a value leads to, and what is in it."""
        if hides(value):
            return
        if type(value) in (list, dict) or isinstance(value, tuple):
            pairs: Iterable[Any] = value.items() if type(value) is dict else enumerate(value)
            for key, item in pairs if len(place.steps) < _DEEPEST else ():
                self._room -= 1
                if self._room < 0:
                    break
                self._follow(place.then(Item(key)), item, quiet=quiet)
            return
        if is_data(value):
            return
        if callable(value):
            self._next.append(_ToEnter(value, place, quiet=quiet))
        if is_object(value) and not is_installed_module(type(value).__module__):
            self._next.append(_ToEnter(type(value), None, (type(value),)))

    def _add(
        self,
        place: CapturedPlace,
        reader: Callable[..., Any],
        line: int,
        *,
        is_written: bool,
        is_called: bool = False,
    ) -> None:
        key = (*place.key, place.steps)
        known = self._known.get(key)
        if known is None:
            self._known[key] = known = CaptureSite(place, reader, line, is_written, is_called)
            self.found.append(known)
        elif known.is_written and not is_written:
            known.reader, known.line, known.is_written = reader, line, False
            known.is_called = is_called
        if not is_written:
            known.is_called = known.is_called and is_called
            known.readers[id(reader)] = reader


def _first_parameter(function: object) -> str:
    """Return the name that a method has for its object; ``self`` where it does not say."""
    code = getattr(function, "__code__", None)
    named = isinstance(code, types.CodeType) and code.co_argcount > 0
    return code.co_varnames[0] if named and code is not None else "self"


def _holds_data(value: Any) -> bool:
    """Return whether a container holds more than functions; so does everything else."""
    if type(value) not in (list, tuple):
        return True
    return not value or any(not is_callable(item) for item in value)


def _renamed(given: Argument, name: str) -> Argument:
    """Return an argument of a partial under the name of its parameter."""
    is_argument = (
        isinstance(given, CapturedPlace) and given.holder is BoundIn.PARTIAL and not given.steps
    )
    return dataclasses.replace(cast("CapturedPlace", given), name=name) if is_argument else given


def _identity(given: Argument) -> Any:
    return (given.key, given.steps) if isinstance(given, CapturedPlace) else id(given)


_WHOLE: Final[Any] = object()
"""Stands for an argument that is used as a whole."""


def _is_installed_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and is_installed_module(value.__name__)


def _passed_to(member: Any, call: _Call | None) -> tuple[Any, Any]:
    """Return the arguments of a method; none if what a class has is not a function as it is."""
    raw = function_in(member) if isinstance(member, classmethod | staticmethod) else member
    is_plain = isinstance(raw, types.FunctionType) and not is_installed(raw)
    if call is None or not (is_plain or isinstance(raw, Method | InheritedMethod)):
        return (), ()
    return call.follow()


class Treatment(StrEnum):
    """How JAX treats what a function captures."""

    LITERAL = "literal"
    """A number that is written into the program."""
    CONSTANT = "constant"
    """An array that is handed to the program as a hidden argument."""
    PYTREE = "pytree"
    """A container: each of its leaves is one of these."""
    FUNCTION = "function"
    """A function or class, which is called while JAX traces."""
    MODULE = "module"
    """A module."""
    STATIC = "static"
    """A Python object that only the trace sees: a `str`, a configuration."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """One place outside its arguments that a function reads.

    Attributes:
        name: The place, as the code spells it: ``lr``, ``config.rate``, ``self.w``.
        function: What reads it: the function whose code does, or a callable of a package.
        holder: Where it is bound.
        line: The line of the first read in the file of `function`; 0 if there is none.
        is_written: Whether the code only writes to it, or only calls what changes it and
            drops the answer: ``traces.append(x)``, ``counter += 1``.
        is_called: Whether the code only calls it.
        place: Where to look.
        readers: All that read it, and do not only write to it.
    """

    name: str
    function: Callable[..., Any]
    holder: BoundIn
    line: int
    is_written: bool
    is_called: bool
    place: CapturedPlace
    readers: tuple[Callable[..., Any], ...]

    def read(self) -> Any:
        """Return the current value; `MISSING` if nothing is bound.

        No property and no ``__getattr__`` runs.
        """
        return self.place.read()


def bindings_of(fn: Callable[..., Any]) -> tuple[Binding, ...]:
    """Return everything that a function reads from outside its arguments.

    Args:
        fn: Anything callable.

    Returns:
        Each place once, in the order of first reads: those of `fn` itself, then those of the
        functions that it names. Names of builtins and of installed packages are there, too.

    Raises:
        TypeError: `fn` is not callable.
    """
    return bindings_and_callables(fn)[0]


def bindings_and_callables(fn: Callable[..., Any]) -> tuple[tuple[Binding, ...], list[Any]]:
    """Return what `bindings_of` does, and everything callable on the way there.

    Raises:
        TypeError: `fn` is not callable.
    """
    if not callable(fn):
        msg = f"a function is wanted, got {got(fn)}"
        raise TypeError(msg)
    walk = CaptureWalk()
    walk.start(fn)
    return tuple(_named(walk.found)), walk.entered()


def _named(found: list[CaptureSite]) -> list[Binding]:
    """Return bindings, with names that are unique within each function."""
    taken: dict[tuple[int, str], int] = {}
    bindings: list[Binding] = []
    for each in found:
        place = each.place
        key = id(each.reader), place.name
        taken[key] = taken.get(key, 0) + 1
        name = place.name if taken[key] == 1 else f"{place.name} ({taken[key]})"
        line, readers = each.line, tuple(each.readers.values())
        uses = each.is_written, each.is_called
        bindings.append(Binding(name, each.reader, place.holder, line, *uses, place, readers))
    return bindings
