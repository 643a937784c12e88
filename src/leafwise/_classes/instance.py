"""The methods of every instance: its constructor, ``==``, printing, copying and pickling."""

import copy
import dataclasses
import functools
import importlib
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import jax
import numpy as np

from leafwise._classes import construct
from leafwise._classes.codegen import make_init
from leafwise._classes.registry import spec_of
from leafwise._classes.spec import ClassSpec, is_decorated, parameter_types, refuse_late_statics
from leafwise._objects.attributes import instance_with
from leafwise._objects.classes import is_a, read, redefined_mark
from leafwise._objects.parts import data_of
from leafwise._objects.source.code import find_by_name
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import local_name, shorten
from leafwise._statics.findings import is_tracer
from leafwise._statics.key import KEY
from leafwise.errors import DefinitionError, LeafwiseError, TreeError, did_you_mean

if TYPE_CHECKING:
    import wadler_lindig

_WIDTH: Final = 88


def attach_init(
    cls: Any, spec: ClassSpec, scopes: list[Mapping[str, Any]], written: Any, *, init: bool
) -> None:
    """Set a constructor that ends by validating the statics; `written` is the class's own."""
    late = [field.name for field in spec.fields if field.is_late]
    if written is None and init:
        initvars = [
            definition
            for definition in cls.__dataclass_fields__.values()
            if definition._field_type.name == "_FIELD_INITVAR"  # noqa: SLF001  # no public way
        ]
        cls.__init__ = make_init(spec, initvars, parameter_types(cls, scopes), _finish, late)
        return
    if written is None:  # a mixin inherits what comes after it in the MRO of its subclass

        @functools.wraps(cls.__init__)
        def inherited(self: Any, *args: Any, **kwargs: Any) -> None:
            super(cls, self).__init__(*args, **kwargs)

        written = inherited
    else:
        _check_written(cls, written)
    cls.__init__ = _completing(cls, written, late)


def _completing(cls: Any, written: Any, late: list[str]) -> Any:
    # `__init__` gets other globals below, so it cannot read those of this module.
    check_decorated, finish, own_error = construct.check_decorated, _finish, LeafwiseError
    refuse_late = refuse_late_statics

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # Python's own name
        try:
            if late:
                refuse_late(cls, late)
            if type(self) is not cls:
                check_decorated(type(self))
            written(self, *args, **kwargs)
            if type(self) is cls:
                finish(self, cls)
        except own_error as error:
            __tracebackhide__ = True
            raise error.without_own_frames()  # noqa: B904  # the same error

    # Use the globals of the wrapped function, in which jaxtyping evaluates string annotations.
    wrapper: Any = __init__
    names = getattr(inspect.unwrap(written), "__globals__", wrapper.__globals__)
    constructor = types.FunctionType(wrapper.__code__, names, closure=wrapper.__closure__)
    return functools.wraps(written)(constructor)


def _finish(self: Any, cls: type) -> None:
    construct.finish(spec_of(cls), self)


def _check_written(cls: Any, written: Any) -> None:
    """Raise if `written` wraps an inherited constructor, which lacks the class's own fields."""
    inherited = {
        base.__dict__.get("__init__"): base for base in cls.__mro__[1:] if is_decorated(base)
    }
    # A constructor written by hand with functools.wraps still has __init__ in its code object.
    if getattr(getattr(written, "__code__", None), "co_name", "__init__") == "__init__":
        return
    inner = written
    while (inner := getattr(inner, "__wrapped__", None)) is not None:
        if inner in inherited:
            name, base = cls.__name__, inherited[inner].__name__
            module = written.__globals__["__name__"].partition(".")[0]
            raise DefinitionError(
                f"{name}: a decorator below @lw.pytree (from {module}) wrapped the constructor of "
                f"{base}, because {name} does not have its own yet\n"
                f"  fix: put @lw.pytree below it, next to `class {name}`"
            )


def rebuild(cls: type, values: dict[str, Any], homes: Iterable[tuple[str, str]] = ()) -> Any:
    """Return an instance without running its constructor; `homes` are of values to import."""
    spec = spec_of(cls)
    self = instance_with(cls, {**values, **{name: import_from(home) for name, home in homes}})
    construct.check_all_set(spec, self)
    construct.store_key(spec, self)
    return self


def check_names(obj: Any, changes: Iterable[str]) -> None:
    """Raise if a name in `changes` is not a field of the dataclass instance."""
    names = [definition.name for definition in dataclasses.fields(obj)]
    unknown = [name for name in changes if name not in obj.__dataclass_fields__]
    if unknown:
        kind = type(obj).__name__
        hint = did_you_mean(unknown[0], names)
        raise TypeError(
            f"{kind} has no field {unknown[0]!r}{hint}: it has {', '.join(names) or 'no fields'}"
        )


