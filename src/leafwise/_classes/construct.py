"""Constructing an instance: assigning its fields, then validating and storing its key."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final, cast

from leafwise._classes.refusals import has_maker
from leafwise._classes.spec import ClassSpec, is_decorated
from leafwise._objects.attributes import items_in
from leafwise._objects.classes import is_tree_node
from leafwise._objects.methods import BoundMethod
from leafwise._statics.key import KEY, StaticKey, key_of, table_of
from leafwise.errors import DefinitionError, FrozenInstanceError, TreeError

PENDING: Final = "__leafwise_pending__"
"""The attribute that holds statics assigned during construction, by name."""


def set_attribute(self: Any, name: str, value: object) -> None:
    """Assign a field while the instance is being constructed; raise otherwise."""
    if (error := _refusal(self, name, f"lw.replace(obj, {name}=...)")) is not None:
        __tracebackhide__ = True
        raise error
    object.__setattr__(self, name, value)


def delete_attribute(self: Any, name: str) -> None:
    """Delete an attribute while the instance is being constructed; raise otherwise."""
    if (error := _refusal(self, name, "a new instance without it")) is not None:
        __tracebackhide__ = True
        raise error
    object.__delattr__(self, name)


def _refusal(self: Any, name: str, instead: str) -> FrozenInstanceError | None:
    """Return the error for assigning or deleting an attribute, or None if that is allowed."""
    cls = type(self)
    check_decorated(cls)
    is_field = name in cls.__dict__["__dataclass_fields__"]
    if is_constructed(self) and not is_field:
        return FrozenInstanceError(
            f"{cls.__name__}.{name}: a pytree class is frozen, and has no such field: "
            f"it has {_names(cls)}"
        )
    if is_constructed(self):
        return FrozenInstanceError(
            f"{cls.__name__}.{name}: a pytree class is frozen once constructed, since JAX "
            f"keeps programs for what it was\n  fix: make another instance: {instead}"
        )
    # Attributes with a setter may be assigned, except the key.
    if not is_field and (name == KEY or not hasattr(type(getattr(cls, name, None)), "__set__")):
        # A generated constructor would take it; `__post_init__` assigns it.
        is_generated = cls.__init__.__code__.co_filename.startswith("<leafwise")
        option = " = lw.field(init=False)" * is_generated
        return FrozenInstanceError(
            f"{cls.__name__}.{name} is not a field, so JAX would lose it: {cls.__name__} "
            f"has {_names(cls)}\n  fix: declare it: `{name}: Any{option}` in the class body "
            f"(`= lw.static_field(init=False)` if it is static)"
        )
    return None


def _names(cls: type) -> str:
    names = [field.name for field in dataclasses.fields(cast("Any", cls))]
    return ", ".join(names) or "no fields"


def is_constructed(self: object) -> bool:
    return _has(self, KEY)


def _has(self: object, name: str) -> bool:
    try:
        object.__getattribute__(self, name)
    except AttributeError:
        return False
    return True


class Unset:
    """A class attribute that hides a static property of a base and means "not set"."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, _owner: object = None) -> "Unset":
        # Once the field is set, Python finds it on the instance first.
        if instance is None:
            return self
        raise _no_attribute(instance, self.name)


def _no_attribute(self: object, name: str) -> AttributeError:
    text = f"{type(self).__name__!r} object has no attribute {name!r}"
    return AttributeError(text, name=name, obj=self)


def read_pending(self: object, name: str) -> Any:
    """Return a static that the constructor has already assigned, or its default."""
    if _has(self, PENDING):
        pending = object.__getattribute__(self, PENDING)
        if name in pending:
            return pending[name]
    default = type(self).__dict__["__dataclass_fields__"][name].default
    if default is not dataclasses.MISSING:  # as in a dataclass, where it is a class attribute
        return default
    raise _no_attribute(self, name)


def write_static(name: str, self: Any, value: object) -> None:
    """Assign a static during construction, or, through ``object.__setattr__``, with a new key."""
    if is_constructed(self):
        key: StaticKey = getattr(self, KEY)
        names = key.owner.static_names
        values = [value if each == name else getattr(self, each) for each in names]
        object.__setattr__(self, KEY, key_of(table_of(type(self)), tuple(values)))
        return
    if not _has(self, PENDING):
        object.__setattr__(self, PENDING, {})
    object.__getattribute__(self, PENDING)[name] = value


def check_decorated(cls: type) -> None:
    """Raise if `cls` is an undecorated subclass of a pytree class."""
    if not is_decorated(cls):
        base = next(base for base in cls.__mro__ if is_decorated(base))
        raise DefinitionError(
            f"{cls.__name__} is a subclass of the pytree class {base.__name__}, but is not "
            f"decorated itself: JAX would see its instances as opaque leaves\n"
            f"  fix: @lw.pytree\n       class {cls.__name__}({base.__name__}): ..."
        )


