"""The check before each call: generated for the captures of one function, as it has to be fast.

Printed, it is a function of a few lines, one for each capture; `linecache` knows it.
"""

import functools
import linecache
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax

from leafwise._captures.fingerprint import FingerprintedFunction, Probe, keywords_of
from leafwise._captures.places import BoundIn, CapturedPlace, item_of
from leafwise._objects.attributes import dict_of, in_class
from leafwise._objects.code import is_installed_module
from leafwise._objects.reads import Item
from leafwise._objects.stand_ins import MISSING

_FILE: Final = "<leafwise check of captures, {} of them>"

Check = Callable[..., Any]
Make = Callable[[Callable[..., Any], Callable[..., Any]], Check]


def quick_check(probes: Sequence[Probe], count: int) -> Make:
    """Return a function that makes the check of some captures.

    Args:
        probes: The captures, with their values now.
        count: How many arguments most calls have, all by position: these are passed on as they
            came, which is what makes a call fast.

    Returns:
        A function of two callables that returns the check: a function that passes its arguments
        on to the first callable if all captures are the objects that they were, and otherwise
        calls the second one with them as a tuple and a dict.
    """
    names: dict[str, Any] = {}
    terms = [_term(probe, names) for probe in probes]
    parameters = ", ".join(["call", "recheck", "not_given", *names])
    make = _compiled(parameters, tuple(terms), min(count, _MOST_PASSED_ON))
    return lambda call, recheck: make(call, recheck, _NOT_GIVEN, *names.values())


_MOST_PASSED_ON: Final = 8
_NOT_GIVEN: Final = object()


@functools.lru_cache(maxsize=256)
def _compiled(parameters: str, terms: tuple[str, ...], count: int) -> Callable[..., Check]:
    given = [f"arg_{number}" for number in range(count)]
    defaults = [f"{name}=not_given" for name in given]
    first = ", ".join([*defaults, "/", "*args", "**kwargs"] if given else ["*args", "**kwargs"])
    lines = [
        f"def make({parameters}):",
        f"    def check({first}):",
        "        __tracebackhide__ = True",
        "        try:",
        "            same = (",
        *[f"                {'and ' * (place > 0)}{each}" for place, each in enumerate(terms)],
        "            )",
        "        except Exception:",
        "            same = False",
    ]
    if given:
        passed = ", ".join(given)
        lines += [
            f"        if same and not (args or kwargs or {given[-1]} is not_given):",
            f"            return call({passed})",
            f"        args = (*[each for each in ({passed},) if each is not not_given], *args)",
        ]
    lines += [
        "        if same:",
        "            return call(*args, **kwargs)",
        "        return recheck(args, kwargs)",
        "    return check",
    ]
    source = "\n".join(lines) + "\n"
    filename = _FILE.format(len(terms))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102  # what this module is for
    made: Callable[..., Check] = namespace["make"]
    return made


def _term(probe: Probe, names: dict[str, Any]) -> str:
    """Return the expression that is true as long as a capture is as it was."""
    place, value = probe.binding.place, probe.value
    found = _read_expression(place, value, names)
    if found.startswith(_UNBOUND):
        return found.removeprefix(_UNBOUND)
    if issubclass(type(value), jax.Array | type):
        return f"{_named(names, 'ref', weakref.ref(value))}() is {found}"
    is_function = type(value) is types.FunctionType
    is_wrapper = not is_function and is_installed_module(type(value).__module__)
    function = dict_of(value).get("__wrapped__") if is_wrapper else value
    if type(function) is types.FunctionType:
        # The code can be replaced, as autoreload does.
        ref = _named(names, "ref", weakref.ref(value))
        code = _named(names, "code", function.__code__)
        inside = "" if is_function else ".__wrapped__"
        return f"{ref}() is (found := {found}) and found{inside}.__code__ is {code}"
    same = probe.fingerprinted.same
    if same is None:
        return f"{found} is {_named(names, 'value', value)}"
    return f"{_named(names, 'same', same)}({found})"


_UNBOUND: Final = "!"
"""Stands before an expression that is true as long as a global is not bound."""


def _named(names: dict[str, Any], kind: str, value: Any) -> str:
    """Return the name of a parameter that stands for a value."""
    for name, known in names.items():
        if known is value and name.startswith(kind):
            return name
    name = f"{kind}_{len(names)}"
    names[name] = value
    return name


def _read_expression(place: CapturedPlace, value: Any, names: dict[str, Any]) -> str:
    """Return the expression that reads a place."""
    text = _root(place, names)
    if text is None or (text.startswith(_UNBOUND) and place.steps):
        return f"{_named(names, 'read', place.read)}()"
    if text.startswith(_UNBOUND):
        return text
    at = place.start()
    for step in place.steps:
        if isinstance(step, Item):
            text += f"[{_named(names, 'key', step.key)}]"
            at = item_of(at, step.key)
        elif _is_plain(at, step):
            text += f".{step}"
            at = getattr(at, step, MISSING)
        else:
            break
    else:
        if at is value and at is not MISSING:
            return text
    return f"{_named(names, 'read', place.read)}()"


def _root(place: CapturedPlace, names: dict[str, Any]) -> str | None:
    """Return the expression that reads the variable where a place starts."""
    if place.is_question:
        return None
    if place.holder is BoundIn.IMPORT and place.key[-1] in place.owner:
        return f"{_named(names, 'modules', place.owner)}[{place.key[-1]!r}]"
    if place.holder is BoundIn.GLOBAL:
        variable = place.key[-1]
        found = _named(names, "names", place.owner)
        if variable not in place.owner:  # a builtin, or nothing at all
            return f"{_UNBOUND}{variable!r} not in {found}"
        return f"{found}[{variable!r}]"
    if place.holder is BoundIn.CLOSURE and place.start() is not MISSING:
        cells = {id(each): each for each in place.owner.__closure__}
        return f"{_named(names, 'cell', cells[place.key[-1]])}.cell_contents"
    if place.holder is BoundIn.DEFAULT:
        return _default(place.owner, place.key[-1], names)
    if (keywords := keywords_of(place)) is not None:
        return f"{_named(names, 'keywords', keywords)}[{place.key[-1]!r}]"
    if place.holder in (BoundIn.ATTRIBUTE, BoundIn.PARTIAL) and place.steps:
        return _named(names, "owner", place.start())
    return None


def _default(function: types.FunctionType, variable: str, names: dict[str, Any]) -> str | None:
    """Return the expression that reads the default of a parameter."""
    code, defaults = function.__code__, function.__defaults__ or ()
    found = _named(names, "function", function)
    positional = code.co_varnames[: code.co_argcount]
    if variable not in positional:
        return f"{found}.__kwdefaults__[{variable!r}]"
    place = positional.index(variable) - len(positional)
    return f"{found}.__defaults__[{place}]" if place >= -len(defaults) else None


def _is_plain(value: Any, name: str) -> bool:
    """Return whether reading an attribute runs no code of the user's, if it is there."""
    kind: Any = type(value)
    if isinstance(value, types.ModuleType):
        return kind is types.ModuleType
    if isinstance(value, type):
        return kind is type and in_class(kind, name) is MISSING
    if kind.__getattribute__ not in (object.__getattribute__, tuple.__getattribute__):
        return False
    if name == "__class__":
        return True
    member = in_class(kind, name)
    return isinstance(member, _PLAIN) or not hasattr(type(member), "__get__")


_PLAIN: Final = (types.MemberDescriptorType, type(vars(FingerprintedFunction)["probes"]))
"""The descriptors of slots, and of the fields of a named tuple."""
