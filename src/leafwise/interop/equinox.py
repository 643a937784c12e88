"""Equinox modules whose static fields are compared by a sound jit cache key."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, dataclass_transform, get_origin

import jax

from leafwise._classes import annotations
from leafwise._classes.fields import STATIC_ENTRIES, STATIC_METADATA, field, static_field
from leafwise._classes.foreign import LazyOwner, key_in, seal
from leafwise._classes.options import CONVERTER, OPTIONS, Converter, FieldOptions
from leafwise._classes.registry import follow_checking
from leafwise._classes.spec import ambiguous_override, contradictions, is_static_metadata
from leafwise._objects.attributes import instance_with
from leafwise._objects.classes import notify_registered, per_class
from leafwise._statics.key import KEY, StaticKey, table_of, verify, verify_content
from leafwise.errors import DefinitionError
from leafwise.interop._extra import import_extra

if TYPE_CHECKING:
    import equinox as eqx
else:
    eqx = import_extra("equinox", "equinox")

__all__ = ["Module"]

# What is patched, and why in this order. `__init_subclass__` runs before equinox reads the fields
# of a class, so that it finds each static field declared as one of its own. After a constructor,
# equinox converts the fields and then runs each `__check_init__` of the mro, the class's own
# first: that one makes the key, as the fields are converted by then, and as the class's own check
# may flatten the instance. Flattening reads `__dict__`, so `__getattribute__` is patched, twice: on
# `Module`, only inside `leafwise.debug.check_statics`; and permanently on each class with a field
# compared by content, ahead of the class's own, which might not call that of `Module`.
_CHECK_INIT: Final = "__check_init__"
_GET: Final = "__getattribute__"


# mypy takes the specifiers of fields from the base class, pyright from its metaclass.
if TYPE_CHECKING:
    import abc

    @dataclass_transform(field_specifiers=(field, static_field, eqx.field, dataclasses.field))
    class _ModuleMeta(abc.ABCMeta): ...

else:
    _ModuleMeta = type(eqx.Module)


@dataclass_transform(field_specifiers=(field, static_field, eqx.field, dataclasses.field))
class Module(eqx.Module, metaclass=_ModuleMeta):  # pyright: ignore[reportGeneralTypeIssues]
    """An `equinox.Module` whose static fields are compared by one key, as in `leafwise.pytree`.

    All of equinox works as before: constructors, ``__check_init__``, converters, abstract classes,
    methods as pytrees, filtered transformations, `equinox.tree_at`. Fields are static
    if `equinox.field(static=True)`, `leafwise.static_field`, `leafwise.Static` or another
    library's metadata says so. What is new:

    - Two instances share a compiled program if and only if their statics have the same type and
      value all the way down. ``1``, ``True`` and ``1.0`` give three programs, and NaN gives one.
    - A static that cannot be part of a key (a list, an array, a tracer) is refused at
      construction, with the names of class and field.
    - If equal statics could still be distinguished, every instance gets the first.
    - `leafwise.debug.check_statics` finds statics that change in place.
    - Treedefs can be pickled, and a `functools.cached_property` does not change them.

    The key is one more static field, so `dataclasses.fields` shows it. It is made after the
    constructor, before the first ``__check_init__``.

    Raises:
        DefinitionError: (when a subclass is defined) Contradictory or ambiguous declarations.
        StaticFieldError: (when an instance is created) A static value cannot be part of a key.

    Examples:
        >>> import leafwise as lw
        >>> class Scale(Module):
        ...     factor: jax.Array
        ...     power: int = lw.static_field(default=1)
        >>> Scale(jax.numpy.ones(3), power=2)
        Scale(factor=f32[3], power=2)
    """

    # First of all fields: keys are compared before the statics that they stand for.
    __leafwise_key__: StaticKey | None = eqx.field(
        static=True, init=False, repr=False, default=None
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Complete the declarations of the fields before equinox reads them."""
        super().__init_subclass__(**kwargs)
        for name, annotation in annotations.annotations_of(cls).items():
            _declare(cls, name, annotation)
        _seal_before_checks(cls)
        _check_content_when_flattened(cls)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore an instance that was pickled or copied, with a key of this process."""
        object.__getattribute__(self, "__dict__").update(state)
        _seal(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return an instance with copied children and the same statics."""
        cls = type(self)
        shared = {*table_of(cls).owner.static_names, *_class_attributes(cls), KEY}
        copied = object.__new__(cls)
        memo[id(self)] = copied  # first: a child may lead back here
        for name, value in object.__getattribute__(self, "__dict__").items():
            new = value if name in shared else copy.deepcopy(value, memo)
            object.__setattr__(copied, name, new)
        return copied


