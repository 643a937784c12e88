"""What a constructor takes, and calling it."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from leafwise._classes.annotations import resolve, type_parameters
from leafwise.errors import CannotBuildError


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a constructor; `owner` is the class that wrote its annotation.

    The items of a `spread` one are passed, as those of ``*layers``.
    """

    name: str
    kind: Any
    owner: type
    make_default: Callable[[], Any] | None
    by_name: bool
    spread: bool = False

    @property
    def default(self) -> Any:
        """The default, a new one each time from a factory; `inspect.Parameter.empty` if none."""
        try:
            return inspect.Parameter.empty if self.make_default is None else self.make_default()
        except Exception:  # noqa: BLE001  # a factory of the user's own: the constructor says so
            return inspect.Parameter.empty


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters_of(cls: Any) -> list[Parameter]:
    """Return what the constructor of a class takes; `CannotBuildError` if it has no signature."""
    found: list[Parameter] = []
    for parameter in _signature(cls).parameters.values():
        spread = not found and _is_spread_field(cls, parameter)
        if parameter.kind in _VARIADIC and not spread:
            continue
        kind, owner = _kind_of(cls, parameter)
        by_name = parameter.kind is not parameter.POSITIONAL_ONLY
        default = _default_of(cls, parameter)
        found.append(Parameter(parameter.name, kind, owner, default, by_name, spread))
    return found


def _is_spread_field(cls: Any, parameter: inspect.Parameter) -> bool:
    """Return whether a constructor takes the items of a field: ``def __init__(self, *layers)``."""
    declared = any(parameter.name in inspect.get_annotations(base) for base in cls.__mro__)
    return declared and parameter.kind is parameter.VAR_POSITIONAL


def takes_more(cls: Any, kind: Any) -> bool:
    """Return whether a constructor takes ``*arguments`` or ``**arguments``, by their kind."""
    return any(each.kind is kind for each in _signature(cls).parameters.values())


def _signature(cls: Any) -> inspect.Signature:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError) as error:
        name = cls.__name__
        raise CannotBuildError(
            f"{name}: its constructor has no signature ({error})\n"
            f"  fix: next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({name}, ...)"
        ) from error
    parameters = signature.parameters.values()
    says_nothing = bool(parameters) and all(each.kind in _VARIADIC for each in parameters)
    if not says_nothing or any(_is_spread_field(cls, each) for each in parameters):
        return signature
    if dataclasses.is_dataclass(cls):
        return _signature_of_fields(cls)  # a decorator's wrapper hides the constructor
    if isinstance(cls.__init__, types.FunctionType):
        _, *others = inspect.signature(cls.__init__).parameters.values()
        return inspect.Signature(others)  # a `__new__` that takes anything hides it
    return signature


def _signature_of_fields(cls: Any) -> inspect.Signature:
    """Return the signature that a dataclass has by its fields."""
    made: list[inspect.Parameter] = []
    for field in dataclasses.fields(cls):
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = _FACTORY
        elif default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        if field.init:
            keyword = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)
            made.append(keyword.replace(annotation=field.type))
    return inspect.Signature(made)


_FACTORY: Final[Any] = vars(dataclasses)["_HAS_DEFAULT_FACTORY"]
"""Stands for a default that a factory makes; it is printed as ``<factory>``."""


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
    """Return the annotation of a parameter, and the class that wrote it.

    That is the field of its name, unless a hand-written constructor has another annotation.
    """
    written = parameter.annotation
    if parameter.kind is parameter.VAR_POSITIONAL:  # of an item, where the field's is of all
        written = parameter.empty
    for base in cls.__mro__:
        own = inspect.get_annotations(base)
        if parameter.name not in own:
            continue
        declared = _without_initvar(own[parameter.name])
        # A converter without an annotation hides the field's: equinox writes `Any`.
        silent = written is parameter.empty or written is Any
        kind = _resolved(base, parameter.name, declared)
        if silent or _without_initvar(written) in (declared, kind):
            return kind, base
        break
    writer = next((base for base in cls.__mro__ if "__init__" in base.__dict__), cls)
    return _resolved(writer, parameter.name, written), writer


def _resolved(writer: Any, name: str, annotation: Any) -> Any:
    # A class that is defined in a function is not found by its name, but by itself.
    scopes: list[Mapping[str, Any]] = [{writer.__name__: writer}, type_parameters(writer.__init__)]
    return _without_initvar(resolve(writer, name, annotation, scopes))


