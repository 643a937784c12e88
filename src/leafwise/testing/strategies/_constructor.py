"""What is known about a class before it has an instance: its constructor and its parameters."""

import copy
import dataclasses
import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeVar

from hypothesis.strategies._internal import types as types_of_hypothesis

from leafwise._classes.annotations import (
    annotations_of,
    resolve,
    signature_of,
    type_parameters,
    without_initvar,
)
from leafwise._objects.classes import per_class
from leafwise._objects.interrupts import or_default
from leafwise._objects.source.code import is_importable
from leafwise.errors import CannotBuildError


def origin_of(kind: Any) -> Any:
    """Return `list` for ``list[int]``, and anything else unchanged."""
    return typing.get_origin(kind) or kind


def issubclass_of(kind: Any, *bases: type) -> bool:
    """Return whether an annotation is a subclass of one of the bases, or an alias of one."""
    return isinstance(origin_of(kind), type) and issubclass(origin_of(kind), bases)


@or_default(None)  # an annotation may be unhashable
def entry_of(table: Mapping[Any, Any], kind: Any) -> Any:
    return table.get(kind)


_KNOWN: Final[dict[Any, Any]] = vars(types_of_hypothesis)["_global_type_lookup"]  # no public API
_FROM_THE_START: Final = dict(_KNOWN)
"""A copy of that table at import: Hypothesis' own strategies, and those that users had added."""
_NUMBERS_AND_TEXTS: Final = {bool, int, float, complex, str, bytes, Decimal, Fraction}
"""Built-in types that users may register: Hypothesis' own strategies take no arguments."""


def is_registered(kind: Any) -> bool:
    return entry_of(_KNOWN, kind) is not None


def is_user_registered(kind: Any) -> bool:
    """Return whether `register_type_strategy` was ever called for a type."""
    strategy = entry_of(_KNOWN, kind)
    if strategy is None:
        return False
    package = str(getattr(kind, "__module__", "")).partition(".")[0]
    if strategy is not _FROM_THE_START.get(kind) or package not in sys.stdlib_module_names:
        return True
    return kind in _NUMBERS_AND_TEXTS and not re.fullmatch(r"\w+\(\)", repr(strategy))


def is_protocol(kind: Any) -> bool:
    origin = origin_of(kind)
    return isinstance(origin, type) and bool(origin.__dict__.get("_is_protocol", False))


def is_abstract(cls: Any) -> bool:
    marks = ("__abstractvars__", "__abstractclassvars__")  # equinox's
    has_mark = any(getattr(cls, mark, ()) for mark in marks)
    return inspect.isabstract(cls) or has_mark or is_protocol(cls)


def subclasses_of(cls: type) -> list[type]:
    """Return the subclasses of a class: those that can be imported, if any, else all."""
    direct: list[type] = type.__subclasses__(cls)
    below = dict.fromkeys(sub for each in direct for sub in (each, *subclasses_of(each)))
    return list(filter(is_importable, below)) or list(below)


def is_made_in_python(kind: Any) -> bool:
    """Return whether a class has a constructor written in Python, or one without parameters."""
    origin: Any = origin_of(kind)
    if not isinstance(origin, type) or is_registered(origin) or issubclass(origin, enum.Enum):
        return False
    if origin.__module__.partition(".")[0] in {"builtins", "typing", "collections"}:
        return False
    makers: list[Any] = [getattr(origin, name) for name in ("__init__", "__new__")]
    written = any(isinstance(each, types.FunctionType) for each in makers)
    return written or makers == [vars(object)["__init__"], object.__new__]


def has_fields(kind: Any) -> bool:
    """Return whether a class declares fields, also if it is a mapping or a sequence."""
    origin = origin_of(kind)
    named = issubclass_of(kind, tuple) and hasattr(origin, "_fields")
    return isinstance(origin, type) and (named or dataclasses.is_dataclass(origin))


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a constructor; `owner` is the class with its annotation."""

    name: str
    kind: Any
    owner: type
    make_default: Callable[[], Any] | None
    by_name: bool

    @property
    @or_default(inspect.Parameter.empty)  # a user's factory: the constructor will raise it
    def default(self) -> Any:
        """The default, newly created if it is a factory; `inspect.Parameter.empty` without one."""
        return inspect.Parameter.empty if self.make_default is None else self.make_default()


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters_of(cls: Any) -> list[Parameter]:
    """Return the parameters of a class's constructor; CannotBuildError if it has no signature."""
    found: list[Parameter] = []
    for parameter in _signature(cls).parameters.values():
        if parameter.kind not in _VARIADIC:
            kind, owner = _kind_of(cls, parameter)
            by_name = parameter.kind is not parameter.POSITIONAL_ONLY
            default = _default_of(cls, parameter)
            found.append(Parameter(parameter.name, kind, owner, default, by_name))
    return found


parameters: Final = per_class(parameters_of)
"""The parameters by class, so that a signature is read once."""


def parameter_for(cls: Any, name: str) -> Parameter | None:
    """Return the parameter with the name of an attribute, also without its underscore."""
    return next((each for each in parameters(cls) if name in (each.name, f"_{each.name}")), None)


def takes_more(cls: Any, kind: Any) -> bool:
    """Return whether a constructor takes ``*args`` or ``**kwargs``, as `kind` says."""
    return any(each.kind is kind for each in _signature(cls).parameters.values())


