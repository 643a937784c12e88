"""The check before each call: generated for the captures of one function, as it has to be fast.

Printed, it is a function of a few lines, one for each capture; `linecache` knows it.
"""

import functools
import linecache
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

from leafwise._captures.fingerprint import Probe
from leafwise._captures.forms import Names
from leafwise._captures.places import GONE, BoundIn, CapturedPlace, cell_of, item_of
from leafwise._objects.attributes import (
    dict_of,
    in_class,
    is_first,
    is_plain,
    keeps_in_dict,
    of_partial,
)
from leafwise._objects.names import Item
from leafwise._objects.stand_ins import MISSING

_FILE: Final = "<leafwise check of captures, {} terms>"

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
    names = Names()
    terms = [term for probe in probes for term in _terms(probe, names)]
    parameters = ", ".join(["call", "recheck", "not_given", *names.values])
    make = _compiled(parameters, tuple(terms), min(count, _MOST_PASSED_ON))
    return lambda call, recheck: make(call, recheck, _NOT_GIVEN, *names.values.values())


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


def _terms(probe: Probe, names: Names) -> list[str]:
    """Return expressions that are all true as long as a capture is as it was."""
    place, value = probe.place, probe.value
    terms: list[str] = []
    found = _read_expression(place, value, names, terms)
    if found.startswith(_UNBOUND):
        return [found.removeprefix(_UNBOUND)]
    return [*terms, *probe.fingerprinted.source(found, names)]


_UNBOUND: Final = "!"
"""Stands before an expression that is true as long as a global is not bound."""


def _read_expression(place: CapturedPlace, value: Any, names: Names, terms: list[str]) -> str:
    """Return the expression that reads a place, as long as the terms that it adds are true."""
    text = _root(place, names)
    if text is None or (text.startswith(_UNBOUND) and place.steps):
        return f"{names.of('read', place.read)}()"
    if text.startswith(_UNBOUND):
        return text
    at, first = place.start(), len(terms)
    for step in place.steps:
        text, at = _next(text, at, step, names, terms)
        if not text:
            break
    else:
        if at is value and at is not MISSING:
            return text
    del terms[first:]
    return f"{names.of('read', place.read)}()"


def _next(text: str, at: Any, step: str | Item, names: Names, terms: list[str]) -> tuple[str, Any]:
    """Return the expression one step further on, and its value; no text if there is none."""
    if isinstance(step, Item):
        return f"{text}[{names.of('key', step.key)}]", item_of(at, step.key)
    if step == "__class__":
        return f"type({text})", type(at)
    if is_plain(at, step):
        return f"{text}.{step}", getattr(at, step, MISSING)
    if _is_method(at, step):
        if hasattr(at, "__dict__"):
            terms.append(f"{step!r} not in {text}.__dict__")
        return f"type({text}).{step}", getattr(type(at), step)
    if keeps_in_dict(type(at)) and step in dict_of(at) and not is_first(type(at), step):
        find = names.of("getattribute", object.__getattribute__)
        return f"{find}({text}, '__dict__')[{step!r}]", dict_of(at)[step]
    return "", at


def _is_method(value: Any, name: str) -> bool:
    """Return whether an attribute is a function of the class, which nothing comes before."""
    kind: Any = type(value)
    if issubclass(kind, type) or type(kind) is not type or not is_plain(value, "__class__"):
        return False
    return type(in_class(kind, name)) is types.FunctionType and name not in dict_of(value)


def _root(place: CapturedPlace, names: Names) -> str | None:
    """Return the expression that reads the variable where a place starts."""
    if place.start() is GONE:  # a moment ago it was there
        return None
    owner, variable = place.owner(), place.variable
    match place.holder:
        case BoundIn.IMPORT:
            return f"{names.of('modules', owner)}[{variable!r}]"
        case BoundIn.GLOBAL:
            found = names.of("names", owner)
            if variable not in owner:  # a builtin, or nothing at all
                return f"{_UNBOUND}{variable!r} not in {found}"
            return f"{found}[{variable!r}]"
        case BoundIn.CLOSURE:
            return f"{names.of('cell', cell_of(owner, str(variable)))}.cell_contents"
        case BoundIn.DEFAULT:
            return _default(place.owner, str(variable), names)
        case BoundIn.PARTIAL:
            _, args, keywords = of_partial(owner)
            held = keywords if isinstance(variable, str) else args
            return f"{names.of('held', held)}[{variable!r}]"
        case BoundIn.ATTRIBUTE:
            return f"{names.of('ref', place.owner)}()"


def _default(find: Callable[[], Any], variable: str, names: Names) -> str | None:
    """Return the expression that reads the default of a parameter."""
    function = find()
    code, defaults = function.__code__, function.__defaults__ or ()
    found = f"{names.of('ref', find)}()"
    positional = code.co_varnames[: code.co_argcount]
    if variable not in positional:
        return f"{found}.__kwdefaults__[{variable!r}]"
    place = positional.index(variable) - len(positional)
    return f"{found}.__defaults__[{place}]" if place >= -len(defaults) else None
