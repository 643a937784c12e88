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
from collections.abc import Callable, Mapping, Sequence
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
from leafwise._objects.parts import Part, kind_of
from leafwise._objects.text import got
from leafwise._statics.key import StaticKey, content_names
from leafwise._statics.portable import Json, PortableReader, class_name, dump
from leafwise._trees.leaves import Leaf, LeafRecorder, format_sharding
from leafwise.errors import PortableError

_VERSION: Final = "leafwise digest 1"
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
    counts by what it is pickled as; in a field with ``by="content"`` any object by its attributes.

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
    if reader.refused:
        lines = [
            f"{described.root}{path}: {why}\n  got: {what}\n  fix: {fix}"
            for path, what, why, fix in reader.refused
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
    return found, {path: what for path, what, *_ in reader.refused}


def describe_values(values: Mapping[str, Any]) -> Record:
    """Return the record of values by their paths, as statics; without a digest, as trees."""
    found: Record = {}
    to_leaf = LeafRecorder()
    for path, value in values.items():
        reader = DigestReader(in_order=True)
        with contextlib.suppress(Exception):  # the user's own code
            entry = reader.read(value, path)
            if not reader.refused:
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
    """Reads statics for a digest; what means nothing to another process is refused, by path."""

    def __init__(self, *, in_order: bool = False) -> None:
        super().__init__()
        self.definitions: dict[str, Json] = {}
        self.refused: list[tuple[str, str, str, str]] = []
        self._in_order = in_order
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
        if issubclass(cls, Enum):
            members = {
                f".{each}": self._found(it.value, "", "an object")
                for each, it in cls.__members__.items()
            }
            return {"class": name, "content": [*members], "parts": members}
        fields = _fields_of(cls)
        if fields is None:
            return None
        parts = {f".{each}": kind for each, kind in fields.items()}
        return {"class": name, "content": [*fields, *_options_of(cls)], "parts": parts}

    def _found(self, value: Any, path: str, name: str) -> Json:
        """Return the JSON of a value, or a name for it if it means nothing to another process."""
        opaque, refused = len(self.opaque), len(self.refused)
        found = self._read(value, path)
        if len(self.refused) == refused:
            return found
        del self.opaque[opaque:], self.refused[refused:]
        return {"name": name}

    # ------------------------------------------------------------------------ values

    def _read(self, value: Any, path: str) -> Json:
        is_followed = self._by_content or type(value) is types.FunctionType
        if is_followed and id(value) in self._containing:  # it holds itself
            return {"again": class_name(type(value))}
        return super()._read(value, path)

    def _read_other(self, value: Any, path: str) -> Json:
        for base, parts_of in _OF_DEVICES.items():
            if isinstance(value, base):
                return {"class": self._class_of(value), "parts": self._steps(parts_of(value), path)}
        if isinstance(value, StaticKey):
            return self._key(value, path)
        if isinstance(value, jax.tree_util.PyTreeDef):
            return self._treedef(value, path)
        return super()._read_other(value, path)

    def _key(self, key: StaticKey, path: str) -> Json:
        read = {True: self.read_by_content, False: self._read}
        names = key.owner.static_names
        parts = {
            f".{name}": read[name in content_names(key.owner)](value, f"{path}.{name}")
            for name, value in zip(names, key.values, strict=True)
        }
        return {"class": self.class_name(key.owner.cls), "parts": parts}

    def _treedef(self, treedef: Any, path: str) -> Json:
        cls, aux = treedef.node_data() or (None, None)
        children = enumerate(treedef.children())
        parts = [(".aux_data", aux), *((f"[{place}]", child) for place, child in children)]
        kind = "" if cls is None else self.class_name(cls)
        leaves = treedef.num_leaves
        return {"class": "treedef", "content": [kind, leaves], "parts": self._steps(parts, path)}

    def _members(self, parts: Sequence[Part], path: str) -> list[Json]:
        found = self._read_all(parts, path)
        return found if self._in_order else sorted(found, key=dump)

    def named(self, value: Any, path: str) -> Json:
        """Return the name that leads to a function, class or module, or what a function holds."""
        if isinstance(value, type):
            if native_base(value) is value and value.__module__ == "builtins":
                return {"type": value.__qualname__}  # NoneType, which `builtins` does not have
            self.class_name(value)
        elif type(value) is types.FunctionType and not is_importable(value):
            module, name = names_of(value)
            version = getattr(sys.modules.get(module.partition(".")[0]), "__version__", None)
            parts = self._steps(kind_of(value).parts(value), path)
            return {"class": f"function {module}:{name}", "content": [str(version)], "parts": parts}
        return super().named(value, path)

    def method(self, value: Any, path: str) -> Json:
        """Return a bound method's receiver and name."""
        if self._by_content:
            return {"class": "method", "parts": self._steps(kind_of(value).parts(value), path)}
        return super().method(value, path)

    def _opaque(self, value: Any, path: str) -> Json:
        cls = type(value)
        is_object = self._by_content and compares_by_identity(cls) and not has_hidden_state(cls)
        if is_object and not is_installed_module(cls.__module__):
            parts = kind_of(value).parts(value)
            found = [self._found(part, path + step, class_name(type(part))) for step, part in parts]
            inside = zip([step for step, _ in parts], found, strict=True)
            return {"class": self.class_name(cls), "parts": dict(inside)}
        self.refused.append((path, got(value), *self._why_and_fix(value)))
        return super()._opaque(value, path)

    def _why_and_fix(self, value: Any) -> tuple[str, str]:
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

    def read_by_content(self, value: Any, path: str) -> Json:
        """Return the JSON of a static by content: objects count by their attributes."""
        before, self._by_content = self._by_content, True
        try:
            return self.read(value, path)
        finally:
            self._by_content = before


def _sha(made: Json) -> str:
    return hashlib.sha256(dump(made).encode()).hexdigest()


# ------------------------------------------------------------------------ classes


def _fields_of(cls: Any) -> dict[str, str] | None:
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
    by = getattr(field.metadata.get(OPTIONS), "by", "identity")
    named = {"init": field.init, "compare": field.compare, "kw_only": field.kw_only is True}
    words = [_annotation(field.type), *["static"] * bool(is_static)]
    words += [f"by={by}"] * (by != "identity")
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


def _of_mesh(mesh: Any) -> list[Part]:
    parts = [(f".{each}", getattr(mesh, each)) for each in ("axis_names", "axis_sizes")]
    devices = mesh.devices.flat if isinstance(mesh, jax.sharding.Mesh) else ()
    kinds = tuple(map(str, mesh.axis_types))
    return [*parts, (".axis_types", kinds), (".devices", tuple(devices))]


def _of_device(device: Any) -> list[Part]:
    return [(f".{each}", getattr(device, each)) for each in ("platform", "id", "process_index")]


_OF_DEVICES: Final[dict[Any, Callable[[Any], list[Part]]]] = {
    jax.sharding.Mesh: _of_mesh,
    jax.sharding.AbstractMesh: _of_mesh,
    jax.Device: _of_device,
}
"""What describes devices, which do not pickle."""
