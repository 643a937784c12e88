"""Changes of exactly one field of an instance, of every kind that a key could see."""

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._describe import describe
from leafwise._register import registered_names
from leafwise._registry import spec_of
from leafwise._text import describe_array, shorten
from leafwise.check.values import (
    CannotBuildError,
    Parameter,
    find,
    parameters_of,
    strategy_for,
)
from leafwise.errors import StaticFieldError

Tree = Any


@dataclasses.dataclass(frozen=True)
class Edit:
    """One change of one field.

    Attributes:
        field: The field's name.
        kind: What was changed: ``value``, ``type``, ``shape``, ``dtype``, ``weak type``,
            ``structure``.
        words: The change in words: ``2 -> 3``.
        edited: The changed instance; None if there is no such change.
        static: Whether the field is static.
        must_retrace: What the kind of field promises; None if it promises nothing.
    """

    field: str
    kind: str
    words: str
    edited: Tree | None
    static: bool
    must_retrace: bool | None = None


class Builder:
    """Makes instances of one class, all fields alike but the ones that are changed.

    Args:
        cls: A class that leafwise registered.

    Raises:
        CannotBuildError: No instance can be made; the message says what to give.
    """

    def __init__(self, cls: Any) -> None:
        """Find the simplest instance."""
        if inspect.isabstract(cls):
            msg = f"{cls.__name__}: an abstract class has no instances; check its subclasses"
            raise CannotBuildError(msg)
        self.cls = cls
        self.parameters = parameters_of(cls)
        self._last_error: Exception | None = None
        self.arguments = self._find_arguments()
        self.base: Tree = self.build({})

    def build(self, changes: dict[str, Any]) -> Tree:
        """Construct an instance with some arguments changed."""
        arguments = {**self.arguments, **changes}
        positional = [
            arguments.pop(parameter.name)
            for parameter in self.parameters
            if not parameter.by_name and parameter.name in arguments
        ]
        return self.cls(*positional, **arguments)

    def try_build(self, changes: dict[str, Any]) -> Tree | None:
        """Construct an instance, or return None if the class refuses the value."""
        try:
            return self.build(changes)
        except Exception as error:  # noqa: BLE001  # converters, checks, __post_init__
            self._last_error = error
            return None

    def _find_arguments(self) -> dict[str, Any]:
        import hypothesis.strategies as st  # noqa: PLC0415  # only here

        required = [p for p in self.parameters if p.default is inspect.Parameter.empty]
        self.arguments = {}
        strategy = st.fixed_dictionaries({p.name: self.strategy(p) for p in required})
        try:
            return self._find(strategy, _has_leaf_in_each_field)
        except LookupError:
            pass  # a field that is None whatever is drawn, say
        try:
            return self._find(strategy, lambda _: True)
        except LookupError as refusal:
            error = self._last_error or refusal
            msg = (
                f"{self.cls.__name__}: no drawn values were accepted by its constructor; the "
                f"last error was {type(error).__name__}: {error}\n"
                f"  fix: give its fields defaults that fit together, or, beside the class:\n"
                f"       hypothesis.strategies.register_type_strategy({self.cls.__name__}, ...)"
            )
            raise CannotBuildError(msg) from error

    def _find(self, strategy: Any, wanted: Callable[[Tree], bool]) -> dict[str, Any]:
        """Return the simplest arguments that make an instance that is wanted."""

        def is_wanted(drawn: dict[str, Any]) -> bool:
            made = self.try_build(drawn)
            return made is not None and wanted(made)

        found: dict[str, Any] = find(strategy, is_wanted)
        return found

    def strategy(self, parameter: Parameter) -> Any:
        """Return a strategy for the values of one parameter."""
        where = f"{self.cls.__name__}.{parameter.name}"
        return strategy_for(parameter.kind, where, parameter.default)


def _has_leaf_in_each_field(made: Tree) -> bool:
    _, dynamic_names = names_of(type(made))
    return all(any(map(_is_numeric, _leaves(getattr(made, name)))) for name in dynamic_names)


def _leaves(tree: Tree) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def edits(builder: Builder) -> Iterator[Edit]:
    """Yield all changes of one field each, in field order."""
    cls = builder.cls
    static_names, dynamic_names = names_of(cls)
    parameters = {parameter.name: parameter for parameter in builder.parameters}
    for name in field_order(cls):
        if name in static_names:
            yield from _static_edits(builder, name, parameters.get(name))
        elif name in dynamic_names:
            yield from _dynamic_edits(builder, name, parameters.get(name))


