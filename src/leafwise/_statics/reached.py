"""What can be reached through static values, and whether it has changed.

A key compares functions, and objects without ``==``, by identity. This module reads what is inside:
closures, defaults, partial arguments, receivers, attributes. It has two uses: a tracer hidden there
is rejected at construction, and `leafwise.debug.check_statics` compares what is there now with what
was there when the key was made.
"""

import sys
from collections.abc import Container, Iterable
from typing import Final

from leafwise._objects.attributes import MACHINERY
from leafwise._objects.parts import Part
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import shorten, shorten_both
from leafwise._statics.account import Account, AccountFold, PartToken, Scope
from leafwise._statics.findings import field_of

REACHED: Final = Scope(
    most_bytes=1 << 16,
    most_items=sys.maxsize,
    most_parts=2_000,
    whole=frozenset({"identity", "jax.Array"}),
    # Instances of these packages' classes are not entered, except for functions that they wrap.
    closed=MACHINERY | {"jax", "jaxlib", "numpy", "builtins", "leafwise", "weakref", "_weakrefset"},
    is_detailed=True,
    is_wide=True,
)
"""Of a large object graph, what is nearest."""


def reached(values: Iterable[Part]) -> Account:
    """Return what can be reached from values, by path, nearest first; raise if a tracer can be."""
    fold = AccountFold(scope=REACHED)
    for path, value in values:
        fold.defer(value, (path,))
    fold.add_deferred().raise_findings()
    return fold.account()


def change_between(
    before: Account, now: Account, passed: Container[str] = ()
) -> tuple[str, str] | None:
    """Return the path and description of the first difference outside `passed` fields, or None."""
    for path, was in before.items():
        token, way = now.get(path, _ABSENT), "".join(map(str, path))
        if token == was or (passed and field_of(way) in passed):
            continue
        added = (one for one in now if one not in before and one[:-1] == path)
        if (new := next(added, None)) is not None:  # an item or an attribute
            way = "".join(map(str, new))
            return way, f"{way} was absent, now {shorten(now[new].shown, 60)}"
        earlier, text = shorten_both(was.shown, token.shown, 60)
        return way, f"{way} was {earlier}, now {'another ' * (earlier == text)}{text}"
    return None


_ABSENT: Final = PartToken(None, Verbatim("absent"))
