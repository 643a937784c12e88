"""The walk over everything that a function reads: its code, and the code that this calls."""

import dataclasses
import functools
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import jax

from leafwise._captures.arguments import (
    Argument,
    Arguments,
    Call,
    Rest,
    ToEnter,
    assigned,
    code_within,
    identity,
    passed_to,
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
    registry_of,
    step_into,
)
from leafwise._captures.waiting_methods import ClassValue, ClassValues, WaitingMethods
from leafwise._objects.attributes import (
    Member,
    MemberKind,
    behind_proxy,
    dispatched,
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
    of_partial,
    stored_attributes,
    wrapped_by,
)
from leafwise._objects.bytecode import reads_of
from leafwise._objects.classes import is_a, module_of
from leafwise._objects.code import function_in, is_installed_module, own_bases
from leafwise._objects.methods import BoundMethod
from leafwise._objects.reads import Const, Given, Item, Read, Root, Usage
from leafwise._objects.stand_ins import MISSING

PASSED_OVER: Final = frozenset(
    {
        *("__new__", "__init__", "__post_init__", "__init_subclass__", "__del__"),
        *("__repr__", "__str__", "__format__", "__reduce__", "__getstate__", "__setstate__"),
    }
)
"""The methods that no program calls of an instance that exists already."""

_MOST_ENTERED: Final = 2_000
"""Beyond so many functions, what they name is no longer entered."""

_MOST_ITEMS: Final = 20_000
"""So many items of containers are searched for functions and objects to enter."""

_MOST_CALLS: Final = 32
"""After so many calls of a function, its arguments are used as a whole: it may be recursive."""

_PLAIN_USES: Final = frozenset({Usage.READ, Usage.CALLED, Usage.MUTATED, Usage.WRITTEN})

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


