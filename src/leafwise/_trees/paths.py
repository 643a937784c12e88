"""Paths: the strings that name places in a tree, and the steps that they consist of.

A path is a tuple of steps, each a string: ``.encoder``, ``[0]``, ``['a b']``. Leafwise prints
their concatenation, without the first dot, everywhere.
"""

import ast
import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax

from leafwise._objects.text import describe_array, got
from leafwise._statics.key import KEY
from leafwise.errors import PathError, TreeError

Steps = tuple[str, ...]

ANY: Final = "*"
"""In a pattern, matches any one step."""

DEEP: Final = "**"
"""In a pattern, matches any number of steps, including zero."""

_PATTERNS: Final = {ANY: "[*]", DEEP: ".**"}

_NAME: Final = re.compile(r"[^.\[\]*\s][^.\[\]*]*|\*\*?")


def step_of(key: Any) -> str:
    """Return the step for a JAX key; a string is a step already."""
    kind = type(key)
    if kind is jax.tree_util.GetAttrKey:
        return f".{key.name}"
    if kind is jax.tree_util.SequenceKey:
        return f"[{key.idx}]"
    if kind is jax.tree_util.DictKey:
        return f"[{key.key!r}]"
    if kind is jax.tree_util.FlattenedIndexKey:
        return f"[<flat index {key.key}>]"
    return str(key)  # a string from us, or a user-defined key type


@functools.lru_cache
def field_name(step: str) -> str | None:
    """Return the name in ``.name`` or ``['name']``, or None for any other step."""
    found = re.fullmatch(r"\.(\w+)|\['(\w+)'\]", step)
    return found and (found[1] or found[2])


def format_path(steps: Iterable[str]) -> str:
    """Return a path as it is printed: ``encoder.w``, or an empty string for the tree itself."""
    return "".join(_PATTERNS.get(step, step) for step in steps).removeprefix(".")


def name_in(tree: Any, steps: Iterable[str]) -> str:
    """Return ``Model.encoder.w``, for a message."""
    path = format_path(steps)
    return f"{type(tree).__name__}{'' if path[:1] in ('', '[') else '.'}{path}"


def format_node(tree: Any, steps: Steps, cls: type) -> str:
    """Return ``Model.encoder is a Encoder``, for a message."""
    return f"{name_in(tree, steps) if steps else 'the tree'} is a {cls.__name__}"


def steps_of(path: Any) -> Steps:
    """Return the steps of a path, given as a string or as a JAX key path."""
    if isinstance(path, str):
        return parse(path)
    if isinstance(path, tuple) and not any(isinstance(key, str | int) for key in path):
        return tuple(map(step_of, path))
    raise TypeError(
        f"a path is a string such as 'layers[0].w', or a JAX key path as in "
        f"jax.tree.leaves_with_path: got {got(path)}"
    )


@functools.lru_cache
def parse(text: str) -> Steps:
    """Return the steps of a path that is written as a string."""
    steps: list[str] = []
    place = 0
    while place < len(text):
        if text[place] == "[":
            step, place = _item(text, place)
        else:
            # The first name has no dot, nor does a key of a user-defined class: `/w`.
            start = place + (text[place] == ".")
            name = _NAME.match(text, start)
            own = text[place - 1] == "]" and not (text[place].isalnum() or text[place] in "_*")
            if name is None or (start == place and place and not own):
                raise _not_a_path(text, start)
            step = name[0] if name[0] in (ANY, DEEP) else f".{name[0]}"
            place = name.end()
        steps.append(step)
    return tuple(steps)


def _item(text: str, start: int) -> tuple[str, int]:
    """Return the step in brackets that begins at `start`, and the index after it."""
    balanced: tuple[str, int] | None = None
    end = text.find("]", start)
    while end >= 0:
        inside = text[start + 1 : end].strip()
        if inside in (ANY, DEEP):
            return inside, end + 1
        try:
            return f"[{ast.literal_eval(inside)!r}]", end + 1
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            # The repr of an object, which is not a literal, stays as it is.
            if balanced is None and inside and inside.count("[") == inside.count("]"):
                balanced = f"[{inside}]", end + 1
        end = text.find("]", end + 1)
    if balanced is None:
        raise _not_a_path(text, start)
    return balanced


def _not_a_path(text: str, place: int) -> PathError:
    return PathError(
        f"{text!r} is not a path: it cannot be read from {text[place:]!r} on\n"
        f"  fix: write it as leafwise prints it: 'encoder.act', 'layers[0].w', \"table['a b']\"; "
        f"in lw.select, `*` matches one step and `**` any number"
    )


def place_of(steps: Sequence[str], wanted: str) -> int | None:
    """Return the index of the wanted step, or None; ``[-1]`` is the last item of a list."""
    if wanted in steps:
        return steps.index(wanted)
    if wanted.startswith(".") and wanted[1:] in steps:  # the string of a user-defined key
        return steps.index(wanted[1:])
    # JAX's key for a child that only leafwise has named
    if flat := re.fullmatch(r"\[<flat index (\d+)>\]", wanted):
        place = int(flat[1])
        return place if place < len(steps) else None
    if wanted.startswith("[-") and wanted[2:-1].isdecimal() and steps and steps[0] == "[0]":
        place = len(steps) - int(wanted[2:-1])
        return place if place >= 0 and steps[place] == f"[{place}]" else None
    return None


