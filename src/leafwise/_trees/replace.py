"""`replace`: a copy of one instance with some fields changed."""

import dataclasses
import difflib
from typing import Any, TypeVar, cast

from leafwise._classes.instance import exchange
from leafwise._classes.registry import spec_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.introspect import has_generated_init

T = TypeVar("T")


def replace(obj: T, /, **changes: Any) -> T:
    """Return a copy of an instance with some fields changed.

    The constructor runs, as in `dataclasses.replace`: converters, checks and the
    validation of statics included. A constructor that was written by hand may take other
    arguments than fields, so it does not run: the fields are exchanged, the changed ones
    converted and checked, and the statics validated. So it is for every equinox module, whose
    ``__check_init__`` runs then. `leafwise.update` does the same at any depth.

    Args:
        obj: An instance of a pytree class (or of any dataclass).
        **changes: New values by field name.

    Returns:
        An instance of the same class.

    Raises:
        TypeError: A name is not a field.
        ValueError: A field has ``init=False``, so the generated constructor does not
            take it.

    Example:
        >>> @pytree
        ... class Params:
        ...     lr: float
        >>> replace(Params(0.1), lr=0.2)
        Params(lr=0.2)
    """
    names = [definition.name for definition in dataclasses.fields(cast("Any", obj))]
    known = {*names, *cast("Any", obj).__dataclass_fields__}
    unknown = [name for name in changes if name not in known]
    if unknown:
        kind = type(obj).__name__
        near = difflib.get_close_matches(unknown[0], names, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        msg = f"{kind} has no field {unknown[0]!r}{hint}: it has {', '.join(names) or 'no fields'}"
        raise TypeError(msg)
    changed: T
    if _constructs_again(type(obj)):
        changed = dataclasses.replace(cast("Any", obj), **changes)
    elif is_decorated(type(obj)):
        changed = exchange(obj, changes)
    else:
        from leafwise._trees.exchange import exchanged, parts_of  # noqa: PLC0415  # seldom

        parts = parts_of(obj)
        steps = {f".{name}": value for name, value in changes.items()}
        changed = obj if parts is None else exchanged(obj, parts, steps)
    return changed


def _constructs_again(cls: type) -> bool:
    """Whether the constructor takes the fields, and is all that there is to a construction."""
    if is_decorated(cls):
        return not spec_of(cls).has_own_init
    return type(cls).__call__ is type.__call__ and has_generated_init(cls)
