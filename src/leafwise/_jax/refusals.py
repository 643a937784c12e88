"""The two trees that JAX compared when it refused a call, from the frames of its traceback.

Where JAX checks one tree against another, it has both in local variables, whose names are known
for the versions that were tested. In other versions nothing is found.
"""

import contextlib
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import jax

from leafwise._jax import compat
from leafwise._jax.frames import JaxFunction, frames_of, function_of, is_internal


class Refusal(NamedTuple):
    """Two trees that JAX compared, and found to differ.

    Attributes:
        check: What was compared, as a sentence.
        label: The name of both trees in paths.
        before: The tree that was there first.
        after: The other.
        prefix: Whether a leaf of the first stands for any tree of the second.
        family: What the trees are, where the fix depends on it: "carry", "axes",
            "placement", "call", "exported", "cotangents".
    """

    check: str
    label: str
    before: Any
    after: Any
    prefix: bool = False
    family: str = ""


def refusals_in(error: BaseException) -> list[Refusal]:
    """Return what JAX compared when it raised an error; empty if it raised for another reason."""
    if not compat.is_known():
        return []
    frames = frames_of(error)
    inner = [frame for frame in frames if function_of(frame) != _MAPPING_LEAF]
    for place, frame in enumerate(inner):
        if not is_internal(frame):
            break
        found: list[Refusal] = []
        with contextlib.suppress(KeyError):  # a function of that name that compares nothing
            if (find := _CHECKS.get(function_of(frame))) is not None:
                found = find(frame.f_locals, inner[place + 1 :], inner[:place])
        if found:
            return found
    for below, frame in itertools.pairwise(frames):  # the function of `jax.tree.map` raised
        if function_of(frame) == _MAPPING and function_of(below) == _MAPPING_LEAF:
            return _leaves(below.f_locals["xs"], frame.f_locals)
    return []


_Locals: TypeAlias = Mapping[str, Any]
_Frames: TypeAlias = Sequence[types.FrameType]
_Find: TypeAlias = Callable[[_Locals, _Frames, _Frames], list[Refusal]]
"""Takes the locals of a frame, the frames around it, and the frames of its calls."""


def _abstract(tree: Any) -> Any:
    """Return a tree with a ShapeDtypeStruct for each abstract value."""
    return jax.tree.map(_struct, tree)


def _shape(shape: Sequence[int], dtype: Any, *, weak_type: bool = False) -> Any:
    made: Any = jax.ShapeDtypeStruct  # which has no annotations
    return made(shape, dtype, weak_type=weak_type)


def _struct(aval: Any) -> Any:
    if not (hasattr(aval, "shape") and hasattr(aval, "dtype")):
        return aval
    weak = bool(getattr(aval, "weak_type", False))
    return _shape(aval.shape, aval.dtype, weak_type=weak)


def _tangents(treedef: Any, avals: Any) -> Any:
    shapes = [
        _struct(aval)
        if jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact)
        else _shape(aval.shape, jax.dtypes.float0)
        for aval in avals
    ]
    return jax.tree.unflatten(treedef, shapes)


def _carry(found: _Locals, outer: _Frames, _: _Frames) -> list[Refusal]:
    before, after = (_abstract(found[name].unflatten()) for name in ("in_carry", "out_carry"))
    label, loop = str(found.get("carry_name") or "carry"), str(found["name"]).removesuffix(" body")
    for frame in outer:
        if function_of(frame) == (_LOOPS, "fori_loop"):  # it adds its counters to the carry
            return [_carried("fori_loop", "carry", before[-1], after[-1])]
    return [_carried(loop, label, before, after)]


def _carried(loop: str, label: str, before: Any, after: Any) -> Refusal:
    check = f"the body of {loop} does not return its carry as it takes it (taken -> returned)"
    return Refusal(check, label, before, after, family="carry")


_LOOPS: Final = "lax.control_flow.loops"


