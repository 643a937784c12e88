"""Pytree classes in flax: state dicts, and attributes of `flax.nnx` modules."""

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import flax.serialization
import jax

from leafwise._classes import tell_of_classes
from leafwise._portable import PortableReader, dump, say
from leafwise._register import registered_names
from leafwise._registry import spec_of
from leafwise._text import got
from leafwise.errors import CheckpointError, CheckpointMismatchError, Difference

__all__ = ["register_nnx_data", "register_serialization"]

_flax: Any = flax.serialization  # not all of its functions are annotated

_STATICS: Final = "__leafwise__"
"""The entry of a state dict that says what the statics were. No field has this name."""

_NOTHING: Final = "nothing"


def register_serialization() -> None:
    """Let `flax.serialization` save and restore pytree classes, those to come included.

    ``to_state_dict``, ``from_state_dict``, ``to_bytes`` and ``from_bytes`` then treat an
    instance as they treat a `flax.struct.dataclass`: a dict of its dynamic fields, by name.
    To restore is to rebuild: the statics are those of the target, and no constructor,
    converter or check runs.

    What the statics were is written as well, as the keys of dicts without leaves, so that
    ``jax.tree.map`` over a state dict still meets nothing but arrays. A state dict of another
    static configuration is refused with a `leafwise.CheckpointMismatchError`, and so is one that
    lacks a field or has another one. A state dict that says nothing of statics (one made by
    hand) is taken. A static without a name, such as a lambda, is known by its type only.

    Classes that were registered with `leafwise.register` take part, but for those that flax
    knows already.

    Example:
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
    tell_of_classes(_register_serialization)


def register_nnx_data() -> None:
    """Let `flax.nnx` take pytree classes for data, those to come included.

    An instance can then be the attribute of an ``nnx.Module`` without ``nnx.data`` around it.
    Classes that have static fields only stay what they are to nnx: hashable objects, so static
    attributes. Imports ``flax.nnx``.

    Example:
        >>> import leafwise as lw
        >>> from flax import nnx
        >>> register_nnx_data()
        >>> @lw.pytree
        ... class Scale:
        ...     factor: jax.Array
        >>> class Model(nnx.Module):
        ...     def __init__(self):
        ...         self.scale = Scale(nnx.Param(jax.numpy.ones(3)))
        >>> nnx.state(Model(), nnx.Param)["scale"]["factor"].shape
        (3,)
    """
    import_module("flax.nnx")  # now rather than when the next class is made
    tell_of_classes(_register_nnx_data)


def _register_nnx_data(cls: type) -> None:
    from flax import nnx  # noqa: PLC0415  # takes as long to import as all the rest of flax

    _, dynamic = _names(cls)
    if dynamic:
        nnx.register_data_type(cls)


def _register_serialization(cls: type) -> None:
    if not _flax.is_serializable(cls):
        _flax.register_serialization_state(cls, _to_state_dict, _from_state_dict)


def _names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of static and of dynamic fields."""
    names = registered_names(cls)
    if names is not None:
        return names
    spec = spec_of(cls)
    return spec.static_names, spec.dynamic_names


def _to_state_dict(instance: Any) -> dict[str, Any]:
    static, dynamic = _names(type(instance))
    state = {name: _flax.to_state_dict(getattr(instance, name)) for name in dynamic}
    if static:
        state[_STATICS] = {name: {_portable(instance, name): {}} for name in static}
    return state


def _portable(instance: Any, name: str) -> str:
    value = getattr(instance, name)
    text = dump(PortableReader().read(value, f"{type(instance).__name__}.{name}"))
    # `flatten_dict` joins keys by slashes, and splits them there again.
    return text.replace("/", "\\u002f")


def _from_state_dict(target: Any, state: Any) -> Any:
    static, dynamic = _names(type(target))
    given = _checked(target, state, static, dynamic)
    children, structure = jax.tree.flatten(target, is_leaf=lambda node: node is not target)
    for place, name in enumerate(dynamic):  # behind them may be the child of `many_statics`
        children[place] = _flax.from_state_dict(children[place], given[name], name=name)
    return jax.tree.unflatten(structure, children)


def _checked(
    target: Any, state: Any, static: tuple[str, ...], dynamic: tuple[str, ...]
) -> dict[str, Any]:
    """Return the dynamic fields in a state dict that fits the target."""
    name = type(target).__name__
    if not isinstance(state, Mapping):
        msg = (
            f"{name}: a state dict of it has the keys {', '.join(dynamic) or '(none)'}\n"
            f"  got: {got(state)}{_at_path()}"
        )
        raise CheckpointError(msg)
    given: dict[str, Any] = dict(state)
    saved = given.pop(_STATICS, None)
    lost = [Difference(f"{name}.{key}", _NOTHING, "a field") for key in dynamic if key not in given]
    lost += [
        Difference(f"{name}.{key}", "a value", "no field") for key in given if key not in dynamic
    ]
    found = [*lost, *([] if saved is None else _static_differences(target, saved, static))]
    if found:
        lines = "\n".join(f"  {difference}" for difference in found)
        hint = (
            "give the target the statics that were saved, or delete "
            f"state[{_STATICS!r}] to restore the arrays all the same"
            if not lost
            else "restore into an instance of the class that was saved"
        )
        msg = (
            f"{name}: the state dict is not one of this target\n{lines}{_at_path()}\n  fix: {hint}"
        )
        raise CheckpointMismatchError(msg, tuple(found))
    return given


def _static_differences(target: Any, saved: Any, static: tuple[str, ...]) -> list[Difference]:
    now = {name: _portable(target, name) for name in static}
    try:
        before = {name: next(iter(texts)) for name, texts in saved.items()}
        said = {name: say(json.loads(text)) for name, text in before.items()}
    except (AttributeError, TypeError, ValueError, StopIteration) as error:
        kind = type(target).__name__
        msg = f"{kind}: what the state dict says of its statics is damaged\n  got: {got(saved)}"
        raise CheckpointError(msg + _at_path()) from error
    return [
        Difference(
            f"{type(target).__name__}.{name}",
            said.get(name, _NOTHING),
            say(json.loads(now[name])) if name in now else "no such static",
        )
        for name in {**now, **before}
        if now.get(name) != before.get(name)
    ]


def _at_path() -> str:
    path = _flax.current_path()
    return f"\n  at path: {path}" if path else ""
