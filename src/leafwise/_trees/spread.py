"""Arrays put on the devices of several processes."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from leafwise._objects.text import describe_array
from leafwise._trees.nodes import FlatTree
from leafwise.errors import DifferentProcessesError


def spread(tree: Any, leaves: Mapping[int, Any], shardings: Sequence[Any]) -> dict[int, Any]:
    """Put leaves where not all devices are of this process; each process gives all of a leaf.

    As `jax.device_put`, which compares such values, too. It takes neither keys nor NaNs nor what
    was put on a device before, and names no leaf.

    Args:
        tree: The tree that they are leaves of.
        leaves: They, by number.
        shardings: Those of all leaves.

    Raises:
        DifferentProcessesError: (in every process) their bits differ; it names the leaves.
    """
    here = {
        place: leaf for place, leaf in leaves.items() if getattr(leaf, "is_fully_addressable", True)
    }
    owners = {device.process_index for place in here for device in shardings[place].device_set}
    if len(owners) == jax.process_count():  # else some process may not come here
        _check_equal(tree, here)
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


def _check_equal(tree: Any, leaves: Mapping[int, Any]) -> None:
    digests = b"".join(hashlib.sha256(_bytes_of(leaf)).digest()[:_SIZE] for leaf in leaves.values())
    gathered: Any = multihost_utils.process_allgather(np.frombuffer(digests, np.uint8))
    by_leaf = np.asarray(gathered).reshape(-1, len(leaves), _SIZE).swapaxes(0, 1)
    flat = FlatTree(tree)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for (place, leaf), digests_of in zip(leaves.items(), by_leaf, strict=True):
        groups: dict[str, tuple[int, ...]] = {}
        for process, digest in enumerate(digests_of):
            text = f"{describe_array(jax.typeof(leaf))} of digest {digest[:4].tobytes().hex()}"
            groups[text] = (*groups.get(text, ()), process)
        if len(groups) > 1:
            found[flat.name_of(place)] = groups
    if found:
        lines = "".join(
            f"\n  {path}:"
            + "".join(f"\n    processes {[*each]}: {text}" for text, each in groups.items())
            for path, groups in found.items()
        )
        msg = (
            f"lw.shard: the mesh spans processes, and these have different values{lines}\n"
            f"  fix: create them from one seed in all processes, or take those of process 0: "
            f"`jax.experimental.multihost_utils.broadcast_one_to_all(tree)`;\n  where each process "
            f"has its part of a batch: `jax.make_array_from_process_local_data(sharding, part)`"
        )
        raise DifferentProcessesError(msg, found)


_SIZE = 16


def _bytes_of(leaf: Any) -> bytes:
    data = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return f"{jax.typeof(leaf)} {data.dtype}".encode() + data.tobytes()


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jax.typeof(leaf).dtype, jax.dtypes.prng_key)