def _declare(cls: type, name: str, annotation: Any) -> None:
    """Validate a field, and declare it static to equinox, however the user declared it so."""
    written = annotation
    if isinstance(annotation, str):
        annotation = annotations.resolve(cls, name, annotation, annotations.scopes_of(cls))
    if get_origin(annotation) in (ClassVar, eqx.AbstractVar, eqx.AbstractClassVar):
        return
    given = cls.__dict__.get(name, dataclasses.MISSING)
    metadata: Mapping[Any, Any] = given.metadata if isinstance(given, dataclasses.Field) else {}
    where = f"{cls.__name__}.{name}"
    problems = contradictions(where, metadata, annotation, written)
    static = not problems and (annotations.has_mark(annotation) or is_static_metadata(metadata))
    if not problems and not static and not {*STATIC_ENTRIES, OPTIONS} & metadata.keys():
        problems = ambiguous_override(where, cls, name)
    if problems:
        raise DefinitionError("\n".join(problems))
    if static:
        _make_static(cls, name, given)


def _make_static(cls: type, name: str, given: object) -> None:
    """Declare a field as `static_field` would, keeping the options of another library's field."""
    missing = given is dataclasses.MISSING
    declared: Any = given
    if not isinstance(given, dataclasses.Field):
        declared = static_field() if missing else static_field(default=given)
    metadata = declared.metadata
    options = metadata.get(OPTIONS, FieldOptions(converter=metadata.get(CONVERTER)))
    converter = Converter(declared, options, static=True)
    converter.owner, converter.keyed = cls.__name__, True
    declared.metadata = MappingProxyType({**metadata, **STATIC_METADATA, CONVERTER: converter})
    setattr(cls, name, declared)


def _seal_before_checks(cls: Any) -> None:
    """Make the key at the start of the first ``__check_init__`` that runs."""
    written: Callable[[Any], None] | None = cls.__dict__.get(_CHECK_INIT)

    def __check_init__(self: Any) -> None:  # noqa: N807  # equinox's name
        if type(self) is cls:
            _seal(self)
        if written is not None:
            written(self)

    setattr(cls, _CHECK_INIT, __check_init__)
    table_of(cls).set_owner(LazyOwner(cls, _static_fields))


def _static_fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the static fields whose values are kept on instances, except the key's own."""
    members = [inspect.getattr_static(cls, each.name, None) for each in dataclasses.fields(cls)]
    pairs = zip(dataclasses.fields(cls), members, strict=True)
    kept = [field for field, member in pairs if not hasattr(type(member), "__set__")]
    static = [field for field in kept if field.metadata.get("static", False)]
    _check_flattened(cls, [field.name for field in kept if field not in static])
    notify_registered(cls)  # not in `__init_subclass__`, which runs before it is a pytree
    return tuple(field for field in static if field.name != KEY)


def _check_flattened(cls: Any, dynamic: list[str]) -> None:
    """Refuse a class that was pickled by value: it got its fields after equinox had read them."""
    probe = instance_with(cls, {name: object() for name in dynamic})
    if len(jax.tree_util.tree_leaves(probe)) < len(dynamic):
        raise DefinitionError(
            f"{cls.__name__}: equinox does not see its fields ({', '.join(dynamic)}). It looks "
            f"for them when a class statement runs, so a class cannot be pickled by value, as "
            f"cloudpickle does with a class of __main__ or of a function\n"
            f"  fix: define {cls.__name__} in a module that both processes import"
        )


def _seal(self: Any) -> None:
    # With all of these on the instance, its aux_data has no sentinel, which would not survive
    # pickling, and nothing that a cached_property changes. JAX prints them.
    state: dict[str, Any] = object.__getattribute__(self, "__dict__")
    for name, value in _class_attributes(type(self)).items():
        state.setdefault(name, value)
    seal(self)


@per_class
def _class_attributes(cls: Any) -> dict[str, Any]:
    """Return what equinox puts into the aux_data of each instance that has it."""
    of_class = {name: getattr(cls, name) for name in ("__module__", "__name__", "__qualname__")}
    return {**of_class, "__doc__": None, "__annotations__": None}


def _set_checked(*, checked: bool) -> None:
    """Check the statics of modules whenever equinox reads a ``__dict__``, as it does to flatten."""
    if checked:
        _check_when_flattened(Module, verify)
    elif _GET in Module.__dict__:
        delattr(Module, _GET)


def _check_when_flattened(cls: Any, check: Callable[[StaticKey], None]) -> None:
    written: Callable[[Any, str], Any] | None = cls.__dict__.get(_GET)

    def __getattribute__(self: Any, name: str) -> Any:  # noqa: N807  # Python's name
        if name == "__dict__" and (key := key_in(self)) is not None:
            check(key)
        if written is not None:
            return written(self, name)
        return super(cls, self).__getattribute__(name)

    setattr(cls, _GET, __getattribute__)


def _check_content_when_flattened(cls: Any) -> None:
    """Refuse a changed function compared by content, whenever equinox flattens an instance."""
    # The class is not finished: its own fields are still plain attributes.
    inherited = [vars(base).get("__dataclass_fields__", {}) for base in cls.__mro__[1:]]
    values = [value for namespace in (*inherited, vars(cls)) for value in namespace.values()]
    fields = [value for value in values if isinstance(value, dataclasses.Field)]
    options = [field.metadata.get(OPTIONS, FieldOptions()) for field in fields]
    if any(option.compare_by == "content" for option in options):
        _check_when_flattened(cls, verify_content)


_seal_before_checks(Module)
follow_checking(Module, _set_checked)
