"""`from_chex`: a pytree class in the place of a `chex.dataclass`.

The class is not converted but written again: `_written` takes from it what stood in its body,
`_class` makes a class of that, and `decorate` does the rest, as for any pytree class.
"""

import collections.abc
import copy
import dataclasses
import difflib
import functools
import inspect
import re
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, Final, Generic, Self, TypeVar, cast, dataclass_transform, overload

import jax

from leafwise._classes.annotations import caller_scopes
from leafwise._classes.fields import STATIC_METADATA, field, static_field
from leafwise._classes.instance import field_values, fill
from leafwise._classes.pytree import PytreeOptions, decorate
from leafwise._classes.registry import spec_of
from leafwise._classes.spec import is_decorated
from leafwise._objects.class_map import ClassMap
from leafwise._objects.locks import new_lock
from leafwise._objects.text import got
from leafwise._trees.update import replace
from leafwise.errors import DefinitionError
from leafwise.interop._extra import import_extra

chex: Any = import_extra("chex", "chex")  # which has no types

T = TypeVar("T")

Scopes = list[Mapping[str, Any]]


@overload
def from_chex(cls: type[T], /, *, static: Sequence[str] = ...) -> type[T]: ...
@overload
def from_chex(*, static: Sequence[str] = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(
    eq_default=False,
    kw_only_default=True,
    field_specifiers=(field, static_field, dataclasses.field),
)
def from_chex(
    cls: type[T] | None = None, /, *, static: Sequence[str] = ()
) -> type[T] | Callable[[type[T]], type[T]]:
    """Return a leafwise class in the place of a `chex.dataclass`.

    It has the same name, module, fields, defaults and methods, with ``replace``,
    ``to_tuple`` and ``from_tuple``; if the other is a mapping (chex's default), it is one,
    and takes its fields by keyword only, as chex does. Pickles of chex's class load, where this
    one has taken its name. chex dataclasses among the bases are migrated with it, once.

    What does not stay: instances are frozen; ``__post_init__`` runs when one is constructed,
    but not when JAX rebuilds one; leaves come in the order of the fields, which chex sorts by
    name; an attribute that is not a field is an error, not a leaf; and a mapping of fields is
    given as ``C(**mapping)``, not as ``C(mapping)``.

    Args:
        cls: A `chex.dataclass`, which stays as it is, or a class without a decorator, which
            becomes what ``from_chex(chex.dataclass(cls))`` would be.
        static: The fields that are static from now on. chex has none; those that an
            annotation or metadata calls static are so in any case.

    Returns:
        A new class. Called again with the same class and names, the same one.

    Raises:
        DefinitionError: `cls` is not a class of chex, a name is not a field of it, or what it
            is made of cannot be in a pytree class, such as its own ``__setattr__``.

    Examples:
        >>> import chex
        >>> @from_chex(static=["act"])
        ... @chex.dataclass
        ... class Params:
        ...     w: jax.Array
        ...     act: str = "relu"
        >>> Params(w=jnp.ones(3))
        Params(w=f32[3], act='relu')
    """
    if isinstance(static, str) or not all(isinstance(each, str) for each in list[Any](static)):
        raise DefinitionError(f"from_chex(static={static!r}): name fields in a list: [{static!r}]")
    names = frozenset(static)
    if cls is not None:
        return cast("type[T]", _migrate(cls, names, caller_scopes(2)))
    return lambda decorated: cast("type[T]", _migrate(decorated, names, caller_scopes(2)))


class ChexMethods:
    """What `chex.dataclass` gives every class in addition to the pytree."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; see `leafwise.replace`."""
        return replace(self, **changes)

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the values of all fields, in field order."""
        return tuple(field_values(self).values())

    @classmethod
    def from_tuple(cls, args: Sequence[Any]) -> Self:
        """Return an instance of the values that `to_tuple` gives."""
        fields = dataclasses.fields(cast("Any", cls))
        pairs = list(zip(fields, args, strict=True))
        return cls(**{definition.name: value for definition, value in pairs if definition.init})

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Fill an instance with what a chex.dataclass of this name once pickled."""
        names = [definition.name for definition in dataclasses.fields(cast("Any", self))]
        fill(self, {name: state[name] for name in names if name in state})


class ChexMapping(ChexMethods, Mapping[str, Any]):
    """What `chex.dataclass` adds by default: the fields as a mapping."""

    def __getitem__(self, name: str) -> Any:
        if name not in spec_of(type(self)).dynamic_names + spec_of(type(self)).static_names:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(field_values(self))

    def __len__(self) -> int:
        return len(spec_of(type(self)).fields)

    def keys(self) -> KeysView[str]:
        """Return the names of the fields."""
        return field_values(self).keys()

    def values(self) -> ValuesView[Any]:
        """Return the values of the fields."""
        return field_values(self).values()

    def items(self) -> ItemsView[str, Any]:
        """Return the names and values of the fields."""
        return field_values(self).items()


# ------------------------------------------------------------------------ migrating


_MIGRATED: Final[ClassMap[dict[frozenset[str], type]]] = ClassMap()
"""The new classes so far, by the class of chex and the names made static."""

_LOCK: Final = new_lock()


def _migrate(cls: Any, static: frozenset[str], scopes: Scopes) -> type:
    _check(cls, static)
    if is_decorated(cls):
        return cast("type", cls)
    with _LOCK:
        made = _MIGRATED.setdefault(cls, dict)
        if static not in made:
            try:
                made[static] = _build(cls, static, scopes)
            except DefinitionError as error:
                error.add_note(
                    f"while migrating {cls.__name__} from chex: from_chex({cls.__name__}, "
                    f"static=[...]) names the fields that are static from now on"
                )
                raise
        return made[static]


def _check(cls: Any, static: frozenset[str]) -> None:
    if not inspect.isclass(cls) or cls.__module__ == "builtins":
        msg = f"from_chex takes a class written for chex.dataclass, got {got(cls)}"
        if dataclasses.is_dataclass(cls):
            kind = type(cls).__name__
            msg += f"\n  fix: for an instance: from_chex({kind})(**vars(instance))"
        raise DefinitionError(msg)
    name = cls.__name__
    ready = is_decorated(cls)
    if not (ready or _is_of_chex(cls)):
        if "__dataclass_params__" in vars(cls):
            raise DefinitionError(
                f"from_chex({name}): a dataclass, but not one of chex\n  fix: see lw.pytree"
            )
        if jax.tree_util.is_tree_node(cls):
            raise DefinitionError(
                f"from_chex({name}): registered as a pytree, but not by chex.dataclass"
            )
        hidden = [each for each in inspect.get_annotations(cls) if hasattr(ChexMapping, each)]
        if hidden:
            raise DefinitionError(
                f"from_chex({name}): a field {hidden[0]!r} would hide the method of that name\n"
                f"  fix: another name, or @lw.pytree, which makes no mapping"
            )
    declared = dict.fromkeys(getattr(cls, "__dataclass_fields__", ()))
    declared |= dict.fromkeys(inspect.get_annotations(cast("type", cls)))
    unknown = sorted(static - set(declared))
    if unknown:
        near = difflib.get_close_matches(unknown[0], declared, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise DefinitionError(
            f"from_chex({name}, static=...): no field {unknown[0]!r}{hint}; {name} has "
            f"{', '.join(declared) or 'no fields'}"
        )
    if ready and not static <= set(spec_of(cls).static_names):
        first = min(static - set(spec_of(cls).static_names))
        raise DefinitionError(
            f"from_chex({name}, static=...): {name} is a pytree class of leafwise already, in "
            f"which {first!r} is dynamic\n  fix: `{first}: lw.Static[...]` in its body"
        )


def _build(cls: Any, static: frozenset[str], scopes: Scopes) -> type:
    of_chex = _is_of_chex(cls)
    mapping = not of_chex or _is_by_chex(vars(cls).get("__getitem__"))
    exchanged = _exchanged(cls, static, scopes)
    bases = list(exchanged.values())
    extra = ChexMapping if mapping else ChexMethods
    if not any(issubclass(base, extra) for base in bases):
        bases.append(extra)
    body = _written(cls)
    _declare_fields(cls, body, static - _statics_of(bases), kw_only=mapping)
    made = _class(cls, bases, exchanged, body)
    params = vars(cls).get("__dataclass_params__")
    options = PytreeOptions(
        kw_only=mapping,
        order=params.order if params else False,
        repr=params.repr if params else True,
        eq=params.eq if params else True,
        init=params.init if params else True,
    )
    return cast("type", decorate(made, options, scopes))


def _exchanged(cls: Any, static: frozenset[str], scopes: Scopes) -> dict[type, type]:
    """Return the bases of a class, and what takes their place."""
    left_out = (object, collections.abc.Mapping)  # ChexMapping is one
    return {base: _base(base, static, scopes) for base in cls.__bases__ if base not in left_out}


def _base(base: Any, static: frozenset[str], scopes: Scopes) -> type:
    if is_decorated(base) or not any(map(_is_of_chex, base.__mro__)):
        return cast("type", base)
    static &= {definition.name for definition in dataclasses.fields(base)}
    made = _MIGRATED.setdefault(base, dict)
    for names, migrated in reversed(made.items()):
        if static <= names:
            return migrated
    if _is_of_chex(base):
        return _migrate(base, static, scopes)
    exchanged = _exchanged(base, static, scopes)  # a class without a decorator in between
    made[static] = _class(base, list(exchanged.values()), exchanged, _written(base))
    return made[static]


def _statics_of(bases: list[type]) -> set[str]:
    decorated = (each for base in bases for each in base.__mro__ if is_decorated(each))
    return {name for base in decorated for name in spec_of(base).static_names}


def _declare_fields(
    cls: Any, body: dict[str, Any], static: frozenset[str], *, kw_only: bool
) -> None:
    """Put the fields into the body of a class, as their decorator has left only defaults."""
    annotations = body["__annotations__"]
    of_chex = _is_of_chex(cls)
    known = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    for definition in known:
        name = definition.name
        if (of_chex and name in annotations) or (name in static and name not in annotations):
            annotations.setdefault(name, definition.type)
            body[name] = copy.copy(definition)
            body[name].kw_only |= kw_only
    for name in static:
        declared = body.get(name, dataclasses.MISSING)
        if not isinstance(declared, dataclasses.Field):
            missing = declared is dataclasses.MISSING
            declared = dataclasses.field() if missing else dataclasses.field(default=declared)
        body[name] = copy.copy(declared)
        body[name].metadata = types.MappingProxyType({**declared.metadata, **STATIC_METADATA})


def _class(cls: Any, bases: list[type], exchanged: dict[type, type], body: dict[str, Any]) -> Any:
    """Return a class like another one, with other bases."""

    def exchanged_alias(alias: Any) -> Any:  # Base[T], with the new base in the place of Base
        new: Any = exchanged.get(getattr(alias, "__origin__", object))
        return alias if new in (None, Generic) else new[alias.__args__]

    cell = types.CellType()
    # Each on its own: a cycle of functions ends at the one it began with.
    body = {name: _Rebinding(cls.__name__, cell).of(value) for name, value in body.items()}
    if "__orig_bases__" in body:
        body["__orig_bases__"] = tuple(map(exchanged_alias, body["__orig_bases__"]))
    body["__qualname__"] = cls.__qualname__
    if "__init__" in vars(cls) and cls.__qualname__ == cls.__name__:
        # chex makes a mapping of a copy that has forgotten its qualified name.
        found: str = getattr(_constructor(cls), "__qualname__", "").removesuffix(".__init__")
        if found.endswith(f".{cls.__name__}"):
            body["__qualname__"] = found
    made = types.new_class(
        cls.__name__, tuple(bases), {"metaclass": type(cls)}, lambda made: made.update(body)
    )
    cell.cell_contents = made
    return made


# ------------------------------------------------------------------------ what decorators made


def _is_of_chex(cls: type) -> bool:
    return "__dataclass_params__" in vars(cls) and _is_by_chex(vars(cls).get("to_tuple"))


def _is_by_chex(function: Any) -> bool:
    """Return whether a function was made by `chex.dataclass`."""
    code = getattr(function, "__code__", None)
    return bool(getattr(code, "co_filename", None) == chex.dataclass.__code__.co_filename)


@dataclasses.dataclass(frozen=True)
class _Sample:
    x: int


_GENERATED: Final = cast("Any", _Sample.__eq__).__code__.co_qualname.removesuffix("__eq__")
"""How the qualified name of a function begins whose code dataclasses wrote."""


def _is_generated(function: Any) -> bool:
    """Return whether a function was made by `dataclasses.dataclass`."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return False
    own = code.co_filename == dataclasses.dataclass.__code__.co_filename
    return bool(own or code.co_qualname.startswith(_GENERATED))


def _constructor(cls: Any) -> Any:
    """Return the ``__init__`` of a class, without what chex has put around it."""
    init = cls.__init__
    while _is_by_chex(init):
        init = init.__wrapped__
    return init


_OF_ANY_CLASS: Final = ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl")
_OF_DATACLASSES: Final = ("__dataclass_fields__", "__dataclass_params__")
_OF_ANNOTATIONS: Final = ("__annotate__", "__annotate_func__", "__annotations_cache__")


def _written(cls: Any) -> dict[str, Any]:
    """Return what stands in the body of a class, as far as no decorator has put it there."""
    left_out = (*_OF_ANY_CLASS, *_OF_DATACLASSES, *_OF_ANNOTATIONS)
    written = {
        name: value
        for name, value in vars(cls).items()
        if name not in left_out and not _is_by_chex(value) and not _is_generated(value)
    }
    written["__annotations__"] = dict(inspect.get_annotations(cls))
    if written.get("__hash__", cls) is None:
        del written["__hash__"]
    generated_doc = re.fullmatch(rf"{cls.__name__}\(.*\)", cls.__doc__ or "")
    if _is_of_chex(cls) and generated_doc:  # dataclasses writes one
        del written["__doc__"]
    init = _constructor(cls)
    inherited = [_constructor(base) for base in cls.__mro__[1:]]
    if "__init__" in vars(cls) and init not in inherited and not _is_generated(init):
        written["__init__"] = init
    return written


# ------------------------------------------------------------------------ rebinding of methods

_CLASS = "__class__"
"""The cell through which a method without arguments to ``super()`` finds its class."""


class _Rebinding:
    """Copies what refers to a class, so that it refers to the class that takes its place.

    What does not refer to it is returned unchanged. A function that does is copied, so that both
    classes go on working.

    Args:
        name: The class's ``__name__``: only cells that hold a class of this name are exchanged.
        new: The cell that will hold the new class.
    """

    def __init__(self, name: str, new: types.CellType) -> None:
        self.name = name
        self.new = new
        self.copies: dict[int, types.FunctionType] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, staticmethod | classmethod):
            function = self.of(value.__func__)
            return value if function is value.__func__ else type(value)(function)
        if isinstance(value, property):
            get, put, delete = map(self.of, (value.fget, value.fset, value.fdel))
            same = get is value.fget and put is value.fset and delete is value.fdel
            return value if same else type(value)(get, put, delete, value.__doc__)
        if isinstance(value, functools.cached_property):
            function = self.of(value.func)
            return value if function is value.func else type(value)(function)
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        """Return a copy if a cell has to be exchanged, at any depth of decoration."""
        if id(function) in self.copies:
            return self.copies[id(function)]
        self.copies[id(function)] = function  # it may hold itself
        cells = function.__closure__ or ()
        names = function.__code__.co_freevars
        exchanged = tuple(self._cell(name, cell) for name, cell in zip(names, cells, strict=True))
        if all(old is new for old, new in zip(cells, exchanged, strict=True)):
            return function
        copied = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            exchanged,
        )
        copied.__kwdefaults__ = function.__kwdefaults__
        functools.update_wrapper(copied, function)
        del vars(copied)["__wrapped__"]  # `update_wrapper` sets it to the function itself
        if "__wrapped__" in vars(function):
            vars(copied)["__wrapped__"] = self.of(vars(function)["__wrapped__"])
        self.copies[id(function)] = copied
        return copied

    def _cell(self, name: str, cell: types.CellType) -> types.CellType:
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            return cell
        if name == _CLASS:
            return self.new if getattr(content, "__name__", None) == self.name else cell
        new = self.of(content)
        return cell if new is content else types.CellType(new)