def _signature(cls: Any) -> inspect.Signature:
    try:
        signature = signature_of(cls)
    except (TypeError, ValueError) as error:
        name = cls.__name__
        raise CannotBuildError(
            f"{name}: its constructor has no signature ({error})\n"
            f"  fix: next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({name}, ...)"
        ) from error
    if {parameter.kind for parameter in signature.parameters.values()} != set(_VARIADIC):
        return signature
    if dataclasses.is_dataclass(cls):  # a decorator's wrapper hides the constructor
        fields = [(field.name, field.type, copy.copy(field)) for field in dataclasses.fields(cls)]
        return signature_of(dataclasses.make_dataclass("Fields", fields))
    if isinstance(cls.__init__, types.FunctionType):
        _, *others = signature_of(cls.__init__).parameters.values()
        return inspect.Signature(others)  # a `__new__` that takes anything hides it
    return signature


def _default_of(cls: Any, parameter: inspect.Parameter) -> Callable[[], Any] | None:
    if parameter.default is parameter.empty:
        return None
    definition = getattr(cls, "__dataclass_fields__", {}).get(parameter.name)
    factory = getattr(definition, "default_factory", dataclasses.MISSING)
    if factory is not dataclasses.MISSING and repr(parameter.default) == "<factory>":
        return typing.cast("Callable[[], Any]", factory)  # the signature has a sentinel
    return lambda: parameter.default


def _kind_of(cls: Any, parameter: inspect.Parameter) -> tuple[Any, type]:
    """Return the annotation of a parameter, or of its field, and the class that has it."""
    written = parameter.annotation
    for base in cls.__mro__:
        own = annotations_of(base)
        if parameter.name not in own:
            continue
        declared = without_initvar(own[parameter.name])
        # A converter without an annotation hides the field's: equinox writes `Any`.
        silent = written is parameter.empty or written is Any
        kind = _resolved(base, parameter.name, declared)
        if silent or without_initvar(written) in (declared, kind):
            return kind, base
        break
    writer = next((base for base in cls.__mro__ if "__init__" in base.__dict__), cls)
    return _resolved(writer, parameter.name, written), writer


def _resolved(writer: Any, name: str, annotation: Any) -> Any:
    scopes: list[Mapping[str, Any]] = [type_parameters(writer.__init__)]
    return without_initvar(resolve(writer, name, annotation, scopes))


def call(cls: Any, arguments: dict[str, Any]) -> Any:
    """Construct an instance; parameters without an argument keep their defaults."""
    named = dict(arguments)
    first = [each.name for each in parameters(cls) if not each.by_name and each.name in named]
    return cls(*[named.pop(name) for name in first], **named)


_DEPTH: Final = 3
"""How deeply annotations may nest: classes and aliases can be recursive."""


@dataclasses.dataclass(frozen=True)
class FieldContext:
    """Where a value is needed, and the class that has the annotation."""

    home: Any
    steps: tuple[tuple[Any, str], ...] = ()  # class and field, from the outermost class
    static: bool = False
    counts: bool = False  # an integer is likely to be a size: it is static, or not a field
    bindings: Mapping[Any, Any] = dataclasses.field(default_factory=dict[Any, Any])
    around: tuple[Any, ...] = ()  # the annotations that contain this one
    repeats: int = 0

    def __str__(self) -> str:
        """Return ``Class.field``, for a message."""
        outermost = self.steps[0][0] if self.steps else self.home
        return ".".join([outermost.__name__, *(field for _, field in self.steps)])

    def part_of(self, kind: Any) -> "FieldContext":
        """Return the context of the parts of an annotation."""
        repeats = self.repeats + (kind in self.around)
        if repeats > _DEPTH:
            raise EndlessError(
                f"{self}: every value of its type would contain itself without end\n"
                f"  fix: {self.fix()}"
            )
        return dataclasses.replace(self, around=(*self.around, kind), repeats=repeats)

    def fix(self, override: str = "...", name: str = "") -> str:
        """Return code that gives a strategy, as an override in the outermost class or by type."""
        fixes: list[str] = []
        for cls, field in reversed(self.steps):
            override = f"instances({cls.__name__}, {field}={override})"
        if override != "...":
            fixes.append(f"give a strategy for it: `{override}`")
        if name:
            fixes.append(
                f"next to the class:\n"
                f"       hypothesis.strategies.register_type_strategy({name}, ...)"
            )
        return ", or, ".join(fixes) or "give the field a default"


class EndlessError(CannotBuildError):
    """A class or an alias contains itself, so that no finite value exists."""


def substitute(kind: Any, bindings: Mapping[Any, Any]) -> Any:
    """Return an annotation with its type variables replaced by their bindings."""
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
    """Return the bindings of type variables, for each base class of ``Box[int]``."""
    found: dict[Any, Mapping[Any, Any]] = {}

    def visit(cls: Any, arguments: tuple[Any, ...]) -> None:
        parameters = getattr(cls, "__parameters__", ())
        fits = len(parameters) == len(arguments)
        bindings = dict(zip(parameters, arguments, strict=True)) if fits else {}
        found.setdefault(cls, bindings)
        for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
            origin = origin_of(base)
            if isinstance(origin, type) and origin is not object:
                inner = [substitute(each, bindings) for each in typing.get_args(base)]
                visit(origin, tuple(inner))

    visit(origin_of(kind), typing.get_args(kind))
    return found
