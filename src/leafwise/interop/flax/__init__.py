"""Pytree classes in flax: state dicts, and attributes of `flax.nnx` modules."""

import dataclasses
import functools
import json
import operator
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import jax

from leafwise._classes.foreign import LazyOwner
from leafwise._classes.registry import field_names
from leafwise._objects.classes import on_registered
from leafwise._objects.methods import BoundMethod
from leafwise._objects.text import got
from leafwise._programs import description
from leafwise._programs.description import Described, Record, differences, of_kind
from leafwise._statics.key import table_of
from leafwise._statics.portable import dump
from leafwise.errors import CheckpointError
from leafwise.interop._checkpoint import refuse_problems
from leafwise.interop._extra import import_extra

__all__ = ["register_nnx_data", "register_serialization"]

_flax: Any = import_extra("flax.serialization")

_STATICS: Final = "__leafwise__"
"""The entry of a state dict that describes the statics. No field has this name."""


def register_serialization() -> None:
    """Enable `flax.serialization` to save and restore pytree classes, including future ones.

    ``to_state_dict``, ``from_state_dict``, ``to_bytes`` and ``from_bytes`` then treat an
    instance as they treat a `flax.struct.dataclass`: a dict of its dynamic fields, by name.
    Restoring rebuilds the target: the statics are those of the target, and no constructor,
    converter or check runs.

    The statics are written as well, as the keys of dicts without leaves, so that ``jax.tree.map``
    over a state dict still sees only arrays. A state dict with different statics is refused with a
    `leafwise.errors.CheckpointError`, and so is one that lacks a field or has an extra one. A state
    dict without statics, such as one written by hand, is accepted.

    A static that means nothing to another process (a lambda, a local function, and so also an optax
    optimizer) is refused with a `leafwise.errors.CheckpointError` when it is saved.

    Pytree classes are those of `leafwise.pytree`, the subclasses of
    `leafwise.interop.equinox.Module`, bound methods of the former (whose function counts as a
    static) and classes registered with `leafwise.register`, except for those that flax already
    knows.

    Examples:
        >>> import leafwise as lw
        >>> from flax import serialization
        >>> register_serialization()
        >>> @lw.pytree
        ... class Params:
        ...     w: jax.Array
        ...     depth: int = lw.static_field(default=2)
        >>> state = serialization.to_state_dict(Params(jax.numpy.ones(3)))
        >>> serialization.from_state_dict(Params(jax.numpy.zeros(3)), state).w
        Array([1., 1., 1.], dtype=float32)
    """
    on_registered(make_serializable)


def register_nnx_data() -> None:
    """Make `flax.nnx` treat pytree classes as data, including future ones.

    An instance can then be an attribute of an ``nnx.Module`` without ``nnx.data`` around it.
    The classes are those of `register_serialization`; a bound method is data as well. Classes that
    have only static fields remain hashable objects to nnx, and so static attributes. This imports
    ``flax.nnx``.

    Examples:
        >>> import leafwise as lw
        >>> from flax import nnx
        >>> register_nnx_data()
        >>> @lw.pytree
        ... class Scale:
        ...     factor: jax.Array
        >>> class Model(nnx.Module):
        ...     def __init__(self):
        ...         self.scale = Scale(nnx.Param(jax.numpy.ones(3)))
        >>> scale = nnx.state(Model(), nnx.Param)["scale"]
        >>> scale["factor"].shape
        (3,)
    """
    import_module("flax.nnx")  # now rather than when the next class is defined
    on_registered(_register_nnx_data)


def _register_nnx_data(cls: type) -> None:
    from flax import nnx  # noqa: PLC0415  # takes as long to import as all the rest of flax

    if _has_children(cls):
        nnx.register_data_type(cls)


def make_serializable(cls: type) -> None:
    if not _flax.is_serializable(cls):
        _flax.register_serialization_state(cls, _to_state_dict, _from_state_dict)


def _has_children(cls: type) -> bool:
    if (names := field_names(cls)) is not None:
        return bool(names[1])
    # A method has its instance, an equinox module the fields that equinox treats as children.
    return cls is BoundMethod or not all(
        field.metadata.get("static", False) for field in dataclasses.fields(cls)
    )


def _one_level(instance: Any) -> tuple[dict[str, Any], Any, Described]:
    """Return all children by name, the treedef, and the description of only this instance."""
    is_child = functools.partial(operator.is_not, instance)
    pairs, structure = jax.tree_util.tree_flatten_with_path(instance, is_leaf=is_child)
    # Any leaf would do: only the paths of the children are read.
    alone = jax.tree.unflatten(structure, [0.0] * len(pairs))
    described = description.describe_tree(alone, lambda _: {"python": "float"})
    return {path[0].name: child for path, child in pairs}, structure, described


def _fields(instance: Any, described: Described) -> list[str]:
    """Return the names of the children that are fields, not hash nodes or equinox's sentinels."""
    names = [path[1:] for path in described.arrays]
    cls = type(instance)
    if cls is not BoundMethod and isinstance(table_of(cls).owner, LazyOwner):
        return [name for name in names if name in vars(instance)]
    return names


def _to_state_dict(instance: Any) -> dict[str, Any]:
    # For Params(w, act="tanh"), it is {"w": w, "__leafwise__": {".act": {'"tanh"': {}}}}.
    children, _, described = _one_level(instance)
    names = _fields(instance, described)
    state = {name: _flax.to_state_dict(children[name]) for name in names}
    if statics := of_kind(described.record, "static"):
        # `flatten_dict` joins keys by slashes, and splits them there again.
        texts = {path: dump(static).replace("/", "\\u002f") for path, static in statics.items()}
        state[_STATICS] = {path: {text: {}} for path, text in texts.items()}
    refuse_problems(described, described.opaque)
    return state


def _from_state_dict(target: Any, state: Any) -> Any:
    children, structure, described = _one_level(target)
    names = _fields(target, described)
    if not isinstance(state, Mapping):
        raise CheckpointError(
            f"{described.root}: its state dict has the keys "
            f"{', '.join(names) or '(none)'}\n  got: {got(state)}{_at_path()}"
        )
    fields: dict[str, Any] = dict(state)
    texts = fields.pop(_STATICS, None)
    saved: Record = {f".{name}": {"class": "a field"} for name in fields}
    own: Record = {f".{name}": {"class": "a field"} for name in names}
    if texts is not None:
        saved |= {path: {"static": json.loads(next(iter(text)))} for path, text in texts.items()}
        own |= {path: entry for path, entry in described.record.items() if "static" in entry}
    if changes := differences(saved, own, described.root):
        lines = "\n".join(f"  {difference}" for difference in changes)
        raise CheckpointError(
            f"{described.root}: the state dict does not match this target\n{lines}{_at_path()}\n"
            f"  fix: restore into an instance with the fields and statics that were saved, or "
            f"delete state[{_STATICS!r}] to restore into other statics",
            changes,
        )
    restored = [
        _flax.from_state_dict(child, fields[name], name=name) if name in fields else child
        for name, child in children.items()
    ]
    return jax.tree.unflatten(structure, restored)


def _at_path() -> str:
    path = _flax.current_path()
    return f"\n  at path: {path}" if path else ""
