"""A class of another library in the spelling of leafwise."""

import dataclasses
import inspect
import re
import typing
from typing import Any, Final

from leafwise._classes.annotations import Unknown, resolve, without_marks
from leafwise.cli.library import library_of, public_name
from leafwise.testing._words import plain, short
from leafwise.testing.strategies._constructor import CannotBuildError, parameters_of

_WIDTH: Final = 40


def spelling(instance: Any, name: str, *, freeze: bool = False) -> str:
    """Return the class as leafwise has it: its name, and the one static field.

    Args:
        instance: An instance.
        name: The static field; empty for none.
        freeze: Whether the field's values can change in place.
    """
    cls = type(instance)
    lines = ["@lw.pytree", f"class {cls.__name__}:", "    ..."]
    if library_of(cls) == "equinox":
        lines = ["from leafwise.interop.equinox import Module", "", *_module(cls)]
        if lines[-1] != "    ...":
            return "\n".join(lines)
    if name:
        options = [text for text in (_default(cls, name), "freeze=True" if freeze else "") if text]
        lines.append(
            f"    {name}: {_annotation(instance, name)} = lw.static_field({', '.join(options)})"
        )
    return "\n".join(lines)


def _module(cls: type) -> list[str]:
    """Return an equinox class with a sound key; one of equinox's own is derived from."""
    if cls.__module__.partition(".")[0] == "equinox":
        return [f"class {cls.__name__}({public_name(cls)}, Module): ..."]
    return [f"class {cls.__name__}(Module):", "    ..."]


def _annotation(instance: Any, name: str) -> str:
    """Return what a field is annotated with, without the marks of other libraries."""
    cls = type(instance)
    for base in cls.__mro__:
        own = inspect.get_annotations(base)
        if name in own:
            return _text(_unwrapped(resolve(base, name, own[name], []), own[name]))
    with_type = type(getattr(instance, name)).__name__
    try:
        kinds = [each.kind for each in parameters_of(cls) if each.name == name]
    except CannotBuildError:
        return with_type
    known = kinds and kinds[0] is not inspect.Parameter.empty
    return _text(kinds[0]) if known else with_type


def _unwrapped(kind: Any, written: Any) -> Any:
    if isinstance(kind, Unknown):
        return written
    if typing.get_origin(kind) is typing.Annotated:  # `jax_dataclasses.Static[int]` is one
        return typing.get_args(kind)[0]
    return kind


def _text(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    text = kind.__name__ if type(kind) is type else str(without_marks(kind))
    return re.sub(r"\b(typing|builtins|collections\.abc|__main__)\.", "", plain(text))


def _default(cls: Any, name: str) -> str:
    """Return a default as it is written, if that is short; an empty text for none."""
    definition = getattr(cls, "__dataclass_fields__", {}).get(name)
    if definition is None:
        return ""
    factory = definition.default_factory
    if factory is not dataclasses.MISSING:
        named = getattr(factory, "__name__", "")
        return f"default_factory={named}" if named.isidentifier() else "default_factory=..."
    if definition.default is dataclasses.MISSING:
        return ""
    text = short(definition.default, _WIDTH)
    return f"default={'...' if text.startswith('<') or text.endswith('...') else text}"
