"""The two trees that JAX compared when it refused a derivative, from the frames of its traceback.

Only where JAX prints treedefs alone: elsewhere its message names the place. It has both trees in
local variables of five functions. Where these have other names nothing is found.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import jax

from leafwise._jax.frames import JaxFunction, frames_of, function_of, is_internal


class Refusal(NamedTuple):
    """Two trees that JAX compared, and found to differ; None may stand for zeros in the second."""

    check: str
    label: str
    before: Any
    after: Any
    none_is_zero: bool = False


def refusal_in(error: BaseException) -> Refusal | None:
    """Return what JAX compared when it raised an error; None if it raised for another reason."""
    for frame in frames_of(error):
        if not is_internal(frame):
            break
        find = _CHECKS.get(function_of(frame))
        if find is not None:
            with contextlib.suppress(KeyError, AttributeError):  # it raised before it compared
                return find(frame.f_locals)
    return None


_Locals: TypeAlias = Mapping[str, Any]


def _tangents(treedef: Any, avals: Any) -> Any:
    """Return a tree of the shapes and dtypes of tangents."""
    struct: Any = jax.ShapeDtypeStruct  # which has no annotations
    shapes = [
        struct(aval.shape, aval.dtype, weak_type=aval.weak_type)
        if jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact)
        else struct(aval.shape, jax.dtypes.float0)
        for aval in avals
    ]
    return jax.tree.unflatten(treedef, shapes)


def _backward(found: _Locals) -> Refusal:
    before = _tangents(found["in_tree"], found["in_avals"])
    after = found["py_cts_in"]
    after = tuple(after) if isinstance(after, list) else after
    check = "the backward rule does not return a cotangent for each argument (argument -> returned)"
    return Refusal(check, "args", before, after, none_is_zero=True)


def _forward(found: _Locals) -> Refusal:
    leaves, treedef = jax.tree.flatten(found["py_primals_out"])
    before = _tangents(treedef, map(jax.typeof, leaves))
    check = "the rule of custom_jvp does not return a tangent for each output (output -> tangent)"
    return Refusal(check, "out", before, found["py_tangents_out"])


def _jvp(found: _Locals) -> Refusal:
    leaves, treedef = jax.tree.flatten(found["primals"])
    before = _tangents(treedef, map(jax.typeof, leaves))
    check = "jax.jvp takes a tangent for each primal (primal -> tangent)"
    return Refusal(check, "primals", before, found["tangents"])


def _linearized(found: _Locals) -> Refusal:
    if "in_avals" in found:
        given, leaves = found["in_avals"], found["tangents"]
        before = _tangents(given.tree, list(given))
    else:  # before JAX 0.11
        before = _tangents(found["io_tree"][0], found["primal_avals"])
        leaves = found["py_args"]
    check = "the function of jax.linearize takes a tangent for each primal (primal -> tangent)"
    return Refusal(check, "primals", before, leaves)


def _transposed(found: _Locals) -> Refusal:
    before = _tangents(found["out_tree"](), found["out_avals"])
    check = (
        "the function of linear_transpose takes a cotangent for each output (output -> cotangent)"
    )
    return Refusal(check, "out", before, found["out_cotangent"])


_CHECKS: Final[Mapping[JaxFunction, Callable[[_Locals], Refusal]]] = {
    ("custom_derivatives", "_flatten_bwd"): _backward,
    ("custom_derivatives", "_flatten_jvp"): _forward,
    ("api", "_jvp"): _jvp,
    ("api", "_lift_linearized"): _linearized,
    ("api", "transposed_fun"): _transposed,
}
"""The functions of JAX that compare two trees, each with the reader of its variables."""