class CaptureWalk:
    """What is found on the way from one function.

    Attributes:
        found: The places, in the order of first reads.
    """

    def __init__(self) -> None:
        self.found: list[CaptureSite] = []
        self._known: dict[tuple[Any, ...], CaptureSite] = {}
        self._entered: dict[tuple[Any, ...], Any] = {}
        self._pending: list[ToEnter] = []
        self._next: list[ToEnter] = []
        self._room = _MOST_ITEMS
        self._methods = WaitingMethods[ToEnter]()
        self._class_values = ClassValues()
        self._called: Counter[int] = Counter()
        self._held: dict[int, Any] = {}

    def start(self, fn: Callable[..., Any], given: Iterable[Any] = ()) -> None:
        """Follow a function, and all that it leads to.

        And the functions among its arguments, and what it names of the classes of others.
        """
        self._pending += [*map(_given, given), ToEnter(fn, None)]
        while self._pending and len(self._entered) < _MOST_ENTERED:
            self._visit(self._pending.pop())
            self._pending += reversed(self._next)
            self._next = []

    def entered(self) -> list[Any]:
        """Return everything callable that was entered, each once."""
        return list({id(value): value for value in self._entered.values()}.values())

    def _held_item(self, entry: ToEnter, place: CapturedPlace) -> None:
        """Follow what an object holds that cannot be called, once."""
        if id(entry.value) not in self._held:
            self._held[id(entry.value)] = entry.value
            self._follow(place, entry.value)

    def _visit(self, entry: ToEnter) -> None:
        value = entry.value
        if entry.place is not None and not callable(value):
            self._held_item(entry, entry.place)
            return
        known = tuple(identity(each) for each in entry.args)
        named = tuple((name, identity(each)) for name, each in entry.kwargs)
        place = None if entry.place is None or is_a(value, types.FunctionType) else entry.place
        key = id(value), known, named, place and (place.key, place.steps)
        if key in self._entered:
            return
        self._entered[key] = value
        if hides(value):
            self._object(value, entry)
        elif is_a(value, types.FunctionType):
            self._function(value, entry)
        elif is_a(value, (types.MethodType, BoundMethod)) or is_bound_method(value):
            method: Any = value
            receiver = self._receiver(method.__self__, method.__func__, entry.place)
            self._queue(entry, method.__func__, (receiver, *entry.args))
        elif is_a(value, functools.partial):
            self._partial(value, entry)
        elif is_a(value, type):
            self._use_arguments(entry)
            self._class(value, made=entry.place is None and bool(entry.args))
        else:
            self._object(value, entry)

    def _queue(self, entry: ToEnter, value: Any, args: tuple[Argument, ...] | None = None) -> None:
        args = entry.args if args is None else args
        self._next.append(ToEnter(value, entry.place, args, entry.kwargs, entry.quiet))

    def _receiver(self, instance: Any, function: Any, place: CapturedPlace | None) -> CapturedPlace:
        """Return the place of the object that a method belongs to."""
        if place is not None:
            return fixed_place(BoundIn.ATTRIBUTE, f"{place.name}.__self__", instance, instance)
        return fixed_place(BoundIn.ATTRIBUTE, first_parameter(function), instance, instance)

    def _function(self, function: types.FunctionType, entry: ToEnter) -> None:
        if is_installed(function):
            self._function_of_package(function, entry)
            return
        given = assigned(function, entry)
        if entry.member is not None:
            self._add(entry.member, entry.member.owner, 0, is_written=False)
        self._next += self._methods.named(function.__code__)
        self._read_of_classes(self._class_values.named(function))
        reads = reads_of(function.__code__)
        first = [
            cast("Given", read.given).args[0]
            for read in reads
            if self._runs_on_host(function, read, given)
        ]
        on_host = {each.value for each in first if isinstance(each, Const)}
        for read in reads:
            if read.within is None or read.within not in on_host:
                self._read(function, read, given)

    def _runs_on_host(self, function: types.FunctionType, read: Read, given: Arguments) -> bool:
        """Return whether a call has its first argument run on the host, again at each call."""
        if read.usage is not Usage.CALLED or read.given is None or not read.given.args:
            return False
        place = self._place(function, read, given)
        value: Any = place.read() if isinstance(place, CapturedPlace) else MISSING
        for step in read.steps:
            known = is_a(value, types.ModuleType) and isinstance(step, str)
            value = vars(value).get(cast("str", step), MISSING) if known else MISSING
        return any(value is each for each in _host_callbacks())

    def _read(self, function: types.FunctionType, read: Read, given: Arguments) -> None:
        """Follow one read of a function of the user's."""
        place = self._place(function, read, given)
        if isinstance(place, Rest):
            for each in place.places():
                self._use(each, each.read(), function, read.line)
            return
        usage = read.usage
        if usage in (Usage.IS, Usage.PRESENT):
            question = self._question(function, read, given)
            if question is not None:
                self._add(question, function, read.line, is_written=False)
                return
        is_whole = usage is Usage.RETURNED and not read.steps
        if is_whole and function.__name__ == "__get__" and read.name == first_parameter(function):
            return  # a descriptor returns itself if it is read of the class
        if usage not in _PLAIN_USES:
            read = read._replace(usage=Usage.READ)
        self._follow_read(place, read, function, given)

    def _follow_read(
        self, place: Argument, read: Read, function: types.FunctionType, given: Arguments
    ) -> None:
        passed = read.given or Given()
        if self._runs_on_host(function, read, given):
            passed = passed._replace(args=passed.args[1:])
        call = self._call(function, passed, given) if read.usage is Usage.CALLED else None
        if read.root is Root.SUPER:
            self._super(function, read, given, call)
        elif isinstance(place, type):
            self._read_of_class(place, read, function, call)
        elif place is not None:
            self._resolve(place, read, function, call=call)
        for each in () if call is not None and call.is_followed else passed.reads():
            self._read(function, each, given)

    def _call(self, function: types.FunctionType, passed: Given, given: Arguments) -> Call | None:
        """Return what a call passes on; None where something of it cannot be followed."""
        args: list[Argument] = []
        kwargs: list[tuple[str, Argument]] = []
        for name, each in (*((None, each) for each in passed.args), *passed.kwargs):
            place = self._argument(function, each, given) if isinstance(each, Read) else None
            if place is _WHOLE:
                return None
            if isinstance(place, Rest):
                args += place.args
                kwargs += place.kwargs
            elif name is None:
                args.append(place)
            else:
                kwargs.append((name, place))
        return Call(tuple(args), tuple(kwargs))

    def _argument(self, function: types.FunctionType, read: Read, given: Arguments) -> Any:
        """Return the place that a read leads to; `_WHOLE` if it has none."""
        place = self._place(function, read, given)
        if isinstance(place, Rest) or read.usage is Usage.SPREAD:
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

    def _function_of_package(self, function: types.FunctionType, entry: ToEnter) -> None:
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
                self._next.append(ToEnter(each, place, quiet=quiet))

    def _place(self, function: types.FunctionType, read: Read, given: Arguments) -> Argument | Rest:
        if read.root is Root.GLOBAL:
            return global_place(function, read.name)
        if read.root is Root.IMPORT:
            return import_place(function, read.name)
        if read.root is Root.FREE:
            by_super = read.name == "__class__" and not read.steps
            return None if by_super else cell_place(function, read.name)
        if read.name in given:
            return given[read.name]
        return default_place(function, read.name)

    def _partial(self, value: "functools.partial[Any]", entry: ToEnter) -> None:
        func, given, named = of_partial(value)
        args = tuple(
            fixed_place(BoundIn.PARTIAL, f"args[{index}]", item, value)
            for index, item in enumerate(given)
        )
        own = {
            name: fixed_place(BoundIn.PARTIAL, name, item, value) for name, item in named.items()
        }
        kwargs = tuple({**own, **dict(entry.kwargs)}.items())
        self._next.append(ToEnter(func, entry.place, (*args, *entry.args), kwargs))

    def _class(self, cls: type, *, made: bool) -> None:
        """Enter those methods of a class of the user's that are named, now or later.

        `made` says that an instance exists already.
        """
        self._read_of_classes(self._class_values.met(cls))
        for base in own_bases(cls):
            for name, member in list(vars(base).items()):
                if made and name in PASSED_OVER:
                    continue
                place = member_place(base, name)
                entries = [
                    ToEnter(function, None, (cls,), member=place)
                    for function in functions_behind(member)
                    if not is_installed(function)
                ]
                self._next += self._methods.add(cls, name, entries)

    def _read_of_classes(self, found: list[ClassValue]) -> None:
        """Follow what code reads of an object that may be an instance of a class."""
        for cls, read, reader in found:
            self._resolve(class_place(cls), read, reader)

    def _object(self, value: Any, entry: ToEnter) -> None:
        call = in_class(type(value), "__call__")
        own = [each for each in functions_behind(call) if not is_installed(each)]
        if own:
            receiver = entry.place
            if receiver is None or receiver.read() is not value:  # that is around it: a partial
                receiver = self._receiver(value, own[0], None)
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
            if is_tree(value):  # a Sequential of flax
                self._next += map(_given, code_within([value]))

    def _use_arguments(self, entry: ToEnter) -> None:
        """Add the arguments of a callable that is not entered."""
        for place in (*entry.args, *(place for _, place in entry.kwargs)):
            if isinstance(place, CapturedPlace):
                self._use(place, place.read(), entry.value, 0)

    def _super(
        self, function: types.FunctionType, read: Read, given: Arguments, call: Call | None
    ) -> None:
        receiver = given.get(read.name)
        if (
            receiver is None
            or isinstance(receiver, Rest)
            or "__class__" not in function.__code__.co_freevars
            or not read.steps
        ):
            return
        owner = cell_place(function, "__class__").read()
        kind = receiver if isinstance(receiver, type) else type(receiver.read())
        mro: Sequence[type] = kind.__mro__
        behind = mro[mro.index(owner) + 1 :] if owner in mro else ()
        name = cast("str", read.steps[0])
        for base in behind:
            if name in vars(base):
                member = vars(base)[name]
                args, kwargs = passed_to(member, call)
                if not hasattr(type(member), "__get__"):
                    self._resolve(class_place(base), read, function)
                for found in functions_behind(member):
                    self._next.append(ToEnter(found, None, (receiver, *args), kwargs))
                    if not is_installed(found):
                        place = class_place(base).then(name)
                        self._add(place, function, read.line, is_written=False)
                return

    def _read_of_class(
        self, cls: type, read: Read, reader: types.FunctionType, call: Call | None
    ) -> None:
        """Follow what is read of an instance of which only the class is known."""
        first, *others = read.steps or ("",)
        if first == "__class__" and others:
            read = read._replace(steps=tuple(others))
            self._resolve(class_place(cls), read, reader, call=call)
        elif isinstance(first, str):
            member = in_class(cls, first)
            args, kwargs = passed_to(member, None if others else call)
            for function in functions_behind(member):
                if not is_installed(function):
                    place = member_place(cls, first)
                    entry = ToEnter(function, None, (cls, *args), kwargs, member=place)
                    self._next.append(entry)

    def _resolve(
        self,
        place: CapturedPlace,
        read: Read,
        reader: types.FunctionType,
        *,
        quiet: bool | None = None,
        call: Call | None = None,
    ) -> None:
        """Follow one read to its end; `quiet` is given for a closure of a package."""
        read = as_used(place, read)
        value, whole = place.read(), read.steps
        for index, step in enumerate(read.steps):
            if value is MISSING or hides(value):
                break
            if is_a(value, types.ModuleType) and is_installed_module(value.__name__):
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
            read = read._replace(usage=Usage.READ)  # what is called is a part of it
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
        call: Call | None,
    ) -> bool:
        """Enter a method or a property of an object; False if it is not the user's."""
        if member.kind is MemberKind.DISPATCHED:
            self._dispatched(place, value, member.value, read, reader, call=call)
            return True
        if member.kind is MemberKind.HIDDEN or is_installed(member.value):
            return False
        if read.usage is Usage.WRITTEN:
            return True
        receiver: Argument = place.before()
        if member.kind is MemberKind.CLASS_METHOD:
            receiver = class_place(value if is_a(value, type) else type(value))
        if member.kind is MemberKind.DESCRIPTOR:
            descriptor = dataclasses.replace(in_type_of(place), is_member=False)
            getter = dataclasses.replace(descriptor.then("__get__"), is_member=True)
            self._add(getter, reader, read.line, is_written=False)
            self._next.append(ToEnter(member.value, None, (descriptor, receiver, None)))
            return True
        is_property = member.kind is MemberKind.PROPERTY
        known = in_type_of(place) if is_property else place
        self._add(known, reader, read.line, is_written=False)
        raw = MISSING if is_property else in_class(type(value), cast("str", place.steps[-1]))
        args, kwargs = passed_to(raw, call)
        self._next.append(ToEnter(member.value, None, (receiver, *args), kwargs))
        return True

    def _dispatched(
        self,
        place: CapturedPlace,
        value: Any,
        member: "functools.singledispatchmethod[Any]",
        read: Read,
        reader: types.FunctionType,
        *,
        call: Call | None,
    ) -> None:
        """Enter each function among which a `functools.singledispatchmethod` chooses."""
        registry = registry_of(place if is_a(value, type) else in_type_of(place))
        self._add(registry, reader, read.line, is_written=False)
        for each in dispatched(member):
            receiver: tuple[Argument, ...] = () if is_a(value, type) else (place.before(),)
            if is_a(each, classmethod):
                receiver = (class_place(value if is_a(value, type) else type(value)),)
            args, kwargs = passed_to(each, call)
            bound = () if is_a(each, staticmethod) else receiver
            self._next.append(ToEnter(function_in(each), None, (*bound, *args), kwargs))

    def _use(
        self,
        place: CapturedPlace,
        value: Any,
        reader: Callable[..., Any],
        line: int,
        usage: Usage = Usage.READ,
        *,
        call: Call | None = None,
    ) -> None:
        """Add a value that is used as a whole, and enter what it leads to."""
        if hides(value):
            self._add(place, reader, line, is_written=usage is Usage.WRITTEN)
            return
        is_called = usage is Usage.CALLED
        if is_called and is_object(value) and has_own_call(value):
            self._add(in_type_of(place.then("__call__")), reader, line, is_written=False)
        else:
            self._add(place, reader, line, is_written=usage is Usage.WRITTEN, is_called=is_called)
        if call is not None and self._can_follow(value):
            self._next.append(ToEnter(value, place, *call.follow()))
        elif usage is not Usage.WRITTEN:
            self._follow(place, value)

    def _can_follow(self, value: Any) -> bool:
        """Return whether what is called hands its arguments to code of the user's as they are."""
        while not hides(value):
            if is_a(value, types.FunctionType):
                self._called[id(value)] += 1
                return not is_installed(value) and self._called[id(value)] <= _MOST_CALLS
            if is_a(value, (types.MethodType, BoundMethod)):
                value = value.__func__
            elif is_a(value, functools.partial):
                value = value.func
            elif has_own_call(value):
                value = in_class(type(value), "__call__")
            else:
                break
        return False

    def _follow(self, place: CapturedPlace, value: Any, *, quiet: bool = False) -> None:
        """Enter what a value leads to, and what is in it."""
        value = behind_proxy(value)
        if hides(value):
            return
        # A metaclass may say that its classes equal all others: a set asks for the hash first.
        if type(value) in {list, dict} or is_a(value, tuple):
            pairs: Iterable[Any] = value.items() if type(value) is dict else enumerate(value)
            for key, item in pairs if len(place.steps) < _DEEPEST else ():
                self._room -= 1
                if self._room < 0:
                    break
                self._follow(place.then(Item(key)), item, quiet=quiet)
        is_own = _is_own(value)
        if not is_own and (is_data(value) or is_a(value, tuple)):
            return
        if callable(value):
            self._next.append(ToEnter(value, place, quiet=quiet))
        if is_own and (is_object(value) or is_data(value)):
            self._next.append(ToEnter(type(value), None, (type(value),)))
            self._follow_attributes(place, value)
        elif is_a(value, weakref.ReferenceType) or (
            is_object(value) and not callable(value) and is_tree(value)  # a GraphDef of flax
        ):
            self._next += map(_given, code_within([value]))

    def _follow_attributes(self, place: CapturedPlace, value: Any) -> None:
        """Enter what an object holds, once code names the attribute."""
        for name, item in stored_attributes(value).items():
            if _is_own(item) or not is_data(item) or type(item) in (list, tuple, dict):
                entries = [ToEnter(item, place.then(name))]
                self._next += self._methods.add(type(value), name, entries)

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


