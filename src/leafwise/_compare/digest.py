"""The digest of a tree: the same text in every process where its classes, statics and avals are.

One more fold over what values consist of. `leafwise._statics.portable` writes statics as JSON;
here classes count with their fields, a function to which no name leads with what it holds, and what
means nothing to another process is refused.
"""

import contextlib
import dataclasses
import hashlib
import inspect
import sys
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import jax
from jax import core

from leafwise._classes.annotations import annotations_of
from leafwise._classes.fields import SHARDING
from leafwise._classes.options import OPTIONS
from leafwise._classes.refusals import native_base
from leafwise._classes.spec import MARK, is_static_metadata
from leafwise._compare.description import Record, describe_signature, describe_tree
from leafwise._compare.signature import Signature
from leafwise._display.words import without_addresses
from leafwise._objects.attributes import compares_by_identity, has_hidden_state
from leafwise._objects.code import is_importable, is_installed_module, names_of
from leafwise._objects.parts import kind_of
from leafwise._objects.text import got
from leafwise._statics.key import StaticKey, content_names
from leafwise._statics.portable import Json, PortableReader, class_name, dump
from leafwise._trees.leaves import Leaf, LeafRecorder, format_sharding
from leafwise.errors import PortableError

_VERSION: Final = "leafwise digest 2"
"""To be raised when the same tree gets another digest."""


def digest(tree: Any) -> str:
    """Return a digest of what a tree is, the same in every process, on every machine.

    It has the classes of all nodes, all statics by type and bits, and the shape, dtype and weak
    type of each leaf; not the data of arrays. Instances that share a jit cache key have one
    digest, and those with other statics another. Neither the seed of hashes, nor addresses, nor
    the order of a set reach it.

    A function or a class counts by its module and qualified name: its code is not compared. A
    function to which no such name leads, such as a lambda, counts by what its closure and its
    defaults hold, too, and by the version of its package. A class counts by its fields, their
    annotations and its options, too, and an enum by its members. An object with its own ``==``
    counts by what it is pickled as; in a field with ``compare_by="content"`` any object by its
    attributes.

    Args:
        tree: Any pytree, whose leaves may be `jax.ShapeDtypeStruct` or tracers; or the key of an
            instance, which is the aux_data that JAX has of it.

    Returns:
        64 hexadecimal digits. They differ between versions of leafwise when the changelog says so.

    Raises:
        PortableError: A static means nothing to another process: a local class, an object that
            compares by identity. All are named.
        StaticMutatedError: A static was changed in place.

    Examples:
        >>> digest({"w": jnp.ones((2, 3))}) == digest({"w": jnp.zeros((2, 3))})  # doctest: +SKIP
        True
    """
    return digest_of(describe(tree))


def digest_of(record: Record) -> str:
    """Return the digest of a record."""
    # As pairs: the order of leaves is part of the structure.
    return _sha([_VERSION, [*record.items()]])


def describe(tree: Any, *, in_order: bool = False) -> Record:
    """Return the record of a tree or key; in order, sets as a loop meets them, and devices."""
    reader, to_leaf = DigestReader(in_order=in_order), LeafRecorder()
    described = describe_tree(tree, lambda leaf: aval_entry(to_leaf(leaf), placed=in_order), reader)
    record = described.record
    if isinstance(tree, StaticKey):
        record[", key of"] = {"static": reader.class_name(tree.owner.cls)}
    if reader.opaque:
        lines = [
            f"{described.root}{path}: {why}\n  got: {got(value)}\n  fix: {fix}"
            for path, value in reader.opaque
            for why, fix in [_why_and_fix(value)]
        ]
        raise PortableError("\n".join(lines))
    return record | reader.class_entries()


def describe_call(signature: Signature) -> tuple[Record, dict[str, str]]:
    """Return the record of a call, and by path what another process could not read."""

    def entry(found: Any) -> dict[str, Json] | None:
        is_leaf = isinstance(found, Leaf)
        return aval_entry(found, placed=True) or {"python": str(found)} if is_leaf else None

    reader = DigestReader(in_order=True)
    found = describe_signature(signature, entry, reader) | reader.class_entries()
    return found, {path: got(value) for path, value in reader.opaque}


def describe_values(values: Mapping[str, Any]) -> Record:
    """Return the record of values by their paths, as statics; without a digest, as trees."""
    found: Record = {}
    to_leaf = LeafRecorder()
    for path, value in values.items():
        reader = DigestReader(in_order=True)
        with contextlib.suppress(Exception):  # the user's own code
            entry = reader.read(value, path)
            if not reader.opaque:
                found[path] = {"static": entry}
                continue
            one = describe_tree(value, lambda leaf: aval_entry(to_leaf(leaf)), None, path)
            if not one.opaque:
                found |= one.record
    return found