def replace(self: Any, /, **changes: Any) -> Any:
    """Return a copy with some fields changed, as `leafwise.replace` does."""
    check_names(self, changes)
    if spec_of(type(self)).has_own_init:
        return rebuild_with(self, changes)
    return dataclasses.replace(self, **changes)


def rebuild_with(self: Any, changes: dict[str, Any]) -> Any:
    """Return a copy with some fields changed, without running the constructor."""
    fields = [field for field in spec_of(type(self)).fields if field.name in changes]
    prepared = {field.name: field.prepare(changes[field.name]) for field in fields}
    return rebuild(type(self), field_values(self) | prepared)


def field_values(self: Any) -> dict[str, Any]:  # not `asdict`, which copies
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def reduce_instance(self: Any) -> tuple[Any, ...]:
    if not is_decorated(type(self)):  # a subclass that another library made a pytree
        return object.__new__, (type(self),), dict(vars(self))
    values = field_values(self)
    names = spec_of(type(self)).static_names
    homes = {name: home for name in names if (home := _home_of(values[name])) is not None}
    return rebuild, (type(self), values | dict.fromkeys(homes), tuple(homes.items()))


def _home_of(value: Any) -> str | None:
    """Return the ``module:qualname`` of a callable that pickle would write by its contents."""
    if not callable(value) or isinstance(value, type | types.FunctionType):
        return None
    from leafwise._statics.portable import name_of  # noqa: PLC0415  # for few values

    return name_of(value)


def import_from(home: str) -> Any:
    """Import and return the object at a ``module:qualname``."""
    module, _, name = home.partition(":")
    importlib.import_module(module)
    return find_by_name(module, name)


def copy_instance(self: Any) -> Any:
    if not is_decorated(type(self)):
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made
    return rebuild(type(self), field_values(self))


def deepcopy_instance(self: Any, memo: dict[int, Any]) -> Any:
    made: Any = object.__new__(type(self))
    memo[id(self)] = made  # first: a child may refer to this instance
    if not is_decorated(type(self)):
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made
    spec = spec_of(type(self))
    for name in spec.dynamic_names:
        object.__setattr__(made, name, copy.deepcopy(getattr(self, name), memo))
    object.__setattr__(made, KEY, construct.current_key(spec, self))
    return made


def equal(self: Any, other: object) -> Any:  # bool or NotImplemented
    """Return whether class, statics, structure and leaves are equal.

    Fields with ``compare=False`` are ignored, as in `dataclasses`, at any depth. Leaves are
    equal if they are the same object, or have equal dtype, shape and elements; NaN equals NaN.

    Raises:
        TreeError: Two traced leaves that are not the same object would have to be compared.
    """
    if self is other:
        return True
    if type(self) is not type(other):
        return NotImplemented
    self, other = _compared(self), _compared(other)
    mine, structure = jax.tree_util.tree_flatten_with_path(self)
    theirs, other_structure = jax.tree_util.tree_flatten(other)
    if bool(cast("Any", structure) != other_structure):
        return False
    pairs = [(path, a, b) for (path, a), b in zip(mine, theirs, strict=True) if a is not b]
    if any(_aval(a) != _aval(b) for _, a, b in pairs):
        return False
    for path, a, b in pairs:
        if is_tracer(a) or is_tracer(b):
            raise TreeError(
                f"{type(self).__name__}{jax.tree_util.keystr(path)}: == would have to "
                f"compare traced values ({a} and {b}), which are not known yet\n"
                f"  fix: compare outside the traced function, or compare leaves with "
                f"jax.numpy.array_equal"
            )
    return all(_same_value(a, b) for _, a, b in pairs)


def _compared(tree: Any) -> Any:
    """Return a tree with None in the fields that ``==`` ignores."""
    if not ClassSpec.any_uncompared:
        return tree

    def has_uncompared(value: Any) -> bool:
        return is_decorated(type(value)) and bool(spec_of(type(value)).uncompared)

    def without(value: Any) -> Any:
        if not has_uncompared(value):
            return value
        passed = spec_of(type(value)).uncompared
        values = field_values(value)
        return rebuild(
            type(value), {n: None if n in passed else _compared(v) for n, v in values.items()}
        )

    return jax.tree_util.tree_map(without, tree, is_leaf=has_uncompared)


def hash_instance(self: Any) -> int:
    """Return a hash from the class, the statics and each leaf's shape and dtype."""
    leaves, structure = jax.tree_util.tree_flatten(_compared(self))
    spec = spec_of(type(self))
    # A key hashes by identity, and nothing keeps the key that `_compared` makes alive. The
    # treedef's hash does not depend on the statics.
    key = None if spec.uncompared else construct.current_key(spec, self)
    return hash((structure, key, tuple(map(_aval, leaves))))


def _aval(leaf: Any) -> tuple[object, ...]:
    shape, dtype = read(leaf, "shape"), read(leaf, "dtype")
    if type(shape) is tuple and dtype is not MISSING:
        return (shape, str(dtype))
    return (type(leaf),)


