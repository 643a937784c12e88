"""The decorator `pytree`, and `register` for classes that you do not own."""

import abc
import builtins
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar, dataclass_transform, overload

from leafwise._classes import construct, instance
from leafwise._classes.annotations import annotations_of, caller_scopes
from leafwise._classes.codegen import RESERVED, make_properties, read_by_name
from leafwise._classes.construct import PENDING, WRITTEN, Unset, guard_subclasses
from leafwise._classes.fields import field, static_field
from leafwise._classes.refusals import check_bases, check_class, check_defaults
from leafwise._classes.registry import install, mark_redefined, register_class, spec_of
from leafwise._classes.spec import MARK, ClassSpec, is_decorated, resolve_fields
from leafwise._objects.methods import bind_methods
from leafwise._objects.source.code import contents
from leafwise._objects.wrong_arguments import unknown_argument
from leafwise._statics.key import KEY
from leafwise.errors import DefinitionError, LeafwiseError

C = TypeVar("C", bound=type)


class PytreeOptions(NamedTuple):
    """The arguments of `pytree`."""

    kw_only: bool = False
    slots: bool = False
    order: bool = False
    repr: bool = True
    eq: bool = True
    init: bool = True
    many_statics: bool = False
    replace: bool = False


# Instances are frozen, but `frozen_default` is not set: type checkers would then also reject
# `self.x = ...` in `__init__` and `__post_init__`. Writing `frozen=True` turns that check on.
# Without `eq_default=False`, pyright would treat instances of a class that is not frozen as
# unhashable.
@overload
@dataclass_transform(eq_default=False, field_specifiers=(field, static_field, dataclasses.field))
def pytree(cls: C, /) -> C: ...
@overload
@dataclass_transform(eq_default=False, field_specifiers=(field, static_field, dataclasses.field))
def pytree(
    *,
    kw_only: bool = ...,
    slots: bool = ...,
    order: bool = ...,
    repr: bool = ...,
    eq: bool = ...,
    init: bool = ...,
    frozen: Literal[True] = ...,
    many_statics: bool = ...,
    replace: bool = ...,
) -> Callable[[C], C]: ...
@dataclass_transform(eq_default=False, field_specifiers=(field, static_field, dataclasses.field))
def pytree(
    cls: C | None = None,
    /,
    *,
    kw_only: bool = False,
    slots: bool = False,
    order: bool = False,
    repr: bool = True,
    eq: bool = True,
    init: bool = True,
    frozen: bool = True,
    many_statics: bool = False,
    replace: bool = False,
    **_unknown: Any,
) -> C | Callable[[C], C]:
    """Make a class a frozen dataclass and a JAX pytree with a sound jit cache key.

    Dynamic fields are children, in field order, with `jax.tree_util.GetAttrKey` paths.
    Static fields (`static_field`, `Static`, or any library's metadata for it) form one key:
    two instances share a compiled program if and only if they have the same
    class and, field by field, statics of the same type and value all the way down.
    Statics are validated when an instance is constructed. When JAX rebuilds an instance,
    ``__init__``, ``__post_init__``, converters and validators do not run.

    Args:
        cls: The class, when used without parentheses.
        kw_only: Whether all fields are keyword-only, as in `dataclasses.dataclass`.
        slots: Whether to return a class with ``__slots__`` (a new class, as in `dataclasses`).
        order: Whether to add ``<``, ``<=``, ``>`` and ``>=``, which compare tuples of the
            fields. mypy requires ``eq=True`` with it.
        repr: Whether to add a ``__repr__`` that summarises arrays.
        eq: Whether to add ``==`` that returns one bool, and a hash that agrees with it.
        init: Whether to add ``__init__``, unless the class has one.
        frozen: Always True. If written out, type checkers reject assignments to fields,
            including those in ``__init__`` and ``__post_init__``.
        many_statics: Whether to keep calls fast when one jitted function is called with hundreds
            of static values of this class (JAX searches its programs one by one). Instances
            then have one more child, a node without leaves: `jax.tree.leaves` and paths do
            not show it, ``is_leaf=lambda x: x is not tree`` and ``treedef.children()`` do.
            Subclasses do not inherit it.
        replace: Whether to add a method ``replace(**changes)``, unless the class has one, that
            does what `leafwise.replace` does. Subclasses inherit it. Type checkers do not see
            it; they do see that of `leafwise.interop.flax.struct.PyTreeNode`.

    Returns:
        The class (with ``slots=True`` a copy of it), registered with JAX.

    Raises:
        DefinitionError: The class cannot be a pytree dataclass as it is written, or
            ``frozen=False`` was passed.

    Examples:
        >>> @pytree
        ... class Params:
        ...     w: jax.Array
        ...     act: str = static_field(default="relu")
        >>> Params(jax.numpy.zeros(3))
        Params(w=f32[3], act='relu')
    """
    __tracebackhide__ = True
    for name in _unknown:
        raise unknown_argument("pytree", name, ("frozen", *PytreeOptions._fields))
    check_frozen(frozen=frozen)
    options = PytreeOptions(kw_only, slots, order, repr, eq, init, many_statics, replace)
    if cls is not None:
        try:
            return typing.cast("C", decorate(cls, options, caller_scopes(2)))
        except LeafwiseError as error:
            raise error.without_own_frames()  # noqa: B904  # the same error
    # Only now: otherwise a decorator that is kept would keep its caller's locals alive.
    return lambda decorated: decorate(decorated, options, caller_scopes(2))