def aval_entry(found: Leaf, *, placed: bool = False) -> dict[str, Json] | None:
    """Return the aval of a leaf, with the devices it is committed to; None for what has none."""
    aval = found.aval
    if aval is None:
        return None
    entry: dict[str, Json] = {"dtype": str(aval.dtype), "shape": [*map(str, aval.shape)]}
    if found.weak_type:
        entry["weakly typed"] = True
    spec = getattr(getattr(aval, "sharding", None), "spec", ())
    if any(each is not None for each in spec):  # of an explicit axis of a mesh
        entry["sharding"] = str(spec)
    elif placed and found.committed:
        entry["committed"] = _devices(found.sharding)
    if type(aval) is not core.ShapedArray:  # a mutable array
        entry["kind"] = type(aval).__name__
    return entry


def _devices(sharding: Any) -> str:
    """Return a sharding in short, one device of this process by its place there."""
    if len(sharding.device_set) == 1:
        (device,) = sharding.device_set
        devices = device.client.local_devices()
        if device in devices:
            return f"{device.platform}:{devices.index(device)}"
    return format_sharding(sharding)


class DigestReader(PortableReader):
    """Reads statics for a digest, which has more of them than the names that lead to them."""

    def __init__(self, *, in_order: bool = False) -> None:
        super().__init__(in_order=in_order)
        self.definitions: dict[str, Json] = {}
        self._names: dict[type, str] = {}
        self._by_content = False

    def class_name(self, cls: type) -> str:
        """Return the name of a class, and note what it is."""
        if cls not in self._names:
            self._names[cls] = name = class_name(cls)
            definition = self._definition(cls, name)
            if definition is not None:
                if self.definitions.setdefault(name, definition) != definition:
                    name = self._names[cls] = f"{name} {_sha(definition)[:8]}"
                self.definitions[name] = definition
        return self._names[cls]

    def class_entries(self) -> Record:
        """Return what the classes are that were met, as the end of a record."""
        found = sorted(self.definitions.items())
        return {f", class {name}": {"static": definition} for name, definition in found}

    def _definition(self, cls: Any, name: str) -> Json | None:
        """Return what a class is, apart from its code: its fields in order, and its options."""
        parts = _fields_of(cls)
        if issubclass(cls, Enum):
            members = cls.__members__.items()
            parts = {each: self._found(it.value, "", "an object") for each, it in members}
        if parts is None:
            return None
        in_order = {"class": "names", "parts": [*parts, *_options_of(cls)]}
        return {"class": name, "parts": {"": in_order, **{f".{k}": v for k, v in parts.items()}}}

    def _found(self, value: Any, path: str, name: str) -> Json:
        """Return the JSON of a value, or a name for it if it means nothing to another process."""
        opaque = len(self.opaque)
        found = self._read(value, path)
        if len(self.opaque) == opaque:
            return found
        del self.opaque[opaque:]
        return {"class": "name", "parts": [name]}

    # ------------------------------------------------------------------------ values

    def read(self, value: Any, path: str, *, by_content: bool = False) -> Json:
        """Return the JSON of a static; objects count by their attributes if it is by content."""
        before, self._by_content = self._by_content, self._by_content or by_content
        try:
            return super().read(value, path)
        finally:
            self._by_content = before

    def _read(self, value: Any, path: str) -> Json:
        is_followed = self._by_content or type(value) is types.FunctionType
        if is_followed and id(value) in self._containing:  # it holds itself
            return {"class": "again", "parts": [class_name(type(value))]}
        return super()._read(value, path)

    def _read_other(self, value: Any, path: str) -> Json:
        for base, names in _OF_DEVICES.items():
            if isinstance(value, base):
                parts = [(f".{name}", getattr(value, name)) for name in names]
                return self._by_step(self.class_name(type(value)), parts, path)
        if isinstance(value, StaticKey):
            return self._key(value, path)
        if isinstance(value, jax.tree_util.PyTreeDef):
            return self._treedef(value, path)
        return super()._read_other(value, path)

    def _key(self, key: StaticKey, path: str) -> Json:
        by_content = content_names(key.owner)
        parts = {
            f".{name}": self.read(value, f"{path}.{name}", by_content=name in by_content)
            for name, value in zip(key.owner.static_names, key.values, strict=True)
        }
        return {"class": self.class_name(key.owner.cls), "parts": parts}

    def _treedef(self, treedef: Any, path: str) -> Json:
        cls, aux = treedef.node_data() or (None, None)
        kind = "" if cls is None else self.class_name(cls)
        children = [(f"[{place}]", child) for place, child in enumerate(treedef.children())]
        own = [(".class", kind), (".num_leaves", treedef.num_leaves), (".aux_data", aux)]
        return self._by_step("treedef", [*own, *children], path)

    def named(self, value: Any, path: str) -> Json:
        """Return the name that leads to a function, class or module, or what a function holds."""
        if isinstance(value, type):
            if native_base(value) is value and value.__module__ == "builtins":
                return {"class": "name", "parts": [f"builtins:{value.__qualname__}"]}
            self.class_name(value)
        elif type(value) is types.FunctionType and not is_importable(value):
            module, name = names_of(value)
            version = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
            parts = [(".__version__", str(version)), *kind_of(value).parts(value)]
            return self._by_step(f"function {module}:{name}", parts, path)
        return super().named(value, path)

    def method(self, value: Any, path: str) -> Json:
        """Return a bound method's receiver and name."""
        if self._by_content:
            return self._by_step("method", kind_of(value).parts(value), path)
        return super().method(value, path)

    def _opaque(self, value: Any, path: str) -> Json:
        cls = type(value)
        is_object = self._by_content and compares_by_identity(cls) and not has_hidden_state(cls)
        if is_object and not is_installed_module(cls.__module__):
            parts = {
                step: self._found(part, path + step, class_name(type(part)))
                for step, part in kind_of(value).parts(value)
            }
            return {"class": self.class_name(cls), "parts": parts}
        return super()._opaque(value, path)


