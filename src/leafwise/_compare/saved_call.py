"""A call as JSON, so that another process can make it again without its data.

The tree of each argument has classes by name and statics as `leafwise._statics.portable` writes
them, with a number for each leaf; the avals and shardings stand in a list of their own.
"""

import functools
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from leafwise._classes.registry import field_names
from leafwise._compare.abstract_call import WITHOUT_ABSTRACT, AbstractCall
from leafwise._compare.signature import Signature, value_of
from leafwise._objects.text import shorten
from leafwise._statics.key import key_of, table_of
from leafwise._statics.portable import Json, PortableReader, class_name, dump
from leafwise._statics.rebuild import check_fields, find_named, rebuild
from leafwise._trees.leaves import Leaf, LeafKind
from leafwise._trees.nodes import Node, is_hash_node_type, open_node
from leafwise.errors import PortableError, message_of


def save_call(signature: Signature, fun: object = None) -> Json:
    """Return a recorded call as JSON, or why it cannot be: ``{"refused": {path: reason}}``.

    Args:
        signature: The call.
        fun: The function. Under `equinox.filter_jit` it is the first argument that JAX sees.
    """
    writer = _Writer()
    root = signature.root
    pairs = list(zip(root.steps, root.children, strict=True))
    leaves = list(zip(signature.leaf_paths, signature.leaf_records, strict=True))
    first = leaves[0][1] if leaves else None
    if first is not None and first.kind is LeafKind.STATIC and first.value is fun:
        pairs, leaves = [(_shifted(step), child) for step, child in pairs[1:]], leaves[1:]
        writer.shift = 1
    arguments: dict[str, Json] = {step: {"tree": writer.tree(part, step)} for step, part in pairs}
    for name, value in zip(root.names, root.values, strict=True):
        arguments[name] = {"static": writer.static(value_of(value), name)}
    saved = [writer.leaf(path, leaf) for path, leaf in leaves]
    if writer.refused:
        return {"refused": {signature.show(path): why for path, why in writer.refused.items()}}
    return {"arguments": arguments, "leaves": saved}


def _shifted(step: str) -> str:
    return re.sub(r"^args\[(\d+)\]", lambda found: f"args[{int(found[1]) - 1}]", step)


class _Writer:
    """Writes the parts of a call, and notes what means nothing to another process."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.shift = 0

    def tree(self, part: Node | int, path: str) -> Json:
        if isinstance(part, int):
            return part - self.shift
        hidden = [part.is_hash_node(at) for at in range(len(part.children))]
        saved = _outline(part, hidden, path, self.static)
        children = [child for child, hides in zip(part.children, hidden, strict=True) if not hides]
        steps: list[str] = saved["children"]
        pairs = zip(steps, children, strict=True)
        saved["children"] = [[step, self.tree(child, path + step)] for step, child in pairs]
        return saved

    def static(self, value: Any, path: str) -> Json:
        saved = PortableReader().read(value, path)
        try:
            rebuild(saved, path)
        except PortableError as error:
            words, found, *_ = message_of(error).partition(": ")[2].splitlines()
            self.refused[path] = f"{words}: {found.removeprefix('  got: ')}"
        return saved

    def leaf(self, path: str, leaf: Leaf) -> Json:
        if leaf.kind is LeafKind.STATIC:
            return {"static": self.static(leaf.value, path)}
        if leaf.aval is None or leaf.kind in WITHOUT_ABSTRACT:
            self.refused[path] = f"it cannot be given without its data ({leaf.kind})"
            return None
        saved: dict[str, Json] = {"shape": list(leaf.shape or ()), "dtype": str(leaf.dtype)}
        if leaf.weak_type:
            saved["weak_type"] = True
        if leaf.lowered_sharding is not None:
            saved["sharding"] = _save_sharding(leaf.lowered_sharding)
            if saved["sharding"] is None:
                self.refused[path] = f"a sharding without a mesh: {shorten(leaf.sharding)}"
        return saved


_Static: TypeAlias = Callable[[Any, str], Json]


def _outline(node: Node, hidden: Sequence[bool], path: str, static: _Static) -> Json:
    """Return a node as JSON, with no more than the steps to its children."""
    saved: dict[str, Json] = {"class": class_name(node.cls)}
    if issubclass(node.cls, dict):
        keys = node.aux[1] if node.cls is defaultdict else node.aux
        saved["keys"] = static(tuple(keys), path)
    names = zip(node.names, node.values, strict=True)
    saved["statics"] = {name: static(value, path + name) for name, value in names}
    pairs = zip(node.steps, hidden, strict=True)
    saved["children"] = [step for step, hides in pairs if not hides]
    return saved


def _save_sharding(sharding: Any) -> Json:
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        devices: Any = sharding.device_set
        return {"devices": [each.id for each in devices], "memory": sharding.memory_kind}
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return None
    read = PortableReader().read
    mesh: Any = sharding.mesh
    return {
        "devices": [device.id for device in mesh.devices.flat],
        "memory": sharding.memory_kind,
        "mesh": [[name, size] for name, size in mesh.shape.items()],
        "types": read(mesh.axis_types, ""),
        "spec": read(sharding.spec, ""),
    }


# ------------------------------------------------------------------------ again


def load_call(saved: Json) -> AbstractCall:
    """Return the call that was saved, with a `jax.ShapeDtypeStruct` for each array.

    Raises:
        PortableError: A class has other fields here, a name leads nowhere, a device is missing,
            it is not what `save_call` wrote, or the code of a class raises.
    """
    try:
        leaves = [_load_leaf(leaf, f"leaf {at}") for at, leaf in enumerate(saved["leaves"])]
        found: dict[str, Any] = {}
        for step, each in saved["arguments"].items():
            is_static = "static" in each
            found[step] = (
                rebuild(each["static"], step) if is_static else _load(each["tree"], step, leaves)
            )
        return AbstractCall.of_steps(found)
    except PortableError:
        raise
    except Exception as error:
        raise PortableError(
            f"the call in the file cannot be made: {type(error).__name__}: {message_of(error)}\n"
            f"  fix: write it again, with `leafwise explain --json`"
        ) from error


def _load(tree: Json, path: str, leaves: Sequence[Any]) -> Any:
    if isinstance(tree, int):
        return leaves[tree]
    if tree["class"] == class_name(type(None)):
        return None
    cls = find_named(tree["class"], path)
    children = [_load(child, path + step, leaves) for step, child in tree["children"]]
    made = _make(cls, path, tree, children)
    opened = open_node(made)
    again: Json = None
    if opened is not None:
        hidden = [is_hash_node_type(type(child)) for child in opened[1]]
        again = _outline(opened[0], hidden, path, PortableReader().read)
    if dump(again) != dump(tree | {"children": [step for step, _ in tree["children"]]}):
        raise PortableError(
            f"{path}: {tree['class']} cannot be built here as it is in the file\n"
            f"  fix: give this call to precompile yourself, as (args, kwargs)"
        )
    return made


def _make(cls: Any, path: str, tree: Json, children: list[Any]) -> Any:
    """Return a node, which the caller compares with the file; no constructor of a user's runs."""
    steps = [step for step, _ in tree["children"]]
    names = field_names(cls)
    if names is not None:
        before = {name[1:]: each for name, each in tree["statics"].items()}
        check_fields(path, cls, [step[1:] for step in steps], before, names)
    statics = {name: rebuild(each, path + name) for name, each in tree["statics"].items()}
    if names is not None:
        key = key_of(table_of(cls), tuple([statics[f".{name}"] for name in names[0]]))
        below = [jax.tree.structure(0)] * len(children)
        below += [] if key.hash_node is None else [jax.tree.structure(key.hash_node)]
        make: Any = jax.tree_util.PyTreeDef.from_node_data_and_children
        return make(jax.tree_util.default_registry, (cls, key), below).unflatten(children)
    if cls in (tuple, list):
        return cls(children)
    if (kind := _DICTS.get(cls)) is not None:
        return kind(*statics.values(), zip(rebuild(tree["keys"], path), children, strict=True))
    if issubclass(cls, tuple):
        return tuple.__new__(cls, children)
    if cls is _PARTIAL:
        return cls(statics[".func"], *children[0], **children[1])
    made = object.__new__(cls)
    for step, value in (*zip(steps, children, strict=True), *statics.items()):
        object.__setattr__(made, step.removeprefix("."), value)
    return made