def first_parameter(function: object) -> str:
    """Return the name that a method has for its object; ``self`` where it does not say."""
    code = getattr(function, "__code__", None)
    named = isinstance(code, types.CodeType) and code.co_argcount > 0
    return code.co_varnames[0] if named and code is not None else "self"


def _is_own(value: Any) -> bool:
    """Return whether a value is of a class of the user's: a number of one can have methods."""
    return not is_installed_module(module_of(type(value)))


def _given(value: Any) -> ToEnter:
    return ToEnter(value, None, (value,) if is_a(value, type) else ())


def _host_callbacks() -> tuple[Any, ...]:
    """Return the functions of JAX that have another one run on the host, at each call."""
    experimental = sys.modules.get("jax.experimental")
    io_callback = getattr(experimental, "io_callback", MISSING)
    return jax.debug.callback, jax.pure_callback, io_callback


def _holds_data(value: Any) -> bool:
    """Return whether a container holds more than functions; so does everything else."""
    if type(value) not in {list, tuple}:
        return True
    return not value or any(not is_callable(item) for item in value)


_WHOLE: Final[Any] = object()
"""Stands for an argument that is used as a whole."""


def _is_installed_module(value: Any) -> bool:
    return is_a(value, types.ModuleType) and is_installed_module(value.__name__)
