"""The pairs of trees that `cond`, `switch`, `scan` and `while_loop` treat as the same.

JAX compares what the branches return, or what a body takes and returns, by ``==`` of treedefs:
classes of registered dataclasses do not count there, nor do the types of statics. Both trees are
arguments of two internal functions of JAX, which are replaced here.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from leafwise._jax.compat import ANSWERS, Internal, inside
from leafwise._jax.frames import exclude_file

exclude_file(__file__)

MakeTree: TypeAlias = Callable[[], Any]
Note: TypeAlias = Callable[[str, list[str], MakeTree, MakeTree], None]
"""Takes the operation, the names of both branches (or []), and functions that return both trees."""


def watch_exchanges(note: Note) -> Callable[[], None]:
    """Call `note` with each pair of trees that JAX found to agree; return a function to stop it."""
    undone: list[tuple[Any, str, Any]] = []
    for place, name in (("conditionals", "_check_branch_outputs"), ("loops", "_check_carry_type")):
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
    def check(operation: str, *args: Any) -> None:
        original(operation, *args)
        # `functions` are the body, or both branches after their names.
        *functions, before, after = args
        try:
            makers = before.unflatten, after.unflatten
        except AttributeError:  # before JAX 0.8.1
            ANSWERS[Internal.EXCHANGES] = False
            return
        if str(getattr(functions[0], "__qualname__", "")).startswith("_fori_"):
            # JAX's carry of a fori_loop is (i, upper, value).
            note("fori_loop", [], lambda: before.unflatten()[-1], lambda: after.unflatten()[-1])
        else:
            note(operation.removesuffix(" body"), functions[:-2], *makers)

    return check
