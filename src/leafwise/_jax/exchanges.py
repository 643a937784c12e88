"""The pairs of trees that `cond`, `switch`, `scan` and `while_loop` take for one another.

JAX compares what the branches return, or what a body takes and returns, by ``==`` of treedefs:
classes of registered dataclasses do not count there, nor do the types of statics. Both trees are
arguments of two functions of JAX, which are replaced.
"""

import inspect
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from leafwise._jax.compat import ANSWERS, Internal, inside
from leafwise._jax.frames import exclude_file


class Exchange(NamedTuple):
    """Two trees of one trace that JAX has found to agree."""

    operation: str
    names: tuple[str, ...]
    before: Any
    after: Any
    make_before: Callable[[], Any]
    make_after: Callable[[], Any]


exclude_file(__file__)

_CHECKS: Final = (
    ("conditionals", "_check_branch_outputs"),
    ("loops", "_check_carry_type"),
)
Note = Callable[[Exchange], None]


def watch_exchanges(note: Note) -> Callable[[], None]:
    """Call `note` with each pair of trees that JAX has compared; return what ends that."""
    undone: list[tuple[Any, str, Any]] = []
    for place, name in _CHECKS:
        module = inside(f"lax.control_flow.{place}")
        original = getattr(module, name, None)
        if original is None:
            ANSWERS[Internal.EXCHANGES] = False
            continue
        undone.append((module, name, original))
        setattr(module, name, _noting(original, note))

    def stop() -> None:
        for module, name, original in undone:
            setattr(module, name, original)

    return stop


def _noting(original: Callable[..., None], note: Note) -> Callable[..., None]:
    def check(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        try:
            found = exchange_of(*args)
        except (AttributeError, IndexError, TypeError, ValueError):  # before JAX 0.8.1
            ANSWERS[Internal.EXCHANGES] = False
        else:
            note(found)

    def exchange_of(*args: Any) -> Exchange:
        operation, (before, after) = str(args[0]), args[-2:]
        trees, make = (before.tree, after.tree), (before.unflatten, after.unflatten)
        names = (str(args[1]), str(args[2])) if len(args) > _OF_CARRY else ()
        if not names and _is_in_fori_loop(inspect.currentframe()):  # its counters come first
            operation = "fori_loop"
            trees = before.tree.children()[-1], after.tree.children()[-1]
            make = (lambda: before.unflatten()[-1], lambda: after.unflatten()[-1])
        return Exchange(operation.removesuffix(" body"), names, *trees, *make)

    return check


def _is_in_fori_loop(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") in _INTERNAL:
        if frame.f_code.co_name == "fori_loop":
            return True
        frame = frame.f_back
    return False


_INTERNAL: Final = (
    *(__name__, "jax._src.lax.control_flow.loops", "jax._src.traceback_util", "jax._src.api_util"),
)


_OF_CARRY: Final = 4
"""The arguments of `_check_carry_type`: the name, the body, and two trees."""
