"""Requests for values at places of a tree, and how they are passed down to its parts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from leafwise._objects.text import describe_array, got
from leafwise._trees.paths import (
    ANY,
    DEEP,
    Steps,
    format_children,
    format_node,
    format_path,
    name_in,
    nowhere,
    place_of,
    steps_of,
)
from leafwise.errors import PathError, TreeError


class Request(NamedTuple):
    """One value that is to stand at a place."""

    key: Any
    steps: Steps
    value: Any


def requests_of(asked: Mapping[Any, Any], whose: str) -> list[Request]:
    """Return the values by path as requests."""
    if not isinstance(asked, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{whose} takes a mapping from paths to values, got {got(asked)}")
    found = [Request(key, steps_of(key), value) for key, value in asked.items()]
    for key, steps, _ in found:
        if ANY in steps or DEEP in steps:
            raise PathError(
                f"{key!r}: {whose} takes the path of one place, not a pattern\n"
                f"  fix: name each place; patterns are for lw.where"
            )
    return found


def whole_request(requests: Sequence[Request], depth: int) -> Request | None:
    """Return the request that ends here, for the whole value, if there is one."""
    here = [request for request in requests if len(request.steps) == depth]
    if here and len(requests) > 1:
        other = next(request for request in requests if request is not here[0])
        raise TreeError(
            f"{_text_of(here[0])!r} and {_text_of(other)!r} meet: "
            f"the one takes the place of the other\n  fix: leave one of them out"
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
    """Group requests by the part, among those with these steps, that they lead into."""
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