def _why_and_fix(value: Any) -> tuple[str, str]:
    """Return why a value means nothing to another process, and what to do."""
    cls: type = type(value)
    name = cls.__qualname__.rpartition(".")[2]
    if isinstance(value, type) or (callable(value) and is_installed_module(cls.__module__)):
        kind = "class" if isinstance(value, type) else "function"
        fix = "define it with a name of its own at the top level of a module"
        return f"no name leads another process to this {kind}", fix
    if compares_by_identity(cls):
        why = f"{name} compares by identity, which means nothing to another process"
        fix = f"@dataclass(frozen=True)\n  class {name}: ..."
        return why, f"let what it holds be its fields:\n  {fix}"
    why = "another process cannot read it: it contains itself, is too deep, or does not pickle"
    return why, f"let {name} be a frozen dataclass of values that are static, too"


def _sha(made: Json) -> str:
    return hashlib.sha256(dump(made).encode()).hexdigest()


# ------------------------------------------------------------------------ classes


def _fields_of(cls: Any) -> dict[str, Json] | None:
    """Return the fields of a class in order, each with its annotation and options as text."""
    if dataclasses.is_dataclass(cls):
        return {field.name: _field(field) for field in dataclasses.fields(cls)}
    if (own := getattr(cls, "__attrs_attrs__", None)) is not None:
        return {field.name: _annotation(field.type) for field in own}
    names: Any = getattr(cls, "_fields", None)
    if issubclass(cls, tuple) and names is not None:
        annotations = annotations_of(cls)
        return {name: _annotation(annotations.get(name)) for name in names}
    return None


def _field(field: "dataclasses.Field[Any]") -> str:
    try:
        is_static = is_static_metadata(field.metadata)
    except ValueError:  # entries that contradict each other: another library's affair
        is_static = None
    by = getattr(field.metadata.get(OPTIONS), "compare_by", "identity")
    named = {"init": field.init, "compare": field.compare, "kw_only": field.kw_only is True}
    words = [_annotation(field.type), *["static"] * bool(is_static)]
    words += [f"compare_by={by}"] * (by != "identity")
    words += [f"{key}={field.metadata[key]}" for key in (SHARDING,) if key in field.metadata]
    return ", ".join([*words, *(f"{k}={v}" for k, v in named.items() if v is (k == "kw_only"))])


def _options_of(cls: Any) -> list[str]:
    params: Any = getattr(cls, "__dataclass_params__", None)
    options = [each for each in ("eq", "order", "frozen") if getattr(params, each, False)]
    options += ["slots"] * ("__slots__" in vars(cls))
    mark: tuple[Any, ...] = vars(cls).get(MARK, ())
    return [*options, *["many_statics"] * (mark[1:] == (True,))]


def _annotation(kind: Any) -> str:
    """Return an annotation as text that no address is in."""
    kind = getattr(kind, "__forward_arg__", kind)  # of a plain dataclass, from Python 3.14 on
    return without_addresses(kind if isinstance(kind, str) else inspect.formatannotation(kind))


# ------------------------------------------------------------------------ devices


_AXES: Final = ("axis_names", "axis_sizes", "axis_types")
_OF_DEVICES: Final[dict[Any, Sequence[str]]] = {
    jax.sharding.Mesh: (*_AXES, "devices"),
    jax.sharding.AbstractMesh: _AXES,
    jax.Device: ("platform", "id", "process_index"),
}
"""The attributes that describe devices, which do not pickle."""
