"""How a field is declared: `field`, `static_field` and the annotation `Static`."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NoReturn,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import jax
from jax.sharding import PartitionSpec

from leafwise._classes.options import CONVERTER, OPTIONS, By, Converter, FieldOptions
from leafwise._objects.text import got, shorten
from leafwise._objects.wrong_arguments import unknown_argument
from leafwise.errors import DefinitionError

T = TypeVar("T")

STATIC_METADATA: Final[Mapping[str, bool]] = {"static": True, "pytree_node": False}
"""The metadata that jax, equinox, flax, penzai and optree read as "this field is static"."""

STATIC_ENTRIES: Final[Mapping[str, bool]] = {
    **STATIC_METADATA,
    "__jax_dataclasses_static_field__": True,  # of `jax_dataclasses.static_field`
}
"""The metadata entries that we read as "this field is static"."""


class StaticMark:
    """`Static` at run time, and the mark it leaves in an annotation; a call raises with a fix."""

    __slots__ = ()

    def __getitem__(self, kind: Any) -> Any:
        return Annotated[kind, self]

    def __call__(self, default: Any) -> NoReturn:
        is_type = isinstance(default, type)
        kind = _code(default if is_type or default is None else type(default))
        value = "" if is_type else f" = {_code(default)}"
        raise DefinitionError(
            f"lw.Static is an annotation, and is not called\n  fix: `x: lw.Static[{kind}]{value}`"
        )

    def __repr__(self) -> str:
        return "leafwise.Static"


Static: TypeAlias = Annotated[T, StaticMark()]
"""``act: Static[str] = "relu"`` declares a static field, as `static_field` does.