def nowhere(
    path: str,
    wanted: Steps,
    wrong: int,
    why: str,
    *,
    siblings: Sequence[str],
    paths: Iterable[Steps],
) -> PathError:
    """Return the error for a path that leads to no part of a tree."""
    at = format_path(wanted[: wrong + 1])
    where = f", from {at!r} on" if len(wanted) > wrong + 1 else ""
    siblings = [each for each in siblings if not each.startswith(f".{KEY}")]
    meant = nearest_path(wanted, wrong, siblings, paths)
    nearest = "" if meant is None else f"\n  nearest: {format_path(meant)!r}"
    return PathError(f"{path!r} leads nowhere{where}: {why}{nearest}")


def nearest_path(
    wanted: Steps, wrong: int, siblings: Sequence[str], paths: Iterable[Steps]
) -> Steps | None:
    """Return the path that was most likely meant, or None; `nowhere` has the arguments."""
    close = difflib.get_close_matches(wanted[wrong], siblings, 1)
    known = [steps for steps, _ in zip(paths, range(50_000), strict=False) if steps]
    if close:
        here = (*wanted[:wrong], close[0])
        meant = (*here, *wanted[wrong + 1 :])
        is_pattern = any(step in (ANY, DEEP) for step in wanted)
        return meant if is_pattern or meant in known else here
    ending = [steps for steps in known if steps[-len(wanted) :] == wanted]
    if ending:
        return min(ending, key=len)
    texts = {format_path(steps): steps for steps in known[:2000]}  # comparing them is slow
    found = difflib.get_close_matches(format_path(wanted), texts, 1, 0.0)
    return texts[found[0]] if found else None


def format_children(steps: Sequence[str]) -> str:
    """Return ``it has w, b`` for the steps from a node, for a message."""
    items = [step for step in steps if step.startswith("[") and step[1:-1].isdecimal()]
    if len(items) == len(steps) > 1:
        return f"it has {items[0]} to {items[-1]}"
    names = [step.removeprefix(".") for step in steps if not step.startswith(f".{KEY}")]
    few, more = names[:_FEW], ["..."] if len(names) > _FEW else []
    return f"it has {', '.join(few + more)}" if few else "it has no parts"


_FEW: Final = 12


# Requests for values at places of a tree, passed down to its parts.


class Request(NamedTuple):
    """A value to put at a path: the key as the user wrote it, its steps, and the value."""

    key: Any
    steps: Steps
    value: Any


def requests_of(asked: Mapping[Any, Any], whose: str) -> list[Request]:
    """Return a mapping from paths to values as requests; `whose` names the caller."""
    if not isinstance(asked, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{whose} takes a mapping from paths to values, got {got(asked)}")
    found = [Request(key, steps_of(key), value) for key, value in asked.items()]
    for key, steps, _ in found:
        if ANY in steps or DEEP in steps:
            raise PathError(
                f"{key!r}: {whose} takes the path of one place, not a pattern\n"
                f"  fix: name each place; patterns are for lw.select"
            )
    return found


def whole_request(requests: Sequence[Request], depth: int) -> Request | None:
    """Return the request whose path ends at this depth, for the whole value, or None."""
    here = [request for request in requests if len(request.steps) == depth]
    if here and len(requests) > 1:
        other = next(request for request in requests if request is not here[0])
        raise TreeError(
            f"{_text_of(here[0])!r} and {_text_of(other)!r} overlap: "
            f"one would replace the other\n  fix: leave one of them out"
        )
    return here[0] if here else None


def _text_of(request: Request) -> str:
    return request.key if isinstance(request.key, str) else format_path(request.steps)


def group_by_part(
    requests: Sequence[Request],
    path: Steps,
    value: Any,
    steps: Sequence[str] | None,
    *,
    tree: Any,
    paths: Iterable[Steps],
    statics: Sequence[str] = (),
) -> dict[int, list[Request]]:
    """Group requests by the index of the part that their next step leads to."""
    found: dict[int, list[Request]] = {}
    for request in requests:
        step = request.steps[len(path)]
        place = place_of(steps or (), step)
        if place is None:
            if step in statics:
                why = f"{type(value).__name__}{step} is static: it is copied from the tree"
            elif steps is not None:
                why = f"{format_node(tree, path, type(value))}: {format_children(steps)}"
            else:
                why = f"{name_in(tree, path)} is {_described(value)}"
            wanted = (*path, *request.steps[len(path) :])
            text = _text_of(request)
            raise nowhere(text, wanted, len(path), why, siblings=steps or (), paths=paths)
        found.setdefault(place, []).append(request)
    return found


def _described(value: Any) -> str:
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return f"{got(value)}, which has no parts"
    array = describe_array(value)
    return f"{array}, which has no parts; for elements of an array: `x.at[0].set(...)`"
