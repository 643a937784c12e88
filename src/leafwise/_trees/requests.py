"""What is asked for at places of a tree, sorted by where it is asked for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from leafwise._objects.text import describe_array, got
from leafwise._trees.paths import (
    ANY,
    DEEP,
    Steps,
    format_path,
    format_steps,
    name_in,
    nearest,
    place_of,
    show,
    steps_of,
)
from leafwise.errors import PathError, TreeError


class Request(NamedTuple):
    """One thing that is to stand at a place.

    Attributes:
        key: The path as it was given.
        steps: The same, as steps.
        value: What is to stand there.
    """

    key: Any
    steps: Steps
    value: Any


def requests_of(asked: Mapping[Any, Any], whose: str) -> list[Request]:
    """Return what is asked for by path.

    Args:
        asked: The values by path.
        whose: The function that is asked, for messages.

    Raises:
        PathError: A path cannot be read, or is a pattern.
        TypeError: It is no mapping, or a key is no path.
    """
    if not isinstance(asked, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{whose} takes a mapping from paths to values, got {got(asked)}"
        raise TypeError(msg)
    found = [Request(key, steps_of(key), value) for key, value in asked.items()]
    for key, steps, _ in found:
        if ANY in steps or DEEP in steps:
            msg = (
                f"{key!r}: {whose} takes the path of one place, not a pattern\n"
                f"  fix: name each place; patterns are for lw.where"
            )
            raise PathError(msg)
    return found


def only(requests: Sequence[Request], depth: int) -> Request | None:
    """Return the request for the very place that all of these lead to, if there is one.

    Raises:
        TreeError: There is another one for it, or for something in it.
    """
    here = [request for request in requests if len(request.steps) == depth]
    if here and len(requests) > 1:
        other = next(request for request in requests if request is not here[0])
        msg = (
            f"{_shown(here[0])!r} and {_shown(other)!r} meet: the one takes the place of the other"
            f"\n  fix: leave one of them out"
        )
        raise TreeError(msg)
    return here[0] if here else None


def _shown(request: Request) -> str:
    return request.key if isinstance(request.key, str) else show(request.steps)


def by_place(
    requests: Sequence[Request],
    depth: int,
    steps: Sequence[str],
    lost: Callable[[Request], Exception],
) -> dict[int, list[Request]]:
    """Return the requests by the part of a value that they lead into.

    Args:
        requests: What is asked for in the value.
        depth: How many steps have led to it.
        steps: The steps to its parts.
        lost: Returns the error for a request that leads to no part.
    """
    found: dict[int, list[Request]] = {}
    for request in requests:
        place = place_of(steps, request.steps[depth])
        if place is None:
            raise lost(request)
        found.setdefault(place, []).append(request)
    return found


def nowhere(
    request: Request,
    path: Steps,
    value: Any,
    *,
    steps: Sequence[str] | None,
    tree: Any,
    paths: Callable[[], Iterable[Steps]],
    why: str = "",
) -> PathError:
    """Return the error for a request that leads to no part of a value.

    Args:
        request: The request.
        path: The path to the value.
        value: The value.
        steps: The steps to its parts; None if it has none.
        tree: The tree.
        paths: Returns all paths of the tree.
        why: What is wrong, if it is not that there is no such part.
    """
    wanted = (*path, *request.steps[len(path) :])
    if not why and steps is None:
        array = hasattr(value, "shape") and hasattr(value, "dtype")
        what = describe_array(value) if array else got(value)
        why = f"{name_in(tree, path)} is {what}, which has no parts"
        if array:
            why += "; for elements of an array: `x.at[0].set(...)`"
    elif not why:
        why = f"{format_path(tree, path, type(value))}: {format_steps(steps or ())}"
    at = show(wanted[: len(path) + 1])
    where = f", from {at!r} on" if len(wanted) > len(path) + 1 else ""
    meant = nearest(wanted, len(path), steps or (), paths())
    instead = "" if meant is None else f"\n  nearest: {show(meant)!r}"
    return PathError(f"{_shown(request)!r} leads nowhere{where}: {why}{instead}")