_DICTS: Final[dict[type, Any]] = {each: each for each in (dict, OrderedDict, defaultdict)}
_PARTIAL: Final[Any] = jax.tree_util.Partial


def _load_leaf(saved: Json, path: str) -> Any:
    if "static" in saved:
        return rebuild(saved["static"], path)
    struct: Any = jax.ShapeDtypeStruct  # which JAX does not annotate
    sharding = _load_sharding(saved["sharding"]) if "sharding" in saved else None
    weak, dtype = saved.get("weak_type", False), _dtype(saved["dtype"])
    if _is_narrowed(dtype):
        raise PortableError(
            f"{path}: {dtype} is in the file, and JAX makes {jax.dtypes.canonicalize_dtype(dtype)} "
            f"of it here\n  fix: jax.config.update('jax_enable_x64', True) before"
        )
    return struct(tuple(saved["shape"]), dtype, sharding=sharding, weak_type=weak)


def _is_narrowed(dtype: Any) -> bool:
    """Return whether JAX would take a narrower dtype in place of one of 64 bits."""
    if jax.numpy.issubdtype(dtype, jax.dtypes.extended):
        return False
    explicit = getattr(jax.config, "jax_explicit_x64_dtypes", None)
    is_allowed = getattr(explicit, "name", "") == "ALLOW"
    return jax.dtypes.canonicalize_dtype(dtype) != dtype and not is_allowed


def _dtype(name: str) -> Any:
    if not name.startswith("key<"):
        return jax.numpy.dtype(name)
    make = (functools.partial(jax.random.key, 0, impl=each) for each in _KEYS)
    return next(key.dtype for key in map(jax.eval_shape, make) if str(key.dtype) == name)


_KEYS: Final = ("threefry2x32", "rbg", "unsafe_rbg")


def _load_sharding(saved: Json) -> Any:
    here = {device.id: device for device in jax.devices()}
    missing = [each for each in saved["devices"] if each not in here]
    if missing:
        raise PortableError(f"device {missing[0]} is in the file, and here are {len(here)} devices")
    devices = np.array([here[each] for each in saved["devices"]], dtype=object)
    memory = saved["memory"]
    if "mesh" not in saved:
        return jax.sharding.SingleDeviceSharding(devices[0], memory_kind=memory)
    names, sizes = zip(*saved["mesh"], strict=True)
    types, spec = (rebuild(saved[each], f"{each} of the sharding") for each in ("types", "spec"))
    mesh = jax.sharding.Mesh(devices.reshape(sizes), names, axis_types=types)
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=memory)
