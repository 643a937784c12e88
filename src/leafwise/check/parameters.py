"""What a constructor takes, and calling it."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from leafwise._annotations import resolve


class CannotBuildError(Exception):
    """No instance of a class can be made; the message says what to give."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a constructor.

    Attributes:
        name: The parameter's, and usually the field's, name.
        kind: Its annotation, resolved; `inspect.Parameter.empty` if there is none.
        owner: The class that wrote the annotation.
        make_default: Returns its default; None if it must be given.
        by_name: Whether it is passed by keyword.
    """

    name: str
    kind: Any
    owner: type
    make_default: Callable[[], Any] | None
    by_name: bool

    @property
    def default(self) -> Any:
        """The default, made afresh by a factory; `inspect.Parameter.empty` if there is none."""
        return inspect.Parameter.empty if self.make_default is None else self.make_default()


def parameters_of(cls: Any) -> list[Parameter]:
    """Return what the constructor of a class takes.

    Raises:
        CannotBuildError: The constructor has no signature.
    """
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError) as error:
        msg = f"{cls.__name__}: its constructor has no signature ({error})"
        raise CannotBuildError(msg) from error
    found: list[Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind, owner = _kind_of(cls, parameter)
        by_name = parameter.kind is not parameter.POSITIONAL_ONLY
        default = _default_of(cls, parameter)
        found.append(Parameter(parameter.name, kind, owner, default, by_name))
    return found


def _default_of(cls: Any, parameter: inspect.Parameter) -> Callable[[], Any] | None:
    if parameter.default is parameter.empty:
        return None
    definition = getattr(cls, "__dataclass_fields__", {}).get(parameter.name)
    factory = getattr(definition, "default_factory", dataclasses.MISSING)
    if factory is not dataclasses.MISSING and repr(parameter.default) == "<factory>":
        made: Callable[[], Any] = factory  # the default is dataclasses' mark for it
        return made
    return lambda: parameter.default


def _kind_of(cls: Any, parameter: inspect.Parameter) -> tuple[Any, type]:
    """Return the type of a parameter, and the class that says so.

    That is the field of its name, unless a constructor written by hand says otherwise.
    """
    said = parameter.annotation
    for base in cls.__mro__:
        own = inspect.get_annotations(base)
        if parameter.name not in own:
            continue
        declared = _without_initvar(own[parameter.name])
        if said is parameter.empty or _without_initvar(said) == declared:
            return _without_initvar(resolve(base, parameter.name, declared, [])), base
        break
    writer = next((base for base in cls.__mro__ if "__init__" in base.__dict__), cls)
    return _without_initvar(resolve(writer, parameter.name, said, [])), writer


def _without_initvar(kind: Any) -> Any:
    return kind.type if isinstance(kind, dataclasses.InitVar) else kind


def call(cls: Any, parameters: list[Parameter], arguments: dict[str, Any]) -> Any:
    """Construct an instance; parameters without an argument keep their defaults."""
    named = dict(arguments)
    positional = [
        named.pop(parameter.name)
        for parameter in parameters
        if not parameter.by_name and parameter.name in named
    ]
    return cls(*positional, **named)