WRITTEN: Final = "__leafwise_written__"
"""The attribute of a guarded constructor that holds the class's own one, or None without one."""


def guard_subclasses(cls: Any) -> None:
    """Check that subclasses are decorated even if they write their own constructor."""
    written = cls.__dict__.get("__init_subclass__")
    if written is None and any(is_decorated(base) for base in cls.__mro__[1:]):
        return  # inherited

    def __init_subclass__(subclass: type, /, **kwargs: Any) -> None:  # noqa: N807  # Python's own name
        if written is None:
            super(cls, subclass).__init_subclass__(**kwargs)
        else:
            written.__get__(None, subclass)(**kwargs)
        _guard(subclass)

    cls.__init_subclass__ = classmethod(__init_subclass__)


def _guard(subclass: Any) -> None:
    owner = next(base for base in subclass.__mro__ if "__init__" in base.__dict__)
    written = owner.__dict__["__init__"]
    if is_decorated(owner) or hasattr(written, WRITTEN):
        return
    if owner is not subclass and has_maker(subclass):
        return  # another library will make it a dataclass, and would keep our wrapper

    @functools.wraps(written)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # Python's own name
        if not is_tree_node(type(self)):  # a base from another library may have registered it
            check_decorated(type(self))
        written(self, *args, **kwargs)

    setattr(__init__, WRITTEN, written if owner is subclass else None)
    subclass.__init__ = __init__


def finish(spec: ClassSpec, self: Any) -> None:
    """Finish a construction: check and prepare the fields, validate statics, store the key."""
    check_all_set(spec, self)
    for field in spec.fields:
        has_value = field.definition.init or field.has_default
        if field.options.prepares and (spec.has_own_init or not has_value):
            object.__setattr__(self, field.name, field.prepare(getattr(self, field.name)))
    for name in spec.dynamic_names:
        _refuse_way_back(spec.cls, name, getattr(self, name), self)
    store_key(spec, self)


def _refuse_way_back(cls: type, name: str, value: Any, self: Any) -> None:
    """Raise if a child is, or contains, the instance itself or one of its bound methods."""
    for part in items_in(value):
        is_method = type(part) is BoundMethod and part.__self__ is self
        if part is not self and not is_method:
            continue
        what, fix = "the instance itself", f"leave {name} out: a method has it as self"
        if is_method:
            method = part.__name__
            what = f"its own method {method}"
            fix = f"call self.{method} instead; or store {cls.__name__}.{method} in a static field"
        contains = "" if part is value else "it contains "
        raise TreeError(
            f"{cls.__name__}.{name}: {contains}{what}, so that the tree would never end\n"
            f"  fix: {fix}"
        )


def check_all_set(spec: ClassSpec, self: Any) -> None:
    unset = [name for name in (f.name for f in spec.fields) if not _has(self, name)]
    if unset:
        name = spec.cls.__name__
        inherited = any(
            unset[0] in vars(base).get("__dataclass_fields__", ()) for base in spec.cls.__mro__[1:]
        )
        first = "call super().__init__(...), or " if spec.has_own_init and inherited else ""
        raise DefinitionError(
            f"{name}.{unset[0]}: the field has no value at the end of construction"
            + (f" (nor have {', '.join(unset[1:])})" if unset[1:] else "")
            + f"\n  fix: {first}assign self.{unset[0]} in __init__ or __post_init__, or give the "
            f"field a default"
        )


def store_key(spec: ClassSpec, self: Any) -> None:
    object.__setattr__(self, KEY, current_key(spec, self))
    if _has(self, PENDING):
        object.__delattr__(self, PENDING)


def current_key(spec: ClassSpec, self: Any) -> StaticKey:
    """Return the key of an instance, which may still be under construction."""
    if is_constructed(self):
        return cast("StaticKey", getattr(self, KEY))
    return key_of(spec.table, tuple(getattr(self, name) for name in spec.static_names))


def unfinished(spec: ClassSpec, self: Any) -> tuple[tuple[Any, ...], StaticKey]:
    """Return the children and the key of an instance whose ``__post_init__`` is running."""
    check_all_set(spec, self)
    children = tuple(getattr(self, name) for name in spec.dynamic_names)
    key = current_key(spec, self)
    return (children if key.hash_node is None else (*children, key.hash_node)), key


def check_key(check: Callable[[StaticKey], None], self: Any) -> None:
    """Call a check of the key of an instance, unless that is still under construction."""
    if is_constructed(self):
        check(object.__getattribute__(self, KEY))