def check_frozen(*, frozen: bool) -> None:
    if not frozen:
        raise DefinitionError(
            "pytree(frozen=False): there is no mutable pytree class. JAX keeps compiled "
            "programs and rebuilds instances as it likes, so a field changed in place "
            "would be lost, or a stale program would run\n"
            "  fix: leave frozen= out and make changed copies: lw.replace(obj, x=...)"
        )


def decorate(cls: Any, options: PytreeOptions, scopes: list[Mapping[str, Any]]) -> Any:
    """Make a class a pytree class; `scopes` are the local names that its body can see."""
    if inspect.isclass(cls) and is_decorated(cls):
        return cls
    check_class(cls)
    check_bases(cls)
    own = dict(cls.__dict__)
    if "__init__" in own:
        own["__init__"] = getattr(own["__init__"], WRITTEN, own["__init__"])
        if own["__init__"] is None:
            del own["__init__"]
    if not (cls.__doc__ or "").strip():
        # Without a docstring dataclasses would write one, which is slow.
        cls.__doc__ = f"{cls.__name__}, a pytree dataclass."
    _make_dataclass(cls, options, own)
    fields = resolve_fields(cls, scopes)
    own_names = RESERVED, "__leafwise"
    reserved = next((f.name for f in fields if f.name.startswith(own_names)), None)
    if reserved is not None:
        raise DefinitionError(
            f"{cls.__name__}.{reserved}: names starting with {RESERVED!r} are leafwise's own"
        )
    if options.slots and "__slots__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    result: Any = cls
    if options.slots or not cls.__dictoffset__:  # the key needs a slot or a `__dict__`
        result = _with_slots(cls, [f.name for f in fields if options.slots and not f.static])
    _attach_methods(result, options, own)
    spec = ClassSpec(
        result,
        fields,
        has_own_init="__init__" in own or not options.init,
        many_statics=options.many_statics,
    )
    _attach_statics(result, spec)
    instance.attach_init(result, spec, scopes, own.get("__init__"), init=options.init)
    bind_methods(result, frozenset(result.__dataclass_fields__), is_decorated)
    abc.update_abstractmethods(result)
    guard_subclasses(result)
    # A new tuple for each class: cloudpickle drops attributes identical to those of a base.
    setattr(result, MARK, (result.__qualname__, options.many_statics))
    mark_redefined(result)
    install(spec)  # last, so that JAX never holds a class that could not be finished
    return result