def _condition(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    after = _abstract(found["cond_out_avals"].unflatten())
    check = "cond_fun of while_loop does not return one bool (wanted -> returned)"
    return [Refusal(check, "returned", _shape((), jax.numpy.bool_), after)]


def _lengths(found: _Locals, _: _Frames, called: _Frames) -> list[Refusal]:
    if not called or function_of(called[-1]) != (_LOOPS, "_infer_scan_length"):
        return []
    leaves, structure = jax.tree.flatten(_abstract(found["xs_avals"].unflatten()))
    wanted = found["length"] if found["length"] is not None else leaves[0].shape[0]
    pairs = [((wanted, *leaf.shape[1:]), leaf) for leaf in leaves]
    before = [_shape(shape, leaf.dtype) for shape, leaf in pairs]
    check = "the arrays that scan goes through are not of one length (wanted -> got)"
    return [
        Refusal(
            check,
            "xs",
            jax.tree.unflatten(structure, before),
            jax.tree.unflatten(structure, leaves),
        )
    ]


def _branches(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    before, after = (_abstract(found[f"out_avals{number}"].unflatten()) for number in (1, 2))
    check = "the branches of {api_name} return different trees ({name1} -> {name2})"
    return [Refusal(check.format_map(found), "out", before, after)]


def _axes(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    name = found.get("name") or found["what"]
    treedef = found.get("treedef") or found["tree"]
    return [_prefix(str(name), found["axis_tree"], treedef)]


def _prefix(name: str, axes: Any, treedef: Any) -> Refusal:
    """Return a tree of axes, specs or shardings, and the treedef that it is for."""
    before = jax.tree.map(_mark, axes, is_leaf=lambda axis: axis is None)
    after = jax.tree.unflatten(treedef, [0] * treedef.num_leaves)
    check = f"the tree of {name} is not that of the values ({name} -> values)"
    family = "axes" if name.endswith("axes") else "placement"
    return Refusal(check, name.rpartition(" ")[2], before, after, prefix=True, family=family)


def _mark(_: Any) -> int:
    return 0


def _in_specs(found: _Locals, _: _Frames, called: _Frames) -> list[Refusal]:
    if called:
        return []
    return [_prefix("shard_map in_specs", found["in_specs"], jax.tree.structure(found["args"]))]


def _out_specs(found: _Locals, _: _Frames, called: _Frames) -> list[Refusal]:
    if called or "ans" not in found:
        return []
    return [_prefix("shard_map out_specs", found["out_specs"], jax.tree.structure(found["ans"]))]


def _backward(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    before = _tangents(found["in_tree"], found["in_avals"])
    after = found["py_cts_in"]
    after = tuple(after) if isinstance(after, list) else after
    check = "the backward rule does not return a cotangent for each argument (argument -> returned)"
    return [Refusal(check, "args", before, after, family="cotangents")]


def _forward(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    return [_outputs("fwd rule of custom_vjp", found)] if "out_tree_" in found else []


def _outputs(rule: str, found: _Locals) -> Refusal:
    """Compare the output of a function with that of a rule for its derivative."""
    pairs = ((found[f"out_tree{end}"], found[f"primal_avals{end}"]) for end in ("_", ""))
    before, after = (jax.tree.unflatten(tree, map(_struct, avals)) for tree, avals in pairs)
    check = f"the {rule} does not return what the function returns (function -> rule)"
    return Refusal(check, "out", before, after)


def _forward_mode(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    leaves, treedef = jax.tree.flatten(found["py_primals_out"])
    before = _tangents(treedef, map(jax.typeof, leaves))
    check = "the rule of custom_jvp does not return a tangent for each output (output -> tangent)"
    derived = [Refusal(check, "out", before, found["py_tangents_out"])]
    return [_outputs("rule of custom_jvp", found), *derived] if "out_tree_" in found else derived


def _jvp(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    leaves, treedef = jax.tree.flatten(found["primals"])
    before = _tangents(treedef, map(jax.typeof, leaves))
    check = "jax.jvp takes a tangent for each primal (primal -> tangent)"
    return [Refusal(check, "primals", before, found["tangents"])]


def _vjp(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    before = _tangents(found["out_tree"], found["out_primal_avals"])
    check = "the function of jax.vjp takes a cotangent for each output (output -> cotangent)"
    return [Refusal(check, "out", before, found["out_ct"])]


def _linearized(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    if "in_avals" in found:
        given, leaves = found["in_avals"], found["tangents"]
        before = _tangents(given.tree, list(given))
    else:
        before = _tangents(found["io_tree"][0], found["primal_avals"])
        leaves = found["py_args"]
    check = "the function of jax.linearize takes a tangent for each primal (primal -> tangent)"
    return [Refusal(check, "primals", before, leaves)]


def _transposed(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    before = _tangents(found["out_tree"](), found["out_avals"])
    check = (
        "the function of linear_transpose takes a cotangent for each output (output -> cotangent)"
    )
    return [Refusal(check, "out", before, found["out_cotangent"])]


def _compiled(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    before = jax.tree.map(_struct, found["self"].args_info)
    check = "the program was compiled for other arguments (compiled for -> called with)"
    pairs = zip(("args", "kwargs"), before, (found["args"], found["kwargs"]), strict=True)
    return [Refusal(check, *each, family="call") for each in pairs]


def _exported(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    structure = found["exported"].in_tree
    before = jax.tree.unflatten(structure, [0] * structure.num_leaves)
    check = "the function was exported for other arguments (exported for -> called with)"
    pairs = zip(("args", "kwargs"), before, (found["args"], found["kwargs"]), strict=True)
    return [Refusal(check, *each, prefix=True, family="exported") for each in pairs]


def _exported_shapes(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    exported, called = found["exported"], [_struct(aval) for aval in found["in_avals"]]
    sizes: dict[str, Any] = {}  # of the symbolic dimensions, in this call
    wanted = [_sized(*each, sizes) for each in zip(exported.in_avals, called, strict=True)]
    before, after = (jax.tree.unflatten(exported.in_tree, each) for each in (wanted, called))
    check = "the function was exported for other arguments (exported for -> called with)"
    pairs = zip(("args", "kwargs"), before, after, strict=True)
    return [Refusal(check, *each, family="exported") for each in pairs]


def _sized(aval: Any, called: Any, sizes: dict[str, Any]) -> Any:
    """Return the shape and dtype that an exported function takes for the sizes of a call."""
    shape = aval.shape
    if len(shape) == len(called.shape):
        shape = [
            size if isinstance(size, int) else sizes.setdefault(str(size), given)
            for size, given in zip(shape, called.shape, strict=True)
        ]
    return _shape(tuple(shape), aval.dtype, weak_type=called.weak_type)


def _tree_map(found: _Locals, _: _Frames, __: _Frames) -> list[Refusal]:
    if not {"all_leaves", "all_keypath_leaves"}.isdisjoint(found):  # the structures agreed
        return []
    is_leaf = found["is_leaf"]
    before = jax.tree.map(_mark, found["tree"], is_leaf=is_leaf)
    check = "jax.tree.map takes trees of one structure (first tree -> {})"
    return [
        Refusal(check.format(f"tree {number}"), "tree", before, each, prefix=True)
        for number, each in enumerate(found["rest"], 2)
    ]


_MAPPING: Final = ("tree_util", "tree_map")
_MAPPING_LEAF: Final = ("tree_util", "<genexpr>")


def _leaves(leaves: Sequence[Any], found: _Locals) -> list[Refusal]:
    """Return the leaves for which the function of `jax.tree.map` raised, with their paths."""
    columns: list[list[Any]] = found["all_leaves"]
    rows = zip(*columns, strict=True)
    places = [
        place
        for place, row in enumerate(rows)
        if all(one is other for one, other in zip(row, leaves, strict=True))
    ]
    if len(places) != 1 or len(leaves) == 1:
        return []
    paths = jax.tree_util.tree_leaves_with_path(found["tree"], found["is_leaf"])
    label = "tree" + jax.tree_util.keystr(paths[places[0]][0])
    check = "the function of jax.tree.map raised for these leaves (first tree -> tree {})"
    return [
        Refusal(check.format(number), label, leaves[0], leaf)
        for number, leaf in enumerate(leaves[1:], 2)
    ]


_CHECKS: Final[Mapping[JaxFunction, _Find]] = {
    (_LOOPS, "_check_carry_type"): _carry,
    (_LOOPS, "_create_jaxpr"): _condition,
    (_LOOPS, "scan"): _lengths,
    ("lax.control_flow.conditionals", "_check_branch_outputs"): _branches,
    ("api_util", "flatten_axes"): _axes,
    ("api_util", "flatten_axis_resources"): _axes,
    ("shard_map", "wrapped"): _in_specs,
    ("shard_map", "f_wrapped"): _out_specs,
    ("custom_derivatives", "_flatten_bwd"): _backward,
    ("custom_derivatives", "_flatten_fwd"): _forward,
    ("custom_derivatives", "_flatten_jvp"): _forward_mode,
    ("api", "_jvp"): _jvp,
    ("api", "_vjp3_bwd"): _vjp,
    ("api", "_lift_linearized"): _linearized,
    ("api", "transposed_fun"): _transposed,
    ("export._export", "f_imported"): _exported,
    ("export._export", "_call_exported_abstract_eval"): _exported_shapes,
    ("stages", "__call__"): _compiled,
    ("tree_util", "tree_map_with_path"): _tree_map,
    _MAPPING: _tree_map,
}
"""The functions of JAX that compare two trees, each with the reader of its variables."""
