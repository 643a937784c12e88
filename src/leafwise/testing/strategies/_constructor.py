"""What a constructor takes, and calling it."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final

from leafwise._classes.annotations import resolve
from leafwise.errors import LeafwiseError


class CannotBuildError(LeafwiseError):
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


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters_of(cls: Any) -> list[Parameter]:
    """Return what the constructor of a class takes.

    Raises:
        CannotBuildError: The constructor has no signature.
    """
    found: list[Parameter] = []
    for parameter in _signature(cls).parameters.values():
        if parameter.kind in _VARIADIC:
            continue
        kind, owner = _kind_of(cls, parameter)
        by_name = parameter.kind is not parameter.POSITIONAL_ONLY
        default = _default_of(cls, parameter)
        found.append(Parameter(parameter.name, kind, owner, default, by_name))
    return found


def takes_any_name(cls: Any) -> bool:
    """Return whether a constructor takes ``**arguments``."""
    parameters = _signature(cls).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _signature(cls: Any) -> inspect.Signature:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError) as error:
        name = cls.__name__
        msg = (
            f"{name}: its constructor has no signature ({error})\n"
            f"  fix: beside the class:\n"
            f"       hypothesis.strategies.register_type_strategy({name}, ...)"
        )
        raise CannotBuildError(msg) from error
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if kinds and all(kind in _VARIADIC for kind in kinds) and dataclasses.is_dataclass(cls):
        return _signature_of_fields(cls)  # a decorator's wrapper hides the constructor
    return signature


def _signature_of_fields(cls: Any) -> inspect.Signature:
    """Return the signature that a dataclass has by its fields."""
    empty = inspect.Parameter.empty
    parameters: list[inspect.Parameter] = []
    for field in dataclasses.fields(cls):
        has_default = field.default is not dataclasses.MISSING
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default if has_default else _FACTORY if has_factory else empty
        if field.init:
            by_name = inspect.Parameter.KEYWORD_ONLY
            parameters.append(
                inspect.Parameter(field.name, by_name, default=default, annotation=field.type)
            )
    return inspect.Signature(parameters)


class _Factory:
    """Stands for a default that a factory makes, in the words of dataclasses."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


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
        # A converter that says nothing hides what the field says: equinox writes `Any`.
        silent = said is parameter.empty or said is Any
        kind = _resolved(base, parameter.name, declared)
        if silent or _without_initvar(said) in (declared, kind):
            return kind, base
        break
    writer = next((base for base in cls.__mro__ if "__init__" in base.__dict__), cls)
    return _resolved(writer, parameter.name, said), writer


def _resolved(writer: Any, name: str, annotation: Any) -> Any:
    # A class that is defined in a function is not found by its name, but by itself.
    return _without_initvar(resolve(writer, name, annotation, [{writer.__name__: writer}]))


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