def _without_initvar(kind: Any) -> Any:
    return kind.type if isinstance(kind, dataclasses.InitVar) else kind


def call(cls: Any, parameters: list[Parameter], arguments: dict[str, Any]) -> Any:
    """Construct an instance; parameters without an argument keep their defaults."""
    named = dict(arguments)
    positional: list[Any] = []
    for parameter in parameters:
        if parameter.name in named and (parameter.spread or not parameter.by_name):
            value = named.pop(parameter.name)
            positional += value if parameter.spread else [value]
    return cls(*positional, **named)


_DEPTH: Final = 2
"""How often classes may hold instances of classes that they are part of."""

_DEEPEST: Final = 15
"""How many annotations may be inside one another: an alias can contain itself with others."""


@dataclasses.dataclass(frozen=True)
class FieldContext:
    """Where a value is wanted: ``Class.field``, and the class whose annotation it is."""

    text: str
    home: Any
    above: tuple[Any, ...] = ()  # the classes whose instances are being built around this value
    errors: list[BaseException] = dataclasses.field(default_factory=list[BaseException])
    static: bool = False
    counts: bool = False  # a whole number is likely to be a size: it is static, or no field
    bindings: Mapping[Any, Any] = dataclasses.field(default_factory=dict[Any, Any])
    steps: tuple[tuple[str, str], ...] = ()  # class and field, from the outermost class
    around: tuple[Any, ...] = ()  # the annotations that this one is a part of

    def __str__(self) -> str:
        """Return ``Class.field``, for a message."""
        return self.text or self.home.__name__

    def part_of(self, kind: Any) -> "FieldContext":
        """Return the context of the parts of an annotation, unless it is one of its own parts."""
        if len(self.around) >= _DEEPEST or any(is_same(each, kind) for each in self.around):
            raise EndlessError(
                f"{self}: every value of its type would hold another one without end\n"
                f"  fix: {self.fix()}"
            )
        return dataclasses.replace(self, around=(*self.around, kind))

    def forbids(self, cls: Any) -> bool:
        """Return whether another instance of a class would go too deep."""
        return cls in self.above and len(self.above) - len(set(self.above)) >= _DEPTH

    def nested(self, override: str) -> str:
        """Return code that puts an override here, from the outermost class."""
        for cls, field in reversed(self.steps):
            override = f"instances({cls}, {field}={override})"
        return override

    def fix(self, name: str = "...") -> str:
        """Return code that fixes a value that cannot be found; the name is that of its type."""
        register = f"\n       hypothesis.strategies.register_type_strategy({name}, ...)"
        if self.steps:
            override = f"give a strategy for it: `{self.nested('...')}`"
            return override if name == "..." else f"{override}, or, next to its type:{register}"
        default = "give the field a default, or, " if self.text else ""
        return f"{default}next to the class:{register}"


def is_same(one: Any, other: Any) -> bool:
    """Return whether two annotations are equal."""
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001  # what ``Annotated`` holds is the user's own
        return False


class EndlessError(CannotBuildError):
    """A class or an alias holds one of itself, which would hold another, and so on."""


def substitute(kind: Any, bindings: Mapping[Any, Any]) -> Any:
    """Return an annotation with type variables replaced by what they stand for."""
    if isinstance(kind, TypeVar):
        return bindings.get(kind, kind)
    parameters = getattr(kind, "__parameters__", ())
    if not bindings or not parameters or isinstance(kind, type):
        return kind
    try:
        return kind[tuple(bindings.get(each, each) for each in parameters)]
    except TypeError:  # a variable of another kind: *Ts, **P
        return kind


def bindings_of(kind: Any) -> dict[Any, Mapping[Any, Any]]:
    """Return what type variables stand for in each class that ``Box[int]`` derives from."""
    found: dict[Any, Mapping[Any, Any]] = {}

    def visit(cls: Any, arguments: tuple[Any, ...]) -> None:
        parameters = getattr(cls, "__parameters__", ())
        fits = len(parameters) == len(arguments)
        bindings = dict(zip(parameters, arguments, strict=True)) if fits else {}
        found.setdefault(cls, bindings)
        for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
            origin = typing.get_origin(base) or base
            if isinstance(origin, type) and origin is not object:
                inner = [substitute(each, bindings) for each in typing.get_args(base)]
                visit(origin, tuple(inner))

    visit(typing.get_origin(kind) or kind, typing.get_args(kind))
    return found
