"""Arrays put on the devices of several processes."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._jax.processes import (
    Pairs,
    Words,
    differences_between,
    exchange_in_groups,
    grouped_by_digest,
    processes,
)
from leafwise._objects.text import describe_array
from leafwise._trees.nodes import FlatTree
from leafwise.errors import DifferentProcessesError


def spread(
    tree: Any, leaves: Mapping[int, Any], shardings: Sequence[Any], timeout: float
) -> dict[int, Any]:
    """Put leaves where not all devices are of this process; each process gives all of a leaf.

    As `jax.device_put`, which compares such values, too. It takes neither keys nor NaNs nor what
    was put on a device before, and names no leaf.
    """
    here = {
        place: leaf for place, leaf in leaves.items() if getattr(leaf, "is_fully_addressable", True)
    }
    owners = {device.process_index for place in here for device in shardings[place].device_set}
    if len(owners) == jax.process_count():  # else some process may not come here
        _check_equal(tree, here, timeout)
    return {place: put(leaf, shardings[place]) for place, leaf in leaves.items()}


def put(leaf: Any, sharding: Any) -> Any:
    """Put one leaf, of which each process has all or its part, without a comparison."""
    if not getattr(leaf, "is_fully_addressable", True):
        if not _is_key(leaf):
            return jax.device_put(leaf, sharding)
        data = jax.device_put(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    aval: Any = jax.typeof(leaf)
    if aval.weak_type:  # which no other function of JAX keeps
        scalar = leaf.item() if isinstance(leaf, jax.Array) and not leaf.ndim else leaf
        return jax.device_put(scalar, sharding)
    value = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, aval.dtype)
    return jax.make_array_from_callback(
        aval.shape, sharding, lambda index: value[index], dtype=aval.dtype
    )


def _check_equal(tree: Any, leaves: Mapping[int, Any], timeout: float) -> None:
    flat = FlatTree(tree)
    here = processes()
    if here is None:
        raise RuntimeError(
            "lw.shard: the mesh spans processes, which cannot be compared\n"
            "  fix: call `jax.distributed.initialize()` first"
        )
    words = Words("lw.shard", "", "does not call lw.shard for this mesh as often as the others")

    def make() -> dict[str, str]:
        digests = {place: _digest(_bytes_of(leaf)) for place, leaf in leaves.items()}
        return {
            flat.name_of(place): f"{describe_array(jax.typeof(leaves[place]))} of digest {digest}"
            for place, digest in digests.items()
        }

    texts, groups = grouped_by_digest(
        here, "lw.shard", make, lambda texts: _digest(repr(texts).encode()), timeout, words
    )
    if len(groups) == 1:
        return
    sent = exchange_in_groups(here, "lw.shard", groups, lambda: texts)
    lines, found = differences_between(groups, sent, _differing)
    raise DifferentProcessesError(
        (
            f"lw.shard: the mesh spans processes, and these have different values"
            f"{''.join(lines)}\n"
            f"  fix: create them from one seed in all processes, or take those of process 0: "
            f"`jax.experimental.multihost_utils.broadcast_one_to_all(tree)`;\n  where each process "
            f"has its part of a batch: `jax.make_array_from_process_local_data(sharding, part)`"
        ),
        found,
    )


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> Pairs:
    for path in {**one, **other}:
        mine, its = (each.get(path, "no such leaf") for each in (one, other))
        if mine != its:
            yield path, mine, its


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _bytes_of(leaf: Any) -> bytes:
    data = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return f"{jax.typeof(leaf)} {data.dtype}".encode() + data.tobytes()


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jax.typeof(leaf).dtype, jax.dtypes.prng_key)
