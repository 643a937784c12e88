"""A call without the data of its arrays, to be lowered again."""

import ast
from typing import Any, Final, NamedTuple

import jax

from leafwise._compare.signature import Signature, value_of
from leafwise._trees.leaves import Leaf, LeafKind


class AbstractCall(NamedTuple):
    """The arguments of a call, with a `jax.ShapeDtypeStruct` for each array."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def abstract_call(signature: Signature) -> AbstractCall:
    """Return a call that one program serves with the recorded one, or raise ValueError."""
    pairs = zip(signature.leaf_paths, signature.leaf_records, strict=True)
    leaves = [_argument(signature.show(path), leaf) for path, leaf in pairs]
    root = signature.root
    found = dict(zip(root.steps, jax.tree.unflatten(signature.treedef, leaves), strict=True))
    found.update(zip(root.names, map(value_of, root.values), strict=True))
    named = {ast.literal_eval(step[7:-1]): step for step in found if step.startswith("kwargs")}
    args = tuple(found[f"args[{place}]"] for place in range(len(found) - len(named)))
    return AbstractCall(args, {name: found[step] for name, step in named.items()})


def _argument(path: str, leaf: Leaf) -> Any:
    if leaf.kind is LeafKind.STATIC:
        return leaf.value
    if leaf.kind in WITHOUT_ABSTRACT or leaf.aval is None:
        raise ValueError(
            f"{path}: without its value it cannot be given: {leaf}\n"
            f"  fix: give the call as (args, kwargs)"
        )
    weak, sharding = leaf.weak_type, leaf.lowered_sharding
    struct: Any = jax.ShapeDtypeStruct  # which JAX does not annotate
    return struct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)


WITHOUT_ABSTRACT: Final = {LeafKind.REF, LeafKind.OTHER, LeafKind.INVALID}
