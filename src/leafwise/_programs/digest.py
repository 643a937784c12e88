"""The digest of a tree: the same in every process if classes, statics and avals are the same."""

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax import core

from leafwise._captures.captures import captures
from leafwise._captures.treatment import Treatment
from leafwise._classes.refusals import native_base
from leafwise._compare.signature import Signature
from leafwise._findings.words import without_addresses
from leafwise._objects.attributes import compares_by_identity, has_hidden_state
from leafwise._objects.parts import kind_of
from leafwise._objects.source.code import is_importable, is_installed_module, names_of
from leafwise._objects.text import got, sha256_of
from leafwise._programs.description import Described, Record, describe_tree
from leafwise._statics.key import StaticKey, argument_value, content_names
from leafwise._statics.portable import Json, PortableReader, class_name, dump
from leafwise._trees.leaves import Leaf, LeafKind, LeafRecorder, format_sharding
from leafwise.errors import PortableError, message_of

_VERSION: Final = "leafwise digest 3"
"""Raise the number when the digest of the same tree changes."""

_MOST_ARRAY: Final = 64 << 20
"""How many bytes of captured arrays are digested per program; the rest have shape and dtype."""


def digest(tree: Any) -> str:
    """Return a digest of a tree that is the same in every process and on every machine.

    It covers the classes of all nodes, all statics by type and bits, and the shape, dtype and weak
    type of each leaf, but not the data of arrays. Instances that share a jit cache key have the
    same digest, and instances whose statics differ in more than code a different one. The hash
    seed, memory addresses and the order of sets do not affect it.

    Functions and classes count by module and qualified name; their code is not compared. A
    function that cannot be imported by that name, such as a lambda, also counts by the contents
    of its closure and defaults, and by the version of its package. An object with its own ``==``
    counts by its pickle; in a field with ``compare_by="content"``, any object counts by its
    attributes.

    Args:
        tree: Any pytree, whose leaves may be `jax.ShapeDtypeStruct` or tracers; or the key of an
            instance, which is its aux_data in JAX.

    Returns:
        64 hexadecimal digits. If they change between leafwise versions, the changelog says so.

    Raises:
        PortableError: A static means nothing to another process, such as a local class or an
            object that compares by identity. The message names all of them.
        StaticMutatedError: A static was changed in place.

    Examples:
        >>> digest({"w": jnp.ones((2, 3))}) == digest({"w": jnp.zeros((2, 3))})  # doctest: +SKIP
        True
    """
    return digest_of(describe(tree))


def digest_of(record: Record) -> str:
    # As pairs, since the order of leaves is part of the structure.
    return sha256_of(dump([_VERSION, [*record.items()]]).encode())


def describe(tree: Any, *, in_order: bool = False) -> Record:
    """Return the record of a tree or key; `in_order` adds the order of sets, and devices."""
    reader, to_leaf = DigestReader(in_order=in_order), LeafRecorder()
    described = describe_tree(tree, lambda leaf: aval_entry(to_leaf(leaf), placed=in_order), reader)
    record = described.record
    if isinstance(tree, StaticKey):
        record[", key of"] = {"static": class_name(tree.owner.cls)}
    if reader.opaque:
        lines = [
            f"{described.root}{path}: {why}\n  got: {got(value)}\n  fix: {fix}"
            for path, value in reader.opaque
            for why, fix in [_why_and_fix(value)]
        ]
        raise PortableError("\n".join(lines))
    return record


def describe_call(signature: Signature) -> tuple[Record, dict[str, str]]:
    """Return the record of a call and, by path, the values that another process cannot read."""

    def entry(leaf: Any) -> dict[str, Json] | None:
        is_leaf = isinstance(leaf, Leaf)
        return aval_entry(leaf, placed=True) or {"python": str(leaf)} if is_leaf else None

    reader, root = DigestReader(in_order=True), signature.root
    records = signature.leaf_records
    leaves = [leaf.value if leaf.kind is LeafKind.STATIC else leaf for leaf in records]
    described = Described(leaves, "", entry, reader)
    for name, value in zip(root.names, root.values, strict=True):
        by_content = isinstance(value, StaticKey) and bool(content_names(value.owner))
        described.add_static(argument_value(value), signature.show(name), by_content=by_content)
    for step, child in zip(root.steps, root.children, strict=True):
        described.add(child, signature.show(step))
    return described.record, {path: got(value) for path, value in reader.opaque}


def describe_captures(fun: Callable[..., Any]) -> tuple[Record, dict[str, str]]:
    """Return a function's captures by path, and why some could not be read."""
    record: Record = {}
    refused: dict[str, str] = {}
    to_leaf, names, left = LeafRecorder(), set[str](), _MOST_ARRAY

    def large_array(leaf: Any) -> dict[str, Json] | None:
        nonlocal left
        if not isinstance(leaf, jax.Array | np.ndarray):
            return None
        left -= leaf.nbytes
        return None if left >= 0 else aval_entry(to_leaf(leaf))

    for capture in captures(fun).own():
        if not capture.is_bound or capture.treatment in (Treatment.MODULE, Treatment.FUNCTION):
            continue
        name = capture.name
        name += f" in {capture.where.function}" if name in names else ""
        names.add(name)
        try:
            described = describe_tree(capture.value, large_array, DigestReader(in_order=True), name)
        except Exception as error:  # noqa: BLE001  # deleted arrays, user code
            refused[name] = f"{type(error).__name__}: {message_of(error)}"
            continue
        record |= described.record
        refused |= {path: without_addresses(got(value)) for path, value in described.opaque}
    return record, refused


