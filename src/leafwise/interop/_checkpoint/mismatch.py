"""In which places a saved tree is not the target of its restoring."""

from collections.abc import Iterator
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from leafwise.errors import CheckpointMismatchError, Difference
from leafwise.interop._checkpoint.description import Description
from leafwise.interop._checkpoint.portable import Json, dump, say

_WIDTH: Final = 100
_KINDS: Final = {np.bool_: "bool", np.integer: "int", np.floating: "float"}


def is_below(path: str, above: str) -> bool:
    """Return whether a path leads through another one."""
    return path.startswith(above) and path[len(above) :][:1] in {".", "["}


def fits(saved: Json, target: Json) -> bool:
    """Return whether a saved array can be restored where `target` stands.

    A Python scalar and an array without dimensions fit if they are of one kind: the target
    says what comes back.
    """
    if "python" in saved or "python" in target:
        return _scalar_kind(saved) == _scalar_kind(target) is not None
    return dump(saved) == dump(target)


def _scalar_kind(entry: Json) -> str | None:
    if "python" in entry:
        return str(entry["python"])
    if entry["shape"] or "key" in entry:
        return None
    dtype = jnp.dtype(entry["dtype"])
    return next((kind for each, kind in _KINDS.items() if jnp.issubdtype(dtype, each)), "complex")


def differences(saved: Description, target: Description, root: str) -> tuple[Difference, ...]:
    """Return all differences.

    Below a place where one has a node and the other has not, nothing more is said.
    """
    mine, its = _places(saved), _places(target)
    torn = {
        path
        for path in (*its, *mine)
        if ("class" in mine.get(path, ())) != ("class" in its.get(path, ()))
    }
    found: list[Difference] = []
    for path in dict.fromkeys((*its, *mine)):
        if any(is_below(path, above) for above in torn):
            continue
        for where, one, other in _compare(path, mine.get(path), its.get(path)):
            found.append(Difference(root + where, *_apart(one, other)))
    return tuple(found)


def check_alike(
    saved: Description, target: Description, root: str, where: str, advice: str
) -> None:
    """Refuse to restore one tree into another.

    Raises:
        CheckpointMismatchError: They differ; it names all places.
    """
    found = differences(saved, target, root)
    if found:
        lines = "".join(f"\n  {each}" for each in found)
        msg = f"{where}: what was saved does not fit the target{lines}\n  fix: {advice}"
        raise CheckpointMismatchError(msg, found)


def _places(description: Description) -> dict[str, dict[str, Json]]:
    """Return all places of a tree by path, each with what it is."""
    classes = {path: {"class": each} for path, each in description.classes.items()}
    statics = {path: {"static": each} for path, each in description.statics.items()}
    leaves = {path: {"array": each} for path, each in description.leaves.items()}
    return classes | statics | leaves


_Place = dict[str, Json] | None


def _compare(path: str, one: _Place, other: _Place) -> Iterator[tuple[str, str, str]]:
    """Yield where two places differ, and the words for both."""
    if one is None or other is None or one.keys() != other.keys():
        yield path, _say(one), _say(other)
    elif "array" in one:
        if not fits(one["array"], other["array"]):
            yield path, _say(one), _say(other)
    elif "static" in one:
        for where, mine, its in _inside(path, one["static"], other["static"]):
            yield where, say(mine), say(its)
    elif dump(one) != dump(other):
        yield path, _say(one), _say(other)


def _inside(path: str, one: Json, other: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield where two statics differ, as deep as both have the same parts."""
    if dump(one) == dump(other):
        return
    mine, its = _parts(one), _parts(other)
    if mine is None or its is None or mine.keys() != its.keys():
        yield path, one, other
        return
    for step, part in mine.items():
        yield from _inside(path + step, part, its[step])


def _parts(value: Json) -> dict[str, Json] | None:
    """Return the parts of a tuple, a mapping or a record; its class is the part ``""``."""
    if isinstance(value, list):
        items: list[Any] = value
        return {f"[{index}]": item for index, item in enumerate(items)}
    if isinstance(value, dict) and value.keys() == {"FrozenMapping"}:
        return {f"[{say(key)}]": item for key, item in value["FrozenMapping"]}
    if isinstance(value, dict) and value.keys() == {"class", "fields"}:
        return {value["class"]: None} | {f".{key}": item for key, item in value["fields"].items()}
    return None


def _say(place: _Place) -> str:
    if place is None:
        return "nothing"
    ((kind, entry),) = place.items()
    if kind == "static":
        return f"the static {say(entry)}"
    if kind == "array":
        return say_array(entry)
    return entry if isinstance(entry, str) else f"{entry['class']} with keys {say(entry['keys'])}"


def say_array(entry: Json) -> str:
    """Return ``float32[3,4]``, or the kind of a Python scalar."""
    if "python" in entry:
        return f"a Python {entry['python']}"
    shape = ",".join(map(str, entry["shape"]))
    return f"{entry.get('key', entry.get('dtype'))}[{shape}]"


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return two texts, cut, so that they still differ."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    if max(len(one), len(other)) > _WIDTH and same > _WIDTH // 2:
        one, other = (f"...{text[same - 20 :]}" for text in (one, other))
    return _cut(one), _cut(other)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
