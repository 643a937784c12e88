"""Pytree classes in flax: state dicts, and attributes of `flax.nnx` modules."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any, Final

import jax

from leafwise._classes.foreign import LazyOwner
from leafwise._classes.registry import registered_names, spec_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.class_map import on_registered
from leafwise._objects.methods import BoundMethod
from leafwise._objects.text import got
from leafwise._statics.key import KEY, table_of
from leafwise._statics.portable import Json, PortableReader, dump, format_json
from leafwise.errors import CheckpointError, CheckpointMismatchError, Difference
from leafwise.interop._checkpoint import explain_opaque
from leafwise.interop._extra import import_extra

__all__ = ["register_nnx_data", "register_serialization"]

_flax: Any = import_extra("flax.serialization")

_STATICS: Final = "__leafwise__"
"""The entry of a state dict that says what the statics were. No field has this name."""

_NOTHING: Final = "nothing"

_SWITCH: Final = "register_serialization(allow_opaque=True)"


_allow_opaque: bool = False


def register_serialization(*, allow_opaque: bool = False) -> None:
    """Let `flax.serialization` save and restore pytree classes, those to come included.

    ``to_state_dict``, ``from_state_dict``, ``to_bytes`` and ``from_bytes`` then treat an
    instance as they treat a `flax.struct.dataclass`: a dict of its dynamic fields, by name.
    Restoring rebuilds the target: the statics are those of the target, and no constructor,
    converter or check runs.

    What the statics were is written as well, as the keys of dicts without leaves, so that
    ``jax.tree.map`` over a state dict still meets nothing but arrays. A state dict of another
    static configuration is refused with a `leafwise.errors.CheckpointMismatchError`, and so is
    one that lacks a field or has another one. A state dict that says nothing of statics, such as
    one written by hand, is accepted.

    A static that means nothing to another process (a lambda, a local function, so also an
    optimizer of optax) is refused with a `leafwise.errors.CheckpointError`, to save and to
    restore.

    Pytree classes are those of `leafwise.pytree`, the subclasses of
    `leafwise.interop.equinox.Module`, bound methods of the former (whose function counts as a
    static) and classes that were registered with `leafwise.register`, but for those that
    flax knows already.

    Args:
        allow_opaque: Whether to accept statics that mean nothing to another process, and to
            compare no more than their types and names: `optax.adam(1e-3)` then restores what
            `optax.sgd(10.0)` saved. It holds for the whole process; the last call decides.

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
    global _allow_opaque  # noqa: PLW0603  # one switch for the process, as flax has one table
    _allow_opaque = allow_opaque
    on_registered(make_serializable)


