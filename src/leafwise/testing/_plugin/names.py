"""Whether a name that a marker counts is the name of any function."""

import difflib
import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any, Final

import jax

from leafwise._jit.recorder import Event

_SEEN: Final[set[str]] = set()
"""Names of functions that JAX has told of, and of others that were found to exist."""


def note_names(events: Iterable[Event]) -> None:
    """Remember the names of functions that were traced."""
    for event in events:
        _SEEN.add(event.name)
        qualified = getattr(event.fun, "__qualname__", None)
        if isinstance(qualified, str):
            _SEEN.add(qualified)


def problem_of(name: str) -> str:
    """Say that no function has a name; return an empty text if one has, or if that is unknown.

    A function that is warm, or that a test is glad not to call, has no events. So the functions
    of the whole process are asked, and those that a function would define when it is called.
    """
    if name in _SEEN or not name.replace(".", "_").isidentifier():
        return ""
    names = _all_names()
    if names is None or name in names:
        _SEEN.add(name)
        return ""
    near = difflib.get_close_matches(name, sorted(_SEEN), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no function of the name {name!r}, so that nothing is counted{hint}"


def _all_names() -> set[str] | None:
    """Return the names of all functions and classes; None where some cannot be seen."""
    found: set[str] = set()
    # After `gc.freeze()` what was there before is not listed any more.
    missing = {id(_all_names), id(jax.tree_util.tree_map)}
    codes: list[types.CodeType] = []
    for each in gc.get_objects():
        kind = type(each)
        if kind is types.FunctionType:
            found.update((each.__name__, each.__qualname__))
            codes.append(each.__code__)
            missing.discard(id(each))
        elif issubclass(kind, type):
            found.update((each.__name__, each.__qualname__))
    if missing:
        return None
    for code in _with_inner(codes):
        found.update((code.co_name, code.co_qualname))
    return found


def _with_inner(codes: list[types.CodeType]) -> Iterator[types.CodeType]:
    known: set[int] = set()
    while codes:
        code = codes.pop()
        if id(code) not in known:
            known.add(id(code))
            yield code
            inner: tuple[Any, ...] = code.co_consts
            codes += [each for each in inner if isinstance(each, types.CodeType)]