def names_of(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the static and of the dynamic fields of a class."""
    registered = registered_names(cls)
    if registered is not None:
        return registered
    spec = spec_of(cls)
    return spec.static_names, spec.dynamic_names


def field_order(cls: Any) -> list[str]:
    """Return the fields in order of declaration."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    static, dynamic = names_of(cls)
    return [*dynamic, *static]


def _static_edits(builder: Builder, name: str, parameter: Parameter | None) -> Iterator[Edit]:
    base = builder.base
    value = getattr(base, name)
    if parameter is None:
        yield Edit(name, "value", "not a parameter of the constructor", None, static=True)
        return
    other = _other_instance(builder, name, parameter)
    if isinstance(other, str):
        yield Edit(name, "value", other, None, static=True)
    else:
        words = f"{_name(value)} -> {_name(getattr(other, name))}"
        yield Edit(name, "value", words, other, static=True, must_retrace=True)
    for twin in twins(value):
        edited = builder.try_build({name: twin})
        if edited is None:
            continue
        stored = getattr(edited, name)
        words = f"{_name(value)} -> {shorten(twin, 30)} ({type(twin).__name__})"
        normalised = type(stored) is type(value)
        suffix = f", converted to {_name(stored)}" if normalised else ""
        yield Edit(name, "type", words + suffix, edited, static=True, must_retrace=not normalised)
        return


def _other_instance(builder: Builder, name: str, parameter: Parameter) -> Tree | str:
    """Return an instance whose static differs, or why there is none."""
    base: Any = jax.tree_util.tree_structure(builder.base)

    def differs(value: Any) -> bool:
        edited = builder.try_build({name: value})
        return edited is not None and bool(base != jax.tree_util.tree_structure(edited))

    strategy: Any
    try:
        strategy = builder.strategy(parameter)
        drawn = find(strategy, differs)
    except CannotBuildError as error:
        return str(error).splitlines()[0]
    except StaticFieldError as error:
        return str(error).splitlines()[0]
    except LookupError:
        return "no other value was found"
    return builder.build({name: drawn})


def _name(value: Any) -> str:
    """Return a static value in words, without what only a key's repr needs."""
    return re.sub(r" \(compared by identity, at 0x[0-9a-f]+\)", "", describe(value))


class StrSubclass(str):
    """Text that is equal to a str, and not one."""

    __slots__ = ()
    __repr__ = str.__repr__


class TupleSubclass(tuple[Any, ...]):
    """Items that are equal to a tuple, and not one."""

    __slots__ = ()


def twins(value: Any) -> Iterator[Any]:
    """Yield values that are equal (``==``) to `value` and of another type."""
    if isinstance(value, enum.Enum):
        if isinstance(value, int | str):
            yield value.value
    elif isinstance(value, bool):
        yield int(value)
    elif isinstance(value, int):
        yield float(value)
        yield np.int64(value)
    elif isinstance(value, float):
        if value.is_integer():
            yield int(value)
        yield np.float64(value)
    elif type(value) is str:
        yield StrSubclass(value)
    elif type(value) is tuple:
        yield TupleSubclass(value)


_NO_LEAF: Final = "has no leaf that could be changed"


def _dynamic_edits(builder: Builder, name: str, parameter: Parameter | None) -> Iterator[Edit]:
    base = builder.base
    value = getattr(base, name)
    leaves, structure = jax.tree_util.tree_flatten(value)
    index = next((i for i, leaf in enumerate(leaves) if _is_numeric(leaf)), None)
    if index is None:
        yield _structure_edit(builder, name, parameter)
        return
    leaf = leaves[index]
    for kind, change, must_retrace in _LEAF_EDITS:
        changed = change(leaf)
        if changed is None:
            continue
        new_leaves = [*leaves[:index], changed, *leaves[index + 1 :]]
        edited = _with_field(base, name, jax.tree_util.tree_unflatten(structure, new_leaves))
        words = f"{_say(leaf)} -> {_say(changed)}"
        if kind == "value" and _say(leaf) == _say(changed):
            words = f"{_say(leaf)}, other elements"
        yield Edit(name, kind, words, edited, static=False, must_retrace=must_retrace)
    if parameter is not None and type(None) in typing.get_args(parameter.kind):
        yield _structure_edit(builder, name, parameter)


def _with_field(base: Tree, name: str, value: Any) -> Tree:
    """Return the instance with one child exchanged, as JAX would rebuild it."""
    children, structure = jax.tree_util.tree_flatten(base, is_leaf=lambda node: node is not base)
    _, dynamic_names = names_of(type(base))
    children[dynamic_names.index(name)] = value
    return jax.tree_util.tree_unflatten(structure, children)


def _structure_edit(builder: Builder, name: str, parameter: Parameter | None) -> Edit:
    """Return a change of a field without numeric leaves: None becomes an array, say."""
    value = getattr(builder.base, name)
    if parameter is None:
        return Edit(name, "structure", _NO_LEAF, None, static=False)
    before: Any = jax.tree_util.tree_structure(value)

    def differs(drawn: Any) -> bool:
        other: Any = jax.tree_util.tree_structure(drawn)
        return bool(other != before) and builder.try_build({name: drawn}) is not None

    try:
        drawn = find(builder.strategy(parameter), differs)
    except (LookupError, CannotBuildError):
        return Edit(name, "structure", f"{shorten(value, 30)} {_NO_LEAF}", None, static=False)
    words = f"{shorten(value, 30)} -> {_say(drawn)}"
    edited = builder.build({name: drawn})
    return Edit(name, "structure", words, edited, static=False, must_retrace=True)


def _is_numeric(leaf: Any) -> bool:
    if isinstance(leaf, bool | int | float | complex):
        return True
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _other_value(leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.fold_in(leaf, 1) if leaf.shape == () else None
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int | float | complex):
        return leaf + type(leaf)(1)
    one = np.ones((), leaf.dtype)
    changed = ~np.asarray(leaf) if leaf.dtype == bool else np.asarray(leaf) + one
    return _like(leaf, changed)


def _like(leaf: Any, changed: np.ndarray[Any, Any]) -> Any:
    """Return a changed copy in the clothes of the leaf: array kind and weak type."""
    if isinstance(leaf, jax.Array):
        array = jnp.asarray(changed)
        return _weaken(array) if leaf.weak_type else array
    return changed.astype(leaf.dtype) if isinstance(leaf, np.ndarray) else leaf.dtype.type(changed)


def _other_shape(leaf: Any) -> Any:
    if _is_key(leaf):
        return jnp.stack([leaf, leaf])
    if isinstance(leaf, bool | int | float | complex):
        return jnp.asarray([leaf, leaf])
    array = np.asarray(leaf)
    grown = (
        np.concatenate([array, array[:1]])
        if array.ndim and len(array)
        else np.zeros((2, *array.shape), array.dtype)
    )
    return jnp.asarray(grown)


def _other_dtype(leaf: Any) -> Any:
    if _is_key(leaf):
        return None
    array = jnp.asarray(leaf)
    if array.dtype.kind == "c":
        array = array.real
    return array.astype("int16" if array.dtype != "int16" else "float16")


def _other_weak_type(leaf: Any) -> Any:
    if _is_key(leaf):
        return None
    array = jnp.asarray(leaf)
    if isinstance(leaf, bool) or array.dtype == bool:
        return None  # there is no weak bool
    if jax.typeof(leaf).weak_type:
        return jnp.asarray(np.asarray(leaf, array.dtype))
    return _weaken(array)


def _weaken(array: jax.Array) -> Any:
    """Return an array of this shape that promotes like a Python scalar, if there is one."""
    kinds: dict[str, Callable[[], Any]] = {"f": lambda: 1.0, "i": lambda: 1, "c": lambda: 1j}
    make = kinds.get(array.dtype.kind)
    if make is None:
        return None
    weak = jnp.broadcast_to(jnp.asarray(make()), array.shape)
    return weak if weak.dtype == array.dtype and weak.weak_type else None


_LEAF_EDITS: Final[tuple[tuple[str, Callable[[Any], Any], bool], ...]] = (
    ("value", _other_value, False),
    ("shape", _other_shape, True),
    ("dtype", _other_dtype, True),
    ("weak type", _other_weak_type, True),
)


def _say(leaf: Any) -> str:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        weak = " weak" if getattr(leaf, "weak_type", False) else ""
        few = not _is_key(leaf) and np.asarray(leaf).size == 1
        item: Any = np.asarray(leaf).item() if few else None
        value = f" {item:.6g}" if isinstance(item, float) else f" {item}" if few else ""
        return f"{describe_array(leaf)}{weak}{value}"
    return shorten(leaf, 30)