def register_nnx_data() -> None:
    """Let `flax.nnx` take pytree classes for data, those to come included.

    An instance can then be the attribute of an ``nnx.Module`` without ``nnx.data`` around it.
    The classes are those of `register_serialization`; a bound method is data as well. Classes
    that have static fields only stay what they are to nnx: hashable objects, so static
    attributes. Imports ``flax.nnx``.

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
    import_module("flax.nnx")  # now rather than when the next class is made
    on_registered(_register_nnx_data)


def _register_nnx_data(cls: type) -> None:
    from flax import nnx  # noqa: PLC0415  # takes as long to import as all the rest of flax

    if _has_children(cls):
        nnx.register_data_type(cls)


def make_serializable(cls: type) -> None:
    if not _flax.is_serializable(cls):
        _flax.register_serialization_state(cls, _to_state_dict, _from_state_dict)


def _has_children(cls: type) -> bool:
    if is_decorated(cls):
        return bool(spec_of(cls).dynamic_names)
    names = registered_names(cls)
    if names is not None:
        return bool(names[1])
    # A method has its instance, a module of equinox the fields that equinox takes for children.
    return cls is BoundMethod or not all(
        field.metadata.get("static", False) for field in dataclasses.fields(cls)
    )


def _static_names(cls: type) -> tuple[str, ...]:
    return ("__func__",) if cls is BoundMethod else table_of(cls).owner.static_names


def _children(instance: Any) -> tuple[dict[str, Any], Any]:
    """Return all children by name, those that are not fields included, and the treedef."""

    def is_child(node: object) -> bool:
        return node is not instance

    pairs, structure = jax.tree_util.tree_flatten_with_path(instance, is_leaf=is_child)
    return {path[0].name: child for path, child in pairs}, structure


def _is_field(instance: Any, name: str) -> bool:
    """Return whether a child is a field's value.

    Others are the hash node of ``many_statics``, and equinox's mark for a field that was never set.
    """
    cls = type(instance)
    if cls is not BoundMethod and isinstance(table_of(cls).owner, LazyOwner):
        return name in vars(instance)
    return not name.startswith(KEY)


def _to_state_dict(instance: Any) -> dict[str, Any]:
    children, _ = _children(instance)
    state = {
        name: _flax.to_state_dict(child)
        for name, child in children.items()
        if _is_field(instance, name)
    }
    static = _static_names(type(instance))
    if static:
        reader = PortableReader()
        state[_STATICS] = {name: {_read(reader, instance, name): {}} for name in static}
        _refuse_opaque(reader.opaque)
    return state


def _read(reader: PortableReader, instance: Any, name: str) -> str:
    value, path = getattr(instance, name), f"{type(instance).__name__}.{name}"
    text = dump(_method_name(instance) or reader.read(value, path))
    # `flatten_dict` joins keys by slashes, and splits them there again.
    return text.replace("/", "\\u002f")


def _method_name(instance: Any) -> Json:
    """Return the name of a method that is an attribute of its instance's class.

    The class may be a local one, which has no portable name: flax never compares classes, and the
    target brings its own.
    """
    if type(instance) is not BoundMethod:
        return None
    function: Any = instance.__func__
    found = getattr(type(instance.__self__), getattr(function, "__name__", ""), None)
    if found is None or found is not function:
        return None
    return {"name": f"{function.__module__}:{function.__qualname__}"}


def _refuse_opaque(opaque: list[tuple[str, str]]) -> None:
    """Refuse statics of which nothing but type and name can be compared.

    Raises:
        CheckpointError: There are some, and they have not been allowed.
    """
    if opaque and not _allow_opaque:
        problems = [f"{path}: {explain_opaque(what, _SWITCH)}" for path, what in opaque]
        raise CheckpointError("\n".join(problems) + _at_path())


def _from_state_dict(target: Any, state: Any) -> Any:
    children, structure = _children(target)
    fields = _check_state(target, state, [name for name in children if _is_field(target, name)])
    restored = [
        _flax.from_state_dict(child, fields[name], name=name) if name in fields else child
        for name, child in children.items()
    ]
    return jax.tree.unflatten(structure, restored)


def _check_state(target: Any, state: Any, dynamic: Collection[str]) -> dict[str, Any]:
    """Return the dynamic fields of a state dict; refuse one that does not fit the target."""
    name = type(target).__name__
    if not isinstance(state, Mapping):
        raise CheckpointError(
            f"{name}: a state dict of it has the keys {', '.join(dynamic) or '(none)'}\n"
            f"  got: {got(state)}{_at_path()}"
        )
    fields: dict[str, Any] = dict(state)
    saved = fields.pop(_STATICS, None)
    lost = [
        Difference(f"{name}.{key}", _NOTHING, "a field") for key in dynamic if key not in fields
    ]
    lost += [
        Difference(f"{name}.{key}", "a value", "no field") for key in fields if key not in dynamic
    ]
    reader = PortableReader()
    found = [*lost, *([] if saved is None else _static_differences(target, saved, reader))]
    if found:
        lines = "\n".join(f"  {difference}" for difference in found)
        hint = (
            "give the target the statics that were saved, or delete "
            f"state[{_STATICS!r}] to restore the arrays all the same"
            if not lost
            else "restore into an instance of the class that was saved"
        )
        raise CheckpointMismatchError(
            f"{name}: the state dict is not one of this target\n{lines}{_at_path()}\n  fix: {hint}",
            tuple(found),
        )
    _refuse_opaque(reader.opaque)
    return fields


def _static_differences(target: Any, saved: Any, reader: PortableReader) -> list[Difference]:
    now = {name: _read(reader, target, name) for name in _static_names(type(target))}
    try:
        before = {name: next(iter(texts)) for name, texts in saved.items()}
        shown = {name: format_json(json.loads(text)) for name, text in before.items()}
    except (AttributeError, TypeError, ValueError, StopIteration, RecursionError) as error:
        kind = type(target).__name__
        msg = f"{kind}: what the state dict says of its statics is damaged\n  got: {got(saved)}"
        raise CheckpointError(msg + _at_path()) from error
    return [
        Difference(
            f"{type(target).__name__}.{name}",
            shown.get(name, _NOTHING),
            format_json(json.loads(now[name])) if name in now else "no such static",
        )
        for name in {**now, **before}
        if now.get(name) != before.get(name)
    ]


def _at_path() -> str:
    path = _flax.current_path()
    return f"\n  at path: {path}" if path else ""
