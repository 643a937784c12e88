"""Why JAX refused a call: its errors, with the reasons added as a note."""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from leafwise._compare.diff import compare
from leafwise._compare.fixes import Cause
from leafwise._compare.reasons import Outcome, Reason, ReasonKind, format_value
from leafwise._compare.tracer_uses import named_arguments, uses_in
from leafwise._jax.frames import hide_frames, keep_frames, release_frames
from leafwise._jax.refusals import Refusal, refusal_in
from leafwise._objects.code import refuse_to_decorate

_F = TypeVar("_F", bound=Callable[..., Any])

_HEADER: Final = "leafwise: "
_SHOWN: Final = 20


class Explaining(contextlib.ContextDecorator):
    """A block whose exceptions say by path which parts of two trees differ."""

    def __call__(self, func: _F) -> _F:
        """Decorate a function with this block, if it does not run later."""
        refuse_to_decorate(func, "debug.explain_errors()")
        return super().__call__(func)

    def __enter__(self) -> None:
        """Keep what JAX knows when it raises."""
        keep_frames()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        """Add a note to the exception, if the trees that JAX compared are known."""
        kept = release_frames()
        if not isinstance(error, Exception):
            return
        note = ""
        # Whatever goes wrong here, the user's exception is the one to see.
        with contextlib.suppress(Exception):
            note = "" if _is_explained(error) else explanation(error)
        if kept:
            with contextlib.suppress(Exception):
                hide_frames(error)
        if note:
            with contextlib.suppress(Exception):
                error.add_note(note)


def explanation(error: Exception) -> str:
    """Return which parts differ of the trees that JAX compared; empty if that is not known."""
    pair = refusal_in(error)
    every = [] if pair is None else compare(pair.label, pair.before, pair.after)
    found = [each for each in every if pair is not None and _is_refused(each, pair)]
    lines = uses_in(error)
    if pair is not None and found:
        lines = [pair.check, *(f"  {each}" for each in found[:_SHOWN])]
        lines += [f"  ... and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        lines += [f"  fix: {fix}" for fix in dict.fromkeys(_fixes_for(found))]
    return _HEADER + "\n".join(lines) if lines else ""


def add_uses(
    error: Exception, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add a note to an error of a call, if a dynamic value was used as a static one."""
    # Whatever goes wrong here, the user's exception is the one to see.
    with contextlib.suppress(Exception):
        found = uses_in(error, named_arguments(fun, args, kwargs))
        if found and not _is_explained(error):
            error.add_note(_HEADER + "\n".join(found))


def _is_explained(error: Exception) -> bool:
    notes = getattr(error, "__notes__", ())
    return any(isinstance(each, str) and each.startswith(_HEADER) for each in notes)


def _is_refused(reason: Reason, pair: Refusal) -> bool:
    """Whether JAX refuses trees for a difference: not for a weak type, which it promotes."""
    is_zero = pair.none_is_zero and format_value(reason.after) == "None"
    is_weak = reason.kind is ReasonKind.WEAK_TYPE
    return not (reason.outcome is Outcome.REUSE or is_weak or is_zero)


def _fixes_for(found: list[Reason]) -> Iterator[str]:
    for reason in found:
        if reason.kind is ReasonKind.STRUCTURE and "None" in (reason.before, reason.after):
            yield reason._replace(cause=Cause.STRUCTURE).fix
    if any(reason.kind is ReasonKind.STATIC for reason in found):
        yield "a static has one value while JAX traces: keep it, or make the field dynamic"
