"""The frames of JAX in the traceback of an error, and the two trees that it compared there.

JAX removes its frames before they can be read, along with those of files passed to `exclude_file`.
`keep_frames` makes JAX put them into the cause of the error, as one of its options does, and
`hide_frames` removes them from there.

Where JAX's message names the path that differs, it is left alone. Where it prints only treedefs, as
for derivatives, both trees are in local variables of five functions; if these have other names,
nothing is found.
"""

import contextlib
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import jax

from leafwise._jax.compat import inside

_INTERNAL: Final = "jax._src."
_UNFILTERED: Final = "UnfilteredStackTrace"  # the cause that holds the frames that JAX removed


class _Block(threading.local):
    """How many blocks of this thread keep frames, and the context that the first one entered."""

    depth = 0
    undo: Any = None


_BLOCK: Final = _Block()


def keep_frames() -> None:
    """Make exceptions of this thread keep JAX's frames in causes, until `release_frames`."""
    _BLOCK.depth += 1
    internal = _tracebacks()
    if _BLOCK.depth == 1 and internal is not None:
        config, hiding = internal
        if hiding._filtering_mode() == "quiet_remove_frames":  # noqa: SLF001  # JAX's own
            _BLOCK.undo = config.traceback_filtering("remove_frames")
            _BLOCK.undo.__enter__()


def release_frames() -> bool:
    """Undo the last `keep_frames`; return whether it kept frames that JAX would have dropped."""
    _BLOCK.depth -= 1
    undo = _BLOCK.undo
    if _BLOCK.depth == 0 and undo is not None:
        _BLOCK.undo = None
        undo.__exit__(None, None, None)
    return undo is not None


def hide_frames(error: BaseException) -> None:
    """Remove JAX's frames from the cause of an error, and add JAX's note about that."""
    internal, unfiltered = _tracebacks(), error.__cause__
    if internal is None or unfiltered is None or type(unfiltered).__name__ != _UNFILTERED:
        return  # inside a traced function, the outer call removes them
    error.__cause__, error.__context__ = unfiltered.__cause__, unfiltered.__context__
    error.__suppress_context__ = unfiltered.__suppress_context__
    error.add_note("-" * 20 + "\n" + internal[1]._simplified_tb_msg)  # noqa: SLF001  # JAX's own


def exclude_file(file: str) -> None:
    """Make JAX remove the frames of a file wherever it removes its own."""
    exclude: Any = getattr(inside("traceback_util"), "register_exclusion", None)
    if exclude is not None:
        exclude(file)


def _tracebacks() -> tuple[Any, Any] | None:
    """Return JAX's modules for tracebacks; None if they lack an expected name."""
    config, hiding = inside("config"), inside("traceback_util")
    names = ("_filtering_mode", "_simplified_tb_msg", _UNFILTERED)
    is_known = all(hasattr(hiding, name) for name in names)
    return (config, hiding) if is_known and hasattr(config, "traceback_filtering") else None


def frames_of(error: BaseException) -> list[types.FrameType]:
    """Return the frames of a traceback, the innermost first; JAX may have put them in the cause."""
    below, cause = error.__traceback__, error.__cause__
    if cause is not None and type(cause).__name__ == _UNFILTERED:
        below = cause.__traceback__
    return [frame for frame, _ in traceback.walk_tb(below)][::-1]


class Refusal(NamedTuple):
    """Two trees that JAX found to differ; in the second one, None may stand for zeros."""

    check: str
    label: str
    before: Any
    after: Any
    none_is_zero: bool = False


def refusal_in(error: BaseException) -> Refusal | None:
    """Return what JAX compared when it raised an error; None if it raised for another reason."""
    for frame in frames_of(error):
        module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_name
        if not module.startswith(_INTERNAL):
            break
        find = _CHECKS.get((module.removeprefix(_INTERNAL), name))
        if find is not None:
            with contextlib.suppress(KeyError, AttributeError):  # it raised before it compared
                return find(frame.f_locals)
    return None


_Locals: TypeAlias = Mapping[str, Any]


def _tangents(treedef: Any, avals: Any) -> Any:
    struct: Any = jax.ShapeDtypeStruct  # untyped in JAX 0.12
    shapes = [
        struct(aval.shape, aval.dtype, weak_type=aval.weak_type)
        if jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact)
        else struct(aval.shape, jax.dtypes.float0)
        for aval in avals
    ]
    return jax.tree.unflatten(treedef, shapes)


def _tangents_of(primals: Any) -> Any:
    return _tangents(jax.tree.structure(primals), map(jax.typeof, jax.tree.leaves(primals)))


def _backward(variables: _Locals) -> Refusal:
    before = _tangents(variables["in_tree"], variables["in_avals"])
    after = variables["py_cts_in"]
    after = tuple(after) if isinstance(after, list) else after
    check = "the backward rule does not return a cotangent for each argument (argument -> returned)"
    return Refusal(check, "args", before, after, none_is_zero=True)


def _forward(variables: _Locals) -> Refusal:
    before = _tangents_of(variables["py_primals_out"])
    check = "the rule of custom_jvp does not return a tangent for each output (output -> tangent)"
    return Refusal(check, "out", before, variables["py_tangents_out"])


def _jvp(variables: _Locals) -> Refusal:
    check = "jax.jvp takes a tangent for each primal (primal -> tangent)"
    return Refusal(check, "primals", _tangents_of(variables["primals"]), variables["tangents"])


def _linearized(variables: _Locals) -> Refusal:
    if "in_avals" in variables:
        avals, leaves = variables["in_avals"], variables["tangents"]
        before = _tangents(avals.tree, list(avals))
    else:  # before JAX 0.11
        before = _tangents(variables["io_tree"][0], variables["primal_avals"])
        leaves = variables["py_args"]
    check = "the function of jax.linearize takes a tangent for each primal (primal -> tangent)"
    return Refusal(check, "primals", before, leaves)


def _transposed(variables: _Locals) -> Refusal:
    before = _tangents(variables["out_tree"](), variables["out_avals"])
    check = (
        "the function of linear_transpose takes a cotangent for each output (output -> cotangent)"
    )
    return Refusal(check, "out", before, variables["out_cotangent"])


_CHECKS: Final[Mapping[tuple[str, str], Callable[[_Locals], Refusal]]] = {
    ("custom_derivatives", "_flatten_bwd"): _backward,
    ("custom_derivatives", "_flatten_jvp"): _forward,
    ("api", "_jvp"): _jvp,
    ("api", "_lift_linearized"): _linearized,
    ("api", "transposed_fun"): _transposed,
}
"""JAX's functions that compare two trees, each with the reader of its local variables."""