def _with_slots(cls: type, fields: list[str]) -> Any:
    """Return a copy of a class with its fields in slots, as `dataclasses` does."""
    # Unlike in `dataclasses`, zero-argument `super()` and `__class__` keep working in methods.
    # `__init_subclass__` runs a second time, without the class's keywords.
    bases = cls.__mro__[1:]
    nearest = {name: value for base in reversed(bases) for name, value in vars(base).items()}
    inherited = {
        name
        for base in bases
        for name in _slots_of(base)
        if isinstance(nearest.get(name), types.MemberDescriptorType | None)  # else it is hidden
    }
    declared = _slots_of(cls)
    if any(base.__weakrefoffset__ for base in bases):
        inherited.add("__weakref__")
    wanted = dict.fromkeys((*declared, *fields, KEY, PENDING, "__weakref__"))
    namespace = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in fields and name not in declared and name not in ("__dict__", "__weakref__")
    }
    namespace["__slots__"] = tuple(name for name in wanted if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    for value in namespace.values():
        _point_to(value, cls, made)
    return made


def _slots_of(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _point_to(value: Any, old: type, new: type) -> None:
    """Make the ``__class__`` cell of a method refer to the new class."""
    is_property = isinstance(value, property)
    for function in [value.fget, value.fset, value.fdel] if is_property else [value]:
        function = getattr(function, "__func__", function)  # noqa: PLW2901  # class, static
        function = getattr(function, "func", function)  # noqa: PLW2901  # cached_property
        while isinstance(function, types.FunctionType):
            for cell in function.__closure__ or ():
                if contents(cell) is old:
                    cell.cell_contents = new
            function = getattr(function, "__wrapped__", None)  # noqa: PLW2901  # decorated


def _refuse_bare_fields(cls: type, own: Mapping[str, Any]) -> None:
    """Raise, with the fix, if a field is declared without an annotation."""
    for name, value in own.items():
        if isinstance(value, dataclasses.Field) and name not in annotations_of(cls):
            field: dataclasses.Field[Any] = value
            kind = type(field.default).__name__
            kind = kind if kind in vars(builtins) else "Any"
            raise DefinitionError(
                f"{cls.__name__}.{name}: a field needs an annotation\n"
                f"  fix: write its type after the name: `{name}: {kind}`"
            )


def _make_dataclass(cls: Any, options: PytreeOptions, own: Mapping[str, Any]) -> None:
    """Run `dataclasses.dataclass`, just for the fields and the ordering methods."""
    _refuse_bare_fields(cls, own)
    for name in annotations_of(cls):
        inherited = _static_of_base(cls, name)
        if name not in own and inherited is not None:
            # Otherwise dataclasses would use the base's static property as the default.
            missing = inherited.default is dataclasses.MISSING
            setattr(cls, name, dataclasses.field() if missing else inherited.default)
    if options.eq and "__eq__" not in own:
        cls.__eq__ = instance.equal
    if options.eq and own.get("__hash__") is None:
        cls.__hash__ = instance.hash_instance
    for name in ("__setattr__", "__delattr__"):
        if name in own:
            raise DefinitionError(
                f"{cls.__name__}.{name}: a pytree class is frozen, so it cannot define {name}\n"
                f"  fix: remove {name}"
            )
    # With frozen=True, dataclasses compiles a __setattr__ that ours replaces, which takes
    # time, but it requires frozen=True where a base is frozen.
    below = any("__dataclass_params__" in base.__dict__ for base in cls.__mro__[1:])
    try:
        dataclasses.dataclass(
            init=False,
            repr=False,
            eq=options.order and options.eq,
            order=options.order,
            frozen=below,
            kw_only=options.kw_only,
        )(cls)
    except (TypeError, ValueError) as error:
        check_defaults(cls, own)
        error.add_note(f"while making {cls.__name__} a pytree class")
        raise
    params = cls.__dataclass_params__
    # Python 3.11 does not record `slots`.
    for name in {"init", "repr", "eq", "slots"} & {*params.__slots__}:
        setattr(params, name, getattr(options, name))
    params.frozen = True


_PICKLING: Final = ("__reduce_ex__", "__getstate__", "__getnewargs__")


def _attach_methods(cls: Any, options: PytreeOptions, own: Mapping[str, Any]) -> None:
    """Add the methods that the class does not have, as `dataclasses.dataclass` would."""
    cls.__setattr__ = construct.set_attribute
    cls.__delattr__ = construct.delete_attribute
    if options.repr and "__repr__" not in own:
        cls.__repr__ = instance.represent
        instance.attach_display(cls)
    if options.replace and "replace" not in own:
        cls.replace = instance.replace
    if getattr(cls, "__copy__", None) is None:
        cls.__copy__ = instance.copy_instance
    if getattr(cls, "__deepcopy__", None) is None:
        cls.__deepcopy__ = instance.deepcopy_instance
    pickles = any(name in base.__dict__ for base in cls.__mro__[:-1] for name in _PICKLING)
    if not pickles and cls.__reduce__ in (None, object.__reduce__):
        cls.__reduce__ = instance.reduce_instance


def _attach_statics(cls: Any, spec: ClassSpec) -> None:
    """Make static fields properties that read the key, even if a base made them dynamic."""
    for name, static in make_properties(spec).items():
        setattr(cls, name, static)
    for base in filter(is_decorated, cls.__mro__[1:]):
        for index, name in enumerate(spec_of(base).static_names):
            if spec.static_names[index : index + 1] != (name,):
                read_by_name(base.__dict__[name], name)
    for name in spec.dynamic_names:
        if name not in cls.__dict__ and _static_of_base(cls, name) is not None:
            setattr(cls, name, Unset(name))


def _static_of_base(cls: type, name: str) -> "dataclasses.Field[Any] | None":
    """Return the base's field if `cls` inherits `name` as its static property, or None."""
    for base in cls.__mro__[1:]:
        if name in base.__dict__:
            found = base.__dict__.get("__dataclass_fields__", {}).get(name)
            return found if isinstance(base.__dict__[name], property) else None
    return None


def register(cls: C, /, *, dynamic: Sequence[str], static: Sequence[str] = ()) -> C:
    """Register a class that you do not own as a pytree with a sound key.

    The class itself does not change, so its statics are validated whenever an instance is
    flattened. Unflattening does not run ``__init__``.

    Args:
        cls: Any class whose instances keep their state in attributes.
        dynamic: The attributes that are children, in the order of the leaves.
        static: The attributes that are aux_data.

    Returns:
        `cls`.

    Raises:
        DefinitionError: The class is registered already, a name is given twice, its
            instances keep their state elsewhere, or (where the class declares its fields)
            names are missing or unknown.
        StaticFieldError: (when flattening) A static value cannot be part of a key.

    Examples:
        >>> class Point:
        ...     def __init__(self, x, unit):
        ...         self.x, self.unit = x, unit
        >>> register(Point, dynamic=["x"], static=["unit"]) is Point
        True
    """
    for argument, names in (("dynamic", dynamic), ("static", static)):
        if isinstance(names, str):
            raise DefinitionError(
                f"register({argument}={names!r}): name attributes in a list: [{names!r}]"
            )
    register_class(cls, tuple(dynamic), tuple(static))
    return cls