def _same_value(a: Any, b: Any) -> bool:
    if hasattr(a, "dtype") and hasattr(a, "shape"):
        if isinstance(a, jax.ShapeDtypeStruct) or isinstance(b, jax.ShapeDtypeStruct):
            return bool(a == b)
        a, b = data_of(a), data_of(b)
        same = a == b
        if np.issubdtype(a.dtype, np.inexact) or a.dtype.kind in "VmM":
            same = same | ((a != a) & (b != b))  # noqa: PLR0124  # NaN, NaT
        return bool(np.all(same))
    return bool(a == b) or bool(a != a and b != b)  # noqa: PLR0124  # NaN


def _print(tree: Any, **options: Any) -> str:
    import wadler_lindig  # noqa: PLC0415  # only printing needs it

    return wadler_lindig.pformat(tree, hide_defaults=False, **options)


def represent(self: Any) -> str:
    """Return ``Params(x=f32[3,4], a=2)``: code, with arrays summarised."""

    def document(value: Any) -> "wadler_lindig.AbstractDoc | None":
        # The class's own `__repr__` may be what asks: super(), or a decorator's wrapper.
        return None if value is self else _document(value)

    # JAX 0.10 prints an instance where its class is not the expected one.
    return _print(self, width=_WIDTH, custom=document) + redefined_mark(type(self))


def _document(value: Any) -> "wadler_lindig.AbstractDoc | None":
    """Return the document of a value that wadler-lindig would print differently, or None."""
    import wadler_lindig as wl  # noqa: PLC0415  # only printing needs it

    if value.__class__ is not type(value):  # a proxy, which would be printed as another class
        return wl.TextDoc(shorten(value))
    if is_a(value, type):
        return wl.TextDoc(value.__name__ if is_decorated(value) else local_name(value))
    if is_decorated(type(value)) and _has_own_text(value):
        return wl.TextDoc(repr(value))
    is_struct = is_a(value, jax.ShapeDtypeStruct)
    kind = "struct" if is_struct else "traced" if is_tracer(value) else None
    if kind is not None or is_a(value, jax.Array):
        return wl.array_summary(value.shape, str(value.dtype), kind)
    return None


def pformat(tree: Any, *, width: int = _WIDTH) -> str:
    """Return a pytree as indented text, its arrays as ``f32[3,4]``.

    Args:
        tree: Any pytree.
        width: The columns to fit into, where possible.

    Returns:
        The text, without a trailing newline.

    Examples:
        >>> print(pformat({"w": jax.numpy.zeros((2, 3))}))
        {'w': f32[2,3]}
    """
    return _print(tree, width=width, custom=_document)


# Display of instances in IPython, rich and treescope, which are not imported here.


def attach_display(cls: Any) -> None:
    """Give a class with our ``__repr__`` the display methods that it does not define."""
    for name, method in _METHODS.items():
        # Set it even if a base class has it: IPython goes through the classes in order, and
        # would prefer the ``__repr__`` of this one.
        if getattr(cls, name, method) is method:
            setattr(cls, name, method)


def _has_own_text(self: Any) -> bool:
    """Return whether a subclass has its own ``__repr__``, which is then shown everywhere."""
    kind: Any = type(self)
    return kind.__repr__ is not represent


def _pretty(self: Any, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # IPython's order
    if cycle:
        printer.text(f"{type(self).__name__}(...)")
        return
    room = max(printer.max_width - printer.indentation, 20)
    for index, line in enumerate(pformat(self, width=room).split("\n")):
        if index:
            printer.break_()
        printer.text(line)


def _rich(self: Any) -> Iterator[tuple[str, Any]] | None:
    return None if _has_own_text(self) else _fields(self)


def _fields(self: Any) -> Iterator[tuple[str, Any]]:
    for field in spec_of(type(self)).fields:
        if field.definition.repr:
            value = getattr(self, field.name, Verbatim("<not set>"))
            name = f"static {field.name}" if field.static else field.name
            yield name, value if field.static else _summary(value)


def _summary(value: Any) -> Any:
    """Return a value with its arrays summarised, including those in dicts, lists and tuples."""
    if isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return Verbatim(pformat(value))
    kind: type = type(value)
    if kind is dict:
        return {key: _summary(item) for key, item in value.items()}
    return kind(map(_summary, value)) if kind in {list, tuple} else value


def _treescope(self: Any, path: str | None, subtree_renderer: Any) -> Any:
    if _has_own_text(self):
        return NotImplemented
    from leafwise._classes.treescope import render  # noqa: PLC0415  # only treescope calls this

    return render(self, path, subtree_renderer)


_METHODS: Final[dict[str, Any]] = {
    "_repr_pretty_": _pretty,
    "__rich_repr__": _rich,
    "__treescope_repr__": _treescope,
}