In the signature of a function, it makes an argument of `leafwise.jit` static.
"""

if not TYPE_CHECKING:
    Static = StaticMark()

OTHER_MARKS: Final = ("__jax_dataclasses_static_field__", "__static__")
"""The marks that ``jax_dataclasses.Static`` and ``flax.nnx.Static`` leave in an annotation."""


class DeclaredField(dataclasses.Field[Any]):
    """A dataclass field that records its class and name in its `Converter`."""

    __slots__ = ()

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        converter = self.metadata.get(CONVERTER)
        if isinstance(converter, Converter):
            converter.owner = owner.__name__
            converter.definition.name = name


SHARDING: Final = "sharding"
"""The metadata entry with the `PartitionSpec` of a field, or a tree of them."""


class FieldArguments(TypedDict, total=False):
    """The arguments of both besides a default and a converter, for type checkers."""

    init: bool
    repr: bool
    hash: bool | None
    compare: bool
    metadata: Mapping[Any, Any] | None
    kw_only: bool
    validator: Callable[[Any], object] | None


class ChildArguments(FieldArguments, total=False):
    """The arguments of `field` besides a default and a converter, for type checkers."""

    sharding: Any


class StaticFieldArguments(FieldArguments, total=False):
    """The arguments of `static_field` besides a default and a converter, for type checkers."""

    freeze: bool
    compare_by: By


def _refuse_spellings(known: Any, defaults: tuple[Any, ...], arguments: dict[str, Any]) -> None:
    """Raise, with the fix, if a field is declared with the options of another library, or none."""
    fixes = [f"`default={_code(value)}`" for value in defaults]
    for name, static in (("static", True), ("pytree_node", False)):
        if name in arguments:
            function = f"lw.{'static_' * (bool(arguments[name]) is static)}field"
            fixes.append(f"`{function}`, without `{name}=`")
    of_attrs = {"factory": "default_factory", "eq": "compare"}
    fixes += [f"`{ours}=` for `{name}=`" for name, ours in of_attrs.items() if name in arguments]
    if fixes:
        options = ", ".join([*map(_code, defaults), *arguments])
        raise DefinitionError(
            f"leafwise spells these field options differently, got: {options}\n"
            f"  fix: write {' and '.join(fixes)}"
        )
    names = ("default", "default_factory", "converter", *sorted(known.__optional_keys__))
    for name in arguments:
        if name not in names:
            raise unknown_argument(
                "field" if known is ChildArguments else "static_field", name, names
            )


def _code(value: Any) -> str:
    return getattr(value, "__name__", None) or shorten(value)


def _declare(
    options: FieldOptions, metadata: Mapping[Any, Any] | None, arguments: dict[str, Any]
) -> Any:
    for name in ("converter", "validator"):
        value = getattr(options, name)
        if value is not None and not _takes_one(value):
            raise TypeError(
                f"{name}= takes a function of one value, got {value!r}\n"
                f"  fix: wrap what takes more: {name}=lambda value: ..."
            )
    entries = {**({} if metadata is None else metadata), OPTIONS: options}
    made: Any = dataclasses.field(metadata=entries, **arguments)
    static = bool(entries.get("static"))
    if static or options.converter is not None or options.validator is not None:
        entries.setdefault(CONVERTER, Converter(made, options, static=static))
        made.__class__ = DeclaredField  # `dataclasses.field` cannot make a subclass
    return made


def _takes_one(function: Any) -> bool:
    """Return whether a function can be called with one value; a validator of attrs takes three."""
    try:
        inspect.signature(function).bind(None)
    except (ValueError, NameError):  # a builtin; an annotation that comes later
        return callable(function)
    except TypeError:
        return False
    return True


# A default has the field's type, unless a converter turns it into that.
@overload
def field(*, default: T, converter: None = None, **arguments: Unpack[ChildArguments]) -> T: ...
@overload
def field(
    *, default_factory: Callable[[], T], converter: None = None, **arguments: Unpack[ChildArguments]
) -> T: ...
@overload
def field(
    *,
    default: Any = ...,
    default_factory: Callable[[], Any] = ...,
    converter: Callable[[Any], Any],
    **arguments: Unpack[ChildArguments],
) -> Any: ...
@overload
def field(*, converter: None = None, **arguments: Unpack[ChildArguments]) -> Any: ...
def field(
    *_defaults: Any,
    metadata: Mapping[Any, Any] | None = None,
    converter: Callable[[Any], Any] | None = None,
    validator: Callable[[Any], object] | None = None,
    sharding: Any = None,
    **arguments: Any,
) -> Any:
    """Declare a dynamic field: its value is a child of the pytree.

    It takes everything that `dataclasses.field` takes. The converter and the validator run
    once, when an instance is constructed, and never when JAX rebuilds one.

    Args:
        metadata: As in `dataclasses.field`; copied.
        converter: Called with the value; returns the value to store. The default is converted,
            too. pyright takes the constructor's argument type from it; mypy does not.
        validator: Called with the converted value. It rejects the value by raising, by
            returning False, or by returning a string that says why:
            ``validator=lambda n: n > 0 or "must be positive"``. Any other result accepts it,
            except an array with a shape other than ``()``, which is an error. A traced result
            cannot be read and accepts, too: under a transformation, check shapes and dtypes.
        sharding: How `leafwise.shardings` spreads the value over a mesh: a
            `jax.sharding.PartitionSpec` for all its leaves, or a tree of them that is a prefix
            of the value. It is kept in the field's metadata, and nothing else reads it.
        **arguments: ``default``, ``default_factory``, ``init``, ``repr``, ``hash``,
            ``compare`` and ``kw_only``, as in `dataclasses.field`.

    Returns:
        A `dataclasses.Field`, typed as the field's value.

    Raises:
        TypeError: `converter` or `validator` is not callable, `sharding` contains something
            other than a `PartitionSpec`, or an argument is unknown.

    Examples:
        >>> import jax.numpy as jnp
        >>> @pytree
        ... class Params:
        ...     w: jax.Array = field(converter=jnp.asarray)
    """
    _refuse_spellings(ChildArguments, _defaults, arguments)
    if sharding is not None:
        specs: list[Any] = jax.tree.leaves(sharding)
        if not all(isinstance(spec, PartitionSpec) for spec in specs):
            raise TypeError(
                f"field(sharding=...) takes a PartitionSpec, or a tree of them, got {got(sharding)}"
            )
        metadata = {**(metadata or {}), SHARDING: sharding}
    return _declare(FieldOptions(converter, validator), metadata, arguments)


@overload
def static_field(
    *, default: T, converter: None = None, **arguments: Unpack[StaticFieldArguments]
) -> T: ...
@overload
def static_field(
    *,
    default_factory: Callable[[], T],
    converter: None = None,
    **arguments: Unpack[StaticFieldArguments],
) -> T: ...
@overload
def static_field(
    *,
    default: Any = ...,
    default_factory: Callable[[], Any] = ...,
    converter: Callable[[Any], Any],
    **arguments: Unpack[StaticFieldArguments],
) -> Any: ...
@overload
def static_field(*, converter: None = None, **arguments: Unpack[StaticFieldArguments]) -> Any: ...
def static_field(
    *_defaults: Any,
    metadata: Mapping[Any, Any] | None = None,
    converter: Callable[[Any], Any] | None = None,
    validator: Callable[[Any], object] | None = None,
    freeze: bool = False,
    compare_by: By = "identity",
    **arguments: Any,
) -> Any:
    """Declare a static field: its value is aux_data, part of the jit cache key.

    The field's metadata gains ``{"static": True, "pytree_node": False}``, which jax,
    equinox, flax, penzai and optree also read as static.

    Args:
        metadata: As in `dataclasses.field`; copied.
        converter: Called with the value; returns the value to store.
        validator: Called with the converted value; rejects it as in `field`.
        freeze: Whether to turn lists, dicts, sets and arrays into immutable
            equivalents, at any depth, after `converter` (see `leafwise.freeze`).
        compare_by: How functions are compared. By ``"identity"``, a function equals only
            itself. By ``"content"``, two functions are equal if they have the same code,
            defaults, attributes and closures, all the way down, and if the globals they read
            and the classes they reach have the same values: an optimizer or a lambda that is
            recreated for each instance gives the same key. A function that cannot be compared
            is refused, with its path. Each flatten then checks that the functions, and what
            they close over, have not changed; globals and class attributes are checked when an
            instance is built.
        **arguments: As in `dataclasses.field`.

    Returns:
        A `dataclasses.Field`, typed as the field's value.

    Raises:
        TypeError: `converter` or `validator` is not callable, `compare_by` is neither of the
            two, or an argument is unknown.
        DefinitionError: `metadata` says that the field is dynamic.

    Examples:
        >>> @pytree
        ... class Params:
        ...     depth: int = static_field(default=2)
    """
    _refuse_spellings(StaticFieldArguments, _defaults, arguments)
    if compare_by not in get_args(By):
        raise TypeError(
            f"static_field(compare_by={compare_by!r}): functions are compared by 'identity' or "
            "'content'"
        )
    metadata = dict(metadata or {})
    for key, value in STATIC_METADATA.items():
        if bool(metadata.setdefault(key, value)) is not value:
            raise DefinitionError(
                f"static_field(metadata={{{key!r}: {metadata[key]!r}}}) contradicts itself: "
                f"a static field has {key!r}: {value}; use field() for a dynamic one"
            )
    return _declare(FieldOptions(converter, validator, freeze, compare_by), metadata, arguments)
