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
    is_plain,
    keeps_in_dict,
    of_partial,
)
from leafwise._objects.names import Item
from leafwise._objects.stand_ins import MISSING

_FILE: Final = "<leafwise check of captures, {} terms>"


def quick_check(
    probes: Sequence[Probe], call: Callable[..., Any], recheck: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the check of some captures, which calls one of two functions."""
    names = Names()
    terms = [term for probe in probes for term in _terms(probe, names)]
    make = _compiled(", ".join(["call", "recheck", *names.values]), tuple(terms))
    check: Callable[..., Any] = make(call, recheck, *names.values.values())
    return check


@functools.lru_cache(maxsize=256)
def _compiled(parameters: str, terms: tuple[str, ...]) -> Callable[..., Any]:
    lines = [
        f"def make({parameters}):",
        "    def check(*args, **kwargs):",
        "        __tracebackhide__ = True",
        "        try:",
        "            same = (",
        *[f"                {'and ' * (place > 0)}{each}" for place, each in enumerate(terms)],
        "            )",
        "        except Exception:",
        "            same = False",
        "        return call(*args, **kwargs) if same else recheck(*args, **kwargs)",
        "    return check",
    ]
    source = "\n".join(lines) + "\n"
    filename = _FILE.format(len(terms))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102  # what this module is for
    made: Callable[..., Any] = namespace["make"]
    return made


def _terms(probe: Probe, names: Names) -> list[str]:
    """Return expressions that are all true as long as a capture is as it was."""
    terms: list[str] = []
    found = _read_expression(probe.place, probe.value, names, terms)
    return [*terms, *probe.fingerprinted.source(found, names)]


def _read_expression(place: CapturedPlace, value: Any, names: Names, terms: list[str]) -> str:
    """Return the expression that reads a place, as long as the terms that it adds are true."""
    at, first, text = place.start(), len(terms), _root(place, names)
    for step in place.steps if text else ():
        text, at = _next(text, at, step, names, terms)
        if not text:
            break
    if text and at is value and at is not MISSING:
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
    kind = type(at)
    is_first = hasattr(type(in_class(kind, step)), "__set__")  # before the dict of an instance
    if keeps_in_dict(kind) and step in dict_of(at) and not is_first:
        find = names.of("getattribute", object.__getattribute__)
        return f"{find}({text}, '__dict__')[{step!r}]", dict_of(at)[step]
    return "", at


def _is_method(value: Any, name: str) -> bool:
    """Return whether an attribute is a function of the class, which nothing comes before."""
    kind: Any = type(value)
    if issubclass(kind, type) or type(kind) is not type or not is_plain(value, "__class__"):
        return False
    return type(in_class(kind, name)) is types.FunctionType and name not in dict_of(value)


def _root(place: CapturedPlace, names: Names) -> str:
    """Return the expression that reads the variable where a place starts; none for a rare one."""
    if place.start() is GONE:  # a moment ago it was there
        return ""
    owner, variable = place.owner(), place.variable
    match place.holder:
        case BoundIn.GLOBAL if variable in owner:  # and no builtin
            return f"{names.of('names', owner)}[{variable!r}]"
        case BoundIn.CLOSURE:
            return f"{names.of('cell', cell_of(owner, str(variable)))}.cell_contents"
        case BoundIn.DEFAULT:
            code, found = owner.__code__, f"{names.of('ref', place.owner)}()"
            if variable in (owner.__kwdefaults__ or ()):
                return f"{found}.__kwdefaults__[{variable!r}]"
            return f"{found}.__defaults__[{code.co_varnames.index(variable) - code.co_argcount}]"
        case BoundIn.PARTIAL:
            _, args, keywords = of_partial(owner)
            held = keywords if isinstance(variable, str) else args
            return f"{names.of('held', held)}[{variable!r}]"
        case BoundIn.ATTRIBUTE:
            return f"{names.of('ref', place.owner)}()"
        case _:
            return ""