def aval_entry(leaf: Leaf, *, placed: bool = False) -> dict[str, Json] | None:
    """Return the entry for a leaf's aval, with its committed devices if `placed`, or None."""
    aval = leaf.aval
    if aval is None:
        return None
    entry: dict[str, Json] = {"dtype": str(aval.dtype), "shape": [*map(str, aval.shape)]}
    if leaf.weak_type:
        entry["weakly typed"] = True
    spec = getattr(getattr(aval, "sharding", None), "spec", ())
    if any(axis is not None for axis in spec):  # explicit mesh axes
        entry["sharding"] = str(spec)
    elif placed and leaf.committed:
        entry["committed"] = _devices(leaf.sharding)
    if type(aval) is not core.ShapedArray:  # a mutable array
        entry["kind"] = type(aval).__name__
    return entry


def _devices(sharding: Any) -> str:
    """Return a short text for a sharding; a single local device is shown by its local index."""
    if len(sharding.device_set) == 1:
        (device,) = sharding.device_set
        devices = device.client.local_devices()
        if device in devices:
            return f"{device.platform}:{devices.index(device)}"
    return format_sharding(sharding)


class DigestReader(PortableReader):
    """Reads statics for a digest, some of which have no JSON for other purposes."""

    def __init__(self, *, in_order: bool = False) -> None:
        super().__init__(in_order=in_order)
        self._by_content = False

    def _read_or_name(self, value: Any, path: str, name: str) -> Json:
        """Return the JSON of a value, or just `name` if it means nothing to another process."""
        opaque = len(self.opaque)
        record = self._read(value, path)
        if len(self.opaque) == opaque:
            return record
        del self.opaque[opaque:]
        return {"class": "name", "parts": [name]}

    def read(self, value: Any, path: str, *, by_content: bool = False) -> Json:
        """Return the JSON of a static; if it is by content, objects count by their attributes."""
        before, self._by_content = self._by_content, self._by_content or by_content
        try:
            return super().read(value, path)
        finally:
            self._by_content = before

    def _read(self, value: Any, path: str) -> Json:
        is_followed = self._by_content or type(value) is types.FunctionType
        if is_followed and id(value) in self._containing:  # it contains itself
            return {"class": "again", "parts": [class_name(type(value))]}
        return super()._read(value, path)

    def _read_other(self, value: Any, path: str) -> Json:
        for base, names in _OF_DEVICES.items():
            if isinstance(value, base):
                parts = [(f".{name}", getattr(value, name)) for name in names]
                return self._by_step(class_name(type(value)), parts, path)
        if isinstance(value, StaticKey):
            by_content = content_names(value.owner)
            statics = {
                f".{name}": self.read(static, f"{path}.{name}", by_content=name in by_content)
                for name, static in zip(value.owner.static_names, value.values, strict=True)
            }
            return {"class": class_name(value.owner.cls), "parts": statics}
        if isinstance(value, jax.tree_util.PyTreeDef):
            cls, aux = value.node_data() or (None, None)
            kind = "" if cls is None else class_name(cls)
            children = [(f"[{place}]", child) for place, child in enumerate(value.children())]
            own = [(".class", kind), (".num_leaves", value.num_leaves), (".aux_data", aux)]
            return self._by_step("treedef", [*own, *children], path)
        return super()._read_other(value, path)

    def named(self, value: Any, path: str) -> Json:
        """Return the import name of a function, class or module, or the contents of a function."""
        is_native = isinstance(value, type) and native_base(value) is value
        if is_native and value.__module__ == "builtins":
            return {"class": "name", "parts": [f"builtins:{value.__qualname__}"]}
        if type(value) is types.FunctionType and not is_importable(value):
            module, name = names_of(value)
            version = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
            parts = [(".__version__", str(version)), *kind_of(value).parts(value)]
            return self._by_step(f"function {module}:{name}", parts, path)
        return super().named(value, path)

    def method(self, value: Any, path: str) -> Json:
        """Return the JSON of a bound method: by content its instance, too."""
        if self._by_content:
            return self._by_step("method", kind_of(value).parts(value), path)
        return super().method(value, path)

    def _opaque(self, value: Any, path: str) -> Json:
        cls = type(value)
        is_object = self._by_content and compares_by_identity(cls) and not has_hidden_state(cls)
        if is_object and not is_installed_module(cls.__module__):
            parts = {
                step: self._read_or_name(part, path + step, class_name(type(part)))
                for step, part in kind_of(value).parts(value)
            }
            return {"class": class_name(cls), "parts": parts}
        return super()._opaque(value, path)


def _why_and_fix(value: Any) -> tuple[str, str]:
    cls: type = type(value)
    name = cls.__qualname__.rpartition(".")[2]
    if isinstance(value, type) or (callable(value) and is_installed_module(cls.__module__)):
        kind = "class" if isinstance(value, type) else "function"
        fix = "define it with a name of its own at the top level of a module"
        return f"another process cannot import this {kind} by name", fix
    if compares_by_identity(cls):
        why = f"{name} compares by identity, which means nothing to another process"
        fix = f"@dataclass(frozen=True)\n  class {name}: ..."
        return why, f"turn its attributes into fields:\n  {fix}"
    why = "another process cannot read it: it contains itself, is too deep, or does not pickle"
    return why, f"make {name} a frozen dataclass whose values can be static, too"


_AXES: Final = ("axis_names", "axis_sizes", "axis_types")
_OF_DEVICES: Final[dict[Any, Sequence[str]]] = {
    jax.sharding.Mesh: (*_AXES, "devices"),
    jax.sharding.AbstractMesh: _AXES,
    jax.Device: ("platform", "id", "process_index"),
}
"""The attributes that describe devices, which do not pickle."""
